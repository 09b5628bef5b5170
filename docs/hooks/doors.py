"""The pictures of the four doors, for the home page and README: `python docs/hooks/doors.py`.

Each is made of what the implementation answers. Their colours suit light and dark pages.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

import digits
import numpy as np
from figures import bytes_text, lesson_document
from live import memory_document

from conformance.oracle.checker import check
from conformance.trace import ROOT
from impl import Context, Tensor, nn
from impl.__main__ import Classifier

FOLDER = ROOT / "docs" / "assets" / "doors"
WIDTH, HEIGHT = 320, 180
BLUE, ORANGE, GREEN, PURPLE, RED, GREY = (
    "#2a78b8", "#c2681f", "#3d8f55", "#8a5bb0", "#b24a5e", "#7a828c")


def text(x: float, y: float, words: str, size: int = 12, colour: str = GREY,
         anchor: str = "start") -> str:
    return (f"<text x='{x:.0f}' y='{y:.0f}' font-size='{size}' fill='{colour}' "
            f"text-anchor='{anchor}'>{escape(words)}</text>")


def box(x: float, y: float, width: float, height: float, colour: str, share: float = 1) -> str:
    return (f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' rx='2' "
            f"fill='{colour}' fill-opacity='{share:.2f}'/>")


def drawing(label: str, *parts: str) -> str:
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
            f"width='{WIDTH}' height='{HEIGHT}' role='img' font-family='system-ui, sans-serif'>"
            f"<title>{escape(label)}</title>{''.join(parts)}</svg>\n")


def blocks(document: dict[str, Any], colours: dict[int, str], high: float) -> list[str]:
    """The temporaries of a schedule: as wide as their life, as high as their size."""
    memory, names = document["memory"], {b["id"]: b["name"] for b in document["buffers"]}
    wide, tall = 300 / len(document["order"]), high / memory["planned"]
    parts = []
    for place in memory["placements"]:
        x, width = 10 + place["first"] * wide, (place["last"] - place["first"] + 1) * wide - 2
        y, height = high + 10 - (place["offset"] + place["bytes"]) * tall, place["bytes"] * tall - 2
        parts += [box(x, y, width, height, colours[place["buffer"]], 0.9),
                  text(x + width / 2, y + height / 2 + 4, names[place["buffer"]], 12, "#fff",
                       "middle")]
    return parts


def course() -> str:
    """The memory plan that the lesson on memory ends with."""
    document = lesson_document(True)
    memory = document["memory"]
    colours = dict(enumerate((BLUE, ORANGE, GREEN, PURPLE, RED)))
    return drawing("A memory plan", *blocks(document, colours, 140), text(
        10, 172, f"5 values in {bytes_text(memory['planned'])} instead of "
        f"{bytes_text(memory['unplanned'])}"))


def specification() -> str:
    """What fusion does to a softmax: kernels, and the bytes that they move."""
    parts, widest = [text(10, 20, "softmax of 64 x 512")], 0.0
    for fuse, y in ((0, 36), (1, 108)):
        with Context(DEVICE="REFERENCE", FUSE=fuse):
            kernels = Tensor.zeros(64, 512).contiguous().realize().softmax(1) \
                .schedule_document()["kernels"]
        moved = sum(kernel["bytes"] for kernel in kernels)
        widest, x = widest or moved / 300, 10.0
        for place, kernel in enumerate(kernels):
            width = kernel["bytes"] / widest
            parts.append(box(x, y, width - 2, 30, (BLUE, GREEN)[fuse], 1 - 0.1 * (place % 4)))
            x += width
        count = f"{len(kernels)} kernel{'s' * (len(kernels) > 1)}"
        parts.append(text(10, y + 46, f"{count}, {bytes_text(moved)} moved"))
    return drawing("A softmax, apart and fused", *parts)


def api() -> str:
    """A digit that the demo's network reads."""
    sample = digits.samples()["samples"][0]
    with Context(DEVICE="REFERENCE"):
        model = Classifier()
        nn.state.load_state_dict(model, nn.state.safe_load(digits.WEIGHTS))
        pixels = np.array(sample["pixels"], np.float32) / 16
        found = model(Tensor(pixels.reshape(1, 64))).softmax(1).tolist()[0]
    parts = [box(10 + 17 * (at % 8), 20 + 17 * (at // 8), 16, 16, BLUE, float(pixel))
             for at, pixel in enumerate(pixels)]
    for digit, share in enumerate(found):
        y = 20 + 14 * digit
        parts += [text(172, y + 10, str(digit), 11),
                  box(186, y + 1, max(124 * share, 1), 11, ORANGE if share > 0.5 else BLUE)]
    return drawing("A handwritten digit and what it may be", *parts,
                   text(10, 174, "model(picture).softmax(1)"))


def suite() -> str:
    """What the checker says of a plan in which two values overlap."""
    document = memory_document()
    document["memory"]["placements"][4]["offset"] -= 512
    found = check(document)[0]
    named = [int(number) for number in re.findall(r"\d+", found.message)[:2]]
    colours = {place["buffer"]: RED if place["buffer"] in named else GREY
               for place in document["memory"]["placements"]}
    said = found.message.split(" of ")[0]
    return drawing("A plan that is refused", *blocks(document, colours, 126),
                   text(10, 154, found.rule, 12, RED), text(10, 172, said, 11))


DOORS: dict[str, Callable[[], str]] = {
    "course": course, "specification": specification, "api": api, "suite": suite}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in DOORS.items():
        (FOLDER / f"{name}.svg").write_text(make(), encoding="utf-8")
