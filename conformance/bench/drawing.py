"""The result of a run as drawings: every workload under the machine's roof, and the ratios.

A drawing is SVG with classes instead of colours, so that on the site it follows the light and the
dark palette; `standalone` adds colours of its own for a file that is looked at by itself.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from conformance.bench import timings
from conformance.bench.limits import possible
from conformance.bench.peers import TITLES
from conformance.bench.timings import significant

Row = dict[str, Any]
Box = tuple[float, float, float, float]

WIDTH, HEIGHT = 720.0, 430.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 14.0, 16.0, 40.0
#: The width of a letter of a label, and the height of its line.
LETTER, LINE = 6.7, 13.0
COLOURS = """
.drawing { --paper: #ffffff; --ink: #1c2833; --soft: #5d6d7e; --faint: #d5dbe1;
           --ours: #c2681f; --peer: #2a78b8; }
@media (prefers-color-scheme: dark) {
  .drawing { --paper: #1b232c; --ink: #e6ebf0; --soft: #9fb0c0; --faint: #3a4652;
             --ours: #f0a35e; --peer: #6db3ec; }
}
.drawing .paper { fill: var(--paper); }
.drawing text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.drawing .axis { fill: var(--soft); font-size: 11px; }
.drawing .grid { stroke: var(--faint); fill: none; }
.drawing .roof { stroke: var(--soft); fill: none; stroke-width: 1.6; }
.drawing .roof-cache { stroke-dasharray: 5 4; }
.drawing .apart { stroke: var(--soft); fill: none; opacity: .55; }
.drawing .ours { fill: var(--ours); }
.drawing .peer { fill: none; stroke: var(--peer); stroke-width: 1.6; }
"""


def standalone(svg: str) -> str:
    """A drawing as a file: colours of its own, and a background."""
    head, rest = svg.split(">", 1)
    return (f"{head} xmlns='http://www.w3.org/2000/svg' class='drawing'><style>{COLOURS}</style>"
            f"<rect class='paper' width='100%' height='100%'/>{rest}\n")


def drawings(result: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, drawing and caption of everything that can be drawn from a result."""
    for count in sorted({row["threads"] for row in result["rows"]}):
        rows = [row for row in result["rows"] if row["threads"] == count and "limit" in row]
        for group in dict.fromkeys(row["group"] for row in rows):
            shown = [row for row in rows if row["group"] == group]
            name = f"{group.split()[0].lower()}-{count}"
            cores = f"{count} thread{'s' if count > 1 else ''}"
            yield (f"roofline-{name}", roofline(result, shown, f"{group}, {cores}"),
                   f"{group}, {cores}. Each workload under the roof of the machine: full dots are "
                   "ours, rings are the best peer. Solid: memory and multiply-add peak; dashed: "
                   "the second level cache.")
            yield (f"ratios-{name}", ratios(shown, f"{group}, {cores}"),
                   f"{group}, {cores}. How fast each library is, as a part of the best peer: "
                   "full dots are ours, rings the peers. Right of the line, ours is faster "
                   "than all.")


# ---------------------------------------------------------------- axes

class Scale:
    """A logarithmic axis: a value's place between two places."""

    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        self.low, self.high, self.start, self.stop = low, high, start, stop

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.stop - self.start)

    def inside(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def marks(self, factors: Sequence[float] = (1, 2, 5)) -> list[float]:
        """Round numbers on the axis."""
        lowest, highest = (math.floor(math.log10(end)) for end in (self.low, self.high))
        return [factor * 10.0**power for power in range(lowest, highest + 1) for factor in factors
                if self.low <= factor * 10.0**power * (1 + 1e-9) <= self.high * (1 + 1e-9)]


def text(x: float, y: float, content: str, css: str = "", anchor: str = "middle") -> str:
    chosen = f" class='{css}'" if css else ""
    return (f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{chosen}>"
            f"{escape(content)}</text>")


def path(css: str, *points: tuple[float, float]) -> str:
    return f"<path class='{css}' d='M{' L'.join(f'{x:.1f} {y:.1f}' for x, y in points)}'/>"


def dot(x: float, y: float, css: str, radius: float, hint: str) -> str:
    return (f"<circle class='{css}' cx='{x:.1f}' cy='{y:.1f}' r='{radius}'>"
            f"<title>{escape(hint)}</title></circle>")


def whole(parts: Iterable[str], height: float, label: str) -> str:
    return (f"<svg viewBox='0 0 {WIDTH:.0f} {height:.0f}' role='img' "
            f"aria-label='{escape(label, quote=True)}'>{''.join(parts)}</svg>")


# ---------------------------------------------------------------- the roof

def roofline(result: dict[str, Any], rows: list[Row], label: str) -> str:
    """Operations a second over operations for each byte that has to move."""
    rows = [row for row in rows if row["operations"] and "median" in row["results"]["impl"]]
    most = possible(result, rows[0]["threads"]) if rows else None
    if most is None:
        return whole([], HEIGHT, label)
    peak = most.peak / 1e9
    memory, cache = (max(most.speeds[place].copy, most.speeds[place].read) / 1e9
                     for place in (-1, 0))
    across, up = _axes(rows, peak)
    parts = [*_grid(across, up), _roof(across, up, peak, memory, "roof"),
             _roof(across, up, peak, cache, "roof roof-cache"),
             text(across(peak / memory), up(peak) - 6, f"{significant(peak)} GFLOP/s", "axis")]
    for speed, name, down in ((memory, "memory", 6), (cache, "cache", 1.3)):
        # Left of the slope and above it, where no dot can be.
        at = max(peak / speed / down, across.low)
        parts.append(text(across(at) - 8, up(at * speed), f"{name} {significant(speed)} GB/s",
                          "axis", "end"))
    dots = [(row, _places(row, across, up)) for row in rows]
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for _, (x, *ys) in dots for y in ys]
    taken += [(x - 1, min(ys), x + 1, max(ys)) for _, (x, *ys) in dots]
    taken.append((across(peak / memory), up(peak) - 2, across.stop, up(peak) + 2))
    for row, (x, ours, *peers) in dots:
        parts += [path("apart", (x, ours), (x, peer)) for peer in peers]
        parts += [dot(x, peer, "peer", 4.5, hint(row)) for peer in peers]
        parts.append(dot(x, ours, "ours", 4.5, hint(row)))
    if len(dots) <= 16:
        for row, (x, ours, *_) in dots:
            parts.append(_label(short_title(row), x, ours, taken))
    return whole(parts, HEIGHT, label)


def rate(row: Row, seconds: float) -> float:
    """Billions of operations a second."""
    return float(row["operations"] / seconds / 1e6)


def intensity(row: Row) -> float:
    """Operations for each byte."""
    return float(row["operations"] / (row["read"] + row["written"]))


def hint(row: Row) -> str:
    """What is said when the mouse is over a dot."""
    ours, fastest = row["results"]["impl"]["median"], timings.best(row)
    said = f"{plain_title(row)}: {significant(rate(row, ours))} GFLOP/s"
    if fastest:
        said += f", {TITLES.get(fastest[0], fastest[0])} {significant(rate(row, fastest[1]))}"
    return f"{said}; {row['limit'] / ours:.0%} of the limit"


def plain_title(row: Row) -> str:
    return str(row["title"]).replace("`", "")


def short_title(row: Row) -> str:
    """Without its sizes, if it is long."""
    title = plain_title(row)
    return title if len(title) <= 14 else title.split(", ")[0]


def _axes(rows: list[Row], peak: float) -> tuple[Scale, Scale]:
    """From the least to the greatest of what is shown, with some room."""
    ours = [rate(row, row["results"]["impl"]["median"]) for row in rows]
    found = [intensity(row) for row in rows]
    across = Scale(min(found) / 1.6, max(*found, 2 * min(found)) * 4, LEFT, WIDTH - RIGHT)
    return across, Scale(max(min(ours) / 1.6, peak / 3000), peak * 1.6, HEIGHT - BOTTOM, TOP)


def _grid(across: Scale, up: Scale) -> Iterator[str]:
    for mark in across.marks():
        yield path("grid", (across(mark), up.start), (across(mark), up.stop))
        yield text(across(mark), up.start + 16, significant(mark), "axis")
    for mark in up.marks():
        yield path("grid", (across.start, up(mark)), (across.stop, up(mark)))
        yield text(across.start - 6, up(mark) + 4, significant(mark), "axis", "end")
    yield text((across.start + across.stop) / 2, HEIGHT - 6, "operations for each byte", "axis")
    yield text(4, TOP - 4, "GFLOP/s", "axis", "start")


def _roof(across: Scale, up: Scale, peak: float, speed: float, css: str) -> str:
    """Up with the bytes, then level with the peak."""
    begin = max(across.low, up.low / speed)
    corner = min(max(peak / speed, begin), across.high)
    level = min(peak, corner * speed)
    return path(css, (across(begin), up(min(begin * speed, peak))), (across(corner), up(level)),
                (across(across.high), up(level)))


def _places(row: Row, across: Scale, up: Scale) -> list[float]:
    """Where a row's dots are: across, then ours, then the best peer."""
    fastest = timings.best(row)
    times = [row["results"]["impl"]["median"], *([fastest[1]] if fastest else [])]
    return [across(intensity(row)), *(up(up.inside(rate(row, time))) for time in times)]


def _label(content: str, x: float, y: float, taken: list[Box]) -> str:
    """A name beside its dot, at the first place where nothing else is."""
    wide = LETTER * len(content)
    tried = [(x + side * (8 + away) - (wide if side < 0 else 0), y + down)
             for away in (0, 14, 30, 60)
             for down in (4, -8, 16, -22, 28, -36, 42, -50, 56, 70, 84, 98, 112, 126)
             for side in (1, -1)]

    def box(place: tuple[float, float]) -> Box:
        return place[0], place[1] - LINE + 3, place[0] + wide, place[1] + 3

    def fits(place: tuple[float, float]) -> bool:
        mine = box(place)
        return (mine[0] >= LEFT and mine[2] <= WIDTH and mine[1] >= 0
                and mine[3] <= HEIGHT - BOTTOM
                and not any(mine[0] < other[2] and other[0] < mine[2] and mine[1] < other[3]
                            and other[1] < mine[3] for other in taken))
    chosen = next((place for place in tried if fits(place)), None)
    if chosen is None:
        return ""
    taken.append(box(chosen))
    line = ""
    near = chosen[0] - 3 if chosen[0] > x else chosen[0] + wide
    if abs(chosen[1] - 4 - y) > 14 or abs(near - x) > 16:
        line = path("apart", (x, y), (near, chosen[1] - 4))
    return line + text(chosen[0], chosen[1], content, "", "start")


# ---------------------------------------------------------------- the ratios

def ratios(rows: list[Row], label: str) -> str:
    """A line for each workload: ours and every peer, as a part of the speed of the best peer."""
    rows = [row for row in rows if timings.ratio(row) is not None]
    names = 7.0 * max((len(plain_title(row)) for row in rows), default=0) + 14
    least = min((timings.ratio(row) or 1 for row in rows), default=1)
    most = max((timings.ratio(row) or 1 for row in rows), default=1)
    across = Scale(min(0.1, max(least / 1.3, 0.005)), max(2.0, most * 1.3), names, WIDTH - 52)
    height = TOP + 20 * len(rows) + BOTTOM
    parts = []
    for mark in across.marks():
        css = "roof" if mark == 1 else "grid"
        parts += [path(css, (across(mark), TOP), (across(mark), height - BOTTOM)),
                  text(across(mark), height - BOTTOM + 16, significant(mark), "axis")]
    parts.append(text((across.start + across.stop) / 2, height - 6,
                      "speed, as a part of the best peer's", "axis"))
    for place, row in enumerate(rows):
        parts += _ratio_line(row, across, TOP + 20 * place + 10)
    return whole(parts, height, label)


def _ratio_line(row: Row, across: Scale, y: float) -> Iterator[str]:
    fastest, times = timings.best(row), timings.ratio(row)
    assert fastest is not None and times is not None
    yield text(across.start - 10, y + 4, plain_title(row), "", "end")
    yield path("grid", (across.start, y), (across.stop, y))
    yield path("apart", (across(1), y), (across(across.inside(times)), y))
    for name, said in row["results"].items():
        if name != "impl" and "median" in said:
            part = fastest[1] / said["median"]
            yield dot(across(across.inside(part)), y, "peer", 3.5,
                      f"{TITLES.get(name, name)}: {significant(said['median'])} ms")
    yield dot(across(across.inside(times)), y, "ours", 5, hint(row) if row["operations"]
              else f"ours: {significant(row['results']['impl']['median'])} ms")
    yield text(WIDTH - 2, y + 4, timings.part(times), "axis", "end")
