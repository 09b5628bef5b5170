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
    (lambda: families.Pareto(1.0, 3.0), 2.0, -1.673976),
    (lambda: families.NegativeBinomial(5.0, 0.3), 2.0, -1.483270),
    (lambda: families.VonMises(0.5, 2.0), 2.0, -2.520396),
    (lambda: families.VonMises(0.5, 0.01), 0.0, -1.829125),
    (lambda: families.Geometric(1.0), 0.0, 0.0)]


@pytest.mark.parametrize("build, value, wanted", DENSITIES)
def test_densities_are_those_of_torch(build: Any, value: float, wanted: float) -> None:
    made = build()
    assert abs(made.log_prob(Tensor(value)).item() - wanted) < 1e-4
    Tensor.manual_seed(0)
    drawn = made.sample((3, 2))
    assert drawn.shape == (3, 2) and np.isfinite(drawn.numpy()).all()


def test_draws_have_the_moments_of_their_distribution() -> None:
    Tensor.manual_seed(0)
    for made in (families.Gamma(0.5, 2.0), families.Poisson(4.0), families.Beta(2.0, 3.0),
                 families.NegativeBinomial(5.0, 0.3)):
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
    angles = families.VonMises(3.0, 4.0)  # many go over pi
    drawn = angles.sample((4000,)).numpy()
    assert np.abs(drawn).max() <= math.pi + 1e-6
    assert abs(np.cos(drawn - 3.0).mean() - 1 + angles.variance.item()) < 0.02
    assert abs(np.sin(drawn - 3.0).mean()) < 0.03
    mixed = families.MixtureSameFamily(
        d.Categorical(Tensor([0.5, 0.5])), d.Normal(Tensor([-1.0, 1.0]), 1.0))
    assert abs(mixed.mean.item()) < 1e-6 and abs(mixed.variance.item() - 2) < 1e-5


#: What is outside, asked as PyTorch asks of everything; with the numbers of Python it is refused
#: unasked.
OUTSIDE: list[tuple[Any, str]] = [
    (lambda n, asked: d.Normal(0.0, n(-1.0), asked), "scale is .* greater than 0"),
    (lambda n, asked: d.Normal(0.0, 1.0, asked).log_prob(n(math.nan)), "value is .* a number"),
    (lambda n, asked: d.Bernoulli(n(1.5), validate_args=asked), "probs is .* from 0 to 1"),
    (lambda n, asked: d.Bernoulli(0.5, validate_args=asked).log_prob(n(0.5)), "0 or 1"),
    (lambda n, asked: d.Categorical(Tensor([0.5, 0.5]), validate_args=asked).log_prob(n(2)),
     "whole, from 0 to 1"),
    (lambda n, asked: families.Chi2(n(-2.0), asked), "df is"),
    (lambda n, asked: families.Poisson(1.0, asked).log_prob(n(0.5)), "whole, 0 or greater"),
    (lambda n, asked: families.NegativeBinomial(2.0, n(1.0), validate_args=asked), "less than 1"),
    (lambda n, asked: families.HalfNormal(1.0, asked).log_prob(n(-1.0)), "0 or greater"),
    (lambda n, asked: families.Pareto(2.0, 1.0, asked).log_prob(n(1.0)), "or greater")]


