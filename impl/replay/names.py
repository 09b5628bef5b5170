"""The names by which a function reaches tensors: globals, closures, attributes, items.

A replay knows tensors and no names. So a name that is given another tensor, by the function or
between two calls, is looked for here.
"""
from __future__ import annotations

import dis
import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from impl.errors import ReplayError, is_library
from impl.ir import UOp
from impl.tensor import Tensor

#: Objects that are looked at, nearest first: models have thousands, and modules lead anywhere.
_MOST = 20_000
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic, UOp, type)
#: What reads a global; the other names of a code are those of attributes.
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL")


@dataclass(frozen=True)
class Name:
    """A place that holds a tensor: `container[key]`, or the cell `container`."""

    path: str
    container: Any
    key: Any
    owner: Any = field(default=None, compare=False)  # of which the place is a part

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


@dataclass
class Names:
    """Every place below a function that holds a tensor, and every one that leads to such places."""

    tensors: dict[tuple[int, Any], tuple[Name, Tensor]]
    others: dict[tuple[int, Any], tuple[Name, Any]]

    def leading(self, names: Iterable[Name]) -> list[tuple[Name, Any]]:
        """The places on the way to some, with the objects there."""
        places: dict[int, list[tuple[Name, Any]]] = {}
        for name, part in self.others.values():
            places.setdefault(id(part), []).append((name, part))
        found: list[tuple[Name, Any]] = []
        waiting = [name.owner for name in names]
        seen = set()
        while waiting:
            owner = waiting.pop()
            if id(owner) not in seen:
                seen.add(id(owner))
                found += places.get(id(owner), [])
                waiting += [name.owner for name, _ in places.get(id(owner), [])]
        return found


def tensor_names(function: Any) -> Names:
    """The names below a function."""
    found = Names({}, {})
    waiting, seen = deque([("", function)]), {id(function): function}
    while waiting and len(seen) < _MOST:
        path, value = waiting.popleft()
        for name, part in _parts(path, value):
            if isinstance(part, Tensor):
                found.tensors.setdefault(name.place, (replace(name, owner=value), part))
            elif not isinstance(part, _PLAIN):
                found.others.setdefault(name.place, (replace(name, owner=value), part))
                if id(part) not in seen:
                    seen[id(part)] = part
                    waiting.append((name.path, part))
    return found


def _parts(path: str, value: Any) -> Iterator[tuple[Name, Any]]:
    """What a function or an object refers to, each with the name of its place."""
    if isinstance(value, types.MethodType):
        yield Name("self", (value.__self__,), 0), value.__self__
        yield Name(path, (value.__func__,), 0), value.__func__
    elif isinstance(value, types.FunctionType):
        if not is_library(value.__code__.co_filename):
            yield from _of_function(value)
    elif isinstance(value, functools.partial):
        yield Name(f"{path}.func", _Slot(value), "func"), value.func
        yield from _parts(f"{path}.args", value.args)
        yield from _parts(f"{path}.keywords", value.keywords)
    elif isinstance(value, dict):
        yield from ((Name(f"{path}[{key!r}]", value, key), p) for key, p in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from ((Name(f"{path}[{i}]", value, i), p) for i, p in enumerate(value))
    elif type(value).__module__ == "impl.replay.jit":  # what it noted is no part of the function
        yield Name(path, vars(value), "function"), value.function
    elif not isinstance(value, types.ModuleType):
        yield from _of_object(path, value)


def _of_function(function: types.FunctionType) -> Iterator[tuple[Name, Any]]:
    """The globals that its code names, those of functions inside it too; and its closure."""
    codes, space = [function.__code__], function.__globals__
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in {i.argval: None for i in dis.get_instructions(code) if i.opname in _GLOBAL}:
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
                    yield Name(start + key, _Slot(kind), key), part
                elif isinstance(part, types.MemberDescriptorType):  # a slot
                    yield Name(start + key, _Slot(value), key), getattr(value, key, None)


class _Slot:
    """An object or a class as a container of attributes; two are one if the object is."""

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


class _Grown:
    """The length of a list or dict, once it is another one than at first; until then None."""

    def __init__(self, container: list[Any] | dict[Any, Any]) -> None:
        self.container, self.first = container, len(container)

    def __getitem__(self, key: str) -> int | None:
        return None if len(self.container) == self.first else len(self.container)


def _lengths_of(names: Iterable[Name]) -> list[Name]:
    """A place for each list and dict that some names are items of, which holds None.

    A function that goes through a list of layers does more when there are more.
    """
    found: dict[int, Name] = {}
    for name in names:
        # The names of an object and those of a module are in dicts too, and come and go.
        if name.owner is name.container and isinstance(name.container, (list, dict)):
            path = name.path.removesuffix(f"[{name.key!r}]")
            found.setdefault(id(name.container), Name(f"len({path})", _Grown(name.container), ""))
    return list(found.values())


def rebound(before: Names, after: Names) -> str:
    """The path of a name that holds another tensor than before, or one where none was."""
    old, new = before.tensors, after.tensors
    for place, (name, tensor) in new.items():
        if place not in old or old[place][1] is not tensor:
            return name.path
    return next((name.path for place, (name, _) in old.items() if place not in new), "")


class Watch:
    """The names of what a recording uses, and what each of them has to hold."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.known: list[tuple[Name, Callable[[], Any]]] = []

    def begin(self, names: Names, tensors: set[int]) -> None:
        """Watch the names of these tensors, and those that lead to them."""
        found = [(name, tensor) for name, tensor in names.tensors.values() if id(tensor) in tensors]
        leading = names.leading(name for name, _ in found)
        self.known = [(name, weakref.ref(tensor)) for name, tensor in found]
        self.known += [(name, functools.partial(_itself, part)) for name, part in leading]
        # r[impl replay.rebound.error+2]
        self.known += [(name, functools.partial(_itself, None))
                       for name in _lengths_of([name for name, _ in (*found, *leading)])]

    def check(self) -> None:
        """Refuse a call in which a name holds something else."""
        for name, known in self.known:
            now = name.value()
            if now is not known():  # r[impl replay.rebound.error+2]
                kind = "tensor" if isinstance(now, Tensor) else \
                    "number" if isinstance(now, int) else "object"
                raise ReplayError(self.function, f"{name.path} is another {kind} than when the "
                                  "function was captured, and a replay would use the old one",
                                  "change it with .assign, or call .reset()")


def _itself(part: Any) -> Any:
    return part
