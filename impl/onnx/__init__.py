"""Models of the format ONNX as functions of tensors: `load(path)(x)`.

The table of operators is `operators`; each file beside it holds those of one kind, each of them a
small function of tensors. What is known when a model is loaded, as the arithmetic of shapes, is
computed then, and is no kernel. An operator that ONNX itself defines by others, and that has no row
in the table, is run as that.
"""
from impl.onnx import (  # noqa: F401  (their rows stand in the table)
    control,
    elementwise,
    images,
    layers,
    movement,
    products,
    quantized,
    recurrent,
    reductions,
    signals,
)
from impl.onnx.model import Model, load
from impl.onnx.operators import Host, ModelError, operator

__all__ = ["Host", "Model", "ModelError", "load", "operator"]
