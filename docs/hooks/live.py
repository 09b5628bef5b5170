"""Figures that one can touch: a script of docs/assets/figures, and the data that it reads.

The data are made by the running implementation while the site is built. What stands here is shown
where a browser runs no scripts.
"""
from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import combinations, product
from typing import Any, NamedTuple

import digits
import playground

from impl import Context, Tensor
from impl.choosing import hand_steps
from impl.collectives import ALGORITHMS
from impl.dialects import C
from impl.kernel import DeviceLimits
from impl.render import render
from impl.rewrite.written import written_tree
from impl.steps import apply_steps


def live(name: str, data: Any, caption: str, instead: str = "") -> str:
    """The place of a figure. `asset:` is where the site's assets lie; `instead` is HTML."""
    told = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    body = instead or "<p>This figure needs JavaScript.</p>"
    return (f'<figure class="drawing live" data-figure="{name}">'
            f'<script type="application/json">{told}</script>'
            f'<div class="live-body">{body}</div><figcaption>{caption}</figcaption></figure>'
            f'<script type="module" src="asset:figures/{name}.js"></script>')


def digits_figure() -> str:
    known = digits.samples()
    return live("digits", known, "The network of the demo, exported when this site was built. Of "
                f"{known['held_out']} held-out pictures it recognises "
                f"{100 * known['accuracy']:.1f} %. In the pictures of numbers, blue is positive "
                "and orange is negative; the strip above them is the arena.")


def playground_figure(host: str = playground.HOST) -> str:
    """`host` is where Python for pages lies."""
    return live("playground", playground.data(host), "The scheduler of this project, in this page. "
                "The plan is that for the reference device; the steps of each kernel are those for "
                "a processor (C), for any GPU (WGSL), for one of NVIDIA (CUDA). Nothing that you "
                "write is sent anywhere.")


# Where kernels begin -----------------------------------------------------------------------


class Operation(NamedTuple):
    """A line of a program: what it makes, of what, and how."""

    makes: str
    reads: tuple[str, ...]
    words: str
    run: Callable[..., Tensor]


#: A softmax of each row, and then each column as a share of its greatest element.
LINES = (
    Operation("m", ("x",), "max of each row", lambda x: x.max(1, keepdim=True)),
    Operation("e", ("x", "m"), "exp(x - m)", lambda x, m: (x - m).exp()),
    Operation("s", ("e",), "sum of each row", lambda e: e.sum(1, keepdim=True)),
    Operation("p", ("e", "s"), "e / s", lambda e, s: e / s),
    Operation("c", ("p",), "max of each column", lambda p: p.max(0, keepdim=True)),
    Operation("z", ("p", "c"), "p / c", lambda p, c: p / c),
)


def segment_document(values: Mapping[str, Tensor], first: int, last: int) -> dict[str, Any]:
    """The schedule of some lines one after the other, of which the others come from memory, and
    which leave in memory what others read.
    """
    found = dict(values)
    for line in LINES[first:last + 1]:
        found[line.makes] = line.run(*(found[name] for name in line.reads))
    later = {name for line in LINES[last + 1:] for name in line.reads} | {LINES[-1].makes}
    kept = [line.makes for line in LINES[first:last + 1] if line.makes in later]
    document = Tensor.schedule_document(*(found[name] for name in kept))
    inputs = sorted({name for line in LINES[first:last + 1] for name in line.reads}
                    - {line.makes for line in LINES[first:last + 1]})
    return {"kernels": [{"name": kernel["name"], "bytes": kernel["bytes"]}
                        for kernel in document["kernels"]],
            "reads": inputs, "writes": kept,
            "together": [row["reason"] for row in document["fusions"]],
            "apart": list(dict.fromkeys(row["reason"] for row in document["boundaries"]))}


