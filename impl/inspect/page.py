"""The parts of a report that are the same for every schedule: style, behaviour, explanations."""
from __future__ import annotations

import re
from html import escape
from pathlib import Path

_DARK = """
  --text: #e6e9f0; --soft: #a2abbe; --line: #343b4a; --page: #12151c; --card: #1a1f29;
  --code: #151922; --accent: #8aa4ff; --RAW: #7fb0ff; --WAR: #f0a94a; --WAW: #ff84b7;
  --data: #7b859a; --bound: #ff7aa8; --word: #cf9bf2; --note: #8f99ae; --figure: #6fd3a8;
  --string: #f0a97a; --t0: #2f4a85; --t1: #7a5424; --t2: #24634b; --t3: #6a3a6c; --t4: #6b5c1c;
  --t5: #27596b; --t6: #773838; --t7: #474d5f;
"""

STYLE = """
:root { color-scheme: light dark; --text: #1b1f2a; --soft: #586074; --line: #d9dde6;
  --page: #f6f7f9; --card: #ffffff; --code: #f3f4f8; --accent: #3b5bdb;
  --RAW: #2563c9; --WAR: #b45309; --WAW: #b3165f; --data: #8a93a6; --bound: #c2255c;
  --word: #7c2fb0; --note: #6a7389; --figure: #0b7a53; --string: #a3470b;
  --t0: #b9cdf7; --t1: #f8d3a8; --t2: #b5e3cf; --t3: #eac4ea; --t4: #f3e19d; --t5: #bfe2ee;
  --t6: #f5c3c3; --t7: #d3d6e2; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) { DARK } }
:root[data-theme=dark] { color-scheme: dark; DARK }
:root[data-theme=light] { color-scheme: light; }
* { box-sizing: border-box; }
html { scroll-padding-top: 16px; }
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 64px; }
header { display: flex; gap: 16px; align-items: flex-start; justify-content: space-between; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 0 0 4px; }
p { margin: 6px 0; max-width: 70ch; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(250px, 1fr));
  gap: 2px 32px; margin-top: 8px; }
.soft { color: var(--soft); }
button { font: inherit; font-size: .85rem; color: var(--soft); background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; padding: 4px 12px; cursor: pointer;
  white-space: nowrap; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 14px 0 4px; font-size: .92rem; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 2px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 18px 20px; margin: 16px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr)); gap: 10px;
  margin: 18px 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 10px 14px; }
.tile b { display: block; font-size: 1.3rem; line-height: 1.3; font-weight: 650; }
.tile span { font-size: .83rem; color: var(--soft); }
.scroll { overflow: auto; max-height: 82vh; margin: 12px -8px 0; padding: 0 8px; }
.wide { overflow-x: auto; margin: 12px -8px 0; padding: 0 8px; }
svg { display: block; margin: 0 auto; font-family: inherit; }
svg.graph.fit { max-width: 100%; height: auto; }
svg.memory { max-width: 100%; height: auto; }
.tools { float: right; margin-left: 12px; }
svg text { fill: var(--text); font-size: 12.5px; }
svg .small { font-size: 12px; } svg .faint, svg .axis { fill: var(--soft); }
svg .axis { font-size: 11.5px; } svg .strong { font-weight: 600; }
svg .name { font-weight: 650; font-size: 13px; }
svg .number { font-weight: 650; font-size: 13px; fill: var(--soft); }
.kernel { cursor: pointer; text-decoration: none; }
.kernel .frame { fill: var(--card); stroke: var(--soft); stroke-width: 1.4; }
.kernel.copy .frame { stroke-dasharray: 5 4; }
.kernel:hover .frame, .kernel:focus .frame { stroke: var(--accent); stroke-width: 2.4; }
.kernel .share { fill: var(--accent); opacity: .75; }
.pill rect { fill: var(--code); stroke: var(--data); } .pill.writes rect { stroke-width: 2; }
.edge { fill: none; stroke-width: 1.7; } .edge-reach { fill: none; stroke: transparent;
  stroke-width: 14; }
.edge.RAW { stroke: var(--RAW); } .edge.WAR { stroke: var(--WAR); stroke-dasharray: 7 4; }
.edge.WAW { stroke: var(--WAW); stroke-dasharray: 2 4; } .edge.data { stroke: var(--data); }
.tip.RAW { fill: var(--RAW); } .tip.WAR { fill: var(--WAR); } .tip.WAW { fill: var(--WAW); }
.tip.data { fill: var(--data); }
svg .edge-label { font-size: 11.5px; paint-order: stroke; stroke: var(--card); stroke-width: 5px;
  stroke-linejoin: round; pointer-events: none; }
svg .edge-label.RAW { fill: var(--RAW); } svg .edge-label.WAR { fill: var(--WAR); }
svg .edge-label.WAW { fill: var(--WAW); }
.graph.picked .kernel, .graph.picked .pill, .graph.picked .edge, .graph.picked .edge-label {
  opacity: .22; }
.graph.picked .lit { opacity: 1; }
.track { margin: 10px 0; border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
#track { display: block; width: 100%; cursor: grab; touch-action: pan-y; }
#track:active { cursor: grabbing; }
#track:focus-visible, #rows:focus-visible, .scroll:focus-visible { outline: 3px solid var(--accent);
  outline-offset: 2px; }
#picked:not(:empty) { border-top: 1px solid var(--line); margin-top: 10px; padding-top: 8px; }
#picked h3 { font-size: 1rem; margin: 0; }
button.link { border: 0; background: none; padding: 0; color: var(--accent);
  text-decoration: underline; font-size: inherit; }
#rows { position: relative; height: 460px; overflow-y: auto; border: 1px solid var(--line);
  border-radius: 8px; }
#rows > div { position: relative; }
#rows [role=option] { position: absolute; left: 0; right: 0; height: 46px; padding: 3px 10px;
  border-bottom: 1px solid var(--line); cursor: pointer; overflow: hidden; font-size: .89rem;
  line-height: 19px; }
#rows [role=option] .soft { display: block; font-size: .83rem; white-space: nowrap;
  text-overflow: ellipsis; overflow: hidden; }
#rows .size { float: right; }
#rows [aria-selected=true] { background: var(--code); box-shadow: inset 3px 0 var(--accent); }
.buttons button { margin-right: 4px; }
select { font: inherit; font-size: .85rem; color: var(--text); background: var(--card);
  border: 1px solid var(--line); border-radius: 8px; padding: 4px 8px; }
.kernel.missed { opacity: .18; }
#find { font: inherit; color: var(--text); background: var(--page); border: 1px solid var(--line);
  border-radius: 8px; padding: 5px 12px; width: min(340px, 100%); }
.legend { display: flex; flex-wrap: wrap; gap: 6px 22px; margin: 10px 0 0; padding: 0;
  list-style: none; font-size: .88rem; }
.legend li { display: flex; gap: 8px; align-items: center; }
.legend svg { margin: 0; flex: none; }
.plane { fill: var(--code); stroke: var(--line); }
.bound { fill: none; stroke: var(--bound); stroke-width: 1.6; stroke-dasharray: 6 4; }
svg .bound-text { fill: var(--bound); }
.alive { fill: var(--data); opacity: .55; } .peak { fill: var(--bound); opacity: .8; }
svg .inside { font-size: 11.5px; pointer-events: none; }
.tone-0 rect { fill: var(--t0); } .tone-1 rect { fill: var(--t1); } .tone-2 rect {
  fill: var(--t2); } .tone-3 rect { fill: var(--t3); } .tone-4 rect { fill: var(--t4); }
.tone-5 rect { fill: var(--t5); } .tone-6 rect { fill: var(--t6); } .tone-7 rect {
  fill: var(--t7); }
[class^=tone-]:hover rect, [class^=tone-]:focus rect { stroke: var(--text); }
[tabindex]:focus, .kernel:focus { outline: none; }
[tabindex]:focus-visible rect, .kernel:focus-visible .frame { stroke: var(--accent);
  stroke-width: 3; }
.bar { display: grid; grid-template-columns: 190px 1fr 80px; gap: 5px 12px; margin: 5px 0;
  align-items: center; font-size: .9rem; max-width: 660px; }
.bar i { display: block; height: 13px; border-radius: 4px; background: var(--data);
  min-width: 2px; }
.bar i.planned { background: var(--accent); } .bar i.least { background: var(--bound); }
table { border-collapse: collapse; width: 100%; font-size: .89rem; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: nowrap; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.right, th.right { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
td.name { white-space: nowrap; }
td i { display: block; height: 3px; border-radius: 2px; background: var(--accent); opacity: .7;
  margin: 3px 0 0 auto; }
ul.reasons { list-style: none; margin: 10px 0 0; padding: 0; }
ul.reasons li { padding: 7px 0; border-top: 1px solid var(--line); }
code { font: .85em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
ul.reasons b { font-weight: 600; white-space: nowrap; }
tr[hidden], details[hidden] { display: none !important; }
details { border-top: 1px solid var(--line); content-visibility: auto;
  contain-intrinsic-size: auto 40px; } details:first-of-type { margin-top: 10px; }
summary { padding: 8px 0; cursor: pointer; } summary b { font-weight: 600; }
details p { margin: 2px 0 8px; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 8px; margin: 0 0 12px;
  padding: 12px 14px; overflow: auto; max-height: 480px; font: 12.5px/1.5 ui-monospace,
  SFMono-Regular, Menlo, Consolas, monospace; tab-size: 4; }
pre .w { color: var(--word); } pre .c { color: var(--note); font-style: italic; }
pre .n { color: var(--figure); } pre .s { color: var(--string); }
.chip { display: inline-block; font: 12px ui-monospace, Menlo, Consolas, monospace;
  background: var(--code); border: 1px solid var(--line); border-radius: 6px; padding: 1px 7px;
  margin: 0 6px 6px 0; }
#hint { position: fixed; z-index: 9; display: none; max-width: min(420px, 92vw); padding: 8px 12px;
  background: var(--text); color: var(--page); border-radius: 8px; font-size: .85rem;
  white-space: pre-line; pointer-events: none; }
footer { color: var(--soft); font-size: .85rem; margin-top: 22px; overflow-wrap: anywhere; }
@media (max-width: 620px) { main { padding: 18px 12px 48px; } section { padding: 14px; }
  h1 { font-size: 1.35rem; } .tiles { grid-template-columns: 1fr 1fr; }
  .tile b { font-size: 1.1rem; } ul.reasons b { white-space: normal; }
  .bar { grid-template-columns: 1fr max-content; } .bar i { grid-row: 2; grid-column: 1 / -1; }
  .tools { float: none; margin: 0 0 8px; }
  table.cards thead { display: none; } table.cards tr { display: block; padding: 8px 0;
    border-bottom: 1px solid var(--line); }
  table.cards td { display: grid; grid-template-columns: 96px 1fr; border: 0; padding: 1px 0;
    text-align: left; white-space: normal; overflow-wrap: anywhere; }
  table.cards td::before { content: attr(data-head); color: var(--soft); }
  table.cards td i { display: none; } }
@media print { button, nav { display: none; } section { break-inside: avoid; }
  .scroll { max-height: none; } }
""".replace("DARK", _DARK)

