"""The pictures of a report, as SVG text: the graph of kernels, and memory over time."""
from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from html import escape
from typing import Any

from impl.inspect.layout import Layout, layered, layers_of
from impl.inspect.text import (
    KINDS,
    Document,
    Machine,
    Row,
    Timings,
    buffer_names,
    buffer_sizes,
    bytes_text,
    clipped,
    count_text,
    ordered_kernels,
    plural,
    shortened,
    time_text,
    touched,
)

BOX = (212.0, 70.0)      # width and height of a kernel
PILL = (168.0, 30.0)     # width and height of a group of buffers
GAP, ROW, MARGIN = 30.0, 128.0, 16.0
WORD = 6.6               # width of a letter beside a line
#: More kernels than this are listed in the table, but not drawn.
MOST_DRAWN = 250
Point = tuple[float, float]


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """One element; `class_` is written class, and underscores become hyphens.

    `content` is markup; attributes are text.
    """
    parts = [f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value), quote=True)}"'
             for key, value in attributes.items() if value is not None]
    return f"<{name}{''.join(parts)}>{content}</{name}>"


def _number(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def text_label(x: float, y: float, words: str, css: str, anchor: str = "start",
               **attributes: Any) -> str:
    """Text in a drawing."""
    # r[impl inspect.report.whole]
    return tag("text", escape(words), x=x, y=y, class_=css, text_anchor=anchor, **attributes)


def kernel_hint(names: Mapping[int, str], kernel: Row, timings: Timings | None = None,
                machine: Machine | None = None) -> str:
    """What the pointer shows over a kernel."""
    lines = [f"kernel {kernel['id']}: {kernel.get('name') or kernel['kind']}"]
    if kernel.get("label"):
        lines.append(kernel["label"])
    lines.append(f"reads {shortened(touched(kernel['reads'], names), 60) or 'nothing'}")
    lines.append(f"writes {shortened(touched(kernel['writes'], names), 60) or 'nothing'}")
    if "bytes" in kernel:
        lines.append(f"{bytes_text(kernel['bytes'])} moved")
    if kernel.get("operations"):
        lines.append(f"{count_text(kernel['operations'])} operations")
    if kernel.get("stages", 1) > 1:
        lines.append(f"{kernel['stages']} stages fused into one kernel")
    if timings and kernel["id"] in timings:
        lines.append(f"{time_text(timings[kernel['id']])} measured")
    if machine:
        lines.append(f"{time_text(machine.predict(kernel))} predicted")
    return "\n".join(lines)


# The graph


class _Schedule:
    """The nodes and edges of the drawing, collected from a document."""

    def __init__(self, document: Document, timings: Timings | None,
                 machine: Machine | None = None) -> None:
        self.document, self.timings, self.machine = document, timings, machine
        self.names, self.sizes = buffer_names(document), buffer_sizes(document)
        self.kernels = ordered_kernels(document)[:MOST_DRAWN]
        self.drawn = {kernel["id"] for kernel in self.kernels}
        self.waits = [row for row in document["dependencies"]
                      if row["before"] in self.drawn and row["after"] in self.drawn]
        pairs = [(row["before"], row["after"]) for row in self.waits]
        order = [kernel["id"] for kernel in self.kernels]
        self.layer: dict[Hashable, int] = {
            node: layer + 1 for node, layer in layers_of(order, pairs).items()}
        self.pills: dict[Hashable, list[int]] = {}
        self.pill_edges: list[tuple[Hashable, Hashable]] = []
        self.add_inputs()
        self.add_outputs()

    def add_inputs(self) -> None:
        """Buffers from outside, together where the same kernels of one layer read them."""
        written: set[int] = set()
        readers: dict[tuple[int, int], list[int]] = {}
        for kernel in self.kernels:
            for access in kernel["reads"]:
                if access["buffer"] not in written:
                    at = readers.setdefault((access["buffer"], self.layer[kernel["id"]]), [])
                    if kernel["id"] not in at:
                        at.append(kernel["id"])
            written |= {access["buffer"] for access in kernel["writes"]}
        groups: dict[tuple[int, ...], list[int]] = {}
        for (buffer, _), kernels in readers.items():
            groups.setdefault(tuple(kernels), []).append(buffer)
        for consumers, buffers in groups.items():
            pill = ("reads", consumers)
            self.pills[pill] = buffers
            self.layer[pill] = self.layer[consumers[0]] - 1
            self.pill_edges += [(pill, kernel) for kernel in consumers]

    def add_outputs(self) -> None:
        """Results and state, below the kernel that writes them last."""
        kinds = {b["id"]: b["kind"] for b in self.document["buffers"]}
        outputs = set(self.document["outputs"])
        last: dict[int, int] = {}
        for kernel in self.kernels:
            for access in kernel["writes"]:
                if access["buffer"] in outputs or kinds[access["buffer"]] in ("output", "state"):
                    last[access["buffer"]] = kernel["id"]
        groups: dict[int, list[int]] = {}
        for buffer, number in last.items():
            groups.setdefault(number, []).append(buffer)
        for number, buffers in groups.items():
            pill = ("writes", (number,))
            self.pills[pill] = buffers
            self.layer[pill] = self.layer[number] + 1
            self.pill_edges.append((number, pill))
        top = min(self.layer.values(), default=0)
        self.layer = {node: layer - top for node, layer in self.layer.items()}

    def links(self) -> dict[tuple[int, int], dict[str, list[int]]]:
        """For every two kernels that depend on each other: kind -> buffers."""
        found: dict[tuple[int, int], dict[str, list[int]]] = {}
        for row in self.waits:
            kinds = found.setdefault((row["before"], row["after"]), {})
            buffers = kinds.setdefault(row["kind"], [])
            if "buffer" in row and row["buffer"] not in buffers:
                buffers.append(row["buffer"])
        return found


def schedule_graph(document: Document, timings: Timings | None = None,
                   machine: Machine | None = None) -> str:
    """Kernels as boxes, and lines for what they wait for (r[inspect.report.whole])."""
    schedule = _Schedule(document, timings, machine)
    links = schedule.links()
    widths = {node: (PILL if node in schedule.pills else BOX)[0] for node in schedule.layer}
    layout = layered(schedule.layer, widths, [*schedule.pill_edges, *links], GAP, ROW)
    lines = [(*pair, kind) for pair, kinds in links.items() for kind in kinds]
    paths = _routes(layout, schedule, [*lines, *((*edge, "data") for edge in schedule.pill_edges)])
    # r[impl inspect.report.whole]
    parts = [_pill_edge(paths[(*edge, "data")], edge) for edge in schedule.pill_edges]
    labels, taken = [], _Taken()
    for before, after, kind in lines:
        line, words = _edge(schedule, paths[before, after, kind], (before, after), kind,
                            links[before, after][kind], taken)
        parts.append(line)
        labels.append(words)
    parts += [_pill(schedule, layout.places[node], node) for node in schedule.pills]
    longest = max((_weight(k, timings) for k in schedule.kernels), default=0)
    parts += [_box(schedule, layout.places[k["id"]], k, longest) for k in schedule.kernels]
    width, height = layout.width + 2 * MARGIN, layout.height + BOX[1] + 2 * MARGIN
    return tag("svg", _ARROWS + tag("g", "".join(parts + labels),
                                    transform=f"translate({MARGIN:g} {MARGIN + BOX[1] / 2:g})"),
               class_="graph", width=width, height=height, viewBox=f"0 0 {width:.0f} {height:.0f}",
               role="group", aria_label="graph of kernels")


_ARROWS = "<defs>" + "".join(
    f'<marker id="tip-{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path class="tip {kind}" d="M0 1 10 5 0 9Z"/></marker>'
    for kind in ("RAW", "WAR", "WAW", "data")) + "</defs>"


def _curve(points: Sequence[Point]) -> str:
    """A smooth line that leaves and enters every point vertically."""
    x, y = points[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in points[1:]:
        middle = (y + to_y) / 2
        parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(parts)


def _along(start: Point, end: Point, part: float) -> Point:
    """The point of such a line after a part of it, from 0 to 1."""
    (x, y), (to_x, to_y), rest = start, end, 1 - part
    middle = 3 * part * rest * (y + to_y) / 2
    return (x * rest ** 2 * (1 + 2 * part) + to_x * part ** 2 * (1 + 2 * rest),
            y * rest ** 3 + middle + to_y * part ** 3)


class _Taken:
    """Where words stand already, so that no others are written over them."""

    SIZE = (WORD * 24, 15.0)  # of the longest words that a line has

    def __init__(self) -> None:
        self._words: dict[tuple[int, int], list[tuple[float, float, float]]] = {}

    def free(self, x: float, y: float, width: float) -> bool:
        """Whether words of a width fit around a point."""
        column, row = int(x // self.SIZE[0]), int(y // self.SIZE[1])
        near = (place for across in (-1, 0, 1) for down in (-1, 0, 1)
                for place in self._words.get((column + across, row + down), ()))
        return all(abs(x - at_x) >= (width + wide) / 2 or abs(y - at_y) >= self.SIZE[1]
                   for at_x, at_y, wide in near)

    def put(self, points: Sequence[Point], words: str) -> Point:
        """Where along a line its words stand: in the middle of a short one, else where a long one
        passes its first layer, and elsewhere along it if that is taken."""
        width = WORD * len(words)
        short, parts = len(points) == 2, (0.5, 0.35, 0.65, 0.25, 0.75)
        places = [_along(points[0], points[1], part if short else 1.35 - part) for part in parts]
        if not short:
            places = [points[1], *(_along(points[1], points[2], part / 2) for part in parts),
                      *places]
        x, y = next((each for each in places if self.free(*each, width)), places[0])
        key = int(x // self.SIZE[0]), int(y // self.SIZE[1])
        self._words.setdefault(key, []).append((x, y, width))
        return x, y


def _routes(layout: Layout, schedule: _Schedule,
            lines: Sequence[tuple[Hashable, Hashable, str]]) -> dict[Any, list[Point]]:
    """The points of each line. Lines leave and enter a box side by side, in the order in which
    they come, so that no two of them cover each other."""
    size = {node: PILL if node in schedule.pills else BOX for node in layout.places}
    routes = {line: list(layout.paths[line[0], line[1]]) for line in lines}
    for end, side in ((0, 1), (-1, -1)):
        meeting: dict[Hashable, list[tuple[Hashable, Hashable, str]]] = {}
        for line in lines:
            meeting.setdefault(line[end and 1], []).append(line)
        for node, group in meeting.items():
            group.sort(key=lambda line: routes[line][1 if side > 0 else -2][0])
            width, height = size[node]
            apart = min(28.0, 0.8 * width / len(group))
            x, y = layout.places[node]
            for number, line in enumerate(group):
                shift = (number - (len(group) - 1) / 2) * apart
                routes[line][end] = (x + shift, y + side * height / 2 - (2 if side < 0 else 0))
    return routes


def _pill_edge(points: Sequence[Point], edge: tuple[Hashable, Hashable]) -> str:
    source, target = edge
    from_pill = isinstance(source, tuple)
    return tag("path", d=_curve(points), class_="edge data", marker_end="url(#tip-data)",
               data_before="" if from_pill else source, data_after=target if from_pill else "")


def _edge(schedule: _Schedule, points: Sequence[Point], pair: tuple[int, int], kind: str,
          buffers: Sequence[int], taken: _Taken) -> tuple[str, str]:
    """The line between two kernels, and the name of what passes along it."""
    called = [schedule.names[b] for b in buffers]
    size = sum(schedule.sizes[b] for b in buffers)
    hint = (f"{kind}: kernel {pair[1]} {KINDS[kind]}: kernel {pair[0]}\n"
            f"{shortened(called, 60)} ({bytes_text(size)})")
    shared: dict[str, Any] = {"data_before": pair[0], "data_after": pair[1], "data_tip": hint}
    path = _curve(points)
    line = tag("path", d=path, class_="edge-reach", **shared)
    line += tag("path", d=path, class_=f"edge {kind}", marker_end=f"url(#tip-{kind})", **shared)
    words = shortened(called, 16) if kind == "RAW" else kind
    x, y = taken.put(points, words)
    return line, text_label(x, y + 4, words, f"edge-label {kind}", "middle",
                            data_before=pair[0], data_after=pair[1])


def _pill(schedule: _Schedule, centre: Point, node: Hashable) -> str:
    """A group of buffers that come from outside or go there."""
    assert isinstance(node, tuple)
    side, kernels = node
    buffers = schedule.pills[node]
    size = bytes_text(sum(schedule.sizes[b] for b in buffers))
    called = [schedule.names[b] for b in buffers]
    words = clipped(called[0], 14) if len(called) == 1 else plural(len(called), "buffer")
    what = "from outside" if side == "reads" else "kept after the schedule"
    hint = f"{what}: {shortened(called, 80)}\n{size}"
    x, y = centre[0] - PILL[0] / 2, centre[1] - PILL[1] / 2
    body = tag("rect", x=x, y=y, width=PILL[0], height=PILL[1], rx=15.0)
    body += text_label(centre[0], centre[1] + 4, f"{words} · {size}", "small", "middle")
    return tag("g", body, class_=f"pill {side}", tabindex=0, role="img",
               data_tip=hint, aria_label=hint,
               data_kernels=" ".join(str(k) for k in kernels))


def _weight(kernel: Row, timings: Timings | None) -> float:
    """How much of the schedule a kernel is: its time, or else the bytes that it moves."""
    return timings.get(kernel["id"], 0.0) if timings else float(kernel.get("bytes", 0))


def _box(schedule: _Schedule, centre: Point, kernel: Row, longest: float) -> str:
    """One kernel."""
    width, height = BOX
    x, y = centre[0] - width / 2, centre[1] - height / 2
    hint = kernel_hint(schedule.names, kernel, schedule.timings, schedule.machine)
    share = _weight(kernel, schedule.timings) / longest if longest else 0
    facts = [bytes_text(kernel["bytes"])] if "bytes" in kernel else []
    if schedule.timings and kernel["id"] in schedule.timings:
        facts.append(time_text(schedule.timings[kernel["id"]]))
    if kernel.get("stages", 1) > 1:
        facts.append(f"{kernel['stages']} stages")
    if kernel.get("times", 1) > 1:
        facts.append(f"{kernel['times']} times")
    body = tag("rect", x=x, y=y, width=width, height=height, rx=9.0, class_="frame")
    body += tag("rect", x=x + 12, y=y + height - 9, width=max(2.0, share * (width - 24)),
                height=3.0, rx=1.5, class_="share")
    body += text_label(x + 12, y + 20, f"{kernel['id']} ", "number")
    body += text_label(x + 14 + 9 * len(str(kernel["id"])), y + 20,
                  clipped(kernel.get("name") or kernel["kind"], 21), "name")
    words = clipped(kernel.get("label", "") or kernel["device"], 29)
    body += text_label(x + 12, y + 37, words, "small")
    body += text_label(x + 12, y + 53, " · ".join(facts), "small faint")
    return tag("a", body, class_=f"kernel {kernel['kind']}", href=f"#kernel-{kernel['id']}",
               data_kernel=kernel["id"], data_tip=hint)


# Memory

CHART_LEFT, CHART_TOP, CHART_HEIGHT = 76.0, 26.0, 280.0
TONES = 8


def memory_chart(document: Document) -> str:
    """Where each temporary lies, and when: the order to the right, addresses upwards.

    r[inspect.report.whole]. Below each arena stands how many bytes are needed at each position; the
    highest of them is the lower bound that no plan can go below.
    """
    memory = document["memory"]
    positions = max(len(document["order"]), 1)
    pitch = max(6.0, min(90.0, 760.0 / positions))
    said = max((len(_address_title(arena)) for arena in memory["arenas"]), default=0)
    width = CHART_LEFT + max(positions * pitch + 20, (WORD + 1) * said)  # room for the words
    parts, top = [], CHART_TOP
    largest = max((arena["bytes"] for arena in memory["arenas"]), default=0)
    for arena in memory["arenas"]:
        placed = [p for p in memory["placements"] if p["arena"] == arena["id"]]
        if placed:  # r[impl inspect.report.whole]
            height = max(70.0, CHART_HEIGHT * arena["bytes"] / max(largest, 1))
            parts.append(_arena(document, arena, placed, top, pitch, height))
            top += height + 138
    return tag("svg", "".join(parts), class_="memory", width=width, height=top - 14,
               viewBox=f"0 0 {width:.0f} {top - 14:.0f}", role="group",
               style=f"min-width:{min(width, 560):.0f}px",
               aria_label="memory of temporaries over time")


def needed(placements: Sequence[Row], positions: int) -> list[int]:
    """Bytes of the temporaries that are alive at each position."""
    change = [0] * (positions + 1)
    for place in placements:
        if place.get("in_place_of") is None:
            change[place["first"]] += place["bytes"]
            change[place["last"] + 1] -= place["bytes"]
    alive, found = 0, []
    for difference in change[:positions]:
        alive += difference
        found.append(alive)
    return found


def _address_title(arena: Row) -> str:
    return f"arena {arena['id']} on {arena.get('device', '?')}: address of each temporary"


def _arena(document: Document, arena: Row, placed: Sequence[Row], top: float, pitch: float,
           height: float) -> str:
    """One arena: its frame, its placements, the lower bound, and the bytes needed below it."""
    positions = max(len(document["order"]), 1)
    alive = needed(placed, positions)
    right, bottom = CHART_LEFT + positions * pitch, top + height
    scale = height / max(arena["bytes"], 1)
    parts = [tag("path", d=f"M{CHART_LEFT} {top:.1f}H{right:.1f}V{bottom:.1f}H{CHART_LEFT}Z",
                 class_="plane")]
    parts += [text_label(CHART_LEFT - 8, bottom, "0", "axis", "end"),
              text_label(CHART_LEFT - 8, top + 8, bytes_text(arena["bytes"]), "axis", "end"),
              text_label(CHART_LEFT, top - 9, _address_title(arena), "axis strong")]
    names = buffer_names(document)
    for number, place in enumerate(sorted(placed, key=lambda p: (p["first"], p["offset"]))):
        parts.append(_placement(place, names, number, (pitch, scale, bottom)))
    least = max(alive, default=0)
    bound = bottom - least * scale
    parts.append(tag("path", d=f"M{CHART_LEFT} {bound:.1f}H{right:.1f}", class_="bound",
                     data_tip=f"lower bound: {bytes_text(least)} are alive at one time"))
    if abs(bound - top) > 14:
        parts.append(text_label(CHART_LEFT - 8, bound + 4, "bound", "axis bound-text", "end"))
    parts.append(_alive(alive, bottom + 34, pitch, least))
    return "".join(parts)


def _placement(place: Row, names: Mapping[int, str], number: int,
               measure: tuple[float, float, float]) -> str:
    pitch, scale, bottom = measure
    width = (place["last"] - place["first"] + 1) * pitch - 1.5
    height = max(2.0, place["bytes"] * scale - 1.5)
    x = CHART_LEFT + place["first"] * pitch + 0.75
    y = bottom - place["offset"] * scale - height - 0.75
    name = names[place["buffer"]]
    hint = (f"{name}: {bytes_text(place['bytes'])} at offset {place['offset']}\n"
            f"needed from position {place['first']} to position {place['last']}")
    if place.get("in_place_of") is not None:
        hint += f"\nwritten over {names[place['in_place_of']]}"
    body = tag("rect", x=x, y=y, width=width, height=height, rx=3.0)
    if height > 13 and width > 8 * len(name):
        body += text_label(x + width / 2, y + height / 2 + 4, name, "inside", "middle")
    return tag("g", body, class_=f"tone-{number % TONES}", tabindex=0, role="img", data_tip=hint,
               aria_label=hint)


def _alive(alive: Sequence[int], top: float, pitch: float, least: int) -> str:
    """The bytes that are needed at each position, as columns, with the numbers of the positions."""
    height = 54.0
    parts = [text_label(CHART_LEFT, top - 9, "bytes needed at each position", "axis strong"),
             text_label(CHART_LEFT - 8, top + 8, bytes_text(least), "axis", "end")]
    every = max(1, round(28 / pitch))
    for number, count in enumerate(alive):
        tall = height * count / max(least, 1)
        x = CHART_LEFT + number * pitch
        parts.append(tag("rect", x=x + 0.75, y=top + height - tall, width=pitch - 1.5,
                         height=max(tall, 0.5), class_="peak" if count == least else "alive",
                         data_tip=f"position {number}: {bytes_text(count)} are needed"))
        if number % every == 0:
            parts.append(text_label(x + pitch / 2, top + height + 16, str(number), "axis",
                                    "middle"))
    parts.append(text_label(CHART_LEFT - 8, top + height + 16, "position", "axis", "end"))
    parts.append(tag("path", d=f"M{CHART_LEFT} {top:.1f}h{len(alive) * pitch:.1f}", class_="bound"))
    return "".join(parts)