@pytest.mark.parametrize("asks, what", OUTSIDE)
def test_what_is_outside_is_refused(asks: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        asks(lambda number: number, None)
    asks(lambda number: number, False)
    with pytest.raises(ValueError, match=what):
        asks(Tensor, True)
    asks(Tensor, None)  # nobody computes a tensor unasked


def test_vectors_and_matrices_outside_are_refused_where_it_is_asked() -> None:
    half = Tensor([0.5, 0.5])
    d.OneHotCategorical(half, validate_args=True).log_prob(Tensor([0.0, 1.0]))
    d.Categorical(half * 4, validate_args=True)  # which are divided by their sum
    for asks in (lambda: d.OneHotCategorical(half, validate_args=True).log_prob(half),
                 lambda: d.Categorical(half - 1, validate_args=True),
                 lambda: families.Dirichlet(half, True).log_prob(half + 0.25),
                 lambda: families.MultivariateNormal(
                     half, Tensor([[1.0, 2.0], [2.0, 1.0]]), validate_args=True),
                 lambda: families.MultivariateNormal(
                     half, scale_tril=Tensor([[1.0, 2.0], [2.0, 1.0]]), validate_args=True)):
        with pytest.raises(ValueError):
            asks()
    d.Distribution.set_default_validate_args(True)
    try:
        with pytest.raises(ValueError, match="scale"):
            d.Normal(half, -half)
    finally:
        d.Distribution._validate_args = None


def test_a_distribution_of_a_user_is_checked_like_others() -> None:
    class Doubled(d.Normal):
        arg_constraints = {"width": d.constraints.positive}

        def __init__(self, width: float) -> None:
            super().__init__(0.0, width * 2)

        def log_prob(self, value: Any) -> Tensor:
            return super().log_prob(value)

    assert abs(Doubled(1.0).log_prob(1.0).item() + 1.737086) < 1e-5
    with pytest.raises(ValueError, match="width"):
        Doubled(-1.0)


def test_normed_weights_have_the_names_of_torch() -> None:
    parts = nn.utils.parametrizations
    one: Any = parts.weight_norm(nn.Linear(3, 2))
    value = one.weight.numpy()
    assert sorted(one.state_dict()) == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    one.parametrizations.weight.original0.assign(one.parametrizations.weight.original0 * 2)
    assert np.allclose(one.weight.numpy(), value * 2, atol=1e-6)
    assert one.parametrizations.weight.original0.shape == (2, 1)
    nn.utils.parametrize.remove_parametrizations(one, "weight")
    assert type(one) is nn.Linear and np.allclose(one.weight.numpy(), value * 2, atol=1e-6)
    Tensor.manual_seed(0)
    two: Any = parts.spectral_norm(nn.Linear(4, 4), n_power_iterations=20).train()
    assert sorted(two.state_dict()) == [
        "bias", "parametrizations.weight.0._u", "parametrizations.weight.0._v",
        "parametrizations.weight.original"]
    assert abs(two.weight.svdvals()[0].item() - 1) < 1e-2
    two.eval()
    before = two.state_dict()["parametrizations.weight.0._u"].numpy()
    assert np.array_equal(two.weight.numpy(), two.weight.numpy())
    assert np.array_equal(two.state_dict()["parametrizations.weight.0._u"].numpy(), before)


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


def test_gradients_are_clipped_whatever_lists_the_parameters() -> None:
    for listed in (list, iter, lambda all: (one for one in all)):
        x, y = (Tensor([start, 2.0], requires_grad=True) for start in (1.0, 3.0))
        (x.square().sum() + y.square().sum()).backward()
        norm = nn.utils.clip_grad_norm_(listed([x, y]), 1.0).item()
        assert abs(norm - 2 * math.sqrt(18)) < 1e-4
        assert x.grad is not None and y.grad is not None
        found = np.concatenate([x.grad.numpy(), y.grad.numpy()])
        assert abs(np.linalg.norm(found) - 1) < 1e-4


def test_a_parameter_is_told_by_what_it_is_for() -> None:
    layer = nn.BatchNorm2d(3)
    assert isinstance(layer.weight, nn.Parameter) and isinstance(nn.Parameter([1.0]), nn.Parameter)
    assert not isinstance(layer.weight.requires_grad_(False), nn.Parameter)
    others = Tensor([1.0]), layer.running_mean, nn.Buffer([1.0]), layer.weight * 2, 1.0
    assert not any(isinstance(other, nn.Parameter) for other in others)
    kept = Tensor([1.0, 2.0]).realize()
    assert type(nn.Parameter(kept)) is Tensor and nn.Parameter(kept).tolist() == [1, 2]


def test_a_parameter_named_twice_is_warned_of() -> None:
    weight = Tensor([1.0], requires_grad=True)
    with pytest.warns(UserWarning, match="SGD: a group names one parameter twice"):
        nn.optim.SGD([weight, weight], lr=0.1)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta",
                                  "Adamax", "NAdam", "RAdam", "Rprop", "Lion", "LAMB", "LARS",
                                  "ASGD", "Adafactor"])
def test_optimisers_take_parameters_of_double_width(kind: str) -> None:
    weight = Tensor([1.0, -2.0], dtype="float64", requires_grad=True)
    optimizer = getattr(nn.optim, kind)([weight], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()
    assert weight.dtype.name == "float64" and abs(weight.tolist()[1]) < 2
