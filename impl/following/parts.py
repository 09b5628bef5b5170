"""What is in things, and what others may do with them: go through them, and call them; see
`following`.
"""
from __future__ import annotations

import abc
import collections
import enum
import functools
import types
import typing
from collections.abc import Iterable
from typing import Any

from impl.following import pure
from impl.following.attributes import Attributes
from impl.following.reads import (
    MISSING,
    is_container,
)
from impl.following.things import (
    NONE,
    NOTHING,
    SHOWING,
    SIZES,
    Bound,
    Created,
    Native,
    Outcome,
    Outside,
    SizeOutcome,
    Value,
    found_in,
)
from impl.host import np, print_options
from impl.tensor import Tensor

#: Methods that no operation calls, but by name.
_NAMED = frozenset((
    "__init__", "__new__", "__del__", "__init_subclass__", "__class_getitem__", "__setattr__",
    "__getattr__", "__getattribute__", "__delattr__", "__repr__", "__str__", "__format__",
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__",
    "__dir__", "__sizeof__", "__call__", "__set_name__", "__subclasshook__", "__prepare__",
    "__replace__", "__annotate__", "__getnewargs__", "__getnewargs_ex__"))
#: Functions of Python that look for an attribute by its name, or ask for a class.
_NAMING = (getattr, hasattr, setattr, delattr, vars, dir, isinstance, issubclass)
_SHOWN = ("__repr__", "__str__", "__format__")
#: What changes an object, and nothing calls that does not say so: `a[k] = v`, `a |= b`.
_CHANGES = frozenset(("__setitem__", "__delitem__", *(f"__i{name}__" for name in (
    "add sub mul matmul truediv floordiv mod pow lshift rshift and xor or concat").split())))
_LOOPING = ("__iter__", "__next__")
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
#: What makes a text of an exception, and reads its arguments only.
_OF_ARGUMENTS: list[Any] = [BaseException.__str__, KeyError.__str__]
#: Classes of what stands for one of some classes: `A | B`, `Union[A, B]`.
_UNIONS = (types.UnionType, type(typing.Optional["int"]))


