// All kernels of a schedule, as a drawing and as a list, quick with ten thousand of them: only what
// is in view is drawn, and what would be narrower than a pixel is drawn together.
(() => {
const holder = document.getElementById('data');
if (!holder) return;
const data = JSON.parse(holder.textContent), {words, kernels} = data, count = kernels.id.length;
const view = document.getElementById('track'), pen = view.getContext('2d');
const word = (number) => words[number], buffer = (number) => word(data.buffers[number][0]);
const named = (at) => `${kernels.id[at]} ${word(kernels.name[at])}`;
const RULES = {RAW: 'dependencies.raw.order', WAR: 'dependencies.war.order', WAW: 'dependencies.waw.order'};
const KINDS = {RAW: ['reads what it wrote', 'reads what this one writes'],
               WAR: ['overwrites what it reads', 'overwrites what this one reads'],
               WAW: ['overwrites what it writes', 'overwrites what this one writes']};

const before = new Map(), after = new Map();
const put = (map, key, value) => map.has(key) ? map.get(key).push(value) : map.set(key, [value]);
for (const wait of data.waits) { put(before, wait[1], wait); put(after, wait[0], wait); }
const apart = new Map();
for (const row of data.boundaries) { put(apart, row[0], row); put(apart, row[1], row); }

function bytesText(bytes) {
  for (const [unit, size] of [['GiB', 1 << 30], ['MiB', 1 << 20], ['KiB', 1 << 10]])
    if (bytes >= size) return `${Number((bytes / size).toPrecision(3))} ${unit}`;
  return `${bytes} B`;
}
function timeText(microseconds) {
  for (const [unit, size] of [['s', 1e6], ['ms', 1e3], ['us', 1]])
    if (microseconds >= size) return `${Number((microseconds / size).toPrecision(3))} ${unit}`;
  return `${Number((microseconds * 1e3).toPrecision(3))} ns`;
}
function made(name, attributes = {}, ...children) {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith('on')) one.addEventListener(key.slice(2), value);
    else if (value !== undefined) one.setAttribute(key, value);
  one.append(...children);
  return one;
}

// The drawing ------------------------------------------------------------------------------------

const AXIS = 20, GROUP = 20, ARCS = 46, LANE = 40, ALIVE = 56, ARENA = 120, LEFT = 8, NAME = 15;
let scale = data.scales[0], from = 0, to = scale.length, picked = -1, wide = 0, waiting = false;
let met = null;                          // which kernels a search has found; null without one
const most = kernels.bytes.reduce((a, b) => Math.max(a, b), 1);
const needed = data.alive.reduce((a, b) => Math.max(a, b), 1);
const x = (value) => LEFT + (value - from) / (to - from) * (wide - 2 * LEFT);
const valueAt = (px) => from + (px - LEFT) / (wide - 2 * LEFT) * (to - from);
const inOrder = () => scale === data.scales[0];
let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['text', 'soft', 'line', 'card', 'accent', 'data', 'bound', 'RAW', 'WAR', 'WAW',
                      'code', 't0', 't1', 't2', 't3', 't4', 't5', 't6', 't7'])
    colours[name] = style.getPropertyValue('--' + name).trim();
}

/** Where each part of the drawing begins, from top to bottom, and how high all of it is. */
function parts() {
  const found = {rows: []};
  let top = AXIS;
  if (data.repeats.length && inOrder()) { found.repeats = top; top += GROUP; }
  found.arcs = top; top += ARCS;
  for (const row of scale.rows) { found.rows.push([row, top + NAME]); top += LANE + NAME; }
  if (data.blocks.length && inOrder()) {
    found.alive = top + NAME; top += ALIVE + NAME;
    found.arenas = data.arenas.map((_, number) => top + NAME + number * (ARENA + NAME));
    top += data.arenas.length * (ARENA + NAME);
  }
  found.height = top + 6;
  return found;
}

