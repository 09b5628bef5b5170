"""Functions under PyTorch's names, beside formulas in NumPy. Chapter: spec/tensor.md."""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, dtypes

random = np.random.default_rng(0)
A, B, C = (random.standard_normal((4, 5)) for _ in range(3))
P = random.uniform(0.1, 0.9, (4, 5))
SIGNS = np.where(random.standard_normal((4, 5)) > 0, 1.0, -1.0)
WHOLE = np.array([12, 18, -7, 0, 2 ** 31 - 1])
OTHER = np.array([18, 12, 21, 5, 65535])
Case = tuple[Callable[[], Any], Callable[[], Any]]


def t(x: np.ndarray) -> Tensor:
    return Tensor(x)


def bessel(order: int, x: np.ndarray) -> np.ndarray:
    angle = np.linspace(0, np.pi, 4001)
    values = np.exp(x[..., None] * np.cos(angle)) * np.cos(order * angle)
    return np.asarray((values[..., 1:] + values[..., :-1]).sum(-1) / 8000)


def plus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def rows(x: np.ndarray, p: float = 2) -> np.ndarray:
    return np.asarray((abs(x) ** p).sum(-1) ** (1 / p))


LARGE = np.array([0.0, 0.3, -2.0, 8.9, -9.1, 30.0])
SPECIAL: dict[str, Case] = {
    "i0": (lambda: t(LARGE).i0(), lambda: np.i0(LARGE)),
    "i1": (lambda: t(LARGE).i1(), lambda: bessel(1, LARGE)),
    "i0e": (lambda: t(LARGE).i0e(), lambda: np.i0(LARGE) * np.exp(-abs(LARGE))),
    "i1e": (lambda: t(LARGE).i1e(), lambda: bessel(1, LARGE) * np.exp(-abs(LARGE))),
    "entr": (lambda: t(P).entr(), lambda: -P * np.log(P)),
    "ndtr": (lambda: t(A).ndtr(), lambda: (1 + np.vectorize(math.erf)(A / 2 ** 0.5)) / 2),
    "ndtri": (lambda: t(P).ndtri().ndtr(), lambda: P),
    "log_ndtr": (lambda: t(A).log_ndtr(),
                 lambda: np.log((1 + np.vectorize(math.erf)(A / 2 ** 0.5)) / 2)),
    "log_ndtr far": (lambda: Tensor([-30.0]).log_ndtr(), lambda: [-454.32125]),
    "erfcx": (lambda: t(A).erfcx(), lambda: np.exp(A * A) * np.vectorize(math.erfc)(A)),
    "xlog1py": (lambda: t(A).xlog1py(t(P)), lambda: A * np.log1p(P)),
    "trigamma": (lambda: Tensor([1.0, 0.5]).polygamma(1), lambda: [np.pi ** 2 / 6, np.pi ** 2 / 2]),
    "mvlgamma": (lambda: Tensor([3.0]).mvlgamma(2),
                 lambda: [math.log(math.pi) / 2 + math.lgamma(3) + math.lgamma(2.5)]),
    "frexp": (lambda: t(A).frexp()[0], lambda: np.frexp(A)[0]),
    "exponents": (lambda: t(A).frexp()[1], lambda: np.frexp(A)[1]),
    "tiny": (lambda: Tensor([1e-310, 0.0, 3e38], dtype="float64").frexp()[1], lambda: np.frexp(
        [1e-310, 0.0, 3e38])[1]),
    "gcd": (lambda: t(WHOLE).gcd(t(OTHER)), lambda: np.gcd(WHOLE, OTHER)),
    "lcm": (lambda: t(WHOLE[:4]).lcm(t(OTHER[:4])), lambda: np.lcm(WHOLE[:4], OTHER[:4])),
}
LOSSES: dict[str, Case] = {
    "binary": (lambda: t(P).binary_cross_entropy(t(P[::-1].copy()), t(abs(A))), lambda: np.mean(
        -abs(A) * (P[::-1] * np.log(P) + (1 - P[::-1]) * np.log(1 - P)))),
    "logits": (lambda: t(A).binary_cross_entropy_with_logits(t(P), pos_weight=t(abs(B))),
               lambda: np.mean((1 - P) * np.logaddexp(0, A) + abs(B) * P * np.logaddexp(0, -A))),
    "kl": (lambda: t(A).kl_div(t(P), "batchmean"), lambda: (P * (np.log(P) - A)).sum() / 4),
    "kl of logs": (lambda: t(A).kl_div(t(B), "sum", log_target=True),
                   lambda: (np.exp(B) * (B - A)).sum()),
    "poisson": (lambda: t(A).poisson_nll_loss(t(P)), lambda: np.mean(np.exp(A) - P * A)),
    "gaussian": (lambda: t(A).gaussian_nll_loss(t(B), t(P)),
                 lambda: np.mean(0.5 * (np.log(P) + (A - B) ** 2 / P))),
    "smooth": (lambda: t(A).smooth_l1_loss(t(B), beta=0.5), lambda: np.mean(np.where(
        abs(A - B) < 0.5, (A - B) ** 2, abs(A - B) - 0.25))),
    "soft margin": (lambda: t(A).soft_margin_loss(t(SIGNS)),
                    lambda: np.mean(np.log1p(np.exp(-SIGNS * A)))),
    "hinge": (lambda: t(A).hinge_embedding_loss(t(SIGNS)),
              lambda: np.mean(np.where(SIGNS > 0, A, plus(1 - A)))),
    "ranking": (lambda: t(A).margin_ranking_loss(t(B), t(SIGNS), 0.3),
                lambda: np.mean(plus(0.3 - SIGNS * (A - B)))),
    "classes": (lambda: t(A).multi_margin_loss(Tensor([0, 2, 1, 4])), lambda: np.mean([
        sum(max(0, 1 - A[i, c] + A[i, k]) for k in range(5) if k != c) / 5
        for i, c in enumerate([0, 2, 1, 4])])),
    "labels": (lambda: t(A[:1]).multilabel_margin_loss(Tensor([[3, 0, -1, 1, 2]])), lambda: sum(
        max(0, 1 - A[0, c] + A[0, k]) for c in (3, 0) for k in (1, 2, 4)) / 5),
    "soft labels": (lambda: t(A).multilabel_soft_margin_loss(t(P)),
                    lambda: np.mean(np.logaddexp(0, A) - P * A)),
    "cosine": (lambda: t(A).cosine_similarity(t(B)),
               lambda: (A * B).sum(1) / rows(A) / rows(B)),
    "embedding": (lambda: t(A).cosine_embedding_loss(t(B), t(SIGNS[:, 0])), lambda: np.mean(
        np.where(SIGNS[:, 0] > 0, 1 - (A * B).sum(1) / rows(A) / rows(B),
                 plus((A * B).sum(1) / rows(A) / rows(B))))),
    "distance": (lambda: t(A).pairwise_distance(t(B)), lambda: rows(A - B + 1e-6)),
    "pairs": (lambda: t(A).pdist(3.0), lambda: np.array(
        [rows(A[i] - A[j], 3) for i, j in itertools.combinations(range(4), 2)])),
    "triplet": (lambda: t(A).triplet_margin_loss(t(B), t(C), swap=True), lambda: np.mean(plus(
        rows(A - B + 1e-6) - np.minimum(rows(A - C + 1e-6), rows(B - C + 1e-6)) + 1))),
    "glu": (lambda: t(A[:, :4]).glu(), lambda: A[:, :2] / (1 + np.exp(-A[:, 2:4]))),
    "batch norm": (lambda: t(A).batch_norm(training=True),
                   lambda: (A - A.mean(0)) / np.sqrt(A.var(0) + 1e-5)),
    "instance norm": (lambda: t(A[None]).instance_norm(weight=Tensor([1.0, 2, 3, 4])), lambda: (
        (A - A.mean(1, keepdims=True)) / np.sqrt(A.var(1, keepdims=True) + 1e-5)
        * np.arange(1, 5)[:, None])[None]),
    "bilinear": (lambda: t(A).bilinear(t(B), t(np.ones((2, 5, 5)))),
                 lambda: np.repeat((A.sum(1) * B.sum(1))[:, None], 2, 1)),
}
ARRANGED: dict[str, Case] = {
    "block_diag": (lambda: t(A).block_diag(t(B[:1])),
                   lambda: np.block([[A, np.zeros((4, 5))], [np.zeros((1, 5)), B[:1]]])),
    "cartesian": (lambda: Tensor.cartesian_prod(Tensor([1, 2]), Tensor([3, 4, 5])),
                  lambda: list(itertools.product([1, 2], [3, 4, 5]))),
    "combinations": (lambda: Tensor([4, 5, 6]).combinations(),
                     lambda: list(itertools.combinations([4, 5, 6], 2))),
    "atleast": (lambda: Tensor(3.0).atleast_3d(), lambda: np.atleast_3d(3.0)),
    "trapezoid": (lambda: t(A).trapezoid(t(np.arange(5.0) ** 2)),
                  lambda: ((A[:, 1:] + A[:, :-1]) / 2 * np.diff(np.arange(5) ** 2)).sum(1)),
    "cumulative": (lambda: t(A).cumulative_trapezoid(dx=2.0),
                   lambda: np.cumsum(A[:, 1:] + A[:, :-1], 1)),
    "isin": (lambda: t(WHOLE).isin(Tensor([18, 0])), lambda: np.isin(WHOLE, [18, 0])),
    "isin many": (lambda: t(WHOLE).isin(Tensor.arange(1500)),
                  lambda: np.isin(WHOLE, np.arange(1500))),
    "put": (lambda: t(A).put(Tensor([0, -1]), Tensor([7.0, 8.0])), lambda: np.concatenate(
        [[7], A.flatten()[1:-1], [8]]).reshape(4, 5)),
    "renorm": (lambda: t(A).renorm(2, 0, 1.0),
               lambda: A * np.minimum(1, 1 / rows(A))[:, None]),
    "diff": (lambda: t(A).diff(prepend=t(B)), lambda: np.diff(A, prepend=B)),
    "cov": (lambda: t(A).cov(fweights=Tensor([1, 2, 1, 3, 1])),
            lambda: np.cov(A, fweights=[1, 2, 1, 3, 1])),
    "weighted": (lambda: t(A).cov(aweights=t(P[0])), lambda: np.cov(A, aweights=P[0])),
    "often": (lambda: t(A).repeat_interleave([1, 0, 2, 1], 0),
              lambda: np.repeat(A, [1, 0, 2, 1], 0)),
    "decimals": (lambda: t(A).round(2), lambda: A.round(2)),
    "hann": (lambda: Tensor.hann_window(6, periodic=False), lambda: np.hanning(6)),
    "hamming": (lambda: Tensor.hamming_window(6, periodic=False), lambda: np.hamming(6)),
    "blackman": (lambda: Tensor.blackman_window(6, periodic=False), lambda: np.blackman(6)),
    "bartlett": (lambda: Tensor.bartlett_window(6), lambda: np.bartlett(7)[:-1]),
    "kaiser": (lambda: Tensor.kaiser_window(6), lambda: np.kaiser(7, 12.0)[:-1]),
    "triangle": (lambda: Tensor.tril_indices(3, 4, 1), lambda: np.tril_indices(3, 1, 4)),
    "unravel": (lambda: Tensor([7, 3]).unravel_index((2, 4))[0], lambda: [1, 0]),
    "weights": (lambda: t(A).histogram(4, weight=t(P)).hist,
                lambda: np.histogram(A, 4, weights=P)[0]),
}


