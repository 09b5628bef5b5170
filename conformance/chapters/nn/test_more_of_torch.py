"""Distributions, samplers, packed sequences, lazy layers and computed weights, as in PyTorch."""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from impl import Context, Tensor, TinyJit, nn
from impl.errors import ArgumentError, ShapeError
from impl.nn import data, families
from impl.nn import distributions as d


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    """Values, on the device that compiles nothing."""
    with Context(DEVICE="REFERENCE"):
        yield


#: A distribution, a value, and the density there as PyTorch gives it.
DENSITIES: list[tuple[Any, Any, float]] = [
    (lambda: d.Normal(0.0, 2.0), 1.0, -1.737086), (lambda: d.Uniform(0.0, 4.0), 1.0, -1.386294),
    (lambda: families.Beta(2.0, 3.0), 0.3, 0.567584),
    (lambda: families.Gamma(2.0, 3.0), 0.5, 0.004077),
    (lambda: families.Exponential(2.0), 0.5, -0.306853),
    (lambda: families.Laplace(0.0, 2.0), 1.0, -1.886294),
    (lambda: families.Poisson(3.0), 2.0, -1.495922),
    (lambda: families.StudentT(5.0), 1.0, -1.515584),
    (lambda: families.Gumbel(0.0, 1.0), 1.0, -1.367879),
    (lambda: families.Cauchy(0.0, 1.0), 1.0, -1.837877),
    (lambda: families.LogNormal(0.0, 1.0), 2.0, -1.852313),
    (lambda: families.Geometric(0.25), 2.0, -1.961659),
    (lambda: families.Binomial(4, 0.5), 2.0, -0.980829),
    (lambda: families.HalfNormal(1.0), 1.0, -0.725791),
    (lambda: families.Weibull(1.0, 2.0), 0.5, -0.25),
    (lambda: families.Pareto(1.0, 3.0), 2.0, -1.673976)]


@pytest.mark.parametrize("build, value, wanted", DENSITIES)
def test_densities_are_those_of_torch(build: Any, value: float, wanted: float) -> None:
    made = build()
    assert abs(made.log_prob(Tensor(value)).item() - wanted) < 1e-4
    Tensor.manual_seed(0)
    drawn = made.sample((3, 2))
    assert drawn.shape == (3, 2) and np.isfinite(drawn.numpy()).all()


def test_draws_have_the_moments_of_their_distribution() -> None:
    Tensor.manual_seed(0)
    for made in (families.Gamma(0.5, 2.0), families.Poisson(4.0), families.Beta(2.0, 3.0)):
        drawn = made.sample((4000,)).numpy()
        assert abs(drawn.mean() - made.mean.item()) < 0.1
        assert abs(drawn.var() - made.variance.item()) < 0.3 * made.variance.item()
    vectors = families.MultivariateNormal(Tensor([1.0, 2.0]), Tensor([[2.0, 0.5], [0.5, 1.0]]))
    found = np.cov(vectors.sample((4000,)).numpy().T)
    assert np.abs(found - vectors.covariance_matrix.numpy()).max() < 0.2
    assert abs(vectors.log_prob(Tensor([1.0, 2.0])).item() + math.log(2 * math.pi)
               + math.log(1.75) / 2) < 1e-4


def test_distances_of_distributions() -> None:
    assert abs(d.kl_divergence(d.Normal(0.0, 1.0), d.Normal(1.0, 2.0)).item() - 0.443147) < 1e-5
    apart = d.kl_divergence(families.Gamma(2.0, 1.0), families.Gamma(1.0, 2.0))
    assert abs(apart.item() - 1.729637) < 1e-4
    both = [d.Independent(d.Normal(Tensor([0.0, 0.0]), 1.0 + place), 1) for place in range(2)]
    assert both[0].event_shape == (2,) and d.kl_divergence(*both).shape == ()
    with pytest.raises(ArgumentError, match="no formula for Normal and Gamma"):
        d.kl_divergence(d.Normal(0.0, 1.0), families.Gamma(2.0, 1.0))
    with pytest.raises(ArgumentError, match="rsample"):
        families.Gamma(2.0, 1.0).rsample()
    mixed = families.MixtureSameFamily(
        d.Categorical(Tensor([0.5, 0.5])), d.Normal(Tensor([-1.0, 1.0]), 1.0))
    assert abs(mixed.mean.item()) < 1e-6 and abs(mixed.variance.item() - 2) < 1e-5