/** The first place in a sorted list whose value is not below another one. */
function firstFrom(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

const tone = (at) => colours[`t${kernels.name[at] % 8}`];
const bold = (at) => met === null || met.has(at);
function write(text, px, py, colour, align = 'left') {
  pen.fillStyle = colour; pen.textAlign = align; pen.fillText(text, px, py);
}
function within(text, width) {
  if (width < 24) return '';
  const room = Math.floor(width / 6.6);
  return text.length <= room ? text : room < 4 ? '' : text.slice(0, room - 1) + '…';
}

function drawRow(row, top) {
  const first = Math.max(firstFrom(row.starts, from) - 1, 0);
  let column = -1, high = 0, dim = true, right = 0, fill = '';
  const bar = () => {
    if (column < 0) return;
    pen.globalAlpha = dim ? .16 : 1;
    pen.fillStyle = fill;
    pen.fillRect(column, top + LANE - high, Math.max(right - column, 1), high);
    pen.globalAlpha = 1;
  };
  for (let i = first; i < row.kernels.length && row.starts[i] <= to; i++) {
    const at = row.kernels[i], begin = x(row.starts[i]), end = x(row.stops[i]);
    if (end < 0) continue;
    const tall = 6 + (LANE - 8) * Math.sqrt(kernels.bytes[at] / most);
    const pixel = Math.floor(begin);
    if (pixel === column && end - begin < 1) {  // narrower than a pixel: the highest counts
      if (tall > high) { high = tall; fill = tone(at); }
      dim = dim && !bold(at);
      continue;
    }
    bar();
    column = end - begin < 1 ? pixel : begin;
    right = end - (end - begin > 4 ? 1 : 0);
    high = end - begin > 30 ? LANE - 2 : tall; dim = !bold(at); fill = tone(at);
    if (end - begin > 30) {
      bar(); column = -1;
      const seen = Math.max(begin, 0), text = within(named(at), Math.min(end, wide) - seen - 6);
      if (text) write(text, seen + 4, top + LANE / 2 + 3, colours.text);
    }
  }
  bar();
  write(row.name, LEFT, top - 4, colours.soft);
}

/** What the picked kernel waits for, and what waits for it. */
function drawArcs(top, found) {
  if (picked < 0) return;
  const middle = (at) => {
    for (const [row] of found.rows) {
      const i = row.kernels.indexOf(at);
      if (i >= 0) return x((row.starts[i] + row.stops[i]) / 2);
    }
    return null;
  };
  const here = middle(picked);
  for (const [map, end] of [[before, 0], [after, 1]])
    for (const wait of map.get(picked) ?? []) {
      const there = middle(wait[end]);
      if (here === null || there === null) continue;
      const kind = word(wait[2]), high = Math.min(ARCS - 4, 8 + Math.abs(here - there) / 6);
      pen.strokeStyle = colours[kind]; pen.lineWidth = 1.6;
      pen.setLineDash({RAW: [], WAR: [7, 4], WAW: [2, 4]}[kind] ?? []);
      pen.beginPath(); pen.moveTo(here, top + ARCS);
      pen.bezierCurveTo(here, top + ARCS - high * 1.3, there, top + ARCS - high * 1.3, there, top + ARCS);
      pen.stroke(); pen.setLineDash([]);
    }
  for (const [row, at] of found.rows) {
    const i = row.kernels.indexOf(picked);
    if (i < 0) continue;
    const begin = x(row.starts[i]), width = Math.max(x(row.stops[i]) - begin, 3);
    pen.strokeStyle = colours.text; pen.lineWidth = 2;
    pen.strokeRect(begin, at + 1, width, LANE - 2);
  }
}

function drawAlive(top) {
  pen.fillStyle = colours.data;
  const first = Math.max(Math.floor(from), 0), last = Math.min(Math.ceil(to), count);
  let column = -1, high = 0;
  for (let at = first; at < last; at++) {
    const begin = x(at), end = x(at + 1), tall = data.alive[at] / needed * (ALIVE - 6);
    if (end - begin < 1) {
      const pixel = Math.floor(begin);
      if (pixel === column) { high = Math.max(high, tall); continue; }
      if (column >= 0) pen.fillRect(column, top + ALIVE - high, 1, high);
      column = pixel; high = tall;
    } else pen.fillRect(begin, top + ALIVE - tall, end - begin - (end - begin > 4 ? 1 : 0), tall);
  }
  if (column >= 0) pen.fillRect(column, top + ALIVE - high, 1, high);
  write(`bytes needed at each position, at most ${bytesText(needed)}`, LEFT, top - 4, colours.soft);
}

function drawArenas(tops) {
  tops.forEach((top, number) => {
    const [device, bytes] = data.arenas[number];
    pen.fillStyle = colours.code; pen.fillRect(LEFT, top, wide - 2 * LEFT, ARENA);
    write(`addresses on ${word(device)}, ${bytesText(bytes)}`, LEFT, top - 4, colours.soft);
  });
  pen.save(); pen.beginPath(); pen.rect(LEFT, 0, wide - 2 * LEFT, 1e5); pen.clip();
  for (const [first, last, arena, offset, bytes, owner] of data.blocks) {
    if (first > to) break;
    if (last + 1 < from) continue;
    const high = bytes / Math.max(data.arenas[arena][1], 1) * ARENA, begin = x(first);
    const top = tops[arena] + ARENA - offset / Math.max(data.arenas[arena][1], 1) * ARENA - high;
    const width = Math.max(x(last + 1) - begin - 1, .6);
    pen.fillStyle = colours[`t${owner % 8}`];
    pen.fillRect(begin, top, width, Math.max(high - 1, .6));
    if (high > 13 && width > 40) write(within(buffer(owner), width - 6), Math.max(begin, LEFT) + 4, top + high / 2 + 4, colours.text);
  }
  pen.restore();
}

function draw() {
  waiting = false;
  const found = parts(), ratio = devicePixelRatio || 1;
  wide = view.parentElement.clientWidth;
  const [w, h] = [Math.round(wide * ratio), Math.round(found.height * ratio)];
  if (view.width !== w || view.height !== h) {
    [view.width, view.height] = [w, h];
    view.style.height = `${found.height}px`;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, found.height);
  pen.font = '11.5px system-ui, sans-serif';
  const said = scale.seconds ? timeText : (value) => String(Math.round(value));
  write(said(from), LEFT, 13, colours.soft);
  write(scale.name, wide / 2, 13, colours.soft, 'center');
  write(said(to), wide - LEFT, 13, colours.soft, 'right');
  if (found.repeats !== undefined)
    for (const [start, length, times] of data.repeats)
      for (let part = 0; part < times; part++) {
        const begin = x(start + part * length), end = x(start + (part + 1) * length);
        if (end < 0 || begin > wide) continue;
        pen.strokeStyle = colours.soft; pen.lineWidth = 1;
        pen.strokeRect(begin + .5, found.repeats + 2, Math.max(end - begin - 1, 1), GROUP - 6);
        const text = within(`part ${part + 1} of ${times}`, end - begin - 6);
        if (text) write(text, Math.max(begin, 0) + 4, found.repeats + 13, colours.soft);
      }
  for (const [row, top] of found.rows) drawRow(row, top);
  drawArcs(found.arcs, found);
  if (found.alive !== undefined) { drawAlive(found.alive); drawArenas(found.arenas); }
}
function redraw() {
  if (!waiting) { waiting = true; requestAnimationFrame(draw); }
}

/** Show a part of the scale; it never goes beyond its ends. */
function show(first, last) {
  const least = scale.seconds ? scale.length / 1e6 : Math.min(2, scale.length);
  const width = Math.min(Math.max(last - first, least), scale.length);
  from = Math.min(Math.max(first, 0), scale.length - width);
  to = from + width;
  redraw();
}
function zoom(factor, px = wide / 2) {
  const fixed = valueAt(px), width = (to - from) * factor;
  show(fixed - (px - LEFT) / (wide - 2 * LEFT) * width, fixed + (1 - (px - LEFT) / (wide - 2 * LEFT)) * width);
}
/** What stays where it is when somebody zooms: the picked kernel if it is in view, else the middle. */
function fixed() {
  const [begin, end] = extent(picked);
  return begin >= from && end <= to ? x((begin + end) / 2) : wide / 2;
}
/** Where a kernel begins and ends in all rows. */
function extent(at) {
  let begin = Infinity, end = -Infinity;
  for (const row of scale.rows) {
    const i = row.kernels.indexOf(at);
    if (i >= 0) { begin = Math.min(begin, row.starts[i]); end = Math.max(end, row.stops[i]); }
  }
  return [begin, end];
}
/** The kernel at a point of the drawing, or -1. */
function kernelAt(px, py) {
  for (const [row, top] of parts().rows) {
    if (py < top || py > top + LANE) continue;
    const i = firstFrom(row.starts, valueAt(px) + 1e-9) - 1;
    if (i >= 0 && valueAt(px + 2) >= row.starts[i]) return row.kernels[i];
  }
  return -1;
}

const pointers = new Map();
let travelled = 0;
const local = (event) => {
  const box = view.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
view.addEventListener('pointerdown', (event) => {
  pointers.set(event.pointerId, local(event));
  view.setPointerCapture(event.pointerId);
  travelled = 0;
});
view.addEventListener('pointermove', (event) => {
  const last = pointers.get(event.pointerId), now = local(event);
  if (!last) {
    const at = kernelAt(...now);
    view.title = at < 0 ? '' : `${named(at)}\n${word(kernels.label[at])}\n${bytesText(kernels.bytes[at])}`;
    return;
  }
  if (pointers.size === 2) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const apartBefore = Math.max(Math.abs(last[0] - other[0]), 8);
    zoom(apartBefore / Math.max(Math.abs(now[0] - other[0]), 8), (now[0] + other[0]) / 2);
  } else {
    const moved = (now[0] - last[0]) / (wide - 2 * LEFT) * (to - from);
    show(from - moved, to - moved);
  }
  travelled += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
  pointers.set(event.pointerId, now);
});
for (const name of ['pointerup', 'pointercancel']) view.addEventListener(name, (event) => {
  pointers.delete(event.pointerId);
  if (name === 'pointerup' && travelled < 5) {
    const at = kernelAt(...local(event));
    if (at >= 0) pick(at, false);
  }
});
view.addEventListener('wheel', (event) => {
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), local(event)[0]);
  else {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (!sideways) return;             // the page is scrolled
    const moved = sideways / wide * (to - from);
    show(from + moved, to + moved);
  }
  event.preventDefault();
}, {passive: false});
const step = () => (to - from) / 5;
const KEYS = {
  ArrowRight: () => pick(Math.min(picked + 1, count - 1)), ArrowLeft: () => pick(Math.max(picked - 1, 0)),
  Home: () => pick(0), End: () => pick(count - 1),
  '+': () => zoom(.5, fixed()), '=': () => zoom(.5, fixed()), w: () => zoom(.5, fixed()),
  '-': () => zoom(2, fixed()), s: () => zoom(2, fixed()),
  a: () => show(from - step(), to - step()), d: () => show(from + step(), to + step()),
  0: () => show(0, scale.length)};
