"""Functions of neural networks: normalisation, losses, dropout, attention. Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from impl.dtypes import dtypes, sum_accumulator
from impl.errors import ShapeError, warn
from impl.gradient import nodes
from impl.gradient.nodes import binary, cast, unary, where
from impl.ir import Ops, UOp
from impl.symbolic import identical
from impl.tensor.conversion import Conversion
from impl.tensor.elementwise import compare
from impl.tensor.indexing import class_dtype
from impl.tensor.movement import triangle, whole
from impl.tensor.names import either
from impl.tensor.random import uniform_node


def warn_of_shapes(name: str, x: Any, target: Any) -> None:
    """A loss of (4, 1) and (4,) has 16 elements, which is seldom meant."""
    shape = getattr(target, "shape", x.shape)
    if not identical(shape, x.shape):  # r[impl tensor.loss.shapes]
        warn(name, f"the input is {x.shape} and the target {shape}, which broadcast",
             "give both one shape, with reshape or squeeze")


class Functional(Conversion):
    """What layers are made of."""

    __slots__ = ()
    #: Whether dropout drops and batch norm learns; `Tensor.train()` sets it for a block.
    training: ClassVar[bool] = False

    # Normalisation

    def layernorm(self, axis: Any = -1, eps: float = 1e-5, dim: Any = None) -> Self:
        """(x - mean) / sqrt(variance + eps) along axes; halves are computed in float32."""
        axes = self._axes(either(axis, dim), "layernorm")
        variance, mean = self._var_nodes(axes, 0, "layernorm")
        x = cast(self._float("layernorm"), mean.dtype)
        centered = nodes.sub(x, nodes.expand(mean, self.shape))
        return self._wrap(cast(nodes.mul(centered, self._scale(variance, eps)),
                               self._result_float()))

    def _scale(self, square: UOp, eps: float) -> UOp:
        """1 / sqrt(square + eps), spread over this tensor's shape."""
        root = unary(Ops.SQRT, nodes.add(square, UOp.const(square.dtype, eps)))
        return nodes.expand(unary(Ops.RECIPROCAL, root), self.shape)

    def layer_norm(self, normalized_shape: Any, weight: Self | None = None,
                   bias: Self | None = None, eps: float = 1e-5) -> Self:
        """layernorm over the last axes, of this shape, then weight and bias.

        Raises:
            ShapeError: the last axes have another shape.
        """
        last = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if not last or self.shape[-len(last):] != last:  # r[impl tensor.arguments.refused+2]
            raise ShapeError("layer_norm", f"the last axes of shape {self.shape} are not {last}",
                             "give the sizes of the last axes, or use .layernorm(axis)")
        result = self.layernorm(tuple(range(-len(last), 0)), eps)
        result = result if weight is None else result * weight
        return result if bias is None else result + bias

    def rms_norm(self, axis: Any = -1, eps: float = 1e-6, dim: Any = None) -> Self:
        """x / sqrt(mean(x * x) + eps) along axes; halves are computed in float32."""
        x = self._float("rms_norm")
        x = cast(x, sum_accumulator(x.dtype))
        square = self._mean_node(nodes.mul(x, x), self._axes(either(axis, dim), "rms_norm"))
        return self._wrap(cast(nodes.mul(x, self._scale(square, eps)), self._result_float()))

    def group_norm(self, num_groups: int, weight: Self | None = None, bias: Self | None = None,
                   eps: float = 1e-5) -> Self:
        """layernorm over groups of channels (axis 1) and all axes after it."""
        if len(self.shape) < 2 or self.shape[1] % whole(num_groups, "group_norm", "count", 1):
            raise ShapeError("group_norm", f"{num_groups} groups of the channels of {self.shape}",
                             "the number of groups must divide axis 1")
        grouped = self.reshape(self.shape[0], num_groups, -1).layernorm(-1, eps)
        return grouped.reshape(self.shape)._affine(weight, bias)

    def batchnorm(self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self) -> Self:
        """(x - mean) * invstd for each channel (axis 1), then weight and bias."""
        per_channel = (1, -1) + (1,) * (len(self.shape) - 2)
        centered = self - mean.reshape(per_channel)
        return (centered * invstd.reshape(per_channel))._affine(weight, bias)

    def _affine(self, weight: Self | None, bias: Self | None) -> Self:
        """times weight plus bias, for each channel (axis 1)"""
        per_channel = (1, -1) + (1,) * (len(self.shape) - 2)
        result = self if weight is None else self * weight.reshape(per_channel)
        return result if bias is None else result + bias.reshape(per_channel)

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """x divided by its p-norm along an axis."""
        return self / self.norm(p, dim, keepdim=True).maximum(eps)

    def dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Each element zero with probability p, the others divided by 1 - p, while training."""
        active = self.training if training is None else training
        if not 0 <= p <= 1:
            raise ShapeError("dropout", f"{p} is no probability", "use a number from 0 to 1")
        if not active or p == 0:
            return self._another()
        if p == 1:
            return self._wrap(nodes.full_like(self.uop, 0))
        chance = uniform_node(self.shape)
        kept = compare(Ops.CMPLE, UOp.const(chance.dtype, p), chance)
        scaled = nodes.div(self._float("dropout"), UOp.const(self._result_float(), 1 - p))
        return self._wrap(where(kept, scaled, UOp.const(scaled.dtype, 0)))

    # Losses

    def _reduced(self, reduction: str) -> Self:
        if reduction == "mean":
            return self.mean()
        if reduction == "sum":
            return self.sum()
        if reduction == "none":
            return self
        raise ShapeError("loss", f"reduction {reduction!r} is unknown", "use mean, sum or none")

    def mse_loss(self, target: Any, reduction: str = "mean") -> Self:
        """The squares of the differences."""
        warn_of_shapes("mse_loss", self, target)
        return (self - target).square()._reduced(reduction)

    def l1_loss(self, target: Any, reduction: str = "mean") -> Self:
        """The absolute differences."""
        warn_of_shapes("l1_loss", self, target)
        return (self - target).abs()._reduced(reduction)

    def huber_loss(self, target: Any, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Half the square of small differences, and a line beyond `delta`."""
        warn_of_shapes("huber_loss", self, target)
        return (self - target)._bent(delta)._reduced(reduction)

    def _bent(self, delta: float) -> Self:
        """Half the square of what is small, and a line beyond `delta`."""
        size = self.abs()
        line = delta * (size - 0.5 * delta)
        return (size <= delta).where(0.5 * self.square(), line)

    def binary_crossentropy(self, target: Any, reduction: str = "mean") -> Self:
        """-(y log p + (1 - y) log(1 - p)), for probabilities; no logarithm is below -100."""
        loss = -(target * self._bounded_log() + (1 - target) * (1 - self)._bounded_log())
        return loss._reduced(reduction)

    def _bounded_log(self) -> Self:
        """log(x), but -100 at 0, and with the slope that it has at 1e-12 below of it."""
        x = self._float("binary_crossentropy")
        wide = cast(x, sum_accumulator(x.dtype))
        small = compare(Ops.CMPLT, wide, UOp.const(wide.dtype, 1e-12))
        least = binary(Ops.MAXIMUM, unary(Ops.LOG, wide), UOp.const(wide.dtype, -100))
        # r[impl tensor.loss.value]: 0 times infinity is NaN, also in a gradient
        line = nodes.scale(nodes.sub(wide, nodes.detach(wide)), 1e12)
        log = unary(Ops.LOG, where(small, UOp.const(wide.dtype, 1), wide))
        return self._wrap(cast(where(small, nodes.add(nodes.detach(least), line), log), x.dtype))

    def binary_crossentropy_logits(self, target: Any, reduction: str = "mean") -> Self:
        """binary_crossentropy of sigmoid(x), without overflow."""
        return (self.softplus() - self * target)._reduced(reduction)

    def cross_entropy(self, target: Self, reduction: str = "mean", label_smoothing: float = 0.0,
                      ignore_index: int | None = None, weight: Self | None = None) -> Self:
        """-log of the softmax over classes, at the target's class.

        Args:
            target: class numbers (an integer dtype), or probabilities of this tensor's shape.
                Classes stand on axis 1, or on axis 0 where there is no other. A number that is
                no class gives NaN, unless it is `ignore_index`.
            weight: how much each class counts; a mean over class numbers is divided by the sum
                of what theirs count.

        Raises:
            ShapeError: the target has neither shape (r[tensor.arguments.refused]).
        """
        axis = 1 if len(self.shape) > 1 else 0
        log_probability = self.log_softmax(axis)._of_weight(weight, axis)
        if target.dtype.kind == "f":
            if target.shape != self.shape:
                raise ShapeError("cross_entropy", f"target {target.shape} for input {self.shape}",
                                 "give probabilities in the input's shape, or class numbers")
            weights = target * (1 - label_smoothing) + label_smoothing / self.shape[axis]
            loss = -(weights * log_probability).sum(axis)
            return loss._reduced(reduction)
        loss = log_probability._at_class(target, axis)
        if label_smoothing:
            even = -log_probability.mean(axis)
            loss = loss * (1 - label_smoothing) + even * label_smoothing
        return loss._loss_of_classes(target, reduction, ignore_index,
                                     self._counts(weight, target, axis))

    def _of_weight(self, weight: Self | None, axis: int) -> Self:
        """Times the weight of each class."""
        if weight is None:
            return self
        if weight.shape != (self.shape[axis],):  # r[impl tensor.arguments.refused+2]
            raise ShapeError("cross_entropy", f"weights of shape {weight.shape} for "
                             f"{self.shape[axis]} classes", "give one number for each class")
        return self * weight.reshape(-1, *(1,) * (len(self.shape) - 1 - axis))

    def _counts(self, weight: Self | None, target: Self, axis: int) -> Self | None:
        """The weight of each target's class, if classes have weights."""
        if weight is None:
            return None
        ones = self._wrap(nodes.full_like(self.uop, 1))
        return -ones._of_weight(weight, axis)._at_class(target, axis)

    def _at_class(self, target: Self, axis: int) -> Self:
        """Minus the element at each target's class; the axis of the classes disappears.

        A sum over a choice, not a gather: its gradient is a choice too, and costs no more.
        """
        rest = self.shape[:axis] + self.shape[axis + 1:]
        if target.shape != rest or target.dtype.kind not in "iu":
            # r[impl tensor.arguments.refused+2]
            raise ShapeError("cross_entropy", f"target {target.dtype.name} {target.shape} for "
                             f"input {self.shape}", f"give class numbers of shape {rest}")
        classes = self.shape[axis]
        place = nodes.iota_along(classes, axis, len(self.shape))
        number = target.cast(class_dtype(target.dtype))
        named = (number >= 0) & (number < classes)  # before a cast can make a class of it
        alone = self.shape[:axis] + (1,) + self.shape[axis + 1:]
        along = nodes.reshape(cast(target.uop, place.dtype), alone)
        hit = compare(Ops.CMPEQ, nodes.expand(place, self.shape), nodes.expand(along, self.shape))
        chosen = where(hit, self.uop, UOp.const(self.dtype, 0))
        total = nodes.reshape(nodes.reduce(Ops.ADD, chosen, (axis,)), rest)
        # r[impl tensor.loss.value]
        return named.where(self._wrap(nodes.neg(total)), math.nan)

    def _loss_of_classes(self, target: Self, reduction: str, ignore: int | None,
                         counts: Self | None = None) -> Self:
        if ignore is None and counts is None:
            return self._reduced(reduction)
        counted = target.ne(ignore) if ignore is not None else target.eq(target)
        loss = counted.where(self, 0)  # r[impl tensor.loss.value]
        total = counted if counts is None else counted.where(counts, 0)
        return loss.sum() / total.sum() if reduction == "mean" else loss._reduced(reduction)

    def nll_loss(self, target: Self, reduction: str = "mean",
                 ignore_index: int | None = None, weight: Self | None = None) -> Self:
        """Minus the log probability at the target's class; classes on axis 1 (0 if alone)."""
        axis = 1 if len(self.shape) > 1 else 0
        loss = self._of_weight(weight, axis)._at_class(target, axis)
        return loss._loss_of_classes(target, reduction, ignore_index,
                                     self._counts(weight, target, axis))

    def sparse_categorical_crossentropy(self, target: Self, ignore_index: int = -1,
                                        label_smoothing: float = 0.0,
                                        reduction: str = "mean") -> Self:
        """cross_entropy with class numbers, and the classes on the last axis."""
        log_probability = self.log_softmax(-1)
        loss = log_probability._at_class(target, len(self.shape) - 1)
        if label_smoothing:
            loss = loss * (1 - label_smoothing) - log_probability.mean(-1) * label_smoothing
        return loss._loss_of_classes(target, reduction, ignore_index)

    # Attention

    def scaled_dot_product_attention(self, key: Self, value: Self, attn_mask: Self | None = None,
                                     dropout_p: float = 0.0, is_causal: bool = False,
                                     scale: float | None = None,
                                     enable_gqa: bool = False) -> Self:
        """softmax(query @ key.T / sqrt(width) + mask) @ value; this tensor is the query.

        Args:
            attn_mask: bool (False: not seen) or a float that is added; broadcasts to
                (..., queries, keys). Of a query that sees no key the result is 0.
            is_causal: a query sees the keys up to its own place only.
            enable_gqa: the queries have several times as many heads (axis -3) as keys and values,
                each of which serves as many queries that follow each other.
        """
        if enable_gqa:
            times = self.shape[-3] // key.shape[-3]
            key, value = (one.repeat_interleave(times, -3) for one in (key, value))
        if attn_mask is not None and is_causal:
            raise ShapeError("attention", "attn_mask and is_causal are both given", "give one")
        if not self.shape or (scale is None and self.shape[-1] == 0):
            # r[impl tensor.arguments.refused+2]
            raise ShapeError("attention", f"a query of shape {self.shape} has no width",
                             "give (..., queries, width) with a width from 1 on, or scale=")
        factor = 1 / math.sqrt(self.shape[-1]) if scale is None else scale
        scores = self.matmul(key.transpose(-2, -1)) * factor
        if is_causal:
            seen = nodes.broadcast(triangle(self.shape[-2], key.shape[-2], 0, False), scores.shape)
            scores = self._wrap(where(seen, scores.uop, UOp.const(scores.dtype, -math.inf)))
        if attn_mask is None:
            return scores.softmax(-1).dropout(dropout_p).matmul(value)
        scores = attn_mask.where(scores, -math.inf) if attn_mask.dtype is dtypes.bool \
            else scores + attn_mask
        return scores._softmax_of_seen().dropout(dropout_p).matmul(value)

    def _softmax_of_seen(self) -> Self:
        """softmax along the last axis, but 0 where all of it is minus infinity."""
        axis = len(self.shape) - 1
        if self.numel() == 0:
            return self.softmax(axis)
        x = cast(self._float("softmax"), sum_accumulator(self._result_float()))
        top = nodes.detach(nodes.reduce(Ops.MAXIMUM, x, (axis,)))
        blind = compare(Ops.CMPEQ, top, UOp.const(x.dtype, -math.inf))
        none, one = UOp.const(x.dtype, 0), UOp.const(x.dtype, 1)
        grown = unary(Ops.EXP, nodes.sub(x, nodes.expand(where(blind, none, top), self.shape)))
        total = where(blind, one, nodes.reduce(Ops.ADD, grown, (axis,)))
        # r[impl tensor.attention.blind]: minus infinity less itself would be NaN
        part = nodes.expand(unary(Ops.RECIPROCAL, total), self.shape)
        return self._wrap(cast(nodes.mul(grown, part), self._result_float()))

    def sequential(self, layers: Any) -> Self:
        """Each layer applied to what the one before returned."""
        result = self
        for layer in layers:
            result = layer(result)
        return result
