"""onnxruntime 1.31.1, CPU provider. ReduceMin and ReduceMax lose a NaN that is not the first
element.
"""
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper


def run(operators: list[tuple[str, list[str]]], **inputs: np.ndarray) -> np.ndarray:
    """The last result of these operators, named by their position."""
    nodes = [helper.make_node(name, sources, [str(i)])
             for i, (name, sources) in enumerate(operators)]
    constants = [numpy_helper.from_array(array, name) for name, array in inputs.items()]
    output = onnx.ValueInfoProto(name=nodes[-1].output[0])
    graph = helper.make_graph(nodes, "graph", [], [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {})[0]


x, axes = np.array([3, np.nan, 0, 2, 7], np.float32), np.array([0])
expected, found = "nan nan", " ".join(str(run([(name, ["x", "axes"])], x=x, axes=axes)[0])
                                      for name in ("ReduceMin", "ReduceMax"))

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