SCRIPT = """
const hint = document.getElementById('hint'), graph = document.querySelector('svg.graph');
function show(owner, x, y) {
  hint.textContent = owner.dataset.tip; hint.style.display = 'block';
  const box = hint.getBoundingClientRect();
  hint.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + 'px';
  hint.style.top = (y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 14)
    : y + 18) + 'px';
}
function light(owner) {
  if (!graph) return;
  graph.querySelectorAll('.lit').forEach(e => e.classList.remove('lit'));
  graph.classList.toggle('picked', !!owner);
  if (!owner) return;
  const ids = new Set(owner.dataset.kernel !== undefined ? [owner.dataset.kernel]
    : (owner.dataset.kernels || '').split(' '));
  const near = new Set(ids);
  owner.classList.add('lit');
  graph.querySelectorAll('.edge, .edge-label').forEach(e => {
    if (ids.has(e.dataset.before) || ids.has(e.dataset.after)) {
      e.classList.add('lit'); near.add(e.dataset.before); near.add(e.dataset.after); } });
  graph.querySelectorAll('.kernel').forEach(e => {
    if (near.has(e.dataset.kernel)) e.classList.add('lit'); });
  graph.querySelectorAll('.pill').forEach(e => {
    if (e.dataset.kernels.split(' ').some(k => ids.has(k))) e.classList.add('lit'); });
}
document.addEventListener('pointermove', event => {
  const owner = event.target.closest && event.target.closest('[data-tip]');
  if (owner) show(owner, event.clientX, event.clientY); else hint.style.display = 'none';
});
document.addEventListener('focusin', event => {
  const owner = event.target.closest('[data-tip]');
  if (owner) { const box = owner.getBoundingClientRect(); show(owner, box.left, box.bottom); }
});
document.addEventListener('focusout', () => { hint.style.display = 'none'; });
if (graph) for (const owner of graph.querySelectorAll('.kernel, .pill')) {
  for (const event of ['pointerenter', 'focus']) owner.addEventListener(event, () => light(owner));
  for (const event of ['pointerleave', 'blur']) owner.addEventListener(event, () => light(null));
}
function open() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === 'DETAILS') target.open = true;
}
addEventListener('hashchange', open); open();
if (graph) {
  const frame = graph.parentElement, first = graph.querySelector('.kernel');
  function centre() {
    const box = first.getBoundingClientRect(), view = frame.getBoundingClientRect();
    frame.scrollLeft += box.left + box.width / 2 - view.left - view.width / 2;
  }
  // Whole at once where that stays legible; a larger one opens at its first kernel.
  if (graph.getBoundingClientRect().width < 1.4 * frame.clientWidth) graph.classList.add('fit');
  else centre();
  document.getElementById('fit').addEventListener('click', () => {
    graph.style.width = graph.style.height = '';
    graph.classList.toggle('fit'); if (!graph.classList.contains('fit')) centre(); });
  function resize(factor, px, py) {
    const box = graph.getBoundingClientRect(), view = frame.getBoundingClientRect();
    const width = Math.min(Math.max(box.width * factor, 120), 20000), real = width / box.width;
    graph.classList.remove('fit');
    graph.style.width = width + 'px'; graph.style.height = box.height * real + 'px';
    const x = px ?? view.width / 2, y = py ?? view.height / 2;
    frame.scrollLeft = (frame.scrollLeft + x) * real - x;
    frame.scrollTop = (frame.scrollTop + y) * real - y;
  }
  document.getElementById('larger').addEventListener('click', () => resize(1.4));
  document.getElementById('smaller').addEventListener('click', () => resize(1 / 1.4));
  frame.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;
    const view = frame.getBoundingClientRect();
    resize(Math.exp(-event.deltaY / 300), event.clientX - view.left, event.clientY - view.top);
    event.preventDefault();
  }, {passive: false});
  let held = null;
  frame.addEventListener('pointerdown', event => { if (event.pointerType === 'mouse')
    held = [event.clientX, event.clientY, frame.scrollLeft, frame.scrollTop, 0]; });
  addEventListener('pointermove', event => {
    if (!held) return;
    const [x, y, left, top] = held;
    held[4] += Math.abs(event.movementX) + Math.abs(event.movementY);
    frame.scrollLeft = left + x - event.clientX; frame.scrollTop = top + y - event.clientY; });
  addEventListener('pointerup', () => { const far = held && held[4] > 5; held = null;
    if (far) frame.addEventListener('click', event => event.preventDefault(),
                                    {once: true, capture: true}); });
  frame.addEventListener('dragstart', event => event.preventDefault());
}
const find = document.getElementById('find');
const kernelRows = [...document.querySelectorAll('tr[data-find]')];
function narrow() {
  const words = find.value.toLowerCase().split(/\\s+/).filter(word => word);
  let count = 0;
  const boxes = new Map([...document.querySelectorAll('.kernel[data-kernel]')].map(
    box => [box.dataset.kernel, box]));
  for (const row of kernelRows) {
    const id = row.dataset.kernel, met = words.every(word => row.dataset.find.includes(word));
    count += met;
    row.hidden = document.getElementById('kernel-' + id).hidden = !met;
    if (boxes.has(id)) boxes.get(id).classList.toggle('missed', !met);
  }
  const [found, all] = window.narrowKernels ? narrowKernels(words) : [count, kernelRows.length];
  document.getElementById('found').textContent = words.length
    ? `${found.toLocaleString('en')} of ${all.toLocaleString('en')} kernels` : '';
}
if (find) find.addEventListener('input', narrow);
document.getElementById('theme').addEventListener('click', () => {
  const root = document.documentElement, dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const now = root.dataset.theme || (dark ? 'dark' : 'light');
  root.dataset.theme = now === 'dark' ? 'light' : 'dark';
});
"""

