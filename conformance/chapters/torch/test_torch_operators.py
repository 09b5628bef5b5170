"""PyTorch's functions below its layers, and its layers of rarer kinds, by value and gradient."""
from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import impl.torch as ours
from conformance.peers.missing import PARTS, TOLD, missing
from conformance.trace import verifies
from impl import Context, Tensor, nn
from impl.effects import living
from impl.errors import ArgumentError, ShapeError
from impl.nn import functional

random = np.random.default_rng(3)


@pytest.fixture
def reference() -> Iterator[None]:
    """Many small kernels, of which each would be compiled."""
    with Context(DEVICE="REFERENCE"):
        yield


def drawn(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def converted(value: Any, make: Any) -> Any:
    """Arrays, also those in lists, as tensors."""
    if isinstance(value, np.ndarray):
        return make(value)
    return [converted(one, make) for one in value] if isinstance(value, list) else value


def agree(found: Any, wanted: Any, tolerance: float = 1e-4) -> None:
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, two in zip(found, wanted, strict=True):
            agree(one, two, tolerance)
        return
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_allclose(found.numpy(), np.asarray(wanted.detach()), tolerance, tolerance)


def weights(gates: int, layers: int, directions: int, biases: bool) -> list[np.ndarray]:
    """Those of layers from 3 features to 5, not great."""
    made = []
    for place in range(layers * directions):
        columns = 3 if place < directions else 5 * directions
        made += [drawn(gates * 5, columns), drawn(gates * 5, 5)]
        made += [drawn(gates * 5), drawn(gates * 5)] if biases else []
    return [one * np.float32(0.3) for one in made]


def of_layers(name: str, gates: int, biases: bool, both_ways: bool) -> tuple[Any, ...]:
    ways = 1 + both_ways
    state = drawn(2 * ways, 4, 5)
    return (f"{name}", drawn(6, 4, 3), [state, state / 2] if name == "lstm" else state,
            weights(gates, 2, ways, biases), biases, 2, 0.0, False, both_ways, False)


GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
BATCH, GRID = drawn(4, 3, 5), np.tanh(drawn(2, 4, 4, 2))
#: Name and arguments, with which PyTorch is asked too.
CALLS: list[tuple[Any, ...]] = [
    ("convolution", drawn(2, 4, 7, 7), drawn(6, 2, 3, 3), drawn(6), [2, 1], [1, 0], [1, 2], False,
     [0, 0], 2),
    ("convolution", drawn(2, 4, 7, 7), drawn(4, 3, 3, 3), None, [2, 1], [1, 0], [1, 1], True,
     [1, 0], 2),
    *(of_layers(name, gates, place != 1, place == 2) for name, gates in GATES.items()
      for place in range(3)),
    ("lstm", drawn(6, 4, 3), [drawn(1, 4, 2), drawn(1, 4, 5)],
     [drawn(20, 3), drawn(20, 2), drawn(20), drawn(20), drawn(2, 5)], True, 1, 0.0, False, False,
     False),
    *((f"{name}_cell", drawn(4, 3), [drawn(4, 5), drawn(4, 5)] if name == "lstm" else drawn(4, 5),
       *weights(gates, 1, 1, biases)) for name, gates in GATES.items()
      for biases in (True, False)),
    ("native_layer_norm", drawn(2, 3, 4), [3, 4], drawn(3, 4), drawn(3, 4), 1e-5),
    ("native_group_norm", drawn(2, 6, 4), drawn(6), drawn(6), 2, 6, 4, 3, 1e-5),
    ("native_batch_norm", BATCH, drawn(3), drawn(3), drawn(3), drawn(3) ** 2, False, 0.1, 1e-5),
    ("native_batch_norm", BATCH, None, None, drawn(3), drawn(3) ** 2, True, 0.1, 1e-5),
    ("native_channel_shuffle", drawn(2, 6, 3, 3), 3),
    *(("norm_except_dim", drawn(3, 4, 5), 2, dim) for dim in (0, 1, -1)),
    *(("grid_sampler", drawn(2, 3, 5, 6), GRID, mode, outside, True)
      for mode in range(3) for outside in range(3)),
    ("affine_grid_generator", drawn(2, 2, 3), [2, 3, 4, 5], False),
    ("embedding_renorm_", drawn(5, 3) * 3, np.array([0, 2, 2]), 1.5, 2.0),
    ("conv_tbc", drawn(7, 2, 3), drawn(3, 3, 4), drawn(4), 1),
    ("max_pool1d_with_indices", drawn(2, 3, 9), 3, 2, 1),
    ("geqrf", drawn(2, 5, 3)), ("geqrf", drawn(3, 4))]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
@pytest.mark.usefixtures("reference")
def test_a_function_is_that_of_torch(call: tuple[Any, ...]) -> None:
    torch = pytest.importorskip("torch")
    name, *given = call
    wanted = getattr(torch, name)(*converted(given, lambda one: torch.tensor(one)))
    agree(getattr(ours, name)(*converted(given, Tensor)), wanted)


@pytest.mark.usefixtures("reference")
def test_layers_and_functions_of_sequences_are_the_same() -> None:
    line = Tensor(drawn(6, 4, 3))
    for kind, name in (("LSTM", "lstm"), ("GRU", "gru"), ("RNN_TANH", "rnn_tanh")):
        layer = nn.RNNBase(kind, 3, 5, 2, bidirectional=True)
        state = Tensor(drawn(4, 4, 5))
        first: Any = (state, state * 2) if name == "lstm" else state
        output, last = layer(line, first)
        found = getattr(ours, name)(line, first, list(layer.parameters()), True, 2, 0.0, False,
                                    True, False)
        agree(found, (output, *last) if name == "lstm" else (output, last))
        cell = getattr(nn, {"RNN_TANH": "RNN"}.get(kind, kind) + "Cell")(3, 5)
        one: Any = (first[0][0], first[1][0]) if name == "lstm" else first[0]
        agree(getattr(ours, f"{name}_cell")(line[0], one, *cell.parameters()),
              cell(line[0], one))
        assert isinstance(cell, nn.RNNCellBase)
    assert isinstance(nn.GRU(2, 3), nn.RNNBase) and not isinstance(nn.GRU(2, 3), nn.RNN)
    with pytest.raises(ArgumentError, match="batch_sizes") as caught:
        ours.gru(line[0], line[0], Tensor([1]), [], True, 1, 0.0, False, False)
    assert "PackedSequence" in caught.value.remedy


def test_convolutions_and_norms_without_torch() -> None:
    x, weight = drawn(2, 4, 6, 6), drawn(6, 2, 3, 3)
    made = ours.convolution(Tensor(x), Tensor(weight), None, [2, 1], 1, 1, False, 0, 2)
    wide: Any = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2]
    parts = [np.einsum("bchwij,ocij->bohw", windows[:, 2 * g:2 * g + 2], weight[3 * g:3 * g + 3])
             for g in range(2)]
    np.testing.assert_allclose(made.numpy(), np.concatenate(parts, 1), 1e-4, 1e-4)
    found = ours.native_layer_norm(Tensor(x), [6], None, None, 0.5)
    mean, deviation = x.mean(-1, keepdims=True), np.sqrt(x.var(-1, keepdims=True) + 0.5)
    wanted: Any = ((x - mean) / deviation, mean, 1 / deviation)
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), two, 1e-4, 1e-5)
    rows: Any = np.sqrt((weight ** 2).sum((1, 2, 3), keepdims=True))
    np.testing.assert_allclose(ours.norm_except_dim(Tensor(weight)).numpy(), rows, 1e-5)
    table = np.array([[3.0, 4.0], [3.0, 4.0], [0.3, 0.4]], np.float32)
    held = Tensor(table)
    assert ours.embedding_renorm_(held, Tensor([0, 2]), 1.0, 2.0) is held
    cut: Any = [[0.6, 0.8], [3.0, 4.0], [0.3, 0.4]]
    np.testing.assert_allclose(held.numpy(), cut, 1e-5)