def fusion_figure() -> str:
    with Context(DEVICE="REFERENCE"):
        values = {"x": Tensor.zeros(64, 512).contiguous().realize()}
        for line in LINES:
            made = line.run(*(values[name] for name in line.reads))
            values[line.makes] = made.contiguous().realize()
        documents = {f"{first} {last}": segment_document(values, first, last)
                     for first, last in (*((at, at) for at in range(len(LINES))),
                                         *combinations(range(len(LINES)), 2))}
    sizes = {name: value.nbytes() for name, value in values.items()}
    data = {"lines": [{"makes": line.makes, "words": line.words} for line in LINES],
            "sizes": sizes, "least": sizes["x"] + sizes["z"], "segments": documents}
    return live("fusion", data, "Six lines on a matrix of 64 x 512. Each piece between two "
                "boundaries was given to the scheduler when this site was built; kernels, bytes "
                "and reasons are those of its schedules.")


# Orders, and memory -------------------------------------------------------------------------


def order_figure() -> str:
    """Three branches with a large temporary each, and a total that is read and then replaced."""
    with Context(DEVICE="REFERENCE", FUSE=0):
        x = Tensor.zeros(32, 64).contiguous().realize()
        total = Tensor.zeros(32).contiguous().realize()
        branches, before = (x * 2, x + 3, x.exp()), total.sum()
        sums = [branch.sum(1) for branch in branches]
        total.assign(total + sums[0] + sums[1] + sums[2])
        document = Tensor.schedule_document(total, before)
    data = {key: document[key] for key in ("order", "dependencies", "memory")}
    data["buffers"] = [{key: row[key] for key in ("id", "name", "kind", "bytes")}
                       for row in document["buffers"]]
    data["kernels"] = [{"id": kernel["id"], "label": kernel["label"].split(" (")[0],
                        **{what: [each["buffer"] for each in kernel[what]]
                           for what in ("reads", "writes")}} for kernel in document["kernels"]]
    return live("order", data, "A schedule of this implementation, without fusion. A column is a "
                "temporary: W where it is written, R where it is read. The bars are the bytes that "
                "are alive while a kernel runs.")


def memory_document() -> dict[str, Any]:
    """The schedule of values of different sizes, some of which are needed for long."""
    with Context(DEVICE="REFERENCE", FUSE=0):
        x = Tensor.zeros(8, 64).contiguous().realize()
        a = x[:3].sin()
        b = x[:5] + a[:1]
        c = a[:2] * b[:1]
        d = b[:4] + c[:1]
        e = x[:6] + d[:1]
        f = e[:3] + c[:1]
        g = e[:5] * f[:1]
        h = g[:2] + d[:2]
        result = h + f[:2]
        return Tensor.schedule_document(result)


def memory_figure() -> str:
    document = memory_document()
    names = {row["id"]: row["name"] for row in document["buffers"]}
    memory = document["memory"]
    data = {"positions": len(document["order"]), "alignment": memory["alignment"],
            "planned": memory["planned"], "least": memory["lower_bound"],
            "blocks": [{"name": names[row["buffer"]],
                        **{key: row[key] for key in ("bytes", "offset", "first", "last")}}
                       for row in memory["placements"]]}
    return live("memory", data, "The temporaries of a schedule of this implementation: as wide as "
                "the life, as high as the size, upwards from address 0.")


# Several devices --------------------------------------------------------------------------------


def ring_figure() -> str:
    """The rounds of all algorithms for a sum on four devices, a part for each of them."""
    count = 4
    found = {name: [[asdict(move) for move in moves] for moves in make(count, count)]
             for name, make in ALGORITHMS["all-reduce"].items()}
    return live("ring", {"count": count, "algorithms": found}, "An all-reduce of four parts on "
                "four devices: a0 is part 0 of what device 0 was given. The rounds are those that "
                "this implementation runs. A whole line adds what it brings, a dashed one "
                "replaces; in green is what is done.")


# Tiles and a cache ------------------------------------------------------------------------------

#: Elements in a row of each matrix, in a line of the cache, and lines in the cache.
WIDTH, LINE_WIDTH, CACHED = 16, 4, 40


