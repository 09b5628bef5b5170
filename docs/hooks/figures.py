"""Figures that the running implementation draws while the site is built.

A figure is a function without arguments that answers HTML. The drawings are SVG with classes
instead of colours, so that they follow the light and the dark palette.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

from conformance import trace
from conformance.bench import drawing
from impl import Context, Tensor, memory, ordering
from impl.dependencies import Dependency

RUN = trace.ROOT / "conformance" / "bench" / "results" / "run.json"

WIDTH, LEFT, TOP = 720, 64, 30
LOWEST, HIGHEST, PIXELS_PER_BYTE = 60.0, 340.0, 0.3
#: Colours by turns, defined in docs/assets/site.css.
TONES = 6


def bytes_text(count: int) -> str:
    """A number of bytes as a person reads it."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def figure(svg: str, caption: str, css: str = "drawing") -> str:
    return f"<figure class='{css}'>{svg}<figcaption>{caption}</figcaption></figure>"


def text(x: float, y: float, content: str, css: str = "", anchor: str = "middle") -> str:
    return (f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' class='{css}'>"
            f"{escape(content)}</text>")


def box(x: float, y: float, width: float, height: float, css: str, hint: str) -> str:
    size = f"width='{max(width, 1):.1f}' height='{max(height, 1):.1f}'"
    return (f"<rect x='{x:.1f}' y='{y:.1f}' {size} rx='3' class='{css}'>"
            f"<title>{escape(hint)}</title></rect>")


def memory_map(document: dict[str, Any], label: str = "memory map") -> str:
    """The temporaries of a schedule document: positions to the right, addresses downwards.

    A box is one buffer: as wide as its life, as high as its size, at its offset in the arena.
    """
    memory = document["memory"]
    positions = max(len(document["order"]), 1)
    names = {buffer["id"]: buffer["name"] for buffer in document["buffers"]}
    pitch = (WIDTH - LEFT - 8) / positions
    parts, top = [], float(TOP)
    for arena in memory["arenas"]:
        placed = [p for p in memory["placements"] if p["arena"] == arena["id"]]
        # Little arenas keep one scale, so that two maps side by side can be compared.
        height = min(HIGHEST, max(LOWEST, arena["bytes"] * PIXELS_PER_BYTE))
        scale = height / max(arena["bytes"], 1)
        parts.append(grid(positions, pitch, top, height, arena["bytes"]))
        for place in sorted(placed, key=lambda p: (p["first"], p["offset"])):
            parts.append(placement(place, names, pitch, top, scale))
        top += height + 44
    svg = "".join(parts)
    return (f"<svg viewBox='0 0 {WIDTH} {top - 38:.0f}' role='img' "
            f"aria-label='{escape(label, quote=True)}'>{svg}</svg>")


def grid(positions: int, pitch: float, top: float, height: float, size: int) -> str:
    """The frame of one arena with its positions and its first and last address."""
    right = LEFT + positions * pitch
    lines = [f"<path class='frame' d='M{LEFT} {top}H{right:.1f}V{top + height}H{LEFT}Z'/>"]
    every = 1 + positions // 24
    for position in range(positions):
        x = LEFT + position * pitch
        if position:
            lines.append(f"<path class='grid' d='M{x:.1f} {top}v{height}'/>")
        if position % every == 0:
            lines.append(text(x + pitch / 2, top - 8, str(position), "axis"))
    lines.append(text(LEFT - 8, top + 10, "0", "axis", "end"))
    lines.append(text(LEFT - 8, top + height, bytes_text(size), "axis", "end"))
    lines.append(text(LEFT - 8, top - 8, "position", "axis", "end"))
    return "".join(lines)


def placement(place: dict[str, Any], names: dict[int, str], pitch: float, top: float,
              scale: float) -> str:
    """One buffer of the map, with its name if that fits and a hint when the mouse is over it."""
    x = LEFT + place["first"] * pitch + 1.5
    width = (place["last"] - place["first"] + 1) * pitch - 3
    y, height = top + place["offset"] * scale + 1, place["bytes"] * scale - 2
    name = names[place["buffer"]]
    hint = (f"{name}: {bytes_text(place['bytes'])} at {place['offset']}, "
            f"positions {place['first']} to {place['last']}")
    drawn = box(x, y, width, height, f"tone tone-{place['buffer'] % TONES}", hint)
    if height >= 13 and width >= 8 * len(name):
        drawn += text(x + width / 2, y + height / 2 + 4, name, "name")
    return drawn


