"""onnxruntime: programs become ONNX models, which its CPU provider runs.

A variable is a node of a graph that grows; what is asked for is an output of the model made of the
graph so far.  ONNX has no assignment, no store and no division that rounds down.  Its operators
are not all there for all dtypes in onnxruntime; declared are the dtypes for which these are.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from conformance.adapters.library import Function, LibraryAdapter
from conformance.protocol import Array, Observation, Options, Program, Statement

DTYPES = ("int32", "float16", "float32", "float64")
LAST = -(2**62)  # before the first element, for a slice that runs backwards


@dataclass(eq=False)
class Symbol:
    """The name of a value in the graph; its elements, once it was an output."""

    name: str
    rank: int
    known: Array | None = None


class Graph:
    """The nodes of a model, in the order in which they were made."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def clear(self) -> None:
        """Begin another program."""
        self.nodes, self.constants = [], []

    def constant(self, array: Array) -> Symbol:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return Symbol(name, array.ndim)

    def numbers(self, values: Sequence[int]) -> Symbol:
        return self.constant(np.array(values, np.int64))

    def node(self, operator: str, rank: int, *sources: Symbol, **fields: Any) -> Symbol:
        made = Symbol(f"n{len(self.nodes)}", rank)
        self.nodes.append(helper.make_node(operator, [each.name for each in sources],
                                           [made.name], **fields))
        return made

    def run(self, outputs: Sequence[Symbol]) -> list[Array]:
        """The elements of these, by a model of their own."""
        copies = [self.copy_of(each, number) for number, each in enumerate(outputs)]
        graph = helper.make_graph([*self.nodes, *copies], "program", [], [
            onnx.ValueInfoProto(name=each.output[0]) for each in copies], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                                  ir_version=10)
        session = onnxruntime.InferenceSession(model.SerializeToString(),
                                               providers=["CPUExecutionProvider"])
        return list(session.run(None, {}))

    def copy_of(self, symbol: Symbol, number: int) -> Any:
        return helper.make_node("Identity", [symbol.name], [f"out{number}"])


GRAPH = Graph()


def plain(operator: str, **fields: Any) -> Function:
    """An operator that takes the sources as they are."""
    return lambda *sources: GRAPH.node(operator, sources[0].rank, *sources, **fields)


def reduced(operator: str) -> Function:
    def reduce(s: Statement, x: Symbol) -> Symbol:
        rank = x.rank if s["keepdims"] else x.rank - len(s["axes"])
        return GRAPH.node(operator, rank, x, GRAPH.numbers(s["axes"]),
                          keepdims=int(s["keepdims"]), noop_with_empty_axes=1)
    return reduce


def sliced(s: Statement, x: Symbol) -> Symbol:
    """`shrink`, `stride` and `flip` are slices of all axes."""
    axes = list(range(x.rank))
    starts, stops, steps = [0] * x.rank, [2**62] * x.rank, [1] * x.rank
    if s["do"] == "shrink":
        starts, stops = [each[0] for each in s["bounds"]], [each[1] for each in s["bounds"]]
    elif s["do"] == "stride":
        steps = list(s["steps"])
    else:
        steps = [-1 if axis in s["axes"] else 1 for axis in axes]
        starts = [-1 if step < 0 else 0 for step in steps]
        stops = [LAST if step < 0 else 2**62 for step in steps]
    if not axes:
        return GRAPH.node("Identity", 0, x)
    return GRAPH.node("Slice", x.rank, x, *map(GRAPH.numbers, (starts, stops, axes, steps)))


def padded(s: Statement, x: Symbol) -> Symbol:
    widths = [each[0] for each in s["widths"]] + [each[1] for each in s["widths"]]
    return GRAPH.node("Pad", x.rank, x, GRAPH.numbers(widths)) if widths else x


def cast(s: Statement, x: Symbol) -> Symbol:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(s["dtype"]))
    return GRAPH.node("Cast", x.rank, x, to=to)


class Adapter(LibraryAdapter[Symbol]):
    """Drives onnxruntime."""

    functions = {
        "neg": plain("Neg"), "abs": plain("Abs"), "relu": plain("Relu"), "exp": plain("Exp"),
        "log": plain("Log"), "sqrt": plain("Sqrt"), "sin": plain("Sin"), "tanh": plain("Tanh"),
        "reciprocal": plain("Reciprocal"), "add": plain("Add"), "sub": plain("Sub"),
        "mul": plain("Mul"), "div": plain("Div"), "pow": plain("Pow"), "maximum": plain("Max"),
        "minimum": plain("Min"), "less": plain("Less"), "less_equal": plain("LessOrEqual"),
        "equal": plain("Equal"), "matmul": plain("MatMul"), "contiguous": plain("Identity"),
        "copy": plain("Identity"),
        "where": lambda c, a, b: GRAPH.node("Where", a.rank, c, a, b),
        "gather": lambda x, at: GRAPH.node("Gather", x.rank + at.rank - 1, x, at, axis=0),
    }
    shaped = {
        "reshape": lambda s, x: GRAPH.node("Reshape", len(s["shape"]), x,
                                           GRAPH.numbers(s["shape"]), allowzero=1),
        "expand": lambda s, x: GRAPH.node("Expand", x.rank, x, GRAPH.numbers(s["shape"])),
        "permute": lambda s, x: GRAPH.node("Transpose", x.rank, x, perm=s["order"]),
        "pad": padded, "shrink": sliced, "stride": sliced, "flip": sliced, "cast": cast,
        "sum": reduced("ReduceSum"), "prod": reduced("ReduceProd"), "max": reduced("ReduceMax"),
        "min": reduced("ReduceMin"), "mean": reduced("ReduceMean"),
        "softmax": lambda s, x: GRAPH.node("Softmax", x.rank, x, axis=s["axis"]),
    }

    def __init__(self) -> None:
        super().__init__("onnxruntime", onnxruntime.__version__, dtypes=DTYPES)
        onnxruntime.set_default_logger_severity(4)

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        GRAPH.clear()
        return super().run(program, observe, options)

    def array(self, elements: Array) -> Symbol:
        return GRAPH.constant(elements)

    def realize(self, tensors: Sequence[Symbol]) -> None:
        for symbol, array in zip(tensors, GRAPH.run(tensors), strict=True):
            symbol.known = np.asarray(array)

    def elements(self, tensor: Symbol) -> Array:
        assert tensor.known is not None, "observed without being realized"
        return tensor.known
