// A tile on its way over a product of matrices, and what the cache holds.

import {button, counted, element, figures, said, shape} from "./elements.js";

const CELL = 10, GAP = 26, TOP = 16, SIZES = [1, 2, 4, 8, 16];

/** Lines of a cache, of which the one that was used longest ago goes first. */
class Cache {
  constructor(most) { [this.most, this.lines] = [most, new Map()]; }

  /** Whether a line had to be fetched. */
  touch(line) {
    const there = this.lines.delete(line);
    this.lines.set(line, true);
    if (this.lines.size > this.most) this.lines.delete(this.lines.keys().next().value);
    return !there;
  }
}

figures("cache", (body, data) => {
  const {n, line, lines, fetched} = data, told = said(), wide = n * CELL, perRow = n / line;
  let rows = 4, columns = 4, at = [0, 0], cache = new Cache(lines), fresh = new Set(), last = null;
  let dragged = false;

  const name = (matrix, row, column) => `${matrix}${row * perRow + Math.floor(column / line)}`;

  /** Run one tile: of all lines that it touches, which had to be fetched. */
  function run([top, left]) {
    const found = [];
    let touches = 0;
    const touch = (one) => { touches += 1; if (cache.touch(one)) found.push(one); };
    for (let k = 0; k < n; k++)
      for (let i = top; i < top + rows; i++) {
        touch(name("A", i, k));
        for (let j = left; j < left + columns; j += Math.min(line, columns)) {
          touch(name("B", k, j));
          touch(name("C", i, j));
        }
      }
    return [found, touches];
  }

  function place(row, column) {
    const to = [Math.min(Math.max(Math.floor(row / rows) * rows, 0), n - rows),
                Math.min(Math.max(Math.floor(column / columns) * columns, 0), n - columns)];
    if (last && to[0] === at[0] && to[1] === at[1]) return;
    at = to;
    const [found, touches] = run(at);
    [fresh, last] = [new Set(found), [found.length, touches]];
    draw();
  }

  const matrices = {A: [0, TOP + wide + GAP], B: [wide + GAP, TOP], C: [wide + GAP, TOP + wide + GAP]};
  const cells = [];
  const drawing = shape("svg", {viewBox: `0 0 ${2 * wide + GAP + 2} ${TOP + 2 * wide + GAP + 2}`,
    class: "live-cache", role: "group", "aria-label": "Matrices A and B, and their product C"});
  for (const [matrix, [x, y]] of Object.entries(matrices)) {
    drawing.append(shape("text", {x, y: y - 5}, {A: "A", B: "B", C: "C = A @ B"}[matrix]));
    for (let row = 0; row < n; row++) for (let part = 0; part < perRow; part++) {
      const box = shape("rect", {x: x + part * line * CELL, y: y + row * CELL,
                                 width: line * CELL - 1, height: CELL - 1, rx: 1});
      cells.push([box, `${matrix}${row * perRow + part}`]);
      drawing.append(box);
    }
  }
  const [left, top] = matrices.C, outline = shape("rect", {class: "tile"});
  const tile = shape("g", {tabindex: 0, role: "button", onkeydown: (event) => {
    const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    place(at[0] + down * rows, at[1] + right * columns);
  }}, outline);
  drawing.append(tile);

  function moved({clientX, clientY}) {
    const box = drawing.getBoundingClientRect(), scale = (2 * wide + GAP + 2) / box.width;
    place(((clientY - box.top) * scale - top) / CELL, ((clientX - box.left) * scale - left) / CELL);
  }
  drawing.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    tile.focus();
    dragged = true;
    moved(event);
  });
  addEventListener("pointermove", (event) => { if (dragged) moved(event); });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { dragged = false; });

  function draw() {
    for (const [box, key] of cells)
      box.setAttribute("class", fresh.has(key) && cache.lines.has(key) ? "tone-1"
        : cache.lines.has(key) ? "tone-0" : "empty");
    for (const [key, value] of Object.entries({x: left + at[1] * CELL - 1.5, y: top + at[0] * CELL - 1.5,
      width: columns * CELL + 2, height: rows * CELL + 2})) outline.setAttribute(key, value);
    tile.setAttribute("aria-label", `Tile at row ${at[0]}, column ${at[1]}. Arrow keys move it.`);
    told.textContent = (last ? `This tile: ${counted(last[0], "line")} fetched, for ${last[1]} accesses. ` : "") +
      `All tiles, row by row: ${fetched[`${rows} ${columns}`]} lines; each line once is ${data.least}.`;
  }

  function empty() {
    [cache, fresh, last, at] = [new Cache(lines), new Set(), null, [0, 0]];
    draw();
  }
  function all() {
    empty();
    let count = 0;
    for (let row = 0; row < n; row += rows) for (let column = 0; column < n; column += columns) {
      at = [row, column];
      const [found] = run(at);
      count += found.length;
      fresh = new Set(found);
    }
    draw();
    told.textContent = `All tiles are done: ${count} lines fetched; each line once is ${data.least}.`;
  }
  const choice = (words, now, set) => element("label", {}, `${words} `, element("select", {
    onchange: (event) => { set(Number(event.target.value)); empty(); }},
    ...SIZES.map((size) => element("option", {value: size, selected: size === now}, String(size)))), " ");
  body.replaceChildren(element("p", {class: "live-buttons"},
    choice("Rows of a tile", rows, (size) => { rows = size; }),
    choice("columns", columns, (size) => { columns = size; })),
    element("p", {class: "live-buttons"}, button("Run all tiles", all), button("Empty the cache", empty)),
    element("div", {class: "live-wide"}, drawing), told);
  draw();
});
