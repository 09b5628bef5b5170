"""What the workloads are written with: the operations that libraries call by different names.

A workload is one text for all libraries. It uses Python's operators on arrays, and an `Operations`
for the rest. Each library's adapter (`peers/`) says these words in the way that is best there.
`Numpy` is the definition of what they mean: in float64 it computes what all are compared with.
"""
from __future__ import annotations

from typing import Any, Protocol

import numpy as np

EPSILON = 1e-5


class Operations(Protocol):
    """Names of axes are numbers from the front, or -1 for the last."""

    def relu(self, x: Any) -> Any: ...
    def gelu(self, x: Any) -> Any:
        """The approximation with tanh; libraries disagree on the default."""

    def sum(self, x: Any, axis: int | None = None) -> Any: ...
    def max(self, x: Any, axis: int) -> Any: ...
    def argmax(self, x: Any, axis: int) -> Any: ...
    def cumsum(self, x: Any, axis: int) -> Any: ...
    def sort(self, x: Any) -> Any:
        """Along the last axis, the values alone."""

    def softmax(self, x: Any) -> Any:
        """Over the last axis."""

    def layer_norm(self, x: Any, scale: Any = None, shift: Any = None) -> Any:
        """Over the last axis, with EPSILON."""

    def rms_norm(self, x: Any, scale: Any) -> Any:
        """x / sqrt(mean(x * x) + EPSILON) * scale, over the last axis."""

    def cross_entropy(self, scores: Any, targets: Any) -> Any:
        """The mean over all places; classes are on the last axis."""

    def reshape(self, x: Any, *shape: int) -> Any: ...
    def permute(self, x: Any, *axes: int) -> Any: ...
    def rows(self, table: Any, numbers: Any) -> Any:
        """table[numbers], of any shape of numbers."""

    def attention(self, query: Any, key: Any, value: Any, causal: bool = False,
                  mask: Any = None) -> Any:
        """softmax(query @ key.T / sqrt(width) + mask) @ value; arrays are (batch, heads, T, D)."""

    def conv2d(self, x: Any, weight: Any, stride: int = 1, padding: int = 0,
               groups: int = 1) -> Any: ...

    def wide_product(self, x: Any, y: Any) -> Any:
        """The product of int8 matrices, as int32."""


class Numpy:
    """The definitions. Arrays keep the dtype they have."""

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0)

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def sum(self, x: Any, axis: int | None = None) -> Any:
        return x.sum(axis)

    def max(self, x: Any, axis: int) -> Any:
        return x.max(axis)

    def argmax(self, x: Any, axis: int) -> Any:
        return x.argmax(axis)

    def cumsum(self, x: Any, axis: int) -> Any:
        return x.cumsum(axis)

    def sort(self, x: Any) -> Any:
        return np.sort(x, -1)

    def softmax(self, x: Any) -> Any:
        raised = np.exp(x - x.max(-1, keepdims=True))
        raised /= raised.sum(-1, keepdims=True)
        return raised

    def layer_norm(self, x: Any, scale: Any = None, shift: Any = None) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        centred /= np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)
        return centred if scale is None else centred * scale + shift

    def rms_norm(self, x: Any, scale: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale

    def cross_entropy(self, scores: Any, targets: Any) -> Any:
        moved = scores - scores.max(-1, keepdims=True)
        logarithms = moved - np.log(np.exp(moved).sum(-1, keepdims=True))
        return -np.take_along_axis(logarithms, targets[..., None], -1).mean()

    def reshape(self, x: Any, *shape: int) -> Any:
        return x.reshape(shape)

    def permute(self, x: Any, *axes: int) -> Any:
        return x.transpose(axes)

    def rows(self, table: Any, numbers: Any) -> Any:
        return table[numbers]

    def attention(self, query: Any, key: Any, value: Any, causal: bool = False,
                  mask: Any = None) -> Any:
        scores = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
        if causal:
            scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
        return self.softmax(scores if mask is None else scores + mask) @ value

    def conv2d(self, x: Any, weight: Any, stride: int = 1, padding: int = 0,
               groups: int = 1) -> Any:
        """A product for each place of the kernel, and the sum of them."""
        batch, (count, inner, high, wide) = len(x), weight.shape
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        rows, columns = ((size - side) // stride + 1
                         for size, side in zip(x.shape[2:], (high, wide), strict=True))
        weight = weight.reshape(groups, count // groups, inner, high, wide)
        x = x.reshape(batch, groups, inner, *x.shape[2:])
        total: Any = 0
        for i in range(high):
            for j in range(wide):
                seen = x[..., i:i + stride * rows:stride, j:j + stride * columns:stride]
                part = seen[..., :rows, :columns].reshape(batch, groups, inner, rows * columns)
                total = total + weight[..., i, j] @ part
        return total.reshape(batch, count, rows, columns)

    def wide_product(self, x: Any, y: Any) -> Any:
        return x.astype(np.int32) @ y.astype(np.int32)
