"""The arguments of a captured call, taken apart, and compared with those of the capture."""
from __future__ import annotations

import inspect
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from impl import symbolic
from impl.effects import Buffer
from impl.errors import ReplayError, VariableError
from impl.following.reads import MOST_BYTES
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

    def bind(self, path: str, value: UOp) -> None:
        """Note a bound variable; one variable has one value in a call."""
        for other in self.variables.values():
            if other.src[0] is value.src[0] and other is not value:
                raise VariableError(value.src[0].arg[0], f"is bound to {other.src[1].arg} and to "
                                    f"{value.src[1].arg} in one call", "use two variables")
        self.variables[path] = value

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
        if isinstance(value, Tensor):
            found.tensors[path] = value
            found.roots[path] = node = value.uop
            where = value.sharding if isinstance(value.device, Mesh) else value.device
            same = first.setdefault(id(value), path)  # r[impl replay.arguments.form]
            found.signature[path] = ("Tensor", found.shape(path, node.shape or ()), node.dtype.name,
                                     where, *(() if same == path else (f"{shown(same)} itself",)),
                                     *_gradient(value))
        elif isinstance(value, (list, tuple)):
            found.signature[path] = (type(value).__name__, len(value))
            stack += [(f"{path}[{i}]", part) for i, part in enumerate(value)]
        elif is_record(value):
            found.signature[path] = (type(value).__name__, *(f.name for f in fields(value)))
            stack += [(f"{path}.{f.name}", getattr(value, f.name)) for f in fields(value)]
        elif isinstance(value, dict):
            found.signature[path] = ("dict", tuple(value))
            stack += [(f"{path}[{key!r}]", part) for key, part in value.items()]
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
            found.signature[path] = ("array", value.dtype.str, value.shape, value.strides,
                                     value.tobytes())
        else:
            found.signature[path] = _described(value)
    return found


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


def is_record(value: Any) -> bool:
    """Whether it is an object of a dataclass, and so a container of named parts."""
    return is_dataclass(value) and not isinstance(value, type)


def _described(value: Any) -> Any:
    """A Python value that is frozen into the capture; objects are compared by identity."""
    kind = type(value)
    if kind in (float, complex) or isinstance(value, np.generic):
        return (kind.__name__, repr(value))  # 0.0 and -0.0 are two numbers, and NaN is one
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
            return f"argument {shown(path)} was {was} in a capture, and is {now} now"
    return ""


def aliases_of(leaves: dict[str, UOp]) -> list[tuple[str, ...]]:
    """Groups of argument paths that are one buffer."""
    groups: dict[Buffer, list[str]] = {}
    if len({leaf.arg[0] for leaf in leaves.values()}) == len(leaves):
        return []
    for path, leaf in leaves.items():
        groups.setdefault(leaf.arg[0], []).append(path)
    return sorted(tuple(sorted(paths)) for paths in groups.values() if len(paths) > 1)