class Parts(Attributes):
    """Parts of things."""

    def elements(self, thing: Any, loop: bool = False) -> Value:
        """The elements of a thing."""
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
        """The elements of an object from outside."""
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
        if pure.home_of(type(value)) == "builtins" and type(value) is not object:
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

        `changes`: what an item is set or deleted with, and `|=`, which nothing else calls; `loop`:
        only what a loop over it calls.
        """
        kind = thing.kind if isinstance(thing, Created) else type(thing.value)
        if kind in (None, pure.TUPLE_GETTER, *pure.CONTAINERS) or pure.is_own(kind) \
                or pure.home_of(kind) in ("enum", "abc"):
            return NOTHING
        if issubclass(kind, BaseException):  # r[impl following.exceptions.methods]
            self.told(thing, kind, shown)
        key = "operators", thing, shown, changes, loop
        if key in self.active:
            return NOTHING
        self.active.add(key)
        loop = loop and any("__iter__" in vars(base) for base in kind.__mro__)
        found = self.operators_of(thing, kind, shown, changes, loop)
        self.active.discard(key)
        return found

    def told(self, thing: Any, kind: type, shown: bool) -> None:
        """What an exception from outside carries, which is in its text."""
        if not isinstance(thing, Outside):
            return
        text = found_in(kind.__mro__, "__str__")
        if shown and text not in _OF_ARGUMENTS and not isinstance(text, types.FunctionType):
            self.refuse(f"makes a text of {thing.path}, a {kind.__name__}",
                        "make it outside of the function")
        self.elements(self.only(self.reads.note("attribute", thing.value, "args",
                                                f"{thing.path}.args"), thing.path))

    def operators_of(self, thing: Any, kind: type, shown: bool, changes: bool,
                     loop: bool) -> Value:
        """The results of the methods of a class that operators call."""
        found: set[Any] = set()
        for base in kind.__mro__:
            home = pure.home_of(base)
            if home in ("builtins", "enum", "abc") or base is Tensor:
                continue
            if base is types.SimpleNamespace:  # compared, and shown, by all of its attributes
                found |= self.elements(self.only(vars(thing.value), thing.path)) \
                    if isinstance(thing, Outside) else thing.contents
                continue
            if pure.is_open(base) and not pure.is_fixed(home):
                self.reads.note("names", base, "", base.__name__)
            for name, part in list(vars(base).items()):
                if not (name.startswith("__") and name.endswith("__")) \
                        and not _gives_keys(kind, name, part) or name in _NAMED \
                        and not (shown and name in _SHOWN) or not changes and name in _CHANGES \
                        or loop and name not in _LOOPING:
                    continue
                if isinstance(part, types.FunctionType) and pure.module_of(part) == "enum":
                    continue  # of flags: what they give follows from their values
                if isinstance(part, types.FunctionType):
                    self.reads.note("own", base, name, f"{base.__name__}.{name}")
                    found |= self.call(self.intern(Bound, self.only(part, name), thing),
                                       [frozenset([thing])] * 1, {}, loose=True)
                elif _is_called(part):  # of another sort than a plain method
                    found |= self.call(self.bound(thing, kind, name, part,
                                                  f"{base.__name__}.{name}", False),
                                       [frozenset([thing])], {}, loose=True)
                elif isinstance(part, (types.WrapperDescriptorType, types.MethodDescriptorType)) \
                        and home not in ("enum", "abc", "typing"):
                    return self.refuse(f"uses a {kind.__name__}, which is not followed",
                                       "use plain containers, or read it outside of the function")
        return frozenset(found)

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
        found = self.handed(values, True)
        return found if any(map(self.is_callable, found)) or self.call_objects([found]) \
            else NOTHING | found & SIZES

    def handed(self, values: Iterable[Value], shown: bool = False) -> Value:
        """What a function of this library gives back, that may call what it is given: functions,
        objects, and what these return.
        """
        # r[impl following.given.returned]
        found = self.given_away(values, shown)
        while not (objects := self.call_objects([found])) <= found:
            found |= self.given_away([found | objects], shown)
        return found

    def checks(self, thing: Any) -> None:
        """What `isinstance` asks of a class."""
        # r[impl following.checks.class]
        if not isinstance(thing, (Outside, Created)):
            return
        kind = type(thing.value) if isinstance(thing, Outside) else thing.kind
        if isinstance(thing, Outside) and kind in _UNIONS:
            for each in thing.value.__args__:
                self.checks(self.only(each, thing.path))
        elif isinstance(thing, Created) or not issubclass(kind, type):
            for each in self.elements(thing):
                if each is not thing:
                    self.checks(each)
        elif kind is not type:
            if issubclass(kind, abc.ABCMeta):
                self.registered()
            if issubclass(kind, type(typing.Protocol)):
                self.refuse(f"asks for {thing.path}, a protocol", "ask for a class")
            hook = found_in(thing.value.__mro__, "__subclasshook__")
            code = getattr(getattr(hook, "__func__", hook), "__code__", None)
            if code is not None and not pure.is_of_python(code.co_filename):
                self.refuse(f"asks for {thing.path}, which has a __subclasshook__ of its own",
                            "ask for a class")
            self.operators(thing)

    def registered(self) -> None:
        """Which classes are taken for those of an abstract one, is asked for."""
        self.reads.note("answer", abc.get_cache_token, "", "the classes that are registered")

    def asked(self, value: Value) -> None:
        """What is asked of objects where it is asked which class they are of."""
        for thing in value:  # r[impl following.checks.class]
            kind = thing.kind if isinstance(thing, Created) else \
                type(thing.value) if isinstance(thing, Outside) else None
            if kind is not None and pure.is_open(kind) and not issubclass(kind, (type, Tensor)):
                self.attribute(thing, "__class__")

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
            elif any(called is each for each in SHOWING):
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
                self.reads.note("answer", print_options(), "", "numpy.get_printoptions()")
            if thing.__class__ is Outcome or thing.__class__ is Outside and thing.single:
                continue
            waiting |= self.elements(thing) - found  # most is known: sets are fast
            if shown and isinstance(thing, (Created, Outside)) and (
                    isinstance(thing, Outside) or thing.kind):
                value = getattr(thing, "value", None)
                if not pure.is_plain(value) and type(value) is not types.ModuleType \
                        or value is None:
                    self.operators(thing, True)
        if not calls:
            return frozenset(found)
        rest, made = frozenset(found), NONE
        for thing in [each for each in found if self.is_callable(each)]:
            if thing not in self.active:  # a function that is given itself is called once
                self.active.add(thing)
                made |= self.call(frozenset([thing]), [], {}, rest)
                self.active.discard(thing)
        # r[impl following.given.returned]: what they return may be called too
        return rest | made if made <= rest else rest | self.given_away([rest | made], shown)

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

    def not_followed(self, value: Any, path: str) -> Value:
        """Refuse a call of what is not written in Python, and not known to be pure."""
        home = getattr(value, "__module__", None) or type(value).__module__
        name = getattr(value, "__qualname__", type(value).__name__)
        if value is print or value is input:
            return self.refuse(f"calls {path}, which a replay would not do again",
                               "return the value, and print it outside of the function")
        return self.refuse(f"calls {home}.{name}, which may do something else each time",
                           "call it outside of the function, and pass the result as an argument")


def _gives_keys(kind: type, name: str, part: Any) -> bool:
    """Whether it is what `dict(thing)` and `{**thing}` ask for the keys."""
    return name == "keys" and found_in(kind.__mro__, "__getitem__") is not MISSING \
        and not pure.is_of_python(getattr(getattr(part, "__code__", None), "co_filename", ""))


def _is_called(part: Any) -> bool:
    """Whether a class has by the name of a special method what is no plain function, and calls
    code of Python: `__bool__ = property(...)`, or an object that can be called.
    """
    if isinstance(part, (*_FUNCTIONS, property, staticmethod, classmethod)):
        return True
    kind = type(part)
    return pure.is_open(kind) and not pure.is_own(kind) and any(
        isinstance(vars(base).get(name), types.FunctionType) for base in kind.__mro__
        for name in ("__get__", "__call__"))
