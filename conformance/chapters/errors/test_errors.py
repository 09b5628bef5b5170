"""Errors say what, where and what to do. Chapter: spec/errors.md."""
from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import impl
import impl.torch
from conformance.trace import verifies
from impl import Context, Mesh, Tensor, TinyJit, dtypes, errors, func, nn, realize
from impl.errors import NameMissingError, TensorScheduleError, nearest
from impl.ir import Ops, UOp
from impl.reference import Reference, ReferenceProgram
from impl.tensor import names

BUILT_IN = {
    "ShapeError": ValueError, "DTypeError": TypeError, "AxisError": IndexError,
    "ComplexError": TypeError, "NaNError": FloatingPointError,
    "VariableError": ValueError, "SettingError": ValueError, "DeviceError": RuntimeError,
    "CompileError": RuntimeError, "ReplayError": RuntimeError, "TraceError": RuntimeError,
    "ImmutableError": AttributeError, "GraphError": RuntimeError,
    "NameMissingError": AttributeError, "ArgumentError": TypeError,
    "DistributedError": RuntimeError, "ExportError": RuntimeError,
    "FileMissingError": FileNotFoundError, "FileRefusedError": OSError,
    "ValueOutsideError": ValueError, "LibraryMissingError": ImportError,
}

CLASSES = [each for each in vars(errors).values()
           if inspect.isclass(each) and issubclass(each, TensorScheduleError)]

COLUMN = Tensor([[1], [2]])
TENSORS: Any = Tensor  # called in ways that a type checker would refuse
LAYERS: Any = nn

