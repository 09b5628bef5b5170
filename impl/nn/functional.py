"""The methods of tensors as functions, for programs that say `F.relu(x)`.

`F.name(x, ...)` is `x.name(...)`. Those stand here whose arguments PyTorch has in another order.
"""
from __future__ import annotations

from typing import Any, NoReturn

from impl.errors import name_missing, nearest
from impl.nn.linear import table
from impl.nn.loss import ctc_loss
from impl.nn.names import missing
from impl.nn.normalization import AlphaDropout, FeatureAlphaDropout
from impl.tensor import Tensor

__all__ = ["alpha_dropout", "avg_pool2d", "avg_pool3d", "conv1d", "conv2d", "conv3d",
           "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cross_entropy",
           "ctc_loss", "dropout", "embedding", "embedding_bag", "feature_alpha_dropout",
           "max_pool2d", "nll_loss", "relu", "rms_norm", "unfold"]


#: Functions whose work a layer does.
_MEANT = {"multi_head_attention_forward": "nn.MultiheadAttention",
          "sigmoid_focal_loss": "x.binary_cross_entropy_with_logits, with a weight"}


# Here, and not found by `__getattr__`: a captured function that says `F.softmax` reads a name.
for _name in dir(Tensor):
    if not _name.startswith("_") and callable(getattr(Tensor, _name)):
        globals().setdefault(_name, getattr(Tensor, _name))


def __getattr__(name: str) -> NoReturn:
    known = {one for one in (*__all__, *dir(Tensor)) if not one.startswith("_")}
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
    """weight.embedding(x); a row of `padding_idx` gets no gradient, and long rows are cut."""
    return table(weight, padding_idx, max_norm, norm_type).embedding(input)


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None,
                  max_norm: float | None = None, norm_type: float = 2.0,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> Tensor:
    """x.embedding_bag(weight)."""
    used = table(weight, padding_idx, max_norm, norm_type)
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
