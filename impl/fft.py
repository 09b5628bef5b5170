"""Fourier transforms of tensors, with the names and arguments of `torch.fft`.

Complex numbers are pairs of real tensors: `impl.complex`. A transform of n values is a product with
a matrix where n is small or prime, and transforms of two factors of n else, n * (n1 + n2) products
in all; of a large prime it is a convolution, by transforms of a power of two. So it is computed by
the kernels of any tensor, on any device, and gradients flow through.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from impl.complex import Complex
from impl.dtypes import dtypes
from impl.errors import ArgumentError, DTypeError, ShapeError, name_missing
from impl.host import np
from impl.tensor import Tensor

__all__ = ["Complex", "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2",
           "hfft2", "hfftn", "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2",
           "irfftn", "istft", "rfft", "rfft2", "rfftfreq", "rfftn", "stft"]

#: Transforms of so many values are one product with a matrix.
_WHOLE = 64
#: Prime numbers of values above this are no product with a matrix.
_PRIME = 512


def __getattr__(name: str) -> NoReturn:
    raise name_missing("fft", name, __all__, {})


# ---------------------------------------------------------------- the transform of one axis

#: Which parts of the results are wanted: the real ones, the others, both after each other.
_REAL, _IMAG, _BOTH = (0,), (1,), (0, 1)


def _waves(rows: int, columns: int, n: int) -> np.ndarray:
    """cos and sin of 2 pi j k / n for each j below rows and k below columns."""
    angle = 2 * np.pi / n * (np.arange(rows)[:, None] * np.arange(columns) % n)
    return np.stack([np.cos(angle), np.sin(angle)])


@functools.lru_cache(maxsize=64)
def _matrix(n: int, have: int, keep: int, given: int, wanted: tuple[int, ...], sign: int,
            double: bool) -> np.ndarray:
    """The transform as a matrix: of the first `have` values, one or two parts of each, the wanted
    parts of the first `keep` results.
    """
    cos, sin = _waves(keep, have, n)
    parts = ((cos, -sign * sin), (sign * sin, cos))
    return np.block([[parts[row][column] for column in range(given)] for row in wanted]) \
        .astype(np.float64 if double else np.float32)


@functools.lru_cache(maxsize=64)
def _turns(rows: int, columns: int, n: int, sign: int, double: bool) -> tuple[np.ndarray, ...]:
    """A product with exp(sign 2 pi i j k / n): what parts, and what the other parts, are times."""
    cos, sin = _waves(rows, columns, n)
    kind = np.float64 if double else np.float32
    return (cos[None, :, :, None].astype(kind),
            np.stack([-sign * sin, sign * sin])[..., None].astype(kind))


def _factor(n: int) -> int:
    """The largest divisor of n that is not above its root."""
    return next(one for one in range(math.isqrt(n), 0, -1) if n % one == 0)


def _columns(x: Tensor, n: int, keep: int, sign: int, wanted: Sequence[tuple[int, ...]]
             ) -> list[Tensor]:
    """The sums over j of x[j] * exp(sign 2 pi i j k / n) for each k below `keep`.

    `x` has shape (front, parts, have, tail): real parts, or both; values from `have` to n are zero.
    For each of `wanted` a result has shape (front, parts, keep, tail). A transform of first *
    second values is one of `first` for each column of a matrix, a turn, and one of `second` for
    each row.
    """
    front, given, have, tail = x.shape
    double, first = x.dtype is dtypes.float64, _factor(n)
    if first == 1 and n > _PRIME:
        return _chirped(x, n, keep, sign, wanted)
    if n <= _WHOLE or first == 1:
        flat, found = x.reshape(front, given * have, tail), list[Tensor]()
        for parts in wanted:
            matrix = Tensor(_matrix(n, have, keep, given, parts, sign, double), x.device)
            made = matrix @ flat if tail > 1 else flat.squeeze(-1) @ matrix.transpose(0, 1)
            found.append(made.reshape(front, len(parts), keep, tail))
        return found
    second = n // first
    rows = -(-have // second)
    x = x.pad((0, 0, 0, rows * second - have)) if rows * second > have else x
    x, = _columns(x.reshape(front, given, rows, second * tail), first, first, sign, [_BOTH])
    x = x.reshape(front, 2, first, second, tail)
    same, other = (Tensor(one, x.device) for one in _turns(first, second, n, sign, double))
    x = (x * same + x.flip(1) * other).transpose(2, 3).contiguous()
    last = -(-keep // first)
    results = _columns(x.reshape(front, 2, second, first * tail), second, last, sign, wanted)
    whole = [each.reshape(front, each.shape[1], last * first, tail) for each in results]
    return [each.contiguous()[:, :, :keep] for each in whole] if last * first > keep else whole


@functools.lru_cache(maxsize=16)
def _chirp(n: int, size: int, sign: int, double: bool) -> tuple[np.ndarray, ...]:
    """exp(sign pi i j j / n), as turns, and the transform of its conjugate, around 0 in `size`."""
    chirp = np.exp(sign * 1j * np.pi / n * (np.arange(n) ** 2 % (2 * n)))
    around = np.zeros(size, complex)
    around[:n] = chirp.conj()
    around[1 - n:] = chirp[:0:-1].conj()
    kind = np.float64 if double else np.float32
    return tuple(part.astype(kind) for each in (chirp, np.fft.fft(around) / size) for part in (
        each.real[None, :, None], np.stack([-each.imag, each.imag])[..., None]))


def _chirped(x: Tensor, n: int, keep: int, sign: int, wanted: Sequence[tuple[int, ...]]
             ) -> list[Tensor]:
    """A transform of a large prime number of values, as one of a power of two (L. Bluestein 1970):
    j k is (j j + k k - (k - j) (k - j)) / 2, so it is a convolution between two products.
    """
    front, given, have, tail = x.shape
    size = 1 << (n + keep - 2).bit_length()
    turns = _chirp(n, size, sign, x.dtype is dtypes.float64)
    same, other, near, far = (Tensor(one, x.device) for one in turns)

    def turned(z: Tensor, one: Tensor, two: Tensor) -> Tensor:
        return z * one + z.flip(1) * two
    x = x if given == 2 else x.pad((0, 0, 0, 0, 0, 1))
    x = turned(x, same[:, :have], other[:, :have])
    x, = _columns(x, size, size, -1, [_BOTH])
    x, = _columns(turned(x, near, far), size, keep, 1, [_BOTH])
    x = turned(x, same[:, :keep], other[:, :keep]).contiguous()
    return [x[:, parts[0]:parts[-1] + 1] for parts in wanted]


def _transformed(parts: Sequence[Tensor], axis: int, n: int, sign: int, keep: int,
                 wanted: Sequence[tuple[int, ...]] = (_REAL, _IMAG)) -> list[Tensor]:
    """Real numbers or both parts of others, transformed along an axis: what is wanted of it."""
    shape = parts[0].shape
    front, tail = shape[:axis], shape[axis + 1:]
    sizes = math.prod(front), shape[axis], math.prod(tail)
    x = parts[0].reshape(sizes[0], 1, *sizes[1:])
    if len(parts) > 1:
        x = x.cat(parts[1].reshape(sizes[0], 1, *sizes[1:]), dim=1).contiguous()
    return [each.reshape(*front, keep, *tail) for each in _columns(x, n, keep, sign, wanted)]


def _checked(operation: str, x: Any, n: int | None, dim: int) -> tuple[list[Tensor], int, int]:
    """The parts of the values, how many there are along the axis, filled up with zeros, which axis.

    Raises:
        DTypeError: it is no tensor.
        ShapeError: there are no values.
    """
    if not isinstance(x, (Complex, Tensor)):
        raise DTypeError(f"fft.{operation}", f"{type(x).__name__} is no tensor", "use Tensor(...)")
    real = x.real if isinstance(x, Complex) else x
    if not real.is_floating_point():
        real = real.float()
    name = f"fft.{operation}"
    if not real.shape:
        raise ShapeError(name, "the tensor has no axes", "give it one: x.reshape(1)")
    axis = real._axis(dim, name)
    size = _length(operation, real.shape[axis] if n is None else n, dim)
    parts = [real, x.imag] if isinstance(x, Complex) else [real]
    return [_sized(each, size, axis) for each in parts], size, axis


def _length(operation: str, size: Any, dim: int) -> int:
    if not isinstance(size, (int, np.integer)):  # r[impl errors.argument.refused]
        raise ArgumentError(f"fft.{operation}", f"n is {size!r}", "give a whole number")
    if size < 1:
        raise ShapeError(f"fft.{operation}", f"there are {size} values along axis {dim}",
                         "give 1 or more")
    return int(size)


def _sized(x: Tensor, size: int, axis: int) -> Tensor:
    have = x.shape[axis]
    if size <= have:
        return x.narrow(axis, 0, size) if size < have else x
    return x.pad([(0, size - have if each == axis else 0) for each in range(x.ndim)])


def _scaled(operation: str, z: Any, n: int, norm: str | None, inverse: bool) -> Any:
    """Divided as `norm` says.

    Raises:
        ArgumentError: it is none of the three.
    """
    if norm not in (None, "backward", "forward", "ortho"):  # r[impl errors.argument.refused]
        raise ArgumentError(f"fft.{operation}", f"norm is {norm!r}",
                            'give "backward", "forward" or "ortho"')
    if norm == "ortho":
        return z * (1 / math.sqrt(n))
    return z * (1 / n) if inverse == (norm != "forward") else z


# ---------------------------------------------------------------- the public functions

def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The transform along an axis: sums of x[j] * exp(-2 pi i j k / n)."""
    parts, size, axis = _checked("fft", input, n, dim)
    z = Complex(*_transformed(parts, axis, size, -1, size))
    found: Complex = _scaled("fft", z, size, norm, False)
    return found


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The inverse of `fft`."""
    parts, size, axis = _checked("ifft", input, n, dim)
    z = Complex(*_transformed(parts, axis, size, 1, size))
    found: Complex = _scaled("ifft", z, size, norm, True)
    return found


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The first n // 2 + 1 values of `fft` of real numbers: the others are their conjugates.

    Raises:
        DTypeError: the numbers are not real.
    """
    if isinstance(input, Complex):
        raise DTypeError("fft.rfft", "the numbers are complex", "use fft")
    parts, size, axis = _checked("rfft", input, n, dim)
    half = Complex(*_transformed(parts, axis, size, -1, size // 2 + 1))
    found: Complex = _scaled("rfft", half, size, norm, False)
    return found


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: n real numbers, 2 * (m - 1) of m unless n is given."""
    given, _, axis = _checked("irfft", input, None, dim)
    size = _length("irfft", 2 * (given[0].shape[axis] - 1) if n is None else n, dim)
    half = size // 2 + 1
    parts = [_sized(each, half, axis) for each in given]
    # A value and its conjugate, which is not given, add up to twice its real part.
    twice = np.full(half, 2, np.float64 if parts[0].dtype is dtypes.float64 else np.float32)
    twice[[0, *[-1] * (size % 2 == 0)]] = 1
    weight = Tensor(twice, parts[0].device).reshape(-1, *[1] * (parts[0].ndim - axis - 1))
    real, = _transformed([each * weight for each in parts], axis, size, 1, size, (_REAL,))
    found: Tensor = _scaled("irfft", real, size, norm, True)
    return found


def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of a signal whose later half are the conjugates of the first: real numbers."""
    return irfft(input.conj(), n, dim, _OPPOSITE.get(norm, norm))


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The inverse of `hfft`: the first half of it."""
    return rfft(input, n, dim, _OPPOSITE.get(norm, norm)).conj()


#: The norm with which the inverse transform multiplies as much.
_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward"}


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """A transform along several axes, one after another."""
    def several(input: Any, s: Sequence[int] | None = None, dim: Any = None,
                norm: str | None = None) -> Complex:
        sizes, axes = _sizes(f"{function.__name__}n", input, s, dim)
        for axis, size in zip(axes, sizes, strict=True):
            input = function(input, size, axis, norm)
        result: Complex = input
        return result

    several.__name__ = several.__qualname__ = f"{function.__name__}n"
    several.__doc__ = f"`{function.__name__}` along several axes, those of `dim`, or along all."
    return several


def _sizes(operation: str, input: Any, s: Sequence[int] | None, dim: Any) \
        -> tuple[Sequence[Any], tuple[int, ...]]:
    """How many values along which axes.

    Raises:
        ArgumentError: there are not as many sizes as axes.
    """
    axes = tuple(range(-len(s or input.shape), 0)) if dim is None else \
        (dim,) if isinstance(dim, int) else tuple(dim)
    sizes: Sequence[int | None] = s or [None] * len(axes)
    if len(sizes) != len(axes) or len(axes) > len(input.shape):
        # r[impl errors.argument.refused]
        raise ArgumentError(f"fft.{operation}", f"{len(sizes)} sizes and {len(axes)} "
                            f"axes for shape {tuple(input.shape)}",
                            "give one size for each axis in dim")
    return sizes, axes


fftn, ifftn = _along(fft), _along(ifft)


def fft2(input: Any, s: Sequence[int] | None = None, dim: Sequence[int] = (-2, -1),
         norm: str | None = None) -> Complex:
    """`fft` along two axes."""
    found: Complex = fftn(input, s, dim, norm)
    return found


def ifft2(input: Any, s: Sequence[int] | None = None, dim: Sequence[int] = (-2, -1),
          norm: str | None = None) -> Complex:
    """`ifft` along two axes."""
    found: Complex = ifftn(input, s, dim, norm)
    return found


def rfftn(input: Tensor, s: Sequence[int] | None = None, dim: Any = None,
          norm: str | None = None) -> Complex:
    """`rfft` along the last of several axes, and `fft` along the others."""
    sizes, axes = _sizes("rfftn", input, s, dim)
    found: Complex = rfft(input, sizes[-1], axes[-1], norm)
    return fftn(found, None if s is None else sizes[:-1], axes[:-1], norm) if axes[:-1] else found


def irfftn(input: Any, s: Sequence[int] | None = None, dim: Any = None,
           norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`."""
    sizes, axes = _sizes("irfftn", input, s, dim)
    if axes[:-1]:
        input = ifftn(input, None if s is None else sizes[:-1], axes[:-1], norm)
    return irfft(input, sizes[-1], axes[-1], norm)


def hfftn(input: Any, s: Sequence[int] | None = None, dim: Any = None,
          norm: str | None = None) -> Tensor:
    """`hfft` along the last of several axes, and `fft` along the others: real numbers."""
    return irfftn(input.conj(), s, dim, _OPPOSITE.get(norm, norm))


def ihfftn(input: Tensor, s: Sequence[int] | None = None, dim: Any = None,
           norm: str | None = None) -> Complex:
    """The inverse of `hfftn`: the first half of it."""
    return rfftn(input, s, dim, _OPPOSITE.get(norm, norm)).conj()


def hfft2(input: Any, s: Sequence[int] | None = None, dim: Sequence[int] = (-2, -1),
          norm: str | None = None) -> Tensor:
    """`hfftn` along two axes."""
    return hfftn(input, s, dim, norm)


def ihfft2(input: Tensor, s: Sequence[int] | None = None, dim: Sequence[int] = (-2, -1),
           norm: str | None = None) -> Complex:
    """`ihfftn` along two axes."""
    return ihfftn(input, s, dim, norm)


def rfft2(input: Tensor, s: Sequence[int] | None = None, dim: Sequence[int] = (-2, -1),
          norm: str | None = None) -> Complex:
    """`rfftn` along two axes."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Any, s: Sequence[int] | None = None, dim: Sequence[int] = (-2, -1),
           norm: str | None = None) -> Tensor:
    """`irfftn` along two axes."""
    return irfftn(input, s, dim, norm)


def fftfreq(n: int, d: float = 1.0) -> Tensor:
    """The frequency of each value of `fft`, for samples that are `d` apart."""
    return Tensor(np.fft.fftfreq(_count("fftfreq", n), d).astype(np.float32))


def rfftfreq(n: int, d: float = 1.0) -> Tensor:
    """The frequency of each value of `rfft`."""
    return Tensor(np.fft.rfftfreq(_count("rfftfreq", n), d).astype(np.float32))


def _count(operation: str, n: int) -> int:
    if not isinstance(n, (int, np.integer)) or n < 1:  # r[impl errors.argument.refused]
        raise ArgumentError(f"fft.{operation}", f"n is {n!r}", "give a whole number from 1 on")
    return int(n)


def _shifted(input: Any, dim: Any, up: bool) -> Any:
    axes = tuple(range(len(input.shape))) if dim is None else \
        (dim,) if isinstance(dim, int) else tuple(dim)
    steps = [input.shape[axis] // 2 if up else -(input.shape[axis] // 2) for axis in axes]
    for axis, step in zip(axes, steps, strict=True):
        input = input.roll(step, axis)
    return input


def fftshift(input: Any, dim: Any = None) -> Any:
    """Frequency 0 in the middle."""
    return _shifted(input, dim, True)


def ifftshift(input: Any, dim: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _shifted(input, dim, False)


def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
         window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect",
         normalized: bool = False, onesided: bool = True,
         return_complex: bool | None = None) -> Any:
    """The transforms of windows along the last axis: (..., frequencies, windows).

    `Complex`, or with `return_complex=False` a real tensor with a last axis of both parts.

    Raises:
        ArgumentError: the window has another length than `win_length`, or it is above `n_fft`.
    """
    hop, length = hop_length or n_fft // 4, win_length or n_fft
    shape = Tensor.ones(length) if window is None else window
    if shape.shape != (length,) or length > n_fft:  # r[impl errors.argument.refused]
        raise ArgumentError("stft", f"a window of shape {shape.shape}, win_length {length} and "
                            f"n_fft {n_fft}", "give a window of win_length numbers, at most n_fft")
    left = (n_fft - length) // 2
    shape = shape.pad((left, n_fft - length - left))
    x = input.pad((n_fft // 2, n_fft // 2), mode=pad_mode) if center else input
    frames = x.unfold(-1, n_fft, hop) * shape
    found: Complex = (rfft if onesided else fft)(frames, norm="ortho" if normalized else None)
    found = found.transpose(-1, -2)
    return found if return_complex is not False else found.real.stack(found.imag, dim=-1)


def istft(input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
          window: Tensor | None = None, center: bool = True, normalized: bool = False,
          onesided: bool = True, length: int | None = None, return_complex: bool = False) -> Any:
    """The signal (..., samples) of which `stft` with these settings gives (..., frequencies,
    windows): windows are added up, and divided by the sum of their squares.

    Raises:
        ArgumentError: the window has another length, or somewhere no window has a value.
    """
    if isinstance(input, Tensor):
        input = Complex(input[..., 0], input[..., 1])
    hop, size = hop_length or n_fft // 4, win_length or n_fft
    shape = Tensor.ones(size) if window is None else window
    if shape.shape != (size,) or size > n_fft:  # r[impl errors.argument.refused]
        raise ArgumentError("istft", f"a window of shape {shape.shape}, win_length {size} and "
                            f"n_fft {n_fft}", "give a window of win_length numbers, at most n_fft")
    left = (n_fft - size) // 2
    shape = shape.pad((left, n_fft - size - left))
    norm = "ortho" if normalized else None
    spectra = input.transpose(-1, -2)
    frames: Any = irfft(spectra, n_fft, norm=norm) if onesided else ifft(spectra, norm=norm)
    frames = frames if return_complex else frames.real if isinstance(frames, Complex) else frames
    count, total = frames.shape[-2], n_fft + hop * (frames.shape[-2] - 1)
    places = Tensor(np.arange(count)[:, None] * hop + np.arange(n_fft)).cast("int32").flatten()

    def added(each: Tensor) -> Tensor:
        flat = each.reshape(*each.shape[:-2], count * n_fft)
        found: Tensor = flat.zeros_like()[..., :1].expand(*flat.shape[:-1], total).index_add(
            -1, places, flat)
        return found
    weight = added(shape.square().expand(count, n_fft))
    first = n_fft // 2 if center else 0
    last = total - first if length is None else min(total, first + length)
    if bool((weight[first:last] < 1e-11).any().item()):  # r[impl errors.argument.refused]
        raise ArgumentError("istft", "somewhere no window has a value",
                            "use a window and a hop_length that cover all samples")
    inside = slice(first, last)
    windowed = frames * shape
    found = Complex(added(windowed.real), added(windowed.imag)) if return_complex \
        else added(windowed)
    found = found[..., inside] / weight[inside]
    missing = 0 if length is None else max(0, length - found.shape[-1])
    return found.pad((0, missing)) if missing and isinstance(found, Tensor) else found
