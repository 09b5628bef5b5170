"""What the suite and an implementation say to each other: programs, messages, observations.

A *program* is plain data: a list of small statements over named tensor variables.  It has
eager value semantics: every statement is executed where it stands, and a variable denotes the
value its statement had at that moment.  A `store` or an `assign` gives its target a new value
for later statements; it changes no other variable, whatever that variable was computed from.

A `copy` may name the device that its result lies on: `"device": n`, n modulo the number of devices
that the implementation lists.  Inputs and constants lie on device 0, any other result where its
operands do.  The values are those of one device.

A `shard` lays its value on a mesh, a block of devices with named axes; the spec's chapter on
statements says what that is.  The values are still those of one device, and what each device of
the mesh has of a value is seen by `shards`.

    {"format": "tensor-program/1", "statements": [
      {"do": "input", "to": "t0", "dtype": "int32", "shape": [2], "data": "0100000002000000"},
      {"do": "add", "to": "t1", "from": ["t0", "t0"]},
      {"do": "observe", "names": ["t1"]}]}

An implementation is driven through an `Adapter`.  The ones written in Python implement it
directly; any other program speaks the same messages as JSON lines on its standard input and
output, and `SubprocessAdapter` makes an `Adapter` of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from conformance.protocol.schema import SchemaError, validate

PROGRAM_FORMAT = "tensor-program/1"
PROTOCOL = "tensor-conformance/1"
REPORT_FORMAT = "tensor-report/1"

Statement = dict[str, Any]
Program = dict[str, Any]
Document = dict[str, Any]
Options = Mapping[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]

TIERS = ("values", "schedule", "order", "memory", "cache", "replay", "multi", "errors",
         "gradient", "sharded")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS)

FLOAT_UNARY = ("exp", "log", "sqrt", "sin", "tanh", "reciprocal")
UNARY = ("neg", "abs", "relu", "not", *FLOAT_UNARY)
ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "mod", "maximum", "minimum", "pow")
COMPARISONS = ("less", "less_equal", "equal")
BITWISE = ("and", "or", "xor")
BINARY = (*ARITHMETIC, *COMPARISONS, *BITWISE)
MOVEMENT = ("reshape", "expand", "permute", "pad", "shrink", "flip", "stride")
VIEW_STEPS = ("reshape", "permute", "shrink", "flip", "stride")
REDUCTIONS = ("sum", "prod", "max", "min", "mean")
SOURCES = ("input", "constant")
OTHER = ("where", "cast", "bitcast", "matmul", "softmax", "cumsum", "gather", "contiguous", "copy",
         "gradient", "shard", "shard_like")
EXPRESSIONS = (*SOURCES, *UNARY, *BINARY, *MOVEMENT, *REDUCTIONS, *OTHER)
REPETITIONS = ("repeat", "calls")
EFFECTS = ("assign", "store", "realize", "drop", "observe", "shards", *REPETITIONS)
STATEMENTS = (*EXPRESSIONS, *EFFECTS)


class ProtocolError(Exception):
    """The other side broke the protocol: a late, damaged, missing or unexpected answer."""


class Unsupported(Exception):
    """The implementation says that it does not do something that the program asks for."""


class ImplementationError(Exception):
    """The implementation answered that it failed; `traceback` is what it said about that."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


