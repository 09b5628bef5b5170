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
    lacks = model([helper.make_node("MatMul", ["x", "x"], [])], {"x": (2, 2)}, ["y"])
    lacks.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT4  # types are inferred
    with pytest.raises(impl.onnx.ModelError, match="out of bounds"):
        impl.onnx.load(lacks)
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
    with pytest.raises(ArgumentError, match="pip install onnx"):
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


# Operators of one's own


def test_an_input_is_what_its_annotation_says_however_it_is_written() -> None:
    import typing

    import impl

    node = helper.make_node("Twice", ["x", "n"], ["y"], domain="own")

    def answer(first: Any, second: Any) -> Any:
        def twice(x, n):  # type: ignore[no-untyped-def]
            kinds.append((isinstance(x, Tensor), isinstance(n, np.ndarray)))
            return x * 2

        twice.__annotations__ = {"x": first, "n": second}
        impl.onnx.operator("Twice", domain="own")(twice)
        return impl.onnx.load(model([node], {"x": (2,), "n": (1,)}, ["y"]))([1, 2], [3]).tolist()

    kinds: list[tuple[bool, bool]] = []
    first: Any
    try:
        for first in (Tensor, Tensor | None, impl.Tensor, "impl.Tensor", "Tensor | None",
                      typing.Optional[Tensor]):  # noqa: UP007, UP045
            for second in (impl.onnx.Host, "np.ndarray", "impl.onnx.Host | None"):
                assert answer(first, second) == [2, 4]
                assert kinds.pop() == (True, True), (first, second)
                del impl.onnx.operators._TABLE["own", "Twice"]
        for first, told in ((int, "`x: int` is neither"), (Tensor | int, "is neither a tensor"),
                            ("Tensr", "'Tensr' is not defined")):
            with pytest.raises(ArgumentError, match=told):
                answer(first, Tensor)
        with pytest.raises(ArgumentError, match="`x` is neither.*annotate an input Tensor"):
            impl.onnx.operator("Twice", domain="own")(lambda x: x)
        with pytest.raises(ArgumentError, match=r"`\*\*named: .* is neither.*behind a \*"):
            @impl.onnx.operator("Twice", domain="own")
            def named(x: Tensor, **named: Any) -> Tensor:
                return x
    finally:
        impl.onnx.operators._TABLE.pop(("own", "Twice"), None)


def test_each_attribute_of_the_standard_is_known() -> None:
    missing = {}
    for domain, name in impl.onnx.operators._TABLE:
        if not domain and onnx.defs.has(name, 24):
            row = impl.onnx.operators.find_row("", name, 24)
            schema = onnx.defs.get_schema(name, 24)
            assert row is not None
            if not schema.deprecated and set(schema.attributes) - row.attributes:
                missing[name] = set(schema.attributes) - row.attributes
    assert missing == {}


def test_a_convolution_of_quantized_numbers_has_strides() -> None:
    one, none = np.array(1, np.float32), np.array(0, np.uint8)
    weights: dict[str, Any] = {"s": one, "z": none, "w": np.ones((1, 1, 2, 2), np.uint8),
                               "x": np.arange(9, dtype=np.uint8).reshape(1, 1, 3, 3)}
    node = helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], ["y"],
                            strides=[2, 2], pads=[1, 1, 0, 0])
    found = impl.onnx.load(model([node], {}, ["y"], weights))()
    assert found.tolist() == [[[[0, 3], [9, 24]]]]


# Names and devices


def labels(function: Any, *given: Any) -> list[str]:
    document = Tensor.schedule_document(function(*given))
    return [each["label"].partition(" (")[0] for each in document["kernels"]]


def test_a_node_names_what_it_makes_and_nothing_else() -> None:
    nodes = [helper.make_node("Sin", ["x"], ["s"], name="SIN"),
             helper.make_node("Cos", ["x"], ["c"], name="COS"),
             helper.make_node("SequenceConstruct", ["s", "c"], ["all"], name="ALL"),
             helper.make_node("ConcatFromSequence", ["all"], ["y"], name="JOIN", axis=0)]
    function = impl.onnx.load(model(nodes, {"x": (2,)}, ["y"]))
    label, = labels(function, np.ones(2, np.float32))
    assert "Sin SIN" in label and "Cos COS" in label
    # Turned twice is as it was: the second turn makes nothing.
    nodes = [helper.make_node("Sin", ["x"], ["s"], name="SIN"),
             helper.make_node("Transpose", ["s"], ["t"], name="ONE"),
             helper.make_node("Transpose", ["t"], ["y"], name="TWO")]
    assert labels(impl.onnx.load(model(nodes, {"x": (2, 3)}, ["y"])),
                  np.ones((2, 3), np.float32)) == ["Sin SIN"]
    assert labels(lambda x: x.sin(), Tensor([1.0])) == ["sin"]


