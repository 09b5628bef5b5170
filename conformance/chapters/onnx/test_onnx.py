"""Models of ONNX as functions: what they give, what is refused, what a damaged file can do."""
from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from impl import Context, Tensor, TinyJit
from impl.errors import ArgumentError, DTypeError, ShapeError, TensorScheduleError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import impl.onnx  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
SOME = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def model(nodes: Sequence[Any], inputs: dict[str, Any], outputs: Sequence[str],
          weights: dict[str, np.ndarray] | None = None, version: int = 21,
          functions: Sequence[Any] = ()) -> Any:
    """A model: inputs by name with their shapes, of float32."""
    given = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    initial = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    imports = [helper.make_opsetid("", version), helper.make_opsetid("own", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", given, made, initial),
                             opset_imports=imports, functions=functions)


def linear() -> Any:
    """x @ w, whose sizes are computed in the model: Shape, Gather, Concat, Reshape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["batch"], axis=0),
        helper.make_node("Unsqueeze", ["batch", "zeros"], ["batches"]),
        helper.make_node("Concat", ["batches", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"], name="product")]
    weights = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([4]),
               "w": np.arange(8, dtype=np.float32).reshape(4, 2)}
    return model(nodes, {"x": ("batch", 2, 2)}, ["y"], weights)


def test_a_model_is_a_function_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    path.write_bytes(linear().SerializeToString())
    wanted = SOME @ np.arange(8, dtype=np.float32).reshape(4, 2)
    for given in (linear(), linear().SerializeToString(), str(path), path):
        function = impl.onnx.load(given)
        assert function.inputs == ("x",) and function.outputs == ("y",)
        x = Tensor(SOME.reshape(3, 2, 2), requires_grad=True)
        for found in (function(x), function(x=SOME.reshape(3, 2, 2)),
                      function(SOME.reshape(3, 2, 2).tolist())):
            assert np.allclose(found.numpy(), wanted, atol=1e-6)
        y = function(x)
        y.sum().backward()
        assert x.grad is not None and x.grad.numpy()[0].tolist() == [[1, 5], [9, 13]]


def test_the_arithmetic_of_shapes_is_no_kernel() -> None:
    x = Tensor(SOME.reshape(3, 2, 2))
    document = Tensor.schedule_document(impl.onnx.load(linear())(x))
    kernel, = document["kernels"]
    assert kernel["label"].startswith("MatMul product (") and "test_onnx.py" in kernel["label"]
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    weights = {name: np.full(2, 3, np.float32) for name in "ab"}
    loaded = impl.onnx.load(model(nodes, {"x": (2,)}, ["y"], weights))
    assert [node.kind for node in loaded.graph.nodes] == ["Add"]
    assert loaded([1, 2]).tolist() == [7, 8]


def test_a_model_is_captured() -> None:
    function = impl.onnx.load(linear())
    captured = TinyJit(function)
    for number in range(5):
        x = Tensor(SOME.reshape(3, 2, 2) * number).realize()
        assert np.allclose(captured(x).numpy(), function(x).numpy())
    assert "3 replayed" in captured.explain()


def test_inputs_are_checked() -> None:
    function = impl.onnx.load(linear())
    with pytest.raises(ShapeError, match=r"'x' has shape \(3, 4\), where the model has \(batch, 2"):
        function(SOME)
    with pytest.raises(DTypeError, match="'x' is float64, where the model has float32.*cast it"):
        function(np.zeros((1, 2, 2)))
    with pytest.raises(ArgumentError, match=r"the inputs \['x'\] are not given"):
        function()
    with pytest.raises(ArgumentError, match="'z' is given twice, or is none"):
        function(SOME.reshape(3, 2, 2), z=1)
    with pytest.raises(ArgumentError, match="2 inputs are given"):
        function(SOME, SOME)


def test_an_operator_that_is_not_known_is_named() -> None:
    node = helper.make_node("Sofmax", ["x"], ["y"], name="last")
    with pytest.raises(impl.onnx.ModelError, match=r"onnx node 'last' \(Sofmax\): there is no "
                       r"operator Sofmax of ai.onnx, version 21; .*Remedy: Softmax is known"):
        impl.onnx.load(model([node], {"x": (2,)}, ["y"]))
    node = helper.make_node("Twice", ["x"], ["y"], domain="own", by=3)
    with pytest.raises(impl.onnx.ModelError, match="Twice of own, version 1.*impl.onnx.operator"):
        impl.onnx.load(model([node], {"x": (2,)}, ["y"]))

    @impl.onnx.operator("Twice", domain="own")
    def twice(x: Tensor, *, by: int = 2) -> Tensor:
        return x * by

    assert impl.onnx.load(model([node], {"x": (2,)}, ["y"]))([1, 2]).tolist() == [3, 6]
    del impl.onnx.operators._TABLE["own", "Twice"]
    node = helper.make_node("Relu", ["x"], ["y"], slope=1.0)
    with pytest.raises(impl.onnx.ModelError, match=r"attributes \['slope'\]"):
        impl.onnx.load(model([node], {"x": (2,)}, ["y"]))


def test_an_error_names_the_node() -> None:
    function = impl.onnx.load(model([helper.make_node("MatMul", ["x", "z"], ["y"], name="product")],
                                    {"x": (2, 3), "z": (2, 3)}, ["y"]))
    with pytest.raises(ShapeError, match=r"onnx node 'product' \(MatMul\).*test_onnx.py"):
        function(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
    function = impl.onnx.load(model([helper.make_node("Relu", ["z"], ["y"])], {"x": (2,)}, ["y"]))
    with pytest.raises(impl.onnx.ModelError, match="reads 'z', which nothing before it gives"):
        function([1, 2])
    function = impl.onnx.load(model([helper.make_node("Relu", ["x", "x"], ["y"])], {"x": (2,)},
                                    ["y"]))
    with pytest.raises(impl.onnx.ModelError, match=r"inputs of shapes \[\(2,\), \(2,\)\] do not"):
        function([1, 2])


def test_functions_of_a_model_are_called() -> None:
    reference = helper.make_node("LeakyRelu", ["a"], ["b"])
    attribute = reference.attribute.add()
    attribute.name, attribute.ref_attr_name = "alpha", "slope"
    attribute.type = onnx.AttributeProto.FLOAT
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Leaky", ["a"], ["b"], [reference], imports, ["slope"])
    node = helper.make_node("Leaky", ["x"], ["y"], domain="own", slope=0.5)
    loaded = impl.onnx.load(model([node], {"x": (2,)}, ["y"], functions=[function]))
    assert loaded([-2, 2]).tolist() == [-1, 2]
    circle = helper.make_function("own", "Leaky", ["a"], ["b"], [
        helper.make_node("Leaky", ["a"], ["b"], domain="own")], imports)
    with pytest.raises(impl.onnx.ModelError, match="'Leaky' calls itself"):
        impl.onnx.load(model([node], {"x": (2,)}, ["y"], functions=[circle]))([1, 2])


def test_functions_that_double_each_other_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impl.onnx.graph, "_MOST_NODES", 500)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    chain = [helper.make_function("own", f"F{depth}", ["a"], ["c"], [
        helper.make_node(f"F{depth + 1}" if depth < 9 else "Neg", [one], [two],
                         domain="own" if depth < 9 else "")
        for one, two in ("ab", "bc")], imports) for depth in range(10)]
    node = helper.make_node("F0", ["x"], ["y"], domain="own")
    with pytest.raises(impl.onnx.ModelError, match="more than 500 nodes"):
        impl.onnx.load(model([node], {"x": (2,)}, ["y"], functions=chain))([1, 2])
    node = helper.make_node("F5", ["x"], ["y"], domain="own")
    assert impl.onnx.load(model([node], {"x": (2,)}, ["y"],
                                functions=chain))([1, 2]).tolist() == [1, 2]


def test_branches_know_what_is_around_them() -> None:
    def branch(name: str, kind: str) -> Any:
        return helper.make_graph([helper.make_node(kind, ["x", "w"], [name])], name, [],
                                 [helper.make_tensor_value_info(name, FLOAT, (2,))])

    nodes = [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
             helper.make_node("Greater", ["sum", "zero"], ["is"]),
             helper.make_node("If", ["is"], ["y"], then_branch=branch("a", "Add"),
                              else_branch=branch("b", "Mul"))]
    weights = {"w": np.array([3, 4], np.float32), "zero": np.array(0, np.float32)}
    function = impl.onnx.load(model(nodes, {"x": (2,)}, ["y"], weights))
    assert function([1, 2]).tolist() == [4, 6] and function([-1, -2]).tolist() == [-3, -8]


# What a file says


def in_a_file(folder: Path, said: dict[str, str], content: bytes = b"") -> Any:
    """A model whose weight is in a file beside it."""
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (5000,)}, ["y"],
                 {"w": np.zeros(5000, np.float32)})
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in said.items():
        each = weight.external_data.add()
        each.key, each.value = key, value
    (folder / "weights").write_bytes(content)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_weights_in_files_are_read_when_they_are_used(tmp_path: Path) -> None:
    content = np.arange(5001, dtype=np.float32).tobytes()
    path = in_a_file(tmp_path, {"location": "weights", "offset": "4", "length": "20000"}, content)
    function = impl.onnx.load(path)
    assert not function.graph.weights.made
    assert function(np.zeros(5000, np.float32))[:2].tolist() == [1, 2]


@pytest.mark.parametrize(("said", "told"), [
    ({"location": "../weights"}, "outside of the model's folder"),
    ({"location": "/etc/passwd"}, "outside of the model's folder"),
    ({"location": "weights", "offset": "8"}, "20000 bytes at 8 of 'weights'"),
    ({"location": "weights", "offset": "-4"}, "20000 bytes at -4"),
    ({"location": "weights", "length": "4"}, "20000 bytes at 0"),
    ({"location": "nothing"}, "bytes at 0 of 'nothing'"),
    ({"location": "weights", "offset": "many"}, "has the place"),
])
def test_files_outside_or_too_small_are_not_read(said: dict[str, str], told: str,
                                                 tmp_path: Path) -> None:
    path = in_a_file(tmp_path, said, bytes(20000))
    with pytest.raises(impl.onnx.ModelError, match=told):
        impl.onnx.load(path)(np.zeros(5000, np.float32))


@pytest.mark.parametrize(("sizes", "told"), [
    ([1 << 40], "has 8 bytes where sizes"), ([-1], "has the sizes"), ([3], "has 8 bytes"),
    ([1] * 70, "has the sizes")])
def test_sizes_of_a_weight_are_not_believed(sizes: list[int], told: str) -> None:
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,)}, ["y"],
                 {"w": np.zeros(2, np.float32)})
    made.graph.initializer[0].dims[:] = sizes
    with pytest.raises(impl.onnx.ModelError, match=told):
        impl.onnx.load(made)(np.zeros(2, np.float32))


def test_a_damaged_file_is_refused_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(impl.onnx.ModelError, match="is damaged or no model of ONNX"):
        impl.onnx.load(b"no model" * 10)
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    with pytest.raises(impl.onnx.ModelError, match="there is no graph"):
        impl.onnx.load(path)
    whole = linear().SerializeToString()
    with pytest.raises(impl.onnx.ModelError, match="is no text"):
        impl.onnx.load(whole.replace(b"\x01x\x12\x17", b"\x01\xff\x12\x17"))
    drawn, refused = random.Random(3), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            damaged[drawn.randrange(len(damaged))] = drawn.randrange(256)
        try:
            impl.onnx.load(bytes(damaged))(SOME.reshape(3, 2, 2)).numpy()
        except TensorScheduleError:
            refused += 1
    assert refused > 50


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ArgumentError, match=r"tensor-schedule\[onnx\]"):
        impl.onnx.load("model.onnx")


def test_each_operator_of_the_standard_is_known_or_left_out() -> None:
    """All of version 24, but those of texts and pictures in files."""
    from impl.onnx.graph import Node, Scope

    imports = [helper.make_opsetid("", 24)]
    known = {each.name: onnx.defs.get_schema(each.name, 24, "")
             for each in onnx.defs.get_all_schemas_with_history()
             if each.domain == "" and each.since_version <= 24}
    missing = []
    for name, schema in sorted(known.items()):
        if not schema.deprecated:
            try:
                Node(helper.make_node(name, [], []), Scope(imports, (), (None, None)), {})
            except impl.onnx.ModelError:
                missing.append(name)
    assert missing == ["ImageDecoder", "MaxRoiPool", "RegexFullMatch", "StringConcat",
                       "StringNormalizer", "StringSplit", "TfIdfVectorizer"]


@pytest.mark.parametrize(("name", "blocks"), [("api/onnx.md", 3), ("onnx-models.md", 7)])
def test_the_examples_of_the_pages_run(name: str, blocks: int) -> None:
    from conformance.house.test_examples import run_text
    from conformance.trace import ROOT

    page = ROOT / "docs" / name
    if page.exists():
        assert run_text(page.read_text(encoding="utf-8"), str(page)) == blocks
        impl.onnx.operators._TABLE.pop(("com.example", "Twice"), None)


def test_a_model_leaves_python(tmp_path: Path) -> None:
    from impl import export

    x = Tensor(SOME.reshape(3, 2, 2)).realize()
    file, = export.export(impl.onnx.load(linear()), (x,), tmp_path, target="json")
    assert '"kernels"' in file.read_text()