view.addEventListener('keydown', (event) => {
  const does = KEYS[event.key];
  if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  does();
});

// The kernel that was picked -----------------------------------------------------------------------

const panel = document.getElementById('picked');
const link = (at) => made('button', {type: 'button', class: 'link', onclick: () => pick(at)},
                          `kernel ${named(at)}`);
const rule = (name) => made('a', {href: `#rule-${name}`}, `r[${name}]`);
function listed(title, items) {
  if (!items.length) return [];
  const shown = items.slice(0, 40);
  if (items.length > 40) shown.push(made('li', {class: 'soft'}, `and ${items.length - 40} more`));
  return [made('p', {class: 'soft'}, title), made('ul', {class: 'reasons'}, ...shown)];
}
const rows = (numbers) => numbers.map((number) =>
  `${buffer(number)} (${bytesText(data.buffers[number][1])})`).join(', ') || 'nothing';

function tell(at) {
  const facts = [`reads ${rows(kernels.reads[at])}`, `writes ${rows(kernels.writes[at])}`,
                 `${bytesText(kernels.bytes[at])} moved`];
  if (kernels.operations[at]) facts.push(`${kernels.operations[at].toLocaleString('en')} operations`);
  if (kernels.seconds[at]) facts.push(`${timeText(1e6 * kernels.seconds[at])} measured`);
  const waits = (map, end, which) => (map.get(at) ?? []).map((wait) => made('li', {}, link(wait[end]),
    `: ${KINDS[word(wait[2])][which]} (${word(wait[2])}${wait[3] < 0 ? '' : `, ${buffer(wait[3])}`}; `, rule(RULES[word(wait[2])]), ')'));
  const source = word(kernels.source[at]), machine = word(kernels.machine[at]);
  panel.replaceChildren(
    made('h3', {}, `Kernel ${named(at)}`),
    made('p', {}, `${word(kernels.label[at])}; position ${at} of ${count}, on ${word(kernels.device[at])}.`),
    made('p', {class: 'soft'}, `${facts.join('; ')}.`),
    ...(word(kernels.fused[at]) ? [made('p', {}, `One kernel because: ${word(kernels.fused[at])}`)] : []),
    ...listed('Not one kernel with its neighbours:', (apart.get(at) ?? []).map((row) =>
      made('li', {}, link(row[0] === at ? row[1] : row[0]),
           `${row[2] < 0 ? '' : `, through ${buffer(row[2])}`}: ${word(row[3])}`))),
    ...listed('Waits for:', waits(before, 0, 0)), ...listed('Waited for by:', waits(after, 1, 1)),
    ...listed('Steps:', kernels.steps[at].map(([name, why]) =>
      made('li', {}, made('b', {}, word(name)), word(why) ? `: ${word(why)}` : ''))),
    ...(source ? [made('pre', {tabindex: 0, 'aria-label': 'source'}, source)] : []),
    ...(machine ? [made('details', {}, made('summary', {}, 'Machine code'),
                        made('pre', {tabindex: 0, 'aria-label': 'machine code'}, machine))] : []));
}