#: What a user does wrong, and words that the message has to have.
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], list[str]]] = {
    "add": (lambda: Tensor([1, 2]) + Tensor([1, 2, 3]), ValueError, ["(2,)", "(3,)"]),
    "matmul": (lambda: Tensor.ones(2, 3) @ Tensor.ones(4, 5), ValueError, ["(2, 3)", "(4, 5)"]),
    "reshape": (lambda: Tensor.ones(2, 3).reshape(4, -1), ValueError, ["(2, 3)", "(4, -1)"]),
    "expand": (lambda: Tensor.ones(2).expand(3), ValueError, ["(2,)", "(3,)"]),
    "permute": (lambda: Tensor.ones(2, 3).permute(0, 0), ValueError, ["(0, 0)"]),
    "shrink": (lambda: Tensor.ones(2).shrink(((0, 3),)), ValueError, ["(2,)"]),
    "cat": (lambda: Tensor.ones(2, 3).cat(Tensor.ones(2, 4)), ValueError, ["(2, 3)", "(2, 4)"]),
    "index": (lambda: Tensor.ones(2)[2], IndexError, ["2", "(2,)"]),
    "many indices": (lambda: Tensor.ones(2)[0, 0], IndexError, ["(2,)"]),
    "index list": (lambda: Tensor.ones(2)[[0, 5]], IndexError, ["5"]),
    "mask": (lambda: Tensor.ones(2)[Tensor([True])], IndexError, ["(1,)", "(2,)"]),
    "float index": (lambda: Tensor.ones(2)[Tensor([0.0])], TypeError, ["float32"]),
    "axis": (lambda: Tensor.ones(2).sum(1), IndexError, ["1", "(2,)"]),
    "empty max": (lambda: Tensor.zeros(0).max(), ValueError, ["size 0"]),
    "assign shape": (lambda: Tensor([1, 2]).assign(Tensor([1, 2, 3])), ValueError,
                     ["(3,)", "(2,)"]),
    "assign dtype": (lambda: Tensor([1, 2]).assign(Tensor([1.0, 2.0])), TypeError, [".cast("]),
    "item": (lambda: Tensor([1, 2]).item(), ValueError, ["(2,)"]),
    "truth": (lambda: bool(Tensor([1, 2])), ValueError, [".any()"]),
    "bits": (lambda: Tensor([1.0]) & 1, TypeError, ["float32"]),
    "condition": (lambda: Tensor([1]).where(1, 2), TypeError, ["int32", "bool"]),
    "dtype": (lambda: Tensor([1], dtype="float33"), TypeError, ["float33", "float32"]),
    "ragged": (lambda: Tensor([[1, 2], [3]]), ValueError, ["ragged"]),
    "words": (lambda: Tensor(["a"]), TypeError, ["numbers"]),
    "tensors": (lambda: Tensor([Tensor([1])]), TypeError, ["stack"]),
    "large": (lambda: Tensor([2 ** 70]), TypeError, []),
    "conv": (lambda: Tensor.ones(1, 2, 3, 3).conv2d(Tensor.ones(1, 3, 1, 1)), ValueError,
             ["(1, 2, 3, 3)", "(1, 3, 1, 1)"]),
    "kernel": (lambda: Tensor.ones(1, 1, 2, 2).conv2d(Tensor.ones(1, 1, 3, 3)), ValueError,
               ["(3, 3)"]),
    "loss": (lambda: Tensor.ones(2, 3).cross_entropy(Tensor([1])), ValueError, ["(1,)", "(2, 3)"]),
    "einsum": (lambda: Tensor.einsum("ij,jk", Tensor.ones(2, 3), Tensor.ones(4, 5)), ValueError,
               ["'j'"]),
    "integer power": (lambda: Tensor([2]) ** -1, TypeError, [".float()"]),
    "gradient of ints": (lambda: Tensor([2]).requires_grad_(), TypeError, ["int32"]),
    "setting": (lambda: Context(NOOPTS=1), ValueError, ["NOOPT"]),
    "state": (lambda: nn.state.load_state_dict(nn.Linear(2, 2), {}), ValueError, ["weight"]),
    "state first": (lambda: LAYERS.state.load_state_dict({}, nn.Linear(2, 2)),
                    TypeError, ["Linear", "the model first"]),
    "save a model": (lambda: LAYERS.state.safe_save(nn.Linear(2, 2), "x"),
                     TypeError, ["Linear", "get_state_dict"]),
    "save an array": (lambda: LAYERS.state.safe_save({"a": dtypes}, "x"),
                      TypeError, ["a is a ", "Tensor(value)"]),
    "optimise one": (lambda: LAYERS.optim.SGD(Tensor([1.0], requires_grad=True)),
                     TypeError, ["no list", "get_parameters"]),
    "channels": (lambda: nn.BatchNorm(-1), ValueError, ["nn.BatchNorm", "num_features=-1"]),
    "stride": (lambda: Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 1, 1), stride=0),
               ValueError, ["conv2d", "stride", "0"]),
    "transposed stride": (
        lambda: Tensor.ones(1, 1, 3, 3).conv_transpose2d(Tensor.ones(1, 1, 1, 1), stride=0),
        ValueError, ["conv_transpose2d", "stride", "0"]),
    "groups": (lambda: Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 1, 1), groups=0),
               ValueError, ["conv2d", "groups", "0"]),
    "window": (lambda: Tensor.ones(1, 1, 3, 3).max_pool2d(0), ValueError, ["window", "0"]),
    "pool stride": (lambda: Tensor.ones(1, 1, 3, 3).avg_pool2d(2, 0), ValueError, ["stride", "0"]),
    "padding": (lambda: Tensor.ones(1, 1, 3, 3).max_pool2d(2, padding=-1), ValueError,
                ["padding", "-1"]),
    "strides": (lambda: Tensor.ones(1, 1, 3, 3).max_pool2d(2, (1, 1, 1)), ValueError,
                ["(1, 1, 1)", "2 axes"]),
    "chunk": (lambda: Tensor.ones(3).chunk(0), ValueError, ["chunk", "0"]),
    "full": (lambda: Tensor.full((2,), "x"), TypeError, ["full", "'x'"]),
    "full_like": (lambda: Tensor.ones(2).full_like(None), TypeError,  # type: ignore[arg-type]
                  ["full_like", "None"]),
    "stack of nothing": (lambda: Tensor.stack(), ValueError, ["stack", "no tensors"]),
    "cat of nothing": (lambda: Tensor.cat([]), ValueError, ["cat", "no tensors"]),
    "cat of none": (lambda: Tensor.cat(), ValueError, ["cat", "no tensors"]),
    "cat of numbers": (lambda: Tensor.cat(Tensor([1]), 2), TypeError, ["cat", "int"]),
    "eye": (lambda: Tensor.eye(-1), ValueError, ["eye", "-1"]),
    "linspace": (lambda: Tensor.linspace(0, 1, -1), ValueError, ["linspace", "-1"]),
    "layer_norm": (lambda: Tensor.ones(2, 3).layer_norm(7), ValueError, ["(2, 3)", "(7,)"]),
    "long layer_norm": (lambda: Tensor.ones(3).layer_norm((2, 3)), ValueError, ["(3,)", "(2, 3)"]),
    "cast to None": (lambda: Tensor.ones(2).cast(None), TypeError, ["cast", "None"]),
    "bitcast to None": (lambda: Tensor.zeros(2, dtype="float64").bitcast(None), TypeError,
                        ["bitcast", "None"]),
    "scatter": (lambda: Tensor.zeros(3).scatter(0, Tensor([0, 1, 2]), Tensor([1.0, 2.0])),
                ValueError, ["scatter", "(2,)", "(3,)"]),
    "scatter rank": (lambda: Tensor.zeros(3).scatter(0, Tensor([0]), Tensor([[1.0]])),
                     ValueError, ["scatter", "(1, 1)", "(1,)"]),
    "scatter index": (lambda: Tensor.zeros(2, 3).scatter(0, Tensor([0]), 1.0), ValueError,
                      ["scatter", "(1,)", "(2, 3)"]),
    "scatter reduce": (lambda: Tensor.zeros(3).scatter(0, Tensor([0]), 1.0, "mean"), ValueError,
                       ["scatter", "'mean'"]),
    "rounding": (lambda: Tensor([1]).div(2, rounding_mode="up"), ValueError, ["div", "'up'"]),
    "fraction": (lambda: Context(NOOPT=1.7), ValueError, ["NOOPT", "1.7"]),
    "write twice": (lambda: COLUMN.expand(2, 2).assign(1), ValueError, [".contiguous()"]),
}


