"""Layers, optimisers and state, compared with NumPy. They are user code on top of the tensor."""
from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Mesh, Tensor, dtypes, nn
from impl.errors import DTypeError, ShapeError

random = np.random.default_rng(1)
X = random.standard_normal((4, 6)).astype(np.float32)
IMAGE = random.standard_normal((2, 4, 5, 5)).astype(np.float32)


def normal(x: np.ndarray, axes: Any, eps: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_linear() -> None:
    layer = nn.Linear(6, 3)
    assert layer.bias is not None
    wanted = X @ layer.weight.numpy().T + layer.bias.numpy()
    assert np.allclose(layer(Tensor(X)).numpy(), wanted, atol=1e-5)
    assert np.abs(layer.weight.numpy()).max() <= 6 ** -0.5


def test_a_layer_says_how_it_was_made() -> None:
    layer = nn.Linear(6, 3)
    assert repr(layer) == repr(copy.deepcopy(layer)) == \
        "Linear(in_features=6, out_features=3, bias=True)"
    assert repr(nn.Conv1d(2, 4, [3], padding="same")) == (
        "Conv1d(in_channels=2, out_channels=4, kernel_size=[3], stride=1, padding='same', "
        "dilation=1, groups=1, bias=True, padding_mode='zeros')")

    class Tied(nn.Linear):
        def __init__(self, other: nn.Linear) -> None:
            self.weight, self.bias = other.weight, other.bias

    assert repr(Tied(layer)) == "Tied(other=Linear)"
    assert list(nn.state.get_state_dict(Tied(layer))) == ["weight", "bias"]


def test_normalisation() -> None:
    x = Tensor(IMAGE)
    assert np.allclose(nn.LayerNorm(5)(x).numpy(), normal(IMAGE, -1), atol=1e-4)
    assert np.allclose(nn.LayerNorm((5, 5))(x).numpy(), normal(IMAGE, (2, 3)), atol=1e-4)
    assert np.allclose(nn.LayerNorm2d(4)(x).numpy(), normal(IMAGE, 1), atol=1e-4)
    assert np.allclose(nn.InstanceNorm(4)(x).numpy(), normal(IMAGE, (2, 3)), atol=1e-4)
    grouped = normal(IMAGE.reshape(2, 2, -1), -1).reshape(IMAGE.shape)
    assert np.allclose(nn.GroupNorm(2, 4)(x).numpy(), grouped, atol=1e-4)
    rms = X / np.sqrt((X ** 2).mean(-1, keepdims=True) + 1e-6)
    assert np.allclose(nn.RMSNorm(6)(Tensor(X)).numpy(), rms, atol=1e-5)
    with pytest.raises(ShapeError, match=r"^nn.RMSNorm: the last axis of .* is not of size 5; "):
        nn.RMSNorm(5)(Tensor(X))


def test_batch_norm_follows_the_statistics_while_training() -> None:
    layer = nn.BatchNorm(4)
    mean, var = np.zeros(4, np.float32), np.ones(4, np.float32)
    for step in range(3):
        batch = IMAGE * (step + 1)
        with Tensor.train():
            found = layer(Tensor(batch)).numpy()
        assert np.allclose(found, normal(batch, (0, 2, 3)), atol=1e-4)
        mean = 0.9 * mean + 0.1 * batch.mean((0, 2, 3))
        var = 0.9 * var + 0.1 * batch.var((0, 2, 3), ddof=1)
        assert np.allclose(layer.running_mean.numpy(), mean, atol=1e-5)
        assert np.allclose(layer.running_var.numpy(), var, atol=1e-4)
    found = layer(Tensor(IMAGE)).numpy()
    shape = (1, 4, 1, 1)
    wanted = (IMAGE - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5)
    assert np.allclose(found, wanted, atol=1e-4)


def test_convolutions() -> None:
    layer = nn.Conv2d(4, 6, 3, padding="same", groups=2)
    assert layer(Tensor(IMAGE)).shape == (2, 6, 5, 5)
    assert nn.Conv1d(6, 2, 3, stride=2)(Tensor(X[None].transpose(0, 2, 1))).shape == (1, 2, 1)
    up = nn.ConvTranspose2d(4, 3, 2, stride=2, bias=False)
    found, weight = up(Tensor(IMAGE)).numpy(), up.weight.numpy()
    wanted = np.einsum("nchw,cokl->nohkwl", IMAGE, weight).reshape(2, 3, 10, 10)
    assert np.allclose(found, wanted, atol=1e-5)


def test_embedding_and_lstm() -> None:
    layer = nn.Embedding(10, 3)
    rows = np.array([[1, 9], [0, 1]])
    assert np.array_equal(layer(Tensor(rows)).numpy(), layer.weight.numpy()[rows])
    cell = nn.LSTMCell(6, 5)
    hidden, state = cell(Tensor(X))
    hidden, state = cell(Tensor(X), (hidden, state))
    assert hidden.shape == state.shape == (4, 5) and np.abs(hidden.numpy()).max() < 1


# Optimisers, each against the formulas of its paper, in float64.


def sgd(p: np.ndarray, g: np.ndarray, memory: dict[str, Any], nesterov: bool) -> np.ndarray:
    g = g + 0.1 * p
    memory["v"] = 0.9 * memory.get("v", 0) + g
    return p - 0.05 * (g + 0.9 * memory["v"] if nesterov else memory["v"])


def adam(p: np.ndarray, g: np.ndarray, memory: dict[str, Any], decoupled: bool) -> np.ndarray:
    memory["t"] = memory.get("t", 0) + 1
    g = g if decoupled else g + 0.1 * p
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * g * g
    m, v = memory["m"] / (1 - 0.9 ** memory["t"]), memory["v"] / (1 - 0.999 ** memory["t"])
    return p - 0.05 * (m / (np.sqrt(v) + 1e-8) + (0.1 * p if decoupled else 0))


Make = Callable[[list[Tensor]], nn.optim.Optimizer]
OPTIMISERS: dict[str, tuple[Make, Callable[..., np.ndarray], bool]] = {
    "momentum": (lambda p: nn.optim.SGD(p, 0.05, 0.9, 0.1), sgd, False),
    "nesterov": (lambda p: nn.optim.SGD(p, 0.05, 0.9, 0.1, True), sgd, True),
    "adam": (lambda p: nn.optim.Adam(p, 0.05, weight_decay=0.1), adam, False),
    "adamw": (lambda p: nn.optim.AdamW(p, 0.05, weight_decay=0.1), adam, True),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name: str) -> None:
    make, change, variant = OPTIMISERS[name]
    start = np.array([1.0, -2.0, 3.0])
    parameter = Tensor(start, requires_grad=True)
    optimizer = make([parameter])
    wanted, memory = start, dict[str, Any]()
    for _ in range(4):
        optimizer.zero_grad()
        (parameter ** 2).sum().backward()
        optimizer.step()
        wanted = change(wanted, 2 * wanted, memory, variant)
        assert np.allclose(parameter.numpy(), wanted, rtol=1e-6)
    assert parameter.requires_grad and parameter.dtype is dtypes.float64


def test_the_learning_rate_can_change() -> None:
    parameter = Tensor([1.0], requires_grad=True)
    optimizer = nn.optim.SGD([parameter], lr=0.5)
    for rate, wanted in ((0.5, 0.5), (0.25, 0.25)):
        optimizer.lr.assign(rate)
        optimizer.zero_grad()
        parameter.sum().backward()
        optimizer.step()
        assert parameter.item() == (wanted if rate == 0.5 else 0.25)


def test_a_step_can_be_scheduled_with_the_loss() -> None:
    Tensor.manual_seed(1)  # whether ten steps are enough depends on where they start
    layer = nn.Linear(6, 1)
    optimizer = nn.optim.Adam(nn.state.get_parameters(layer), lr=0.1)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = layer(Tensor(X)).square().mean().backward()
        Tensor.realize(loss, *optimizer.schedule_step())
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0] and all(np.isfinite(losses))


