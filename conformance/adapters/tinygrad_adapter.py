"""tinygrad 0.14 on its CPU device, which needs clang.

A movement is a view in tinygrad, and a variable of a program is not one: hence `clone`, which
"allocates a separate buffer for the data".  A store is an `assign` to a view of the target,
which is realized first if it has no memory.  Inputs are realized.  A captured function is a
`TinyJit`, and its `JitError` a refusal.

A schedule is what `Tensor.linear_with_vars` makes.  It says which kernels run in which order, on
which buffers, and where the memory planner puts those that no tensor denotes.  It does not say
which bytes or which version of a buffer a kernel reads, nor what a kernel waits for: ranges are
whole buffers here, and the rest is derived from the order and declared as derived.

A mesh has one axis, and cuts only what it divides; what a device has is read from its buffer.  A
reshape that would move elements between devices is refused, as tinygrad says, and a write of what
is cut along another axis.
"""
from __future__ import annotations

import gc
import math
import os
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from conformance.adapters.library import Function, LibraryAdapter, slices
from conformance.oracle import checker
from conformance.protocol import (
    Array,
    Document,
    Laid,
    Observation,
    Options,
    Program,
    Statement,
    Value,
)

os.environ.setdefault("DEV", "CPU")  # tinygrad looks at it when it is imported

tinygrad: Any = import_module("tinygrad")
Context, TinyJit, dtypes = tinygrad.Context, tinygrad.TinyJit, tinygrad.dtypes
run_linear = import_module("tinygrad.engine.realize").run_linear
scheduling: Any = import_module("tinygrad.schedule")
Ops: Any = import_module("tinygrad.uop.ops").Ops
Tensor = Any  # for types; tinygrad has few
T: Any = tinygrad.Tensor

