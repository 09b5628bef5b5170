// Place blocks in memory: as low as possible, and none over another that is alive with it.

import {bytesText, button, element, figures, said, shape} from "./elements.js";

const WIDTH = 720, LEFT = 70, TOP = 24, HIGH = 320;

const meet = (one, two) => one !== two && one.first <= two.last && two.first <= one.last &&
  one.offset < two.offset + two.bytes && two.offset < one.offset + one.bytes;

figures("memory", (body, data) => {
  const {alignment, blocks, positions} = data, told = said();
  const plan = blocks.map(({offset}) => offset);
  const all = blocks.reduce((sum, {bytes}) => sum + bytes, 0), scale = HIGH / all;
  const wide = (WIDTH - LEFT - 8) / positions, y = (address) => TOP + HIGH - address * scale;
  const drawing = shape("svg", {viewBox: `0 0 ${WIDTH} ${TOP + HIGH + 24}`, role: "group",
                                "aria-label": "Blocks of memory over time"});
  const bound = shape("path", {class: "roof roof-cache", d: `M${LEFT} ${y(data.least)}H${WIDTH - 8}`});
  let dragged = null;

  const places = blocks.map((block, number) => {
    const words = shape("text", {class: "name", "text-anchor": "middle"}, block.name);
    const box = shape("rect", {rx: 3, class: `tone tone-${number % 6}`});
    return shape("g", {tabindex: 0, role: "slider", "aria-orientation": "vertical",
      "aria-valuemin": 0, "aria-valuemax": all - block.bytes, class: "live-block",
      "aria-label": `${block.name}, ${bytesText(block.bytes)}, alive from position ${block.first} to ${block.last}`,
      onpointerdown: (event) => {
        event.preventDefault();
        places[number].focus();
        dragged = {block, start: event.clientY, offset: block.offset};
      },
      onkeydown: (event) => {
        const step = {ArrowUp: 1, ArrowDown: -1, PageUp: 8, PageDown: -8}[event.key];
        if (step === undefined && event.key !== "Home") return;
        event.preventDefault();
        put(block, event.key === "Home" ? 0 : block.offset + step * alignment);
      }}, box, words);
  });

  function put(block, offset) {
    block.offset = Math.min(Math.max(Math.round(offset / alignment) * alignment, 0), all - block.bytes);
    draw();
  }

  addEventListener("pointermove", ({clientY}) => {
    if (!dragged) return;
    const size = drawing.getBoundingClientRect().height / (TOP + HIGH + 24);
    put(dragged.block, dragged.offset + (dragged.start - clientY) / size / scale);
  });
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { dragged = null; });

  function draw() {
    const top = Math.max(...blocks.map(({offset, bytes}) => offset + bytes));
    const wrong = blocks.flatMap((one, at) => blocks.slice(at + 1).filter((two) => meet(one, two))
      .map((two) => [one, two]));
    blocks.forEach((block, number) => {
      const place = places[number], [box, words] = place.children;
      const x = LEFT + block.first * wide + 1, width = (block.last - block.first + 1) * wide - 2;
      for (const [key, value] of Object.entries({x, y: y(block.offset + block.bytes), width,
                                                 height: Math.max(block.bytes * scale - 1, 2)}))
        box.setAttribute(key, value);
      words.setAttribute("x", x + width / 2);
      words.setAttribute("y", y(block.offset + block.bytes / 2) + 4);
      const over = wrong.flatMap((pair) => pair.includes(block) ? pair.filter((each) => each !== block) : []);
      place.classList.toggle("wrong", over.length > 0);
      place.setAttribute("aria-valuenow", block.offset);
      place.setAttribute("aria-valuetext", `bytes ${block.offset} to ${block.offset + block.bytes - 1}` +
        (over.length ? `, over ${over.map(({name}) => name).join(", ")}` : ""));
    });
    told.classList.toggle("wrong", wrong.length > 0);
    told.textContent = wrong.length
      ? `${wrong.map(([one, two]) => `${one.name} and ${two.name}`).join(", ")} are alive together and overlap.`
      : `${bytesText(top)}. The plan of the scheduler has ${bytesText(data.planned)}; ` +
        `${bytesText(data.least)} are alive at one time, and no plan can do with less.`;
  }

  const set = (offsets) => () => {
    blocks.forEach((block, number) => { block.offset = offsets[number]; });
    draw();
  };
  const apart = blocks.map((_, number) => blocks.slice(0, number).reduce((sum, {bytes}) => sum + bytes, 0));
  drawing.append(
    shape("path", {class: "frame", d: `M${LEFT} ${TOP}H${WIDTH - 8}V${TOP + HIGH}H${LEFT}Z`}),
    ...Array.from({length: positions}, (_, at) => shape("text",
      {x: LEFT + (at + .5) * wide, y: TOP + HIGH + 16, class: "axis", "text-anchor": "middle"}, String(at))),
    shape("text", {x: LEFT - 8, y: TOP + HIGH, class: "axis", "text-anchor": "end"}, "0"),
    shape("text", {x: LEFT - 8, y: TOP + 10, class: "axis", "text-anchor": "end"}, bytesText(all)),
    shape("text", {x: LEFT - 8, y: Math.max(y(data.least) + 4, TOP + 24), class: "axis", "text-anchor": "end"}, "bound"),
    ...places, bound);
  body.replaceChildren(element("p", {class: "live-buttons"},
    button("Each for itself", set(apart)), button("As the scheduler planned", set(plan))),
    element("div", {class: "live-wide"}, drawing), told);
  set(apart)();
});