def test_half_parameters_have_wide_state() -> None:
    parameter = Tensor([1.0, 2.0], dtype=dtypes.float16, requires_grad=True)
    optimizer = nn.optim.Adam([parameter])
    parameter.square().sum().backward()
    optimizer.step()
    second = optimizer.state[parameter]["exp_avg_sq"]
    assert parameter.dtype is dtypes.float16 and second.dtype is dtypes.float32


def test_an_optimiser_needs_parameters() -> None:
    for useless in (Tensor([1]), Tensor([1.0]).requires_grad_(False)):
        with pytest.raises(DTypeError):
            nn.optim.SGD([useless])


def test_an_optimiser_takes_plain_tensors_but_no_state_of_a_layer() -> None:
    weight, layer = Tensor([1.0, 2.0]), nn.BatchNorm(2)
    optimizer = nn.optim.SGD([weight], lr=0.5)
    weight.square().sum().backward()
    optimizer.step()
    assert weight.requires_grad and weight.tolist() == [0, 0]
    given = nn.optim.SGD(nn.state.get_parameters(layer)).params
    assert {id(one) for one in given} == {id(layer.weight), id(layer.bias)}


#: After three steps of rate 0.1 from `START` along the gradient 2 w + (3 in the first row); the
#: values of PyTorch 2 for the first four, and of the published formulas.
START = [[1.0, -2.0], [3.0, 0.5]]
STEPPED: dict[str, tuple[Callable[[list[Tensor]], nn.optim.Optimizer], list[list[float]]]] = {
    "RMSprop": (lambda p: nn.optim.RMSprop(p, 0.1),
                [[-0.838577, -1.423613], [1.068995, -0.076387]]),
    "RMSprop centered": (lambda p: nn.optim.RMSprop(p, 0.1, momentum=0.9, centered=True,
                                                    weight_decay=0.1),
                         [[-2.699565, -1.146894], [-0.937937, -0.165322]]),
    "Adagrad": (lambda p: nn.optim.Adagrad(p, 0.1, 0.0, 0.01, 0.5),
                [[0.776456, -1.816980], [2.775405, 0.317870]]),
    "Adam": (lambda p: nn.optim.Adam(p, 0.1, betas=(0.8, 0.9)),
             [[0.700521, -1.705230], [2.700421, 0.205230]]),
    "Lion": (lambda p: nn.optim.Lion(p, 0.1, weight_decay=0.1),
             [[0.673289, -1.643588], [2.613887, 0.188140]]),
    "LARS": (lambda p: nn.optim.LARS(p, 0.1),
             [[0.998666, -1.999733], [2.998399, 0.499733]])}


