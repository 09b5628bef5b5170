"""Attributes of things; see `following`."""
from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import Any

from impl.errors import is_library
from impl.following import pure
from impl.following.noting import Notes
from impl.following.reads import (
    MISSING,
    is_container,
)
from impl.following.things import (
    FORMATS,
    NONE,
    NOTHING,
    SIZE_NAMES,
    SIZES,
    Bound,
    Created,
    Native,
    Outside,
    SizeOutcome,
    Super,
    Value,
    found_in,
)
from impl.ir import UOp
from impl.tensor import Tensor

#: Ways to look for an attribute that are those of any object.
_GENERIC: list[Any] = [kind.__getattribute__ for kind in (
    object, tuple, list, dict, set, frozenset, types.SimpleNamespace, types.FunctionType, int,
    float, str, BaseException, types.ModuleType, Tensor, type, property, staticmethod,
    classmethod)]
#: Attributes of exceptions that lead to what a program knows by other names.
_TRACES = ("__traceback__", "obj")


class Attributes(Notes):
    """Names and attributes of things, followed to the values there."""

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
        """The values that an attribute of a thing may have."""
        if name == "grad" and self.frame is not None \
                and not is_library(self.frame.code.co_filename):
            self.reads.gradients = True
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
            if name not in pure.METHODS and thing.code is None and not thing.named:
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
            if name in FORMATS:
                return self.intern(Native, thing, name)
            known = SIZES if name in SIZE_NAMES or isinstance(thing, SizeOutcome) else NOTHING
            return known | self.of_tensor(thing, name)
        return self.of_object(thing, name)

    def of_tensor(self, thing: Any, name: str) -> Value:
        """A user's additions to the class of all tensors, which has many methods of its own."""
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
            if pure.is_fixed_module(value) and name not in vars(value):
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
                if held is MISSING:  # r[impl following.hooks.later]
                    self.reads.note("absent", vars(value), "__getattr__",
                                    f"{thing.path}.__getattr__")
            return NOTHING if held is MISSING else self.wrap(held, path)
        if isinstance(value, type):
            if value is Tensor and name == "training":
                self.reads.note("attribute", value, name, path)
                return NOTHING
            if value is Tensor and (added := self.of_tensor(thing, name)):
                return frozenset(each.function if isinstance(each, Bound) else each
                                 for each in added)
            if pure.is_own(value) or pure.home_of(value) == "builtins":
                return self.intern(Native, thing, name)
            return self.of_class(thing, value, name, value.__mro__)
        if isinstance(value, Tensor) and type(value) is Tensor:
            if name in SIZE_NAMES:
                return SIZES
            return self.of_tensor(thing, name) or (
                self.intern(Native, thing, name) if callable(found_in(Tensor.__mro__, name))
                or hasattr(found_in(Tensor.__mro__, name), "__func__") else NOTHING)
        if isinstance(value, enum.Enum) and name in ("value", "name", "_value_", "_name_"):
            own = f"_{name.strip('_')}_"
            return self.wrap(self.reads.note("attribute", value, own, path), path)
        if pure.is_plain(value) or is_container(value) \
                or isinstance(value, (*pure.memory_types(), UOp)):
            if isinstance(value, types.MappingProxyType):
                self.elements(thing)
            return self.intern(Native, thing, name) if hasattr(value, name) else NONE
        if pure.is_own(type(value)) and self.is_captured(value) is None \
                and not isinstance(value, Tensor):
            return self.intern(Native, thing, name)
        if name == "__class__":
            if found_in(type(value).__mro__, name) is vars(object)[name]:  # nobody can set it
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
            own = self.reads.note("attribute", outside.value, name, path)
            return NOTHING if own is MISSING else self.wrap(own, path)
        if kind in pure.CLOSED and not is_type and not hasattr(outside and outside.value, name):
            return NONE  # a descriptor or the like
        looking = type(kind) if is_type else kind  # r[impl following.hooks.later]
        self.hook(looking, "__getattribute__")
        if found_in(looking.__mro__, "__getattribute__") not in _GENERIC:
            return self.refuse(f"reads {path}, and {looking.__name__} has a __getattribute__ of "
                               "its own", "use plain attributes")
        found = found_in(order or kind.__mro__, name)
        if is_type and type(kind) is not type:
            of_meta = self.of_metaclass(thing, type(kind), name, found is MISSING)
            if of_meta is not None:
                return of_meta
        is_data = hasattr(type(found), "__set__")
        own_names, written = None, NONE
        if outside is not None and order is None and not is_data:
            own_names = getattr(outside.value, "__dict__", None)
            if own_names is not None and name in own_names:
                held = self.reads.note("attribute", outside.value, name, path)
                return self.wrap(held, path) | self.written_to(own_names, name)
            if own_names is not None:
                self.reads.note("absent", own_names, name, path)
                self.reads.note("attribute", outside.value, "__dict__", f"{outside.path}.__dict__")
                written = self.written_to(own_names, name)
        if order not in (None, kind.__mro__) or type(kind) is not type or _computes(found):
            self.own(order or kind.__mro__, name)
        if found is MISSING:
            return written | self.of_missing(thing, kind, name)
        for part in ("__get__", "__set__"):  # of a descriptor, or what may become one
            self.own(() if pure.is_own(type(found)) else type(found).__mro__, part)
        result = written | self.bound(thing, kind, name, found, path, is_type)
        if not is_type and (isinstance(found, property) or _computes(found)):
            result |= self.instead(thing, kind, name)  # it may raise an AttributeError
        return result

    def hook(self, kind: type, name: str) -> None:
        """Note what a class has by a name that is asked for at every use of its objects: what is
        added later is seen. Most often it is that of `object`, which one look at the class tells.
        """
        if type(kind) is not type:
            self.own(kind.__mro__, name)
        elif pure.is_open(kind) and not pure.is_fixed(pure.home_of(kind)):
            self.reads.note("attribute", kind, name, f"{kind.__name__}.{name}")

    def special(self, thing: Any, name: str) -> Value:
        """A method that Python itself calls, such as `__enter__`: it asks the class for it, and
        what the object has by that name is nothing to it.
        """
        # r[impl following.special.class]
        kind = thing.kind if isinstance(thing, Created) else \
            type(thing.value) if isinstance(thing, Outside) else None
        if kind is None or not pure.is_open(kind) or pure.is_own(kind):
            return self.attribute(thing, name)
        self.own(kind.__mro__, name)
        found = found_in(kind.__mro__, name)
        return NONE if found is MISSING else self.bound(
            thing, kind, name, found, f"{kind.__name__}.{name}", False)

    def own(self, order: Sequence[type], name: str) -> None:
        """Note which of some classes has a name first, and what it is there."""
        for each in order:
            if pure.is_open(each) and not pure.is_fixed(pure.home_of(each)):
                self.reads.note("own", each, name, f"{each.__name__}.{name}")
            if name in vars(each):
                break

    def of_metaclass(self, thing: Any, meta: type, name: str, is_missing: bool) -> Value | None:
        """An attribute of a class that its metaclass has; None if the class itself comes first."""
        found = found_in(meta.__mro__, name)
        if found is MISSING or pure.home_of(meta) in ("abc", "enum"):
            asked = found_in(meta.__mro__, "__getattr__")
            if pure.home_of(meta) in ("abc", "enum"):
                return None
            self.own(meta.__mro__, name)  # r[impl following.hooks.later]
            if not is_missing:
                return None
            self.own(meta.__mro__, "__getattr__")
            if asked is MISSING:
                return None
            self.own(thing.value.__mro__, name)
            return self.call(self.special(thing, "__getattr__"), [self.wrap(name, name)], {})
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
        if meta is None:
            self.own(kind.__mro__, name)
            return self.instead(thing, kind, name)
        self.reads.note("attribute", kind, name, f"{kind.__name__}.{name}")
        return NOTHING

    def instead(self, thing: Any, kind: type, name: str) -> Value:
        """What the `__getattr__` of a class says of a name that its objects do not have."""
        self.own(kind.__mro__, "__getattr__")  # r[impl following.hooks.later]
        asked = found_in(kind.__mro__, "__getattr__")
        if asked is MISSING:
            return NOTHING
        return NONE if always_raises(asked) else self.call(
            self.special(thing, "__getattr__"), [self.wrap(name, name)], {})

    def bound(self, thing: Any, kind: type, name: str, found: Any, path: str,
              is_type: bool) -> Value:
        """The value of an attribute of a class, as seen from its objects."""
        fixed = pure.is_fixed(pure.home_of(kind))
        captured = self.is_captured(found)
        if captured is not None:
            found = captured
        elif fixed or type(kind) is not type or _computes(found):
            pass  # noted as what the class itself has
        elif isinstance(found, property):
            self.reads.note("attribute", kind, name, path)
        elif not isinstance(found, types.MemberDescriptorType):
            # r[impl following.reads.places]: a number is equal to another one, unlike a method
            known = "method" if hasattr(type(found), "__get__") else "attribute"
            self.reads.note(known, kind, name, path)
        if isinstance(found, types.FunctionType):
            function = self.only(found, path)
            return frozenset([function]) if is_type else self.intern(Bound, function, thing)
        if _computes(found) and isinstance(found, (property, staticmethod, classmethod)):
            return self.got(thing, kind, found, path, is_type)
        if isinstance(found, staticmethod):
            return self.wrap(found.__func__, path)
        if isinstance(found, classmethod):
            if isinstance(found.__func__, property) or _computes(found.__func__):
                return self.refuse(f"reads {path}, a class method around a "
                                   f"{type(found.__func__).__name__}", "use a plain attribute")
            return self.intern(Bound, self.only(found.__func__, path), self.only(kind, path))
        if is_type and not _computes(found):
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
            if name == "__code__" and isinstance(getattr(thing, "value", None), types.FunctionType):
                self.reads.note("code", thing.value, "", thing.path)
                return NOTHING
            if name in ("__doc__", "__name__", "__qualname__") and isinstance(thing, Outside):
                return self.wrap(self.reads.note("attribute", thing.value, name, path), path)
            return self.refuse(f"reads {path}", "read it outside of the function")
        if hasattr(type(found), "__get__") and not isinstance(found, type):
            if _computes(found):
                return self.got(thing, kind, found, path, is_type)
            return self.refuse(f"reads {path}, a {type(found).__name__}", "use a plain attribute")
        return self.wrap(found, path)

    def got(self, thing: Any, kind: type, found: Any, path: str, is_type: bool) -> Value:
        """What the `__get__` of a descriptor gives."""
        # r[impl following.descriptors.get]
        owner = self.wrap(None, "None") if is_type else frozenset([thing])
        return self.call(self.intern(Bound, self.only(type(found).__get__, path),
                                     self.only(found, path)), [owner, self.wrap(kind, path)], {})

    def attributes(self, value: Value, name: str) -> Value:
        """The values that an attribute of an object may have."""
        found: set[Any] = set()
        for thing in value:
            found |= self.attribute(thing, name)
        return frozenset(found)  # none where there is no such attribute

    def written_to(self, space: Any, name: str | None = None) -> Value:
        """The values written to a name of an object or a module; without a name, to any of them."""
        found = self.written.get(id(space), {})
        return frozenset().union(*found.values()) if name is None else \
            frozenset(found.get(name, ()))


def always_raises(function: Any) -> bool:
    """Whether a function of this library says so of itself."""
    return isinstance(function, types.FunctionType) and is_library(function.__code__.co_filename) \
        and function.__annotations__.get("return") == "NoReturn"


def _computes(found: Any) -> bool:
    """Whether what a class has by a name is an object that computes what is got by it."""
    return found is not MISSING and hasattr(type(found), "__get__") and isinstance(
        type(found).__get__, types.FunctionType)
