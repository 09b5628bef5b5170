"""PyTorch's functions below its layers: `torch.lstm`, `torch.convolution`, `torch.native_...`."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.errors import ArgumentError
from impl.nn import functional
from impl.nn.recurrent import RNNBase, RNNCellBase
from impl.tensor import Tensor

__all__ = ["affine_grid_generator", "alpha_dropout_", "convolution", "dropout_",
           "embedding_renorm_", "feature_alpha_dropout_", "feature_dropout_", "grid_sampler",
           "grid_sampler_2d", "grid_sampler_3d", "gru", "gru_cell", "lstm", "lstm_cell",
           "native_batch_norm", "native_dropout", "native_group_norm",
           "native_layer_norm", "norm_except_dim", "rnn_relu", "rnn_relu_cell",
           "rnn_tanh", "rnn_tanh_cell"]


def convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any,
                dilation: Any, transposed: bool, output_padding: Any, groups: int) -> Tensor:
    """A convolution, or what is transposed to it."""
    if transposed:
        return functional.conv_transpose2d(input, weight, bias, stride, padding, output_padding,
                                           groups, dilation)
    return functional.conv2d(input, weight, bias, stride, padding, dilation, groups)


# Sequences

def _layers(mode: str) -> Callable[..., Any]:
    """The layers of a kind, with weights that are given."""
    name = mode.lower()

    def through(input: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool,
                num_layers: int, dropout: float, train: bool, bidirectional: bool,
                batch_first: bool) -> tuple[Tensor, ...]:
        if isinstance(params, Tensor) or not isinstance(has_biases, bool):
            raise ArgumentError(  # r[impl errors.argument.refused]
                f"torch.{name}", "it is given batch_sizes", "call the layer of nn with a "
                "PackedSequence")
        first = hx[0] if mode == "LSTM" else hx
        again = params[1]
        width = again.shape[0] // {"LSTM": 4, "GRU": 3}.get(mode, 1)
        layer = RNNBase(mode, input.shape[-1], width, num_layers, has_biases, batch_first, dropout,
                        bidirectional, first.shape[-1] if first.shape[-1] != width else 0)
        vars(layer.train(train)).update(zip(
            [each for each, _ in layer.named_parameters()], params, strict=True))
        output, last = layer(input, hx)
        return output, *(last if mode == "LSTM" else (last,))

    through.__name__ = through.__qualname__ = name
    through.__doc__ = f"What layers of kind {mode} give with these weights, and their last states."
    return through


lstm, gru = _layers("LSTM"), _layers("GRU")
rnn_tanh, rnn_relu = _layers("RNN_TANH"), _layers("RNN_RELU")


def _cell(kind: str) -> Callable[..., Any]:
    """One step of a kind, with weights that are given."""
    def step(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
             b_hh: Tensor | None = None) -> Any:
        cell = RNNCellBase(w_ih.shape[-1], w_hh.shape[-1], False, kind)
        vars(cell).update(weight_ih=w_ih, weight_hh=w_hh, bias_ih=b_ih, bias_hh=b_hh)
        after = cell._step(input, tuple(hx) if kind == "lstm" else (hx,))
        return after if kind == "lstm" else after[0]

    step.__name__ = step.__qualname__ = f"{'rnn_' * (kind in ('tanh', 'relu'))}{kind}_cell"
    step.__doc__ = "The state after one step with these weights."
    return step


lstm_cell, gru_cell = _cell("lstm"), _cell("gru")
rnn_tanh_cell, rnn_relu_cell = _cell("tanh"), _cell("relu")


# Normalisation, with what it divides by

def native_layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None,
                      bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm, the means, and one over the deviations."""
    axes = tuple(range(-len(normalized_shape), 0))
    variance, mean = input.var_mean(axes, True, 0)
    return (input.layer_norm(tuple(normalized_shape), weight, bias, eps), mean,
            (variance + eps).rsqrt())


def native_group_norm(
        input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int,  # noqa: N803
        HxW: int, group: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:  # noqa: N803
    """group_norm, the means of groups, and one over their deviations."""
    variance, mean = input.reshape(N, group, -1).var_mean(2, correction=0)
    return input.group_norm(group, weight, bias, eps), mean, (variance + eps).rsqrt()


def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None,
                      running_mean: Tensor | None, running_var: Tensor | None, training: bool,
                      momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, and in training the means and one over the deviations of the batch."""
    result = input.batch_norm(running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        nothing = Tensor.zeros(0, dtype=input.dtype, device=input.device)
        return result, nothing, nothing
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    variance, mean = input.var_mean(axes, correction=0)
    return result, mean, (variance + eps).rsqrt()


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """dropout, and which elements are left."""
    kept = Tensor.rand(*input.shape, device=input.device) >= (p if train in (None, True) else -1.0)
    scale = 1 / (1 - p) if train in (None, True) and p < 1 else 1.0
    return input * kept.cast(input.dtype) * scale, kept


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms over all axes but one, which keep their places; over all if `dim` is -1."""
    axes = tuple(axis for axis in range(v.ndim) if axis != dim)
    return v.norm(pow) if dim == -1 else v.norm(pow, axes, True)


# Pictures

_HOW, _OUTSIDE = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
                 align_corners: bool) -> Tensor:
    """x.grid_sample, whose modes have numbers."""
    return input.grid_sample(grid, _HOW[interpolation_mode], _OUTSIDE[padding_mode],
                             align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Tensor.affine_grid"""
    return Tensor.affine_grid(theta, size, align_corners)


# In place

def _dropped(name: str) -> Callable[..., Any]:
    function = getattr(functional, name, None) or getattr(Tensor, name)

    @functools.wraps(function, updated=())
    def in_place(input: Tensor, p: float, train: bool) -> Tensor:
        return input.assign(function(input, p, train))
    in_place.__name__ = in_place.__qualname__ = f"{name}_"
    return in_place


dropout_, alpha_dropout_ = _dropped("dropout"), _dropped("alpha_dropout")
feature_dropout_ = _dropped("feature_dropout")
feature_alpha_dropout_ = _dropped("feature_alpha_dropout")


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float,
                      norm_type: float) -> Tensor:
    """The rows that are looked up, cut where they are longer; they are assigned."""
    rows = Tensor.arange(input.shape[0], device=input.device)
    seen = (rows.unsqueeze(-1) == indices.reshape(1, -1).cast(dtypes.int32)).any(1).unsqueeze(-1)
    cut = input.detach().renorm(norm_type, 0, max_norm)
    return input.assign(seen.where(cut, input.detach()))