def test_dropout_in_place_drops_what_dropout_drops() -> None:
    Tensor.manual_seed(1)
    for name, values in (("dropout_", {0.0, 2.0}), ("feature_dropout_", {0.0, 2.0})):
        x = Tensor.ones(40, 50)
        assert getattr(ours, name)(x, 0.5, True) is x and set(np.unique(x.numpy())) == values
        assert 0.3 < float((x == 0).cast("float32").mean().item()) < 0.7
        assert getattr(ours, name)(Tensor.ones(9), 0.5, False).tolist() == [1] * 9
    for name in ("alpha_dropout_", "feature_alpha_dropout_"):
        x = Tensor.ones(40, 50)
        assert getattr(ours, name)(x, 0.5, True) is x and len(np.unique(x.numpy())) == 2
    x, kept = ours.native_dropout(Tensor.ones(1000), 0.25, True)
    assert np.allclose(x.numpy(), kept.numpy() / 0.75) and 0.65 < kept.numpy().mean() < 0.85
    x, kept = ours.native_dropout(Tensor.ones(9), 0.25, False)
    assert kept.numpy().all() and x.tolist() == [1] * 9


def test_numbers_that_a_compiler_would_follow_are_those_of_python() -> None:
    assert (ours.sym_int(2.7), ours.sym_float(2), ours.sym_max(1, 2), ours.sym_min(1, 2)) \
        == (2, 2.0, 2, 1)
    assert (ours.sym_ite(True, 1, 2), ours.sym_not(0), ours.sym_sum([1, 2]), ours.sym_sqrt(4)) \
        == (1, True, 3, 2.0)
    parts = Tensor(drawn(3, 2))
    agree(ours.view_as_real_copy(ours.view_as_complex_copy(parts)), ours.alias_copy(parts))