@verifies("errors.message.whole")
@verifies("errors.message.whole")
def test_a_dtype_that_is_misspelt_is_told_the_right_name() -> None:
    with pytest.raises(errors.DTypeError, match="did you mean float32") as caught:
        Tensor([1], dtype="flot32")
    assert __file__ in caught.value.line
    with pytest.raises(errors.DTypeError, match="Remedy: use one of bool, "):
        Tensor([1], dtype=3)


@verifies("errors.type.builtin+2")
@verifies("errors.message.whole")
@verifies("tensor.arguments.refused+2")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    mistake, built_in, words = MISTAKES[name]
    with pytest.raises(built_in) as caught:
        mistake()
    error = caught.value
    if name == "large" and not isinstance(error, TensorScheduleError):
        pytest.skip("NumPy refused the number first")
    assert isinstance(error, TensorScheduleError)
    text = str(error)
    assert text == f"{error.operation}: {error.detail}; at {error.line}. Remedy: {error.remedy}"
    assert error.operation and error.detail and error.remedy
    file, line = error.line.rsplit(":", 1)
    assert file == __file__
    assert int(line) > 0
    for word in words:
        assert word in text, f"{word} is missing in: {text}"


@verifies("errors.message.whole")
def test_the_line_is_the_innermost_of_the_user() -> None:
    def inner() -> None:
        Tensor.ones(2).reshape(3)

    expected = inspect.getsourcelines(inner)[1] + 1
    with pytest.raises(errors.ShapeError) as caught:
        inner()
    assert caught.value.line == f"{__file__}:{expected}"
    with pytest.raises(errors.ShapeError) as caught:
        nn.Linear(2, 3)(Tensor.ones(2, 5))
    assert caught.value.line.rsplit(":", 1)[0] == __file__


@verifies("errors.message.whole")
@pytest.mark.parametrize("name, call", {
    "zeros": lambda x: Tensor.zeros(-1), "ones": lambda x: Tensor.ones(1.5),
    "kaiming_normal": lambda x: Tensor.kaiming_normal(-1), "amax": lambda x: x.amax(5),
    "norm": lambda x: x.norm(p=3, axis=7), "argsort": lambda x: x.argsort(9),
    "std_mean": lambda x: x.std_mean(5), "count_nonzero": lambda x: x.count_nonzero(4),
    "amin": lambda x: x.zeros_like().reshape(2, 2).amin(8),
    "linear": lambda x: nn.Linear(5, 3)(x),
    "batchnorm": lambda x: nn.BatchNorm(3)(x.reshape(1, 2, 2, 1)),
    "max_pool2d": lambda x: x.reshape(1, 1, 2, 2).max_pool2d(3),
    "avg_pool2d": lambda x: x.avg_pool2d(2), "tril": lambda x: x.flatten().tril(),
    "conv2d": lambda x: x.reshape(1, 1, 2, 2).conv2d(Tensor.ones(1, 1, 3, 3)),
    "masked_select": lambda x: x.masked_select(Tensor.ones(3) > 1),
    "maximum": lambda x: x.maximum(x.to("REFERENCE:1")),
    "matmul": lambda x: x @ x.to("REFERENCE:1"),
    "scatter": lambda x: x.scatter(0, Tensor([[0], [1]]).to("REFERENCE:1"), 1.0),
    "add": lambda x: x + Tensor(1.0, device="REFERENCE:7"),
    "lerp": lambda x: x.lerp(Tensor.ones(3), 0.5), "mse_loss": lambda x: x.mse_loss(Tensor.ones(3)),
    "take": lambda x: x.take(x), "lt": lambda x: x < Tensor(1.0, device="REFERENCE:7"),
    "cat": lambda x: x.cat(Tensor.ones(2, 2, device="REFERENCE:7")),
    "scaled_dot_product_attention": lambda x: x.scaled_dot_product_attention(
        x, x, attn_mask=Tensor.ones(3))}.items())
