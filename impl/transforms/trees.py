"""Arguments and results as trees of tensors. Chapter: spec/transforms.md."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from impl.errors import ArgumentError, ShapeError
from impl.following.records import is_record
from impl.host import np
from impl.replay.results import mapped
from impl.tensor import Tensor


def _is_number(part: Any) -> bool:
    """Whether a transform takes it for a tensor."""
    return isinstance(part, (bool, int, float, np.generic, np.ndarray))


def refuse_no_function(operation: str, given: Any) -> None:
    """Raise ArgumentError for what cannot be called: a value in the place of its function."""
    if not callable(given):  # r[impl transforms.arguments.refused+2]
        raise ArgumentError(operation, f"{given!r:.60} is no function", f"give the function, and "
                            f"call what comes back: {operation}(f)(x)")


class Tree:
    """The tensors of nested tuples, lists, dictionaries and dataclasses, and the rest around them.

    A part that is no tensor stays as it is; with `arrays` an array becomes a tensor, with `numbers`
    a number too, with `bools` a bool too.
    """

    def __init__(self, value: Any, numbers: bool = False, bools: bool = False,
                 arrays: bool = False) -> None:
        self.value = value
        self.leaves: list[Tensor] = []

        def note(part: Any) -> Any:
            if bools if isinstance(part, bool) else numbers and _is_number(part) \
                    or arrays and isinstance(part, np.ndarray):
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

    def key(self) -> Any:
        """What the containers and the parts that are no tensors are, to be compared."""
        return _key_of(self.form)

    def matching(self, value: Any, operation: str, what: str, exact: bool = False) -> list[Tensor]:
        """The tensors of another tree, which has to have the form of this one; with `exact` the
        parts that are no tensors have to be equal.

        Raises:
            ArgumentError: it has other containers.
            ShapeError: a tensor has another shape.
        """
        other = Tree(value, numbers=True)
        if len(other.leaves) != len(self.leaves) or not _same_form(
                self.form, other.form, exact):
            raise ArgumentError(operation, f"{what} have another form than what they belong to: "
                                f"{other.form!r:.120} for {self.form!r:.120}",
                                "give a tensor for each tensor, in the same containers" +
                                (", and the rest as it was" if exact else ""))
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


def _key_of(form: Any) -> Any:
    if isinstance(form, _Place):
        return form.number
    if isinstance(form, dict):
        return dict, tuple((key, _key_of(part)) for key, part in form.items())
    if isinstance(form, (list, tuple)):
        return type(form), tuple(map(_key_of, form))
    if is_record(form):
        return type(form), tuple(_key_of(getattr(form, each.name)) for each in fields(form))
    if isinstance(form, np.ndarray):
        return np.ndarray, form.shape, form.dtype.str, form.tobytes()
    return type(form), form


def _same_form(first: Any, second: Any, exact: bool) -> bool:
    if isinstance(first, _Place) or isinstance(second, _Place):
        return isinstance(first, _Place) and isinstance(second, _Place)
    if isinstance(first, dict):
        return isinstance(second, dict) and list(first) == list(second) and all(
            _same_form(first[key], second[key], exact) for key in first)
    if isinstance(first, (list, tuple)):
        return isinstance(second, (list, tuple)) and len(first) == len(second) and all(
            _same_form(one, other, exact) for one, other in zip(first, second, strict=True))
    if is_record(first):
        return type(first) is type(second) and all(
            _same_form(getattr(first, each.name), getattr(second, each.name), exact)
            for each in fields(first))
    return not exact or type(first) is type(second) and bool(first == second)


def spread_prefix(prefix: Any, value: Any, operation: str) -> Iterator[Any]:
    """What a prefix says of each tensor of a tree: one word for a container is said of all in it.

    Raises:
        ArgumentError: the prefix has containers that the tree has not.
    """
    if isinstance(value, Tensor) or _is_number(value):
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