def test_names_are_given_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node of the graph is named when it is made, however many lists it was in."""
    import impl.ir
    import impl.tensor.origins

    count = [0]

    def counted(node: Any, origin: Any) -> None:
        count[0] += 1
        impl.ir.give_origin(node, origin)

    monkeypatch.setattr(impl.tensor.origins, "give_origin", counted)
    monkeypatch.setattr(impl.onnx.graph, "note_origin", counted, raising=False)

    def walked(length: int) -> int:
        nodes = []
        for place in range(length):
            nodes += [helper.make_node("Sin", [f"x{place}"], [f"s{place}"]),
                      helper.make_node("SequenceConstruct", [f"s{place}"] * 2, [f"l{place}"]),
                      helper.make_node("ConcatFromSequence", [f"l{place}"], [f"j{place}"], axis=0),
                      helper.make_node("Slice", [f"j{place}", "low", "high"], [f"x{place + 1}"])]
        weights = {"low": np.array([0]), "high": np.array([2])}
        function = impl.onnx.load(model(nodes, {"x0": (2,)}, [f"x{length}"], weights))
        count[0] = 0
        function([1, 2])
        return count[0]

    assert walked(20) <= 2 * walked(10) + 20


def test_what_operators_make_lies_on_the_device_of_the_model() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("Identity", ["i"], ["row"])], "body",
        [helper.make_tensor_value_info("i", INT64, ()),
         helper.make_tensor_value_info("go", TensorProto.BOOL, ())],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("row", INT64, ())])
    filled = helper.make_tensor("v", FLOAT, (1,), [2.0])
    weights = {"none": np.array(0), "two": np.array(2), "many": np.array(5000),
               "one": np.array(1), "sizes": np.array([5000]), "yes": np.array(True)}
    for node in (helper.make_node("Range", ["none", "many", "one"], ["made"]),
                 helper.make_node("ConstantOfShape", ["sizes"], ["made"], value=filled),
                 helper.make_node("Loop", ["two", "yes"], ["made"], body=body),
                 helper.make_node("Loop", ["none", "yes"], ["made"], body=body),
                 helper.make_node("RandomUniform", [], ["made"], shape=[3])):
        nodes = [node, helper.make_node("Cast", ["made"], ["float"], to=FLOAT),
                 helper.make_node("ReduceSum", ["float"], ["sum"], keepdims=0),
                 helper.make_node("Add", ["x", "sum"], ["y"])]
        function = impl.onnx.load(model(nodes, {"x": (1,)}, ["y"], weights), device="REFERENCE:1")
        found = function([1.0])
        assert found.device == "REFERENCE:1" and found.item() >= 1, node.op_type
    assert Tensor([1.0]).device == "REFERENCE"


def test_blocks_lie_where_their_image_does() -> None:
    """Where no device is named, what is made lies beside the inputs."""
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"])
    weights = {"image": np.array([2, 2]), "block": np.array([1, 2])}
    function = impl.onnx.load(model([node], {"x": (1, 2, 2)}, ["y"], weights))
    x = Tensor([[[1.0, 2.0], [3.0, 4.0]]], device="REFERENCE:1")
    assert function(x).tolist() == [[[[1.0, 3.0], [2.0, 4.0]]]]


@pytest.mark.parametrize("most", ["", "most"])
def test_a_loop_that_does_not_end_is_an_error(most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impl.onnx.control, "_MOST_TURNS", 8)
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "one"], ["after"]),
         helper.make_node("Less", ["after", "end"], ["on"])], "body",
        [helper.make_tensor_value_info("i", INT64, ()),
         helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("state", FLOAT, (1,))],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("after", FLOAT, (1,))])
    node = helper.make_node("Loop", [most, "", "x"], ["y"], name="L", body=body)
    function = impl.onnx.load(model([node], {"x": (1,), "end": (1,)}, ["y"], {
        "one": np.ones(1, np.float32), "most": np.array(100)}))
    assert function([0], [8]).tolist() == [8]
    with pytest.raises(impl.onnx.ModelError, match=r"node 'L' \(Loop\).*not ended after 8 turns"):
        function([0], [9])


def test_one_picture_has_a_grid_as_several_have() -> None:
    turns = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    for count in (1, 2):
        node = helper.make_node("AffineGrid", ["x", "sizes"], ["y"])
        loaded = impl.onnx.load(model([node], {"x": (count, 2, 3)}, ["y"], {
            "sizes": np.array([count, 1, 2, 4])}))
        rows, columns = np.meshgrid([-0.5, 0.5], [-0.75, -0.25, 0.25, 0.75], indexing="ij")
        places = np.stack([columns, rows, np.ones((2, 4))], -1)
        wanted = np.einsum("bij,rcj->brci", turns[:count], places)
        assert np.allclose(loaded(turns[:count]).numpy(), wanted, atol=1e-5)
