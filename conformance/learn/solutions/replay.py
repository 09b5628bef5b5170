"""A solution of the lesson replay: python -m conformance.learn solution replay"""
from __future__ import annotations

from typing import Any

from conformance.learn.lesson_replay import Part


def describe(part: Part) -> Any:
    """A right key of a part."""
    if part.kind == "tensor":
        return part.kind, part.shape, part.dtype, part.device
    if part.kind == "variable":
        return part.kind, part.name, part.low, part.high
    return part.type, id(part.value) if part.kind == "object" else repr(part.value)


def aliases(memory: dict[str, int]) -> Any:
    """A right key of who shares memory."""
    groups: dict[int, list[str]] = {}
    for path, number in memory.items():
        groups.setdefault(number, []).append(path)
    return sorted(sorted(paths) for paths in groups.values())
