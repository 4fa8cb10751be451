/**
 * One setting of a form: a number with a slider, a choice, a list, a switch, or a line of text.
 *
 * It holds what a person does to it, and tells it as "change"; the server only sets it to something else on purpose,
 * so that a page that is slow never moves a slider back under a finger.
 */

const DRAG_PAUSE_MS = 60;

/** Where between 0 and 1000 a value is. @param {any} spec @param {number} value */
function position({ least, most, log }, value) {
  if (!log) return value;
  return Math.round((1000 * Math.log(value / least)) / Math.log(most / least));
}

/** @param {any} spec @param {number} place */
function valueAt({ least, most, log }, place) {
  if (!log) return place;
  return Number((least * (most / least) ** (place / 1000)).toPrecision(2));
}

export default {
  template: `
    <fieldset v-if="kind === 'choice'" class="field choice" :class="{ bare }" :disabled="disabled">
      <legend>{{ label }}</legend>
      <div class="segments" role="radiogroup" :aria-label="label">
        <label v-for="option in options" :key="option.value" class="segment" :class="{ on: current === option.value }">
          <input type="radio" :name="uid" :value="option.value" :checked="current === option.value"
                 @click="set(option.value)" :data-testid="name + '-' + option.value">
          <span>{{ option.label }}</span><small v-if="option.hint">{{ option.hint }}</small>
        </label>
      </div>
      <p v-if="error || hint" class="hint" :class="{ bad: error }" :role="error ? 'alert' : null">{{ error || hint }}</p>
    </fieldset>
    <label v-else-if="kind === 'switch'" class="field switch">
      <input type="checkbox" role="switch" :checked="current" :disabled="disabled" @change="set($event.target.checked)"
             :data-testid="name">
      <span><b>{{ label }}</b><small v-if="hint">{{ hint }}</small></span>
    </label>
    <div v-else class="field" :class="'is-' + kind">
      <div class="field-head">
        <label :for="uid">{{ label }}</label>
        <input v-if="kind === 'number'" :id="uid" class="figure" type="text" :inputmode="log ? 'text' : 'numeric'"
               autocomplete="off" :value="text ?? shown" :disabled="disabled" @input="text = $event.target.value"
               @change="typed" :data-testid="name"
               :aria-invalid="!!error" :aria-describedby="uid + '-hint'">
      </div>
      <input v-if="kind === 'number'" type="range" :min="log ? 0 : least" :max="log ? 1000 : most" :step="log ? 1 : step"
             :value="position()" :disabled="disabled" @input="dragged($event)" :aria-label="label"
             :aria-valuetext="shown" :data-testid="name + '-slider'" :style="{ '--part': part }">
      <select v-else-if="kind === 'list'" :id="uid" :disabled="disabled" @change="set($event.target.value)"
              :data-testid="name">
        <option v-for="option in options" :key="option.value" :value="option.value"
                :selected="option.value === current">{{ option.label }}</option>
      </select>
      <textarea v-else-if="kind === 'area'" :id="uid" :value="current" :disabled="disabled" rows="3"
                :maxlength="most" @input="set($event.target.value)" :placeholder="placeholder"
                :data-testid="name"></textarea>
      <input v-else :id="uid" :type="kind === 'search' ? 'search' : 'text'" :value="text ?? current" :disabled="disabled"
             autocomplete="off" spellcheck="false" :maxlength="most" :placeholder="placeholder"
             @input="text = $event.target.value" @change="set($event.target.value)" :data-testid="name">
      <p v-if="error || hint" :id="uid + '-hint'" class="hint" :class="{ bad: error }">{{ error || hint }}</p>
    </div>`,
  emits: ["change"], // or the browser's own event of that name would pass for ours
  props: {
    kind: String,
    name: String,
    label: String,
    hint: String,
    error: String,
    value: null,
    stamp: Number,
    least: Number,
    most: Number,
    step: Number,
    log: Boolean,
    options: Array,
    placeholder: String,
    disabled: Boolean,
    bare: Boolean,
  },
  data() {
    // `text`: what is being typed, which a page drawn anew must not take away.
    return {
      current: this.value,
      text: null,
      uid: `field-${this.name}-${Math.random().toString(36).slice(2, 8)}`,
    };
  },
  watch: {
    /** A new stamp says that the server means its value, even if it is the one of before. */
    stamp() {
      this.current = this.value;
      this.text = null;
    },
  },
  computed: {
    shown() {
      if (typeof this.current !== "number") return String(this.current);
      if (!this.log || Math.abs(this.current) >= 1e-3)
        return this.current.toLocaleString("en", { maximumFractionDigits: 6 });
      return this.current.toExponential().replace("+", "");
    },
    part() {
      const place = this.position();
      const [low, high] = this.log ? [0, 1000] : [this.least, this.most];
      return Math.min(1, Math.max(0, (place - low) / (high - low)));
    },
  },
  methods: {
    position() {
      return position(this, this.current);
    },
    dragged(event) {
      const value = valueAt(this, Number(event.target.value));
      this.current = value;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.$emit("change", value), DRAG_PAUSE_MS);
    },
    typed(event) {
      const text = event.target.value.replaceAll(",", "").trim();
      const value = text === "" ? Number.NaN : Number(text);
      const usable = Number.isFinite(value);
      if (usable) this.current = value;
      this.text = null;
      this.$emit("change", usable ? value : text);
    },
    set(value) {
      this.current = value;
      this.text = null;
      this.$emit("change", value);
    },
  },
};
