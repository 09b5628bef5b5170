"""The methods of tensors as functions, for programs that say `F.relu(x)`.

`F.name(x, ...)` is `x.name(...)`. Those stand here whose arguments PyTorch has in another order.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from impl.errors import ArgumentError, NameMissingError, name_missing, nearest
from impl.nn.attention import MultiheadAttention
from impl.nn.fractional import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
)
from impl.nn.linear import table
from impl.nn.loss import ctc_loss
from impl.nn.names import missing
from impl.nn.normalization import AlphaDropout, FeatureAlphaDropout
from impl.tensor import Tensor

__all__ = ["adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
           "adaptive_max_pool3d_with_indices", "alpha_dropout", "avg_pool2d", "avg_pool3d",
           "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
           "conv_transpose3d", "cross_entropy", "ctc_loss", "dropout", "embedding",
           "embedding_bag", "feature_alpha_dropout", "fractional_max_pool2d",
           "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
           "fractional_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d",
           "max_pool2d_with_indices", "max_pool3d_with_indices", "multi_head_attention_forward",
           "native_channel_shuffle", "nll_loss", "relu", "rms_norm", "unfold"]


#: What is written in the place of others.
_MEANT = {"grad": "nn.grad", "scaled_mm": "(a * scale_a) @ (b * scale_b)",
          **dict.fromkeys(("grouped_mm", "scaled_grouped_mm"), "a @ b for each group"),
          "sigmoid_focal_loss": "x.binary_cross_entropy_with_logits, with a weight"}


# Here, and not found by `__getattr__`: a captured function that says `F.softmax` reads a name.
for _name in dir(Tensor):
    if not _name.startswith("_") and callable(getattr(Tensor, _name)):
        globals().setdefault(_name, getattr(Tensor, _name))


#: What stands in PyTorch's module, and is about PyTorch itself.
_INSIDE = frozenset(
    ("BroadcastingList1 BroadcastingList2 BroadcastingList3 DType GRID_SAMPLE_INTERPOLATION_MODES "
     "GRID_SAMPLE_PADDING_MODES ScalingType SwizzleType TYPE_CHECKING assert_int_or_pair "
     "boolean_dispatch dataclasses handle_torch_function has_torch_function importlib "
     "has_torch_function_unary has_torch_function_variadic reproducibility_notes "
     "sparse_support_notes tf32_notes torch warnings Optional math np").split())


def __getattr__(name: str) -> NoReturn:
    if name in _INSIDE:
        raise NameMissingError(  # r[impl errors.name.missing]
            "nn.functional", f"there is no {name}", "leave it out: it is about PyTorch itself")
    known = {one for one in (*__all__, *dir(Tensor)) if not one.startswith("_")
             and (one in __all__ or callable(getattr(Tensor, one)))}
    if nearest(name, known) or name in _MEANT:
        raise name_missing("nn.functional", name, known, _MEANT)
    raise missing(name, (), "nn.functional")  # r[impl errors.name.missing]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """x.relu()."""
    return input.relu_() if inplace else input.relu()


def dropout(input: Tensor, p: float = 0.5, training: bool = True,
            inplace: bool = False) -> Tensor:
    """x.dropout(p), which drops unless it is said that nothing is learned."""
    dropped = input.dropout(p, training)
    return input.assign(dropped) if inplace else dropped


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False,
                  inplace: bool = False) -> Tensor:
    """What `nn.AlphaDropout` gives."""
    dropped: Tensor = AlphaDropout(p, inplace).train(training)(input)
    return dropped


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False,
                          inplace: bool = False) -> Tensor:
    """What `nn.FeatureAlphaDropout` gives."""
    dropped: Tensor = FeatureAlphaDropout(p, inplace).train(training)(input)
    return dropped


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None,
              max_norm: float | None = None, norm_type: float = 2.0) -> Tensor:
    """weight.embedding(x); a row of `padding_idx` gets no gradient, and rows that are longer than
    `max_norm` are cut in the weight.
    """
    return table(weight, input, padding_idx, max_norm, norm_type).embedding(input)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None,
                  max_norm: float | None = None, norm_type: float = 2.0,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> Tensor:
    """x.embedding_bag(weight)."""
    used = table(weight, input, padding_idx, max_norm, norm_type)
    return input.embedding_bag(used, offsets, mode, per_sample_weights, include_last_offset,
                               padding_idx)


def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None,
             eps: float | None = None) -> Tensor:
    """x.rms_norm over the last axes, as many as `normalized_shape` has."""
    normal = input.rms_norm(tuple(range(-len(normalized_shape), 0)),
                            2.0 ** -23 if eps is None else eps)
    return normal if weight is None else normal * weight


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None,
                  ignore_index: int = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    """x.cross_entropy(target)."""
    return input.cross_entropy(target, reduction, label_smoothing, ignore_index, weight)


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None,
             ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    """x.nll_loss(target)."""
    return input.nll_loss(target, reduction, ignore_index, weight)


def max_pool2d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """x.max_pool2d(kernel_size)."""
    return input.max_pool2d(kernel_size, stride, dilation, padding, ceil_mode, return_indices)


def avg_pool2d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Tensor:
    """x.avg_pool2d(kernel_size)."""
    return input.avg_pool2d(kernel_size, stride, 1, padding, count_include_pad, ceil_mode,
                            divisor_override)


def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """x.conv2d(weight), over as many axes as the weight has after its first two."""
    return input.conv2d(weight, bias, groups, stride, dilation, padding)


conv1d = conv3d = conv2d


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
                     padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                     dilation: Any = 1) -> Tensor:
    """x.conv_transpose2d(weight), over as many axes as the weight has after its first two."""
    turned = getattr(input, f"conv_transpose{weight.ndim - 2}d")
    result: Tensor = turned(weight, bias, groups, stride, dilation, padding, output_padding)
    return result


def avg_pool3d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Tensor:
    """x.avg_pool3d(kernel_size)."""
    return avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                      divisor_override)


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
           stride: Any = 1) -> Tensor:
    """x.unfold(kernel_size=kernel_size): patches as columns."""
    return input.unfold(kernel_size=kernel_size, dilation=dilation, padding=padding,
                        stride=stride)


conv_transpose1d = conv_transpose3d = conv_transpose2d


def _with_places(name: str) -> Callable[..., Any]:
    """A pooling that gives the places, too."""
    def pooled(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
        return getattr(input, name)(kernel_size, stride, dilation=dilation, padding=padding,
                                    ceil_mode=ceil_mode, return_indices=True)
    pooled.__name__, pooled.__doc__ = f"{name}_with_indices", f"x.{name}, with the places."
    return pooled


max_pool1d_with_indices = _with_places("max_pool1d")
max_pool2d_with_indices = _with_places("max_pool2d")
max_pool3d_with_indices = _with_places("max_pool3d")


def _adaptive_with_places(name: str) -> Callable[..., Any]:
    def pooled(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return getattr(input, name)(output_size, True)
    pooled.__name__, pooled.__doc__ = f"{name}_with_indices", f"x.{name}, with the places."
    return pooled


adaptive_max_pool1d_with_indices = _adaptive_with_places("adaptive_max_pool1d")
adaptive_max_pool2d_with_indices = _adaptive_with_places("adaptive_max_pool2d")
adaptive_max_pool3d_with_indices = _adaptive_with_places("adaptive_max_pool3d")


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """x.channel_shuffle"""
    return input.channel_shuffle(groups)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor | None, pad: int = 0) -> Tensor:
    """A convolution of (length, batch, channels) with (window, channels, out)."""
    turned = input.permute(1, 2, 0).conv2d(weight.permute(2, 1, 0), bias, padding=pad)
    return turned.permute(2, 0, 1)


def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
        in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
        bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
        out_proj_bias: Tensor | None, training: bool = True,
        key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
        q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
        v_proj_weight: Tensor | None = None, static_k: Tensor | None = None,
        static_v: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """What `nn.MultiheadAttention` gives with these weights: the output and its weights."""
    if static_k is not None or static_v is not None:  # r[impl errors.argument.refused]
        raise ArgumentError("nn.functional.multi_head_attention_forward", "static_k is given",
                            "give what is projected as key and value")
    layer = MultiheadAttention(embed_dim_to_check, num_heads, dropout_p, out_proj_bias is not None,
                               add_zero_attn=add_zero_attn, kdim=key.shape[-1],
                               vdim=value.shape[-1]).train(training)
    own = {"q_proj_weight": q_proj_weight, "k_proj_weight": k_proj_weight,
           "v_proj_weight": v_proj_weight} if use_separate_proj_weight else \
        {"in_proj_weight": in_proj_weight}
    for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
        vars(layer).pop(name, None)
    vars(layer).update(own, in_proj_bias=in_proj_bias, bias_k=bias_k, bias_v=bias_v)
    layer.out_proj.weight, layer.out_proj.bias = out_proj_weight, out_proj_bias
    found: tuple[Tensor, Tensor | None] = layer(
        query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights,
        is_causal)
    return found