# Layers

def test_windows_by_chance_have_their_greatest_element() -> None:
    x, chance = drawn(2, 3, 9, 11), random.random((2, 3, 2)).astype(np.float32)
    variable = Tensor(x, requires_grad=True)
    values, places = functional.fractional_max_pool2d(
        variable, (2, 3), (4, 5), return_indices=True, _random_samples=Tensor(chance))
    greatest, where = values.numpy(), places.numpy()
    begun = []
    for axis, (size, window, out) in enumerate(((9, 2, 4), (11, 3, 5))):
        step, first = (size - window) / (out - 1), chance[..., 1 - axis]
        begun.append([np.floor((first + k) * step) - np.floor(first * step)
                      if k < out - 1 else np.full((2, 3), size - window) for k in range(out)])
    slope = np.zeros_like(x)
    for batch, channel, row, column in np.ndindex(2, 3, 4, 5):
        top, left = (int(begun[axis][place][batch, channel])
                     for axis, place in enumerate((row, column)))
        seen = x[batch, channel, top:top + 2, left:left + 3]
        down, along = np.unravel_index(seen.argmax(), seen.shape)
        at = batch, channel, row, column
        assert greatest[at] == seen.max()
        assert where[at] == (top + down) * 11 + left + along
        slope[batch, channel, top + down, left + along] += 1
    values.sum().backward()
    assert variable.grad is not None and np.array_equal(variable.grad.numpy(), slope)
    drawn_anew = nn.FractionalMaxPool3d(2, output_ratio=0.5)(Tensor(drawn(2, 6, 7, 8)))
    assert drawn_anew.shape == (2, 3, 3, 4)
    alone = functional.fractional_max_pool2d_with_indices(Tensor(x[0]), 2, 1)
    assert alone[0].shape == (3, 1, 1) and alone[1].min().item() >= 7 * 11
    with pytest.raises(ArgumentError, match="output_size is None"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(ShapeError, match="9 windows of 2 do not fit"):
        functional.fractional_max_pool2d(Tensor(x), 2, 9)


@pytest.mark.parametrize("shape, window, how", [
    ((2, 3, 9, 11), 2, {"output_size": (4, 5)}), ((3, 9, 11), (3, 2), {"output_ratio": (.5, .6)}),
    ((2, 3, 7, 8, 9), 2, {"output_size": (3, 4, 5)}), ((2, 3, 9, 11), 3, {"output_size": (7, 9)}),
    ((2, 7, 8, 9), (2, 3, 2), {"output_ratio": .5}), ((3, 9, 11), 2, {"output_size": 1})])
def test_windows_by_chance_are_those_of_torch(shape: Any, window: Any, how: Any) -> None:
    torch = pytest.importorskip("torch")
    axes = 3 if len(shape) == 5 or window == (2, 3, 2) else 2
    name = f"fractional_max_pool{axes}d"
    batch = shape[0] if len(shape) == axes + 2 else 1
    x, chance = drawn(*shape), random.random((batch, shape[-axes - 1], axes)).astype(np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    wanted = getattr(torch.nn.functional, name)(
        theirs, window, return_indices=True, _random_samples=torch.tensor(chance), **how)
    mine = Tensor(x, requires_grad=True)
    found = getattr(functional, name)(mine, window, return_indices=True,
                                      _random_samples=Tensor(chance), **how)
    agree(found, wanted)
    agree(found[0].square().sum().gradient(mine)[0],
          torch.autograd.grad(wanted[0].square().sum(), theirs)[0])


def test_a_softmax_of_clusters_is_a_softmax() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], 2.0, head_bias=True)
    x, target = Tensor(drawn(5, 8)), Tensor([0, 5, 12, 19, 3])
    likely = layer.log_prob(x)
    np.testing.assert_allclose(likely.exp().sum(1).numpy(), np.ones(5), 1e-5)
    found = layer(x, target)
    rows = likely.numpy()[np.arange(5), target.numpy()]
    np.testing.assert_allclose(found.output.numpy(), rows, 1e-5)
    assert found.loss.item() == pytest.approx(-rows.mean(), 1e-5)
    assert layer.predict(x).tolist() == likely.numpy().argmax(1).tolist()
    head = (x @ layer.head.weight.T + layer.head.bias).log_softmax(-1).numpy()
    np.testing.assert_allclose(rows[[0, 4]], head[[0, 4], [0, 3]], 1e-5)
    for wrong in ([], [4, 4], [20], [5, 3]):
        with pytest.raises(ArgumentError, match="cutoffs"):
            nn.AdaptiveLogSoftmaxWithLoss(8, 20, wrong)


