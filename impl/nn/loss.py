"""Losses as layers: each is the method of tensors that has its name, `loss(input, target)`."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from impl.nn.methods import Method
from impl.nn.module import Module
from impl.tensor import Tensor
from impl.transforms import scan

__all__ = ["BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
           "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
           "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
           "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
           "TripletMarginLoss", "TripletMarginWithDistanceLoss", "ctc_loss"]


class _Reduced(Method):
    """A loss whose only setting is its reduction: "mean", "sum" or "none"."""

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction


class L1Loss(_Reduced):
    """The absolute difference."""

    method = "l1_loss"


class MSELoss(_Reduced):
    """The square of the difference."""

    method = "mse_loss"


class SoftMarginLoss(_Reduced):
    """log(1 + exp(-target * x)), for targets of 1 and -1."""

    method = "soft_margin_loss"


class MultiLabelMarginLoss(_Reduced):
    """MultiMarginLoss for several classes: those before the first -1 of each row."""

    method = "multilabel_margin_loss"


class SmoothL1Loss(Method):
    """The square of small differences, divided by 2 beta, and a line beyond beta."""

    method = "smooth_l1_loss"

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        self.reduction, self.beta = reduction, beta


class HuberLoss(Method):
    """Half the square of small differences, and a line beyond delta."""

    method = "huber_loss"

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        self.reduction, self.delta = reduction, delta


class KLDivLoss(Method):
    """target * (log(target) - x), x being logarithms of probabilities."""

    method = "kl_div"

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        self.reduction, self.log_target = reduction, log_target


class _Weighted(Method):
    """A loss with weights, which are saved and not learned."""

    def _keep(self, **weights: Tensor | None) -> None:
        for name, weight in weights.items():
            self.register_buffer(name, weight)


class CrossEntropyLoss(_Weighted):
    """Minus the log probability of the target, a class or a probability of each (axis 1).

    Args:
        weight: how much each class counts.
        ignore_index: a target that does not count.
        label_smoothing: how much of the probability is that of all classes alike.
    """

    method = "cross_entropy"

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100,
                 reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        self._keep(weight=weight)
        self.ignore_index, self.reduction = ignore_index, reduction
        self.label_smoothing = label_smoothing


class NLLLoss(_Weighted):
    """Minus the element at the target's class, x being logarithms of probabilities."""

    method = "nll_loss"

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100,
                 reduction: str = "mean") -> None:
        self._keep(weight=weight)
        self.ignore_index, self.reduction = ignore_index, reduction


class BCELoss(_Weighted):
    """Minus the log probability of a target that is 1 with probability x."""

    method = "binary_cross_entropy"

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        self._keep(weight=weight)
        self.reduction = reduction


class BCEWithLogitsLoss(_Weighted):
    """BCELoss of sigmoid(x); `pos_weight` is how much a target of 1 counts."""

    method = "binary_cross_entropy_with_logits"

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean",
                 pos_weight: Tensor | None = None) -> None:
        self._keep(weight=weight, pos_weight=pos_weight)
        self.reduction = reduction


class MultiLabelSoftMarginLoss(_Weighted):
    """The mean over classes of BCEWithLogitsLoss."""

    method = "multilabel_soft_margin_loss"

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        self._keep(weight=weight)
        self.reduction = reduction


class MultiMarginLoss(_Weighted):
    """How far each class is from a margin below that of the target, to the power of p."""

    method = "multi_margin_loss"

    def __init__(self, p: float = 1, margin: float = 1.0, weight: Tensor | None = None,
                 reduction: str = "mean") -> None:
        self._keep(weight=weight)
        self.p, self.margin, self.reduction = p, margin, reduction


class PoissonNLLLoss(Method):
    """Minus the log probability of counts, of which x is the (logarithm of the) mean."""

    method = "poisson_nll_loss"

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8,
                 reduction: str = "mean") -> None:
        self.log_input, self.full, self.eps, self.reduction = log_input, full, eps, reduction