def lines_fetched(rows: int, columns: int) -> int:
    """The lines that all tiles of a product fetch, one tile after the other. What was used longest
    ago goes first; C is read and written at each step along the rows of B.
    """
    cache: OrderedDict[tuple[str, int, int], None] = OrderedDict()
    count = 0
    for top, left, k, row in product(range(0, WIDTH, rows), range(0, WIDTH, columns),
                                     range(WIDTH), range(rows)):
        touched = [("A", top + row, k // LINE_WIDTH)]
        for column in range(left, left + columns, min(LINE_WIDTH, columns)):
            touched += [("B", k, column // LINE_WIDTH), ("C", top + row, column // LINE_WIDTH)]
        for line in touched:
            count += line not in cache
            cache[line] = None
            cache.move_to_end(line)
            if len(cache) > CACHED:
                cache.popitem(last=False)
    return count


def cache_figure() -> str:
    sizes = [1, 2, 4, 8, 16]
    data = {"n": WIDTH, "line": LINE_WIDTH, "lines": CACHED,
            "least": 3 * WIDTH * WIDTH // LINE_WIDTH,
            "fetched": {f"{rows} {columns}": lines_fetched(rows, columns)
                        for rows, columns in product(sizes, sizes)}}
    return live("cache", data, f"Matrices of {WIDTH} x {WIDTH}, and a cache of {CACHED} lines of "
                f"{LINE_WIDTH} elements. In blue is what the cache holds, in orange what the last "
                "tile had to fetch. Drag the tile, or move it with arrow keys.")


# From a line to a kernel ------------------------------------------------------------------------

LINE = "((a @ b) / 8).maximum(0)"


def numbered(text: str) -> str:
    """A text whose loops have small numbers, in the order in which they appear."""
    known: dict[str, str] = {}
    return re.sub(r"\br\d+\b", lambda name: known.setdefault(name[0], f"r{len(known)}"), text)


def rewrite_figure() -> str:
    """The way of a line: rewritten by rules, planned, changed by steps, printed."""
    with Context(DEVICE="REFERENCE", TRACK_MATCH_STATS=2):
        a, b = (Tensor.zeros(*shape).contiguous().realize() for shape in ((8, 16), (16, 8)))
        result = eval(LINE, {"a": a, "b": b})
        rewrites = Tensor.runtime.document([result], programs=True)["rewrites"]
        kernel = result.schedule()[0].ast
    stages = []
    for place, row in enumerate(rewrites):
        stages += [{"part": f"rule {place}", "name": "a part, as it was written", "why": "",
                    "text": numbered(row["before"])},
                   {"part": f"rule {place}", "name": row["rule"], "why": "a rule of the rewriter",
                    "text": numbered(row["after"])}]
    chosen = hand_steps(kernel, DeviceLimits(vector_bytes=32, vector_registers=16))
    stages.append({"part": "kernel", "name": "a kernel, as planned", "why": "",
                   "text": numbered(written_tree(kernel))})
    for count, (step, reason) in enumerate(chosen, 1):
        made = apply_steps(kernel, [each for each, _ in chosen[:count]])
        stages.append({"part": "kernel", "name": step.name, "why": reason,
                       "text": numbered(written_tree(made))})
    for name, steps in (("C, without any step", []), ("C, with all steps", chosen)):
        text = render(apply_steps(kernel, [each for each, _ in steps]), C())
        stages.append({"part": name, "name": name, "why": "", "text": text.body})
    return live("rewrite", {"line": LINE, "stages": stages}, "What became of one line. What a step "
                "changed is marked.")


FIGURES: dict[str, Callable[[], str]] = {
    "digits": digits_figure,
    "playground": playground_figure,
    "fusion": fusion_figure,
    "order": order_figure,
    "memory": memory_figure,
    "ring": ring_figure,
    "cache": cache_figure,
    "rewrite": rewrite_figure,
}
