"""The extension for linear algebra."""
from __future__ import annotations

from typing import Any, NamedTuple

from impl.array_api.arrays import Array, array_of
from impl.array_api.kinds import result_type
from impl.array_api.many import matmul, matrix_transpose, tensordot, vecdot
from impl.dtypes import DType

__all__ = ["cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul",
           "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
           "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm"]


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The triangle of Cholesky."""
    return array_of(x).cholesky(upper)


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The vector product along an axis of size 3."""
    first, second = array_of(x1), array_of(x2)
    spread: Any = first.broadcast_tensors(second)
    found: Array = spread[0].cross(spread[1], axis)
    return found


def det(x: Array, /) -> Array:
    """Determinants."""
    return array_of(x).det()


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonals of the last two axes."""
    return array_of(x).diagonal(offset, -2, -1)


def eigh(x: Array, /) -> NamedTuple:
    """Eigenvalues and vectors of symmetric matrices."""
    return array_of(x).eigh()


def eigvalsh(x: Array, /) -> Array:
    """Eigenvalues of symmetric matrices."""
    return array_of(x).eigvalsh()


def inv(x: Array, /) -> Array:
    """Inverses."""
    return array_of(x).inverse()


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:  # noqa: A002
    """Norms of the matrices of the last two axes."""
    return array_of(x).matrix_norm(ord, (-2, -1), keepdims)


def matrix_power(x: Array, n: int, /) -> Array:
    """Matrices multiplied with themselves."""
    return array_of(x).matrix_power(n)


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """How many singular values are not small."""
    return array_of(x).matrix_rank(rtol=rtol)


def outer(x1: Array, x2: Array, /) -> Array:
    """All products of elements of two vectors."""
    common = result_type(x1, x2)
    return array_of(x1).cast(common).outer(array_of(x2).cast(common))


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """The inverses of Moore and Penrose."""
    return array_of(x).pinverse(rtol=rtol)


def qr(x: Array, /, *, mode: str = "reduced") -> NamedTuple:
    """Orthogonal columns and a triangle."""
    return array_of(x).qr(mode)


def slogdet(x: Array, /) -> NamedTuple:
    """The sign of determinants, and the logarithm of their size."""
    return array_of(x).slogdet()


def solve(x1: Array, x2: Array, /) -> Array:
    """The x of x1 @ x = x2; x2 is a vector only if it has one axis."""
    first, second = array_of(x1), array_of(x2)
    if len(second.shape) == 1:
        return first.solve(second.unsqueeze(-1)).squeeze(-1)
    return first.solve(second)


def svd(x: Array, /, *, full_matrices: bool = True) -> NamedTuple:
    """U, S and Vh."""
    return array_of(x).svd_full(full_matrices)


def svdvals(x: Array, /) -> Array:
    """Singular values."""
    return array_of(x).svdvals()


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """The sums of the diagonals of the last two axes."""
    return array_of(x).diagonal(offset, -2, -1).sum(-1, dtype=dtype)


def vector_norm(x: Array, /, *, axis: Any = None, keepdims: bool = False,
                ord: float = 2) -> Array:  # noqa: A002
    """Norms of vectors along axes."""
    return array_of(x).norm(ord, axis, keepdims)
