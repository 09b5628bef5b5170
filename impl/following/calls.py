"""Calls of things, and their results; see `following`."""
from __future__ import annotations

import abc
import collections
import enum
import functools
import inspect
import math
import os
import re
import types
from collections.abc import Sequence
from typing import Any

from impl.errors import is_library
from impl.following import pure
from impl.following.attributes import always_raises
from impl.following.parts import Parts
from impl.following.reads import (
    MISSING,
    is_container,
)
from impl.following.things import (
    FLOATS,
    FORMATS,
    NONE,
    NOTHING,
    SHOWING,
    SIZES,
    Bound,
    Created,
    Entered,
    Native,
    Outcome,
    Outside,
    SizeOutcome,
    Super,
    Value,
    found_in,
)
from impl.tensor import Tensor

_PYTHON = os.path.dirname(os.__file__) + os.sep
#: Functions of Python that see nothing of a size but what is noted of it.
_BLIND = (isinstance, issubclass, callable, len, tuple, list, zip, enumerate, iter, reversed, next,
          slice, id, bool, type)
#: What gives a float, whatever it is given.
_FLOATS = (float, *(getattr(math, name) for name in dir(math) if not name.startswith((
    "_", "is", "floor", "ceil", "trunc", "gcd", "lcm", "comb", "perm", "factorial"))
    and callable(getattr(math, name))))
#: Functions of Python whose result is new, whatever is in it.
_NEW = (list, dict, set, sorted, zip, enumerate)
#: Methods of any object that read all of its attributes.
_WHOLE = frozenset(("__reduce__", "__reduce_ex__", "__getstate__", "__dir__", "__sizeof__",
                    "__subclasses__"))
#: What says where random numbers are, or has them begin elsewhere; and what to do instead.
_DRAWN = {**dict.fromkeys(("manual_seed", "set_rng_state"), "seed outside of the function"),
          "get_rng_state": "read it outside of the function, and pass it as an argument"}
#: A field of a text that names an attribute.
_FIELDS = re.compile(r"{[^{}:!]*\.")