/** Pick a kernel: it is told of, drawn with what it waits for, and brought into view. */
function pick(at, move = true) {
  picked = at;
  tell(at);
  if (move) {
    const [begin, end] = extent(at);
    if (begin < from || end > to) {
      const half = Math.max(to - from, end - begin) / 2, middle = (begin + end) / 2;
      show(middle - half, middle + half);
    }
  }
  redraw();
  if (list) reveal();
}

// The list: rows exist only where they are seen -----------------------------------------------------

const list = document.getElementById('rows'), ROW = 46;
let order = Array.from({length: count}, (_, at) => at);
function fill() {
  if (!list) return;
  const first = Math.max(Math.floor(list.scrollTop / ROW) - 4, 0);
  const last = Math.min(first + Math.ceil(list.clientHeight / ROW) + 8, order.length);
  const space = list.firstElementChild;
  space.style.height = `${order.length * ROW}px`;
  space.replaceChildren(...order.slice(first, last).map((at, i) => {
    const row = made('div', {role: 'option', id: `row-${at}`, 'aria-posinset': first + i + 1,
                             'aria-setsize': order.length, 'aria-selected': at === picked,
                             onclick: () => pick(at)},
      made('b', {}, named(at)), made('span', {class: 'size'}, bytesText(kernels.bytes[at])),
      made('span', {class: 'soft'}, `${word(kernels.label[at])} · ${
        kernels.reads[at].map(buffer).join(', ') || 'nothing'} → ${kernels.writes[at].map(buffer).join(', ')}`));
    row.style.top = `${(first + i) * ROW}px`;
    return row;
  }));
  const here = order.includes(picked) && document.getElementById(`row-${picked}`);
  if (here) list.setAttribute('aria-activedescendant', here.id);
  else list.removeAttribute('aria-activedescendant');
}
function reveal() {
  const place = order.indexOf(picked);
  if (place >= 0) {
    const top = place * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  }
  fill();
}
if (list) {
  list.addEventListener('scroll', () => requestAnimationFrame(fill));
  list.addEventListener('keydown', (event) => {
    const page = Math.max(Math.floor(list.clientHeight / ROW) - 1, 1);
    const by = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count}[event.key];
    if (by === undefined || !order.length) return;
    event.preventDefault();
    const place = order.indexOf(picked);
    pick(order[place < 0 ? 0 : Math.min(Math.max(place + by, 0), order.length - 1)]);
  });
}

