"""Layers that multiply by a matrix, or take its rows."""
from __future__ import annotations

import math
from collections.abc import Sequence

from impl.errors import ArgumentError
from impl.nn.module import Module, refuse_values, sizes
from impl.tensor import Tensor

__all__ = ["Bilinear", "Embedding", "EmbeddingBag", "Linear"]


def uniform_weights(shape: Sequence[int], inputs: int) -> Tensor:
    """Weights of a layer in which so many inputs go into one output."""
    bound = 1 / math.sqrt(max(inputs, 1))
    return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)


class Linear(Module):
    """y = x @ weight.T + bias; weight: (out_features, in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        sizes(self, in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = uniform_weights((out_features, in_features), in_features)
        self.bias = uniform_weights((out_features,), in_features) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        refuse_values(self, x)
        return x.linear(self.weight, self.bias)


class Bilinear(Module):
    """y[k] = x1 @ weight[k] @ x2 + bias[k]."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int,
                 bias: bool = True) -> None:
        sizes(self, in1_features=in1_features, in2_features=in2_features,
              out_features=out_features)
        self.weight = uniform_weights((out_features, in1_features, in2_features), in1_features)
        self.bias = uniform_weights((out_features,), in1_features) if bias else None

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return input1.bilinear(input2, self.weight, self.bias)


def others(weight: Tensor, padding_idx: int) -> Tensor:
    """Which rows are learned: all but that of padding."""
    rows = weight.shape[0]
    return Tensor.arange(rows, device=weight.device).ne(padding_idx % rows).unsqueeze(1)


def table(weight: Tensor, rows: Tensor, padding_idx: int | None, max_norm: float | None,
          norm_type: float) -> Tensor:
    """What rows are looked up in: that of padding gets no gradient.

    With `max_norm` those rows that are longer are cut in the weight itself, as in PyTorch, which is
    no step that a gradient goes through.
    """
    if max_norm is not None:
        now, number = weight.detach(), Tensor.arange(weight.shape[0], device=weight.device)
        used = rows.reshape(1, -1).eq(number.unsqueeze(1)).any(1, keepdim=True)
        weight.assign(used.where(now.renorm(norm_type, 0, max_norm), now))
    if padding_idx is None:
        return weight
    return others(weight, padding_idx).where(weight, weight.detach())


class Embedding(Module):
    """A row of `weight` for each number; a number out of range gives zeros.

    Args:
        padding_idx: a row that is zero at first, and is not learned.
        max_norm: rows that are longer are made so long where they are used, in `weight`.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, sparse: bool = False,
                 _weight: Tensor | None = None, _freeze: bool = False) -> None:
        sizes(self, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        if scale_grad_by_freq:
            raise ArgumentError(type(self).__name__, "scale_grad_by_freq is true",
                                "leave it out, and use an optimiser that scales, as Adam")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        weight = Tensor.randn(num_embeddings, embedding_dim)
        if self.padding_idx is not None:
            weight = others(weight, self.padding_idx).where(weight, 0)
        weight = weight if _weight is None else _weight.detach()
        self.weight = weight.requires_grad_(not _freeze)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True,
                        padding_idx: int | None = None, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Embedding:
        """A layer with a given matrix, which is learned if it is not frozen."""
        return cls(embeddings.shape[0], embeddings.shape[1], padding_idx, max_norm, norm_type,
                   scale_grad_by_freq, sparse, _weight=embeddings, _freeze=freeze)

    def table(self, rows: Tensor) -> Tensor:
        """The matrix, in which these rows are looked up."""
        return table(self.weight, rows, self.padding_idx, self.max_norm, self.norm_type)

    def forward(self, input: Tensor) -> Tensor:
        return self.table(input).embedding(input)


class EmbeddingBag(Embedding):
    """Rows of `weight`, of which those of each bag are combined: see `Tensor.embedding_bag`."""

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                 sparse: bool = False, _weight: Tensor | None = None,
                 include_last_offset: bool = False, padding_idx: int | None = None) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type,
                         scale_grad_by_freq, sparse, _weight)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None,
                per_sample_weights: Tensor | None = None) -> Tensor:
        return input.embedding_bag(self.table(input), offsets, self.mode, per_sample_weights,
                                   self.include_last_offset, self.padding_idx)