def test_samplers_and_datasets() -> None:
    rows = data.TensorDataset(Tensor.arange(6))
    Tensor.manual_seed(0)
    weights = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert list(data.WeightedRandomSampler(weights, 4)) == [2, 2, 2, 2]
    assert sorted(data.RandomSampler(rows)) == list(range(6))
    assert sorted(data.SubsetRandomSampler([4, 1])) == [1, 4]
    assert list(data.BatchSampler(data.SequentialSampler(rows), 4)) == [[0, 1, 2, 3], [4, 5]]
    shares = [list(data.DistributedSampler(rows, 4, rank)) for rank in range(4)]
    assert {len(one) for one in shares} == {2} and {*sum(shares, [])} == set(range(6))
    both = rows + rows
    assert len(both) == 12 and both[-1][0].item() == 5 and both[6][0].item() == 0
    assert data.StackDataset(a=rows, b=rows)[1]["b"][0].item() == 1

    class Counted(data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))
    assert [batch.tolist() for batch in data.DataLoader(Counted(), 2)] == [[0, 1], [2]]
    with pytest.raises(ArgumentError, match="shuffle"):
        data.DataLoader(rows, shuffle=True, sampler=data.SequentialSampler(rows))


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_packed_sequences_are_gone_through_each_for_itself(kind: str) -> None:
    layer = getattr(nn, kind)(2, 3, bidirectional=True)
    x, lengths = Tensor.randn(4, 3, 2), [2, 4, 1]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    found, state = layer(packed)
    rows, known = nn.utils.rnn.pad_packed_sequence(found)
    last = state if kind == "GRU" else state[0]
    assert known.tolist() == lengths and rows.shape == (4, 3, 6)
    for place, length in enumerate(lengths):
        alone, ended = layer(x[:length, place])
        assert np.allclose(rows[:length, place].numpy(), alone.numpy(), atol=1e-5)
        ended = ended if kind == "GRU" else ended[0]
        assert np.allclose(last[:, place].numpy(), ended.numpy(), atol=1e-5)
    assert (rows[2:, 0] == 0).all().item()
    with pytest.raises(ArgumentError, match="enforce_sorted"):
        nn.utils.rnn.pack_padded_sequence(x, lengths)
    with pytest.raises(ShapeError, match="lengths"):
        nn.utils.rnn.pack_padded_sequence(x, [5, 1, 1])


def test_packed_sequences_stay_on_their_device() -> None:
    layer, x = nn.GRU(2, 3), Tensor.randn(3, 2, 2)
    wanted = nn.utils.rnn.pad_packed_sequence(
        layer(nn.utils.rnn.pack_padded_sequence(x, [3, 1]))[0])[0].numpy()
    packed = nn.utils.rnn.pack_padded_sequence(x.to("REFERENCE:1"), Tensor([3, 1]))
    found, last = layer.to("REFERENCE:1")(packed)
    rows, lengths = nn.utils.rnn.pad_packed_sequence(found)
    assert rows.device == last.device == "REFERENCE:1" and lengths.tolist() == [3, 1]
    assert np.allclose(rows.numpy(), wanted, atol=1e-6)


def test_lazy_layers_hooks_and_computed_weights() -> None:
    layer: Any = nn.LazyLinear(3)
    assert layer(Tensor.ones(2, 5)).shape == (2, 3) and type(layer).__name__ == "Linear"
    images: Any = nn.LazyConv2d(2, 3, padding=1)
    assert images(Tensor.ones(1, 4, 5, 5)).shape == (1, 2, 5, 5)
    seen: list[tuple[int, ...]] = []
    first = layer.register_forward_pre_hook(lambda own, given: (given[0] * 0,))
    second = layer.register_forward_hook(lambda own, given, out: seen.append(out.shape))
    assert np.allclose(layer(Tensor.ones(2, 5)).numpy()[0], layer.bias.numpy())
    first.remove()
    second.remove()
    layer(Tensor.ones(2, 5))
    assert seen == [(2, 3)]
    value = layer.weight.numpy()
    nn.utils.weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    assert np.allclose(layer.weight.numpy(), value, atol=1e-6)
    layer(Tensor.ones(2, 5)).sum().backward()
    assert layer.weight_g.grad is not None
    assert type(nn.utils.remove_weight_norm(layer)) is nn.Linear
    Tensor.manual_seed(0)
    spectral: Any = nn.utils.spectral_norm(nn.Linear(4, 4), n_power_iterations=20).train()
    assert abs(spectral.weight.svdvals()[0].item() - 1) < 1e-2


