"""onnxruntime 1.31.1, CPU provider. Cast of a double to a float16 goes by way of float, and rounds
twice: just above the middle of two halves it becomes the middle first, and then the even one. ONNX
says that Cast rounds to the nearest value.
"""
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper


def run(operators: list[tuple[str, list[str]]], **inputs: np.ndarray) -> np.ndarray:
    """The last result of these operators, named by their position."""
    nodes = [helper.make_node(name, sources, [str(i)], to=onnx.TensorProto.FLOAT16)
             for i, (name, sources) in enumerate(operators)]
    constants = [numpy_helper.from_array(array, name) for name, array in inputs.items()]
    output = onnx.ValueInfoProto(name=nodes[-1].output[0])
    graph = helper.make_graph(nodes, "graph", [], [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {})[0]


number = np.array([1 + 2.0**-11 + 2.0**-40])
expected, found = number.astype(np.float16).tolist(), run([("Cast", ["number"])], number=number)

print(f"expected {expected}, found {found.tolist()}")
raise SystemExit(found.tolist() == expected)  # 0 while the library does this