class GaussianNLLLoss(Method):
    """Minus the log probability: `loss(mean, target, variance)`."""

    method = "gaussian_nll_loss"

    def __init__(self, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        self.full, self.eps, self.reduction = full, eps, reduction


class _Margin(Method):
    """A loss with a margin and a reduction."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        self.margin, self.reduction = margin, reduction


class MarginRankingLoss(_Margin):
    """How far x1 fails to be a margin above x2 (target 1) or below it: `loss(x1, x2, target)`."""

    method = "margin_ranking_loss"


class CosineEmbeddingLoss(_Margin):
    """1 - cosine where the target is 1, else what is above a margin: `loss(x1, x2, target)`."""

    method = "cosine_embedding_loss"


class HingeEmbeddingLoss(_Margin):
    """x where the target is 1, and what it has less than a margin where that is -1."""

    method = "hinge_embedding_loss"

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(margin, reduction)


class TripletMarginLoss(Method):
    """How much farther the positive is than the negative: `loss(x, positive, negative)`."""

    method = "triplet_margin_loss"

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
                 swap: bool = False, reduction: str = "mean") -> None:
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap
        self.reduction = reduction


class TripletMarginWithDistanceLoss(Method):
    """TripletMarginLoss with a distance of one's own."""

    method = "triplet_margin_with_distance_loss"

    def __init__(self, *, distance_function: Callable[..., Any] | None = None,
                 margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> None:
        self.distance_function, self.margin, self.swap = distance_function, margin, swap
        self.reduction = reduction


class CTCLoss(Module):
    """Minus the log probability of a text, wherever its letters stand: see `ctc_loss`."""

    def __init__(self, blank: int = 0, reduction: str = "mean",
                 zero_infinity: bool = False) -> None:
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any,
                target_lengths: Any) -> Tensor:
        return ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank,
                        self.reduction, self.zero_infinity)


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any,
             blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> Tensor:
    """Connectionist temporal classification (Graves et al., 2006).

    Args:
        log_probs: (times, batch, classes), logarithms of probabilities; without a batch, too.
        targets: (batch, letters), the letters of each text, padded with anything.
        input_lengths: how many times of each example count.
        target_lengths: how many letters of each.
        reduction: "mean" divides by the number of letters before it takes the mean.
        zero_infinity: a text that does not fit counts 0, and has no gradient.
    """
    single = log_probs.ndim == 2
    rows = log_probs.unsqueeze(1) if single else log_probs
    letters = targets.reshape(rows.shape[1], -1).to(rows.device)
    times, lengths = (
        (one if isinstance(one, Tensor) else Tensor(one, device=rows.device)).reshape(-1)
        for one in (input_lengths, target_lengths))
    loss = -_log_probability(rows, letters, times, lengths, blank)
    if zero_infinity:
        loss = loss.eq(math.inf).where(0, loss)
    if reduction == "mean":
        return (loss / lengths.maximum(1)).mean()
    return loss.sum() if reduction == "sum" else loss.reshape(()) if single else loss


#: Stands for the logarithm of 0: sums of it stay finite, and so do gradients.
_NEVER = -1e30


def _log_probability(rows: Tensor, letters: Tensor, times: Tensor, lengths: Tensor,
                     blank: int) -> Tensor:
    """The logarithm of the sum over all ways: letters with blanks around each (batch, states)."""
    batch, count = letters.shape
    width = 2 * count + 1
    state = Tensor.arange(width, device=rows.device)
    inside = state < 2 * lengths.reshape(-1, 1) + 1
    padded = letters.maximum(0).unsqueeze(2)
    text = padded.full_like(blank).cat(padded, dim=2).reshape(batch, -1).pad(
        (0, 1), value=blank)
    other = text.ne(text.pad((2, -2), value=blank)) & (state % 2).eq(1)
    entries = rows.gather(2, text.unsqueeze(0).expand(rows.shape[0], batch, width))

    def step(before: Tensor, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        entry, place = given
        ways = before.stack(before.pad((1, -1), value=_NEVER),
                            other.where(before.pad((2, -2), value=_NEVER), _NEVER))
        after = (ways.logsumexp(0) + entry).maximum(_NEVER)
        after = (place < times.reshape(-1, 1)).where(after, before)
        return after, after[0, :1]

    first = ((state < 2) & inside).where(entries[0], _NEVER)
    if rows.shape[0] > 1:
        place = Tensor.arange(1, rows.shape[0], device=rows.device)
        first, _ = scan(step, first, (entries[1:], place))
    ends = state.eq(2 * lengths.reshape(-1, 1)) | (
        state.eq(2 * lengths.reshape(-1, 1) - 1))
    total = ends.where(first, _NEVER).logsumexp(1)
    return (total > _NEVER / 2).where(total, -math.inf)
