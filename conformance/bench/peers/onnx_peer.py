"""onnxruntime, as the benchmark sees it: a graph of ONNX operators, run with all its rewriting on.

It only runs graphs that somebody has differentiated already, so training steps are not measured.
"""
from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np

from conformance.bench.operations import EPSILON
from conformance.bench.peers import NotMeasured, Numbers, Ready
from conformance.bench.workloads import Array, Workload

#: Attention is written as products around a softmax, or as the one operator that the library has.
OPSET, IR_VERSION = 23, 11


def make() -> OnnxPeer:
    """The adapter."""
    return OnnxPeer(import_module("onnxruntime"), import_module("onnx"))


class OnnxPeer:
    def __init__(self, library: Any, format_library: Any) -> None:
        self.library, self.onnx = library, format_library

    def version(self) -> str:
        return str(self.library.__version__)

    def ready(self, workload: Workload) -> Ready:
        """A session with inputs and output bound to memory, so that nothing is copied."""
        session = self.session(self.model(workload))
        bound = session.io_binding()
        values = {name: self.library.OrtValue.ortvalue_from_numpy(array)
                  for name, array in workload.inputs.items()}
        for name, value in values.items():
            bound.bind_ortvalue_input(name, value)
        bound.bind_output("answer", "cpu")
        session.run_with_iobinding(bound)
        answer = bound.get_outputs()[0]
        bound.bind_ortvalue_output("answer", answer)

        def run() -> Any:
            session.run_with_iobinding(bound)
            return answer
        return Ready(run, lambda said: [said.numpy()])

    def values(self, workload: Workload) -> list[Array]:
        made = self.ready(workload)
        return made.values(made.run())

    def add(self) -> Numbers:
        raise NotMeasured("only runs graphs that were built before")

    def session(self, model: Any) -> Any:
        """With as many threads as everybody has."""
        options = self.library.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        options.inter_op_num_threads = 1
        options.graph_optimization_level = self.library.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        return self.library.InferenceSession(model.SerializeToString(), options,
                                             providers=["CPUExecutionProvider"])

    def model(self, workload: Workload) -> Any:
        """The workload as an ONNX model with the output `answer`."""
        if workload.parameters:
            raise NotMeasured("computes no gradients")
        helper, graph = self.onnx.helper, Graph(self.onnx)
        inputs = {name: Node(graph, name, array.shape) for name, array in workload.inputs.items()}
        answer = workload.compute(inputs, OnnxWords(graph))
        graph.nodes.append(helper.make_node("Identity", [answer.name], ["answer"]))
        given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                               array.shape)
                 for name, array in workload.inputs.items()]
        # The output's dtype and shape are inferred.
        made = helper.make_graph(graph.nodes, workload.name, given,
                                 [self.onnx.ValueInfoProto(name="answer")], graph.constants)
        return helper.make_model(made, opset_imports=[
            helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)],
            ir_version=IR_VERSION)


class Graph:
    """Operators and constants as they are added."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: Any, domain: str = "", outputs: int = 1,
            **attributes: Any) -> Node:
        """An operator; inputs are nodes, or constants. The first of its outputs."""
        names = [one.name if isinstance(one, Node) else self.constant(one) for one in inputs]
        made = [f"{operator}_{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(self.library.helper.make_node(operator, names, made, domain=domain,
                                                        **attributes))
        return Node(self, made[0])

    def constant(self, value: Any) -> str:
        """Python's numbers are float32, lists of numbers are int64."""
        array = np.asarray(value, np.float32 if isinstance(value, int | float) else None)
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.library.numpy_helper.from_array(array, name))
        return name


class Node:
    """An array of the graph, with Python's operators. Only inputs know their shape."""

    def __init__(self, graph: Graph, name: str, shape: tuple[int, ...] = ()) -> None:
        self.graph, self.name, self.shape = graph, name, shape

    def __add__(self, other: Any) -> Node:
        return self.graph.add("Add", self, other)

    def __mul__(self, other: Any) -> Node:
        return self.graph.add("Mul", self, other)

    def __matmul__(self, other: Any) -> Node:
        return self.graph.add("MatMul", self, other)

    def __getitem__(self, key: Any) -> Node:
        """A number, or slices."""
        if isinstance(key, int):
            return self.graph.add("Gather", self, np.array(key, np.int64), axis=0)
        return self.graph.add("Slice", self, *(np.array(numbers, np.int64) for numbers in (
            [one.start or 0 for one in key],
            [np.iinfo(np.int64).max if one.stop is None else one.stop for one in key],
            range(len(key)), [one.step or 1 for one in key])))


class OnnxWords:
    """The operations of workloads, as ONNX operators."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.add = graph, graph.add

    def relu(self, x: Node) -> Node:
        return self.add("Relu", x)

    def gelu(self, x: Node) -> Node:
        return self.add("Gelu", x, approximate="tanh")

    def sum(self, x: Node, axis: int | None = None) -> Node:
        axes = range(len(x.shape)) if axis is None else [axis]
        return self.add("ReduceSum", x, np.array(axes, np.int64), keepdims=0)

    def max(self, x: Node, axis: int) -> Node:
        return self.add("ReduceMax", x, np.array([axis]), keepdims=0)

    def argmax(self, x: Node, axis: int) -> Node:
        return self.add("ArgMax", x, axis=axis, keepdims=0)

    def cumsum(self, x: Node, axis: int) -> Node:
        return self.add("CumSum", x, np.array(axis, np.int64))

    def sort(self, x: Node) -> Node:
        return self.add("TopK", x, np.array([x.shape[-1]]), outputs=2, largest=0)

    def softmax(self, x: Node) -> Node:
        return self.add("Softmax", x, axis=-1)

    def layer_norm(self, x: Node, scale: Any = None, shift: Any = None) -> Node:
        if scale is None:
            scale = np.ones(x.shape[-1:], np.float32)
            return self.add("LayerNormalization", x, scale, epsilon=EPSILON)
        return self.add("LayerNormalization", x, scale, shift, epsilon=EPSILON)

    def rms_norm(self, x: Node, scale: Any) -> Node:
        return self.add("SimplifiedLayerNormalization", x, scale, epsilon=EPSILON)

    def cross_entropy(self, scores: Node, targets: Node) -> Node:
        return self.add("SoftmaxCrossEntropyLoss", scores, targets)

    def reshape(self, x: Node, *shape: int) -> Node:
        return self.add("Reshape", x, np.array(shape, np.int64))

    def permute(self, x: Node, *axes: int) -> Node:
        return self.add("Transpose", x, perm=axes)

    def rows(self, table: Node, numbers: Node) -> Node:
        return self.add("Gather", table, numbers, axis=0)

    def attention(self, query: Node, key: Node, value: Node, causal: bool = False,
                  mask: Any = None) -> Node:
        inputs = (query, key, value) if mask is None else (query, key, value, mask)
        return self.add("Attention", *inputs, is_causal=int(causal))

    def conv2d(self, x: Node, weight: Node, stride: int = 1, padding: int = 0,
               groups: int = 1) -> Node:
        return self.add("Conv", x, weight, strides=[stride] * 2, pads=[padding] * 4, group=groups)

    def wide_product(self, x: Node, y: Node) -> Node:
        return self.add("MatMulInteger", x, y)
