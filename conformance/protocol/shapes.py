"""Which programs are well formed: the dtype and shape of every variable.

Programs are explicitly typed, so nothing here promotes or broadcasts: operands have equal
shapes and equal dtypes, and a `cast` or an `expand` stands where they would not.  They lie on one
device or one mesh too, and a `copy` or a `shard` stands where they would not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from conformance import protocol
from conformance.protocol import Program, Statement

Shape = tuple[int, ...]


class ProgramError(ValueError):
    """A program is not well formed; the message names the statement."""


@dataclass(frozen=True)
class Mesh:
    """Devices by number, row by row of axes with names and sizes."""

    devices: tuple[int, ...]
    axes: tuple[tuple[str, int], ...]

    def coordinates(self) -> list[dict[str, int]]:
        """Where each device stands along every axis."""
        places = product(*(range(size) for _, size in self.axes))
        return [dict(zip((name for name, _ in self.axes), place, strict=True))
                for place in places]


@dataclass(frozen=True)
class Kind:
    """The dtype and shape of a variable, and the device or the mesh that it lies on."""

    dtype: str
    shape: Shape
    device: int | Mesh = 0


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
    elif do in ("realize", "observe", "drop", "shards"):
        for name in statement["names"]:
            known = _known(name, kinds)
            _require(do != "shards" or isinstance(known.device, Mesh), f"{name} is on no mesh")
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
    if do == "shard":
        return replace(sources[0], device=_mesh(statement, sources[0]))
    if do == "shard_like":
        _require(len(sources[0].shape) == len(sources[1].shape), "values of different ranks")
        return replace(sources[0], device=sources[1].device)
    device = sources[0].device
    _require(all(each.device == device for each in sources), f"operands lie apart: {sources}")
    made, device = _computed(statement, sources), statement.get("device", device)
    return made if made.device == device else replace(made, device=device)


@dataclass(frozen=True)
class Limits:
    """What an implementation says that its meshes may be, in `meshes` and in its choice `meshes`.

    `devices`: the most that a mesh may have.  `axes`: the most axes of a mesh.  `uneven`: an axis
    may be cut in more pieces than divide it.  `together`: two axes of a mesh may cut one axis.
    """

    devices: int
    axes: int = 9
    uneven: bool = True
    together: bool = True

    @staticmethod
    def of(info: protocol.Info) -> Limits:
        return Limits(len(info.meshes), **info.choices.get("meshes", {}))

    def allow(self, mesh: Mesh, cut: dict[str, int], shape: Shape) -> bool:
        """Whether a value of this shape may lie so."""
        sizes, counts = dict(mesh.axes), dict[int, int]()
        for name, axis in cut.items():
            counts[axis] = counts.get(axis, 1) * sizes[name]
        return (max(mesh.devices) < self.devices and len(mesh.axes) <= self.axes
                and (self.together or len(counts) == len(cut))
                and (self.uneven or all(shape[axis] % each == 0 for axis, each in counts.items())))


def within(program: Program, limits: Limits) -> bool:
    """Whether every `shard` of a program is within what an implementation declares."""
    if not any(each["do"] == "shard" for each in protocol.walk(program["statements"])):
        return True
    kinds: Kinds = {}
    try:
        for statement in program["statements"]:
            if statement["do"] in protocol.REPETITIONS:
                if not all(within(_opened(kinds, body), limits)
                           for body in protocol.calls(statement)):
                    return False
            elif statement["do"] == "shard" and not limits.allow(
                    mesh_of(statement), statement["cut"], kinds[statement["from"][0]].shape):
                return False
            step(statement, kinds)
    except (ProgramError, KeyError):
        return True  # a program that means nothing asks for no mesh
    return True


def _opened(kinds: Kinds, body: Sequence[Statement]) -> Program:
    """A body as a program: what is there before it are constants."""
    there = [{"do": "constant", "to": name, "dtype": kind.dtype, "shape": list(kind.shape),
              "value": 0} for name, kind in kinds.items()]
    return protocol.program([*there, *body])


def mesh_of(statement: Statement) -> Mesh:
    """The mesh that a statement names."""
    return Mesh(tuple(statement["devices"]), tuple((n, size) for n, size in statement["axes"]))


def _mesh(statement: Statement, source: Kind) -> Mesh:
    mesh, cut = mesh_of(statement), statement["cut"]
    names = [name for name, _ in mesh.axes]
    _require(prod(size for _, size in mesh.axes) == len(mesh.devices) > 0
             and len(set(names)) == len(names), f"{mesh} is no block of devices")
    _require(len(set(mesh.devices)) == len(mesh.devices), f"{mesh} has a device twice")
    _require(all(name in names and axis < len(source.shape) for name, axis in cut.items()),
             f"{cut} does not cut {source.shape} along {mesh}")
    return mesh


def parts(mesh: Mesh, cut: dict[str, int], shape: Shape) -> list[tuple[slice, ...]]:
    """For each device of a mesh the part of a value that it has.

    An axis of n elements that is cut in k has parts of ceil(n / k); the last may be smaller, or
    have none.  Where several axes of the mesh cut one axis, the first of them is the slowest.
    """
    found = []
    for place in mesh.coordinates():
        slices = []
        for axis, size in enumerate(shape):
            number, count = 0, 1
            for name, extent in mesh.axes:
                if cut.get(name) == axis:
                    number, count = number * extent + place[name], count * extent
            width = -(-size // count)
            slices.append(slice(min(number * width, size), min((number + 1) * width, size)))
        found.append(tuple(slices))
    return found


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
