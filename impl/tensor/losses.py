"""Losses and other functions of networks, under the names of `torch.nn.functional`.

Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from impl.errors import ShapeError
from impl.gradient import nodes
from impl.ir import UOp
from impl.symbolic import identical
from impl.tensor.functional import Functional, warn_of_shapes
from impl.tensor.random import uniform_node


def _refuse_shapes(name: str, x: Any, target: Any) -> None:
    shape = getattr(target, "shape", x.shape)
    if not identical(shape, x.shape):  # r[impl tensor.arguments.refused+2]
        raise ShapeError(name, f"the input is {x.shape} and the target {shape}",
                         "give both one shape, with reshape or squeeze")


class Losses(Functional):
    """Losses of a tensor and a target, distances, and layers as functions."""

    __slots__ = ()

    def _numbers(self, count: int) -> Self:
        """0, 1, 2, ..."""
        return self._wrap(nodes.iota(count))

    # Of probabilities

    def binary_cross_entropy(self, target: Self, weight: Self | None = None,
                             reduction: str = "mean") -> Self:
        """binary_crossentropy, each element of which may have a weight.

        Raises:
            ShapeError: the target has another shape (r[tensor.arguments.refused]).
        """
        _refuse_shapes("binary_cross_entropy", self, target)
        loss = self.binary_crossentropy(target, "none")
        return (loss if weight is None else loss * weight)._reduced(reduction)

    def binary_cross_entropy_with_logits(self, target: Self, weight: Self | None = None,
                                         reduction: str = "mean",
                                         pos_weight: Self | None = None) -> Self:
        """binary_cross_entropy of sigmoid(x); `pos_weight` is how much a target of 1 counts.

        Raises:
            ShapeError: the target has another shape (r[tensor.arguments.refused]).
        """
        _refuse_shapes("binary_cross_entropy_with_logits", self, target)
        loss = self.softplus() - self * target if pos_weight is None else \
            (1 - target) * self + (1 + (pos_weight - 1) * target) * (-self).softplus()
        return (loss if weight is None else loss * weight)._reduced(reduction)

    def kl_div(self, target: Self, reduction: str = "mean", log_target: bool = False) -> Self:
        """target * (log(target) - x): x, and maybe the target, are logarithms of probabilities."""
        loss = target.exp() * (target - self) if log_target \
            else target.xlogy(target) - target * self
        if reduction == "batchmean":
            return loss.sum() / self.shape[0]
        return loss._reduced(reduction)

    def poisson_nll_loss(self, target: Self, log_input: bool = True, full: bool = False,
                         eps: float = 1e-8, reduction: str = "mean") -> Self:
        """Minus the log probability of counts, of which x is the (logarithm of the) mean."""
        loss = self.exp() - target * self if log_input else self - target * (self + eps).log()
        if full:  # Stirling's formula
            more = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
            loss = loss + (target > 1).where(more, 0)
        return loss._reduced(reduction)

    def gaussian_nll_loss(self, target: Self, var: Any, full: bool = False, eps: float = 1e-6,
                          reduction: str = "mean") -> Self:
        """Minus the log probability of numbers, of which x is the mean, and `var` the variance."""
        known = self._tensor(var)
        if known.shape and known.shape != self.shape and known.shape == self.shape[:-1]:
            known = known.unsqueeze(-1)
        known = known + (known.maximum(eps) - known).detach()
        loss = 0.5 * (known.log() + (self - target).square() / known)
        return (loss + 0.5 * math.log(2 * math.pi) if full else loss)._reduced(reduction)

    # Of differences

    def smooth_l1_loss(self, target: Self, reduction: str = "mean", beta: float = 1.0) -> Self:
        """The square of small differences, divided by 2 beta, and a line beyond beta."""
        warn_of_shapes("smooth_l1_loss", self, target)
        difference = self - target
        return (difference._bent(beta) / beta if beta else difference.abs())._reduced(reduction)

    def soft_margin_loss(self, target: Self, reduction: str = "mean") -> Self:
        """log(1 + exp(-target * x)), for targets of 1 and -1."""
        return (-target * self).softplus()._reduced(reduction)

    def hinge_embedding_loss(self, target: Self, margin: float = 1.0,
                             reduction: str = "mean") -> Self:
        """x where the target is 1, and what it has less than a margin where that is -1."""
        far = (margin - self).relu()
        return (target.ne(1).where(far, 0) + target.ne(-1).where(self, 0))._reduced(reduction)

    def margin_ranking_loss(self, other: Self, target: Self, margin: float = 0.0,
                            reduction: str = "mean") -> Self:
        """How far x fails to be a margin above the other (target 1) or below it (-1)."""
        return (-target * (self - other) + margin).relu()._reduced(reduction)

    def multi_margin_loss(self, target: Self, p: float = 1, margin: float = 1.0,
                          weight: Self | None = None, reduction: str = "mean") -> Self:
        """How far each class is from a margin below that of the target, to the power of p."""
        rows = self if len(self.shape) > 1 else self.reshape(1, -1)
        classes = target.reshape(-1, 1)
        own = rows.gather(1, classes)
        miss = (margin - own + rows).relu() ** p
        if weight is not None:
            miss = miss * weight.gather(0, classes.flatten()).unsqueeze(1)
        others = self._numbers(rows.shape[1]).ne(classes)
        loss = others.where(miss, 0).sum(1) / rows.shape[1]
        return (loss.reshape(()) if len(self.shape) < 2 else loss)._reduced(reduction)

    def multilabel_margin_loss(self, target: Self, reduction: str = "mean") -> Self:
        """multi_margin_loss for several classes: those before the first -1 of each row."""
        rows = self if len(self.shape) > 1 else self.reshape(1, -1)
        given = target if len(target.shape) > 1 else target.reshape(1, -1)
        classes = rows.shape[1]
        ended = (given < 0).cummax(1)
        hits = given.maximum(0).unsqueeze(2).eq(self._numbers(classes)) \
            & ended.logical_not().unsqueeze(2)
        is_target = hits.any(1)
        own = rows.gather(1, given.maximum(0))
        miss = (1 - own.unsqueeze(2) + rows.unsqueeze(1)).relu()
        counted = ended.logical_not().unsqueeze(2) & is_target.logical_not().unsqueeze(1)
        loss = counted.where(miss, 0).sum((1, 2)) / classes
        return (loss.reshape(()) if len(self.shape) < 2 else loss)._reduced(reduction)

    def multilabel_soft_margin_loss(self, target: Self, weight: Self | None = None,
                                    reduction: str = "mean") -> Self:
        """The mean over classes (the last axis) of binary_cross_entropy_with_logits."""
        loss = self.binary_crossentropy_logits(target, "none")
        return (loss if weight is None else loss * weight).mean(-1)._reduced(reduction)

    # Of distances

    def cosine_similarity(self, other: Self, dim: int = 1, eps: float = 1e-8) -> Self:
        """The cosine of the angle between vectors along an axis."""
        if self.dtype.kind != "f":
            return self.float().cosine_similarity(other, dim, eps)
        both = self.broadcast_tensors(other)
        x, y = (one / one.norm(2, dim, True).maximum(eps) for one in both)
        return (x * y).sum(dim)

    def cosine_embedding_loss(self, other: Self, target: Self, margin: float = 0.0,
                              reduction: str = "mean") -> Self:
        """1 - cosine where the target is 1, and what the cosine has above a margin where it is -1.
        """
        cosine = self.cosine_similarity(other, -1)
        loss = target.eq(1).where(1 - cosine, target.eq(-1).where((cosine - margin).relu(), 0))
        return loss._reduced(reduction)

    def pairwise_distance(self, other: Self, p: float = 2.0, eps: float = 1e-6,
                          keepdim: bool = False) -> Self:
        """The p-norm of differences along the last axis."""
        return (self - other + eps).norm(p, -1, keepdim)

    def pdist(self, p: float = 2.0) -> Self:
        """The distances of all pairs of rows."""
        count = self.shape[0]
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        if not pairs:
            return self.reshape(-1)[:0]
        first, second = ([pair[side] for pair in pairs] for side in (0, 1))
        return (self.index_select(0, first) - self.index_select(0, second)).norm(p, -1)

    def triplet_margin_loss(self, positive: Self, negative: Self, margin: float = 1.0,
                            p: float = 2, eps: float = 1e-6, swap: bool = False,
                            reduction: str = "mean") -> Self:
        """How much farther the positive is than the negative, plus a margin."""
        def distance(x: Any, y: Any) -> Any:
            return x.pairwise_distance(y, p, eps)
        return self.triplet_margin_with_distance_loss(
            positive, negative, distance_function=distance, margin=margin, swap=swap,
            reduction=reduction)

    def triplet_margin_with_distance_loss(
            self, positive: Self, negative: Self,
            distance_function: Callable[..., Any] | None = None, margin: float = 1.0,
            swap: bool = False, reduction: str = "mean") -> Self:
        """triplet_margin_loss with a distance of one's own."""
        far = distance_function or (lambda x, y: x.pairwise_distance(y))
        near, away = far(self, positive), far(self, negative)
        away = away.minimum(far(positive, negative)) if swap else away
        loss: Self = (near - away + margin).relu()
        return loss._reduced(reduction)

    # Layers as functions

    def glu(self, dim: int = -1) -> Self:
        """The first half of an axis times the sigmoid of the second."""
        axis = self._axis(dim, "glu")
        if self.shape[axis] % 2:  # r[impl tensor.arguments.refused+2]
            raise ShapeError("glu", f"axis {dim} of {self.shape} has no halves", "use an even size")
        first, second = self.chunk(2, axis)
        return first * second.sigmoid()

    def gumbel_softmax(self, tau: float = 1, hard: bool = False, dim: int = -1) -> Self:
        """softmax of x and random numbers of Gumbel's distribution; `hard`: its greatest as 1."""
        chance = self._wrap(uniform_node(self.shape))
        noise = -(-(1 - chance).log()).log()
        soft = ((self + noise) / tau).softmax(dim)
        if not hard:
            return soft
        places = soft.argmax(dim, keepdim=True)
        one = self._numbers(self.shape[dim])
        shape = [1] * len(self.shape)
        shape[dim] = -1
        chosen: Self = one.reshape(shape).eq(places).cast(soft.dtype)
        return chosen - soft.detach() + soft

    def batch_norm(self, running_mean: Self | None = None, running_var: Self | None = None,
                   weight: Self | None = None, bias: Self | None = None, training: bool = False,
                   momentum: float = 0.1, eps: float = 1e-5) -> Self:
        """Each channel (axis 1) less its mean, divided by its deviation, times weight plus bias.

        Those of the batch while training, when the running ones, if given, learn from them.
        """
        axes = tuple(axis for axis in range(len(self.shape)) if axis != 1)
        if training or running_mean is None or running_var is None:
            variance, mean = self.var_mean(axes, correction=0)
            if training and running_mean is not None and running_var is not None:
                count = self.numel() // self.shape[1]
                unbiased = variance.detach() * (count / max(count - 1, 1))
                running_mean.assign(running_mean * (1 - momentum) + mean.detach() * momentum)
                running_var.assign(running_var * (1 - momentum) + unbiased * momentum)
        else:
            mean, variance = running_mean, running_var
        return self.batchnorm(weight, bias, mean, (variance + eps).rsqrt())

    def instance_norm(self, running_mean: Self | None = None, running_var: Self | None = None,
                      weight: Self | None = None, bias: Self | None = None,
                      use_input_stats: bool = True, momentum: float = 0.1,
                      eps: float = 1e-5) -> Self:
        """layernorm over all axes after the channels (axis 1), then weight and bias for each."""
        if not use_input_stats:
            return self.batch_norm(running_mean, running_var, weight, bias, False, momentum, eps)
        axes = tuple(range(2, len(self.shape)))
        if running_mean is not None and running_var is not None:
            variance, mean = self.var_mean(axes)
            running_mean.assign(running_mean * (1 - momentum) + mean.mean(0).detach() * momentum)
            running_var.assign(running_var * (1 - momentum) + variance.mean(0).detach() * momentum)
        return self.layernorm(axes, eps)._affine(weight, bias)

    def bilinear(self, other: Self, weight: Self, bias: Self | None = None) -> Self:
        """x @ weight[k] @ other for each k, plus bias: (..., n), (..., m), (k, n, m)."""
        found = self.einsum("...n,knm,...m->...k", self, weight, other)
        return found if bias is None else found + bias

    def dropout1d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """dropout of whole channels: all axes after the second are dropped together."""
        active = self.training if training is None else training
        if not active or p == 0:
            return self._another()
        front = min(2, len(self.shape))
        ones = self._wrap(nodes.full_like(self.uop, 1))[
            (slice(None),) * front + (slice(0, 1),) * (len(self.shape) - front)]
        return self * ones.dropout(p, True)

    dropout2d = dropout1d
    dropout3d = dropout1d
    feature_dropout = dropout1d

    def rrelu(self, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Self:
        """leaky_relu, with a random slope for each element while training."""
        if not training:
            return self.leaky_relu((lower + upper) / 2)
        chance = self._wrap(uniform_node(self.shape))
        return (self >= 0).where(self, self * (chance * (upper - lower) + lower))

    def linear_cross_entropy(self, weight: Self, target: Self, bias: Self | None = None,
                             **named: Any) -> Self:
        """cross_entropy of a linear layer"""
        return self.linear(weight, bias).cross_entropy(target, **named)

    def embedding_bag(self, weight: Self, offsets: Self | None = None, mode: str = "mean",
                      per_sample_weights: Self | None = None, include_last_offset: bool = False,
                      padding_idx: int | None = None) -> Self:
        """Rows of a matrix, of which those of each bag are combined: (bags, width).

        A bag is a row of indices, or what stands in a vector of them from one offset to the next.
        Rows of `padding_idx` do not count; a bag of nothing is 0.

        Raises:
            ShapeError: bags are given in both ways or in none, the mode is unknown, or rows have
                weights and are not summed.
        """
        if len(self.shape) != (2 if offsets is None else 1) or mode not in ("sum", "mean", "max") \
                or per_sample_weights is not None and mode != "sum":
            raise ShapeError(
                "embedding_bag", f"indices of shape {self.shape}, mode {mode!r}, "
                f"{'no offsets' if offsets is None else 'offsets'}", "give bags as rows, or a "
                "vector and offsets, and sum, mean or max as mode; weights go with sum")
        count, bag = self._bags(offsets, include_last_offset)
        rows = weight.embedding(self.reshape(-1))
        present = self._wrap(nodes.full_like(rows[:, :1].uop, 1))
        if padding_idx is not None:
            own = self.reshape(-1, 1).ne(padding_idx % int(weight.shape[0]))
            present = own.cast(rows.dtype)
            rows = own.where(rows, -math.inf if mode == "max" else 0)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.reshape(-1, 1)
        empty = self._wrap(nodes.full(UOp.const(rows.dtype, 0), (count, rows.shape[1])))
        if mode == "max":
            found = (empty - math.inf).index_reduce(0, bag, rows, "amax")
            return found.eq(-math.inf).where(0, found)
        total = empty.index_add(0, bag, rows)
        if mode == "sum":
            return total
        return total / empty[:, :1].index_add(0, bag, present).maximum(1)

    def _bags(self, offsets: Self | None, last: bool) -> tuple[int, Self]:
        """How many bags there are, and of which one each index is."""
        size = int(math.prod(self.shape))
        whole: Any = type(self)  # the class of all methods
        positions = whole.arange(size, device=self.device)
        if offsets is None:
            return int(self.shape[0]), positions // (size // int(self.shape[0]) or 1)
        count = int(offsets.shape[0]) - bool(last)
        return count, offsets[:count].searchsorted(positions.cast(offsets.dtype), right=True) - 1
