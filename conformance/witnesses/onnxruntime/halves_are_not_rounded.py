"""onnxruntime 1.31.1, CPU provider. A chain of operations on halves is not rounded after each of
them: single precision is used throughout, with no conversion between. ONNX says that the result
of Add is a float16.
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


big, one = np.array([2048], np.float16), np.array([1], np.float16)
expected = ((big + one) - big).tolist()
found = run([("Add", ["big", "one"]), ("Sub", ["0", "big"])], big=big, one=one).tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