@pytest.mark.parametrize("name, given, named, target", [
    ("AdaptiveLogSoftmaxWithLoss", (8, 20, [4, 10]), {"div_value": 2.0}, [0, 5, 12, 19, 3]),
    ("LinearCrossEntropyLoss", (8, 6), {"bias": True, "label_smoothing": .1}, [0, 5, 2, 1, 3]),
    ("LinearCrossEntropyLoss", (8, 6), {"out_features": (2,), "reduction": "sum"},
     [[0, 5], [2, 1], [3, 3], [1, 1], [0, 0]])])
def test_losses_with_weights_are_those_of_torch(name: str, given: Any, named: Any,
                                                target: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs, own = getattr(torch.nn, name)(*given, **named), getattr(nn, name)(*given, **named)
    own.load_state_dict({key: value.detach() for key, value in theirs.state_dict().items()})
    x = drawn(5, 8)
    mine, other = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    found, wanted = own(mine, Tensor(target)), theirs(other, torch.tensor(target))
    found, wanted = (getattr(one, "loss", one) for one in (found, wanted))
    agree(found, wanted)
    agree(found.gradient(mine)[0], torch.autograd.grad(wanted, other)[0])


def test_a_norm_becomes_a_part_of_the_layer_before_it() -> None:
    for kind, turned in ((nn.Conv2d, False), (nn.ConvTranspose2d, True)):
        layer, norm = kind(3, 4, 3), nn.BatchNorm2d(4).eval()
        norm.running_mean.assign(Tensor(drawn(4)))
        norm.running_var.assign(Tensor(drawn(4) ** 2))
        norm.weight = Tensor(drawn(4))
        x = Tensor(drawn(2, 3, 6, 6))
        fused = nn.utils.fuse_conv_bn_eval(layer, norm, turned)
        np.testing.assert_allclose(fused(x).numpy(), norm(layer(x)).numpy(), 1e-3, 1e-4)
    line, norm = nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4).eval()
    norm.running_mean.assign(Tensor(drawn(4)))
    rows = Tensor(drawn(5, 3))
    fused = nn.utils.fuse_linear_bn_eval(line, norm)
    np.testing.assert_allclose(fused(rows).numpy(), norm(line(rows)).numpy(), 1e-3, 1e-4)
    assert line.bias is None
    model = nn.Sequential(nn.SyncBatchNorm(4))
    assert nn.SyncBatchNorm.convert_sync_batchnorm(model) is model