/** Leave the kernels that have all words of a search; all of them without one. */
const haystack = [];
window.narrowKernels = (asked) => {
  if (!haystack.length) for (let at = 0; at < count; at++) haystack.push([kernels.id[at],
    word(kernels.name[at]), word(kernels.label[at]), word(kernels.device[at]),
    ...[...kernels.reads[at], ...kernels.writes[at]].map(buffer)].join(' ').toLowerCase());
  order = haystack.flatMap((text, at) => asked.every((each) => text.includes(each)) ? [at] : []);
  met = asked.length ? new Set(order) : null;
  if (list) { list.scrollTop = 0; fill(); }
  redraw();
  return [order.length, count];
};

// Buttons, and what changes the colours or the width ------------------------------------------------

const bind = (name, does) => document.getElementById(name)?.addEventListener('click', does);
bind('closer', () => zoom(.5, fixed())); bind('farther', () => zoom(2, fixed())); bind('whole', () => show(0, scale.length));
const scales = document.getElementById('scale');
data.scales.forEach(({name}, number) => scales.append(made('option', {value: number}, name)));
scales.addEventListener('change', () => {
  scale = data.scales[scales.value];
  show(0, scale.length);
});
function byHash() {
  const number = /^#kernel-(\d+)$/.exec(location.hash)?.[1];
  const at = number === undefined ? -1 : kernels.id.indexOf(Number(number));
  if (at >= 0) {
    pick(at);
    if (list) document.getElementById('order').scrollIntoView();
  }
}
addEventListener('hashchange', byHash);
new MutationObserver(() => { readColours(); redraw(); }).observe(document.documentElement, {attributes: true});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColours(); redraw(); });
new ResizeObserver(redraw).observe(view.parentElement);
readColours(); draw(); fill(); byHash();
})();