def test_an_error_names_what_was_called(name: str, call: Callable[[Tensor], object]) -> None:
    with pytest.raises(TensorScheduleError) as caught:
        call(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert caught.value.operation == name and str(caught.value).startswith(f"{name}: ")


@verifies("errors.message.whole")
def test_an_operator_on_two_devices_is_named() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    there = x.to("REFERENCE:1")
    with pytest.raises(errors.DeviceError, match=r"^add: "):
        x + there
    with pytest.raises(errors.DeviceError, match=r"^lt: "):
        assert x < there
    with pytest.raises(errors.DeviceError, match=r"^setitem: "):
        x[0] = there[0]


@verifies("errors.message.whole")
@verifies("errors.type.builtin+2")
def test_a_weight_of_one_axis_is_no_weight() -> None:
    with pytest.raises(errors.ShapeError, match=r"^linear: .* \(3,\)"):
        Tensor.ones(2, 3).linear(Tensor.ones(3))


@verifies("errors.message.whole")
def test_an_error_in_what_is_given_stays_what_it_is() -> None:
    with pytest.raises(errors.ShapeError, match=r"^linear: "):
        Tensor.ones(2, 2).sequential([nn.Linear(5, 3)])
    with pytest.raises(errors.ShapeError, match=r"^reshape: "):
        Tensor.ones(2, 2).sequential([lambda x: x.reshape(3)])


@verifies("errors.type.builtin+2")
def test_each_error_is_the_built_in_one() -> None:
    found = {each.__name__: each for each in CLASSES if each is not TensorScheduleError}
    assert found.keys() == BUILT_IN.keys()
    for name, built_in in BUILT_IN.items():
        assert issubclass(found[name], built_in)


@verifies("errors.pickle.parts")
@pytest.mark.parametrize("kind", CLASSES)
def test_errors_survive_pickling(kind: type[TensorScheduleError]) -> None:
    error = kind("operation", "detail", "remedy")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error)
    assert (again.operation, again.detail, again.remedy, again.line) == (
        "operation", "detail", "remedy", error.line)


@verifies("errors.type.builtin+2")
def test_the_public_functions_raise_nothing_else() -> None:
    for wrong in (lambda: Tensor.zeros(-1), lambda: Tensor.arange(3, step=0),
                  lambda: Tensor([1]).cast("int33"), lambda: Tensor.eye(2)[::0],
                  lambda: Tensor.ones(2, 2).sum((0, 0)), lambda: Tensor.randint(2, low=3, high=3),
                  lambda: Tensor.rand(2, dtype=dtypes.int32), lambda: Tensor.ones(3).split([1, 1]),
                  lambda: Tensor.ones(2).dropout(2.0, training=True),
                  lambda: Tensor.ones(2).cast(Tensor.ones(1)),
                  lambda: Tensor.ones(2).to(3)):
        with pytest.raises(TensorScheduleError):
            wrong()


@verifies("errors.name.missing")
@pytest.mark.parametrize("given, meant", [
    ("Rellu", "Relu"), ("MatMull", "MatMul"), ("softmx", "Softmax"), ("Zzz", "")])
def test_the_nearest_name_is_found_in_any_case(given: str, meant: str) -> None:
    assert nearest(given, ["Relu", "Mul", "MatMul", "Softmax"]) == meant


@verifies("errors.name.missing")
@pytest.mark.parametrize("name, meant", [
    ("Adam", "nn.optim.Adam"), ("adamw", "nn.optim.AdamW"), ("Relu", "nn.ReLU"),
    ("Erfinv", "x.erfinv()"), ("CumSum", "x.cumsum()"), ("Linaer", "nn.Linear"),
    ("get_parameters", "nn.state.get_parameters"), ("DataParallel", "shard("),
    ("qqqq", "one of nn.AdaptiveAvgPool1d, ")])
