/** Explanations: whatever has data-tip shows it when it is pointed at, tapped or focused; Escape hides it. */

(() => {
  const AIR = 8;
  /** @type {HTMLElement | null} */
  let shown = null;
  const bubble = document.createElement("div");
  bubble.id = "tip";
  bubble.setAttribute("role", "tooltip");
  bubble.hidden = true;

  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    bubble.hidden = true;
  };

  /** @param {HTMLElement} owner */
  const show = (owner) => {
    if (owner !== shown) hide();
    shown = owner;
    if (!bubble.isConnected) document.body.append(bubble);
    bubble.textContent = owner.dataset.tip ?? "";
    bubble.hidden = !bubble.textContent;
    owner.setAttribute("aria-describedby", "tip");
    const at = owner.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = bubble;
    const left = Math.min(Math.max(AIR, at.left + at.width / 2 - width / 2), innerWidth - width - AIR);
    const above = at.top - height - AIR;
    bubble.style.left = `${Math.max(AIR, left)}px`;
    bubble.style.top = `${above > AIR ? above : at.bottom + AIR}px`;
  };

  /** @param {Event} event */
  const follow = (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    if (target instanceof HTMLElement) show(target);
    else hide();
  };
  for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, follow);
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("scroll", hide, true);
})();
