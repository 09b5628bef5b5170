"""Findings of an analysis of code: things, places that were read, reasons to give up."""
from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from impl import symbolic
from impl.following import pure
from impl.following.reads import (
    MOST_BYTES,
    Reads,
    Reason,
)
from impl.following.records import EXACT, attributes_of, is_named_tuple, is_record
from impl.following.things import (
    NONE,
    NOTHING,
    SIZES,
    Created,
    Entered,
    Outside,
    SizeOutcome,
    TextOutcome,
    Value,
)
from impl.host import np
from impl.ir import UOp
from impl.tensor import Tensor

#: What to write instead of what some modules do.
_INSTEAD = {
    "impl.nn.lr_scheduler": "call scheduler.step() after the captured function",
    "impl.nn.amp": "call scaler.step(optimizer) and scaler.update() after the captured function"}


class Notes:
    """The findings of one analysis so far."""

    def __init__(self, is_captured: Callable[[Any], Any], trust: bool = False) -> None:
        self.reads, self.trust = Reads(), trust
        self.is_captured = is_captured  # the function of a captured function, or None
        self.outside: dict[Any, Outside] = {}
        self.interned: dict[Any, Any] = {}
        self.frames: dict[Any, Entered] = {}
        self.changed = False
        # What is written to places outside that have to hold it, or what they held, afterwards.
        self.written: dict[int, dict[str, set[Any]]] = {}
        self.frame: Entered | None = None
        self.stamp = 0  # counts what is found
        self.rounds = 0  # through all frames, so far
        # What was given away, and what came of it: in which round, and when in it.
        self.known: dict[Any, tuple[int, int, Value]] = {}
        self.late = False  # whether that has been used after something new was found
        self.listed: dict[Any, list[str]] = {}  # by thing: the names that `dir` gives of it
        self.active: set[Any] = set()  # the functions that are called for others just now
        self.raised = Created()  # any exception, with all that exceptions carry
        self.raised.named = True

    def refuse(self, does: str, remedy: str) -> Value:
        """Note that what a line does cannot be followed."""
        self.reads.reasons[self.reason(does, remedy)] = None
        return NOTHING

    def reason(self, does: str, remedy: str) -> Reason:
        """A reason to give up, with the line that is looked at: the user's, where a layer or a
        library does it.
        """
        # r[impl following.traced.reason]
        frame = self.frame
        if frame is None:
            return Reason("the function", does, remedy)
        remedy = _INSTEAD.get(frame.space.get("__name__", ""), remedy)
        line, known = frame.line, {frame}
        while frame.caller is not None and pure.is_of_library(frame.code.co_filename) \
                and frame.caller[0] not in known:
            frame, line = frame.caller
            known.add(frame)
        return Reason(f"{frame.code.co_filename}:{line}", does, remedy)

    def wrap(self, value: Any, path: str) -> Value:
        """The thing for an object from outside."""
        plain = pure.is_plain(value)
        key = (type(value), repr(value)) if plain else id(value)
        found = self.outside.get(key)
        if found is None:
            found = self.outside[key] = Outside(value, path, len(self.outside))
            self.changed = True
            self.stamp += 1
            if isinstance(value, Tensor):
                self.reads.tensors[id(value)] = value
                self.reads.note("tensor", value, "", path)
            elif isinstance(value, (*pure.memory_types(), np.void)):
                self.memory(value, path)
            if not plain:
                self.class_of(value, path)
        return frozenset([found])

    def memory(self, value: Any, path: str) -> None:
        """Note the content of an array, or of other memory."""
        if type(value) not in pure.memory_types():
            self.refuse(f"reads {path}, a {type(value).__name__}, whose content is not compared",
                        "make it a Tensor, or a plain array")
            return
        size = len(value) if isinstance(value, bytearray) else value.nbytes
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            self.refuse(f"reads {path}, an array of objects", "make it a list")
        elif size > MOST_BYTES:
            self.refuse(f"reads {path}, an array of {size} bytes, more than are compared at each "
                        "call", "make it a Tensor")
        else:
            self.reads.note("array", value, "", path)

    def class_of(self, value: Any, path: str) -> None:
        """Note the class of an object, and which classes it comes from: both can be changed."""
        kind = type(value)
        if pure.is_open(kind) or kind is types.ModuleType and not pure.is_fixed_module(value):
            self.reads.note("class", value, "", path)
            self.lineage(kind)
        if isinstance(value, type):
            self.lineage(value)

    def lineage(self, kind: type) -> None:
        """Note which classes a class comes from."""
        if pure.is_open(kind) and not pure.is_fixed(pure.home_of(kind)):
            self.reads.note("attribute", kind, "__mro__", f"{kind.__name__}.__mro__")

    def argument(self, value: Any, path: str) -> Value:
        """What is known of an argument. Its form is compared at each call, so what is asked of a
        tensor, a number or a container is known; any other object is the same one.
        """
        if isinstance(value, Tensor):
            return NOTHING
        if isinstance(value, UOp) or symbolic.is_symbolic(value):
            return SIZES
        if type(value) in EXACT or is_named_tuple(value) or is_record(value):
            kind = None if type(value) in EXACT else type(value)
            made = self.interned.setdefault(
                ("argument", path), Created(kind, len(self.interned)))
            if kind is not None:
                self.lineage(kind)
            items = value.items() if isinstance(value, dict) else \
                enumerate(value) if isinstance(value, (list, tuple)) else ()
            for key, part in items:
                made.contents |= self.argument(part, f"{path}[{key!r}]")
            for name, part in attributes_of(value).items():
                made.contents |= self.argument(part, f"{path}.{name}")
            return frozenset([made])
        return self.wrap(value, path)

    def put(self, target: set[Any], things: Iterable[Any]) -> None:
        """Put things into a set, and note if it has grown."""
        before = len(target)
        target.update(things)
        if len(target) != before:
            self.changed = True
            self.stamp += 1

    def intern(self, kind: type, first: Any, second: Any) -> Value:
        """The one thing of a kind with two parts."""
        key = (kind, first if isinstance(first, (str, type)) else id(first),
               second if isinstance(second, str) else id(second))
        found = self.interned.get(key)
        if found is None:
            found = self.interned[key] = kind(first, second, len(self.interned))
        return frozenset([found])

    def only(self, value: Any, path: str) -> Any:
        """The one thing for an object."""
        return next(iter(self.wrap(value, path)))

    def count(self, value: Value) -> None:
        """Python makes a number of a value: if that is a size, it is the same only at this one."""
        # r[impl replay.sizes.same]
        self.reads.counted |= any(isinstance(each, SizeOutcome) for each in value)

    def is_unsure(self, value: Value) -> bool:
        """Whether a value may be something that is computed: not one of some known constants."""
        return not all(isinstance(each, Outside) and pure.is_plain(each.value)
                       for each in value)

    def text(self, first: Value) -> Value:
        """A text that is computed, by its first part; what is known of it is how it begins."""
        starts = {each.value.partition("%")[0] for each in first
                  if isinstance(each, Outside) and type(each.value) is str}
        if len(starts) != len(first):
            return NOTHING
        return frozenset(self.interned.setdefault(("text", each), TextOutcome(each))
                         for each in sorted(starts))

    def contents_of(self, thing: Created) -> Value:
        """A container of all that was put into a thing; what is put in there is put into both."""
        space = self.interned.setdefault(("space", id(thing)), Created(None, len(self.interned)))
        space.contents = thing.contents
        return frozenset([space])

    # What others do, who note what they find:

    def call(self, value: Value, args: Sequence[Value], kwargs: dict[str, Value],
             rest: Value = NONE, loose: bool = False) -> Value:
        """Call a value: see `calls`."""
        raise NotImplementedError

    def elements(self, thing: Any, loop: bool = False) -> Value:
        """The elements of a thing: see `parts`."""
        raise NotImplementedError

    def write(self, thing: Any, value: Value, what: str, name: str = "",
              deletes: bool = False) -> None:
        """Something is put into a thing: see `following`."""
        raise NotImplementedError

    def setter(self, thing: Any, kind: type, name: str, value: Value,
               deletes: bool = False) -> bool:
        """Call what a class has to set an attribute: see `following`."""
        raise NotImplementedError