def caption(document: dict[str, Any]) -> str:
    """The numbers of a plan in one sentence."""
    memory = document["memory"]
    return (f"{len(memory['placements'])} temporaries in {len(document['order'])} positions: "
            f"{bytes_text(memory['planned'])} planned, {bytes_text(memory['unplanned'])} without "
            f"reuse; no plan can do with less than {bytes_text(memory['lower_bound'])}.")


# The lesson on memory: the five temporaries of its text, planned by the implementation.

LESSON = (("a", 128, 0, 1), ("b", 64, 1, 4), ("c", 192, 2, 3), ("d", 256, 3, 5), ("e", 256, 4, 5))


def lesson_document(reuse: bool) -> dict[str, Any]:
    """A schedule document of the lesson's temporaries, with the offsets of `impl.memory`."""
    spans = [memory.Lifetime(i, size, first, last)
             for i, (_, size, first, last) in enumerate(LESSON)]
    return planned_document(spans, [name for name, *_ in LESSON], reuse)


def planned_document(spans: Sequence[memory.Lifetime], names: Sequence[str],
                     reuse: bool) -> dict[str, Any]:
    """A schedule document of some temporaries, each with the name of its number."""
    plan = memory.plan(spans, reuse)
    placements = [{"buffer": span.storage, "arena": 0, "offset": plan.offsets[span.storage],
                   "bytes": span.nbytes, "first": span.first, "last": span.last} for span in spans]
    return {
        "buffers": [{"id": i, "name": name} for i, name in enumerate(names)],
        "order": list(range(1 + max(span.last for span in spans))),
        "memory": {"arenas": [{"id": 0, "bytes": plan.planned}], "placements": placements,
                   "planned": plan.planned, "unplanned": plan.unplanned,
                   "lower_bound": plan.lower_bound},
    }


def lesson_figure(reuse: bool, words: str) -> str:
    document = lesson_document(reuse)
    return figure(memory_map(document, words), f"{words} {caption(document)}")


# The lesson on fusion: what the kernels of some programs read and write.

ROW, FIRST = 26, 210  # the height of a value's line, and where the kernels begin
TOUCHES = ("reads", "writes", "in place")  # in the order of their colours


def touch_of(kernel: dict[str, Any], buffer: int) -> str:
    """What a kernel does with a buffer, or ""."""
    reads, writes = (any(each["buffer"] == buffer for each in kernel[what])
                     for what in ("reads", "writes"))
    return "in place" if reads and writes else "reads" if reads else "writes" if writes else ""


def traffic_map(document: dict[str, Any], label: str, below: str = "",
                more: float = 0) -> str:
    """The kernels of a schedule document to the right, a line for each value in memory.

    A line reaches from the first kernel that touches the value to the last; a box is a kernel
    that reads it, or writes it. What is `below` takes `more` pixels.
    """
    kernels = [document["kernels"][number] for number in document["order"]]
    width = (WIDTH - FIRST - 8) / len(kernels)
    parts = [text(FIRST - 10, TOP - 8, "kernel", "axis", "end")]
    parts += [text(FIRST + (at + 0.5) * width, TOP - 8, str(at), "axis")
              for at in range(len(kernels))]
    for line, buffer in enumerate(document["buffers"]):
        y = TOP + line * ROW
        name = f"{buffer['name']}, {buffer['kind']}, {bytes_text(buffer['bytes'])}"
        parts.append(text(FIRST - 10, y + 15, name, "axis", "end"))
        touches = {at: what for at, kernel in enumerate(kernels)
                   if (what := touch_of(kernel, buffer["id"]))}
        start, stop = (FIRST + (at + 0.5) * width for at in (min(touches), max(touches)))
        parts.append(f"<path class='edge' d='M{start:.1f} {y + ROW / 2 - 2}H{stop:.1f}'/>")
        for at, what in touches.items():
            drawn = min(width - 6, 90)
            x = FIRST + (at + 0.5) * width - drawn / 2
            parts.append(box(x, y + 1, drawn, ROW - 6, f"tone tone-{TOUCHES.index(what)}",
                             f"{buffer['name']}, kernel {at}: {what}"))
            parts.append(text(x + drawn / 2, y + 15, what,
                              "name dense" if what == "in place" else "name"))
    height = TOP + len(document["buffers"]) * ROW + more
    return (f"<svg viewBox='0 0 {WIDTH} {height:.0f}' role='img' "
            f"aria-label='{escape(label, quote=True)}'>{''.join(parts)}{below}</svg>")