def test_a_layer_with_hooks_is_replayed() -> None:
    layer, x = nn.Linear(2, 2), Tensor.ones(1, 2).realize()
    wanted = layer(x * 2).numpy() + 1
    layer.register_forward_pre_hook(lambda own, given: (given[0] * 2,))
    layer.register_forward_hook(lambda own, given, out: out + 1)
    step = TinyJit(lambda: layer(x))
    for _ in range(4):
        assert np.allclose(step().numpy(), wanted)
    assert step.replays >= 2, step.explain()


def test_a_hook_that_is_always_called_sees_a_call_that_fails() -> None:
    layer: Any = nn.Linear(5, 3)
    seen: list[Any] = []
    layer.register_forward_hook(lambda own, given, out: seen.append("after"))
    layer.register_forward_hook(lambda own, given, out: seen.append(out), always_call=True)
    last = layer.register_forward_hook(
        lambda own, given, named, out: seen.append((given, named)), with_kwargs=True,
        always_call=True)
    with pytest.raises(ShapeError):
        layer(Tensor.ones(2, 4))
    assert seen[0] is None and seen[1][0][0].shape == (2, 4) and len(seen) == 2
    last.remove()
    seen.clear()
    layer(Tensor.ones(2, 5))
    assert seen[0] == "after" and seen[1].shape == (2, 3) and len(seen) == 2  # each once
    layer.register_forward_hook(lambda own, given, out: seen[9])
    with pytest.raises(IndexError):
        layer(Tensor.ones(2, 5))
    assert len(seen) == 4
    layer.register_forward_pre_hook(lambda own, given: 1 // 0)
    layer.register_forward_hook(lambda own, given, out: seen[9], always_call=True)
    with pytest.warns(UserWarning, match="a forward hook raised IndexError"), \
            pytest.raises(ZeroDivisionError):
        layer(Tensor.ones(2, 5))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_computed_weights_are_removed_in_any_order(order: tuple[int, int]) -> None:
    layer: Any = nn.LSTM(2, 3)
    names, x = ("weight_ih_l0", "weight_hh_l0"), Tensor.randn(2, 1, 2)
    wanted, kept = layer(x)[0].numpy(), sorted(layer.state_dict())
    for name in names:
        nn.utils.weight_norm(layer, name)
    first, second = (names[place] for place in order)
    nn.utils.remove_weight_norm(layer, first)
    assert {f"{second}_g", f"{second}_v", first} <= {*layer.state_dict()}
    assert not {f"{first}_g", f"{first}_v", second} & {*layer.state_dict()}
    with pytest.raises(ArgumentError, match=f"{second} is computed from other tensors"):
        setattr(layer, second, Tensor.ones(12, 3))
    with pytest.raises(ArgumentError, match=f"'{first}' is not computed from {first}_g and"):
        nn.utils.remove_weight_norm(layer, first)
    assert np.allclose(layer(x)[0].numpy(), wanted, atol=1e-5)
    nn.utils.remove_weight_norm(layer, second)
    assert type(layer) is nn.LSTM and sorted(layer.state_dict()) == kept
    assert np.allclose(layer(x)[0].numpy(), wanted, atol=1e-5)


class Symmetric(nn.Module):
    """The upper triangle, also below."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


def test_a_parametrization_computes_a_weight() -> None:
    layer: Any = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    assert np.allclose(layer.weight.numpy(), layer.weight.numpy().T)
    assert "parametrizations.weight.original" in layer.state_dict()
    with pytest.raises(ArgumentError, match="computed from other tensors"):
        layer.weight = Tensor.ones(3, 3)
    with pytest.raises(ArgumentError, match="'bias' of nn.Linear is not parametrized"):
        nn.utils.parametrize.remove_parametrizations(layer, "bias")
    nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and sorted(layer.state_dict()) == ["bias", "weight"]


def test_layers_take_a_device_a_dtype_and_old_words() -> None:
    linear, square, size = (getattr(nn, name) for name in ("Linear", "MSELoss", "L1Loss"))
    assert linear(2, 3, dtype="float64", device="REFERENCE").weight.dtype.name == "float64"
    assert square(size_average=False)(Tensor([1.0, 3.0]), Tensor([0.0, 0.0])).item() == 10
    assert size(reduce=False)(Tensor([1.0]), Tensor([0.0])).shape == (1,)
    assert nn.BatchNorm2d(3, bias=False).bias is None
    with pytest.raises(ArgumentError, match="devic"):
        linear(2, 3, devic="CPU")
