"""One plan for programs that differ in sizes. See spec/caching.md, "Forms"."""
from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor, TinyJit, settings
from impl.caching import sizes
from impl.schedule import pipeline, schedule_cache

Array = np.ndarray
Program = tuple[Callable[[Tensor, Tensor], list[Tensor]], Callable[[Array, Array], list[Array]]]


@pytest.fixture(autouse=True)
def _shared() -> Iterator[None]:
    with Context(DEVICE="REFERENCE", SHARE_SIZES=1):
        schedule_cache.clear()
        GlobalCounters.reset()
        yield
        schedule_cache.clear()


def _softmax(x: Array) -> Array:
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


def _cumulative(x: Tensor, y: Tensor) -> list[Tensor]:
    x.requires_grad = True
    (x.cumsum(0) * y).sum().backward()
    assert x.grad is not None
    return [x.grad]


#: Two matrices of one shape, in this library and in NumPy.
PROGRAMS: dict[str, Program] = {
    "elements": (lambda x, y: [x * y + 1, x.maximum(y)],
                 lambda x, y: [x * y + 1, np.maximum(x, y)]),
    "rows": (lambda x, y: [x.softmax(-1), y - y.mean(0)],
             lambda x, y: [_softmax(x), y - y.mean(0)]),
    "products": (lambda x, y: [x @ y.transpose(0, 1), x.transpose(0, 1) @ y],
                 lambda x, y: [x @ y.T, x.T @ y]),
    "moved": (lambda x, y: [Tensor.cat(x, y[:2], dim=0), x[1:] - y[:-1], x.flip(0), x.pad(
                  ((0, 0), (1, 2)))],
              lambda x, y: [np.concatenate([x, y[:2]]), x[1:] - y[:-1], x[::-1], np.pad(
                  x, ((0, 0), (1, 2)))]),
    "merged": (lambda x, y: [(x.reshape(-1) * 2).reshape(x.shape) + y,
                             x.unsqueeze(0) + y.unsqueeze(1)],
               lambda x, y: [x * 2 + y, x[None] + y[:, None]]),
    "counted": (lambda x, y: [x + Tensor.arange(x.shape[1]), x / x.shape[0]],
                lambda x, y: [x + np.arange(x.shape[1], dtype=np.float32),
                              x / np.float32(x.shape[0])]),
    "gathered": (lambda x, y: [x[Tensor.arange(x.shape[0]) // 2]],
                 lambda x, y: [x[np.arange(x.shape[0]) // 2]]),
    "gradient": (_cumulative, lambda x, y: [y[::-1].cumsum(0)[::-1]]),
}
#: The first two seem to say that there are as many columns as rows, and one more.
SHAPES = [(4, 5), (6, 7), (9, 5), (17, 3), (3, 33), (4, 4), (12, 100), (6, 7)]


def _agree(name: str, shape: tuple[int, ...], seed: int = 0) -> None:
    """Whether a program on arrays of a shape has its own values."""
    ours, numpy = PROGRAMS[name]
    x, y = np.random.default_rng(seed).standard_normal((2, *shape)).astype(np.float32)
    found = ours(Tensor(x.copy()).realize(), Tensor(y.copy()).realize())
    Tensor.realize(*found)
    for one, expected in zip(found, numpy(x, y), strict=True):
        assert one.shape == expected.shape and type(one.shape[0]) is int
        assert np.allclose(one.numpy(), expected, rtol=1e-5, atol=1e-5), (name, shape)


@verifies("caching.sizes.shared+2")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_a_form_have_one_plan_and_their_own_values(name: str) -> None:
    for seed, shape in enumerate(SHAPES):
        _agree(name, shape, seed)
    # The first by itself, one for all after the second, after the third that shows that it is
    # not so, and for sizes that are greater by far.
    assert GlobalCounters.plan_misses <= 6


@verifies("caching.sizes.shared+2")
@pytest.mark.parametrize("name", ["rows", "moved", "gradient"])
def test_from_the_second_length_on_there_is_one_plan(name: str) -> None:
    for seed, length in enumerate((9, 12, 7, 15, 5, 11)):
        _agree(name, (length, 4), seed)
    assert (GlobalCounters.plan_misses, GlobalCounters.plan_hits) == (2, 4)


@verifies("caching.sizes.shared+2")
def test_numbers_of_a_form_are_its_programs_own() -> None:
    x = np.arange(40, dtype=np.float32)
    numbers = (1.0, 2.0, 2.5, -0.0, float("nan"), 1e-40)
    for length, number in zip((5, 7, 9, 11, 30, 8), numbers, strict=True):
        found = (Tensor(x[:length]).realize() * number).numpy()
        with np.errstate(invalid="ignore"):
            expected = x[:length] * np.float32(number)
        assert np.array_equal(found, expected, equal_nan=True)
        assert number != number or np.array_equal(np.signbit(found), np.signbit(expected))
    assert GlobalCounters.plan_misses == 2


@verifies("caching.sizes.shared+2")
def test_an_axis_of_one_element_and_of_none_are_other_programs() -> None:
    for rows, columns in ((4, 3), (5, 3), (1, 3), (0, 3), (6, 1), (7, 3), (1, 1)):
        x = np.ones((rows, columns), np.float32)
        found = Tensor(x).realize() + Tensor(np.ones((1, columns), np.float32)).realize()
        assert np.array_equal(found.numpy(), x + 1)


@verifies("caching.sizes.shared+2")
def test_what_is_captured_and_what_is_explained_keeps_its_sizes() -> None:
    double = TinyJit(lambda t: (t * 2).realize())
    for length in (3, 4, 5, 3, 4, 5, 3, 4, 5):
        assert double(Tensor(np.ones(length, np.float32)).realize()).tolist() == [2.0] * length
    names = {(Tensor(np.ones(length, np.float32)).realize() * 3).schedule_document()["cache"]["key"]
             for length in (3, 4, 5)}
    assert len(names) == 3


@verifies("caching.sizes.shared+2")
def test_a_form_whose_plan_needs_much_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for temporaries is as much as the greatest sizes need, in each run."""
    def run(length: int) -> None:
        x = Tensor(np.ones((length, length + 1), np.float32)).realize()
        assert (x @ x.transpose(0, 1)).softmax(0).cumsum(1).sum().item() > 0
    with Context(FUSE=0):
        monkeypatch.setattr(pipeline, "_MOST_ARENA", 0)
        for length in (5, 9, 10, 11):
            run(length)
        assert GlobalCounters.plan_hits == 0
        monkeypatch.undo()
        schedule_cache.clear()
        for length in (5, 9, 10, 11):
            run(length)
        assert GlobalCounters.plan_hits == 2


@verifies("caching.sizes.often+2")
def test_sizes_that_come_often_have_a_plan_of_their_own() -> None:
    _agree("elements", (4, 5))
    for _ in range(16):
        _agree("elements", (6, 5))
    assert GlobalCounters.plan_misses == 2
    for _ in range(3):
        _agree("elements", (6, 5))
    assert (GlobalCounters.plan_misses, GlobalCounters.plan_hits) == (3, 17)


@verifies("caching.sizes.often+2")
def test_programs_that_compute_much_have_plans_of_their_own(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_WORTH", 70)
    for length in (4, 9, 6, 8, 9):  # 9 x 4 elements, and three operations for each
        _agree("elements", (length, 4))
    assert (GlobalCounters.plan_misses, GlobalCounters.plan_hits) == (4, 1)


@verifies("caching.sizes.often+2")
def test_how_much_is_computed_is_judged_by_a_programs_own_sizes(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_WORTH", 70)
    for length in (4, 5, 3, 9, 9):  # 5 and 3 share a plan; 9 x 4 elements are too many for it
        _agree("elements", (length, 4))
    assert (GlobalCounters.plan_misses, GlobalCounters.plan_hits) == (3, 2)
    schedule_cache.clear()
    GlobalCounters.reset()
    for length in (4, 9, 5, 3):  # nor do they keep others from sharing one
        _agree("elements", (length, 4))
    assert (GlobalCounters.plan_misses, GlobalCounters.plan_hits) == (3, 1)


def _logarithms(length: int) -> bytes:
    """The bytes of a program whose sums are added up in another order if sizes are unknown."""
    x, y = (np.random.default_rng(length).standard_normal((2, length, 64)) / 8).astype(np.float32)
    a, b = Tensor(x).realize(), Tensor(y.T.copy()).realize()
    return (a @ b).exp().sum(1).log().numpy().tobytes()


@verifies("caching.hit.equal")
@verifies("caching.program.own")
@pytest.mark.device("CPU")
def test_by_default_no_digit_depends_on_what_ran_before() -> None:
    with Context(DEVICE="CPU", SHARE_SIZES=settings.REGISTRY["SHARE_SIZES"].default):
        with Context(SCACHE=0):
            alone = _logarithms(47)
        _logarithms(33)
        assert {_logarithms(47) for _ in range(20)} == {alone}
