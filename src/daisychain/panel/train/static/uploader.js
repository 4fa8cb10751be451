/** Brings one file to the server, as it is: chosen or dropped, with its progress, and what the server said. */

export default {
  template: `
    <div class="drop" :class="{ over }" @dragover.prevent="over = true" @dragleave="over = false" @drop.prevent="dropped">
      <label class="quiet button" :class="{ off: busy }">
        <input ref="file" type="file" :accept="accept" :disabled="busy" @change="chosen" data-testid="upload">
        {{ busy ? "Bringing " + name + "…" : label }}
      </label>
      <progress v-if="busy" max="1" :value="part" :aria-label="'Upload of ' + name"></progress>
      <button v-if="busy" type="button" class="quiet" @click="request.abort()">Cancel</button>
      <p class="hint" :class="{ bad: error }" role="status" data-testid="upload-said">{{ error || hint }}</p>
    </div>`,
  emits: ["done"],
  props: { url: String, kind: String, accept: String, label: String, hint: String, most: Number },
  data() {
    return { busy: false, over: false, part: 0, name: "", error: "" };
  },
  methods: {
    chosen() {
      this.bring(this.$refs.file.files[0]);
      this.$refs.file.value = "";
    },
    dropped(event) {
      this.over = false;
      if (!this.busy) this.bring(event.dataTransfer.files[0]);
    },
    bring(file) {
      if (!file) return;
      this.error = "";
      if (file.size > this.most) {
        this.error = `${file.name} has ${(file.size / 2 ** 20).toFixed(0)} MiB; at most ${this.most / 2 ** 20} MiB can be uploaded.`;
        return;
      }
      this.name = file.name;
      this.busy = true;
      this.part = 0;
      this.request = new XMLHttpRequest();
      this.request.upload.onprogress = (event) => {
        this.part = event.total ? event.loaded / event.total : 0;
      };
      this.request.onloadend = () => this.ended();
      this.request.open("POST", `${this.url}?${new URLSearchParams({ kind: this.kind, name: file.name })}`);
      this.request.setRequestHeader("Content-Type", "application/octet-stream");
      this.request.send(file);
    },
    ended() {
      this.busy = false;
      const { status, responseText } = this.request;
      let answer = {};
      try {
        answer = JSON.parse(responseText);
      } catch {
        // the reason is then the text itself
      }
      if (status === 200) this.$emit("done", answer.file);
      else this.error = answer.error || responseText.trim().slice(0, 300) || "The upload was broken off.";
    },
  },
};
