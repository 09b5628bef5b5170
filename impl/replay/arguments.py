"""The arguments of a captured call, taken apart, and compared with those of the capture."""
from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from impl import symbolic
from impl.effects import Buffer
from impl.errors import ReplayError, VariableError
from impl.following.reads import MOST_BYTES, number_form
from impl.following.records import EXACT, attributes_of, is_ordinary, is_record
from impl.host import np
from impl.ir import Ops, Shape, UOp
from impl.multi import Mesh
from impl.tensor import Tensor
from impl.tensor.parameters import DEPENDS, FROZEN, dependence


@dataclass
class Arguments:
    """The arguments of a call, taken apart: tensors, bound variables, and all the rest."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    variables: dict[str, UOp] = field(default_factory=dict)
    signature: dict[str, Any] = field(default_factory=dict)
    leaves: dict[str, UOp] = field(default_factory=dict)  # of the tensors, when the call began
    roots: dict[str, UOp] = field(default_factory=dict)  # what they were before that
    containers: dict[int, str] = field(default_factory=dict)  # where each one is, by identity
    strange: str = ""  # what is there that no guard can see

    def bind(self, path: str, value: UOp) -> None:
        """Note a bound variable; one variable has one value in a call."""
        for other in self.variables.values():
            if other.src[0] is value.src[0] and other is not value:
                raise VariableError(value.src[0].arg[0], f"is bound to {other.src[1].arg} and to "
                                    f"{value.src[1].arg} in one call", "use two variables")
        self.variables[path] = value

    def note_strange(self, path: str, value: Any) -> None:
        """Note an object of a class of the user's own, which may do anything with its parts."""
        kind = next(each for each in (Tensor, *EXACT) if isinstance(value, each)).__name__
        self.strange = f"argument {shown(path)} is a {type(value).__name__}, a {kind} of its own"

    def note_container(self, path: str, value: Any, parts: Sequence[tuple[str, Any]]) -> None:
        """Note a container. A function may ask which one it is, or put something into it, but for
        a tuple of plain values.
        """
        # r[impl replay.arguments.call]
        if not is_ordinary(value):
            self.note_strange(path, value)
        elif type(value) is tuple and not any(isinstance(part, (Tensor, *EXACT))
                                              or is_record(part) for _, part in parts):
            return
        elif id(value) in self.containers:
            self.strange = f"argument {shown(path)} is {shown(self.containers[id(value)])} itself"
        self.containers[id(value)] = path

    def objects(self) -> Iterable[int]:
        """What a function may also know by another name, by identity."""
        return (*self.containers, *map(id, self.tensors.values()))

    def shape(self, path: str, shape: Shape) -> Shape:
        """A shape without the values of its variables, which are noted as bound there."""
        if not symbolic.present[0]:
            return shape
        for size in symbolic.sizes_in(shape):  # r[impl replay.sizes.follow+3]
            for bind in symbolic.binds_in(size.expression):
                self.bind(f"{path}: {bind.src[0].arg[0]}", bind)
        without: Shape = symbolic.map_sizes(shape, symbolic.without_values)
        return without

    def now(self, bind: UOp, paths: dict[UOp, str]) -> UOp:
        """What a variable that was bound in the capture is bound to in this call."""
        path = paths.get(bind)
        return bind if path is None else self.variables[path]

    def again(self, shape: Shape, paths: dict[UOp, str]) -> Shape:
        """A shape of the capture in this call."""
        if not paths:  # nothing is bound anew
            return shape

        def changed(size: symbolic.Size) -> int:
            binds = {bind: self.now(bind, paths) for bind in symbolic.binds_in(size.expression)}
            found: int = symbolic.as_size(size.expression.substitute(binds))
            return found
        result: Shape = symbolic.map_sizes(shape, changed)
        return result


#: Arguments in which a function can put nothing.
_WHOLE = ("Tensor", "Variable", "int", "bool", "float", "str", "bytes", "NoneType", "complex",
          "tuple", "array")
#: Characters of the path of a part: what lies deeper is most likely a container in itself.
_LONGEST = 2000
#: Characters of an argument that are told where it is another one.
_MOST_SHOWN = 200


def take_apart(given: Any) -> Arguments:
    """Find every tensor in nested lists, tuples, dicts and dataclasses; describe all the rest.

    The signature maps the path of each part (such as `args[0]`) to what must stay the same.
    """
    # r[impl replay.arguments.call]
    # r[impl replay.call.any]
    found, first = Arguments(), dict[int, str]()  # where each tensor was found first
    stack: list[tuple[str, Any]] = [("", given)]
    while stack:
        path, value = stack.pop()
        if len(path) > _LONGEST:
            raise ReplayError("TinyJit", f"{shown(path[:40])}... is nested very deep, or in itself",
                              "give and return containers with an end")
        if isinstance(value, Tensor):
            found.tensors[path] = value
            found.roots[path] = node = value.uop
            where = value.sharding if isinstance(value.device, Mesh) else value.device
            same = first.setdefault(id(value), path)  # r[impl replay.arguments.form]
            found.signature[path] = ("Tensor", found.shape(path, node.shape or ()), node.dtype.name,
                                     where, *(() if same == path else (f"{shown(same)} itself",)),
                                     *_gradient(value))
            if type(value) is not Tensor:
                found.note_strange(path, value)
        elif isinstance(value, EXACT) or is_record(value):
            found.signature[path], parts = _container(path, value)
            stack += parts
            found.note_container(path, value, parts)
        elif isinstance(value, UOp) and value.op is Ops.BIND:
            found.bind(path, value)
            found.signature[path] = ("Variable", value.src[0].arg)
        elif symbolic.is_symbolic(value):
            found.signature[path] = ("int", found.shape(path, (value,)))
        elif type(value) is np.ndarray:
            if value.dtype.hasobject or value.nbytes > MOST_BYTES:
                raise ReplayError("TinyJit", f"argument {shown(path)} is a NumPy array of shape "
                                  f"{value.shape}, too large to be compared at each call",
                                  "pass Tensor(array)")
            found.signature[path] = ("array", repr(value.dtype), value.shape, value.strides,
                                     value.flags.writeable, value.tobytes())
        else:
            found.signature[path] = _described(value)
    return found


