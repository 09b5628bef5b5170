"""Following the code of a function, to find all that it can read besides its arguments.

Nothing is run. Each instruction moves *things* from place to place: a thing is an object that was
there before the call, or stands for those that the call makes at one line. Both ways of a branch
are followed, and a loop once for all of its turns, so what is found is all that any call can read
until one of these places holds something else. Chapter: spec/replay.md.
"""
from __future__ import annotations

import abc
import collections
import dis
import enum
import functools
import inspect
import os
import re
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from impl import symbolic
from impl.errors import is_library
from impl.ir import UOp
from impl.replay import pure, versions
from impl.replay.reads import (
    MISSING,
    MOST_BYTES,
    Reads,
    Reason,
    code_of,
    form_of,
    is_container,
)
from impl.tensor import Tensor
from impl.tensor.base import mode

#: Places and things of one function; more are more than a guard should look at.
_MOST = 20_000
_ROUNDS = 60
_PYTHON = os.path.dirname(os.__file__) + os.sep

class Outside:
    """An object that was there before the call."""

    __slots__ = ("value", "path", "single", "parts", "called")

    def __init__(self, value: Any, path: str) -> None:
        self.value, self.path = value, path
        # Whether nothing is in it that is read part by part.
        self.single = pure.is_plain(value) or type(value) in (Tensor, *pure.MEMORY) \
            or isinstance(value, UOp)
        self.parts: frozenset[Any] | None = None
        self.called: bool | None = None  # whether others may call it, once that was asked


class Created:
    """What a call makes at one place. What was put into it, anywhere, is its contents."""

    __slots__ = ("contents", "kind", "frame", "code", "defaults", "named")

    def __init__(self, kind: Any = None) -> None:
        self.contents: set[Any] = set()
        # Whether it may have attributes of any name: it is more than a list, an iterator, ...
        self.named = False
        self.kind = kind  # its class, if that is one of Python code
        self.frame: Entered | None = None  # of a function: where it was made
        self.code: types.CodeType | None = None
        self.defaults: set[Any] = set()