def test_gradients_of_convolutions_are_functions_too() -> None:
    for axes in (1, 2, 3):
        x, weight = drawn(2, 4, *[6] * axes), drawn(6, 2, *[3] * axes)
        mine, own = Tensor(x, requires_grad=True), Tensor(weight, requires_grad=True)
        made = functional.conv2d(mine, own, None, 2, 1, 1, 2)
        along = Tensor(drawn(*made.shape))
        wanted = made.gradient(mine, own, gradient=along)
        functions = [getattr(nn.grad, f"conv{axes}d_{name}") for name in ("input", "weight")]
        agree(functions[0](x.shape, own, along, 2, 1, 1, 2), wanted[0])
        agree(functions[1](mine, weight.shape, along, 2, 1, 1, 2), wanted[1])


def test_attention_with_weights_that_are_given() -> None:
    layer = nn.MultiheadAttention(8, 2, kdim=6, vdim=7, add_zero_attn=True).eval()
    query, key, value = Tensor(drawn(4, 3, 8)), Tensor(drawn(5, 3, 6)), Tensor(drawn(5, 3, 7))
    wanted = layer(query, key, value)
    given: Any = (8, 2, None, layer.in_proj_bias, None, None, True, 0.0, layer.out_proj.weight,
                  layer.out_proj.bias)
    named: Any = {name: getattr(layer, name) for name in (
        "q_proj_weight", "k_proj_weight", "v_proj_weight")}
    attended: Any = functional.multi_head_attention_forward
    found = attended(query, key, value, *given, training=False, use_separate_proj_weight=True,
                     **named)
    agree(found, wanted)
    with pytest.raises(ArgumentError, match="static_k"):
        attended(query, key, value, *given, static_k=key)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pooling_gives_places_by_a_name_of_its_own(axes: int) -> None:
    x = Tensor(drawn(2, 3, *[7] * axes))
    found = getattr(functional, f"max_pool{axes}d_with_indices")(x, 3, 2, 1)
    agree(found, getattr(x, f"max_pool{axes}d")(3, 2, padding=1, return_indices=True))
    found = getattr(functional, f"adaptive_max_pool{axes}d_with_indices")(x, 3)
    agree(found, getattr(x, f"adaptive_max_pool{axes}d")(3, return_indices=True))


