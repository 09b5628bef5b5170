// What is wider than its place is moved to the side with keys, too: it can have the focus.

const WIDE = "pre > code, .md-typeset__scrollwrap, .matrix, .live-wide, figure.chart, .live-text";

function mark() {
  for (const each of document.querySelectorAll(WIDE)) {
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

mark();
addEventListener("load", mark);
new ResizeObserver(mark).observe(document.body);