class Bound:
    """A method, and its object."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Any, owner: Any) -> None:
        self.function, self.owner = function, owner


class Native:
    """A method that is not written in Python, and its object."""

    __slots__ = ("owner", "name")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name


class Super:
    """What `super()` gives: the classes after one, and the object."""

    __slots__ = ("after", "owner")

    def __init__(self, after: type, owner: Any) -> None:
        self.after, self.owner = after, owner


class Outcome:
    """A number, a text, a tensor that was computed: what is in it follows from what was read."""


class SizeOutcome(Outcome):
    """What may be a size that depends on variables: Python can make a number of it unnoticed."""


Value = frozenset[Any]
NONE: Value = frozenset()
NOTHING: Value = frozenset([Outcome()])
SIZES: Value = NOTHING | {SizeOutcome()}
_SIZES = frozenset(("shape", "size", "numel", "stride", "nbytes"))
#: Functions of Python that see nothing of a size but what is noted of it.
_BLIND = (isinstance, issubclass, callable, len, tuple, list, zip, enumerate, iter, reversed, next,
          slice, id, bool, type)
#: Methods that no operation calls, but by name.
_NAMED = frozenset((
    "__init__", "__new__", "__del__", "__init_subclass__", "__class_getitem__", "__setattr__",
    "__getattr__", "__getattribute__", "__delattr__", "__repr__", "__str__", "__format__",
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__",
    "__dir__", "__sizeof__", "__call__", "__set_name__", "__subclasshook__", "__prepare__",
    "__replace__", "__annotate__", "__getnewargs__", "__getnewargs_ex__"))
#: Functions of Python that make a text of what they are given.
_SHOWING = (str, repr, format, ascii, bytes)
#: Functions of Python that look for an attribute by its name.
_NAMING = (getattr, hasattr, setattr, delattr, vars, dir)
_FORMATS = ("format", "format_map")
#: A field of a text that names an attribute.
_FIELDS = re.compile(r"{[^{}:!]*\.")
#: Methods of any object that read all of its attributes.
_WHOLE = frozenset(("__reduce__", "__reduce_ex__", "__getstate__", "__dir__", "__sizeof__",
                    "__subclasses__"))
_SHOWN = ("__repr__", "__str__", "__format__")
_CHANGES = ("__setitem__", "__delitem__")
#: Attributes of exceptions that lead to what a program knows by other names.
_TRACES = ("__traceback__", "obj")
#: The attributes that containers of Python, and what goes through them, have.
_METHODS = frozenset(name for kind in (
    *pure.CONTAINERS, slice, types.GeneratorType, bytearray) for name in dir(kind))
_LOOPING = ("__iter__", "__next__")
#: Ways to look for an attribute that are those of any object.
_GENERIC: list[Any] = [kind.__getattribute__ for kind in (
    object, tuple, list, dict, set, frozenset, types.SimpleNamespace, types.FunctionType, int,
    float, str, BaseException, types.ModuleType, Tensor)]
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


class Entered:
    """A function that is followed: what its names, its results and its stack may hold."""

    def __init__(self, code: types.CodeType, space: dict[str, Any], name: str) -> None:
        self.code, self.space, self.name = code, space, name
        self.locals: dict[str, set[Any]] = {}
        self.boxes: dict[str, Any] = {}  # cells from outside, or the frame that made them
        self.returned: set[Any] = set()
        self.sites: dict[Any, Created] = {}
        self.states: dict[int, list[Value]] = {}
        self.instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
        self.handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]
        self.line = code.co_firstlineno
        self.names: tuple[str, ...] = ()
        self.stamp = -1  # of the analysis, when nothing new was found here

    def site(self, at: Any, kind: Any = None) -> Created:
        """What is made at a place of the code."""
        found = self.sites.get((at, kind))
        if found is None:
            found = self.sites[at, kind] = Created(kind)
        return found


#: What an instruction does to a stack: the stack after it, if the next one is reached.
Step = Callable[["Following", Entered, dis.Instruction, "list[Value]", int], "list[Value] | None"]


class Following:
    """One analysis: frames are run until nothing new is found."""

    def __init__(self, step: Step, is_captured: Callable[[Any], Any], trust: bool = False) -> None:
        self.reads, self.trust, self.step = Reads(), trust, step
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
        self.active: set[Any] = set()  # the functions that are called for others just now
        self.raised = Created()  # any exception, with all that exceptions carry
        self.raised.named = True

    def run(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Reads:
        """Follow a call of a function with these arguments."""
        if versions.LAYOUT is None:
            self.refuse("runs on a version of Python whose instructions are not known",
                        "use trust=True")
            return self.reads
        name = getattr(function, "__name__", "the function")
        given = [self.argument(value, f"args[{n}]") for n, value in enumerate(args)]
        named = {key: self.argument(value, key) for key, value in kwargs.items()}
        self.reads.note("attribute", Tensor, "training", "Tensor.training")  # methods ask for it
        self.reads.note("attribute", type(Tensor), "changes",
                        "how often a method of Tensor was set")
        self.reads.note("attribute", mode, "gradients", "whether gradients pass")  # no_grad
        self.changed = True
        while self.changed and (self.trust or not self.reads.reasons):
            self.changed = False
            try:  # r[impl replay.reads.followed]
                self.call(self.wrap(function, name), given, named)
                for frame in reversed(list(self.frames.values())):  # those that are called first
                    self.interpret(frame)
            except RecursionError:
                self.refuse("has calls in calls that are too deep to be followed",
                            "use trust=True")
                break
            self.rounds += 1
            if len(self.reads.places) + len(self.interned) > _MOST or self.rounds > _ROUNDS:
                self.refuse("reads more than can be guarded", "use trust=True")
                break
        return self.reads

    # Things --------------------------------------------------------------------------------

    def refuse(self, does: str, remedy: str) -> Value:
        """Note that what a line does cannot be followed."""
        self.reads.reasons[self.reason(does, remedy)] = None
        return NOTHING

    def reason(self, does: str, remedy: str) -> Reason:
        """What the line does that is looked at."""
        frame = self.frame
        line = f"{frame.code.co_filename}:{frame.line}" if frame else "the function"
        return Reason(line, does, remedy)

    def wrap(self, value: Any, path: str) -> Value:
        """The thing for an object from outside."""
        plain = pure.is_plain(value)
        key = (type(value), repr(value)) if plain else id(value)
        found = self.outside.get(key)
        if found is None:
            found = self.outside[key] = Outside(value, path)
            self.changed = True
            self.stamp += 1
            if isinstance(value, Tensor):
                self.reads.tensors[id(value)] = value
                self.reads.note("tensor", value, "", path)
            elif isinstance(value, (*pure.MEMORY, np.void)):
                self.memory(value, path)
            if not plain:
                self.class_of(value, path)
        return frozenset([found])

    def memory(self, value: Any, path: str) -> None:
        """Note the content of an array, or of other memory."""
        if type(value) not in pure.MEMORY:
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
        if pure.is_open(kind) or kind is types.ModuleType and not pure.is_fixed(value.__name__):
            self.reads.note("class", value, "", path)
            self.lineage(kind)
        if isinstance(value, type):
            self.lineage(value)

    def lineage(self, kind: type) -> None:
        """Note which classes a class comes from."""
        if pure.is_open(kind) and not pure.is_fixed(kind.__module__):
            self.reads.note("attribute", kind, "__mro__", f"{kind.__name__}.__mro__")

    def argument(self, value: Any, path: str) -> Value:
        """What is known of an argument. Its form is compared at each call, so what is asked of a
        tensor, a number or a container is known; any other object is the same one.
        """
        if isinstance(value, Tensor):
            return NOTHING
        if isinstance(value, UOp) or symbolic.is_symbolic(value):
            return SIZES
        if type(value) in (list, tuple, dict):
            made = self.interned.setdefault(("argument", path), Created())
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                made.contents |= self.argument(part, f"{path}[{key!r}]")
            return frozenset([made])
        if isinstance(value, tuple) or hasattr(type(value), "__dataclass_fields__"):
            made = self.interned.setdefault(("argument", path), Created(type(value)))
            self.lineage(type(value))
            for name in getattr(value, "_fields", getattr(value, "__dataclass_fields__", {})):
                made.contents |= self.argument(getattr(value, name), f"{path}.{name}")
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
            found = self.interned[key] = kind(first, second)
        return frozenset([found])

    # Reading -------------------------------------------------------------------------------

    def name_of(self, space: dict[str, Any], name: str) -> Value:
        """A global, or what Python itself has by this name."""
        held = self.reads.note("item", space, name, name)
        if held is MISSING:
            builtins = space.get("__builtins__", {})
            known = builtins if isinstance(builtins, dict) else vars(builtins)
            held = self.reads.note("item", known, name, name)
        written = self.written_to(space, name)
        return (NOTHING if held is MISSING else self.wrap(held, name)) | written

    def attribute(self, thing: Any, name: str) -> Value:
        """What an attribute of a thing may be."""
        if isinstance(thing, Created):
            if thing is self.raised and name in _TRACES:
                return self.refuse(f"reads {name} of an exception", "name what is meant")
            found: Value = frozenset(thing.contents)
            if thing is self.raised:
                return found | {thing}
            if thing.kind is not None and name == "__dict__":
                return self.contents_of(thing)
            if thing.kind is not None and name == "__class__":
                return self.wrap(thing.kind, thing.kind.__name__)
            if thing.kind is not None:
                return found | self.of_class(thing, thing.kind, name)
            if name not in _METHODS and thing.code is None and not thing.named:
                return NONE
            return found | self.intern(Native, thing, name)
        if isinstance(thing, Bound):
            if name == "__self__":
                return frozenset([thing.owner])
            return frozenset([thing.function]) if name == "__func__" else \
                self.attribute(thing.function, name)
        if isinstance(thing, Super):
            owner = thing.owner
            kind = owner.kind if isinstance(owner, Created) else \
                owner.value if isinstance(owner.value, type) else type(owner.value)
            order = kind.__mro__
            after = order[order.index(thing.after) + 1:] if thing.after in order else order
            return self.of_class(owner, kind, name, after)
        if not isinstance(thing, Outside):
            if name in _FORMATS:
                return self.intern(Native, thing, name)
            known = SIZES if name in _SIZES or isinstance(thing, SizeOutcome) else NOTHING
            return known | self.of_tensor(thing, name)
        return self.of_object(thing, name)

    def contents_of(self, thing: Created) -> Value:
        """A container of all that was put into a thing; what is put in there is put into both."""
        space = self.interned.setdefault(("space", id(thing)), Created())
        space.contents = thing.contents
        return frozenset([space])

    def of_tensor(self, thing: Any, name: str) -> Value:
        """What a user has put into the class of all tensors, which has many methods of its own."""
        found = found_in(Tensor.__mro__, name)
        inner = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if not isinstance(inner, types.FunctionType) or not pure.is_followed(inner.__code__):
            return NONE
        return self.bound(thing, Tensor, name, found, f"Tensor.{name}", False)

    def of_object(self, thing: Outside, name: str) -> Value:
        """An attribute of an object from outside."""
        value, path = thing.value, f"{thing.path}.{name}"
        if type(value) is types.ModuleType:
            if name == "__dict__":
                return self.wrap(vars(value), path)
            if value.__name__ == "impl.settings" and name != "get":
                return self.refuse(f"uses {path}", "do it outside of the function")
            if pure.is_fixed(value.__name__) and name not in vars(value):
                held = getattr(value, name, MISSING)  # imported when it is asked for
            elif "__getattr__" in vars(value) and name not in vars(value):
                self.reads.note("absent", vars(value), name, path)
                asked = self.reads.note("item", vars(value), "__getattr__",
                                        f"{thing.path}.__getattr__")
                if isinstance(asked, types.FunctionType) and pure.is_followed(asked.__code__):
                    return self.call(self.wrap(asked, f"{thing.path}.__getattr__"),
                                     [self.wrap(name, name)], {})
                held = getattr(value, name, MISSING)
            else:
                held = self.reads.note("item", vars(value), name, path)
            return NOTHING if held is MISSING else self.wrap(held, path)
        if isinstance(value, type):
            if value is Tensor and name == "training":
                self.reads.note("attribute", value, name, path)
                return NOTHING
            if value is Tensor and (added := self.of_tensor(thing, name)):
                return frozenset(each.function if isinstance(each, Bound) else each
                                 for each in added)
            if pure.is_own(value) or value.__module__ == "builtins":
                return self.intern(Native, thing, name)
            return self.of_class(thing, value, name, value.__mro__)
        if isinstance(value, Tensor) and type(value) is Tensor:
            if name in _SIZES:
                return SIZES
            return self.of_tensor(thing, name) or (
                self.intern(Native, thing, name) if callable(found_in(Tensor.__mro__, name))
                or hasattr(found_in(Tensor.__mro__, name), "__func__") else NOTHING)
        if isinstance(value, enum.Enum) and name in ("value", "name", "_value_", "_name_"):
            own = f"_{name.strip('_')}_"
            return self.wrap(self.reads.note("attribute", value, own, path), path)
        if pure.is_plain(value) or isinstance(value, (*pure.MEMORY, UOp)) or is_container(value):
            if isinstance(value, types.MappingProxyType):
                self.elements(thing)
            return self.intern(Native, thing, name) if hasattr(value, name) else NONE
        if pure.is_own(type(value)) and self.is_captured(value) is None \
                and not isinstance(value, Tensor):
            return self.intern(Native, thing, name)
        if name == "__class__":
            return self.wrap(type(value), path)
        return self.of_class(thing, type(value), name)

    def of_class(self, thing: Any, kind: type, name: str,
                 order: tuple[type, ...] | None = None) -> Value:
        """An attribute of an object of a class of Python: its own, or one of its class.

        With `order` the classes to look in are given, and the object itself is not looked at.
        """
        outside = thing if isinstance(thing, Outside) else None
        is_type = outside is not None and isinstance(outside.value, type)
        path = f"{outside.path if outside else kind.__name__}.{name}"
        if name == "__dict__" and outside is not None and not is_type:
            own = getattr(outside.value, "__dict__", None)
            return NOTHING if own is None else self.wrap(own, path)
        if kind.__getattribute__ not in _GENERIC and not is_type:
            return self.refuse(f"reads {path}, and {kind.__name__} has a __getattribute__ of its "
                               "own", "use plain attributes")
        found = found_in(order or kind.__mro__, name)
        if is_type and type(kind) is not type:
            of_meta = self.of_metaclass(thing, type(kind), name, found is MISSING)
            if of_meta is not None:
                return of_meta
        is_data = hasattr(type(found), "__set__")
        own_names = None
        if outside is not None and order is None and not is_data:
            own_names = getattr(outside.value, "__dict__", None)
            if own_names is not None and name in own_names:
                held = self.reads.note("attribute", outside.value, name, path)
                return self.wrap(held, path) | self.written_to(own_names, name)
            if own_names is not None:
                self.reads.note("absent", own_names, name, path)
        if order not in (None, kind.__mro__) or type(kind) is not type or _computes(found):
            self.own(order or kind.__mro__, name)
        if found is MISSING:
            return self.of_missing(thing, kind, name)
        return self.bound(thing, kind, name, found, path, is_type)

    def own(self, order: Sequence[type], name: str) -> None:
        """Note which of some classes has a name first, and what it is there."""
        for each in order:
            if pure.is_open(each) and not pure.is_fixed(each.__module__):
                self.reads.note("own", each, name, f"{each.__name__}.{name}")
            if name in vars(each):
                break

    def of_metaclass(self, thing: Any, meta: type, name: str, is_missing: bool) -> Value | None:
        """An attribute of a class that its metaclass has; None if the class itself comes first."""
        found = found_in(meta.__mro__, name)
        if found is MISSING or meta.__module__ in ("abc", "enum"):
            asked = found_in(meta.__mro__, "__getattr__")
            if not is_missing or not isinstance(asked, types.FunctionType) \
                    or meta.__module__ in ("abc", "enum"):
                return None
            self.own(thing.value.__mro__, name)
            self.own(meta.__mro__, name)
            return self.call(self.intern(Bound, self.only(asked, f"{meta.__name__}.__getattr__"),
                                         thing), [self.wrap(name, name)], {})
        self.own(meta.__mro__, name)
        if any(name in vars(each) for each in (type, object)) \
                or not is_missing and not hasattr(type(found), "__set__"):
            return None
        self.own(thing.value.__mro__, name)
        return self.bound(thing, meta, name, found, f"{thing.path}.{name}", False)

    def of_missing(self, thing: Any, kind: type, name: str) -> Value:
        """An attribute that is not there: what the class says of such."""
        meta = thing.value if isinstance(thing, Outside) and isinstance(thing.value, type) else None
        if meta is not None and name in ("__name__", "__qualname__", "__mro__", "__module__",
                                         "__dict__", "__bases__"):
            return self.wrap(self.reads.note("attribute", meta, name, f"{meta.__name__}.{name}"),
                             f"{meta.__name__}.{name}")
        if meta is not None and hasattr(type(meta), name):  # of its metaclass
            return self.intern(Native, thing, name)
        asked = found_in(kind.__mro__, "__getattr__")
        if isinstance(asked, types.FunctionType) and meta is None:
            self.own(kind.__mro__, name)
            if is_library(asked.__code__.co_filename) \
                    and asked.__annotations__.get("return") == "NoReturn":
                return NONE  # it always raises
            return self.call(self.intern(Bound, self.only(asked, f"{kind.__name__}.__getattr__"),
                                         thing), [self.wrap(name, name)], {})
        if meta is None:
            self.own(kind.__mro__, name)
        else:
            self.reads.note("attribute", kind, name, f"{kind.__name__}.{name}")
        return NOTHING

    def only(self, value: Any, path: str) -> Any:
        """The one thing for an object."""
        return next(iter(self.wrap(value, path)))

    def bound(self, thing: Any, kind: type, name: str, found: Any, path: str,
              is_type: bool) -> Value:
        """What an attribute of a class is to its objects."""
        fixed = pure.is_fixed(kind.__module__)
        captured = self.is_captured(found)
        if captured is not None:
            found = captured
        elif fixed or type(kind) is not type or _computes(found):
            pass  # noted as what the class itself has
        elif isinstance(found, property):
            self.reads.note("attribute", kind, name, path)
        elif not isinstance(found, types.MemberDescriptorType):
            self.reads.note("method", kind, name, path)
        if isinstance(found, types.FunctionType):
            function = self.only(found, path)
            return frozenset([function]) if is_type else self.intern(Bound, function, thing)
        if isinstance(found, staticmethod):
            return self.wrap(found.__func__, path)
        if isinstance(found, classmethod):
            return self.intern(Bound, self.only(found.__func__, path), self.only(kind, path))
        if is_type:
            return self.wrap(found, path)
        if isinstance(found, property):
            if not isinstance(found.fget, types.FunctionType):
                return self.refuse(f"reads {path}, a property that is not of Python code",
                                   "use trust=True")
            return self.call(self.intern(Bound, self.only(found.fget, path), thing), [], {})
        if isinstance(found, types.MemberDescriptorType):
            if isinstance(thing, Outside):
                held = self.reads.note("attribute", thing.value, name, path)
                return NOTHING if held is MISSING else self.wrap(held, path)
            return NOTHING
        if type(found) is pure.TUPLE_GETTER:  # of one made here it is among its contents
            return self.wrap(getattr(thing.value, name), path) if isinstance(thing, Outside) \
                else NOTHING
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType,
                              types.BuiltinFunctionType, types.ClassMethodDescriptorType)):
            return self.intern(Native, thing, name)
        if isinstance(found, types.GetSetDescriptorType):
            if isinstance(thing, Created) and issubclass(kind, BaseException):
                return self.contents_of(thing)  # its arguments
            if name in ("__doc__", "__name__", "__qualname__") and isinstance(thing, Outside):
                return self.wrap(self.reads.note("attribute", thing.value, name, path), path)
            return self.refuse(f"reads {path}", "read it outside of the function")
        if hasattr(type(found), "__get__") and not isinstance(found, type):
            getter = type(found).__get__
            if isinstance(getter, types.FunctionType):
                return self.call(self.intern(Bound, self.only(getter, path),
                                             self.only(found, path)),
                                 [frozenset([thing]), self.wrap(kind, path)], {})
            return self.refuse(f"reads {path}, a {type(found).__name__}", "use a plain attribute")
        return self.wrap(found, path)

    def attributes(self, value: Value, name: str) -> Value:
        """What an attribute of a value may be."""
        found: set[Any] = set()
        for thing in value:
            found |= self.attribute(thing, name)
        return frozenset(found)  # none where there is no such attribute

    def elements(self, thing: Any, loop: bool = False) -> Value:
        """What one gets by going through a thing."""
        if isinstance(thing, Created):
            inner = self.operators(thing, loop=loop) if thing.kind is not None else NOTHING
            return frozenset(thing.contents) | inner
        if not isinstance(thing, Outside):
            return SIZES if isinstance(thing, SizeOutcome) else NOTHING
        if thing.single:
            return NOTHING
        if thing.parts is None:
            found = self.parts_outside(thing, loop)
            if not is_container(thing.value):
                return found
            thing.parts = found
        return thing.parts | self.written_to(thing.value) if self.written else thing.parts

    def parts_outside(self, thing: Outside, loop: bool) -> Value:
        """What one gets by going through an object from outside."""
        value, path = thing.value, thing.path
        if isinstance(value, type):
            members = value if issubclass(value, enum.Enum) else ()
            inner = self.operators(thing) if type(value) is not type else NONE
            return inner.union(*[self.wrap(each, path) for each in members])
        if isinstance(value, pure.CONTAINERS):
            if not isinstance(value, (tuple, frozenset)):
                self.reads.note("parts", value, "", path)
            found: set[Any] = set()
            if isinstance(value, (dict, types.MappingProxyType)):
                for key, part in list(value.items()):
                    found |= self.wrap(key, f"a key of {path}")
                    found |= self.wrap(part, f"{path}[{key!r}]")
            else:
                for number, part in enumerate(list(value)):
                    found |= self.wrap(part, f"{path}[{number}]")
            if not is_container(value):
                found |= self.operators(thing)
            return frozenset(found)
        if type(value) in pure.CLOSED or pure.is_own(type(value)) or pure.is_plain(value):
            return NOTHING
        if not pure.is_open(type(value)) and hasattr(type(value), "__next__"):
            return self.refuse(f"goes through {path}, an iterator from outside, which each call "
                               "leaves shorter", "make a list of it")
        if type(value).__module__ == "builtins" and type(value) is not object:
            return self.refuse(f"looks into {path}, a {type(value).__name__}",
                               "use plain containers")
        return self.operators(thing, loop=loop)

    def item(self, thing: Any, keys: Value, plain: bool) -> Value:
        """`thing[key]`."""
        if isinstance(thing, Outside) and plain and type(thing.value) in (
                dict, list, tuple, collections.defaultdict, types.MappingProxyType):
            found: set[Any] = set()
            for key in keys:
                try:
                    if type(thing.value) is tuple:
                        held = thing.value[key.value]
                    else:
                        held = self.reads.note("item", thing.value, key.value,
                                               f"{thing.path}[{key.value!r}]")
                except (LookupError, TypeError):
                    continue
                if held is not MISSING:
                    found |= self.wrap(held, f"{thing.path}[{key.value!r}]")
            return self.written_to(thing.value) | found
        if isinstance(thing, Outside) and isinstance(thing.value, type) \
                and "__class_getitem__" in {name for each in thing.value.__mro__
                                            for name in vars(each)}:
            return self.elements(thing) | self.call(
                self.attribute(thing, "__class_getitem__"), [keys], {})
        if isinstance(thing, Created) and not plain:  # a slice of a list is a list
            return self.elements(thing) | {thing}
        return self.elements(thing)

    def operators(self, thing: Any, shown: bool = False, changes: bool = False,
                  loop: bool = False) -> Value:
        """What operators and the functions of Python may call of an object of a user's class.

        `changes`: what an item is set or deleted with, which nothing else calls; `loop`: only what
        a loop over it calls.
        """
        kind = thing.kind if isinstance(thing, Created) else type(thing.value)
        if kind in (None, pure.TUPLE_GETTER, *pure.CONTAINERS) or pure.is_own(kind) \
                or issubclass(kind, BaseException) or kind.__module__ in ("enum", "abc"):
            return NOTHING
        key = "operators", thing, shown, changes, loop
        if key in self.active:
            return NOTHING
        self.active.add(key)
        loop = loop and any("__iter__" in vars(base) for base in kind.__mro__)
        found = self.operators_of(thing, kind, shown, changes, loop)
        self.active.discard(key)
        return found

    def operators_of(self, thing: Any, kind: type, shown: bool, changes: bool,
                     loop: bool) -> Value:
        """What the methods of a class give that operators call."""
        found: set[Any] = set()
        for base in kind.__mro__:
            if base.__module__ in ("builtins", "enum", "abc") or base is Tensor:
                continue
            if pure.is_open(base) and not pure.is_fixed(base.__module__):
                self.reads.note("names", base, "", base.__name__)
            for name, part in list(vars(base).items()):
                if not (name.startswith("__") and name.endswith("__")) or name in _NAMED \
                        and not (shown and name in _SHOWN) or not changes and name in _CHANGES \
                        or loop and name not in _LOOPING:
                    continue
                if isinstance(part, types.FunctionType) and part.__module__ == "enum":
                    continue  # of flags: what they give follows from their values
                if isinstance(part, types.FunctionType):
                    self.reads.note("own", base, name, f"{base.__name__}.{name}")
                    found |= self.call(self.intern(Bound, self.only(part, name), thing),
                                       [frozenset([thing])] * 1, {}, loose=True)
                elif isinstance(part, (types.WrapperDescriptorType, types.MethodDescriptorType)) \
                        and base.__module__ not in ("enum", "abc", "typing"):
                    return self.refuse(f"uses a {kind.__name__}, which is not followed",
                                       "use plain containers, or read it outside of the function")
        return frozenset(found)

    # Calls ---------------------------------------------------------------------------------

    def call(self, value: Value, args: Sequence[Value], kwargs: dict[str, Value],
             rest: Value = NONE, loose: bool = False) -> Value:
        """Call a value. `rest` may be any argument; with `loose` those given may be too."""
        if loose:
            rest, args = frozenset().union(rest, *args), ()
        found: set[Any] = set()
        for thing in value:
            found |= self.call_one(thing, args, kwargs, rest)
        return frozenset(found)

    def call_one(self, thing: Any, args: Sequence[Value], kwargs: dict[str, Value],
                 rest: Value) -> Value:
        """Call one thing."""
        if isinstance(thing, Bound):
            return self.call_one(thing.function, [frozenset([thing.owner]), *args], kwargs, rest)
        if isinstance(thing, Native):
            return self.call_native(thing, args, kwargs, rest)
        if isinstance(thing, Outcome):
            return self.computed([*args, *kwargs.values(), rest]) | (
                SIZES if isinstance(thing, SizeOutcome) else NOTHING)
        if isinstance(thing, Super):
            return self.given_away([*args, *kwargs.values(), rest], True) | NOTHING
        if isinstance(thing, Created):
            if thing.code is not None and thing.frame is not None:
                return self.enter(thing, thing.code, thing.frame.space, thing.frame.name,
                                  args, kwargs, rest | thing.defaults, {})
            if thing.kind is not None:
                return self.call(self.of_class(thing, thing.kind, "__call__"), args, kwargs, rest)
            self.given_away([*args, *kwargs.values(), rest])
            inner = frozenset(each for each in thing.contents if self.is_callable(each))
            return self.call(inner, [], {}, frozenset().union(
                rest, frozenset(thing.contents), *args, *kwargs.values())) if inner else NOTHING
        return self.call_outside(thing, args, kwargs, rest)

    def call_outside(self, thing: Outside, args: Sequence[Value], kwargs: dict[str, Value],
                     rest: Value) -> Value:
        """Call an object from outside."""
        value, path = thing.value, thing.path
        if not callable(value):
            return NOTHING
        captured = self.is_captured(value)
        if captured is not None:
            return self.call(self.wrap(captured, path), args, kwargs, rest)
        if isinstance(value, types.FunctionType):
            return self.call_function(thing, value, args, kwargs, rest)
        if isinstance(value, types.MethodType):
            return self.call(self.wrap(value.__func__, path),
                             [self.wrap(value.__self__, f"{path}.__self__"), *args], kwargs, rest)
        if type(value) is functools.partial:
            self.reads.note("parts", value.keywords, "", path)
            self.reads.note("attribute", value, "keywords", f"{path}.keywords")
            self.reads.note("attribute", value, "args", f"{path}.args")
            self.reads.note("attribute", value, "func", f"{path}.func")
            given = [self.wrap(each, path) for each in value.args]
            named = {key: self.wrap(each, path) for key, each in value.keywords.items()}
            return self.call(self.wrap(value.func, path), [*given, *args], {**named, **kwargs},
                             rest)
        if isinstance(value, staticmethod):
            return self.call(self.wrap(value.__func__, path), args, kwargs, rest)
        if isinstance(value, type):
            return self.call_class(thing, value, args, kwargs, rest)
        if value is getattr:
            return self.call_getattr(args)
        if value in (setattr, delattr):
            for target in args[0] if args else rest:
                self.write(target, args[2] if len(args) > 2 else rest, "an attribute of")
            return NOTHING
        if value is vars or value is dir:
            return self.attributes(args[0], "__dict__") if args else \
                self.refuse(f"calls {path}()", "name what is meant")
        if value is hasattr:
            return self.call_getattr(args) and NOTHING
        if pure.is_pure(value):
            return self.call_pure(value, path, args, kwargs, rest)
        if isinstance(value, types.BuiltinFunctionType) and not isinstance(
                value.__self__, (types.ModuleType, type, type(None))):
            return self.call_native(Native(self.only(value.__self__, path), value.__name__),
                                    args, kwargs, rest)
        if isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType,
                              types.WrapperDescriptorType)) \
                or not any(isinstance(vars(base).get("__call__"), types.FunctionType)
                           for base in type(value).__mro__):
            return self.not_followed(value, path)
        if pure.is_own(type(value)):
            return self.given_away([*args, *kwargs.values(), rest])
        return self.call(self.of_class(thing, type(value), "__call__", type(value).__mro__),
                         args, kwargs, rest)

    def not_followed(self, value: Any, path: str) -> Value:
        """Refuse a call of what is not written in Python, and not known to be pure."""
        home = getattr(value, "__module__", None) or type(value).__module__
        name = getattr(value, "__qualname__", type(value).__name__)
        if value is print or value is input:
            return self.refuse(f"calls {path}, which a replay would not do again",
                               "return the value, and print it outside of the function")
        return self.refuse(f"calls {home}.{name}, which may do something else each time",
                           "call it outside of the function, and pass the result as an argument")

    def call_function(self, thing: Outside, value: types.FunctionType, args: Sequence[Value],
                      kwargs: dict[str, Value], rest: Value) -> Value:
        """Call a function of Python."""
        if self.trust and value.__code__.co_filename.startswith(_PYTHON):
            return self.given_away([*args, *kwargs.values(), rest], calls=False)
        if not pure.is_followed(value.__code__):
            if value.__module__.startswith(("numpy.random", "impl.tensor.")) and \
                    ("seed" in value.__name__ or value is Tensor.set_rng_state):
                return self.refuse(f"calls {thing.path}", "seed outside of the function")
            if value.__module__.startswith("numpy") and not pure.is_pure(value):
                return self.not_followed(value, thing.path)
            wrapped = getattr(value, "__wrapped__", None)  # a function of ours that only checks
            if isinstance(wrapped, types.FunctionType) and pure.is_followed(wrapped.__code__):
                return self.call(self.wrap(wrapped, thing.path), args, kwargs, rest)
            inner = [self.wrap(cell.cell_contents, thing.path) for cell in value.__closure__ or ()
                     if _filled(cell)]
            return self.given_away([*args, *kwargs.values(), rest, *inner])
        if not pure.is_fixed(value.__module__ or ""):
            self.reads.note("code", value, "", thing.path)
        names = value.__code__.co_varnames[:value.__code__.co_argcount]
        last = value.__defaults__ or ()
        defaults = {name: self.wrap(each, f"the default of {name}") for name, each in
                    [*zip(names[len(names) - len(last):], last, strict=True),
                     *(value.__kwdefaults__ or {}).items()]}
        if value.__kwdefaults__:
            self.reads.note("parts", value.__kwdefaults__, "", f"defaults of {thing.path}")
        return self.enter(thing, value.__code__, value.__globals__, thing.path, args, kwargs,
                          rest, defaults, value.__closure__)

    def call_getattr(self, args: Sequence[Value]) -> Value:
        """`getattr(object, name)` with names that are known."""
        if len(args) < 2 or not args[0]:
            return NOTHING
        names = [each.value for each in args[1] if isinstance(each, Outside)]
        if self.is_unsure(args[1]):
            return self.refuse("reads an attribute whose name is computed",
                               "write object.name, or use a dict")
        found = frozenset().union(*args[2:])
        for name in names:
            found |= self.attributes(args[0], str(name))
        return found

    def call_class(self, thing: Outside, value: type, args: Sequence[Value],
                   kwargs: dict[str, Value], rest: Value) -> Value:
        """Make an object."""
        frame = self.frame
        if value is type and len(args) == 1:
            kinds = [type(each.value) if isinstance(each, Outside) else
                     each.kind if isinstance(each, Created) and each.kind else None
                     for each in args[0]]
            return frozenset().union(*[self.wrap(kind, kind.__name__) for kind in kinds if kind])
        if value is super:
            return self.call_super(args)
        if value in (property, staticmethod, classmethod) or value is type:
            return self.refuse(f"makes a {value.__name__}", "define it outside of the function")
        if issubclass(value, enum.Enum):
            return frozenset().union(*[self.wrap(each, thing.path) for each in value])
        if pure.is_own(value):
            self.given_away([*args, *kwargs.values(), rest])
            return NOTHING
        if pure.is_pure(value) and not (issubclass(value, BaseException) and any(
                isinstance(found_in(value.__mro__, name), types.FunctionType)
                for name in ("__init__", "__new__"))):
            return self.call_pure(value, thing.path, args, kwargs, rest)
        if value.__module__ in ("builtins",) or type(value) not in (type, abc.ABCMeta):
            return self.refuse(f"makes a {value.__module__}.{value.__qualname__}",
                               "make it outside of the function")
        assert frame is not None
        made = frame.site((frame.line, "object"), value)
        self.put(made.contents, frozenset().union(rest, *args, *kwargs.values()))
        for name in ("__new__", "__init__"):
            start = found_in(value.__mro__, name)
            function = start.__func__ if isinstance(start, staticmethod) else start
            if name == "__new__" and is_library(getattr(
                    getattr(function, "__code__", None), "co_filename", "")):
                continue  # of a layer of ours: it notes a text for `__repr__`, no more
            if isinstance(function, types.FunctionType):
                self.reads.note("method", value, name, f"{thing.path}.{name}")
                first = frozenset([thing]) if name == "__new__" else frozenset([made])
                self.put(made.contents, self.call(self.wrap(function, f"{thing.path}.{name}"),
                                                  [first, *args], kwargs, rest))
            elif name == "__new__" and start is not object.__new__ and not pure.is_pure(function) \
                    and not any(
                        base in (list, dict, set, tuple, BaseException) for base in value.__mro__):
                return self.refuse(f"makes a {value.__qualname__}",
                                   "make it outside of the function")
        return frozenset([made])

    def is_of_object(self, owner: Any) -> bool:
        """Whether `__new__` of a class, found by super(), is the one of `object`."""
        kind = getattr(owner, "value", None)
        return kind is object or isinstance(kind, type) and pure.is_open(kind) and not issubclass(
            kind, (*pure.PLAIN, *pure.CONTAINERS, BaseException, type))

    def call_new(self, args: Sequence[Value]) -> Value:
        """A new object of a class, with nothing in it."""
        frame = self.frame
        assert frame is not None
        return frozenset([frame.site((frame.line, "object"), each.value)
                          for each in (args[0] if args else ())
                          if isinstance(each, Outside) and isinstance(each.value, type)])

    def call_super(self, args: Sequence[Value]) -> Value:
        """`super()`."""
        frame = self.frame
        assert frame is not None
        if args:
            classes, owners = args[0], args[1] if len(args) > 1 else NOTHING
        else:
            classes = self.box_contents(frame, "__class__")
            first = frame.code.co_varnames[0] if frame.code.co_argcount else ""
            owners = frozenset(frame.locals.get(first, ())) | self.box_contents(frame, first)
        found: Value = NOTHING
        for each in classes:
            for owner in owners:
                if isinstance(each, Outside) and is_of_class(owner, each.value):
                    found |= self.intern(Super, each.value, owner)
        return found

    def call_pure(self, function: Any, path: str, args: Sequence[Value],
                  kwargs: dict[str, Value], rest: Value) -> Value:
        """Call what depends on its arguments only: the result may hold any part of them."""
        if "out" in kwargs and any(isinstance(each, Outside) for each in kwargs["out"]):
            return self.refuse(f"writes what {path} gives into an array from outside",
                               "return the value")
        if function is object.__new__:
            return self.call_new(args)
        if function is id and any(not isinstance(each, Outside) for each in args[0]):
            # What is made here lies elsewhere at each call. Its number matters to whoever asks
            # for more than whether two things are one, and nobody does of what lives so short.
            return NOTHING
        if function is next:
            for each in args[0] if args else ():
                if isinstance(each, Outside) and hasattr(type(each.value), "__next__"):
                    return self.refuse(f"takes the next part of {each.path}, an iterator from "
                                       "outside",
                                       "take it outside of the function")
        if function not in _BLIND:
            self.count(frozenset().union(rest, *args, *kwargs.values()))
        if function in (isinstance, issubclass):
            for each in frozenset().union(rest, *args[1:]):
                self.checks(each)
            return NOTHING
        if function in (callable, len):
            for each in frozenset().union(rest, *args[:1]):
                self.elements(each)
            return SIZES if function is len else NOTHING
        own = NONE
        if function is collections.defaultdict and args:  # what it makes itself is in it
            own, args = self.call(args[0], [], {}), args[1:]
        shown = function in _SHOWING or pure.is_of_numpy(function)
        if function not in _BLIND or function is iter and len(args) > 1:
            self.call_objects([*args, *kwargs.values(), rest])
        result = self.given_away([*args, *kwargs.values(), rest], shown,
                                 calls=function not in (str, repr, hash))
        if pure.is_of_numpy(function) and any(map(_is_of_user, result)):
            return self.refuse(f"gives an object to {path}, which may use any method of it",
                               "give it an array")
        frame = self.frame
        assert frame is not None
        made = frame.site((frame.line, path))
        made.named = function not in _BLIND and isinstance(function, type)
        self.put(made.contents, result | own)
        if result or own:
            self.put(made.contents, [made])
        return result | {made}

    def given_away(self, values: Iterable[Value], shown: bool = False,
                   calls: bool = True) -> Value:
        """What a function that is not followed may do with what it is given: look through all of
        it, call its functions, and give back any part.
        """
        given = frozenset().union(*values)
        key = given, shown, calls
        rounds, stamp, known = self.known.get(key, (-1, -1, NONE))
        if stamp != self.stamp and rounds == self.rounds:
            self.late = True  # the next round looks again: there is one, as something was found
        elif stamp != self.stamp:
            started = self.stamp
            known = self.looked_through(given, shown, calls)
            self.known[key] = self.rounds, started, known
        return known

    def computed(self, values: Iterable[Value]) -> Value:
        """What a method of a tensor, a number or a text gives: something that is computed, or what
        the functions that it is given return.
        """
        found = self.given_away(values, True)
        objects = self.call_objects([found])
        return found | objects if objects or any(map(self.is_callable, found)) \
            else NOTHING | found & SIZES

    def checks(self, thing: Any) -> None:
        """What `isinstance` asks of a class."""
        if not isinstance(thing, (Outside, Created)):
            return
        kind = type(thing.value) if isinstance(thing, Outside) else thing.kind
        if isinstance(thing, Created) or not issubclass(kind, type):
            for each in self.elements(thing):
                if each is not thing:
                    self.checks(each)
        elif kind is abc.ABCMeta:
            self.reads.note("answer", abc.get_cache_token, "", "the classes that are registered")
        elif any(isinstance(getattr(kind, name), types.FunctionType)
                 for name in ("__instancecheck__", "__subclasscheck__")):
            if kind.__module__ == "typing":
                self.refuse(f"asks for {thing.path}, a protocol", "ask for a class")
            self.operators(thing)

    def call_objects(self, values: Iterable[Value]) -> Value:
        """Call the objects among some things that are no functions, but can be called."""
        result = NONE
        given = frozenset().union(*values)
        for thing in given:
            called = thing.value if isinstance(thing, Outside) else None
            if isinstance(called, (str, type(None))):
                continue
            if any(called is each for each in _NAMING):
                self.refuse(f"gives {called.__name__} to another function", "call it here")
            elif any(called is each for each in _SHOWING):
                self.given_away([given], True)
            elif isinstance(called, types.BuiltinFunctionType) and not pure.is_pure(called) \
                    and isinstance(called.__self__, (types.ModuleType, type(None))):
                self.not_followed(called, thing.path)
            kind = thing.kind if isinstance(thing, Created) else \
                type(thing.value) if isinstance(thing, Outside) else None
            if kind is None or pure.is_own(kind) or thing in self.active or issubclass(kind, type):
                continue
            if any(isinstance(vars(base).get("__call__"), types.FunctionType)
                   for base in kind.__mro__):
                self.active.add(thing)
                result |= self.call(frozenset([thing]), [], {},
                                    self.given_away([given], calls=False)) | NOTHING
                self.active.discard(thing)
        return result

    def looked_through(self, given: Value, shown: bool, calls: bool) -> Value:
        """All that is in some things, and what calls of their functions give."""
        found: set[Any] = set()
        waiting = set(given)
        while waiting:
            thing = waiting.pop()
            found.add(thing)
            if shown and (isinstance(thing, Outcome) or isinstance(thing, Outside)
                          and isinstance(thing.value, np.ndarray)):
                self.reads.note("answer", np.get_printoptions, "", "numpy.get_printoptions()")
            if thing.__class__ is Outcome or thing.__class__ is Outside and thing.single:
                continue
            waiting |= self.elements(thing) - found  # most is known: sets are fast
            if shown and isinstance(thing, (Created, Outside)) and (
                    isinstance(thing, Outside) or thing.kind):
                value = getattr(thing, "value", None)
                if not pure.is_plain(value) and type(value) is not types.ModuleType \
                        or value is None:
                    self.operators(thing, True)
        if calls:
            rest = frozenset(found)
            for thing in [each for each in found if self.is_callable(each)]:
                if thing not in self.active:  # a function that is given itself is called once
                    self.active.add(thing)
                    found |= self.call(frozenset([thing]), [], {}, rest)
                    self.active.discard(thing)
        return frozenset(found)

    def count(self, value: Value) -> None:
        """Python makes a number of a value: if that is a size, it is the same only at this one."""
        # r[impl replay.sizes.value]
        self.reads.counted |= any(isinstance(each, SizeOutcome) for each in value)

    def is_callable(self, thing: Any) -> bool:
        """Whether it is a function that others may call."""
        if isinstance(thing, Outside):
            if thing.called is None:
                thing.called = self.is_callable_outside(thing.value)
            return thing.called
        if isinstance(thing, Native):
            return isinstance(thing.owner, Outside)
        return isinstance(thing, Bound) or isinstance(thing, Created) and thing.code is not None

    def is_callable_outside(self, value: Any) -> bool:
        """The same of an object that was there before the call."""
        if isinstance(value, types.FunctionType) and not value.__closure__:
            return pure.is_followed(value.__code__)
        if isinstance(value, types.BuiltinFunctionType):
            return not isinstance(value.__self__, (types.ModuleType, type, type(None)))
        return isinstance(value, _FUNCTIONS) or self.is_captured(value) is not None

    def call_native(self, thing: Native, args: Sequence[Value], kwargs: dict[str, Value],
                    rest: Value) -> Value:
        """Call a method that is not written in Python."""
        owner, name = thing.owner, thing.name
        given = frozenset().union(rest, *args, *kwargs.values())
        if name in _FORMATS and (not isinstance(owner, Created) or owner.kind is None):
            return self.call_format(owner, given)
        if name == "__new__" and self.is_of_object(owner):
            return self.call_new(args)
        if name == "__getattribute__":
            return self.call_getattr(args if isinstance(getattr(owner, "value", None), type)
                                     else [frozenset([owner]), *args])
        if name in _WHOLE:
            return self.refuse(f"calls {name}, which reads all of an object", "name what is meant")
        if isinstance(owner, Outside):
            value = owner.value
            if isinstance(value, type) and not pure.is_own(value):
                if value.__module__ == "builtins" and name in pure.CHANGING or name in (
                        "__setattr__", "__delattr__"):
                    for each in args[0] if args else rest:
                        self.write(each, given, "the contents of")
                return self.given_away([given])
            if isinstance(value, Tensor):
                return self.computed([given]) | {owner}
            if pure.is_own(type(value)) or isinstance(value, type):
                if name == "manual_seed":
                    return self.refuse(f"calls {owner.path}.{name}",
                                       "seed outside of the function")
                return self.given_away([given])
            if name in pure.CHANGING or isinstance(value, collections.defaultdict) \
                    and name in ("__getitem__", "__missing__"):
                return self.refuse(f"changes {owner.path}, which is outside, by .{name}()",
                                   "return the value, or keep it in a Tensor that is assigned to")
            if isinstance(value, (*pure.MEMORY, *pure.PLAIN)):
                return self.computed([given])
            if name == "get" and is_container(value) and args and not self.is_unsure(args[0]):
                return self.item(owner, args[0], True) | frozenset().union(*args[1:])
            if is_container(value) or isinstance(value, pure.CONTAINERS):
                return self.parts_of(self.elements(owner) | self.given_away([given]), name)
            return self.refuse(f"calls {owner.path}.{name}, which may do something else each time",
                               "call it outside of the function")
        if isinstance(owner, Created):
            self.put(owner.contents, given)
            if name == "throw":
                self.put(self.raised.contents, given)
            if name not in ("append", "appendleft", "insert"):  # compared, or gone through
                self.given_away([given, frozenset(owner.contents)], calls=False)
            inner = self.given_away([given]) if name in ("sort", "__init__", "map") else NOTHING
            return frozenset(owner.contents) | {owner} | inner
        return NOTHING

    def call_format(self, owner: Any, given: Value) -> Value:
        """`text.format(...)`: a field such as `{.name}` reads an attribute."""
        text = getattr(owner, "value", None)
        found = self.given_away([given], True)
        if not isinstance(text, str) or _FIELDS.search(text):
            for thing in found:
                if isinstance(thing, Created) and thing.kind or isinstance(thing, Outside) \
                        and not pure.is_plain(thing.value) and not is_container(thing.value):
                    return self.refuse("formats attributes that are named in a text",
                                       "write f'{object.name}'")
        return NOTHING

    def parts_of(self, parts: Value, name: str) -> Value:
        """A container of some parts, such as `items()` gives."""
        frame = self.frame
        assert frame is not None
        made = frame.site((frame.line, name))
        self.put(made.contents, parts)
        self.put(made.contents, [made])
        return parts | {made}

    def enter(self, thing: Any, code: types.CodeType, space: dict[str, Any], path: str,
              args: Sequence[Value], kwargs: dict[str, Value], rest: Value,
              defaults: dict[str, Value],
              closure: Sequence[types.CellType] | None = None) -> Value:
        """Give a function its arguments; what it has returned so far."""
        frame = self.frames.get(thing)
        if frame is None:
            frame = self.frames[thing] = Entered(code, space, path)
            self.changed = True
            self.stamp += 1
            if isinstance(thing, Created):
                frame.boxes = dict.fromkeys(code.co_freevars, thing.frame)
            else:
                frame.boxes = dict(zip(code.co_freevars, closure or (), strict=True))
        count, named = code.co_argcount, code.co_kwonlyargcount
        names = code.co_varnames
        more = bool(code.co_flags & inspect.CO_VARARGS)
        for number, value in enumerate(args):
            if number < count:
                self.put(frame.locals.setdefault(names[number], set()), value)
            elif more:
                self.star(frame, names[count + named], value)
        for key, value in kwargs.items():
            if key in names[:count + named]:
                self.put(frame.locals.setdefault(key, set()), value)
            elif code.co_flags & inspect.CO_VARKEYWORDS:
                self.star(frame, names[count + named + more], value)
        for number, key in enumerate(names[:count + named]):
            if number >= len(args) and key not in kwargs:
                self.put(frame.locals.setdefault(key, set()), defaults.get(key, NONE) | rest)
        if more:
            self.star(frame, names[count + named], rest)
        if code.co_flags & inspect.CO_VARKEYWORDS:
            self.star(frame, names[count + named + more], rest)
        if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            return self.refuse(f"calls {path}, which is asynchronous", "use a plain function")
        if code.co_flags & inspect.CO_GENERATOR:
            made = frame.site("generator")
            self.put(made.contents, frame.returned)
            return frozenset([made])
        return frozenset(frame.returned)

    def star(self, frame: Entered, name: str, value: Value) -> None:
        """Put an argument into `*args` or `**kwargs`."""
        made = frame.site(("star", name))
        self.put(made.contents, value)
        self.put(frame.locals.setdefault(name, set()), [made])

    # Writing -------------------------------------------------------------------------------

    def write(self, thing: Any, value: Value, what: str, name: str = "") -> None:
        """Something is put into a thing."""
        if isinstance(thing, Created):
            self.put(thing.contents, value)
            if thing.kind is not None and name:
                self.setter(thing, thing.kind, name, value)
        elif isinstance(thing, Outside):
            held = thing.value
            if isinstance(held, Tensor) and type(held) is Tensor:
                return  # seen in the capture itself
            if name and (pure.is_plain(held) or is_container(held) or name == "__traceback__"
                         and not isinstance(held, BaseException)):
                return  # they have no attributes: an error, and no change
            if name and not isinstance(held, (type, types.ModuleType)) \
                    and self.setter(thing, type(held), name, value):
                return
            if isinstance(held, (*pure.PLAIN, tuple, types.FunctionType)) and not name:
                return
            if name and name in getattr(held, "__dict__", ()) and not isinstance(held, type) \
                    and not hasattr(type(found_in(type(held).__mro__, name)), "__set__") \
                    and self.is_kept(value, "attribute", held, name, f"{thing.path}.{name}"):
                return
            shown = f"{thing.path}.{name}" if name else f"{what} {thing.path}".strip()
            self.refuse(f"changes {shown}, which is outside; a replay would not do it again",
                        "return the value, or keep it in a Tensor that is assigned to")

    def is_kept(self, value: Value, kind: str, owner: Any, key: str, path: str) -> bool:
        """Whether what is written to a place outside may be left out of a replay, since the place,
        in which a number, a text or the like was, holds the same after the call as before it.

        That is seen in the capture (see `Reads.written`). Reads of the place give what it held, or
        what is written.
        """
        # r[impl replay.reads.followed]
        held = self.reads.note(kind, owner, key, path)
        if not pure.is_plain(held) or not all(
                isinstance(each, Outcome) or isinstance(each, Outside)
                and pure.is_plain(each.value) for each in value):
            return False
        space = owner if kind == "item" else vars(owner)
        self.put(self.written.setdefault(id(space), {}).setdefault(key, set()), value)
        self.reads.written[kind, id(owner), key] = self.reason(
            f"changes {path}, which is outside; a replay would not do it again",
            "return the value, or keep it in a Tensor that is assigned to")
        return True

    def written_to(self, space: Any, name: str | None = None) -> Value:
        """What is written to a place of the names of an object or a module; or to any of them."""
        found = self.written.get(id(space), {})
        return frozenset().union(*found.values()) if name is None else \
            frozenset(found.get(name, ()))

    def setter(self, thing: Any, kind: type, name: str, value: Value) -> bool:
        """Call what a class has to set an attribute; whether there is something."""
        found = found_in(kind.__mro__, name)
        if isinstance(found, property) and isinstance(found.fset, types.FunctionType):
            self.reads.note("attribute", kind, name, f"{kind.__name__}.{name}")
            self.call(self.intern(Bound, self.only(found.fset, name), thing), [value], {})
            return True
        setting = kind.__setattr__
        if isinstance(setting, types.FunctionType) and pure.is_followed(setting.__code__):
            self.reads.note("method", kind, "__setattr__", f"{kind.__name__}.__setattr__")
            self.call(self.intern(Bound, self.only(setting, "__setattr__"), thing),
                      [self.wrap(name, name), value], {})
            return True
        return False

    # Instructions --------------------------------------------------------------------------

    def box_contents(self, frame: Entered, name: str) -> Value:
        """What a cell may hold."""
        box = frame.boxes.get(name)
        if isinstance(box, types.CellType):
            held = self.reads.note("cell", box, "", name)
            return NOTHING if held is MISSING else self.wrap(held, name)
        owner = frame if box is None else box
        if owner is not frame and name in owner.boxes:
            return self.box_contents(owner, name)
        return frozenset(owner.locals.get(name, ()))

    def is_unsure(self, value: Value) -> bool:
        """Whether a value may be something that is computed: not one of some known constants."""
        return not all(isinstance(each, Outside) and pure.is_plain(each.value)
                       for each in value)

    def interpret(self, frame: Entered) -> None:
        """Go through the instructions of a function once, in their order."""
        if frame.stamp == self.stamp:  # nothing is new since it was looked at
            return
        self.frame, self.late, started = frame, False, self.stamp
        frame.states.setdefault(0, [])
        stack: list[Value] | None = None
        for place, instruction in enumerate(frame.instructions):
            if self.reads.reasons and not self.trust:
                break
            frame.line = getattr(instruction, "line_number", instruction.starts_line) or frame.line
            offset = instruction.offset
            waiting = frame.states.get(offset)
            if waiting is not None:
                stack = self.joined(stack, waiting)
            if stack is None:
                continue
            if instruction.is_jump_target or offset == 0:
                self.join(frame, offset, stack)
            for handler in frame.handlers:
                if handler.start <= offset < handler.end:
                    self.join(frame, handler.target, [
                        *stack[:handler.depth], *([NOTHING] if handler.lasti else []),
                        self.caught()])
            following = frame.instructions[place + 1].offset \
                if place + 1 < len(frame.instructions) else -1
            stack = self.step(self, frame, instruction, list(stack), following)
        self.frame = None
        frame.stamp = self.stamp if started == self.stamp and not self.late else -1

    def caught(self) -> Value:
        """What a handler gets: an exception of Python, or any that was raised."""
        return NOTHING | {self.raised} | self.raised.contents

    @staticmethod
    def joined(first: list[Value] | None, second: list[Value]) -> list[Value]:
        """What a stack may hold where two ways meet."""
        if first is None:
            return list(second)
        return [a | b for a, b in zip(first, second, strict=False)]

    def join(self, frame: Entered, offset: int, stack: list[Value]) -> None:
        """A stack comes to a place."""
        known = frame.states.get(offset)
        found = list(stack) if known is None else self.joined(known, stack)
        if found != known:
            frame.states[offset] = found
            self.changed = True
            self.stamp += 1


def is_of_class(thing: Any, kind: type) -> bool:
    """Whether `super()` in a method of a class may be asked for a thing: an object of it, or a
    class that comes from it.
    """
    held = thing.value if isinstance(thing, Outside) else None
    found = thing.kind if isinstance(thing, Created) else \
        held if isinstance(held, type) and issubclass(held, kind) else type(held)
    return isinstance(thing, (Created, Outside)) and found is not None and issubclass(found, kind)


def _is_of_user(thing: Any) -> bool:
    """Whether it is an object of a user's class, and none of Python's containers."""
    kind = thing.kind if isinstance(thing, Created) else \
        type(thing.value) if isinstance(thing, Outside) else None
    return kind is not None and pure.is_open(kind) and not pure.is_own(kind) and not issubclass(
        kind, (type, enum.Enum, *pure.PLAIN, *pure.CONTAINERS))


def found_in(order: Iterable[type], name: str) -> Any:
    """What the first of some classes that has a name has by it."""
    return next((vars(each)[name] for each in order if name in vars(each)), MISSING)


def _computes(found: Any) -> bool:
    """Whether what a class has by a name is an object that computes what is got by it."""
    return found is not MISSING and hasattr(type(found), "__get__") and isinstance(
        type(found).__get__, types.FunctionType)


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not MISSING
    except ValueError:
        return False


__all__ = ["Following", "code_of", "form_of"]