def judge(case: Case) -> None:
    found, wanted = case[0]().numpy(), np.asarray(case[1]())
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)


@verifies("tensor.special.digits")
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name: str) -> None:
    judge(SPECIAL[name])


@verifies("tensor.loss.value")
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    judge(LOSSES[name])


@verifies("tensor.statistics.value+2")
@pytest.mark.parametrize("name", ARRANGED)
def test_places_and_counts(name: str) -> None:
    judge(ARRANGED[name])


@verifies("tensor.axis.scalar")
def test_a_number_has_an_axis_for_who_names_it() -> None:
    one = Tensor(3.0)
    for found in (one.gather(0, Tensor(0)), one.index_select(0, [0]), one.transpose(0, -1),
                  one.mode(0).values, one.quantile(0.5, 0), one.scatter(0, Tensor(0), 3.0),
                  one.unfold(0, 1)[0], one.scatter_reduce(0, Tensor(0), Tensor(0.0), "sum")):
        assert found.item() == 3 and found.shape == ()


@verifies("errors.name.keyword+2")
def test_arguments_about_memory_say_nothing_and_out_is_refused() -> None:
    x: Any = Tensor([3.0, 1.0])
    assert x.float(memory_format=None).to("float64", non_blocking=True).dtype is dtypes.float64
    assert x.sort(stable=True).indices.tolist() == [1, 0] and x.relu(inplace=False).shape == (2,)
    for wrong in ({"out": x}, {"inplace": True}):
        with pytest.raises(TypeError, match="a method returns its result") as found:
            x.relu(**wrong)
        assert ".assign" in str(found.value)
