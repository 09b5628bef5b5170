"""The names by which a function reaches tensors: globals, closures, attributes, items.

A replay knows tensors and no names. So a name that is given another tensor, by the function or
between two calls, is looked for here.
"""
from __future__ import annotations

import functools
import types
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from impl.errors import is_library
from impl.ir import UOp
from impl.tensor import Tensor

#: Objects that are looked at, nearest first: models have thousands, and modules lead anywhere.
_MOST = 20_000
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic, UOp, type)


# --8<-- [start:name]
@dataclass(frozen=True)
class Name:
    """A place that holds a tensor: `container[key]`, or the cell `container`."""

    path: str
    container: Any
    key: Any

    @property
    def place(self) -> tuple[int, Any]:
        """What tells places apart, as long as the containers live."""
        return id(self.container), self.key

    def value(self) -> Any:
        """What the place holds now; None if there is no such place any more."""
        try:
            if isinstance(self.container, types.CellType):
                return self.container.cell_contents
            return self.container[self.key]
        except (LookupError, ValueError, TypeError):
            return None
# --8<-- [end:name]


# --8<-- [start:names]
def names_of(function: Any) -> dict[tuple[int, Any], tuple[Name, Tensor]]:
    """Every place below a function that holds a tensor."""
    found: dict[tuple[int, Any], tuple[Name, Tensor]] = {}
    waiting, seen = deque([("", function)]), {id(function): function}
    while waiting and len(seen) < _MOST:
        path, value = waiting.popleft()
        for name, part in _parts(path, value):
            if isinstance(part, Tensor):
                found[name.place] = name, part
            elif not isinstance(part, _PLAIN) and id(part) not in seen:
                seen[id(part)] = part
                waiting.append((name.path, part))
    return found
# --8<-- [end:names]


def _parts(path: str, value: Any) -> Iterator[tuple[Name, Any]]:
    """What a function or an object refers to, each with the name of its place."""
    if isinstance(value, types.MethodType):
        yield Name("self", (value.__self__,), 0), value.__self__
        yield Name(path, (value.__func__,), 0), value.__func__
    elif isinstance(value, types.FunctionType):
        if not is_library(value.__code__.co_filename):
            yield from _of_function(value)
    elif isinstance(value, functools.partial):
        parts = (value.func, *value.args, *value.keywords.values())
        yield from ((Name(f"{path}.args[{i}]", parts, i), p) for i, p in enumerate(parts))
    elif isinstance(value, dict):
        yield from ((Name(f"{path}[{key!r}]", value, key), p) for key, p in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from ((Name(f"{path}[{i}]", value, i), p) for i, p in enumerate(value))
    elif not isinstance(value, types.ModuleType):
        yield from _of_object(path, value)


def _of_function(function: types.FunctionType) -> Iterator[tuple[Name, Any]]:
    """The globals that its code names, those of functions inside it too; and its closure."""
    codes, space = [function.__code__], function.__globals__
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in code.co_names:
            if name in space:
                yield Name(name, space, name), space[name]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield Name(name, cell, ""), cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _of_object(path: str, value: Any) -> Iterator[tuple[Name, Any]]:
    """Its attributes, and what its class has in common for all."""
    start = f"{path}." if path else ""
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        yield from ((Name(start + key, own, key), part) for key, part in list(own.items()))
    for kind in type(value).__mro__:
        if kind.__module__ not in ("builtins", "typing"):
            for key, part in list(vars(kind).items()):
                if isinstance(part, (Tensor, types.FunctionType)):
                    yield Name(start + key, vars(kind), key), part
                elif isinstance(part, types.MemberDescriptorType):  # a slot
                    yield Name(start + key, _Slot(value), key), getattr(value, key, None)


class _Slot:
    """An object with slots as a container; two are one if the object is."""

    made: weakref.WeakValueDictionary[int, _Slot] = weakref.WeakValueDictionary()
    owner: Any

    def __new__(cls, owner: Any) -> _Slot:
        """The container for an object."""
        found = cls.made.get(id(owner))
        if found is None or found.owner is not owner:
            found = cls.made[id(owner)] = object.__new__(cls)
            found.owner = owner
        return found

    def __getitem__(self, key: str) -> Any:
        return getattr(self.owner, key, None)


def rebound(before: dict[tuple[int, Any], tuple[Name, Tensor]],
            after: dict[tuple[int, Any], tuple[Name, Tensor]]) -> str:
    """The path of a name that holds another tensor than before, or one where none was."""
    for place, (name, tensor) in after.items():
        if place not in before or before[place][1] is not tensor:
            return name.path
    return next((name.path for place, (name, _) in before.items() if place not in after), "")
