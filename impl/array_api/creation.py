"""Making arrays."""
from __future__ import annotations

from typing import Any

from impl.array_api.arrays import Array, array_of, asarray
from impl.dtypes import DType, dtypes
from impl.tensor import Tensor


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def arange(start: float, /, stop: float | None = None, step: float = 1, *,
           dtype: DType | None = None, device: Any = None) -> Array:
    """Numbers from start on, below stop, a step apart."""
    first, last = (0, start) if stop is None else (start, stop)
    return Array.arange(first, last, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Zeros: what stands in memory is nobody's business."""
    return zeros(shape, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """empty in the shape of an array."""
    return zeros_like(x, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Zeros."""
    return Array.zeros(_shape(shape), dtype=dtype, device=device)


def zeros_like(x: Array, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Zeros in the shape of an array."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def ones(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Ones."""
    return Array.ones(_shape(shape), dtype=dtype, device=device)


def ones_like(x: Array, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Ones in the shape of an array."""
    return ones(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def full(shape: Any, fill_value: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """One number everywhere, which an array without axes may hold."""
    if isinstance(fill_value, Tensor):
        found = array_of(fill_value).cast(dtype or fill_value.dtype).expand(_shape(shape))
        return asarray(found, device=device)
    return Array.full(_shape(shape), fill_value, dtype=dtype, device=device)


def full_like(x: Array, /, fill_value: Any, *, dtype: DType | None = None,
              device: Any = None) -> Array:
    """One number in the shape of an array."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None,
        device: Any = None) -> Array:
    """Ones on a diagonal, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    row = Array.arange(n_rows, dtype=dtypes.int64, device=device).reshape(n_rows, 1)
    column = Array.arange(columns, dtype=dtypes.int64, device=device).reshape(1, columns)
    return (row + k == column).cast(dtype or dtypes.default_float)


def linspace(start: float, stop: float, /, num: int, *, dtype: DType | None = None,
             device: Any = None, endpoint: bool = True) -> Array:
    """Numbers from start to stop, equally far apart."""
    if endpoint or not num:
        return Array.linspace(start, stop, num, dtype=dtype, device=device)
    return Array.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Coordinates of the grid that vectors make."""
    return [array_of(one) for one in Array.meshgrid(*map(array_of, arrays), indexing=indexing)]


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The part on and below a diagonal."""
    return array_of(x).tril(k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The part on and above a diagonal."""
    return array_of(x).triu(k)
