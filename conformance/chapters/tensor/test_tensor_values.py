"""Values at the edges of formulas, and what NumPy and PyTorch answer there."""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, TinyJit, Variable, dtypes
from impl.errors import DTypeError

NUMBERS = np.arange(120, dtype=np.int32).reshape(2, 3, 4, 5)


@verifies("gradient.root.zero")
def test_norms_and_deviations_of_nothing_have_no_slope() -> None:
    for x, value in ((Tensor([0.0, 0.0]), Tensor.norm), (Tensor([2.0, 2.0, 2.0]), Tensor.std)):
        assert value(x).item() == 0
        assert set(value(x).gradient(x)[0].tolist()) == {0.0}
    row = Tensor([[3.0, 4.0], [0.0, 0.0]])
    found = row.norm(axis=1).sum().gradient(row)[0].numpy()
    assert np.allclose(found, [[0.6, 0.8], [0.0, 0.0]])
    assert np.isfinite(row.normalize().sum().gradient(row)[0].numpy()).all()
    assert row.std_mean(axis=1)[0].sum().gradient(row)[0].tolist()[1] == [0, 0]


@verifies("tensor.norm.half")
def test_a_norm_of_halves_is_as_large_as_it_is() -> None:
    large = Tensor(np.full(100, 300, np.float16))
    assert large.norm().item() == 3000 and large.norm().dtype == large.dtype
    assert abs(large.norm(3).item() / (300 * 100 ** (1 / 3)) - 1) < 1e-3


@verifies("tensor.loss.value")
def test_who_was_certain_and_right_pays_nothing() -> None:
    x = Tensor([40.0, -200.0, 0.5], requires_grad=True)
    loss = x.sigmoid().binary_crossentropy(Tensor([1.0, 0.0, 1.0]), reduction="none")
    assert np.allclose(loss.numpy(), [0, 0, 0.474077])
    assert np.allclose(loss.sum().gradient(x)[0].numpy(), [0, 0, -0.37754068])


@verifies("tensor.loss.value")
def test_who_was_certain_and_wrong_pays_a_hundred() -> None:
    p = Tensor([0.0, 1.0, 1e-20], requires_grad=True)
    loss = p.binary_crossentropy(Tensor([1.0, 0.0, 1.0]), reduction="none")
    assert np.allclose(loss.numpy(), [100, 100, 46.0517])
    assert np.allclose(loss.sum().gradient(p)[0].numpy(), [-1e12, 1e12, -1e12])


@verifies("tensor.attention.blind")
def test_a_query_that_sees_no_key() -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((3, 4)).astype(np.float32) for _ in range(3)]
    query, key, value = (Tensor(array, requires_grad=True) for array in arrays)
    seen = np.array([[True, False, True], [False] * 3, [True] * 3])
    for mask in (Tensor(seen), Tensor(np.where(seen, 0, -np.inf).astype(np.float32))):
        found = query.scaled_dot_product_attention(key, value, mask)
        scores = np.where(seen, query.numpy() @ key.numpy().T / 2, -np.inf)[[0, 2]]
        grown = np.exp(scores)
        expected = grown / grown.sum(1, keepdims=True) @ value.numpy()
        assert np.allclose(found.numpy()[[0, 2]], expected, atol=1e-6)
        assert found[1].tolist() == [0] * 4
        gradients = found.square().sum().gradient(query, key, value)
        assert all(np.isfinite(gradient.numpy()).all() for gradient in gradients)
        assert gradients[0][1].tolist() == [0] * 4


@verifies("tensor.pad.negative")
@pytest.mark.parametrize("mode, numpy_mode", {
    "replicate": "edge", "reflect": "reflect", "circular": "wrap", "constant": "constant"}.items())
def test_negative_padding_cuts_off(mode: str, numpy_mode: Any) -> None:
    x = NUMBERS[0, 0]
    for before, after in ((2, -1), (-1, 2), (-1, -2), (0, -3), (1, 1)):
        found = Tensor(x).pad((before, after), mode).numpy()
        whole = x if mode == "reflect" else x[:, max(0, -before):x.shape[1] - max(0, -after)]
        padded = np.pad(whole, ((0, 0), (max(0, before), max(0, after))), numpy_mode)
        if mode == "reflect":
            padded = padded[:, max(0, -before):padded.shape[1] - max(0, -after)]
        assert np.array_equal(found, padded), (before, after)


@verifies("tensor.axis.scalar")
def test_a_number_has_an_axis_to_reduce() -> None:
    x = Tensor(3.0)
    for axis in (0, -1):
        for reduce in (Tensor.sum, Tensor.max, Tensor.mean, Tensor.prod, Tensor.logsumexp):
            assert reduce(x, axis).item() == 3 and reduce(x, axis).shape == ()
        assert x.argmax(axis).item() == 0 and x.sort(axis)[0].item() == 3
        assert x.topk(1, axis)[1].shape == () and x.flip(axis).item() == 3
    with pytest.raises(IndexError):
        x.sum(1)