def traffic_figure(program: Callable[[Tensor], Tensor], fuse: int, words: str) -> str:
    with Context(DEVICE="REFERENCE", FUSE=fuse):
        document = program(Tensor.zeros(64, 512).contiguous().realize()).schedule_document()
    moved = sum(kernel["bytes"] for kernel in document["kernels"])
    least = sum(each["bytes"] for each in document["buffers"] if each["kind"] != "temporary")
    said = (f"{words} {len(document['kernels'])} kernels move {bytes_text(moved)}; inputs and "
            f"outputs alone are {bytes_text(least)}.").replace(" 1 kernels move", " 1 kernel moves")
    reasons = " ".join(f"Between {each['before']} and {each['after']}: {each['reason']}."
                       for each in document["boundaries"] if fuse)
    return figure(traffic_map(document, words), escape(f"{said} {reasons}".strip()))


# The lesson on ordering: who waits for whom, and what a good order is worth.

def hazard_arcs(document: dict[str, Any]) -> tuple[str, float]:
    """Below a traffic map, an arc from each kernel to those that wait for it; and their height."""
    place = {number: at for at, number in enumerate(document["order"])}
    width, top = (WIDTH - FIRST - 8) / len(place), TOP + len(document["buffers"]) * ROW + 8
    between: dict[tuple[int, int], list[str]] = {}
    for each in document["dependencies"]:
        between.setdefault((place[each["before"]], place[each["after"]]), []).append(each["kind"])
    parts, deepest = [], 0.0
    for (before, after), kinds in sorted(between.items()):
        start, stop = (FIRST + (at + 0.5) * width for at in (before, after))
        depth = 26.0 * (after - before)
        deepest = max(deepest, depth)
        parts.append(f"<path class='edge' d='M{start:.1f} {top}C{start:.1f} {top + depth:.1f} "
                     f"{stop:.1f} {top + depth:.1f} {stop:.1f} {top}'/>")
        parts.append(text((start + stop) / 2, top + 0.75 * depth + 13,
                          ", ".join(dict.fromkeys(kinds)), "axis"))
    return "".join(parts), deepest + 16


def hazard_figure() -> str:
    with Context(DEVICE="REFERENCE", FUSE=0):
        state = Tensor([1, 2, 3, 4]).realize()
        early = state.sum()
        state[0:2] = 10
        document = state.schedule_document(early, state.sum())
    arcs, height = hazard_arcs(document)
    label = "Who waits for whom."
    return figure(traffic_map(document, label, arcs, height), escape(
        f"{label} {len(document['kernels'])} kernels, {len(document['dependencies'])} "
        "dependencies; the arcs have their names."))


def order_figure(chosen: bool, words: str) -> str:
    """Eight branches, each with a temporary that one kernel makes and another one uses up."""
    nbytes = {branch: 64 * (1 + branch % 3) for branch in range(8)}
    touched = [[branch] for branch in nbytes] * 2
    needs = [Dependency(branch, branch + 8, "RAW", branch, 1) for branch in nbytes]
    order = ordering.linearize(16, needs, ordering.Uses(nbytes, touched)) if chosen \
        else list(range(16))
    document = planned_document(memory.lifetimes(order, touched, nbytes), "abcdefgh", True)
    return figure(memory_map(document, words), f"{words} {caption(document)}")


def run_figure(name: str) -> str:
    """A drawing of the committed run of the benchmark."""
    result = json.loads(RUN.read_text(encoding="utf-8"))
    svg, words = next((svg, words) for key, svg, words in drawing.drawings(result) if key == name)
    return figure(svg, escape(words), "drawing chart")


FIGURES: dict[str, Callable[[], str]] = {
    "memory-unshared": lambda: lesson_figure(False, "Nothing shared."),
    "memory-planned": lambda: lesson_figure(True, "Planned."),
    "fusion-apart": lambda: traffic_figure(lambda x: x.softmax(1), 0, "Nothing fused."),
    "fusion-together": lambda: traffic_figure(lambda x: x.softmax(1), 1, "Fused."),
    "fusion-share": lambda: traffic_figure(lambda x: x / x.sum(), 1, "A part of the sum."),
    "ordering-hazards": hazard_figure,
    "ordering-plain": lambda: order_figure(False, "As it was written."),
    "ordering-chosen": lambda: order_figure(True, "As it is chosen."),
    **{name: partial(run_figure, name)
       for kind in ("roofline", "ratios") for group in ("generated", "shapes")
       for name in (f"{kind}-{group}-1", f"{kind}-{group}-2")},
}