INTRODUCTION = """
<p>A tensor program says <em>what</em> to compute. A scheduler decided <em>how</em>, and this page
shows its decisions. Nothing on it is needed to use the results; it is for those who ask why
something is slow, or takes so much memory, or runs in this order.</p>
<div class="columns">
<p><b>Kernel.</b> One piece of generated code that runs as a whole: a loop, or a few. Operations
that share a kernel pass values in registers. Between kernels a value is written to memory and read
again, and that is often what takes the time. So fewer bytes moved is usually better.</p>
<p><b>Order.</b> A kernel waits for another one for three possible reasons. It reads what the other
wrote (<em>RAW</em>, read after write). Or it overwrites what the other still had to read
(<em>WAR</em>, write after read). Or it overwrites what the other wrote (<em>WAW</em>). Any order
that respects these lines gives the same results: <code>r[ordering.any-legal.equal]</code>.</p>
<p><b>Memory.</b> A temporary is needed from the kernel that writes it to the last kernel that
reads it. Two temporaries that are never needed together can lie at the same address. What is
needed at the busiest position of the order is the lower bound: nobody can do with less.</p>
</div>
<p class="soft">An id such as <code>r[memory.reuse.disjoint]</code> is a rule of the specification,
and leads to its text; what stands before the first dot is its chapter.</p>
"""