def _choices(size: int) -> list[Any]:
    """Pairs of an index for a tensor, and of the same for an array."""
    mask = np.arange(size) != 1
    plain: list[Any] = [slice(None), slice(1, None), slice(None, None, -2), 0, -1, [0, 1, 1],
                        np.array([[0], [1]])]
    return [(one, one) for one in plain] + [
        (Tensor([1, 0, -1]), np.array([1, 0, -1])), (Tensor(mask), mask), (mask, mask)]


def _index(seed: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Any mixture of indices of `NUMBERS`, with a `...` and new axes here and there."""
    random = np.random.default_rng(seed)
    used, cut = int(random.integers(1, 5)), int(random.integers(0, 5))
    ellipsis = bool(random.integers(2))
    mine, theirs = list[Any](), list[Any]()
    for place in range(used):
        if ellipsis and place == min(cut, used - 1):
            mine, theirs = [*mine, ...], [*theirs, ...]
        if random.random() < 0.15:
            mine, theirs = [*mine, None], [*theirs, None]
        axis = 4 - used + place if ... in [one for one in mine if one is ...] else place
        choices = _choices(NUMBERS.shape[axis])
        one, other = choices[int(random.integers(len(choices)))]
        mine, theirs = [*mine, one], [*theirs, other]
    return tuple(mine), tuple(theirs)


@pytest.mark.slow
@verifies("tensor.index.elements")
def test_any_mixture_of_indices_chooses_what_numpy_chooses() -> None:
    tried = 0
    for seed in range(70):
        mine, theirs = _index(seed)
        try:
            expected = NUMBERS[theirs]
        except IndexError:  # these index arrays do not broadcast
            continue
        assert np.array_equal(Tensor(NUMBERS)[mine].numpy(), expected), theirs
        value = expected * 3 + 1  # the same for elements that are chosen twice
        mutable, array = Tensor(NUMBERS), NUMBERS.copy()
        mutable[mine], array[theirs] = value, value
        assert np.array_equal(mutable.numpy(), array), theirs
        tried += 1
    assert tried > 35


@verifies("tensor.index.elements")
def test_an_empty_ellipsis_parts_index_tensors() -> None:
    rows = [0, 1, 1]
    parts: list[Any] = [rows, ..., rows, slice(None), slice(0, 2)]
    for index in itertools.permutations(parts):
        assert Tensor(NUMBERS)[index].shape == NUMBERS[index].shape, index


@verifies("tensor.index.elements")
def test_gradients_of_a_mixture_of_indices() -> None:
    x = Tensor(NUMBERS.astype(np.float32))
    index = (slice(None), Tensor([0, 2, 2]), None, slice(1, 3), 4)
    expected, same = np.zeros(NUMBERS.shape), (*index[:1], np.array([0, 2, 2]), *index[2:])
    np.add.at(expected, same, 2)  # type: ignore[arg-type]
    assert np.array_equal((x[index] * 2).sum().gradient(x)[0].numpy(), expected)


@pytest.fixture
def defaults() -> Iterator[None]:
    """The default dtypes, which are what they were afterwards."""
    before = dtypes.default_float, dtypes.default_int
    yield
    dtypes.default_float, dtypes.default_int = before


@verifies("dtypes.default.set")
@pytest.mark.parametrize("chosen", ["float64", "float16", "bfloat16", "float32"])
def test_the_default_dtype_is_chosen(chosen: str, defaults: None) -> None:
    whole = Tensor([1], dtype="int64"), Tensor([1], dtype="uint64")
    assert (whole[0] + whole[1]).dtype is dtypes.float32
    wanted = getattr(dtypes, chosen)
    dtypes.default_float = wanted
    made = [Tensor([0.5, 1.5]), Tensor(0.5), Tensor.zeros(2), Tensor.rand(2), whole[0] * 1.5,
            whole[0] / 2, whole[0] + whole[1], Tensor.linspace(0, 1, 3), Tensor([1], dtype=float)]
    assert [each.dtype for each in made] == [wanted] * len(made)
    assert made[0].tolist() == [0.5, 1.5]
    assert Tensor(np.ones(2, np.float32)).dtype is dtypes.float32
    dtypes.default_int = dtypes.int16
    assert Tensor([1, 2]).dtype is dtypes.int16 and Tensor.arange(3).dtype is dtypes.int16
    assert Tensor([1 << 20]).dtype is dtypes.int64
    assert Tensor([True]).sum().dtype is dtypes.int32
    dtypes.default_int = dtypes.int64
    assert Tensor([1, 2]).dtype is Tensor([True]).sum().dtype is Tensor.arange(3).dtype
    assert Tensor([1], dtype="uint8").sum().dtype is dtypes.uint64


@verifies("dtypes.default.set")
def test_a_replay_follows_the_default_dtype(defaults: None) -> None:
    step = TinyJit(lambda x: (x + 1) * 0.5)
    x = Tensor([1, 2])
    for _ in range(3):
        assert step(x).dtype is dtypes.float32
    dtypes.default_float = dtypes.float64
    for _ in range(3):
        assert step(x).dtype is dtypes.float64
    dtypes.default_float = dtypes.float32
    replays = step.replays
    assert step(x).dtype is dtypes.float32 and step.replays == replays + 1


@verifies("tensor.arguments.refused+2")
def test_bits_of_integers_that_meet_in_a_float_are_refused() -> None:
    unsigned, signed = Tensor([1], dtype="uint64"), Tensor([1], dtype="int64")
    for name in ("__and__", "__or__", "__xor__"):
        with pytest.raises(DTypeError, match="has no bits"):
            getattr(unsigned, name)(signed)


@verifies("dtypes.default.set")
def test_other_defaults_are_refused(defaults: None) -> None:
    for name, value in (("default_float", "int32"), ("default_int", "uint8"), ("float32", "int8")):
        with pytest.raises(DTypeError, match=name):
            setattr(dtypes, name, value)
    assert dtypes.defaults == (dtypes.float32, dtypes.int32)


@verifies("dtypes.scalar.weak+2")
def test_an_integer_to_the_power_of_a_float_is_a_float() -> None:
    for exponent in (0.0, 1.0, 2.0, 2.5):
        powers = Tensor([1, 2, 3]) ** exponent
        assert powers.dtype.name == "float32"
        assert np.allclose(powers.numpy(), np.array([1, 2, 3]) ** exponent)


@verifies("dtypes.scalar.weak+2")
def test_a_variable_meets_a_tensor_wherever_a_number_does() -> None:
    n, x = Variable("n", 1, 8).bind(2), Tensor([1.0, 3.0])
    assert (x > 2).where(n, x).tolist() == [1, 2] and (x > 2).where(x, n).tolist() == [2, 3]
    assert x.masked_fill(x > 2, n).tolist() == [1, 2]
    assert Tensor.full((2,), n).tolist() == [2, 2]


@verifies("tensor.loss.value")
def test_classes_count_as_their_weights_say() -> None:
    random = np.random.default_rng(1)
    scores = random.standard_normal((5, 3)).astype(np.float32)
    weight = np.array([1, 0.5, 4], np.float32)
    target = np.array([0, 2, 2, -7, 1])
    known = target != -7
    log = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    each = np.where(known, -weight[target % 3] * log[range(5), target % 3], 0)
    mean = each.sum() / weight[target[known]].sum()
    given = {"weight": Tensor(weight), "ignore_index": -7}
    for loss in (Tensor(scores).cross_entropy(Tensor(target), **given),  # type: ignore[arg-type]
                 Tensor(log).nll_loss(Tensor(target), **given)):  # type: ignore[arg-type]
        assert abs(loss.item() - mean) < 1e-6
    alone = Tensor(scores).cross_entropy(Tensor(target), "sum", ignore_index=-7,
                                         weight=Tensor(weight))
    assert abs(alone.item() - each.sum()) < 1e-5
    with pytest.raises(ValueError, match="one number for each class"):
        Tensor(scores).cross_entropy(Tensor(target), weight=Tensor([1.0]))


@verifies("tensor.attention.blind")
def test_a_head_of_keys_serves_several_heads_of_queries() -> None:
    random = np.random.default_rng(0)
    query, key = (Tensor(random.standard_normal((2, heads, 3, 4)).astype(np.float32))
                  for heads in (4, 2))
    found = query.scaled_dot_product_attention(key, key, enable_gqa=True).numpy()
    for head in range(4):
        alone = query[:, head].scaled_dot_product_attention(key[:, head // 2], key[:, head // 2])
        assert np.allclose(found[:, head], alone.numpy(), atol=1e-6)


@verifies("tensor.sum.dtype")
def test_the_dtype_of_a_mean_may_be_chosen() -> None:
    x, wide = Tensor([1, 2]), "float64"
    assert x.mean(dtype=wide).dtype.name == x.cumsum(0, dtype=wide).dtype.name == wide
    assert x.mean(dtype=wide).item() == 1.5 and x.cumprod(0, dtype="int64").tolist() == [1, 2]


def test_a_scaled_number_is_as_exact_as_its_exponent() -> None:
    x, n = np.array([1.5, -3.0]), np.array([0.3, 2.7])
    assert np.allclose(Tensor(x).ldexp(Tensor(n)).numpy(), x * 2.0 ** n, rtol=1e-14)
    assert Tensor(x).ldexp(Tensor([3, -1])).tolist() == [12.0, -1.5]
