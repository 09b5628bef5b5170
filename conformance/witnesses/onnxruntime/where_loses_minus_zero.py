"""onnxruntime 1.32.0, CPU provider. Where gives 0 where it chooses a -0."""
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


choose, x, y = np.array([True]), np.array([-0.0], np.float32), np.array([1], np.float32)
expected, found = "-0.0", str(run([("Where", ["choose", "x", "y"])], choose=choose, x=x, y=y)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
