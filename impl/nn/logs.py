"""What a training tells of itself: how far it is, and its numbers as curves on a page.

A loop with both:

    run = RunLog("run.jsonl")
    for step, batch in enumerate(progress(loader, "epoch 1")):
        run.log(step, loss=train(batch))
    run.page("run.html")
"""
from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, TypeVar

from impl.errors import ArgumentError, DTypeError
from impl.inspect.page import STYLE
from impl.nn.files import open_file
from impl.tensor import Tensor

__all__ = ["RunLog", "progress"]

T = TypeVar("T")
#: A curve has no more points than can be told apart.
_POINTS = 600
_WIDTH, _HEIGHT = 480, 180


def progress(iterable: Iterable[T], description: str = "", **options: Any) -> Iterable[T]:
    """The same items, with a bar of `tqdm` that says how far it is; without tqdm just the items.

    `options` are those of `tqdm.auto.tqdm`. `tqdm(loader)` itself works, too.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return iterable
    shown: Iterable[T] = tqdm(iterable, desc=description or None, **options)
    return shown


class RunLog:
    """A run that is noted: a line of JSON for each call of `log`, in a file or in memory only.

    A file that is there is read, so that a training that goes on goes on with its curves. A line
    that was cut short, by a process that was killed, is passed over.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self.rows: list[dict[str, Any]] = []
        if self.path is not None and self.path.exists():
            with open_file("RunLog", self.path) as file:
                self.rows = [row for row in map(_row, file) if row is not None]
        self._began = time.monotonic() - max((row["seconds"] for row in self.rows), default=0.0)

    def log(self, step: int, **numbers: Any) -> None:
        """Note numbers, or tensors with one element, of a step.

        Raises:
            ArgumentError: it is no number, or a name is that of the step or of the time.
        """
        row: dict[str, Any] = {"step": int(step), "seconds": time.monotonic() - self._began}
        for name, value in numbers.items():
            if name in row:  # r[impl errors.argument.refused]
                raise ArgumentError("RunLog.log", f"{name} is noted already", "give another name")
            row[name] = _number(name, value)
        self.rows.append(row)
        if self.path is not None:
            with open_file("RunLog.log", self.path, "ab") as file:
                file.write(json.dumps(row).encode() + b"\n")

    @property
    def names(self) -> list[str]:
        """What was noted, in the order in which it came."""
        return list(dict.fromkeys(name for row in self.rows for name in row
                                  if name not in ("step", "seconds")))

    def curve(self, name: str) -> list[tuple[int, float]]:
        """The steps at which a number was noted, and what it was."""
        return [(row["step"], float(row[name])) for row in self.rows if name in row]

    def page(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write all curves as a page of HTML that needs nothing else.

        A name with a slash, `loss/train`, is drawn together with the others before whose slash the
        same stands.
        """
        groups: dict[str, list[str]] = {}
        for name in self.names:
            groups.setdefault(name.partition("/")[0], []).append(name)
        title = title or (self.path.stem if self.path else "run")
        last = self.rows[-1] if self.rows else {"step": 0, "seconds": 0.0}
        cards = "".join(_card(group, {name: self.curve(name) for name in names})
                        for group, names in groups.items())
        text = (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}'
                f'</title><meta name="viewport" content="width=device-width, initial-scale=1">'
                f"<style>{STYLE}{_STYLE}</style><main><h1>{escape(title)}</h1>"
                f'<p class="soft">{len(self.rows)} lines, up to step {last["step"]}, '
                f'{last["seconds"]:.1f} s</p>{cards}</main></html>')
        with open_file("RunLog.page", path, "wb") as file:
            file.write(text.encode())


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(row, dict) and all(
        isinstance(value, (int, float)) for value in row.values()) and {"step", "seconds"} <= {*row}
    return row if whole else None


def _number(name: str, value: Any) -> float:
    if isinstance(value, Tensor) or hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise DTypeError("RunLog.log", f"{name} is a {type(value).__name__}",
                         "give a number, or a tensor with one element")
    return value


# ---------------------------------------------------------------- drawing

_COLOURS = ("var(--RAW)", "var(--WAR)", "var(--figure)", "var(--WAW)", "var(--word)")
_STYLE = """.curves { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0 0 8px; }
path.curve { fill: none; stroke-width: 1.6; vector-effect: non-scaling-stroke; }
line.grid { stroke: var(--line); }"""


def _card(title: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Curves with one pair of axes, and the last value of each."""
    points = [one for curve in curves.values() for one in curve if math.isfinite(one[1])]
    left, right = _bounds([step for step, _ in points])
    low, high = _bounds([value for _, value in points])
    colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(curves))]
    drawn = "".join(
        f'<path class="curve" stroke="{colour}" d="{_path(curve, (left, right), (low, high))}"/>'
        for colour, curve in zip(colours, curves.values(), strict=True))
    words = "".join(
        f'<span><b style="color:{colour}">{escape(name)}</b> {curve[-1][1]:.6g}</span>'
        for colour, (name, curve) in zip(colours, curves.items(), strict=True))
    grid = "".join(f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
                   for y in (0, _HEIGHT / 2, _HEIGHT))
    axes = "".join(f'<text class="axis" x="{x}" y="{y}" text-anchor="{end}">{value:.6g}</text>'
                   for x, y, end, value in (
                       (_WIDTH + 6, 10, "start", high), (_WIDTH + 6, _HEIGHT, "start", low),
                       (0, _HEIGHT + 16, "start", left), (_WIDTH, _HEIGHT + 16, "end", right)))
    return (f'<section><h2>{escape(title)}</h2><div class="curves">{words}</div>'
            f'<svg class="graph fit" viewBox="-4 -4 {_WIDTH + 84} {_HEIGHT + 24}" role="img" '
            f'aria-label="{escape(title)} by step">{grid}{drawn}{axes}</svg></section>')


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest value, which are not the same."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _path(curve: Sequence[tuple[int, float]], across: tuple[float, float],
          up: tuple[float, float]) -> str:
    """A line through a curve's points; it has gaps where a number is none.

    Of many points so many are drawn that each may be seen: of each part the least and the greatest.
    """
    found, pen = [], "M"
    for step, value in _thinned(curve):
        if not math.isfinite(value):
            pen = "M"
            continue
        x = (step - across[0]) / (across[1] - across[0]) * _WIDTH
        y = (up[1] - value) / (up[1] - up[0]) * _HEIGHT
        found.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return "".join(found)


def _thinned(curve: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    size = -(-len(curve) // (_POINTS // 2)) if len(curve) > _POINTS else 1
    for start in range(0, len(curve), size):
        part = curve[start:start + size]
        if size == 1:
            yield from part
            continue
        places = sorted(range(len(part)), key=lambda place: part[place][1])
        yield from (part[place] for place in sorted({places[0], places[-1]}))
