"""Linear algebra: LAPACK on the host, by NumPy; gradients by formulas. Chapter: spec/tensor.md.

A decomposition computes its matrix, as printing does; where that has no value yet, in a function
that is traced, it becomes a LOOP that asks the host when the schedule runs. What comes of it says
itself what its gradient is: by a formula of how it changes with the matrix, written in tensors and
in the results themselves. So the formula has a derivative too, and so on.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from impl.dtypes import DType, dtypes, finfo, promoted
from impl.effects import Placeholder, is_lost
from impl.errors import ArgumentError, DTypeError, ShapeError
from impl.gradient import Custom, compute_gradients, nodes
from impl.gradient.custom import with_gradient
from impl.host import np
from impl.ir import Ops, UOp
from impl.loops import on_host
from impl.tensor.losses import Losses
from impl.tensor.namespaces import LINALG, Namespace

#: What to do instead of a decomposition in a captured function, and why.
_ON_HOST = ("call it before, and pass the result as an argument",
            "NumPy computes it from the values, at once")


class Slogdet(NamedTuple):
    """The sign of a determinant, and the logarithm of its size."""

    sign: Any
    logabsdet: Any


class QR(NamedTuple):
    """A matrix with orthogonal columns, and a triangle."""

    Q: Any
    R: Any


class SVD(NamedTuple):
    """Two matrices with orthogonal columns, and the singular values between them."""

    U: Any
    S: Any
    Vh: Any


class Eigh(NamedTuple):
    """Eigenvalues in ascending order, and their vectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class Lstsq(NamedTuple):
    """What `lstsq` gives."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


#: (inputs, changes of the inputs, results) -> changes of the results; linear in the changes.
Change = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]


def following(inputs: Sequence[Any], constants: Sequence[Any], change: Change) -> list[Any]:
    """Results of the host, with the gradients of what was computed from the inputs.

    `change` says how each result changes with the inputs. It is made of tensors, of the results
    too, so it can be differentiated itself. It must be a function of its arguments alone.
    """
    values = tuple(each.uop for each in inputs)  # now: an input may be written to later

    def pull(number: int, gradient: UOp) -> list[UOp | None]:
        # r[impl tensor.linalg.slope+2]: the results again, which have gradients of their own
        given = [each._wrap(value) for each, value in zip(inputs, values, strict=True)]
        places = [Placeholder(each.device, each.dtype, each.shape).leaf(each.shape)
                  for each in given]
        small = [each._wrap(place) for each, place in zip(given, places, strict=True)]
        part = change(given, small, following(given, constants, change))[number].uop
        bits = functools.reduce(int.__or__, (place.reads for place in places))
        # What is linear in the changes is turned round by its own gradient.
        found = compute_gradients({part: gradient}, places, bits)
        return [found.get(place) for place in places]
    return [each._wrap(with_gradient(each.uop, Custom(values, functools.partial(pull, number))))
            for number, each in enumerate(constants)]


class Linalg(Losses):
    """Matrices of the last two axes: inverses, determinants, decompositions."""

    __slots__ = ()

    linalg = Namespace("linalg", LINALG)

    def _check_matrices(self, name: str, square: bool) -> None:
        """Refuse what has no matrices.

        Raises:
            ShapeError: they are no (square) matrices.
            DTypeError: they are bools.
        """
        if len(self.shape) < 2 or square and self.shape[-1] != self.shape[-2]:
            raise ShapeError(name, f"shape {self.shape} is not that of "
                             f"{'square ' if square else ''}matrices", "give (..., n, n)"
                             if square else "give (..., rows, columns)")
        if self.dtype.kind == "b":
            raise DTypeError(name, "bools have no linear algebra", "use .float()")

    def _matrices(self, name: str, square: bool = True) -> np.ndarray:
        """The elements, computed, in float64."""
        self._check_matrices(name, square)
        return self.known(name, *_ON_HOST).astype(np.float64)

    def _computed(self, name: str, function: Callable[..., Sequence[np.ndarray]], *settings: Any,
                  beside: Sequence[Self] = (), square: bool = True,
                  elements: bool = False) -> list[Self]:
        """What a function of NumPy gives for these matrices and the tensors `beside`: now, or,
        where their values are not there yet, when the schedule runs. `elements`: for each of them.
        """
        # r[impl tensor.linalg.host+3]
        if not elements:
            self._check_matrices(name, square)
        given = [self, *beside]
        if not any(is_lost(each.uop) for each in given):
            arrays = [each.known(name, *_ON_HOST).astype(np.float64) for each in given]
            return [self._host(each) for each in self._called(name, function, *arrays, *settings)]
        # The forms are those that it gives for the simplest matrices.
        simple = [np.ones(each.shape) if elements else
                  np.broadcast_to(np.eye(each.shape[-2], each.shape[-1]), each.shape)
                  for each in given]
        forms = [(self._dtype_of(each), each.shape) for each in function(*simple, *settings)]
        wide = dtypes.float64 if self._result_float() is dtypes.float64 else dtypes.float32
        # Each in memory of its own, also a number.
        made = on_host((name, function, *settings), [
            UOp(Ops.CONTIGUOUS, wide, (nodes.cast(each.uop, wide),)) for each in given],
            [(wide if dtype.kind == "f" else dtype, shape) for dtype, shape in forms])
        return [self._wrap(nodes.cast(each, dtype)) for each, (dtype, _) in
                zip(made, forms, strict=True)]

    def _dtype_of(self, array: np.ndarray) -> DType:
        """What a result of the host becomes."""
        return self._result_float() if array.dtype.kind == "f" else \
            dtypes.bool if array.dtype.kind == "b" else dtypes.int32

    def _host(self, array: np.ndarray) -> Self:
        """An array as a constant of this kind; a number, too, in memory: it has a history."""
        return self.__class__(np.asarray(array), self.device, self._dtype_of(array))

    def _called(self, name: str, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What a function of NumPy gives.

        Raises:
            ArgumentError: it cannot: a matrix is singular, or not positive.
        """
        try:
            return function(*given, **named)
        except np.linalg.LinAlgError as error:  # r[impl tensor.linalg.host+3]
            raise ArgumentError(name, f"of {self.shape}: {error}",
                                "look at the matrix: .pinverse() and .lstsq() take any") from error

    def _variable(self) -> Self:
        """A float tensor of the same value, for formulas; the other one may be written to."""
        return self._wrap(nodes.cast(self.uop, self._result_float()))

    # Inverses and determinants

    def inverse(self) -> Self:
        """The inverse of each matrix."""
        x = self._variable()
        found = self._computed("inverse", _inverse)
        result: Self = following([x], found, lambda _, d, y: [-(y[0] @ d[0] @ y[0])])[0]
        return result

    def pinverse(self, rcond: float | None = None, atol: Any = None, rtol: Any = None,
                 hermitian: bool = False) -> Self:
        """The inverse of Moore and Penrose of any matrix.

        Singular values up to a limit count as 0: `atol`, or `rtol` (or rcond) times the greatest.
        """
        x = self._variable()
        array = self._matrices("pinverse", False)
        if hermitian:
            array = np.tril(array) + np.tril(array, -1).swapaxes(-1, -2)
        u, s, vh = np.linalg.svd(array, full_matrices=False)
        limit = self._least_value(s, atol, rcond if rtol is None else rtol)
        kept = np.where(s > limit, 1 / np.where(s == 0, 1, s), 0)
        p = self._host((vh.swapaxes(-1, -2) * kept[..., None, :]) @ u.swapaxes(-1, -2))

        def change(given: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (x,), (d,), (p,) = given, changes, y
            if hermitian:
                x, d = x.tril() + x.tril(-1).mT, (d + d.mT) * 0.5
            left, right = x @ p, p @ x
            return [(x._eye(right) - right) @ d.mT @ p.mT @ p - p @ d @ p
                    + p @ p.mT @ d.mT @ (x._eye(left) - left)]
        result: Self = following([x], [p], change)[0]
        return result

    def _least_value(self, sizes: np.ndarray, atol: Any, rtol: Any) -> np.ndarray:
        """Up to where a singular value counts as none."""
        absolute, relative = (None if one is None else np.asarray(
            one.numpy() if isinstance(one, Linalg) else one, np.float64)[..., None]
            for one in (atol, rtol))
        if relative is None:
            usual = max(self.shape[-2:], default=0) * float(
                finfo(self._result_float()).eps)
            relative = np.asarray(usual if absolute is None or not (absolute > 0).all() else 0.0)
        greatest = np.max(sizes, -1, keepdims=True, initial=0)
        return np.maximum(relative * greatest, 0.0 if absolute is None else absolute)

    def _eye(self, like: Self) -> Self:
        return self._host(np.eye(like.shape[-1]))

    def det(self) -> Self:
        """The determinant of each matrix; a second derivative needs one that can be inverted."""
        x = self._variable()

        def change(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (d,), (size, cofactors) = changes, y
            grown = (cofactors * d).sum((-2, -1))
            wide = (slice(None),) * len(size.shape) + (None, None)
            return [grown, (cofactors * grown[wide] - cofactors @ d.mT @ cofactors) / size[wide]]
        result: Self = following([x], self._computed("det", _det), change)[0]
        return result

    def slogdet(self) -> Slogdet:
        """The sign of the determinant of each matrix, and the logarithm of its size."""
        x = self._variable()
        sign, size, inverse = self._computed("slogdet", _slogdet)
        found = following([x], [size, inverse], lambda _, d, y: [
            (y[1].mT * d[0]).sum((-2, -1)), -(y[1] @ d[0] @ y[1])])[0]
        return Slogdet(sign, found)

    def logdet(self) -> Self:
        """The logarithm of the determinant; NaN where that is negative."""
        sign, size = self.slogdet()
        found: Self = (sign < 0).where(math.nan, size)
        return found

    def solve(self, other: Self, left: bool = True) -> Self:
        """The x of self @ x = other; `left=False`: of x @ self = other."""
        if not left:
            return self.mT.solve(other.mT).mT
        vector = len(other.shape) == 1 or other.shape == self.shape[:-1]
        wide = promoted(self._result_float(), other._result_float())
        x, e = self.cast(wide), other.cast(wide)
        e = e.unsqueeze(-1) if vector else e
        found = x._computed("solve", _solve, beside=[e])
        result: Self = following([x, e], found, lambda _, d, y: [
            y[1] @ (d[1] - d[0] @ y[0]), -(y[1] @ d[0] @ y[1])])[0]
        return result.squeeze(-1) if vector else result

    def lstsq(self, other: Self, rcond: float | None = None) -> Lstsq:
        """The x for which self @ x is nearest to other, the smallest such x."""
        array = self._matrices("lstsq", False)
        inverse = self.pinverse(rcond)
        solution = inverse @ other
        values = self._host(np.linalg.svd(array, compute_uv=False))
        rank = self._host(np.linalg.matrix_rank(array))
        rows, columns = self.shape[-2:]
        full = rows > columns and bool((rank.numpy() == columns).all())
        rest = (self @ solution - other).square().sum(-2) if full else self._host(np.zeros((0,)))
        return Lstsq(solution, rest, rank, values)

    # Decompositions

    def cholesky(self, upper: bool = False) -> Self:
        """The lower triangle whose product with its transpose is a positive matrix."""
        x = self._variable()

        def change(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (d,), (low, inverse) = changes, y
            inner = inverse @ ((d + d.mT) * 0.5) @ inverse.mT
            half = inner.tril(-1) + inner * inner._eye(inner) * 0.5
            return [low @ half, -(half @ inverse)]
        found: Self = following([x], self._computed("cholesky", _cholesky), change)[0]
        return found.mT if upper else found

    def cholesky_inverse(self, upper: bool = False) -> Self:
        """The inverse of the matrix of which this is the triangle of Cholesky."""
        return (self.mT @ self if upper else self @ self.mT).inverse()

    def cholesky_solve(self, other: Self, upper: bool = False) -> Self:
        """The x of A @ x = self, where `other` is the triangle of Cholesky of A."""
        return (other.mT @ other if upper else other @ other.mT).solve(self)

    def triangular_solve(self, other: Self, upper: bool = True, left: bool = True,
                         unitriangular: bool = False) -> Self:
        """The x of T @ x = self, where T is a triangle of `other`; the rest of it is not read."""
        part = other.triu() if upper else other.tril()
        if unitriangular:
            part = other.triu(1) if upper else other.tril(-1)
            part = part + part._eye(part)
        return part.solve(self, left)

    def qr(self, mode: str = "reduced") -> QR:
        """Orthogonal columns and a triangle, whose product is the matrix."""
        x = self._variable()
        rows, columns = self.shape[-2:]
        if mode == "r":
            return QR(self._host(np.zeros((0,))), self._computed("qr", _qr, mode, square=False)[1])
        if 0 < rows < columns:  # the first columns have the same Q
            q, r = self[..., :rows].qr()
            return QR(q, r.cat(q.mT @ self[..., rows:], dim=-1))
        parts = self._computed("qr", _qr, "complete" if mode == "complete" else "reduced",
                               square=False)
        if len(parts) == 2:
            return QR(*following([x], parts, _unknown))

        def change(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (d,), (q, r, inverse) = changes, y
            inner = q.mT @ d @ inverse
            low = inner.tril(-1)
            turn = low - low.mT
            upper = inner - turn
            return [q @ turn + (d @ inverse - q @ inner), upper @ r, -(inverse @ upper)]
        return QR(*following([x], parts, change)[:2])

    def eigh(self, UPLO: str = "L") -> Eigh:  # noqa: N803
        """Eigenvalues and vectors of a symmetric matrix, of which one triangle is read.

        The gradient is symmetric, as in PyTorch: both triangles are taken to change together.
        """
        x = self._variable()

        def change(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (d,), (values, v) = changes, y
            inner = v.mT @ ((d + d.mT) * 0.5) @ v
            gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
            return [inner.diagonal(0, -2, -1), v @ (_inverse_or_zero(gaps) * inner)]
        return Eigh(*following([x], self._computed("eigh", _eigh, UPLO), change))

    def eigvalsh(self, UPLO: str = "L") -> Self:  # noqa: N803
        """The eigenvalues of a symmetric matrix, in ascending order."""
        values: Self = self.eigh(UPLO).eigenvalues
        return values

    def svd(self, some: bool = True, compute_uv: bool = True) -> tuple[Self, Self, Self]:
        """U, S and V, of which U * S @ V.mT is the matrix, as PyTorch's method gives them.

        `Tensor.linalg.svd` gives V.mT, and full matrices unless it is told otherwise.
        """
        left, size, right = self.svd_full(not some)
        return (left, size, right.mT) if compute_uv else (
            left.zeros_like(), size, right.mT.zeros_like())

    def svd_full(self, full_matrices: bool = True) -> SVD:
        """U, S and the transpose of V, of which U * S @ Vh is the matrix."""
        x = self._variable()
        left, size, right = self._computed("svd", _svd, full_matrices, square=False)
        count = size.shape[-1]
        first, second = left[..., :count], right[..., :count, :]
        one, values, two = following([x], [first, size, second], _change_of_svd)
        if full_matrices and max(left.shape[-1], right.shape[-2]) > count:
            one, two = one.cat(left[..., count:], dim=-1), two.cat(right[..., count:, :], dim=-2)
        return SVD(one, values, two)

    def svdvals(self) -> Self:
        """The singular values, the greatest first."""
        values: Self = self.svd_full(False).S
        return values

    def matrix_rank(self, tol: Any = None, hermitian: bool = False, atol: Any = None,
                    rtol: Any = None) -> Self:
        """How many singular values are above a limit: `tol` (or atol), or rtol times the greatest.
        """
        array = self._matrices("matrix_rank", False)
        sizes = np.abs(np.linalg.eigvalsh(array)) if hermitian else \
            np.linalg.svd(array, compute_uv=False)
        limit = self._least_value(sizes, atol if tol is None else tol,
                                  0.0 if tol is not None else rtol)
        return self._host(np.count_nonzero(sizes > limit, axis=-1).astype(np.int32))

    def matrix_exp(self) -> Self:
        """The exponential of each matrix: Taylor's series of a small part of it, squared again."""
        array = self._matrices("matrix_exp")
        size = np.abs(array).sum(-1).max(initial=0.0)
        if not np.isfinite(size):
            raise ArgumentError("matrix_exp", "an element is not finite", "look at the matrix")
        halvings = max(0, math.ceil(math.log2(max(size, 1e-30))) + 2)
        x = self.cast(self._result_float()) * 2.0 ** -halvings
        one = self._eye(x)
        total = one
        for order in range(10 if x.dtype is not dtypes.float64 else 18, 0, -1):
            total = one + (x @ total) / order
        for _ in range(halvings):
            total = total @ total
        return total

    def matrix_norm(self, ord: Any = "fro", dim: Any = (-2, -1),  # noqa: A002
                    keepdim: bool = False) -> Self:
        """A norm of matrices: "fro", "nuc", 1, -1, 2, -2, infinity or minus infinity."""
        rows, columns = (self._axis(axis, "matrix_norm") for axis in dim)
        x = self.movedim((rows, columns), (-2, -1))
        if ord == "fro":
            found = x.norm(2, (-2, -1))
        elif ord in ("nuc", 2, -2):
            values = x.svdvals()
            found = values.sum(-1) if ord == "nuc" else \
                values.max(-1) if ord == 2 else values.min(-1)
        elif ord in (1, -1, math.inf, -math.inf):
            sums = x.abs().sum(-2 if abs(ord) == 1 else -1)
            found = sums.max(-1) if ord > 0 else sums.min(-1)
        else:
            raise ArgumentError("matrix_norm", f"ord is {ord!r}", "use fro, nuc, 1, 2 or infinity")
        if keepdim:
            for axis in sorted((rows, columns)):
                found = found.unsqueeze(axis)
        return found

    def vector_norm(self, ord: float = 2, dim: Any = None, keepdim: bool = False,  # noqa: A002
                    dtype: Any = None) -> Self:
        """norm, of all elements unless axes are named"""
        return (self if dtype is None else self.cast(dtype)).norm(ord, dim, keepdim)

    def linalg_cross(self, other: Self, dim: int = -1) -> Self:
        """The vector product along an axis of size 3, the last one if none is named."""
        return self.cross(other, dim)

    def linalg_diagonal(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """The diagonals of matrices: of the last two axes, if no others are named."""
        return self.diagonal(offset, dim1, dim2)

    def linalg_vander(self, N: int | None = None) -> Self:  # noqa: N803
        """The powers of each element of vectors, 1 first."""
        return self.vander(N, increasing=True)

    def linalg_norm(self, ord: Any = None, dim: Any = None, keepdim: bool = False,  # noqa: A002
                    dtype: Any = None) -> Self:
        """matrix_norm of two axes if an order is named, else vector_norm."""
        x = self if dtype is None else self.cast(dtype)
        axes = dim if isinstance(dim, (tuple, list)) else () if dim is None else (dim,)
        pair = axes if len(axes) == 2 else (-2, -1) if dim is None and len(self.shape) == 2 else ()
        if ord is None or not pair:
            return x.vector_norm(2 if ord is None else ord, dim, keepdim)
        return x.matrix_norm(ord, pair, keepdim)

    def vecdot(self, other: Self, dim: int = -1) -> Self:
        """Sums of products along an axis."""
        return (self * other).sum(dim, dtype=(self * other).dtype)

    def multi_dot(*given: Any) -> Any:
        """The product of several matrices, in the order that takes least work."""
        found = list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) \
            else list(given)
        while len(found) > 2:  # the largest inner size goes first
            place = max(range(len(found) - 1), key=lambda k: found[k].shape[-1])
            found[place:place + 2] = [found[place] @ found[place + 1]]
        return found[0] @ found[1] if len(found) == 2 else found[0]

    def solve_triangular(self, other: Self, upper: bool, left: bool = True,
                         unitriangular: bool = False) -> Self:
        """The x of T @ x = other, where T is a triangle of this matrix."""
        return other.triangular_solve(self, upper, left=left, unitriangular=unitriangular)

    def cond(self, p: Any = None) -> Self:
        """The norm of each matrix times that of its inverse."""
        if p in (None, 2, -2):
            values = self.svdvals()
            return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
        return self.matrix_norm(p) * self.inverse().matrix_norm(p)

    def lu(self, pivot: bool = True) -> tuple[Self, Self, Self]:
        """A permutation, a lower and an upper triangle, whose product is the matrix (`P @ L @ U`).

        Without pivots there is no permutation, and digits are lost.
        """
        x = self._variable()
        p, *parts = self._computed("lu", _lu, pivot, square=False)
        least = min(self.shape[-2:])

        def change(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (d,), (low, up, before, behind) = changes, y
            moved = p.mT @ d
            inner = before @ moved[..., :least, :least] @ behind
            strict, upper = inner.tril(-1), inner.triu()
            change_of_low, change_of_up = low[..., :least, :] @ strict, upper @ up[..., :least]
            # What is beside the square, or below it, is what solves P @ L @ U = x there.
            beside = before @ (moved[..., :least, least:] - change_of_low @ up[..., least:])
            below = (moved[..., least:, :least] - low[..., least:, :] @ change_of_up) @ behind
            return [change_of_low.cat(below, dim=-2), change_of_up.cat(beside, dim=-1),
                    -(strict @ before), -(behind @ upper)]
        return p, *following([x], parts, change)[:2]


def _unknown(_: Sequence[Any], changes: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """NaN: of a form for which there is no formula here."""
    return [(changes[0].sum() * math.nan).expand(each.shape) for each in results]


def _change_of_svd(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
    """How the parts of a matrix change with it; vectors of values that are equal do not turn."""
    (d,), (u, s, vh) = changes, y
    inner = u.mT @ d @ vh.mT
    squares = s * s
    factor = _inverse_or_zero(squares.unsqueeze(-2) - squares.unsqueeze(-1))
    wide, small = s.unsqueeze(-2), _inverse_or_zero(s).unsqueeze(-2)
    skew = inner * wide
    du = u @ (factor * (skew + skew.mT))
    rest = d @ vh.mT
    du = du + (rest - u @ (u.mT @ rest)) * small
    skew = s.unsqueeze(-1) * inner
    dv = vh.mT @ (factor * (skew + skew.mT))
    rest = d.mT @ u
    dv = dv + (rest - vh.mT @ (vh @ rest)) * small
    return [du, inner.diagonal(0, -2, -1), dv.mT]


def _inverse_or_zero(x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    return (x == 0).where(0.0, 1 / (x == 0).where(1.0, x))


def _inverse_or_nan(array: np.ndarray) -> np.ndarray:
    """The inverse, NaN where there is none: of what nobody may ask for."""
    try:
        return np.asarray(np.linalg.inv(array))
    except np.linalg.LinAlgError:
        flat = array.reshape(-1, *array.shape[-2:])
        found = [_inverse_or_nan(one) if np.linalg.matrix_rank(one) == len(one) else
                 np.full_like(one, np.nan) for one in flat] if len(flat) > 1 else \
            [np.full_like(one, np.nan) for one in flat]
        return np.reshape(found, array.shape)


def _cofactors(array: np.ndarray) -> np.ndarray:
    """The gradient of a determinant: by singular values, so that it is right for singular ones."""
    u, s, vh = np.linalg.svd(array)
    count = s.shape[-1]
    others = np.stack([np.prod(np.delete(s, k, -1), -1) for k in range(count)], -1) \
        if count else s
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return np.asarray(sign[..., None, None] * (u * others[..., None, :]) @ vh)


# What the host computes: functions of arrays, with as many axes in front as one likes.

def _inverse(array: np.ndarray) -> list[np.ndarray]:
    return [np.linalg.inv(array)]


def _det(array: np.ndarray) -> list[np.ndarray]:
    return [np.linalg.det(array), _cofactors(array)]


def _slogdet(array: np.ndarray) -> list[np.ndarray]:
    return [*np.linalg.slogdet(array), _inverse_or_nan(array)]


def _solve(array: np.ndarray, columns: np.ndarray) -> list[np.ndarray]:
    return [np.linalg.solve(array, columns), np.linalg.inv(array)]


def _cholesky(array: np.ndarray) -> list[np.ndarray]:
    low = np.linalg.cholesky(array)
    return [low, _inverse_or_nan(low)]


def _qr(array: np.ndarray, mode: Any) -> list[np.ndarray]:
    """Both parts, and the inverse of the second one where the gradient has a formula."""
    q, r = np.linalg.qr(array, "complete" if mode == "complete" else "reduced")
    rows, columns = array.shape[-2:]
    known = rows >= columns and (mode != "complete" or rows == columns) and mode != "r"
    return [q, r, _inverse_or_nan(r)] if known else [q, r]


def _eigh(array: np.ndarray, UPLO: Any) -> list[np.ndarray]:  # noqa: N803
    return list(np.linalg.eigh(array, UPLO))


def _svd(array: np.ndarray, full_matrices: bool) -> list[np.ndarray]:
    return list(np.linalg.svd(array, full_matrices=full_matrices))


def _lu(array: np.ndarray, pivot: bool) -> list[np.ndarray]:
    """Three parts, and the inverses of the squares of both triangles."""
    flat = array.reshape(-1, *array.shape[-2:])
    parts = [_lu_of_one(one, pivot) for one in flat]
    p, low, up = (np.stack([one[k] for one in parts]).reshape(
        *array.shape[:-2], *parts[0][k].shape) for k in range(3))
    least = min(array.shape[-2:])
    return [p, low, up, *(_inverse_or_nan(one[..., :least, :least]) for one in (low, up))]


def _lu_of_one(matrix: np.ndarray, pivot: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gauss' elimination with the greatest element of each column as pivot."""
    rows, columns = matrix.shape
    up, order = matrix.copy(), np.arange(rows)
    least = min(rows, columns)
    low = np.zeros((rows, least))
    for k in range(least):
        best = k + int(np.argmax(np.abs(up[k:, k]))) if pivot else k
        for each in (up, low, order):
            each[[k, best]] = each[[best, k]]
        low[k, k] = 1
        if up[k, k]:
            low[k + 1:, k] = up[k + 1:, k] / up[k, k]
            up[k + 1:] -= low[k + 1:, k:k + 1] * up[k]
    return np.eye(rows)[order].T, low, np.triu(up[:least])
