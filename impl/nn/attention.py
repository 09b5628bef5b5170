"""Attention, and the layers of a transformer."""
from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.errors import ShapeError
from impl.nn.containers import ModuleList
from impl.nn.linear import Linear
from impl.nn.module import Module, Parameter, sizes
from impl.nn.normalization import Dropout, LayerNorm
from impl.tensor import Tensor

__all__ = ["MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer",
           "TransformerEncoder", "TransformerEncoderLayer"]


def _glorot(rows: int, columns: int) -> Tensor:
    """Glorot and Bengio's uniform weights."""
    bound = math.sqrt(6 / (rows + columns))
    return Tensor.uniform(rows, columns, low=-bound, high=bound, requires_grad=True)


def _added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask as what is added to scores: in PyTorch's layers, True means "not seen"."""
    if mask is None or mask.dtype is not dtypes.bool:
        return mask
    return mask.where(-math.inf, 0.0).cast(like.dtype)


class MultiheadAttention(Module):
    """Attention with several heads: `layer(query, key, value)` gives the output and the weights.

    Inputs are (length, batch, embed_dim), or (batch, length, embed_dim) with `batch_first`; the
    batch may be left out. In bool masks True means "not seen", as in PyTorch.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False) -> None:
        sizes(self, num_heads, embed_dim=embed_dim)
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim, self.vdim, self.batch_first = kdim or embed_dim, vdim or embed_dim, batch_first
        self.add_zero_attn = add_zero_attn
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = _glorot(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight = _glorot(embed_dim, embed_dim)
            self.k_proj_weight = _glorot(embed_dim, self.kdim)
            self.v_proj_weight = _glorot(embed_dim, self.vdim)
        self.in_proj_bias = Parameter(Tensor.zeros(3 * embed_dim)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias = Parameter(Tensor.zeros(embed_dim))
        self.bias_k = Parameter(Tensor.randn(1, 1, embed_dim)) if add_bias_kv else None
        self.bias_v = Parameter(Tensor.randn(1, 1, embed_dim)) if add_bias_kv else None

    def _projected(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Queries, keys and values: (batch, length, embed_dim)."""
        weights = self.in_proj_weight.chunk(3) if "in_proj_weight" in vars(self) else \
            (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases: Any = self.in_proj_bias.chunk(3) if self.in_proj_bias is not None else (None,) * 3
        query, key, value = (x.linear(weight, bias) for x, weight, bias in
                             zip(given, weights, biases, strict=True))
        if self.bias_k is not None and self.bias_v is not None:
            key, value = (one.cat(more.expand(one.shape[0], 1, self.embed_dim), dim=1)
                          for one, more in ((key, self.bias_k), (value, self.bias_v)))
        return [query, key, value]

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, heads, length, width)."""
        return x.reshape(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def _mask(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, like: Tensor,
              more: int) -> Tensor | None:
        """What is added to scores (batch, heads, queries, keys)."""
        mask = _added(attn_mask, like)
        if mask is not None:
            mask = mask.reshape(-1, self.num_heads, *mask.shape[1:]) if mask.ndim == 3 \
                else mask.reshape(1, 1, *mask.shape)
        unseen = _added(key_padding_mask, like)
        if unseen is not None:
            unseen = unseen.reshape(-1, 1, 1, unseen.shape[-1])
            mask = unseen if mask is None else mask + unseen
        return mask if mask is None or not more else mask.pad((0, more))

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            raise ShapeError("nn.MultiheadAttention", "is_causal without attn_mask",
                             "give attn_mask=nn.Transformer.generate_square_subsequent_mask(n)")
        single, given = query.ndim == 2, [query, key, value]
        if single:
            given = [one.unsqueeze(0) for one in given]
        elif not self.batch_first:
            given = [one.transpose(0, 1) for one in given]
        heads = [self._heads(one) for one in self._projected(given)]
        if self.add_zero_attn:
            heads[1:] = [one.pad((0, 0, 0, 1)) for one in heads[1:]]
        mask = self._mask(attn_mask, key_padding_mask, query, heads[1].shape[2] - given[1].shape[1])
        output, weights = self._attended(heads, mask, need_weights)
        output = self.out_proj(output.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if single:
            return output.squeeze(0), weights if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _attended(self, heads: Sequence[Tensor], mask: Tensor | None,
                  need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """The values as they are seen, and how."""
        query, key, value = heads
        part = self.dropout if self.training else 0.0
        if not need_weights and not part:
            return query.scaled_dot_product_attention(key, value, mask), None
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = weights.dropout(part, True)
        return weights @ value, weights if need_weights else None


def _activation(given: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function, or the method of a name."""
    return (lambda x: getattr(x, given)()) if isinstance(given, str) else given


