// The digits network of the demo: draw, see it classified, see what ran.

import {bytesText, button, counted, element, figures, onColours, said} from "./elements.js";

const SIZE = 32, PEN = 4.5, WIDEST = 26, PAD = 240;

/** A drawing as 8 x 8 numbers from 0 to 1, as the data have them: brought to one height, with a
 * pen of one width, and of each block of 4 x 4 points the share that is dark. */
export function picture(strokes) {
  const points = strokes.flat(), blocks = new Float32Array(64);
  if (!points.length) return blocks;
  const [left, right] = extent(points, 0), [top, bottom] = extent(points, 1);
  const scale = Math.min((SIZE - PEN) / Math.max(bottom - top, 1),
                         (WIDEST - PEN) / Math.max(right - left, 1));
  const moved = ([x, y]) => [(x - (left + right) / 2) * scale + SIZE / 2,
                             (y - (top + bottom) / 2) * scale + SIZE / 2];
  const lines = strokes.flatMap((stroke) => stroke.map((point, place) =>
    [moved(stroke[Math.max(place - 1, 0)]), moved(point)]));
  for (let y = 0; y < SIZE; y++)
    for (let x = 0; x < SIZE; x++)
      if (lines.some(([from, to]) => near(x + .5, y + .5, from, to)))
        blocks[8 * (y >> 2) + (x >> 2)] += 1 / 16;
  return blocks;
}

function extent(points, axis) {
  const all = points.map((point) => point[axis]);
  return [Math.min(...all), Math.max(...all)];
}

/** Whether a point is under the pen on its way from one point to another. */
function near(x, y, [fromX, fromY], [toX, toY]) {
  const [wide, high] = [toX - fromX, toY - fromY], length = wide ** 2 + high ** 2;
  const share = length && Math.min(Math.max(
    ((x - fromX) * wide + (y - fromY) * high) / length, 0), 1);
  return (x - fromX - share * wide) ** 2 + (y - fromY - share * high) ** 2 <= (PEN / 2) ** 2;
}