class Calls(Parts):
    """Calls: effects and results."""

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
                self.call_setattr(target, args[1] if len(args) > 1 else rest,
                                  args[2] if len(args) > 2 else rest, value is delattr)
            return NOTHING
        if value is dir and args:
            return self.call_dir(args[0])
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

    def call_function(self, thing: Outside, value: types.FunctionType, args: Sequence[Value],
                      kwargs: dict[str, Value], rest: Value) -> Value:
        """Call a function of Python."""
        if value.__code__ in pure.REPEATING:
            value = pure.shown_once(value)
            thing = self.only(value, thing.path)
        if self.trust and value.__code__.co_filename.startswith(_PYTHON):
            return self.given_away([*args, *kwargs.values(), rest], calls=False)
        if not pure.is_followed(value.__code__):
            home = pure.module_of(value)
            if home.startswith(("numpy.random", "impl.tensor.")) and \
                    ("seed" in value.__name__ or value.__name__ in _DRAWN):
                return self.refuse(f"calls {thing.path}",
                                   _DRAWN.get(value.__name__, _DRAWN["manual_seed"]))
            if home.startswith("numpy") and not pure.is_pure(value):
                return self.not_followed(value, thing.path)
            wrapped = getattr(value, "__wrapped__", None)  # a function of ours that only checks
            if isinstance(wrapped, types.FunctionType) and pure.is_followed(wrapped.__code__):
                found = self.call(self.wrap(wrapped, thing.path), args, kwargs, rest)
                return found if is_library(wrapped.__code__.co_filename) \
                    else self.handed([found])  # the way back of `custom_gradient` is called
            rest |= self.call_back(args[0] if args else NONE, [*args, *kwargs.values(), rest])
            if home.startswith(("impl.tensor.", "impl.torch")):
                # methods of tensors, as functions
                return self.computed([*args, *kwargs.values(), rest])
            cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            if any(pure.home_of(type(each)).startswith("impl.transforms") for each in cells):
                # r[impl replay.state.parted]: it has values that no tensor holds
                return self.refuse(f"calls {thing.path}, which knows what tensors were when it "
                                   "was made", "make it inside of the function")
            inner = [self.wrap(each, thing.path) for each in cells]
            return self.handed([*args, *kwargs.values(), rest, *inner])
        if not pure.is_fixed(pure.module_of(value)):
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

    def call_back(self, owners: Value, given: Sequence[Value]) -> Value:
        """What a method of this library may call of the user's class that it is inherited by:
        `forward` and `backward` of a `Function`.
        """
        # r[impl following.given.inherited]
        found, frame = NONE, self.frame
        for thing in owners:
            kind = thing.kind if isinstance(thing, Created) else thing.value if isinstance(
                getattr(thing, "value", None), type) else type(getattr(thing, "value", None))
            if frame is None or kind is None or not pure.is_open(kind) or pure.is_own(kind) \
                    or thing in self.active or not any(map(pure.is_own, kind.__mro__)):
                continue
            made = frame.site((frame.line, "context"))  # what they hand to one another
            made.named = True
            self.put(made.contents, frozenset().union(*given))
            names = [name for base in kind.__mro__ if pure.is_open(base) and not pure.is_own(base)
                     for name in list(vars(base)) if name[:2] != "__"]
            self.active.add(thing)
            for name in names:
                found |= self.call(self.attribute(thing, name), [], {},
                                   frozenset(made.contents) | {made})
            self.active.discard(thing)
        return found

    def call_getattr(self, args: Sequence[Value]) -> Value:
        """`getattr(object, name)` with names that are known."""
        if len(args) < 2 or not args[0]:
            return NOTHING
        found = frozenset().union(*args[2:])
        for name in args[1]:
            if not isinstance(name, Outside):
                for thing in args[0] if isinstance(name, Outcome) else ():
                    found |= self.attributes_named(thing, getattr(name, "start", ""))
            elif isinstance(name.value, str):
                found |= self.attributes(args[0], name.value)
        return found

    def call_setattr(self, target: Any, names: Value, value: Value, deletes: bool) -> None:
        """`setattr(object, name, value)`, or `delattr(object, name)`."""
        self.write(target, value, "an attribute of")
        kind = target.kind if isinstance(target, Created) else None
        if kind is not None:  # one that is made here, whose class may have something to set it
            known = dir(kind) if self.is_unsure(names) else [each.value for each in names]
            for name in known:
                if isinstance(name, str):
                    self.setter(target, kind, name, value, deletes)

    def call_dir(self, things: Value) -> Value:
        """`dir(object)`: a list of the names that the object and its classes have."""
        found: Value = NOTHING
        for thing in things:
            value = thing.value if isinstance(thing, Outside) else None
            if type(getattr(value, "__dict__", None)) is not dict or isinstance(
                    value, types.ModuleType) \
                    or found_in(type(value).__mro__, "__dir__") is not vars(object)["__dir__"]:
                return self.refuse("calls dir() of what is no plain object",
                                   "call it outside of the function")
            self.reads.note("names", value, "", f"dir({thing.path})")
            for base in type(value).__mro__:
                if pure.is_open(base) and not pure.is_fixed(pure.home_of(base)):
                    self.reads.note("names", base, "", base.__name__)
            if thing not in self.listed:  # one list for one object, or nothing would ever be known
                self.listed[thing] = dir(value)
            found |= self.wrap(self.listed[thing], f"dir({thing.path})")
        return found

    def attributes_named(self, thing: Any, start: str) -> Value:
        """All attributes of a thing whose names begin so: `getattr(model, f"layer{n}")`."""
        if isinstance(thing, Outcome):  # what users have added to the class of tensors is seen
            return SIZES.union(*[self.of_tensor(thing, name) for name in dir(Tensor)])
        value, own = getattr(thing, "value", None), {start: None}
        kind = type(value) if isinstance(thing, Outside) else getattr(thing, "kind", dict)
        asked = getattr(kind, "__getattr__", None)
        if isinstance(thing, Outside) and thing.single or kind in (None, *pure.CONTAINERS):
            pass  # a number, a text, a tensor, a container: they have methods only
        elif not start or asked is not None and not always_raises(asked) \
                or isinstance(thing, Outside) and (
                    isinstance(value, types.ModuleType)
                    or type(getattr(value, "__dict__", None)) is not dict):
            return self.refuse("reads an attribute whose name is computed",
                               "write object.name, let the name begin with a text, as in "
                               "f'layer{n}', or use a dict")
        elif isinstance(thing, Outside):
            own = vars(value)
            self.elements(self.only(own, f"{thing.path}.__dict__"))
            for base in kind.__mro__:
                if pure.is_open(base) and not pure.is_fixed(pure.home_of(base)):
                    self.reads.note("names", base, "", base.__name__)
        names = dict.fromkeys((*own, *(dir(kind) if kind is not None else pure.METHODS)))
        return NOTHING.union(*[self.attribute(thing, name) for name in names
                               if name.startswith(start)])

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
            return self.call_enum(thing, value, args, kwargs, rest)
        if pure.is_own(value):
            self.given_away([*args, *kwargs.values(), rest])
            return NOTHING
        if issubclass(value, BaseException) and pure.is_open(value):
            for base in value.__mro__:
                for name in list(vars(base)):  # who catches it may read any of them
                    self.own((base,), name)
        elif pure.is_pure(value):
            return self.call_pure(value, thing.path, args, kwargs, rest)
        if pure.home_of(value) == "builtins" or type(value) not in (type, abc.ABCMeta) \
                or frame is None:
            return self.refuse(f"makes a {value.__module__}.{value.__qualname__}",
                               "make it outside of the function")
        made = frame.site((frame.line, "object"), value)
        self.put(made.contents, frozenset().union(rest, *args, *kwargs.values()))
        for name in ("__new__", "__init__", "__del__"):
            self.own(value.__mro__, name)
            start = found_in(value.__mro__, name)
            if name == "__del__":
                self.call(self.special(made, name), [], {})
                continue
            function = start.__func__ if isinstance(start, staticmethod) else start
            if name == "__new__" and is_library(getattr(
                    getattr(function, "__code__", None), "co_filename", "")):
                continue  # of a layer of ours: it notes a text for `__repr__`, no more
            if isinstance(function, types.FunctionType):
                self.reads.note("method", value, name, f"{thing.path}.{name}")
                first = frozenset([thing]) if name == "__new__" else frozenset([made])
                self.put(made.contents, self.call(self.wrap(function, f"{thing.path}.{name}"),
                                                  [first, *args], kwargs, rest))
            elif name == "__init__" and not isinstance(start, types.WrapperDescriptorType):
                self.call(self.special(made, name), args, kwargs, rest)
            elif name == "__new__" and start is not object.__new__ and not pure.is_pure(function) \
                    and not any(
                        base in (list, dict, set, tuple, BaseException) for base in value.__mro__):
                return self.refuse(f"makes a {value.__qualname__}",
                                   "make it outside of the function")
        return frozenset([made])

    def call_enum(self, thing: Outside, value: type[enum.Enum], args: Sequence[Value],
                  kwargs: dict[str, Value], rest: Value) -> Value:
        """The member of an enumeration that a value has, or what is given for one of none."""
        found = frozenset().union(*[self.wrap(each, thing.path) for each in value])
        self.own(value.__mro__, "_missing_")
        missing = getattr(value._missing_, "__func__", None)
        if isinstance(missing, types.FunctionType) and pure.module_of(missing) != "enum":
            found |= self.call(self.attribute(thing, "_missing_"), args, kwargs, rest)
        if type(value) is not enum.EnumMeta:
            found |= self.call(self.special(thing, "__call__"), args, kwargs, rest)
        return found

    def is_of_object(self, owner: Any) -> bool:
        """Whether `__new__` of a class, found by super(), is the one of `object`."""
        kind = getattr(owner, "value", None)
        return kind is object or isinstance(kind, type) and pure.is_open(kind) and not issubclass(
            kind, (*pure.plain_types(), *pure.CONTAINERS, BaseException, type))

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
            self.asked(frozenset().union(rest, *args[:1]))
            return NOTHING
        if function in (callable, len):
            for each in frozenset().union(rest, *args[:1]):
                self.elements(each)
            return SIZES if function is len else NOTHING
        own = NONE
        if function is collections.defaultdict and args:  # what it makes itself is in it
            own, args = self.call(args[0], [], {}), args[1:]
        shown = function in SHOWING or pure.is_of_numpy(function)
        if function not in _BLIND or function is iter and len(args) > 1:
            self.call_objects([*args, *kwargs.values(), rest])
        result = self.given_away([*args, *kwargs.values(), rest], shown,
                                 calls=function not in (str, repr, hash))
        if pure.is_of_numpy(function) and any(map(_is_of_user, result)):
            return self.refuse(f"gives an object to {path}, which may use any method of it",
                               "give it an array")
        if any(function is each for each in _FLOATS):
            return FLOATS
        frame = self.frame
        assert frame is not None
        made = frame.site((frame.line, path))
        made.named = function not in _BLIND and isinstance(function, type)
        self.put(made.contents, result | own)
        if result or own:
            self.put(made.contents, [made])
        return frozenset([made]) if any(function is each for each in _NEW) else result | {made}

    def call_native(self, thing: Native, args: Sequence[Value], kwargs: dict[str, Value],
                    rest: Value) -> Value:
        """Call a method that is not written in Python."""
        owner, name = thing.owner, thing.name
        given = frozenset().union(rest, *args, *kwargs.values())
        if name in FORMATS and (not isinstance(owner, Created) or owner.kind is None):
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
                if pure.home_of(value) == "builtins" and name in pure.CHANGING or name in (
                        "__setattr__", "__delattr__"):
                    for each in args[0] if args else rest:
                        if name in ("__setattr__", "__delattr__"):
                            self.call_setattr(each, args[1] if len(args) > 1 else rest, given,
                                              name == "__delattr__")
                        else:
                            self.write(each, given, "the contents of")
                return self.given_away([given])
            if isinstance(value, Tensor):
                return self.computed([given]) | {owner}
            if pure.is_own(type(value)) or isinstance(value, type):
                if name in _DRAWN:
                    return self.refuse(f"calls {owner.path}.{name}", _DRAWN[name])
                return self.handed([given])  # it may call an object, as custom_kernel does
            if name in pure.CHANGING or isinstance(value, collections.defaultdict) \
                    and name in ("__getitem__", "__missing__"):
                return self.refuse(f"changes {owner.path}, which is outside, by .{name}()",
                                   "return the value, or keep it in a Tensor that is assigned to")
            if isinstance(value, (*pure.memory_types(), *pure.plain_types())):
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
                kinds = frozenset(each for each in given if isinstance(
                    getattr(each, "value", None), type))
                self.put(self.raised.contents, given - kinds | self.call(kinds, [], {}))
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
            frame = self.frames[thing] = Entered(code, space, path, 64 * len(self.frames))
            if self.frame is not None:
                frame.caller = self.frame, self.frame.line
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

    def box_contents(self, frame: Entered, name: str) -> Value:
        """The values that a cell may hold."""
        box = frame.boxes.get(name)
        if isinstance(box, types.CellType):
            held = self.reads.note("cell", box, "", name)
            return NOTHING if held is MISSING else self.wrap(held, name)
        owner = frame if box is None else box
        if owner is not frame and name in owner.boxes:
            return self.box_contents(owner, name)
        return frozenset(owner.locals.get(name, ()))


def _is_of_user(thing: Any) -> bool:
    """Whether it is an object of a user's class, and none of Python's containers."""
    kind = thing.kind if isinstance(thing, Created) else \
        type(thing.value) if isinstance(thing, Outside) else None
    return kind is not None and pure.is_open(kind) and not pure.is_own(kind) and not issubclass(
        kind, (type, enum.Enum, *pure.plain_types(), *pure.CONTAINERS))


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not MISSING
    except ValueError:
        return False


def is_of_class(thing: Any, kind: type) -> bool:
    """Whether `super()` in a method of a class may be asked for a thing: an object of it, or a
    class that comes from it.
    """
    held = thing.value if isinstance(thing, Outside) else None
    found = thing.kind if isinstance(thing, Created) else \
        held if isinstance(held, type) and issubclass(held, kind) else type(held)
    return isinstance(thing, (Created, Outside)) and found is not None and issubclass(found, kind)
