"""Models of ONNX as functions of tensors."""
from __future__ import annotations

import os
from typing import Any

from impl.errors import ArgumentError, DTypeError, ShapeError, TensorScheduleError
from impl.onnx.graph import Graph, Scope
from impl.onnx.operators import HELD, ModelError, Value, dtype_of, tensor_of
from impl.onnx.weights import package
from impl.settings import Context
from impl.tensor import Tensor


def load(source: str | os.PathLike[str] | bytes | Any, device: str | None = None) -> Model:
    """The function that a model of ONNX is: from a path, from bytes, or from a `ModelProto`.

    Weights are read when they are first used, also those in files beside the model. Nothing that a
    file holds is run.

    Args:
        source: a file of ONNX, its bytes, or what `onnx.load` gives.
        device: where weights and inputs lie, and what operators make; the default device if none
            is named.

    Raises:
        ModelError: it is no whole model of ONNX, or has an operator that is not known.
        ArgumentError: the package `onnx`, which reads the format, is not installed.
    """
    onnx = package()
    proto, folder = source, None
    if not isinstance(source, onnx.ModelProto):
        content: Any = source
        if not isinstance(source, bytes):
            folder = os.path.dirname(os.path.abspath(source))
            with open(source, "rb") as file:
                content = file.read()
        try:
            proto = onnx.load_model_from_string(content)
        except Exception as error:  # noqa: BLE001  (the parser's errors are its own)
            raise _damaged(source, error) from None
    try:
        return Model(proto, folder, device)
    except TensorScheduleError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError,
            ValueError) as error:
        raise _damaged(source, error) from error


def _damaged(source: Any, error: Exception) -> ModelError:
    return ModelError("onnx.load", f"{source!r:.80} is damaged or no model of ONNX ({error})",
                      "give a whole file of ONNX")


class Model:
    """A model of ONNX: called with its inputs, in their order or by their names, it gives a tensor,
    or a tuple of several.

    `inputs` and `outputs` are their names. A call is a tensor expression like any other: it can be
    captured by `TinyJit`, differentiated, and exported.
    """

    def __init__(self, proto: Any, folder: str | None, device: str | None) -> None:
        if not proto.HasField("graph") or not proto.opset_import:
            raise ModelError("onnx.load", "there is no graph, or no version of its operators",
                             "give a whole file of ONNX")
        self.device = device
        self.graph = Graph(proto.graph, Scope(proto.opset_import, proto.functions,
                                              (folder, device)), {})
        self.inputs, self.outputs = tuple(self.graph.inputs), tuple(self.graph.outputs)
        self._types = {each.name: each.type for each in proto.graph.input}
        _say_types(self.graph, proto)

    def __repr__(self) -> str:
        return f"onnx.Model({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"

    def __call__(self, *given: Any, **named: Any) -> Any:
        """The outputs for inputs: tensors, arrays, lists of numbers.

        Raises:
            ArgumentError: an input is missing, or given twice, or is none.
            ShapeError: it has other sizes than the model says.
            DTypeError: it has another dtype.
        """
        if len(given) > len(self.inputs):
            raise ArgumentError("onnx model", f"{len(given)} inputs are given",
                                f"it has {len(self.inputs)}: {', '.join(self.inputs)}")
        values: dict[str, Value] = dict(zip(self.inputs, given, strict=False))
        for name, value in named.items():
            if name in values or name not in self.inputs:
                raise ArgumentError("onnx model", f"the input {name!r} is given twice, or is none",
                                    f"its inputs are {', '.join(self.inputs)}")
            values[name] = value
        missing = [name for name in self.inputs if name not in values
                   and not self._types[name].HasField("optional_type")]
        if missing:
            raise ArgumentError("onnx model", f"the inputs {missing} are not given",
                                f"it has {len(self.inputs)}: {', '.join(self.inputs)}")
        # What operators make of nothing, as a range, lies where the weights do.
        place = {"DEVICE": self.device} if isinstance(self.device, str) else {}
        with Context(**place):
            found = self.graph.run({name: self._checked(name, values.get(name))
                                    for name in self.inputs})
            results = tuple(self._result(each) for each in found)
        return results[0] if len(results) == 1 else results

    def _result(self, value: Value) -> Any:
        if isinstance(value, list):
            return [self._result(each) for each in value]
        return None if value is None else tensor_of(value, self.device)

    def _checked(self, name: str, value: Any) -> Value:
        """An input as a tensor of the type that the model says."""
        kind = self._types[name]
        if kind.HasField("optional_type"):
            kind = kind.optional_type.elem_type
        if value is None or kind.HasField("sequence_type"):
            return value if value is None else [tensor_of(each, self.device) for each in value]
        number = kind.tensor_type.elem_type
        if isinstance(value, (bool, int, float, list, tuple)):
            value = Tensor(value, dtype=dtype_of(number), device=self.device)
        found = tensor_of(value, self.device)
        if number and found.dtype is not dtype_of(number):
            raise DTypeError("onnx model", f"the input {name!r} is {found.dtype.name}, where the "
                             f"model has {dtype_of(number).name}", "cast it before the call")
        wanted = [each.dim_value if each.HasField("dim_value") else None
                  for each in kind.tensor_type.shape.dim]
        if kind.tensor_type.HasField("shape") and (len(wanted) != found.ndim or any(
                one is not None and one != two
                for one, two in zip(wanted, found.shape, strict=True))):
            shown = ", ".join(str(each.dim_value) if each.HasField("dim_value")
                              else each.dim_param or "?" for each in kind.tensor_type.shape.dim)
            raise ShapeError("onnx model", f"the input {name!r} has shape {tuple(found.shape)}, "
                             f"where the model has ({shown})", "give an input of these sizes")
        return found


def _say_types(graph: Graph, proto: Any) -> None:
    """Tell nodes which element types their inputs have, if there are any without a dtype."""
    declared = [each.type.tensor_type.elem_type for each in proto.graph.input] + [
        each.type.tensor_type.elem_type for each in proto.graph.output] + [
        each.data_type for each in proto.graph.initializer]
    if not any(each in HELD for each in declared):
        return
    onnx = package()
    try:
        inferred = onnx.shape_inference.infer_shapes(proto).graph
    except onnx.shape_inference.InferenceError as error:  # a node that lacks outputs, as one
        raise ValueError(error) from None
    types = {each.name: each.type.tensor_type.elem_type
             for each in (*inferred.input, *inferred.output, *inferred.value_info)}
    types |= {each.name: each.data_type for each in inferred.initializer}
    for node in graph.nodes:
        node.types = ([types.get(name, 0) for name in node.inputs],
                      [types.get(name, 0) for name in node.outputs])