@dataclass(frozen=True)
class Value:
    """One observed tensor: its elements as hexadecimal bytes, little endian, row by row."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: str

    @staticmethod
    def of(name: str, array: Array) -> Value:
        return Value(name, array.dtype.name, array.shape, encode(array))

    def array(self) -> Array:
        return decode(self.dtype, self.shape, self.data)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape),
                "data": self.data}

    @staticmethod
    def from_json(message: Mapping[str, Any]) -> Value:
        return Value(message["name"], message["dtype"], tuple(message["shape"]), message["data"])


@dataclass(frozen=True)
class Laid:
    """How an observed tensor lies on a mesh, and what each device has of it.

    `devices` are numbers among the `meshes` of the info, row by row of `axes`, which are names with
    sizes.  `cut` has for an axis of the mesh the axis of the tensor that is cut along it.
    `shards` are what the devices have, in the order of `devices`.
    """

    name: str
    devices: tuple[int, ...]
    axes: tuple[tuple[str, int], ...]
    cut: dict[str, int]
    shards: list[Value]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "devices": list(self.devices),
                "axes": [list(axis) for axis in self.axes], "cut": self.cut,
                "shards": [each.to_json() for each in self.shards]}

    @staticmethod
    def from_json(message: Mapping[str, Any]) -> Laid:
        return Laid(message["name"], tuple(message["devices"]),
                    tuple((name, size) for name, size in message["axes"]), message["cut"],
                    [Value.from_json(each) for each in message["shards"]])


@dataclass(frozen=True)
class Info:
    """What an implementation says about itself when it is started.

    `observes` are the tiers it claims.  `statements` and `dtypes` are what it can execute: an
    answer `unsupported` about anything listed here is a failure.  `devices` are what `"device": n`
    counts; who claims the tier `multi` has two or more.  `meshes` are the devices that a mesh may
    be made of; who claims the tier `sharded` has two or more.  `settings` are the switches that the
    option `settings` accepts.  `choices` are its implementation-defined choices.
    """

    name: str
    version: str
    language: str = "Python"
    observes: tuple[str, ...] = ("values",)
    statements: tuple[str, ...] = STATEMENTS
    dtypes: tuple[str, ...] = DTYPES
    devices: tuple[str, ...] = ("CPU",)
    meshes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    choices: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @staticmethod
    def from_json(message: Mapping[str, Any]) -> Info:
        check("message", {"type": "started", "info": message})
        known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                 for name, value in message.items() if name in Info.__dataclass_fields__}
        return Info(**known)


@dataclass
class Observation:
    """What one run of a program showed.

    `values`: one entry for each name of each executed `observe`, in the order of execution.
    `schedule`: one document for each executed statement that had kernels to run.
    `order`: for each of these documents, the kernel ids in the order they really ran in.
    `laid`: one entry for each name of each executed `shards`, in the order of execution.
    """

    values: list[Value] = field(default_factory=list)
    schedule: list[Document] = field(default_factory=list)
    order: list[list[int]] = field(default_factory=list)
    laid: list[Laid] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"values": [value.to_json() for value in self.values],
                "schedule": self.schedule, "order": self.order,
                "laid": [each.to_json() for each in self.laid]}

    @staticmethod
    def from_json(message: Mapping[str, Any]) -> Observation:
        check("observation", message)
        values = [Value.from_json(each) for each in message["values"]]
        return Observation(values, list(message.get("schedule", ())),
                           [list(order) for order in message.get("order", ())],
                           [Laid.from_json(each) for each in message.get("laid", ())])


class Adapter(Protocol):
    """What the suite drives.  A class of this form, or a function returning one, is a plug-in.

    `run` executes a program and answers what `observe`, a set of tiers, asks for.  Options:

    - `settings`: names and values of switches, in force during this run only;
    - `order_seed`: run the kernels in a legal order drawn with this seed;
    - `poison`: overwrite memory with garbage when it is freed or reused, where that is possible.

    It raises `Unsupported` for what the implementation does not do, any other exception for a
    failure.  `reset` forgets everything: tensors, caches, captured functions.  An adapter may have
    a method `prepare(runs)` too: it is given programs with their options before they are run, for
    example to compile them together.
    """

    def info(self) -> Info: ...

    def run(self, program: Program, observe: Collection[str],
            options: Options = ...) -> Observation: ...

    def reset(self) -> None: ...


def encode(array: Array) -> str:
    """The elements of an array as hexadecimal little-endian bytes."""
    little = array.dtype.newbyteorder("<")
    return np.ascontiguousarray(array).astype(little, copy=False).tobytes().hex()


def decode(dtype: str, shape: Sequence[int], data: str) -> Array:
    """The array that `encode` wrote.  Raises ProtocolError when size and shape disagree."""
    if dtype not in DTYPES:
        raise ProtocolError(f"unknown dtype {dtype!r}")
    try:
        raw = bytes.fromhex(data)
    except ValueError as error:
        raise ProtocolError(f"data is not hexadecimal: {data[:40]!r}") from error
    little = np.dtype(dtype).newbyteorder("<")
    count = int(np.prod(shape, dtype=np.int64))
    if len(raw) != count * little.itemsize:
        raise ProtocolError(f"{len(raw)} bytes given for {dtype} of shape {tuple(shape)}, "
                            f"which has {count * little.itemsize}")
    return np.frombuffer(raw, little).astype(np.dtype(dtype)).reshape(tuple(shape))


def program(statements: Iterable[Statement]) -> Program:
    """A program made of these statements."""
    return {"format": PROGRAM_FORMAT, "statements": list(statements)}


def itemsize(dtype: str) -> int:
    """The bytes of one element."""
    return np.dtype(dtype).itemsize


def number(value: Any) -> float | int | bool:
    """The value of a `constant`: JSON has no NaN and no infinities, so they are words."""
    words = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
    return words[value] if isinstance(value, str) else value


def walk(statements: Iterable[Statement]) -> Iterable[Statement]:
    """Every statement once, with those inside `repeat`, in the order they are written."""
    for statement in statements:
        yield statement
        yield from statement.get("statements", ())


def calls(repetition: Mapping[str, Any]) -> list[list[Statement]]:
    """The statements of each iteration of a `repeat` or of `calls`, arguments put in.

    An iteration of `calls` is given variables and numbers by other names: {"x": "t0", "k": 2}
    lets `x` mean `t0` there, and {"given": "k"} the number 2 where a constant has its value.
    """
    if repetition["do"] == "repeat":
        return [repetition["statements"]] * repetition["count"]
    return [[_with_arguments(each, given) for each in repetition["statements"]]
            for given in repetition["given"]]


def _with_arguments(statement: Statement, given: Mapping[str, Any]) -> Statement:
    changed = dict(statement)
    for field_ in ("from", "names"):
        if field_ in changed:
            changed[field_] = [given.get(name, name) for name in changed[field_]]
    if isinstance(changed.get("value"), dict):
        changed["value"] = given[changed["value"]["given"]]
    return changed


def needs(subject: Program) -> tuple[set[str], set[str]]:
    """The statements and the dtypes that a program uses by name."""
    statements = list(walk(subject["statements"]))
    steps = [step["do"] for each in statements for step in each.get("view", ())]
    return ({each["do"] for each in statements} | set(steps),
            {each["dtype"] for each in statements if "dtype" in each})


@cache
def schema(name: str) -> dict[str, Any]:
    """One of the shipped JSON Schemas: program, message, observation, schedule, report."""
    path = Path(__file__).parent / "schemas" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def check(name: str, document: Any) -> None:
    """Raise ProtocolError, naming the place, unless a document follows the schema `name`."""
    try:
        validate(document, schema(name), schema)
    except SchemaError as error:
        raise ProtocolError(f"not a valid {name}: {error}") from error


def paste(subject: Program) -> str:
    """A program as JSON with one statement a line: short enough to paste and to read."""
    lines = ",\n  ".join(json.dumps(each) for each in subject["statements"])
    note = f' "note": {json.dumps(subject["note"])},' if "note" in subject else ""
    rules = f' "rules": {json.dumps(subject["rules"])},' if "rules" in subject else ""
    return f'{{"format": "{PROGRAM_FORMAT}",{note}{rules}\n "statements": [\n  {lines}]}}\n'
