"""A schedule as the script of a report reads it: columns, and each word once."""
from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from impl.collectives import Span
from impl.inspect.drawing import needed
from impl.inspect.repeats import repeats
from impl.inspect.text import (
    Document,
    Machine,
    Row,
    Timings,
    buffer_names,
    ordered_kernels,
)
from impl.inspect.timeline import predicted_spans


class _Words:
    """Texts by number; each stands in the file once, however many kernels have it."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def __call__(self, word: str) -> int:
        return self.known.setdefault(word, len(self.known))


def compact(document: Document, timings: Timings | None = None, machine: Machine | None = None,
            spans: Sequence[Span] = ()) -> dict[str, Any]:
    """The columns of a schedule. Kernels are known by their position in the order, buffers by
    theirs in the list of buffers, words by theirs among `words`.
    """
    word, kernels = _Words(), ordered_kernels(document)
    at = {kernel["id"]: position for position, kernel in enumerate(kernels)}
    names = buffer_names(document)
    number = {row["id"]: place for place, row in enumerate(document["buffers"])}
    fused = {row["kernel"]: row["reason"].removeprefix("fused: ")
             for row in document.get("fusions", ())}

    def touched(rows: Iterable[Row]) -> list[int]:
        return list(dict.fromkeys(number[row["buffer"]] for row in rows))

    # r[impl inspect.report.large]
    told: dict[str, list[Any]] = {
        "id": [kernel["id"] for kernel in kernels],
        "name": [word(kernel.get("name") or kernel["kind"]) for kernel in kernels],
        "label": [word(kernel.get("label", "")) for kernel in kernels],
        "device": [word(str(kernel["device"])) for kernel in kernels],
        "bytes": [kernel.get("bytes", 0) for kernel in kernels],
        "operations": [kernel.get("operations", 0) for kernel in kernels],
        "reads": [touched(kernel["reads"]) for kernel in kernels],
        "writes": [touched(kernel["writes"]) for kernel in kernels],
        "source": [word(kernel.get("source") or "") for kernel in kernels],
        "machine": [word(kernel.get("machine") or "") for kernel in kernels],
        "fused": [word(fused.get(kernel["id"], "")) for kernel in kernels],
        "steps": [_steps(kernel, word) for kernel in kernels],
        "seconds": [(timings or {}).get(kernel["id"], 0) for kernel in kernels]}
    memory = document.get("memory") or {"arenas": [], "placements": [], "lower_bound": 0}
    return {
        "kernels": told,
        "buffers": [[word(names[row["id"]]), row["bytes"], word(row["kind"])]
                    for row in document["buffers"]],
        "waits": [[at[row["before"]], at[row["after"]], word(row["kind"]),
                   number[row["buffer"]] if row.get("buffer") is not None else -1]
                  for row in document["dependencies"]],
        "boundaries": [[at[row["before"]], at[row["after"]],
                        number[row["buffer"]] if row.get("buffer") is not None else -1,
                        word(row["reason"] or "no reason was given")]
                       for row in document.get("boundaries", ())],
        "repeats": [[one.start, one.length, one.times] for one in repeats(document)],
        "arenas": [[word(str(row["device"])), row["bytes"]] for row in memory["arenas"]],
        "blocks": sorted([row["first"], row["last"], row["arena"], row["offset"], row["bytes"],
                          number[row["buffer"]]] for row in memory["placements"]),
        "alive": needed(memory["placements"], len(kernels)),
        "scales": [_in_order(kernels), _in_time("predicted time", predicted_spans(
            document, timings, machine), at), *([_in_time("measured time", spans, at)]
                                                if spans else [])],
        "words": [*word.known]}


def _steps(kernel: Row, word: _Words) -> list[list[int]]:
    because = kernel.get("because", ())
    return [[word(step), word(because[place] if place < len(because) else "")]
            for place, step in enumerate(kernel.get("optimizations", ()))]


def _in_order(kernels: Sequence[Row]) -> dict[str, Any]:
    """A row for each device, in which a kernel is as wide as another one."""
    rows: dict[str, list[int]] = {}
    for position, kernel in enumerate(kernels):
        lane = " copies" if kernel["kind"] == "copy" else ""
        rows.setdefault(f"{kernel['device']}{lane}", []).append(position)
    return {"name": "position in the order", "seconds": False, "length": len(kernels),
            "rows": [{"name": name, "kernels": found, "starts": found,
                      "stops": [position + 1 for position in found]}
                     for name, found in rows.items()]}


def _in_time(name: str, spans: Sequence[Span], at: dict[int, int]) -> dict[str, Any]:
    """A row for each lane of each device; microseconds from the first of them on."""
    first = min((span.start for span in spans), default=0.0)
    rows: dict[tuple[str, str], list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.start):
        if span.kernel in at:
            rows.setdefault((span.device, span.lane), []).append(span)
    return {"name": name, "seconds": True,
            "length": round(1e6 * (max((s.stop for s in spans), default=first) - first), 3),
            "rows": [{"name": f"{device} {lane}", "kernels": [at[span.kernel] for span in found],
                      "starts": [round(1e6 * (span.start - first), 3) for span in found],
                      "stops": [round(1e6 * (span.stop - first), 3) for span in found]}
                     for (device, lane), found in sorted(rows.items())]}


def as_script(data: dict[str, Any]) -> str:
    """Data within a page: no text in it ends the element around it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
