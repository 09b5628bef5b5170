"""The things that are moved from place to place when code is followed; see `following`."""
from __future__ import annotations

import dis
import types
from collections.abc import Iterable
from typing import Any

from impl.following import pure
from impl.following.reads import (
    MISSING,
)
from impl.ir import UOp
from impl.tensor import Tensor


class Thing:
    """What moves. The order of a set of things depends on their numbers in the analysis, not on
    their places in memory: another process finds the same guards in the same order.
    """

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number


class Outside(Thing):
    """An object that was there before the call."""

    __slots__ = ("value", "path", "single", "parts", "called")

    def __init__(self, value: Any, path: str, number: int = 0) -> None:
        self.value, self.path, self.number = value, path, number
        # Whether nothing is in it that is read part by part.
        self.single = pure.is_plain(value) or type(value) in (Tensor, *pure.memory_types()) \
            or isinstance(value, UOp)
        self.parts: frozenset[Any] | None = None
        self.called: bool | None = None  # whether others may call it, once that was asked


class Created(Thing):
    """What a call makes at one place. What was put into it, anywhere, is its contents."""

    __slots__ = ("contents", "kind", "frame", "code", "defaults", "named")

    def __init__(self, kind: Any = None, number: int = 0) -> None:
        self.number, self.contents = number, set[Any]()
        # Whether it may have attributes of any name: it is more than a list, an iterator, ...
        self.named = False
        self.kind = kind  # its class, if that is one of Python code
        self.frame: Entered | None = None  # of a function: where it was made
        self.code: types.CodeType | None = None
        self.defaults: set[Any] = set()


class Bound(Thing):
    """A method, and its object."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Any, owner: Any, number: int = 0) -> None:
        self.function, self.owner, self.number = function, owner, number


class Native(Thing):
    """A method that is not written in Python, and its object."""

    __slots__ = ("owner", "name")

    def __init__(self, owner: Any, name: str, number: int = 0) -> None:
        self.owner, self.name, self.number = owner, name, number


class Super(Thing):
    """What `super()` gives: the classes after one, and the object."""

    __slots__ = ("after", "owner")

    def __init__(self, after: type, owner: Any, number: int = 0) -> None:
        self.after, self.owner, self.number = after, owner, number


class Outcome(Thing):
    """A number, a text, a tensor that was computed: what is in it follows from what was read."""

    __slots__ = ()

    def __init__(self) -> None:
        self.number = 0


class SizeOutcome(Outcome):
    """What may be a size that depends on variables: Python can make a number of it unnoticed."""

    __slots__ = ()


class PlainOutcome(Outcome):
    """What is computed of numbers and texts of Python's own: no tensor, and no size."""

    __slots__ = ()


class FloatOutcome(PlainOutcome):
    """A float that is computed so: a size that it meets is not asked."""

    __slots__ = ()


class TextOutcome(Outcome):
    """A text that is computed, of which it is known how it begins: `f"layer{n}"`."""

    __slots__ = ("start",)

    def __init__(self, start: str) -> None:
        super().__init__()
        self.start = start


Value = frozenset[Any]
NONE: Value = frozenset()
NOTHING: Value = frozenset([Outcome()])
SIZES: Value = NOTHING | {SizeOutcome()}
PLAIN: Value = frozenset([PlainOutcome()])
FLOATS: Value = frozenset([FloatOutcome()])
SIZE_NAMES = frozenset(("shape", "size", "numel", "stride", "nbytes"))
#: Functions of Python that make a text of what they are given.
SHOWING = (str, repr, format, ascii, bytes)
FORMATS = ("format", "format_map")


class Entered:
    """A function that is followed: what its names, its results and its stack may hold."""

    def __init__(self, code: types.CodeType, space: dict[str, Any], name: str,
                 number: int = 0) -> None:
        self.code, self.space, self.name, self.number = code, space, name, number
        self.locals: dict[str, set[Any]] = {}
        self.boxes: dict[str, Any] = {}  # cells from outside, or the frame that made them
        self.returned: set[Any] = set()
        self.sites: dict[Any, Created] = {}
        self.states: dict[int, list[Value]] = {}
        self.instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
        self.handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]
        self.line = code.co_firstlineno
        self.caller: tuple[Entered, int] | None = None  # who called it first, and in which line
        self.names: tuple[str, ...] = ()
        self.stamp = -1  # of the analysis, when nothing new was found here

    def site(self, at: Any, kind: Any = None) -> Created:
        """What is made at a place of the code."""
        found = self.sites.get((at, kind))
        if found is None:
            found = self.sites[at, kind] = Created(kind, self.number + len(self.sites))
        return found


def found_in(order: Iterable[type], name: str) -> Any:
    """What the first of some classes that has a name has by it."""
    return next((vars(each)[name] for each in order if name in vars(each)), MISSING)


def may_be_float(value: Value) -> bool:
    """Whether a value may be a float that Python knows as such."""
    return any(isinstance(each, FloatOutcome) or isinstance(getattr(each, "value", None),
                                                            (float, complex)) for each in value)