def test_gradients_at_a_layer_are_seen_and_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).train()
    x, seen = Tensor(drawn(5, 3)), []

    def look(name: str) -> Any:
        def hook(layer: Any, inward: Any, outward: Any) -> None:
            seen.append((name, inward[0], outward[0]))
        return hook

    for place in range(3):
        model[place].register_full_backward_hook(look(f"{place}"))
    wanted = model(x).sum().gradient(model[0].bias)[0].numpy()
    assert [name for name, *_ in seen] == ["2", "1", "0"] and seen[2][1] is None
    inner = model[0](x).tanh()
    np.testing.assert_allclose(seen[0][2].numpy(), np.ones((5, 2)))
    back = np.ones((5, 2)) @ model[2].weight.numpy()
    np.testing.assert_allclose(seen[0][1].numpy(), back, 1e-5)
    np.testing.assert_allclose(seen[1][1].numpy(), back * (1 - inner.numpy() ** 2), 1e-4, 1e-6)
    model[1].register_full_backward_hook(lambda layer, inward, outward: (inward[0] * 2,))
    first = model[1].register_full_backward_hook(look("first"), prepend=True)
    model[2].register_full_backward_pre_hook(lambda layer, outward: outward[0] * 3)
    seen.clear()
    found = model(x).sum().gradient(model[0].bias)[0].numpy()
    np.testing.assert_allclose(found, wanted * 6, 1e-4, 1e-5)
    assert [name for name, *_ in seen] == ["2", "first", "1", "0"]
    np.testing.assert_allclose(seen[0][2].numpy(), np.full((5, 2), 3))
    first.remove()
    seen.clear()
    again = model[0](x)
    (model[1](again) + model[1](again * 2)).sum().gradient(model[0].bias)
    assert [name for name, *_ in seen] == ["1", "1", "0", "0"][:3]
    both = nn.Bilinear(3, 3, 2)
    both.register_full_backward_hook(look("both"))
    with pytest.raises(ArgumentError, match="2 inputs"):
        both(x, x)
    seen.clear()  # what a hook holds of values that stand on its own would live for ever


def test_hooks_of_layers_hold_nothing_of_a_step() -> None:
    """Neither where the input has a gradient, nor where it has none."""
    def step() -> int:
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).train()
        for layer in model:
            layer.register_full_backward_hook(lambda layer, inward, outward: None)
        model(Tensor(drawn(5, 3))).sum().gradient(model[0].weight)[0].numpy()
        del model, layer
        gc.collect()
        return len(living())
    step()
    assert step() == step()


def test_steps_of_optimisers_and_states_of_sequences_are_told() -> None:
    weight, told = Tensor([1.0], requires_grad=True), []
    steps = nn.optim.SGD([weight], 0.5)
    before = steps.register_step_pre_hook(
        lambda optimizer, given, named: told.append((optimizer is steps, given, weight.item())))
    steps.register_step_post_hook(
        lambda optimizer, given, named: told.append((optimizer is steps, given, weight.item())))
    weight.sum().backward()
    steps.step()
    assert told == [(True, (), 1.0), (True, (), 0.5)]
    before.remove()
    steps.step()
    assert len(told) == 3
    numbers = ours.Generator().manual_seed(7)
    state = numbers.get_state()
    first = ours.rand(3, generator=numbers).tolist()
    assert ours.rand(3, generator=numbers).tolist() != first
    numbers.set_state(state)
    assert ours.rand(3, generator=numbers).tolist() == first
    assert ours.Generator().manual_seed(7).initial_seed() == 7 and numbers.seed() >= 0
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh()))
    model.set_submodule("1.0", nn.ReLU(), strict=True)
    model.set_submodule("extra", nn.Tanh())
    assert isinstance(model[1][0], nn.ReLU) and model.to_empty() is model
    for path, strict in (("1.7", True), ("nowhere.0", False)):
        with pytest.raises(ArgumentError, match="there is no"):
            model.set_submodule(path, nn.ReLU(), strict)


# Matrices

