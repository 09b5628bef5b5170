// Put kernels in order: what is alive when, and which dependency an order breaks.

import {bytesText, button, element, figures, said} from "./elements.js";

const KINDS = {RAW: "reads what it wrote", WAR: "overwrites what it reads",
               WAW: "overwrites what it writes"};

/** The dependencies that an order does not keep. */
const broken = (data, order) => data.dependencies.filter(
  ({before, after}) => order.indexOf(before) > order.indexOf(after));

/** For each temporary its first and its last position. */
function lives(data, order) {
  return data.buffers.filter(({kind}) => kind === "temporary").map((buffer) => {
    const touched = order.flatMap((id, at) => {
      const {reads, writes} = data.kernels.find((kernel) => kernel.id === id);
      return reads.includes(buffer.id) || writes.includes(buffer.id) ? [at] : [];
    });
    return {...buffer, first: Math.min(...touched), last: Math.max(...touched)};
  });
}

/** An order that keeps all dependencies and is made of as many layers as there are. */
function layers(data) {
  const depth = new Map();
  for (const {id} of data.kernels)
    depth.set(id, Math.max(0, ...data.dependencies.filter(({after}) => after === id)
      .map(({before}) => depth.get(before) + 1)));
  return data.kernels.map(({id}) => id).sort((one, two) => depth.get(one) - depth.get(two) || one - two);
}

figures("order", (body, data) => {
  const told = said(), faults = element("ul", {class: "live-reasons"});
  const table = element("table", {class: "live-order"});
  let order = layers(data), dragged = null;

  function move(id, to) {
    const from = order.indexOf(id);
    if (to < 0 || to >= order.length || to === from) return;
    order.splice(to, 0, ...order.splice(from, 1));
    draw();
    table.querySelector(`[data-kernel="${id}"]`).focus();
  }

  /** The cell of a kernel, which keys and pointers move. */
  function handle({id, label}, at, wrong) {
    return button(`${id} ${label}`, () => {}, {
      "data-kernel": id, class: wrong ? "wrong" : "",
      "aria-label": `${id} ${label}, a kernel at position ${at}${wrong ? ", too early or too late" : ""}. ` +
        "Arrow keys move it.",
      onkeydown: (event) => {
        const step = {ArrowUp: -1, ArrowDown: 1}[event.key];
        if (!step) return;
        event.preventDefault();
        move(id, order.indexOf(id) + step);
      },
      onpointerdown: (event) => { event.preventDefault(); event.currentTarget.focus(); dragged = id; }});
  }

  addEventListener("pointermove", ({clientY}) => {
    if (dragged === null) return;
    const at = [...table.tBodies[0].rows].findIndex((row) => {
      const box = row.getBoundingClientRect();
      return box.top <= clientY && clientY < box.bottom;
    });
    if (at >= 0) move(dragged, at);
  });
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { dragged = null; });

  function draw() {
    const spans = lives(data, order), wrong = broken(data, order);
    const alive = order.map((_, at) => spans.filter(({first, last}) => first <= at && at <= last)
      .reduce((sum, {bytes}) => sum + bytes, 0));
    const peak = Math.max(...alive), all = spans.reduce((sum, {bytes}) => sum + bytes, 0);
    const blame = new Set(wrong.flatMap(({before, after}) => [before, after]));
    table.replaceChildren(
      element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "kernel"),
        ...spans.map(({name, bytes}) => element("th", {scope: "col", title: `${name}, ${bytesText(bytes)}`}, name)),
        element("th", {scope: "col"}, "alive"))),
      element("tbody", {}, ...order.map((id, at) => {
        const kernel = data.kernels.find((each) => each.id === id);
        return element("tr", {}, element("th", {scope: "row"}, handle(kernel, at, blame.has(id))),
          ...spans.map((span, number) => {
            const touch = (kernel.writes.includes(span.id) ? "W" : "") + (kernel.reads.includes(span.id) ? "R" : "");
            const lives = span.first <= at && at <= span.last;
            return element("td", {class: lives ? `alive tone-line-${number % 6}` : ""}, touch);
          }),
          element("td", {class: alive[at] === peak ? "peak" : ""},
            element("i", {style: `width:${100 * alive[at] / all}%`}), bytesText(alive[at])));
      })));
    faults.replaceChildren(...wrong.map(({before, after, kind, buffer}) => element("li", {},
      element("b", {}, kind), `: kernel ${after} has to come after kernel ${before}: it ${KINDS[kind]} ` +
      `(${data.buffers.find(({id}) => id === buffer).name})`)));
    told.textContent = wrong.length ? `This order gives wrong values: ${wrong.length} broken.`
      : `This order is right. At most ${bytesText(peak)} are alive at once` +
        (peak === data.memory.lower_bound ? ", as in the order that the scheduler chose."
          : `; in the order that the scheduler chose, ${bytesText(data.memory.lower_bound)}.`);
    told.classList.toggle("wrong", wrong.length > 0);
  }

  const set = (made) => () => { order = [...made]; draw(); };
  body.replaceChildren(element("p", {class: "live-buttons"},
    button("Layer by layer", set(layers(data))), button("As the scheduler chose", set(data.order))),
    element("div", {class: "live-wide"}, table), told, faults);
  draw();
});