@pytest.mark.parametrize("name", STEPPED)
def test_three_steps(name: str) -> None:
    make, expected = STEPPED[name]
    weight = Tensor(START)
    optimizer = make([weight])
    for _ in range(3):
        optimizer.zero_grad()
        (weight.square().sum() + (weight[0] * 3).sum()).backward()
        optimizer.step()
    assert np.allclose(weight.numpy(), expected, atol=2e-6)


def test_orthogonal_steps() -> None:
    matrix = random.standard_normal((3, 5)).astype(np.float32)
    found = np.linalg.svd(nn.optim.orthogonal(Tensor(matrix)).numpy())[1]
    assert (abs(found - 1) < 0.4).all()
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    exact = left @ right
    assert abs((nn.optim.orthogonal(Tensor(matrix)).numpy() * exact).sum() / 3 - 1) < 0.3


RATES: dict[str, tuple[Callable[[nn.optim.Optimizer], Any], list[float]]] = {
    "LambdaLR": (lambda o: nn.lr_scheduler.LambdaLR(o, lambda step: 0.5 ** step),
                 [1, 0.5, 0.25, 0.125]),
    "StepLR": (lambda o: nn.lr_scheduler.StepLR(o, 2), [1, 1, 0.1, 0.1]),
    "MultiStepLR": (lambda o: nn.lr_scheduler.MultiStepLR(o, [1, 3]), [1, 0.1, 0.1, 0.01]),
    "ExponentialLR": (lambda o: nn.lr_scheduler.ExponentialLR(o, 0.5), [1, 0.5, 0.25, 0.125]),
    "LinearLR": (lambda o: nn.lr_scheduler.LinearLR(o, 0.5, 1, 2), [0.5, 0.75, 1, 1]),
    "CosineAnnealingLR": (lambda o: nn.lr_scheduler.CosineAnnealingLR(o, 4), [
        1, 0.853553, 0.5, 0.146447]),
    "OneCycleLR": (lambda o: nn.lr_scheduler.OneCycleLR(o, 1.0, 10), [
        0.04, 0.52, 1, 0.950484])}