def test_roots_and_turns_of_matrices() -> None:
    matrix = drawn(3, 5, 5)
    positive = matrix @ matrix.swapaxes(1, 2) + np.eye(5, dtype=np.float32)
    root = Tensor.linalg.matrix_sqrth(Tensor(positive))
    np.testing.assert_allclose((root @ root).numpy(), positive, 1e-3, 1e-3)
    assert np.linalg.eigvalsh(root.numpy()).min() > 0
    for shape in ((4, 4), (2, 5, 3)):
        x = drawn(*shape)
        turn, stretch = Tensor.linalg.polar(Tensor(x))
        np.testing.assert_allclose((turn @ stretch).numpy(), x, 1e-4, 1e-4)
        np.testing.assert_allclose((turn.mT @ turn).numpy(),
                                   np.broadcast_to(np.eye(shape[-1]), stretch.shape), 1e-4, 1e-4)
        packed, tau = Tensor(x).geqrf()
        whole = packed.ormqr(tau, Tensor(x), True, True)  # Q.T @ x is the triangle
        np.testing.assert_allclose(whole.triu().numpy(), packed.triu().numpy(), 1e-4, 1e-4)
        np.testing.assert_allclose(whole.tril(-1).numpy(), np.zeros(shape), 1e-4, 1e-4)
    with pytest.raises(ShapeError, match="more columns than rows"):
        Tensor.linalg.polar(Tensor(drawn(2, 3)))


@verifies("tensor.linalg.slope+2")
def test_slopes_of_roots_and_turns_are_those_of_steps() -> None:
    start, along = random.standard_normal((3, 3)), random.standard_normal((3, 3))
    weight = Tensor(random.standard_normal((3, 3)))

    def rooted(x: Any) -> Any:
        return (Tensor.linalg.matrix_sqrth(x @ x.mT + Tensor(np.eye(3))) * weight).sum()

    def turned(x: Any) -> Any:
        turn, stretch = Tensor.linalg.polar(x)
        return (turn * weight).sum() + (stretch * weight).square().sum()

    for function in (rooted, turned):
        x = Tensor(start, requires_grad=True)
        slope = (function(x).gradient(x)[0] * Tensor(along)).sum()
        steps = [function(Tensor(start + size * along)).item() for size in (1e-5, -1e-5)]
        assert slope.item() == pytest.approx((steps[0] - steps[1]) / 2e-5, 1e-5)
        second = (slope.gradient(x)[0] * Tensor(along)).sum().item()
        middle = function(Tensor(start)).item()
        steps = [function(Tensor(start + size * along)).item() for size in (1e-4, -1e-4)]
        assert second == pytest.approx((steps[0] - 2 * middle + steps[1]) / 1e-8, 1e-4, 1e-4)
    same = Tensor(np.eye(3), requires_grad=True)  # equal values: the slope is finite
    found = (Tensor.linalg.matrix_sqrth(same) * weight).sum().gradient(same)[0].numpy()
    np.testing.assert_allclose(found, (weight.numpy() + weight.numpy().T) / 4, 1e-6)


def test_sums_to_a_shape_and_logits_of_a_wide_margin() -> None:
    assert Tensor(True).sum_to_size(()).dtype is ours.int32
    near = Tensor([0.1, 0.5, 0.7]).logit(0.6)  # the margin is over a half
    np.testing.assert_allclose(near.numpy(), np.log([1.5, 1.5, 2 / 3]), 1e-5)
    nothing = Tensor(np.ones((0, 1, 2), np.int64))
    assert nothing.local_response_norm(1).dtype is ours.int64


# Names

@verifies("errors.name.missing")
@pytest.mark.parametrize("part", PARTS)
def test_each_name_of_torch_is_there_or_says_what_to_write(part: str) -> None:
    pytest.importorskip("torch")
    found = list(missing(part))
    assert len(found) > 40
    assert [name for name, remedy in found
            if remedy is not None and not remedy.startswith(TOLD)] == []