#: The drawing of all kernels in order, which viewer.js fills.
TRACK = """<p class="soft">Bars are kernels, in the order in which they run; of those that are too
narrow for a name, a higher one moves more bytes. Drag it to the side; zoom with the buttons, two
fingers, or Ctrl and the wheel. With keys: arrows pick a kernel, <kbd>+</kbd> and <kbd>-</kbd> zoom,
<kbd>a</kbd> and <kbd>d</kbd> go to the side, <kbd>0</kbd> shows all. Lines lead to the
kernels that wait for each other.</p>
<p class="buttons"><button type="button" id="closer" aria-label="Zoom in">+</button>
<button type="button" id="farther" aria-label="Zoom out">&#8722;</button>
<button type="button" id="whole">All</button>
<label>across: <select id="scale"></select></label></p>
<div class="track"><canvas id="track" tabindex="0" role="application"
aria-label="Kernels in order. Arrow keys pick one; it is told of below."></canvas></div>
<div id="picked" role="region" aria-live="polite" aria-label="The picked kernel"></div>
"""

#: The list of kernels of a large schedule, which viewer.js fills.
ROWS = """<div id="rows" tabindex="0" role="listbox" aria-label="Kernels in order"><div
role="presentation"></div></div>
"""

ZOOM = """<p class="tools buttons"><button type="button" id="larger" aria-label="Larger">+</button>
<button type="button" id="smaller" aria-label="Smaller">&#8722;</button>
<button type="button" id="fit">Whole / full size</button></p>
"""

