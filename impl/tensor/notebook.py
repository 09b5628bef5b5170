"""A tensor in a notebook: its form, some of its elements, and how they are spread.

Chapter: spec/tensor.md.
"""
from __future__ import annotations

import html

from impl.host import np

#: Rows and columns that are shown at each end, bars of the histogram, and its size in pixels.
_EDGE, _BARS, _WIDE, _HIGH = 3, 24, 240, 48


def as_html(form: str, elements: np.ndarray | None) -> str:
    """The form in words; with elements a small table of the last two axes and a histogram.

    Args:
        elements: of any shape; None if they are not known.
    """
    title = f"<div><code>{html.escape(form)}</code></div>"
    if elements is None or not elements.size:
        return title
    return f"<div>{title}{_table(elements)}{_histogram(elements)}</div>"


def _table(elements: np.ndarray) -> str:
    """The first matrix, or the row, without what lies between its edges."""
    first = np.atleast_2d(elements[(0,) * max(elements.ndim - 2, 0)])
    rows = []
    for row in _ends(first.shape[0]):
        cells = ["&hellip;" if None in (row, column) else f"{first[row, column].item():.4g}"
                 for column in _ends(first.shape[1])]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def _ends(size: int) -> list[int | None]:
    """The numbers of rows that are shown, and None for all that are not."""
    if size <= 2 * _EDGE + 1:
        return [*range(size)]
    return [*range(_EDGE), None, *range(size - _EDGE, size)]


def _histogram(elements: np.ndarray) -> str:
    """How many finite elements lie in each part of their range; the others are counted."""
    values = elements.astype(np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "<div>no finite element</div>"
    least, most, mean = finite.min(), finite.max(), finite.mean()
    others = f", {values.size - finite.size} not finite" if finite.size < values.size else ""
    words = f"{least:.4g} to {most:.4g}, mean {mean:.4g}{others}"
    scale = max(abs(least), abs(most)) or 1.0  # the range itself may overflow
    counts, _ = np.histogram(finite / scale, _BARS)
    wide = _WIDE / _BARS
    bars = "".join(
        f'<rect x="{place * wide:g}" y="{_HIGH - tall:.4g}" width="{wide - 1:g}" '
        f'height="{tall:.4g}"/>'
        for place, tall in enumerate(counts * (_HIGH / counts.max())))
    return (f'<svg role="img" aria-label="histogram: {words}" width="{_WIDE}" height="{_HIGH}" '
            f'fill="currentColor">{bars}</svg><div>{words}</div>')
