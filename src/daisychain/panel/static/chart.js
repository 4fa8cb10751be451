/**
 * Lines over a common axis, in panes one above the other, as an SVG in the colours of the page. A pointer or the
 * arrow keys read single points.
 */

const LEFT = 52;
const RIGHT = 12;
const TOP = 26;
const PANE = { first: 190, more: 120 };
const FOOT = 30;
const LABEL_LETTERS = 5; // of an axis, that end before its zero
const SVG = "http://www.w3.org/2000/svg";

/** Round numbers within a range, about so many. @param {number} low @param {number} high @param {number} about */
function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((each) => each * power >= rough) ?? 10) * power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

/** @param {number} value */
const short = (value) =>
  Math.abs(value) >= 1e4
    ? new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value)
    : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 4 });

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The index of the value that is nearest, of rising values. @param {number[]} values @param {number} wanted */
function nearest(values, wanted) {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - values[low - 1] < values[low] - wanted ? low - 1 : low;
}

/** @param {any} pane @returns {[number, number]} the range that is shown, with a little air */
function range(pane) {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const { y } of pane.lines) {
    for (const value of y) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return [0, 1];
  if (pane.from_zero) low = Math.min(0, low);
  const air = (high - low) * 0.06 || Math.abs(high) * 0.06 || 0.5;
  return [low >= 0 ? Math.max(0, low - air) : low - air, high + air];
}

export default {
  template: `
    <figure>
      <figcaption class="chart-keys"><span v-for="line in keys" :class="'tone-' + line.tone">{{ line.name }}</span></figcaption>
      <svg ref="svg" tabindex="0" role="img" :aria-label="words"></svg>
      <output class="chart-readout">{{ readout }}</output>
    </figure>`,
  props: { data: Object, label: String },
  data() {
    return { looked: null, readout: "" };
  },
  computed: {
    keys() {
      const lines = this.data.panes[0].lines;
      return lines.length > 1 ? lines : [];
    },
    words() {
      const lines = this.data.panes.flatMap((pane) => pane.lines);
      const said = lines
        .filter((line) => line.y.length)
        .map((line) => `${line.name} from ${short(line.y[0])} to ${short(line.y[line.y.length - 1])}`);
      return `${this.label}: ${said.length ? said.join("; ") : "no points yet"}. Arrow keys read single points.`;
    },
  },
  mounted() {
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.$refs.svg);
    const svg = this.$refs.svg;
    svg.addEventListener("pointermove", (event) => this.look(this.at(event.offsetX)));
    svg.addEventListener("pointerdown", (event) => this.look(this.at(event.offsetX)));
    svg.addEventListener("pointerleave", () => this.look(null));
    svg.addEventListener("blur", () => this.look(null));
    svg.addEventListener("keydown", (event) => this.step(event));
    this.draw();
  },
  unmounted() {
    this.observer.disconnect();
  },
  watch: {
    data() {
      this.draw();
    },
  },
  methods: {
    /** @param {number} pixel */
    at(pixel) {
      return ((pixel - LEFT) / Math.max(1, this.width - LEFT - RIGHT)) * this.most;
    },
    /** @param {KeyboardEvent} event */
    step(event) {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const xs = this.data.xs[0] ?? [];
      if (!way || !xs.length) return;
      event.preventDefault();
      const from = this.looked === null ? (way > 0 ? -1 : xs.length) : nearest(xs, this.looked);
      this.look(xs[Math.min(xs.length - 1, Math.max(0, from + way))]);
    },
    /** @param {number | null} x */
    look(x) {
      this.looked = x;
      this.draw();
    },
    draw() {
      const svg = this.$refs.svg;
      const width = svg?.clientWidth;
      if (!width) return;
      this.width = width;
      this.most = Math.max(this.data.most, ...this.data.xs.map((xs) => xs[xs.length - 1] ?? 0)) || 1;
      const heights = this.data.panes.map((_, index) => (index ? PANE.more : PANE.first));
      const height = heights.reduce((sum, each) => sum + TOP + each, FOOT);
      svg.style.height = `${height}px`;
      const parts = [];
      const said = [];
      let top = 0;
      this.data.panes.forEach((pane, index) => {
        this.drawPane(parts, said, pane, top + TOP, heights[index]);
        top += TOP + heights[index];
      });
      this.drawAxis(parts, top);
      svg.replaceChildren(...parts);
      this.readout = said.join(" · ");
    },
    /** @param {Node[]} parts @param {string[]} said @param {any} pane @param {number} top @param {number} height */
    drawPane(parts, said, pane, top, height) {
      const [low, high] = range(pane);
      const x = (value) => LEFT + (value / this.most) * (this.width - LEFT - RIGHT);
      const y = (value) => top + (1 - (value - low) / (high - low)) * height;
      parts.push(node("text", { x: 0, y: top - 12, class: "axis" }, pane.label));
      const empty = pane.lines.every((line) => !line.y.length);
      if (empty) {
        const at = { x: (LEFT + this.width) / 2, y: top + height / 2, class: "axis empty" };
        parts.push(node("text", at, "It appears here, step by step."));
        return;
      }
      for (const value of ticks(low, high, height > 150 ? 5 : 3)) {
        const at = Math.round(y(value)) + 0.5;
        parts.push(node("line", { x1: LEFT, x2: this.width - RIGHT, y1: at, y2: at, class: "grid-line" }));
        parts.push(node("text", { x: LEFT - 8, y: at + 4, class: "axis end" }, short(value)));
      }
      for (const line of pane.lines) this.drawLine(parts, said, pane, line, x, y, [top, height]);
    },
    drawLine(parts, said, pane, line, x, y, [top, height]) {
      const xs = this.data.xs[line.x];
      if (!line.y.length) return;
      const path = line.y.map((value, i) => `${i ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`);
      parts.push(node("path", { d: path.join(""), class: `line tone-${line.tone}` }));
      const last = line.y.length - 1;
      const looked = this.looked === null ? last : nearest(xs, this.looked);
      if (this.looked !== null) {
        const at = x(xs[looked]);
        parts.push(node("line", { x1: at, x2: at, y1: top, y2: top + height, class: "cursor-line" }));
        const value = line.y[looked].toLocaleString("en", { maximumFractionDigits: pane.digits });
        if (!said.length) said.push(`${this.data.axis} ${short(xs[looked])}`);
        said.push(`${line.name} ${value}`);
      }
      const dot = { cx: x(xs[looked]), cy: y(line.y[looked]), r: 4, class: `dot tone-${line.tone}` };
      parts.push(node("circle", dot));
    },
    /** @param {Node[]} parts @param {number} top */
    drawAxis(parts, top) {
      const space = this.width - LEFT - RIGHT;
      const label = this.data.axis.split(" ")[0];
      const values = ticks(0, this.most, space > 420 ? 8 : 4);
      for (const value of values) {
        if (value === 0 && label.length > LABEL_LETTERS) continue; // the label has its place
        const at = LEFT + (value / this.most) * space;
        const kind = at > this.width - RIGHT - 14 ? "axis end" : "axis middle";
        const end = kind === "axis end" ? this.width - RIGHT : at;
        parts.push(node("text", { x: end, y: top + 16, class: kind }, short(value)));
      }
      parts.push(node("text", { x: 0, y: top + 16, class: "axis" }, label));
    },
  },
};