FIND = """<p><input type="search" id="find" aria-label="Find kernels" autocomplete="off"
placeholder="Find: a name, a buffer, a line"/>
<span id="found" role="status" class="soft"></span></p>
"""

LEGEND = """
<ul class="legend">
<li><svg width="44" height="10"><path class="edge RAW" d="M0 5h44"/></svg>
RAW: reads what was written <code>r[dependencies.raw.order]</code></li>
<li><svg width="44" height="10"><path class="edge WAR" d="M0 5h44"/></svg>
WAR: overwrites what was read <code>r[dependencies.war.order]</code></li>
<li><svg width="44" height="10"><path class="edge WAW" d="M0 5h44"/></svg>
WAW: overwrites what was written <code>r[dependencies.waw.order]</code></li>
<li><svg width="44" height="10"><path class="edge data" d="M0 5h44"/></svg>
from outside, or kept</li>
</ul>
"""

_WORDS = ("auto bool break case char const continue default do double else extern float for goto "
          "if inline int int64_t int32_t int16_t int8_t uint64_t uint32_t uint16_t uint8_t long "
          "register restrict return short signed sizeof static struct switch typedef union "
          "unsigned void volatile while kernel device constant threadgroup half def in range")
_TOKEN = re.compile(
    r"(?P<c>//[^\n]*|/\*.*?\*/)|(?P<s>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<n>\b(?:0x[0-9a-fA-F.]+(?:p[-+]?\d+)?|\d[\d.]*(?:[eE][-+]?\d+)?)[uUlLfF]*)"
    r"|(?P<w>\b(?:" + "|".join(_WORDS.split()) + r")\b|^[ \t]*\#[^\n]*)", re.DOTALL | re.MULTILINE)


def viewer_script() -> str:
    """The script of the drawing in order and of the list."""
    return (Path(__file__).parent / "viewer.js").read_text(encoding="utf-8")


def highlighted(source: str) -> str:
    """Source text of a kernel as HTML, with words, numbers, strings and comments marked."""
    parts, at = [], 0
    for found in _TOKEN.finditer(source):
        parts.append(escape(source[at:found.start()]))
        parts.append(f'<span class="{found.lastgroup}">{escape(found.group())}</span>')
        at = found.end()
    return "".join(parts) + escape(source[at:])
