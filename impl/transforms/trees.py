"""Arguments and results as trees of tensors. Chapter: spec/transforms.md."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from impl.errors import ArgumentError, ShapeError
from impl.replay.arguments import is_record
from impl.replay.results import mapped
from impl.tensor import Tensor

#: What a transform takes for a tensor.
_NUMBERS = (bool, int, float, np.generic, np.ndarray)


class Tree:
    """The tensors of nested tuples, lists, dictionaries and dataclasses, and the rest around them.

    A part that is no tensor stays as it is; with `numbers` a number or an array becomes a tensor.
    """

    def __init__(self, value: Any, numbers: bool = False) -> None:
        self.value, self.numbers = value, numbers
        self.leaves: list[Tensor] = []

        def note(part: Any) -> Any:
            if numbers and isinstance(part, _NUMBERS) and not isinstance(part, bool):
                part = Tensor(part)
            if isinstance(part, Tensor):
                self.leaves.append(part)
                return _Place(len(self.leaves) - 1)
            return part
        self.form = mapped(value, note)

    def filled(self, leaves: Sequence[Any]) -> Any:
        """The same containers around other leaves."""
        return mapped(self.form, lambda part: leaves[part.number]
                      if isinstance(part, _Place) else part)

    def matching(self, value: Any, operation: str, what: str) -> list[Tensor]:
        """The tensors of another tree, which has to have the form of this one.

        Raises:
            ArgumentError: it has other containers.
            ShapeError: a tensor has another shape.
        """
        other = Tree(value, numbers=True)
        if len(other.leaves) != len(self.leaves) or not _same_form(self.form, other.form):
            raise ArgumentError(operation, f"{what} have another form than what they belong to: "
                                f"{other.form!r:.120} for {self.form!r:.120}",
                                "give a tensor for each tensor, in the same containers")
        found = []
        for mine, theirs in zip(self.leaves, other.leaves, strict=True):
            if mine.shape != theirs.shape:
                raise ShapeError(operation, f"{what}: shape {theirs.shape} for a tensor of shape "
                                 f"{mine.shape}", "give it in the tensor's shape")
            found.append(theirs.cast(mine.dtype))
        return found


class _Place:
    """Where a tensor stood."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return "*"


def _same_form(first: Any, second: Any) -> bool:
    if isinstance(first, _Place) or isinstance(second, _Place):
        return isinstance(first, _Place) and isinstance(second, _Place)
    if isinstance(first, dict):
        return isinstance(second, dict) and list(first) == list(second) and all(
            _same_form(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return isinstance(second, (list, tuple)) and len(first) == len(second) and all(
            map(_same_form, first, second))
    if is_record(first):
        return type(first) is type(second) and all(
            _same_form(getattr(first, each.name), getattr(second, each.name))
            for each in fields(first))
    return True


def spread_prefix(prefix: Any, value: Any, operation: str) -> Iterator[Any]:
    """What a prefix says of each tensor of a tree: one word for a container is said of all in it.

    Raises:
        ArgumentError: the prefix has containers that the tree has not.
    """
    if isinstance(value, Tensor) or isinstance(value, _NUMBERS):
        if isinstance(prefix, (list, tuple, dict)):
            raise ArgumentError(operation, f"{prefix!r} is said of one tensor",
                                "give an axis or None for a tensor")
        if isinstance(value, Tensor):
            yield prefix
        return
    parts: list[tuple[Any, Any]]
    deep = isinstance(prefix, (list, tuple, dict))
    if isinstance(value, dict):
        parts = [(key, part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = list(enumerate(value))
    elif is_record(value):
        parts = [(each.name, getattr(value, each.name)) for each in fields(value)]
    else:
        return
    if deep and len(prefix) != len(parts):
        raise ArgumentError(operation, f"{prefix!r} says something of {len(prefix)} parts, and "
                            f"there are {len(parts)}", "give one word for all, or one for each")
    for number, (key, part) in enumerate(parts):
        inner = prefix if not deep else prefix[key] if isinstance(prefix, dict) \
            else list(prefix)[number]
        yield from spread_prefix(inner, part, operation)


def of_function(function: Callable[..., Any]) -> str:
    """What an error calls a function."""
    return getattr(function, "__name__", type(function).__name__)
