/**
 * Markup that changes in place: only what differs is touched, so that focus, an opened detail, a ticked box, a
 * selection and a scroll position stay where they are.
 */

/** @param {Element} old @param {Element} fresh */
function syncAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    const kept = name === "open" && old.tagName === "DETAILS"; // a person opened it
    if (!fresh.hasAttribute(name) && !kept) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

/** @param {Node} node */
const keyOf = (node) => (node instanceof Element ? node.getAttribute("data-key") : null);

/** The old child that is to become `want`: the one of its key, or the one in its place. */
function counterpart(/** @type {Node} */ old, /** @type {number} */ index, /** @type {Node} */ want) {
  const here = old.childNodes[index];
  const key = keyOf(want);
  if (key === null) return here && keyOf(here) === null ? here : undefined;
  return [...old.childNodes].slice(index).find((child) => keyOf(child) === key);
}

/** Makes the children of one node those of the other. @param {Node} old @param {Node} fresh */
function morph(old, fresh) {
  const wanted = [...fresh.childNodes];
  wanted.forEach((want, index) => {
    const have = counterpart(old, index, want);
    const here = old.childNodes[index] ?? null;
    if (!have || have.nodeName !== want.nodeName) {
      if (have) old.replaceChild(want, have);
      else old.insertBefore(want, here);
      return;
    }
    if (have !== here) old.insertBefore(have, here);
    if (have.isEqualNode(want)) return;
    if (have instanceof Element && want instanceof Element) {
      syncAttributes(have, want);
      morph(have, want);
    } else have.nodeValue = want.nodeValue;
  });
  while (old.childNodes.length > wanted.length) old.lastChild?.remove();
}

export default {
  template: "<div></div>",
  props: { html: String },
  mounted() {
    this.show();
  },
  watch: {
    html() {
      this.show();
    },
  },
  methods: {
    show() {
      const template = document.createElement("template");
      template.innerHTML = this.html;
      morph(this.$el, template.content);
    },
  },
};
