"""Integers that stand for real numbers: value = (integer - zero point) * scale."""
from __future__ import annotations

from impl.dtypes import dtypes
from impl.onnx.layers import convolution
from impl.onnx.narrow import FLOATS, INTEGERS, narrowed
from impl.onnx.operators import DTYPES, dtype_of, operator
from impl.onnx.products import shifted
from impl.tensor import Tensor

_Types = tuple[list[int], list[int]]
_UINT8 = 2


def _beside(parameter: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point beside the elements that it is for: one, one for each place along an
    axis, or one for each block.
    """
    if parameter.ndim == 0 or parameter.numel() == 1:
        return parameter.reshape(())
    axis %= x.ndim
    if parameter.ndim == 1 and not block:
        return parameter.reshape(-1, *(1,) * (x.ndim - axis - 1))
    block = block or -(-x.shape[axis] // parameter.shape[axis])
    return parameter.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


@operator("DequantizeLinear")
def dequantize(x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1,
               block_size: int = 0, output_dtype: int = 0) -> Tensor:
    factor = _beside(scale, x, axis, block_size)
    wide = x.cast(dtypes.float32)
    if zero is not None:
        wide = wide - _beside(zero, x, axis, block_size).cast(dtypes.float32)
    return (wide * factor.cast(dtypes.float32)).cast(
        dtype_of(output_dtype) if output_dtype else scale.dtype)


@operator("QuantizeLinear")
def quantize(x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1,
             block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
             types: _Types = ([], [])) -> Tensor:
    number = output_dtype or (types[0][2] if len(types[0]) > 2 else 0)
    if not number:
        number = _UINT8 if zero is None else next(
            one for one, dtype in DTYPES.items() if dtype is zero.dtype)
    kind = dtype_of(precision) if precision else \
        dtypes.float32 if x.dtype.kind != "f" else x.dtype
    real = x.cast(kind) / _beside(scale, x, axis, block_size).cast(kind)
    if number in FLOATS:
        return narrowed(real if zero is None else real + _beside(zero, x, axis, block_size),
                        number, bool(saturate))
    whole = real.round().cast(dtypes.float32)
    if zero is not None:
        whole = whole + _beside(zero, x, axis, block_size).cast(dtypes.float32)
    return _saturated(whole, number)


def _saturated(x: Tensor, number: int) -> Tensor:
    """Whole numbers, those beyond the ends of an integer type at its ends."""
    if number in INTEGERS:
        bits, signed = INTEGERS[number]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    else:
        low, high = int(dtype_of(number).min), int(dtype_of(number).max)
    return x.clamp(low, high).cast(dtype_of(number))


def _requantized(whole: Tensor, factor: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Sums of products of integers, in the scale of the result."""
    real = (whole.cast(dtypes.float32) * factor / scale.cast(dtypes.float32)).round()
    number = next(one for one, dtype in DTYPES.items() if dtype is zero.dtype)
    return _saturated(real + zero.cast(dtypes.float32), number)


@operator("QLinearMatMul")
def matmul_quantized(a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
                     b_zero: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    rows = a_scale.cast(dtypes.float32)
    factor = (rows.unsqueeze(-1) if a_scale.ndim == 1 and a_scale.numel() > 1 else rows) \
        * b_scale.cast(dtypes.float32)
    rows_apart = a_zero.ndim == 1 and a_zero.numel() > 1
    return _requantized(shifted(a, a_zero, rows_apart) @ shifted(b, b_zero), factor, scale, zero)


@operator("QLinearConv")
def convolution_quantized(x: Tensor, x_scale: Tensor, x_zero: Tensor, weight: Tensor,
                          weight_scale: Tensor, weight_zero: Tensor, scale: Tensor, zero: Tensor,
                          bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
                          dilations: list[int] | None = None, group: int = 1,
                          kernel_shape: list[int] | None = None, pads: list[int] | None = None,
                          strides: list[int] | None = None) -> Tensor:
    whole = convolution_of_integers(x, weight, x_zero, weight_zero, auto_pad=auto_pad,
                                    dilations=dilations, group=group, kernel_shape=kernel_shape,
                                    pads=pads, strides=strides)
    form = (-1, *(1,) * (x.ndim - 2))
    if bias is not None:
        whole = whole + bias.reshape(*form)
    factor = (x_scale * weight_scale).cast(dtypes.float32)
    return _requantized(whole, factor.reshape(*form) if factor.numel() > 1 else factor.reshape(()),
                        scale, zero)


@operator("ConvInteger")
def convolution_of_integers(x: Tensor, weight: Tensor, x_zero: Tensor | None = None,
                            weight_zero: Tensor | None = None, *, auto_pad: str = "NOTSET",
                            dilations: list[int] | None = None, group: int = 1,
                            kernel_shape: list[int] | None = None, pads: list[int] | None = None,
                            strides: list[int] | None = None) -> Tensor:
    zero = weight_zero
    if zero is not None and zero.numel() > 1:
        zero = zero.reshape(-1, *(1,) * (weight.ndim - 1))
    elif zero is not None:
        zero = zero.reshape(())
    return convolution(shifted(x, None if x_zero is None else x_zero.reshape(())),
                       shifted(weight, zero), auto_pad=auto_pad, dilations=dilations, group=group,
                       kernel_shape=kernel_shape, pads=pads, strides=strides)