def test_what_was_meant(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(nn, name)
    assert isinstance(caught.value, TensorScheduleError) and meant in caught.value.remedy
    assert not hasattr(nn, name)


@verifies("errors.name.missing")
def test_a_module_offers_what_it_has() -> None:
    for module, there, elsewhere in ((nn.optim, "nn.optim.SGD", "nn.state"),
                                     (nn.state, "nn.state.safe_load", "nn.optim")):
        with pytest.raises(AttributeError) as caught:
            module.qqqq  # noqa: B018
        assert there in str(caught.value) and elsewhere not in str(caught.value)


@verifies("errors.name.missing")
@pytest.mark.parametrize("module, name, meant", [
    (nn.optim, "adam", "nn.optim.Adam?"), (nn.optim, "AdamV", "nn.optim.Adam"),
    (nn.state, "get_parameter", "nn.state.get_parameters?"), (nn.state, "SGD", "nn.optim.SGD?")])
def test_what_was_meant_of_a_part_of_nn(module: Any, name: str, meant: str) -> None:
    with pytest.raises(NameMissingError, match=module.__name__.removeprefix("impl.")) as caught:
        getattr(module, name)
    assert meant in caught.value.remedy and __file__ in caught.value.line


@verifies("errors.name.missing")
@pytest.mark.parametrize("name, meant", [
    ("wieght", "weight?"), ("share_memory", "MPI"), ("forward_hook", "it has in_features"),
    ("qqqq", "it has in_features, out_features, weight, bias")])
def test_what_was_meant_of_a_layer(name: str, meant: str) -> None:
    layer = nn.Linear(2, 3)
    with pytest.raises(NameMissingError, match="nn.Linear") as caught:
        getattr(layer, name)
    assert meant in caught.value.remedy and __file__ in caught.value.line
    assert len(nn.state.get_parameters(copy.deepcopy(layer))) == 2


@verifies("errors.type.builtin+2")
@pytest.mark.parametrize("make", [
    lambda: nn.Linear(-1, 3), lambda: LAYERS.Linear(1.5, 3), lambda: nn.Conv2d(4, 4, 3, groups=3),
    lambda: nn.Conv2d(4, 4, 3, groups=0), lambda: nn.GroupNorm(3, 4), lambda: nn.Embedding(-1, 2),
    lambda: LAYERS.LSTMCell("a", 1), lambda: nn.ConvTranspose2d(3, -1, 2)])
def test_sizes_that_no_layer_has(make: Callable[[], Any]) -> None:
    with pytest.raises(errors.ShapeError, match="nn."):
        make()


@verifies("errors.type.builtin+2")
def test_a_layer_may_have_no_inputs() -> None:
    assert nn.Linear(0, 3)(Tensor.ones(2, 0)).shape == (2, 3)


@verifies("errors.message.later")
@pytest.mark.parametrize("kind", [errors.GraphError, errors.CompileError, errors.DeviceError])
@pytest.mark.parametrize("see", [
    Tensor.realize, lambda x: realize.schedule_document([x], programs=True)])
def test_an_error_about_a_kernel_names_the_line_that_it_is_from(
        see: Callable[[Tensor], Any], kind: type[errors.TensorScheduleError],
        monkeypatch: pytest.MonkeyPatch) -> None:
    def load(device: Any, asts: list[UOp]) -> list[Any]:
        for ast in asts:
            if any(node.op is Ops.MUL for node in ast.toposort()):
                raise kind("lower", "a value is used outside its loops", "mend it")
        return original(device, asts)

    original = Reference.load
    monkeypatch.setattr(Reference, "load", load)
    with Context(DEVICE="REFERENCE", FUSE=0):
        more = Tensor(np.arange(3, dtype=np.int32)).realize() + 1
        twice, line = more * 2, inspect.currentframe().f_lineno  # type: ignore[union-attr]
        last = twice - 1
        with pytest.raises(kind) as caught:
            see(last)
    assert caught.value.line == f"mul ({__file__}:{line})"
    assert caught.value.line in str(caught.value)


@verifies("errors.message.later")
@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize("fails", ["run", "allocate"])
def test_a_device_that_fails_names_the_line_of_what_it_computes(
        fails: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where such a kernel ran before."""
    def fail(*given: Any) -> Any:
        raise errors.DeviceError("launch", "the device is lost", "restart it")

    with Context(DEVICE="REFERENCE"):
        values = Tensor(np.arange(times + 3, dtype=np.int32)).realize()
        for _ in range(times):
            (values + 5).realize()
        more, line = values + 5, inspect.currentframe().f_lineno  # type: ignore[union-attr]
        owner: Any = {"run": ReferenceProgram, "allocate": Reference}[fails]
        monkeypatch.setattr(owner, fails, fail)
        with pytest.raises(errors.DeviceError) as caught:
            more.realize()
    assert caught.value.line == f"add ({__file__}:{line})"


def _slope(x: Tensor, **keywords: Any) -> Tensor:
    w: Any = Tensor([[1.0, 2.0]], requires_grad=True)
    (w * w).sum().backward(**keywords)
    return w.grad


@verifies("errors.name.keyword+2")
@pytest.mark.parametrize("ours, theirs", [
    (lambda x: x.sum(1, keepdim=True), lambda x: x.sum(axis=1, keepdims=True)),
    (lambda x: x.std(correction=0), lambda x: x.std(ddof=0)),
    (lambda x: x.var(correction=1), lambda x: x.var(unbiased=True)),
    (lambda x: x.flip(0), lambda x: x.flip(dims=(0,))),
    (lambda x: x.flip(1), lambda x: x.flip(axis=1)),
    (lambda x: x.permute(1, 0), lambda x: x.permute(dims=(1, 0))),
    (lambda x: x.reshape(4), lambda x: x.reshape(shape=(4,))),
    (lambda x: x.clip(2, 3), lambda x: x.clip(a_min=2, a_max=3)),
    (lambda x: x.unsqueeze(0), lambda x: x.unsqueeze(axis=0)),
    (lambda x: x.to("int32"), lambda x: x.to(dtype="int32")),
    (lambda x: -_slope(x), lambda x: -_slope(x, retain_graph=True, create_graph=True)),
    (lambda x: x.to("CPU"), lambda x: x.to(device="cpu")),
    (lambda x: Tensor.cat(x, x, dim=1), lambda x: TENSORS.cat(x, x, axis=1)),
    (lambda x: Tensor.zeros(2, 3), lambda x: TENSORS.zeros(size=(2, 3))),
    (lambda x: Tensor.linspace(0, 1, 3), lambda x: TENSORS.linspace(0, 1, num=3))])
def test_names_of_others_are_understood(ours: Any, theirs: Any) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert theirs(x).tolist() == ours(x).tolist()


@verifies("errors.name.keyword+2")
@pytest.mark.parametrize("call, words", [
    (lambda x: x.sum(kepdim=True), ["Tensor.sum", "kepdim", "keepdim?"]),
    (lambda x: x.sum(out=x), ["Tensor.sum", "out", "use y.assign(...)"]),
    (lambda x: TENSORS.zeros(2, dytpe="int32"), ["Tensor.zeros", "dytpe", "dtype?"]),
    (lambda x: TENSORS.manual_seed(sed=1), ["Tensor.manual_seed", "sed", "seed?"]),
    (lambda x: x.reshape(4, copy=True), ["Tensor.reshape", "copy", "no keywords"]),
    (lambda x: x.relu(inplace=True), ["Tensor.relu", "inplace", "use y.assign(...)"]),
    (lambda x: x.flatten(wide=1), ["Tensor.flatten", "wide", "it takes "])])
def test_a_keyword_that_is_not_there(call: Any, words: list[str]) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        call(Tensor([1.0, 2.0, 3.0, 4.0]))
    assert __file__ in caught.value.line
    assert all(word in str(caught.value) for word in words), str(caught.value)


@verifies("errors.name.keyword+2")
def test_python_names_methods_by_the_class_that_users_know() -> None:
    assert Tensor.relu.__qualname__ == "Tensor.relu"
    node = (Tensor([1.0, 2.0]).sum(0)).uop
    assert node.origin is not None and node.origin[0] == "sum"
    node = Tensor([1.0, 2.0]).relu().uop  # which has no arguments
    assert node.origin is not None and node.origin[0] == "relu"


@verifies("errors.argument.refused")
@pytest.mark.parametrize("call, words", [
    (lambda x: x.narrow(0, "a", 1), ["Tensor.narrow", "start is 'a'", "a whole number"]),
    (lambda x: x.var(correction="a"), ["Tensor.var", "correction is 'a'", "a number"]),
    (lambda x: x.var(unbiased=None), ["Tensor.var", "unbiased is None", "True or False"]),
    (lambda x: x.cross_entropy("a"), ["Tensor.cross_entropy", "target is 'a'", "a tensor"]),
    (lambda x: x.expand_as(3), ["Tensor.expand_as", "other is 3", "a tensor"]),
    (lambda x: x.maximum("a"), ["Tensor.maximum", "'a' is no operand"]),
    (lambda x: x.clip(object()), ["clip", "is no end of an interval"]),
    (lambda x: x.clamp("a"), ["clamp", "'a' is no end of an interval"]),
    (lambda x: x.realize(3), ["Tensor.realize", "others is 3", "a tensor"]),
    (lambda x: x.schedule(3), ["Tensor.schedule", "others is 3", "a tensor"]),
    (lambda x: x.explain(x, "a"), ["Tensor.explain", "others is 'a'", "a tensor"]),
    (lambda x: TENSORS.where(1, x, 2), ["Tensor.where", "1 is no tensor", "Tensor(...)"]),
    (lambda x: TENSORS.exp([1.0]), ["Tensor.exp", "[1.0] is no tensor"]),
    (lambda x: TENSORS(2, 3), ["Tensor: device is 3", "Tensor.zeros(2, 3)"]),
    (lambda x: TENSORS.rand(2, device=3), ["Tensor.rand", "device is 3", "a text or None"])])
def test_an_argument_of_another_kind(call: Any, words: list[str]) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        call(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert __file__ in caught.value.line
    assert all(word in str(caught.value) for word in words), str(caught.value)


@verifies("errors.argument.refused")
@pytest.mark.parametrize("call, words", [
    (lambda x: x.floor(2), ["Tensor.floor", "too many", "it takes no arguments"]),
    (lambda x: x.narrow(0), ["Tensor.narrow", "'start'", "it takes dim, start, length"]),
    (lambda x: x.std(0, True, 1, 2, 3), ["Tensor.std", "too many", "it takes axis, keepdim, "])])
def test_too_many_arguments_or_too_few(call: Any, words: list[str]) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        call(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert __file__ in caught.value.line
    assert all(word in str(caught.value) for word in words), str(caught.value)


@verifies("errors.argument.refused")
@pytest.mark.parametrize("make, words", [
    (lambda: LAYERS.Linear(3), ["nn.Linear: ", "'out_features'", "in_features, out_features"]),
    (lambda: LAYERS.Linear(), ["nn.Linear: ", "'in_features'"]),
    (lambda: LAYERS.Conv2d(1, 2, 3, pad=1), ["nn.Conv2d: ", "'pad'"]),
    (lambda: LAYERS.InstanceNorm(1, 2, 3, 4), ["nn.InstanceNorm: ", "takes num_features, eps"]),
    (lambda: LAYERS.optim.Adam([], beta3=0.99),
     ["nn.optim.Adam: ", "'beta3'", "lr, b1, b2, eps"])])
def test_a_layer_says_which_arguments_it_takes(make: Any, words: list[str]) -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        make()
    assert __file__ in caught.value.line
    assert all(word in str(caught.value) for word in words), str(caught.value)


@verifies("errors.argument.refused")
def test_a_layer_of_the_user_is_made_as_he_says() -> None:
    class Own(nn.Linear):
        def __init__(self, size: int) -> None:
            super().__init__(size, size)

    with pytest.raises(TypeError) as caught:
        Own(2, 3)  # type: ignore[call-arg]
    assert not isinstance(caught.value, TensorScheduleError)
    again = pickle.loads(pickle.dumps(nn.Linear(2, 3)))
    assert repr(copy.copy(again)) == repr(again) and again.weight.shape == (3, 2)


@verifies("errors.argument.refused")
def test_errors_of_others_stay_what_they_are() -> None:
    def broken(x: Tensor) -> Tensor:
        raise ValueError("of a layer")
    with pytest.raises(ValueError, match=r"^of a layer$"):
        Tensor([1.0]).sequential([broken])


@verifies("errors.argument.refused")
@pytest.mark.parametrize("call", [
    lambda x: x.sum(axis=0, dim=1), lambda x: x.sum(0, dim=1), lambda x: x.cumsum(0, dim=1),
    lambda x: x.softmax(1, dim=0), lambda x: x.var(correction=0, ddof=1),
    lambda x: x.sum(keepdim=True, keepdims=False), lambda x: x.clip(min=x, a_min=x + 1),
    lambda x: x.clip(x, a_min=0), lambda x: x.clip(0, a_min=x)])
def test_two_values_under_two_names(call: Any) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(errors.ArgumentError, match="which means the same"):
        call(x)
    assert x.sum(axis=1, dim=1).tolist() == x.sum(1, dim=1).tolist() == [3, 7]
    assert x.clip(min=x, a_min=x).tolist() == x.tolist()  # type: ignore[call-arg]


@verifies("errors.name.missing")
@pytest.mark.parametrize("name, meant", [
    ("sofmax", "softmax?"), ("Sum", "sum?"), ("reshap", "reshape?"),
    ("softmax_", "x.assign(x.softmax("),
    ("gpu", 'x.to("CUDA")'), ("data_ptr", "x.data()"), ("qqqq", "dir(Tensor)"),
    ("no_grad", "impl.torch.no_grad()"),
    ("zero_grad", "x.grad = None"), ("from_numpy", "Tensor(array)"),
    ("onse", "ones?"), ("values", "x.argmax(axis)"), ("as_strided_", "no strides"),
    ("map2_", "use NumPy on x.numpy()"), ("retains_grad", "loss.gradient(x)")])
def test_which_method_was_meant(name: str, meant: str) -> None:
    for owner in (Tensor([1.0]), Tensor):
        with pytest.raises(AttributeError) as caught:
            getattr(owner, name)
        assert isinstance(caught.value, TensorScheduleError), owner
        assert meant in caught.value.remedy and __file__ in caught.value.line
        assert not hasattr(owner, name) and not hasattr(owner, f"__{name}__")


@verifies("errors.name.missing")
def test_what_is_meant_by_another_name_does_something() -> None:
    """What a remedy says is run. None of them is a formula: those are methods."""
    known = {"x": Tensor([[1.0, 2.0]]), "shape": (2, 1), "array": np.ones(2), "values": [1, 2],
             "axis": 1, "k": 1, "device": "REFERENCE", "Tensor": Tensor, "TinyJit": TinyJit,
             "nn": nn, "function": abs, "dtypes": dtypes,
             "piece": Tensor([1.0]), "mesh": Mesh(("REFERENCE",), {"data": 1})}
    tried = 0
    for remedy in set(names._MEANT.values()):
        for method in re.findall(r"(?:x|Tensor)\.(\w+)", remedy):
            assert hasattr(Tensor, method), remedy
        for code in re.findall(r"(?:x|Tensor|TinyJit)(?:\.\w+)?\([^()]*\)", remedy):
            if "CUDA" not in code:
                assert eval(code, dict(known)) is not None, remedy
                tried += 1
        assert not re.search(r"[a-z)] [-+*/<>] [a-z(]", remedy), remedy
    assert tried > 10


@verifies("errors.name.missing")
@pytest.mark.parametrize(("module", "name", "words"), [
    (nn.functional, "crossentropy", "did you mean nn.functional.cross_entropy"),
    (nn.functional, "rellu", "did you mean nn.functional.relu"),
    (func, "value_and_gradd", "did you mean func.value_and_grad"),
    (func, "jacobian", "use func.jacrev"), (func, "qqq", "it has Policies, checkpoint"),
    (impl.torch, "__version__", "use impl.__version__"), (impl.torch.cuda, "MemPool", "it has "),
    (impl.torch.cuda, "is_availabel", "did you mean torch.cuda.is_available?")])
def test_a_function_that_is_not_there_has_another_name(module: Any, name: str, words: str) -> None:
    with pytest.raises(errors.NameMissingError, match=words):
        getattr(module, name)
    assert not hasattr(module, "__nothing__")


@verifies("errors.type.builtin+2")
def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    nn.state.safe_save({"a": Tensor([1.0])}, tmp_path / "weights.safetensors")
    for load in (nn.state.safe_load, nn.state.torch_load, impl.load, nn.state.safe_metadata):
        with pytest.raises(FileNotFoundError, match="did you mean weights.safetensors") as caught:
            load(tmp_path / "weight.safetensors")
        assert f"{__file__}:" in str(caught.value)
        with pytest.raises(errors.FileMissingError, match="there is no folder .*nowhere"):
            load(tmp_path / "nowhere" / "x")
        with pytest.raises(errors.FileRefusedError, match="Is a directory"):
            load(tmp_path)
    with pytest.raises(errors.FileMissingError, match="^safe_save: there is no folder"):
        nn.state.safe_save({"a": Tensor([1.0])}, tmp_path / "nowhere" / "x")
    with pytest.raises(FileNotFoundError, match="^load: there is no file"):
        impl.load(tmp_path / "zz")