@pytest.mark.parametrize("name", RATES)
def test_rates(name: str) -> None:
    make, expected = RATES[name]
    optimizer, found = nn.optim.SGD([Tensor([0.0])], lr=1.0), []
    schedule = make(optimizer)
    for _ in expected:
        found.append(optimizer.lr.item())
        schedule.step()
    assert np.allclose(found, expected, atol=1e-6)


def test_gradients_are_clipped() -> None:
    a, b = Tensor([3.0, 4.0], requires_grad=True), Tensor([0.0], requires_grad=True)
    (a.square().sum() + (b * 2).sum()).backward()
    assert abs(nn.optim.clip_grad_norm_([a, b], 1.0).item() - 104 ** 0.5) < 1e-5
    assert a.grad is not None and np.allclose(a.grad.numpy(), np.array([6, 8]) / 104 ** 0.5)
    nn.optim.clip_grad_value_(a, 0.6)
    assert np.allclose(a.grad.numpy(), [6 / 104 ** 0.5, 0.6])
    model = nn.Linear(2, 1, bias=False)
    (model.weight * Tensor([3.0, 4.0])).sum().backward()
    assert nn.optim.clip_grad_norm_(model, 1.0).item() == 5  # type: ignore[arg-type]


# State


def test_what_other_libraries_have_saved_is_loaded() -> None:
    layers = [nn.Linear(2, 3), nn.BatchNorm(3)]
    saved = {name: tensor.numpy() + 1 for name, tensor in nn.state.get_state_dict(layers).items()}
    counter = {"1.num_batches_tracked": np.array(7)}
    nn.state.load_state_dict(layers, {**saved, **counter})
    assert np.array_equal(nn.state.get_state_dict(layers)["1.running_var"].numpy(),
                          np.full(3, 2, np.float32))
    with pytest.raises(ShapeError, match="left over"):
        nn.state.load_state_dict(layers, {**saved, "more": np.ones(1)})


def test_a_tied_weight_is_saved_once() -> None:
    first, last = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    last.weight = first.weight
    nn.state.load_state_dict([first, last], {"0.weight": np.eye(3, dtype=np.float32)})
    assert last.weight.tolist() == np.eye(3).tolist()



class Model:
    def __init__(self) -> None:
        self.layers = [nn.Linear(2, 3), nn.Linear(3, 1, bias=False)]
        self.norms = {"first": nn.BatchNorm(3)}
        self.name = "model"

    def __call__(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](x).relu())


def test_state_has_names_and_is_loaded() -> None:
    model, other = Model(), Model()
    state = nn.state.get_state_dict(model)
    assert list(state) == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "norms.first.weight",
        "norms.first.bias", "norms.first.running_mean", "norms.first.running_var"]
    assert len(nn.state.get_parameters(model)) == 7
    nn.state.load_state_dict(other, state)
    x = Tensor([[1.0, 2.0]])
    assert model(x).item() == other(x).item()
    state.pop("layers.0.bias")
    with pytest.raises(ShapeError, match=r"layers\.0\.bias"):
        nn.state.load_state_dict(other, state)
    state["more"] = Tensor([1.0])
    unmatched = nn.state.load_state_dict(other, state, strict=False)
    assert unmatched == (["layers.0.bias"], ["more"])
    assert unmatched.missing_keys == ["layers.0.bias"] and "more" in repr(unmatched)
    layer = nn.Linear(2, 1)
    assert repr(layer.load_state_dict(layer.state_dict())) == "<All keys matched successfully>"
    state["layers.1.weight"] = Tensor([1.0])
    with pytest.raises(ShapeError, match="shape"):
        nn.state.load_state_dict(other, state, strict=False)