def _container(path: str, value: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """What has to stay the same of a container, and its parts with their paths."""
    kind, attributes = type(value), attributes_of(value)
    parts = [(f"{path}.{name}", part) for name, part in attributes.items()]
    items: tuple[Any, ...] = ()
    if isinstance(value, dict):
        items = (tuple(map(_key, value)),)
        keyed = [(f"{path}[{key!r}]", part) for key, part in value.items()]
        if len({each for each, _ in keyed}) < len(keyed):  # keys of one text
            keyed = [(f"{each} {number}", part) for number, (each, part) in enumerate(keyed)]
        parts += keyed
    elif isinstance(value, (list, tuple)):
        items = (len(value),)
        parts += [(f"{path}[{number}]", part) for number, part in enumerate(value)]
    return (kind.__name__ if kind in EXACT else _Class(kind), *items, *attributes), parts


def _key(key: Any) -> Any:
    """What has to stay the same of a key of a dict: 1, 1.0 and True are equal, and are not."""
    if type(key) is tuple:
        return ("tuple", *map(_key, key))
    return key if type(key) is str else _described(key)


def form(described: Any) -> Any:
    """What is compared of one part, but for what it was computed from."""
    if isinstance(described, tuple) and described[-1:] in _COMPUTED:
        return described[:-1]
    return described


#: What `dependence` says of tensors that were computed from parameters.
_COMPUTED = (DEPENDS,), (FROZEN,)


def _gradient(tensor: Tensor) -> tuple[str, ...]:
    """What a tensor says of gradients, if it says anything."""
    # r[impl replay.arguments.depending]
    found = dependence(tensor)
    depends = (found,) if found else ()
    if tensor._parameter is None and tensor.grad is None:
        return depends
    return (f"requires_grad {tensor._parameter}", "no gradient" if tensor.grad is None
            else "a gradient", *depends)


def _described(value: Any) -> Any:
    """A Python value that is frozen into the capture; objects are compared by identity."""
    kind = type(value)
    if kind in (float, complex):
        return (kind.__name__, *number_form(value))
    if isinstance(value, np.generic) and kind is value.dtype.type:
        named = (repr(value.dtype),) if value.dtype.kind in "VmM" else ()
        return (kind.__name__, *number_form(value), *named)
    if value is None or kind in (bool, int, str, bytes):
        return (kind.__name__, value)
    return _Same(value)


class _Same:
    """An object that equals itself only. It is kept alive, so that no other takes its identity."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"the {type(self.value).__name__} object at {id(self.value):#x}"


class _Class(_Same):
    """A class, which equals itself only: another one may have its name."""

    def __repr__(self) -> str:
        return str(self.value.__name__)


def is_whole(form: Any) -> bool:
    """Whether a part of the arguments is one in which a function can put nothing."""
    kind = form[0]
    if isinstance(kind, _Class):  # a named tuple without attributes
        return issubclass(kind.value, tuple) and len(form) == 2
    return kind in _WHOLE


def shown(path: str) -> str:
    """A path as the caller wrote it: positional parts are `args`, named ones `kwargs`."""
    for start, name in (("[0]", "args"), ("[1]", "kwargs")):
        if path.startswith(start):
            return path.replace(start, name, 1)
    return "list"


def form_text(form: Any) -> str:
    """What is compared of one part of the arguments, as one reads it."""
    if not isinstance(form, tuple):
        return str(form)
    kind, *rest = form
    if kind == "Tensor":
        shape, dtype, where, *gradient = rest
        return ", ".join((f"Tensor {shape} {dtype} on {where}", *gradient))
    if kind == "array":
        return f"array {rest[1]} {rest[0]} with the same elements"
    return f"{kind} " + ", ".join(map(str, rest))


class _AnyOrder(tuple[Any, ...]):
    """The names of a dict, which equal those of another one with the same names."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and other[:1] == ("dict",) \
            and sorted(self[1]) == sorted(other[1])

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


def expected(signature: dict[str, Any], function: Any) -> dict[str, Any]:
    """What the arguments of a call have to be; keywords that have names stand in any order."""
    # r[impl replay.arguments.form]
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function that is not Python's
        return signature
    if any(each.kind is each.VAR_KEYWORD for each in given):  # which may look at the order
        return signature
    return {**signature, "[1]": _AnyOrder(signature["[1]"])}


def differing(old: dict[str, Any], new: dict[str, Any]) -> str:
    """How the arguments of a call differ from those of a capture; empty if they do not."""
    if old == new:
        return ""
    for path in sorted({*old, *new}):  # so that the first argument of several is named
        was, now = old.get(path, "absent"), new.get(path, "absent")
        if was != now:
            first, second = (str(each)[:_MOST_SHOWN] for each in (was, now))
            return f"argument {shown(path)} was {first} in a capture, and is {second} now"
    return ""


def aliases_of(leaves: dict[str, UOp]) -> list[tuple[str, ...]]:
    """Groups of argument paths that are one buffer."""
    groups: dict[Buffer, list[str]] = {}
    if len({leaf.arg[0] for leaf in leaves.values()}) == len(leaves):
        return []
    for path, leaf in leaves.items():
        groups.setdefault(leaf.arg[0], []).append(path)
    return sorted(tuple(sorted(paths)) for paths in groups.values() if len(paths) > 1)
