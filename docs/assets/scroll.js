// What is wider than its place is moved to the side with keys, too: it can have the focus.

const WIDE = "pre > code, .md-typeset__scrollwrap, .matrix, .live-wide, figure.chart, .live-text";

function mark(places) {
  for (const each of places) {
    const beyond = each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1;
    if (beyond && !each.hasAttribute("tabindex")) {
      each.tabIndex = 0;
      each.dataset.wide = "";
    } else if (!beyond && "wide" in each.dataset) {
      each.removeAttribute("tabindex");
      delete each.dataset.wide;
    }
  }
}

const markAll = () => mark(document.querySelectorAll(WIDE));
markAll();
addEventListener("load", markAll);
new ResizeObserver(markAll).observe(document.body);
// The theme takes the focus from code on a screen that is touched, whenever its size changes.
new MutationObserver((changes) => mark(changes.map((one) => one.target).filter((one) => one.matches(WIDE))))
  .observe(document.body, { subtree: true, attributeFilter: ["tabindex"] });
