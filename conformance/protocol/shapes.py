"""Which programs are well formed: the dtype and shape of every variable.

Programs are explicitly typed, so nothing here promotes or broadcasts: operands have equal
shapes and equal dtypes, and a `cast` or an `expand` stands where they would not.  They lie on one
device too, and a `copy` stands where they would not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from conformance import protocol
from conformance.protocol import Program, Statement

Shape = tuple[int, ...]


class ProgramError(ValueError):
    """A program is not well formed; the message names the statement."""


@dataclass(frozen=True)
class Kind:
    """The dtype and shape of a variable, and the device that it lies on."""

    dtype: str
    shape: Shape
    device: int = 0


Kinds = dict[str, Kind]


def check_program(program: Program) -> Kinds:
    """The kinds of the variables at the end.  Raises ProgramError for an ill-formed program."""
    kinds: Kinds = {}
    _check_all(program["statements"], kinds)
    return kinds


def _check_all(statements: Sequence[Statement], kinds: Kinds) -> None:
    for index, statement in enumerate(statements):
        try:
            step(statement, kinds)
        except ProgramError as error:
            raise ProgramError(f"statement {index} ({statement['do']}): {error}") from error


def step(statement: Statement, kinds: Kinds) -> None:
    """Check one statement and record the kind of what it defines, in place."""
    do = statement["do"]
    if do == "repeat":
        # Twice: the second pass meets whatever kinds the first one left behind.
        _check_all(statement["statements"], kinds)
        _check_all(statement["statements"], kinds)
    elif do == "calls":
        _check_calls(statement, kinds)
    elif do in ("realize", "observe", "drop"):
        for name in statement["names"]:
            _known(name, kinds)
            if do == "drop":
                kinds.pop(name)
    elif do in ("assign", "store"):
        target = _known(statement["target"], kinds)
        value = _known(statement["from"][0], kinds)
        region = replace(target, shape=view_shape(target.shape, statement.get("view", ())))
        _require(value == region, f"{value} does not fit {region}")
    else:
        kinds[statement["to"]] = result(statement, kinds)


def _check_calls(statement: Statement, kinds: Kinds) -> None:
    """Each call is a program; arguments are read only, and have one kind each."""
    given = statement["given"]
    changed = {each.get("to", each.get("target")) for each in statement["statements"]}
    _require(all(set(each) == set(given[0]) for each in given), "calls with other arguments")
    for name in given[0] if given else ():
        values = [each[name] for each in given]
        _require(name not in kinds and name not in changed, f"the argument {name} is changed")
        sorts = {_known(each, kinds) if isinstance(each, str) else type(each) for each in values}
        _require(len(sorts) == 1, f"the argument {name} is of several kinds")
    for body in protocol.calls(statement):
        _check_all(body, kinds)


def result(statement: Statement, kinds: Kinds) -> Kind:
    """The kind of the value of an expression statement."""
    do = statement["do"]
    if do in protocol.SOURCES:
        _require(not isinstance(statement.get("value"), dict), "no call gives it this number")
        return Kind(statement["dtype"], tuple(statement["shape"]))
    sources = [_known(name, kinds) for name in statement["from"]]
    device = sources[0].device
    _require(all(each.device == device for each in sources), f"operands lie apart: {sources}")
    made, device = _computed(statement, sources), statement.get("device", device)
    return made if made.device == device else replace(made, device=device)


def _computed(statement: Statement, sources: list[Kind]) -> Kind:
    """The kind of what is computed from these, but for its device."""
    do, first = statement["do"], sources[0]
    if do in protocol.MOVEMENT:
        return Kind(first.dtype, moved(statement, first.shape))
    if do in protocol.REDUCTIONS:
        return _reduced(statement, first)
    if do == "cast":
        return Kind(statement["dtype"], first.shape)
    if do == "bitcast":
        _require(protocol.itemsize(first.dtype) == protocol.itemsize(statement["dtype"])
                 and "bool" not in (first.dtype, statement["dtype"]), "elements of other sizes")
        return Kind(statement["dtype"], first.shape)
    if do in ("softmax", "cumsum"):
        _require(statement["axis"] < len(first.shape), f"no axis {statement['axis']} in {first}")
        _require(_allows(do, first.dtype), f"not defined for {first.dtype}")
        return first
    if do == "matmul":
        return _product(first, sources[1])
    if do == "gradient":
        _require(first.shape == () and {each.dtype for each in sources} <= set(protocol.FLOATS),
                 f"no gradient of {first}")
        return sources[1]
    if do == "gather":
        _require(sources[1].dtype in protocol.INTEGERS, "the index is not of an integer dtype")
        _require(len(first.shape) > 0, "the source has no axis")
        return Kind(first.dtype, sources[1].shape + first.shape[1:])
    return _elementwise(do, sources)


def _elementwise(do: str, sources: list[Kind]) -> Kind:
    if do == "where":
        _require(sources[0].dtype == "bool", "the condition is not bool")
        _require(sources[0].shape == sources[1].shape, "shapes differ")
        sources = sources[1:]
    _require(all(each == sources[0] for each in sources), f"operands differ: {sources}")
    _require(_allows(do, sources[0].dtype), f"not defined for {sources[0].dtype}")
    return Kind("bool", sources[0].shape) if do in protocol.COMPARISONS else sources[0]


def _allows(do: str, dtype: str) -> bool:
    """Which dtypes an operation is defined for."""
    if do in (*protocol.FLOAT_UNARY, "div", "pow", "mean", "softmax"):
        return dtype in protocol.FLOATS
    if do in ("floordiv", "mod"):
        return dtype in protocol.INTEGERS
    if do in (*protocol.BITWISE, "not"):
        return dtype not in protocol.FLOATS
    if do in ("add", "sub", "mul", "neg", "abs", "relu", "sum", "prod", "cumsum", "matmul"):
        return dtype != "bool"
    return True


def view_shape(shape: Shape, steps: Sequence[Statement]) -> Shape:
    """The shape that movement steps make of `shape`."""
    for each in steps:
        _require(each["do"] in protocol.VIEW_STEPS, f"{each['do']} selects no region")
        shape = moved(each, shape)
    return shape


def moved(move: Statement, shape: Shape) -> Shape:
    """The shape that one movement makes of `shape`."""
    do = move["do"]
    if do == "reshape":
        _require(prod(move["shape"]) == prod(shape), f"{shape} cannot become {move['shape']}")
        return tuple(move["shape"])
    if do == "flip":
        axes = move["axes"]
        _require(len(set(axes)) == len(axes) and all(axis < len(shape) for axis in axes),
                 f"axes {axes} are not distinct axes of {shape}")
        return shape
    argument = move[{"expand": "shape", "permute": "order", "pad": "widths", "shrink": "bounds",
                     "stride": "steps"}[do]]
    _require(len(argument) == len(shape), f"{argument} does not fit the rank of {shape}")
    if do == "permute":
        _require(sorted(argument) == list(range(len(shape))), f"{argument} is no permutation")
        return tuple(shape[axis] for axis in argument)
    return tuple(_extent(do, size, each) for size, each in zip(shape, argument, strict=False))


def _extent(do: str, size: int, argument: int | list[int]) -> int:
    if isinstance(argument, int):
        if do == "stride":
            return -(-size // argument)
        _require(size in (1, argument), f"an axis of size {size} cannot grow to {argument}")
        return argument
    first, second = argument
    if do == "pad":
        return first + size + second
    _require(0 <= first <= second <= size, f"{argument} lies outside an axis of size {size}")
    return second - first


def _reduced(statement: Statement, source: Kind) -> Kind:
    do, axes = statement["do"], statement["axes"]
    rank = len(source.shape)
    _require(len(set(axes)) == len(axes) and all(axis < rank for axis in axes),
             f"axes {axes} are not distinct axes of {source.shape}")
    _require(_allows(do, source.dtype), f"not defined for {source.dtype}")
    if do in ("max", "min"):
        # The largest of no elements has no value that every dtype could hold.
        _require(all(source.shape[axis] > 0 for axis in axes), "nothing to choose from")
    if statement["keepdims"]:
        return Kind(source.dtype, tuple(1 if axis in axes else size
                                        for axis, size in enumerate(source.shape)))
    return Kind(source.dtype, tuple(size for axis, size in enumerate(source.shape)
                                    if axis not in axes))


def _product(left: Kind, right: Kind) -> Kind:
    _require(left.dtype == right.dtype and left.dtype != "bool", "dtypes do not fit")
    _require(len(left.shape) == len(right.shape) >= 2
             and left.shape[:-2] == right.shape[:-2]
             and left.shape[-1] == right.shape[-2], f"{left.shape} @ {right.shape}")
    return Kind(left.dtype, (*left.shape[:-1], right.shape[-1]))


def _known(name: str, kinds: Kinds) -> Kind:
    _require(name in kinds, f"{name} is not defined here")
    return kinds[name]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ProgramError(message)