@verifies("errors.argument.refused")
@pytest.mark.parametrize(("made", "said"), [
    (lambda p: nn.optim.SGD(p, lr=-1.0), "optim.SGD: lr is -1.0"),
    (lambda p: nn.optim.SGD(p, lr=float("nan")), "lr is nan"),
    (lambda p: nn.optim.SGD(p, lr=0.1, momentum=-0.5), "momentum is -0.5"),
    (lambda p: nn.optim.AdamW(p, weight_decay=-1), "optim.AdamW: weight_decay is -1"),
    (lambda p: nn.optim.Adam(p, betas=(0.9, 1.0)), r"betas are \(0.9, 1.0\)"),
    (lambda p: nn.optim.Adam([{"params": p, "lr": -2}]), "lr is -2")])
def test_a_rate_with_which_nothing_is_learned_is_refused(made: Callable[[Any], Any],
                                                         said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made([Tensor([1.0], requires_grad=True)])
    nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.0)


@verifies("errors.type.builtin+2")
@pytest.mark.parametrize("content", [
    b"", b"hello world, this is no header", b"\2" + bytes(7) + b"[]", b"\7" + bytes(7) + b'{"a":1}',
    b"\2" + bytes(7) + b"\xff\xff", b"PK\3\4" + bytes(200)])
def test_what_is_no_safetensors_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(DTypeError, match=r"model\.pt is no safetensors file.*safe_save"):
        nn.state.safe_load(path)


@verifies("errors.type.builtin+2")
def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    nn.state.safe_save({"a": Tensor(X)}, path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DTypeError, match="no safetensors file"):
        nn.state.safe_load(path)


@verifies("errors.type.builtin+2")
@pytest.mark.parametrize("shape,offsets", [
    ([-1], [0, 4]), ([2], [0, 4]), ([1], [4, 0]), ([1 << 60], [0, 1 << 62]), ([1.0], [0, 4]),
    ([True], [0, 4]), ([], [-4, 0]), ([4], [0, 16])])
def test_an_entry_that_claims_what_is_not_there_is_refused(
        shape: list[int], offsets: list[int], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    text = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(DTypeError, match="no safetensors file"):
        nn.state.safe_load(path)
    path.write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    with pytest.raises(DTypeError, match="no safetensors file"):
        nn.state.safe_load(path)


@verifies("errors.type.builtin+2")
def test_the_name_of_the_metadata_is_no_name_of_a_tensor(tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match="__metadata__"):
        nn.state.safe_save({"__metadata__": Tensor([1.0])}, tmp_path / "model.safetensors")


@verifies("errors.type.builtin+2")
def test_an_optimiser_is_given_parameters() -> None:
    with pytest.raises(DTypeError, match=r"Linear is no list.*get_parameters\(model\)"):
        nn.optim.SGD(nn.Linear(2, 3))  # type: ignore[arg-type]


def test_files(tmp_path: Path) -> None:
    tensors = {
        "a": Tensor(X), "b": Tensor([1, 2, 3], dtype=dtypes.int64), "c": Tensor([True, False]),
        "d": Tensor([0.1, 3.0]).bfloat16(), "e": Tensor(X[:0]), "f": Tensor(2.5).half()}
    nn.state.safe_save(tensors, tmp_path / "model.safetensors")
    loaded = nn.state.safe_load(tmp_path / "model.safetensors")
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype is tensor.dtype and loaded[name].shape == tensor.shape
        assert np.array_equal(loaded[name].numpy(), tensor.numpy())


def test_the_numbers_of_an_optimiser_lie_where_its_parameters_do() -> None:
    """So no step on a mesh has to bring them there."""
    with Context(DEVICE="REFERENCE"):
        mesh = Mesh(("REFERENCE:0", "REFERENCE:1"))
        weight = Tensor([1.0, 2.0], requires_grad=True).shard_(mesh)
        optimizer = nn.optim.Adam([weight], lr=0.1)
        optimizer.lr = Tensor(0.25)  # of another device
        assert optimizer.lr.device == mesh and optimizer.param_groups[0]["lr"] == 0.25
        other = Tensor([3.0, 5.0]).shard(mesh).realize()
        with Tensor.train():
            (weight * other).sum().backward()
            document = Tensor.schedule_document(*optimizer.schedule_step())
        assert [row for row in document["kernels"] if "to mesh" in row.get("transfer", "")] == []