#: Switches of tinygrad that change plans, and must change nothing else.
SETTINGS = ("NOOPT", "NO_MEMORY_PLANNER", "SPLIT_REDUCEOP", "SCACHE", "DISABLE_FAST_IDIV")
NAMES = {getattr(dtypes, name): name for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64")}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
#: The devices that a mesh may be made of: of the default device's kind.
MESHES = tuple(f"{tinygrad.Device.DEFAULT}:{i}" if i else tinygrad.Device.DEFAULT for i in range(6))
MOVEMENTS = {
    "reshape": lambda s, x: x.reshape(tuple(s["shape"])),
    "expand": lambda s, x: x.expand(tuple(s["shape"])),
    "permute": lambda s, x: x.permute(tuple(s["order"])),
    "pad": lambda s, x: x.pad(tuple(map(tuple, s["widths"]))),
    "flip": lambda s, x: x.flip(tuple(s["axes"])),
    "shrink": lambda s, x: x.shrink(tuple(map(tuple, s["bounds"]))),
    "stride": lambda s, x: x[slices(s)],
}


class Watched(dict[bytes, Any]):
    """The schedule cache, which says what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[bool, str]] = []

    def get(self, key: bytes, default: Any = None) -> Any:
        found = super().get(key, default)
        self.asked.append((found is not None, key.hex()[:16]))
        return found


CACHE = scheduling.schedule_cache = Watched()


def _reduced(name: str, widens: bool = True) -> Function:
    """A reduction; its result may be wider than the program asks for."""
    def reduce(statement: Statement, x: Tensor) -> Tensor:
        dtype = {"dtype": x.dtype} if name == "prod" else {}
        result = getattr(x, name)(axis=tuple(statement["axes"]), keepdim=statement["keepdims"],
                                  **dtype)
        return result.cast(x.dtype) if widens else result
    return reduce


def _sharded(statement: Statement, x: Tensor) -> Tensor:
    """A tensor on several devices; what is on a mesh is brought to one device first."""
    [(name, _)] = statement["axes"]
    if isinstance(x.device, tuple):
        x = x.to(MESHES[0])
    return x.shard(tuple(MESHES[i] for i in statement["devices"]), statement["cut"].get(name))


def _like(x: Tensor, other: Tensor) -> Tensor:
    """A tensor laid as another one, with the devices and the axis that this one has."""
    x = x.to(MESHES[0]) if isinstance(x.device, tuple) else x
    return x.shard(other.device, other.uop.axis) if isinstance(other.device, tuple) else x


def _copied(statement: Statement, x: Tensor) -> Tensor:
    return x.to(MESHES[0]) if "device" in statement and isinstance(x.device, tuple) else x.clone()


class LaidOtherwise(RuntimeError):
    """tinygrad refuses a reshape that would move elements between devices, and what is cut along
    another axis than the tensor that it is written to.
    """


class Adapter(LibraryAdapter[Tensor]):
    """Drives tinygrad on one device."""

    observes: tuple[str, ...] = ("values", "schedule", "memory", "cache", "replay")

    functions = {
        "neg": lambda x: -x, "abs": T.abs, "relu": T.relu, "not": T.bitwise_not,
        "exp": T.exp, "log": T.log, "sqrt": T.sqrt, "sin": T.sin,
        "tanh": T.tanh, "reciprocal": T.reciprocal,
        "add": T.add, "sub": T.sub, "mul": T.mul, "div": T.div,
        "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "pow": T.pow,
        "maximum": T.maximum, "minimum": T.minimum, "less": lambda a, b: a < b,
        "less_equal": lambda a, b: a <= b, "equal": lambda a, b: a == b,
        "and": T.bitwise_and, "or": T.bitwise_or, "xor": T.bitwise_xor,
        "where": T.where, "matmul": lambda a, b: (a @ b).cast(a.dtype),
        "gather": lambda x, index: x[index], "contiguous": T.contiguous,
        "shard_like": _like,
    }
    shaped = {
        **{name: lambda s, x: MOVEMENTS[s["do"]](s, x).clone() for name in MOVEMENTS},
        "sum": _reduced("sum"), "prod": _reduced("prod"), "mean": _reduced("mean"),
        "max": _reduced("max", False), "min": _reduced("min", False),
        "cast": lambda s, x: x.cast(DTYPES[s["dtype"]]),
        "bitcast": lambda s, x: x.bitcast(DTYPES[s["dtype"]]),
        "softmax": lambda s, x: x.softmax(s["axis"]),
        "cumsum": lambda s, x: x.cumsum(s["axis"]).cast(x.dtype),
        "copy": _copied, "shard": _sharded,
    }
    effects = (*LibraryAdapter.effects, "assign", "store", "shards")

    def __init__(self) -> None:
        super().__init__("tinygrad", version("tinygrad"), settings=SETTINGS,
                         meshes=MESHES,
                         observes=self.observes, choices={
                             "refuses": ["JitError", "LaidOtherwise"],
                             "derived": ["versions", "dependencies"],
                             "meshes": {"axes": 1, "uneven": False, "together": False}})

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        try:
            with Context(**(options or {}).get("settings", {})):
                return super().run(program, observe, options)
        except RuntimeError as error:
            if any(text in str(error) for text in ("moved items between shards", "axis mismatch")):
                raise LaidOtherwise(str(error)) from None
            raise

    def reset(self) -> None:
        gc.collect()
        CACHE.clear()

    def array(self, elements: Array) -> Tensor:
        # A number would be a constant, which lies nowhere.
        return T(elements.reshape(-1)).realize().reshape(elements.shape) if elements.ndim == 0 \
            else T(elements).realize()

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> Tensor:
        return T.full(tuple(shape), value, dtype=DTYPES[dtype])

    def elements(self, tensor: Tensor) -> Array:
        found: Array = tensor.numpy().reshape(tensor.shape)
        return found

    def write(self, target: Tensor, view: Sequence[Statement], value: Tensor) -> Tensor:
        if view and not target.uop._base_buffer_is_realized():
            target.realize()  # a part is written in memory, and this has none yet
        region = target
        for step in view:
            region = MOVEMENTS[step["do"]](step, region)
        region.assign(value)
        return target

    def captured(self, function: Function) -> Function:
        jitted: Function = TinyJit(function)
        return jitted

    def laid(self, name: str, tensor: Tensor) -> Laid:
        tensor = tensor.clone().realize()
        devices = tensor.device if isinstance(tensor.device, tuple) else (tensor.device,)
        axis, shape = tensor.uop.axis, list(tensor.shape)
        if axis is not None:
            shape[axis] //= len(devices)
        for device in devices:
            tinygrad.Device[device].synchronize()
        dtype = NAMES[tensor.dtype]
        if math.prod(shape) and shape:
            whole = tensor.uop.base.buffer
            found = [each.numpy().tobytes().hex() for each in getattr(whole, "bufs", [whole])]
        else:  # nothing, or a constant, has no memory
            found = [tensor.numpy().tobytes().hex()] * len(devices)
        shards = [Value(name, dtype, tuple(shape), each) for each in found]
        return Laid(name, tuple(map(MESHES.index, devices)), (("rows", len(devices)),),
                    {} if axis is None else {"rows": axis}, shards)

    def held(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def realize(self, tensors: Sequence[Tensor]) -> None:
        waiting = [each for each in dict.fromkeys(tensors)
                   if not each.uop.is_virtual and not each.uop.has_buffer_identity()]
        if not waiting or not {"schedule", "memory", "cache"} & set(self.tiers):
            T.realize(*tensors)
            return
        CACHE.asked.clear()
        linear, values = T.linear_with_vars(*waiting)
        if linear.src:
            document = describe(linear.src)
            document["cache"] = {"hit": bool(CACHE.asked) and all(hit for hit, _ in CACHE.asked),
                                 "key": " ".join(key for _, key in CACHE.asked)}
            self.seen.schedule.append(document)
            self.seen.order.append(list(document["order"]))
        run_linear(linear, values)


class OnMeshes(Adapter):
    """Drives tinygrad on several devices. No documents are made of such schedules."""

    observes = ("values", "replay", "sharded")


# The document ------------------------------------------------------------------------------


def describe(kernels: Sequence[Any]) -> Document:
    """The schedule document of these calls, which run in this order."""
    buffers: dict[Any, int] = {}
    versions: dict[int, int] = {}
    written, described = set[int](), []
    for number, call in enumerate(kernels):
        arguments = [_looked_at(each) for each in call.src[1:] if not each.is_bound_var]
        ids = [buffers.setdefault(each, len(buffers)) for each in arguments]
        reads, writes = accesses(call.src[0])
        read = [_access(arguments[slot], ids[slot], versions) for slot in sorted(reads)]
        for slot in writes:
            versions[ids[slot]] = versions.get(ids[slot], 0) + 1
        written |= {ids[slot] for slot in writes}
        described.append({
            "id": number, "kind": "copy" if call.src[0].op is Ops.COPY else "kernel",
            "device": str(arguments[0].device), "reads": read,
            "writes": [_access(arguments[slot], ids[slot], versions) for slot in sorted(writes)]})
    document: Document = {
        "format": "tensor-schedule/1", "implementation": "tinygrad",
        "buffers": [_buffer(each, number, written) for each, number in buffers.items()],
        "kernels": described, "dependencies": [], "order": list(range(len(described))),
        "outputs": [number for each, number in buffers.items()
                    if number in written and each.op is Ops.BUFFER]}
    document["dependencies"] = [vars(each) for each in checker.hazards(document)]
    document["memory"] = _memory(document, buffers)
    return document


def _looked_at(argument: Any) -> Any:
    """The memory of an argument: of a view, such as other bits, that which it is a view of.

    A part of the memory planner's arena is a buffer of its own.
    """
    if argument.op is Ops.BUFFER:
        return argument
    whole, _ = argument.contiguous_view()
    return whole if whole.is_realized else argument


def accesses(ast: Any) -> tuple[set[int], set[int]]:
    """The numbers of the arguments that a kernel reads, and of those that it writes."""
    if ast.op is Ops.COPY:
        return {1}, {0}
    reads, writes = set[int](), set[int]()
    for node in ast.toposort():
        for position, source in enumerate(node.src):
            if source.op is Ops.INDEX and source.src[0].op is Ops.PARAM:
                stored = node.op is Ops.STORE and position == 0
                (writes if stored else reads).add(source.src[0].arg.slot)
    return reads, writes


def _size(buffer: Any) -> int:
    return int(math.prod(buffer.shape)) * int(buffer.dtype.itemsize)


def _access(buffer: Any, number: int, versions: dict[int, int]) -> dict[str, int]:
    return {"buffer": number, "version": versions.get(number, 0), "start": 0,
            "stop": _size(buffer)}


def _buffer(buffer: Any, number: int, written: Collection[int]) -> dict[str, Any]:
    kind = "temporary" if buffer.op is not Ops.BUFFER else "input"
    if kind == "input" and number in written:
        kind = "state" if buffer.is_realized else "output"
    return {"id": number, "kind": kind, "dtype": NAMES[buffer.dtype],
            "shape": list(buffer.shape), "bytes": _size(buffer), "device": str(buffer.device)}


def _memory(document: Document, buffers: dict[Any, int]) -> dict[str, Any]:
    """What the memory planner placed: the arguments that are parts of an arena."""
    arenas: dict[Any, int] = {}
    places, lives = [], checker.lifetimes(document)
    for buffer, number in buffers.items():
        if buffer.op is not Ops.BUFFER:
            arena, offset = buffer.contiguous_view()
            places.append({"buffer": number, "arena": arenas.setdefault(arena, len(arenas)),
                           "offset": offset * arena.dtype.itemsize, "bytes": _size(buffer),
                           "first": lives[number].first, "last": lives[number].last})
    document["memory"] = {"alignment": 256, "placements": places}
    return {"alignment": 256, "placements": places,
            "arenas": [{"id": number, "bytes": _size(each)} for each, number in arenas.items()],
            "planned": sum(map(_size, arenas)),
            "unplanned": sum(-(-each["bytes"] // 256) * 256 for each in places),
            "lower_bound": checker.lower_bounds(document)[0]}
