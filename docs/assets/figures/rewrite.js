// A line of a program on its way to the text of a kernel, one rewrite or step at a time.

import {button, element, figures, said} from "./elements.js";

/** A text in words, those marked that the text before does not have at their place. */
function marked(text, before) {
  const [now, old] = [text, before].map((each) => each.match(/\s+|\d+(?:\.\d+)?|\w+|[^\w\s]/g) ?? []);
  const long = now.map(() => new Uint16Array(old.length + 1));
  long.push(new Uint16Array(old.length + 1));
  for (let at = now.length - 1; at >= 0; at--)
    for (let place = old.length - 1; place >= 0; place--)
      long[at][place] = now[at] === old[place] ? long[at + 1][place + 1] + 1
        : Math.max(long[at + 1][place], long[at][place + 1]);
  const found = [];
  for (let at = 0, place = 0; at < now.length;)
    if (place < old.length && now[at] === old[place]) {
      found.push(now[at++]);
      place++;
    } else if (place < old.length && long[at][place + 1] > long[at + 1][place]) place++;
    else found.push(now[at].trim() ? element("mark", {}, now[at++]) : now[at++]);
  return found;
}

figures("rewrite", (body, {line, stages}) => {
  const told = said(), shown = element("div", {
    class: "live-text", tabindex: 0, role: "region", "aria-label": "The text now"}), step = element("input", {
    type: "range", min: 0, max: stages.length - 1, value: 0, "aria-label": "Stage",
    oninput: () => { at = Number(step.value); draw(); }});
  let at = 0;

  function draw() {
    const {name, why, text} = stages[at];
    step.value = at;
    step.setAttribute("aria-valuetext", `${at + 1} of ${stages.length}: ${name}`);
    told.replaceChildren(element("b", {}, `${at + 1} of ${stages.length}. ${name}`), why ? `: ${why}` : "");
    shown.replaceChildren(...(at && stages[at].part === stages[at - 1].part ? marked(text, stages[at - 1].text) : [text]));
  }

  const go = (by) => () => {
    at = Math.min(Math.max(at + by, 0), stages.length - 1);
    draw();
  };
  body.replaceChildren(element("p", {}, element("code", {}, line)), element("p", {class: "live-buttons"},
    button("Back", go(-1)), button("Next", go(1)), step), told, shown);
  draw();
});
