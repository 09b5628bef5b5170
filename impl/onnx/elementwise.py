"""Operators that compute each element alone."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from impl.dtypes import dtypes
from impl.host import np
from impl.onnx.narrow import narrowed
from impl.onnx.operators import Host, Value, dtype_of, host_array, operator, tensor_of
from impl.tensor import Tensor

#: Operators with one input that are a method of tensors.
_ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": Tensor.abs, "Neg": Tensor.neg, "Sign": Tensor.sign, "Reciprocal": Tensor.reciprocal,
    "Sqrt": Tensor.sqrt, "Exp": Tensor.exp, "Log": Tensor.log, "Erf": Tensor.erf,
    "Sin": Tensor.sin, "Cos": Tensor.cos, "Tan": Tensor.tan, "Asin": Tensor.asin,
    "Acos": Tensor.acos, "Atan": Tensor.atan, "Sinh": Tensor.sinh, "Cosh": Tensor.cosh,
    "Tanh": Tensor.tanh, "Asinh": Tensor.asinh, "Acosh": Tensor.acosh, "Atanh": Tensor.atanh,
    "Ceil": Tensor.ceil, "Floor": Tensor.floor, "Round": Tensor.round, "IsNaN": Tensor.isnan,
    "Not": Tensor.logical_not, "BitwiseNot": Tensor.bitwise_not, "Relu": Tensor.relu,
    "Sigmoid": Tensor.sigmoid, "Softplus": Tensor.softplus, "Softsign": Tensor.softsign,
    "HardSwish": Tensor.hardswish, "Mish": Tensor.mish}


def _quotient(x: Tensor, y: Tensor) -> Tensor:
    return x.div(y, rounding_mode="trunc") if x.dtype.kind in "iu" else x / y


#: Operators with two inputs, which are broadcast.
_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": Tensor.add, "Sub": Tensor.sub, "Mul": Tensor.mul, "Div": _quotient,
    "And": Tensor.logical_and, "Or": Tensor.logical_or, "Xor": Tensor.logical_xor,
    "Equal": Tensor.eq, "Greater": Tensor.gt, "GreaterOrEqual": Tensor.ge, "Less": Tensor.lt,
    "LessOrEqual": Tensor.le, "BitwiseAnd": Tensor.bitwise_and, "BitwiseOr": Tensor.bitwise_or,
    "BitwiseXor": Tensor.bitwise_xor}
#: Operators with any number of inputs, and what joins two of them.
_MANY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Max": Tensor.maximum, "Min": Tensor.minimum, "Sum": Tensor.add}


#: The greatest number of float32.
_MOST = 3.4028234663852886e38


def _lined_up(x: Tensor, y: Tensor, axis: int | None) -> Tensor:
    """The second operand, as before version 7: its axes are those of the first from one on."""
    if axis is None or y.ndim == 0:
        return y
    after = x.ndim - axis % x.ndim - y.ndim
    return y.reshape(*y.shape, *(1,) * after)


def _with_one(method: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def one(x: Tensor) -> Tensor:
        return method(x)
    return one


def _with_two(join: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def two(x: Tensor, y: Tensor) -> Tensor:
        return join(x, y)
    return two


def _with_two_lined_up(join: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def two(x: Tensor, y: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        return join(x, _lined_up(x, y, axis))
    return two


def _with_many(join: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def many(*given: Tensor) -> Tensor:
        return functools.reduce(join, given)
    return many


for _name, _method in _ONE.items():
    operator(_name)(_with_one(_method))
for _name, _join in _TWO.items():
    operator(_name, 7)(_with_two(_join))
    operator(_name, 1)(_with_two_lined_up(_join))
for _name, _join in _MANY.items():
    operator(_name)(_with_many(_join))


@operator("Mean")
def mean_of(*given: Tensor) -> Tensor:
    return functools.reduce(Tensor.add, given) / len(given)


@operator("Pow", 7)
def raised(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.kind == "f" or y.dtype.kind != "f":
        return x.pow(y.cast(x.dtype))
    return x.cast(dtypes.float64).pow(y.cast(dtypes.float64)).cast(x.dtype)


@operator("Pow", 1)
def power_1(x: Tensor, y: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    return x.pow(_lined_up(x, y, axis))


@operator("Mod")
def modulo(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    return x.fmod(y) if fmod else x % y


@operator("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    return x << y if direction == "LEFT" else x >> y


@operator("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = x.isinf()
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


@operator("Where")
def where_else(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return condition.where(x, y)


@operator("Clip", 11)
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


@operator("Clip", 1)
def clip_1(x: Tensor, *, min: float = -_MOST, max: float = _MOST) -> Tensor:
    return x.clamp(min, max)


# Activations


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return x.leaky_relu(alpha)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x.elu(alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x.celu(alpha)


@operator("Selu")
def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625,
         gamma: float = 1.05070102214813232421875) -> Tensor:
    return x.selu(alpha, gamma)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (x * alpha + beta).clamp(0, 1)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return (x > alpha).where(x, 0)


@operator("PRelu", 7)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return (x < 0).where(x * slope, x)


@operator("PRelu", 1)
def prelu_1(x: Tensor, slope: Tensor) -> Tensor:
    if slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return prelu(x, slope)


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return (x < -lambd).where(x + bias, (x > lambd).where(x - bias, 0)).cast(x.dtype)


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return x.gelu(approximate)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid()


@operator("Dropout", 12)
def dropout(x: Tensor, ratio: Host | None = None, training_mode: Host | None = None, *,
            seed: int = 0, results: int = 1) -> Any:
    """Nothing is dropped, unless the model says that it is being trained."""
    share = 0.5 if ratio is None else float(ratio)
    kept = x.ones_like(dtype=dtypes.bool)
    if training_mode is not None and training_mode.item() and share:
        kept = x.rand_like(dtype=dtypes.float32) >= share
        x = kept.where(x / (1 - share), 0)
    return (x, kept)[:results]


@operator("Dropout", 1)
def dropout_1(x: Tensor, *, ratio: float = 0.5, is_test: int = 0,
              results: int = 1) -> Any:
    return (x, x.ones_like(dtype=dtypes.bool))[:results]


# Element types


@operator("Cast", 6)
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up",
         types: tuple[list[int], list[int]] = ([], [])) -> Tensor:
    return narrowed(x, to, bool(saturate), round_mode)


@operator("Cast", 1)
def cast_1(x: Tensor, *, to: str) -> Tensor:
    kinds = {"FLOAT": dtypes.float32, "DOUBLE": dtypes.float64, "BOOL": dtypes.bool}
    return x.cast(kinds.get(to) or getattr(dtypes, to.lower()))


@operator("CastLike")
def cast_like(x: Tensor, like: Value, *, saturate: int = 1, round_mode: str = "up",
              types: tuple[list[int], list[int]] = ([], [])) -> Tensor:
    known = types[0][1] if len(types[0]) > 1 else 0
    if known:
        return narrowed(x, known, bool(saturate), round_mode)
    return x.cast(tensor_of(like).dtype)


@operator("BitCast")
def bitcast(x: Tensor, *, to: int) -> Tensor:
    return x.bitcast(dtype_of(to))


# Random numbers


def _random(kind: str, shape: Any, dtype: int, seed: Any, **named: float) -> Tensor:
    made = Tensor.randn(*shape) * named["scale"] + named["mean"] if kind == "normal" \
        else Tensor.rand(*shape) * (named["high"] - named["low"]) + named["low"]
    return made.cast(dtype_of(dtype))


@operator("RandomNormal")
def random_normal(*, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
                  seed: float | None = None) -> Tensor:
    return _random("normal", shape, dtype, seed, mean=mean, scale=scale)


@operator("RandomUniform")
def random_uniform(*, shape: list[int], dtype: int = 1, high: float = 1.0, low: float = 0.0,
                   seed: float | None = None) -> Tensor:
    return _random("uniform", shape, dtype, seed, high=high, low=low)


@operator("RandomNormalLike")
def random_normal_like(x: Tensor, *, dtype: int = 0, mean: float = 0.0, scale: float = 1.0,
                       seed: float | None = None) -> Tensor:
    made = _random("normal", x.shape, dtype or 1, seed, mean=mean, scale=scale)
    return made if dtype else made.cast(x.dtype)


@operator("RandomUniformLike")
def random_uniform_like(x: Tensor, *, dtype: int = 0, high: float = 1.0, low: float = 0.0,
                        seed: float | None = None) -> Tensor:
    made = _random("uniform", x.shape, dtype or 1, seed, high=high, low=low)
    return made if dtype else made.cast(x.dtype)


@operator("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int = 0, seed: float | None = None) -> Tensor:
    return (x.rand_like(dtype=dtypes.float32) < x).cast(dtype_of(dtype) if dtype else x.dtype)


@operator("Multinomial")
def multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1,
                seed: float | None = None) -> Tensor:
    return x.exp().multinomial(sample_size, replacement=True).cast(dtype_of(dtype))


# Constants


@operator("Constant")
def constant(*, value: Any = None, value_float: float | None = None, value_int: int | None = None,
             value_floats: list[float] | None = None, value_ints: list[int] | None = None,
             sparse_value: Any = None, value_string: Any = None,
             value_strings: Any = None) -> Value:
    if value_float is not None or value_floats is not None:
        return np.array(value_float if value_floats is None else value_floats, np.float32)
    if value_int is not None or value_ints is not None:
        return np.array(value_int if value_ints is None else value_ints, np.int64)
    return host_array(value if value is not None else sparse_value)


@operator("Identity")
def same(x: Value) -> Value:
    return x
