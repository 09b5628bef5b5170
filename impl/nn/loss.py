"""Losses as layers: each is the method of tensors that has its name, `loss(input, target)`."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from impl.errors import ArgumentError, ShapeError
from impl.host import np
from impl.nn.containers import ModuleList, Sequential
from impl.nn.linear import Linear
from impl.nn.methods import Method
from impl.nn.module import Module
from impl.symbolic import is_symbolic
from impl.tensor import Tensor
from impl.transforms import scan

__all__ = ["AdaptiveLogSoftmaxWithLoss", "BCELoss", "BCEWithLogitsLoss", "CTCLoss",
           "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss",
           "HuberLoss", "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss",
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
        targets: (batch, letters), the letters of each text, padded with anything; or those of all
            texts in one line, which computes `target_lengths`.
        input_lengths: how many times of each example count.
        target_lengths: how many letters of each.
        reduction: "mean" divides by the number of letters before it takes the mean.
        zero_infinity: a text that does not fit counts 0, and has no gradient.

    Raises:
        ShapeError: a length that is known, a number or in a list or array, is greater than what
            there is. Those in a tensor are not looked at.
    """
    single = log_probs.ndim == 2
    _refuse_lengths("input_lengths", input_lengths, log_probs.shape[0])
    if targets.ndim == 2:
        _refuse_lengths("target_lengths", target_lengths, targets.shape[1])
    rows = log_probs.unsqueeze(1) if single else log_probs
    times, lengths = (
        (one if isinstance(one, Tensor) else Tensor(one, device=rows.device)).reshape(-1)
        for one in (input_lengths, target_lengths))
    letters = (targets.reshape(1, -1) if single else targets if targets.ndim == 2 else
               _in_rows(targets, lengths)).to(rows.device)
    loss = -_log_probability(rows, letters, times, lengths, blank)
    if zero_infinity:
        loss = loss.eq(math.inf).where(0, loss)
    if reduction == "mean":
        return (loss / lengths.maximum(1)).mean()
    return loss.sum() if reduction == "sum" else loss.reshape(()) if single else loss


def _refuse_lengths(name: str, lengths: Any, most: int) -> None:
    """Raise ShapeError if one of some lengths that are known is greater than what there is."""
    if isinstance(lengths, Tensor) or is_symbolic(most):
        return
    outside = [one for one in np.ravel(lengths).tolist() if not 0 <= one <= most]
    if outside:  # r[impl errors.argument.refused]
        raise ShapeError("ctc_loss", f"one of {name} is {outside[0]}, and there are {most}",
                         f"give whole numbers from 0 to {most}")


def _in_rows(line: Tensor, lengths: Tensor) -> Tensor:
    """Texts that stand one behind the other, each in a row that is as long as the longest."""
    counts = lengths.known("ctc_loss", "give targets of shape (batch, letters)")
    if counts.sum() != line.shape[0]:
        raise ShapeError("ctc_loss", f"target_lengths are {int(counts.sum())} letters together, "
                         f"and targets has {line.shape[0]}", "give all letters, text by text")
    starts = np.cumsum(counts) - counts
    places = starts[:, None] + np.minimum(np.arange(max(counts.max(initial=0), 1)),
                                          np.maximum(counts[:, None] - 1, 0))
    return line[Tensor(np.minimum(places, max(line.shape[0] - 1, 0)), device=line.device)]


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


class Assessed(NamedTuple):
    """The log probability of each target, and minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes, the frequent ones first (Grave and others, 2017).

    Those from a cutoff to the next one are a cluster: the head says how likely it is, and a tail of
    two matrices, with `div_value` times fewer columns than the one before, which of them it is.
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int],
                 div_value: float = 4.0, head_bias: bool = False) -> None:
        ends = list(cutoffs)
        if not ends or ends != sorted({*ends}) or ends[0] < 1 or ends[-1] > n_classes - 1:
            # r[impl errors.argument.refused]
            raise ArgumentError("nn.AdaptiveLogSoftmaxWithLoss", f"cutoffs are {cutoffs!r:.60}",
                                f"give rising whole numbers from 1 to {n_classes - 1}")
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs = [*ends, n_classes]
        self.head_size = ends[0] + len(ends)
        self.head = Linear(in_features, self.head_size, head_bias)
        self.tail = ModuleList(
            Sequential(Linear(in_features, width := int(in_features // div_value ** (place + 1)),
                              bias=False), Linear(width, stop - start, bias=False))
            for place, (start, stop) in enumerate(zip(ends, self.cutoffs[1:], strict=True)))

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probability of each class: (..., n_classes)."""
        head, first = self.head(input).log_softmax(-1), self.cutoffs[0]
        tails = [layer(input).log_softmax(-1) + head[..., first + place:first + place + 1]
                 for place, layer in enumerate(self.tail)]
        return head[..., :first].cat(*tails, dim=-1)

    def forward(self, input: Tensor, target: Tensor) -> Assessed:
        likely = self.log_prob(input).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return Assessed(likely, -likely.mean())

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class."""
        return self.log_prob(input).argmax(-1)


class LinearCrossEntropyLoss(_Weighted):
    """CrossEntropyLoss of a linear layer, whose weights are `linear`."""

    weight: Tensor | None

    def __init__(self, in_features: int, num_classes: int, *, out_features: Sequence[int] = (),
                 bias: bool = False, reduction: str = "mean", weight: Tensor | None = None,
                 ignore_index: int | None = None, label_smoothing: float = 0.0,
                 options: Any = None) -> None:
        """`options` are PyTorch's, about how it computes, and change nothing."""
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.linear = Linear(in_features, num_classes * math.prod(out_features), bias)
        self._keep(weight=weight)
        self.reduction, self.label_smoothing = reduction, label_smoothing
        self.ignore_index = -100 if ignore_index is None else ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        logits = self.linear(input)
        if self.out_features:
            logits = logits.reshape(*input.shape[:-1], self.num_classes, *self.out_features)
        return logits.cross_entropy(target, self.reduction, self.label_smoothing,
                                    self.ignore_index, self.weight)