/** Numbers as a picture: dark where they are great, in another colour where they are negative. */
function paint(canvas, values, width) {
  const style = getComputedStyle(canvas), most = Math.max(...values.map(Math.abs), 1e-9);
  const [plus, minus] = ["--tone-0", "--tone-1"].map((name) => rgb(style.getPropertyValue(name)));
  canvas.width = width;
  canvas.height = Math.ceil(values.length / width);
  const image = new ImageData(canvas.width, canvas.height);
  values.forEach((value, place) => image.data.set(
    [...(value < 0 ? minus : plus), Math.round(255 * Math.abs(value) / most)], 4 * place));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const rgb = (colour) => [1, 3, 5].map((place) => parseInt(colour.trim().slice(place, place + 2), 16));

/** Where one draws: with a mouse, a finger, or keys. Tells `changed` of all strokes. */
class Pad {
  constructor(changed) {
    this.strokes = [];
    this.changed = changed;
    this.at = [PAD / 2, PAD / 4];
    this.down = false;     // whether the pen of the keys is
    this.canvas = element("canvas", {
      width: PAD, height: PAD, tabindex: 0, class: "live-pad", role: "application",
      "aria-label": "Drawing pad. Arrow keys move the pen, space puts it down or lifts it, " +
        "Escape clears.",
      onpointerdown: (event) => this.begin(event), onpointermove: (event) => this.move(event),
      onpointerup: () => this.end(), onpointercancel: () => this.end(),
      onkeydown: (event) => this.key(event), onfocus: () => this.draw(), onblur: () => this.draw()});
  }

  point({clientX, clientY}) {
    const box = this.canvas.getBoundingClientRect();
    return [(clientX - box.left) * PAD / box.width, (clientY - box.top) * PAD / box.height];
  }

  begin(event) {
    event.preventDefault();
    this.canvas.focus({preventScroll: true});
    if (event.isTrusted) this.canvas.setPointerCapture(event.pointerId);
    this.strokes.push([this.point(event)]);
    this.drawing = true;
    this.draw();
  }

  move(event) {
    if (!this.drawing) return;
    this.strokes.at(-1).push(this.point(event));
    this.draw();
  }

  end() {
    if (!this.drawing) return;
    this.drawing = false;
    this.changed();
  }

  key(event) {
    const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
    if (event.key === "Escape") this.clear();
    else if (event.key === " ") {
      this.down = !this.down;
      if (this.down) this.strokes.push([this.at]);
    } else if (step[event.key]) {
      this.at = this.at.map((place, axis) =>
        Math.min(Math.max(place + 12 * step[event.key][axis], 12), PAD - 12));
      if (this.down) this.strokes.at(-1).push(this.at);
    } else return;
    event.preventDefault();
    this.draw();
    this.changed();
  }

  clear() {
    this.strokes = [];
    this.down = false;
    this.draw();
    this.changed();
  }

  draw() {
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(this.canvas);
    pen.clearRect(0, 0, PAD, PAD);
    Object.assign(pen, {lineWidth: 18, lineCap: "round", lineJoin: "round",
                        strokeStyle: style.color, fillStyle: style.color});
    for (const stroke of this.strokes) {
      pen.beginPath();
      stroke.forEach(([x, y], place) => place ? pen.lineTo(x, y) : pen.moveTo(x, y));
      if (stroke.length === 1) pen.lineTo(stroke[0][0] + .1, stroke[0][1]);
      pen.stroke();
    }
    if (document.activeElement !== this.canvas || !this.canvas.matches(":focus-visible")) return;
    pen.lineWidth = 2;
    pen.strokeStyle = style.getPropertyValue("--md-accent-fg-color") || style.color;
    pen.beginPath();
    pen.arc(...this.at, this.down ? 5 : 10, 0, 2 * Math.PI);
    pen.stroke();
  }
}

/** What a kernel touched, as the card of the kernel shows it. */
function touched(told, {spot: [kind, number], written, bytes}) {
  const values = new Float32Array(bytes.buffer), port = told[`${kind}s`]?.[number];
  const name = port ? port.name : `${kind}, from byte ${number}`;
  const [rows, columns] = port?.shape.length === 2 ? port.shape : [1, values.length];
  const wide = rows > 1 ? Math.max(rows, columns) : columns === 64 ? 8 : columns > 64 ? 32 : columns;
  const shown = rows > columns
    ? values.map((_, place) => values[(place % rows) * columns + Math.floor(place / rows)]) : values;
  const canvas = element("canvas", {class: "live-heat", "aria-hidden": "true"});
  canvas.style.maxWidth = `${Math.max(wide * (wide > 100 ? 1 : 8), 24)}px`;
  canvas.repaint = () => paint(canvas, [...shown], wide);
  const words = `${written ? "writes" : "reads"} ${name}`;
  return element("li", {class: written ? "written" : ""},
    element("span", {}, element("b", {}, written ? "writes " : "reads "), name),
    element("span", {}, `${counted(values.length, "number")}, ${bytesText(bytes.length)}, ` +
      `${shortly(Math.min(...values))} to ${shortly(Math.max(...values))}`),
    Object.assign(canvas, {title: words}));
}

const shortly = (value) => String(Number(value.toPrecision(2)));

/** The arena as a strip of bytes, with what one kernel reads and writes in it. */
function arena(told, memory) {
  const parts = memory.filter(({spot: [kind]}) => kind === "arena").map(
    ({spot: [, start], written, bytes}) => {
      const part = element("i", {class: written ? "written" : "read"});
      part.style.left = `${100 * start / told.arena}%`;
      part.style.width = `max(${100 * bytes.length / told.arena}%, 4px)`;
      return part;
    });
  return element("div", {class: "live-strip", role: "img", "aria-label":
    `The ${told.arena} bytes of the arena: ` + (memory.filter(({spot: [kind]}) => kind === "arena").map(
      ({spot: [, start], written, bytes}) => `${written ? "writes" : "reads"} ${start} to ` +
      `${start + bytes.length - 1}`).join(", ") || "untouched")}, ...parts);
}

/** The cards of all kernels, in the order in which they ran. */
function cards(told, kernels) {
  const schedule = told.schedules[0];
  return kernels.map(({number, kernel, memory}) => {
    const id = schedule.order[number], planned = schedule.kernels.find((each) => each.id === id);
    const apart = schedule.boundaries.filter(({after}) => after === id);
    const together = schedule.fusions.filter((each) => each.kernel === id);
    return element("li", {},
      element("h4", {}, element("span", {class: "live-number"}, number + 1), kernel,
        element("small", {}, ` ${(planned.label ?? "").replace(/ \(.*/, "")}`)),
      ...new Set(apart.map(({before, reason}) =>
        `not in one kernel with ${schedule.order.indexOf(before) + 1}: ${reason}`)).values().map(
        (words) => element("p", {class: "live-why"}, words)),
      ...together.map(({reason}) => element("p", {class: "live-why"}, reason)),
      arena(told, memory), element("ul", {}, 
        ...[...memory].sort((one, two) => one.written - two.written).map(
          (each) => touched(told, each))));
  });
}

figures("digits", async (body, {samples}) => {
  const at = (name) => new URL(`../digits/${name}`, import.meta.url);
  const answer = element("output", {class: "live-answer", "aria-live": "polite"}, "…");
  const small = element("canvas", {class: "live-small", role: "img",
                                   "aria-label": "What the network sees: 8 by 8 numbers"});
  const bars = Array.from({length: 10}, (_, digit) => element("li", {},
    element("span", {}, digit), element("i"), element("b", {}, "")));
  const where = said(), ran = element("ol", {class: "live-kernels"});
  let place = 0, told = null, network = null, shown = [];
  const pad = new Pad(() => see(picture(pad.strokes)));

  async function see(values, label = null) {
    if (!network) return;
    const empty = values.every((value) => value === 0);
    shown = [...values];
    paint(small, shown, 8);
    const kernels = [], started = performance.now();
    const {output} = await network.run({x: values}, (kernel) => kernels.push(kernel));
    const time = performance.now() - started, best = output.indexOf(Math.max(...output));
    answer.textContent = empty ? "nothing yet: draw a digit" : `${best}, with ${Math.round(100 * output[best])} %` +
      (label === null ? "" : ` (somebody meant ${label})`);
    bars.forEach((bar, digit) => {
      bar.children[1].style.width = `${empty ? 0 : 70 * output[digit]}%`;
      bar.children[2].textContent = empty ? "" : `${(100 * output[digit]).toFixed(1)} %`;
      bar.classList.toggle("best", digit === best && !empty);
    });
    ran.replaceChildren(...cards(told, kernels));
    ran.dataset.time = time;
    repaint();
  }

  function repaint() {
    pad.draw();
    if (shown.length) paint(small, shown, 8);
    ran.querySelectorAll("canvas").forEach((canvas) => canvas.repaint());
  }

  body.replaceChildren(
    element("div", {class: "live-columns"},
      element("div", {}, pad.canvas, element("p", {class: "live-buttons"},
        button("Clear", () => pad.clear()),
        button("Somebody's digit", () => {
          const {pixels, label} = samples[place++ % samples.length];
          pad.strokes = [];
          pad.draw();
          see(Float32Array.from(pixels, (pixel) => pixel / 16), label);
        }))),
      element("div", {}, element("p", {}, "It reads ", answer), small,
        element("ul", {class: "live-bars"}, ...bars))),
    where, ran);
  onColours(repaint);
  pad.draw();
  try {
    [network, told] = await Promise.all([
      import(at("digits.mjs")), fetch(at("digits.json")).then((found) => found.json())]);
    await network.load(at("digits.safetensors"));
    const {target, reason} = await network.runner();
    where.textContent = target === "webgpu" ? "The kernels run by WebGPU."
      : `The kernels run in plain JavaScript. (${reason}.)`;
    where.dataset.target = target;
    await see(Float32Array.from(samples[place++].pixels, (pixel) => pixel / 16), samples[0].label);
  } catch (error) {
    where.textContent = `This does not work here: ${error.message}`;
  }
});