class _TransformerLayer(Module):
    """What layers of encoders and decoders share: attention to itself, and two linear layers."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: str | Callable[[Tensor], Tensor] = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True) -> None:
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first, self.activation = norm_first, activation
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def _beside(self, x: Tensor, norm: Module, change: Callable[[Tensor], Tensor]) -> Tensor:
        """x and what changes it, normalised before or after."""
        if self.norm_first:
            return x + change(norm(x))
        result: Tensor = norm(x + change(x))
        return result

    def _forward_fed(self, x: Tensor, dropout: Module) -> Tensor:
        inner = self.dropout(_activation(self.activation)(self.linear1(x)))
        result: Tensor = dropout(self.linear2(inner))
        return result


class TransformerEncoderLayer(_TransformerLayer):
    """Attention to itself and two linear layers, with residuals and norms."""

    def forward(self, src: Tensor, src_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        def attended(x: Tensor) -> Tensor:
            seen = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask)[0]
            result: Tensor = self.dropout1(seen)
            return result
        x = self._beside(src, self.norm1, attended)
        return self._beside(x, self.norm2, lambda one: self._forward_fed(one, self.dropout2))


class TransformerDecoderLayer(_TransformerLayer):
    """Attention to itself, to a memory, and two linear layers, with residuals and norms."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: str | Callable[[Tensor], Tensor] = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True) -> None:
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias,
                                                 batch_first=batch_first)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout3 = Dropout(dropout)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:
        def to_itself(x: Tensor) -> Tensor:
            seen = self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask)[0]
            result: Tensor = self.dropout1(seen)
            return result

        def to_memory(x: Tensor) -> Tensor:
            seen = self.multihead_attn(x, memory, memory, memory_key_padding_mask, False,
                                       memory_mask)[0]
            result: Tensor = self.dropout2(seen)
            return result
        x = self._beside(tgt, self.norm1, to_itself)
        x = self._beside(x, self.norm2, to_memory)
        return self._beside(x, self.norm3, lambda one: self._forward_fed(one, self.dropout3))


def _again(layer: Module) -> Module:
    """Another layer with the same values: its tensors are its own."""
    other = copy.deepcopy(layer)
    for inner in other.modules():
        for name, one in list(vars(inner).items()):
            if isinstance(one, Tensor):
                setattr(inner, name, one.detach().clone().requires_grad_(one.requires_grad))
    return other


class TransformerEncoder(Module):
    """Several layers of an encoder, each like the one that is given."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        """The last two are PyTorch's, about how it computes, and change nothing."""
        self.layers = ModuleList(_again(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src: Tensor, mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Several layers of a decoder, each like the one that is given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList(_again(decoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Tensor | None,
                **named: Any) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **named)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder that attends to it (Vaswani et al., 2017)."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
                 num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Callable[[Tensor], Tensor] = "relu",
                 custom_encoder: Any = None, custom_decoder: Any = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True) -> None:
        settings: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*settings), num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias))
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*settings), num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias))

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
                tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None,
                memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        result: Tensor = self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                                      memory_key_padding_mask)
        return result

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """A mask to add to scores: 0 up to a token's own position, and -inf behind it."""
        return Tensor.full((sz, sz), -math.inf).triu(1)
