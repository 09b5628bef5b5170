"""Functions of physics and factors of matrices, computed on the host. Chapter: spec/tensor.md.

The functions of elements are SciPy's, which is imported when one is asked for. They have no
gradient, but for those where it is said.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from impl.dtypes import dtypes
from impl.errors import ArgumentError, ShapeError
from impl.host import np
from impl.tensor.linalg import Linalg, following


class Factored(NamedTuple):
    """Both triangles of a matrix in one, and which row was exchanged with each, from 1 on."""

    LU: Any
    pivots: Any


class Checked(NamedTuple):
    """A result, and 0 where it was possible."""

    result: Any
    info: Any


class Eig(NamedTuple):
    """Eigenvalues, and their vectors as columns; both complex."""

    eigenvalues: Any
    eigenvectors: Any


#: From here on float32 does not know each degree, and a recurrence of SciPy runs for seconds.
_HIGHEST_DEGREE = 1 << 24


def _of_scipy(*given: Any) -> list[np.ndarray]:
    """A function of SciPy by name, of arrays. A polynomial of no degree, or a huge one, is NaN.

    Raises:
        ArgumentError: SciPy is not installed.
    """
    *arrays, name = given
    known = np.True_
    if name.startswith("eval_"):  # the degree of a polynomial is a whole number
        known = np.abs(arrays[0]) < _HIGHEST_DEGREE
        arrays[0] = np.where(known, arrays[0], 0).astype(np.int64)
    try:
        from scipy import special
    except ImportError as error:
        raise ArgumentError(name, "SciPy, which computes it, is not installed",
                            "pip install scipy") from error
    with np.errstate(all="ignore"):
        found = getattr(special, name)(*arrays)
        found = found[0] if isinstance(found, tuple) else found
        return [np.where(known, found, np.nan)]


class Scientific(Linalg):
    """What SciPy computes, and what LAPACK packs into one matrix."""

    __slots__ = ()

    def _of_elements(self, method: str, name: str, *others: Any) -> Self:
        """SciPy's function of this tensor's elements and of others', which broadcast."""
        given = self.broadcast_tensors(*map(self._tensor, others))
        first, *rest = (one._variable() for one in given)
        found: Self = first._computed(method, _of_scipy, name, beside=rest, elements=True)[0]
        return found

    def igamma(self, other: Any) -> Self:
        """The part of gamma(self) that lies below `other`; its gradient is that of `other`."""
        return self._incomplete(other, "gammainc", 1)

    def igammac(self, other: Any) -> Self:
        """The part of gamma(self) that lies above `other`; its gradient is that of `other`."""
        return self._incomplete(other, "gammaincc", -1)

    def _incomplete(self, other: Any, name: str, sign: int) -> Self:
        a, x = (one._variable() for one in self.broadcast_tensors(self._tensor(other)))
        found = [a._of_elements("igamma", name, x)]

        def change(given: Sequence[Any], changes: Sequence[Any], _: Sequence[Any]) -> list[Any]:
            power, place = given
            density = ((power - 1).xlogy(place) - place - power.lgamma()).exp()
            return [changes[1] * density * sign]
        result: Self = following([a, x], found, change)[0]
        return result

    gammainc, gammaincc = igamma, igammac

    def zeta(self, other: Any) -> Self:
        """Hurwitz' zeta function of these powers at other numbers: the sum of (other + k) ** -x.

        Of one power it is a formula, and has a gradient.
        """
        return super().zeta(other) if self.numel() == 1 else \
            self._of_elements("zeta", "zeta", other)

    def bessel_j0(self) -> Self:
        """Bessel's function of the first kind, of order 0."""
        return self._of_elements("bessel_j0", "j0")

    def bessel_j1(self) -> Self:
        """Bessel's function of the first kind, of order 1."""
        return self._of_elements("bessel_j1", "j1")

    def bessel_y0(self) -> Self:
        """Bessel's function of the second kind, of order 0."""
        return self._of_elements("bessel_y0", "y0")

    def bessel_y1(self) -> Self:
        """Bessel's function of the second kind, of order 1."""
        return self._of_elements("bessel_y1", "y1")

    def modified_bessel_k0(self) -> Self:
        """Bessel's modified function of the second kind, of order 0."""
        return self._of_elements("modified_bessel_k0", "k0")

    def modified_bessel_k1(self) -> Self:
        """Bessel's modified function of the second kind, of order 1."""
        return self._of_elements("modified_bessel_k1", "k1")

    def scaled_modified_bessel_k0(self) -> Self:
        """modified_bessel_k0, times exp(x)"""
        return self._of_elements("scaled_modified_bessel_k0", "k0e")

    def scaled_modified_bessel_k1(self) -> Self:
        """modified_bessel_k1, times exp(x)"""
        return self._of_elements("scaled_modified_bessel_k1", "k1e")

    def spherical_bessel_j0(self) -> Self:
        """sin(x) / x, and 1 at 0."""
        return (self / math.pi).sinc()

    def airy_ai(self) -> Self:
        """Airy's function Ai."""
        return self._of_elements("airy_ai", "airy")

    def chebyshev_polynomial_t(self, n: Any) -> Self:
        """Chebyshev's polynomial of the first kind, of degree n."""
        return self._polynomial("chebyshev_polynomial_t", "eval_chebyt", n)

    def chebyshev_polynomial_u(self, n: Any) -> Self:
        """Chebyshev's polynomial of the second kind, of degree n."""
        return self._polynomial("chebyshev_polynomial_u", "eval_chebyu", n)

    def shifted_chebyshev_polynomial_t(self, n: Any) -> Self:
        """Chebyshev's polynomial of the first kind at 2 x - 1."""
        return self._polynomial("shifted_chebyshev_polynomial_t", "eval_sh_chebyt", n)

    def shifted_chebyshev_polynomial_u(self, n: Any) -> Self:
        """Chebyshev's polynomial of the second kind at 2 x - 1."""
        return self._polynomial("shifted_chebyshev_polynomial_u", "eval_sh_chebyu", n)

    def hermite_polynomial_h(self, n: Any) -> Self:
        """Hermite's polynomial of degree n, as physicists have it."""
        return self._polynomial("hermite_polynomial_h", "eval_hermite", n)

    def hermite_polynomial_he(self, n: Any) -> Self:
        """Hermite's polynomial of degree n, as statisticians have it."""
        return self._polynomial("hermite_polynomial_he", "eval_hermitenorm", n)

    def laguerre_polynomial_l(self, n: Any) -> Self:
        """Laguerre's polynomial of degree n."""
        return self._polynomial("laguerre_polynomial_l", "eval_laguerre", n)

    def legendre_polynomial_p(self, n: Any) -> Self:
        """Legendre's polynomial of degree n."""
        return self._polynomial("legendre_polynomial_p", "eval_legendre", n)

    def _polynomial(self, method: str, name: str, n: Any) -> Self:
        degree = self._tensor(n).trunc().cast(self._result_float())
        found = degree.maximum(0)._of_elements(method, name, self)
        return (degree < 0).where(0.0, found)

    # Factors

    def lu_factor(self, pivot: bool = True) -> Factored:
        """Both triangles in one matrix, and the exchanges of rows, for `lu_solve`."""
        p, low, up = self.lu(pivot)
        order = p.mT.argmax(-1).numpy().reshape(-1, self.shape[-2])
        least = min(self.shape[-2:])
        pivots = np.array([_exchanges(one, least) for one in order], np.int32)
        below = low.tril(-1)
        wide, tall = self.shape[-1] - below.shape[-1], self.shape[-2] - up.shape[-2]
        packed = below.pad((0, wide)) + up.pad((0, 0, 0, tall))
        return Factored(packed, self.__class__(
            pivots.reshape(*self.shape[:-2], least), self.device))

    def lu_unpack(self, pivots: Self, unpack_data: bool = True,
                  unpack_pivots: bool = True) -> tuple[Self, Self, Self]:
        """The permutation and both triangles of what `lu_factor` gives."""
        rows, columns = self.shape[-2:]
        least = min(rows, columns)
        low = self[..., :least].tril(-1)
        low = low + self._host(np.eye(rows, least))
        flat = pivots.numpy().reshape(-1, pivots.shape[-1])
        orders = [_order(one, rows) for one in flat]
        p = np.stack([np.eye(rows)[one].T for one in orders]).reshape(
            *self.shape[:-2], rows, rows)
        return self._host(p), low, self[..., :least, :].triu()

    def lu_solve(self, LU_data: Self, LU_pivots: Self) -> Self:  # noqa: N803
        """The x of A @ x = self, where `lu_factor` has taken A apart."""
        p, low, up = LU_data.lu_unpack(LU_pivots)
        return (p.mT @ self).triangular_solve(low, upper=False).triangular_solve(up)

    def linalg_lu_solve(self, pivots: Self, B: Self, left: bool = True,  # noqa: N803
                        adjoint: bool = False) -> Self:
        """The x of A @ x = B (`left=False`: of x @ A = B), where `lu_factor` has taken A apart.

        `adjoint`: with A turned round.
        """
        if left and not adjoint:
            return B.lu_solve(self, pivots)
        p, low, up = self.lu_unpack(pivots)
        whole = p @ low @ up
        return (whole.mT if adjoint else whole).solve(B, left)

    def lu_factor_ex(self, pivot: bool = True) -> tuple[Any, Any, Any]:
        """lu_factor, and 0: it is always possible."""
        packed, pivots = self.lu_factor(pivot)
        return packed, pivots, self._fine()

    def _fine(self) -> Self:
        return self.__class__(np.zeros(self.shape[:-2], np.int32), self.device)

    def cholesky_ex(self, upper: bool = False, check_errors: bool = False) -> Checked:
        """cholesky, and 0; of a matrix that is not positive NaN, and 1."""
        array = self._matrices("cholesky_ex")
        wrong = _failing(np.linalg.cholesky, array)
        if check_errors or not wrong.any():
            return Checked(self.cholesky(upper), self._fine())
        info = self.__class__(wrong.reshape(self.shape[:-2]), self.device)
        bad = info.reshape(*info.shape, 1, 1) != 0
        return Checked(bad.where(math.nan, bad.where(self._eye(self), self).cholesky(upper)), info)

    def inv_ex(self, check_errors: bool = False) -> Checked:
        """inverse, and 0; of a matrix that has none infinity, and 1."""
        array = self._matrices("inv_ex")
        wrong = _failing(np.linalg.inv, array)
        if check_errors or not wrong.any():
            return Checked(self.inverse(), self._fine())
        info = self.__class__(wrong.reshape(self.shape[:-2]), self.device)
        bad = info.reshape(*info.shape, 1, 1) != 0
        return Checked(bad.where(math.inf, bad.where(self._eye(self), self).inverse()), info)

    def solve_ex(self, other: Self, left: bool = True, check_errors: bool = False) -> Checked:
        """solve, and 0."""
        return Checked(self.solve(other, left), self._fine())

    def eig(self) -> Eig:
        """Eigenvalues and vectors of any square matrix, as complex numbers; without a gradient."""
        values, vectors = np.linalg.eig(self._matrices("eig"))
        return Eig(self._complex(values), self._complex(vectors))

    def eigvals(self) -> Any:
        """The eigenvalues of any square matrix, as complex numbers; without a gradient."""
        return self._complex(np.linalg.eigvals(self._matrices("eigvals")))

    def _complex(self, array: np.ndarray) -> Any:
        kind = np.complex128 if self._result_float() is dtypes.float64 else np.complex64
        return self.runtime.complex_of(self.__class__, array.astype(kind), self.device)

    def householder_product(self, tau: Self) -> Self:
        """The first columns of the product of reflections, whose vectors are the columns here."""
        rows, columns = self.shape[-2:]
        product = self._host(np.eye(rows))
        for k in range(tau.shape[-1]):
            ahead = self._host(np.eye(rows)[k])
            below = self._host((np.arange(rows) > k).astype(np.float64))
            vector = (self[..., k] * below + ahead).unsqueeze(-1)
            turn = self._host(np.eye(rows)) - (vector @ vector.mT) * tau[..., k, None, None]
            product = product @ turn
        return product[..., :columns]

    orgqr = householder_product

    def tensorinv(self, ind: int = 2) -> Self:
        """The inverse of the matrix whose rows are the first `ind` axes."""
        count = math.prod(self.shape[:ind])
        if count * count != self.numel():
            raise ShapeError("tensorinv", f"shape {self.shape} with ind {ind} is no square matrix",
                             "give axes whose products are equal")
        return self.reshape(count, count).inverse().reshape(*self.shape[ind:], *self.shape[:ind])

    def tensorsolve(self, other: Self, dims: Any = None) -> Self:
        """The x of tensordot(self, x, x.ndim) = other."""
        x = self
        if dims is not None:
            axes = [axis % len(self.shape) for axis in dims]
            x = self.permute(*(axis for axis in range(len(self.shape)) if axis not in axes), *axes)
        shape = x.shape[len(other.shape):]
        return x.reshape(other.numel(), math.prod(shape)).solve(
            other.reshape(-1)).reshape(shape)

    def svd_lowrank(self, q: int = 6, niter: int = 2, M: Any = None) -> Any:  # noqa: N803
        """The first q singular values and vectors: those of `svd`, of which the rest is cut off."""
        x = self if M is None else self - M
        left, values, right = x.svd()
        return left[..., :q], values[..., :q], right[..., :q]

    def pca_lowrank(self, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
        """svd_lowrank of the columns less their means."""
        count = min(6, *self.shape[-2:]) if q is None else q
        return (self - self.mean(-2, keepdim=True) if center else self).svd_lowrank(count)


def _exchanges(order: np.ndarray, count: int) -> list[int]:
    """Which row is exchanged with each of the first, from 1 on, so that this order comes of it."""
    now, found = list(range(len(order))), []
    for place in range(count):
        other = now.index(int(order[place]))
        now[place], now[other] = now[other], now[place]
        found.append(other + 1)
    return found


def _order(pivots: np.ndarray, rows: int) -> np.ndarray:
    """The order of rows after exchanges."""
    order = np.arange(rows)
    for place, other in enumerate(pivots):
        order[[place, other - 1]] = order[[other - 1, place]]
    return order


def _failing(function: Any, array: np.ndarray) -> np.ndarray:
    """1 for each matrix of which there is no such result."""
    flat = array.reshape(math.prod(array.shape[:-2]), *array.shape[-2:])
    return np.array([_fails(function, one) for one in flat], np.int32)


def _fails(function: Any, matrix: np.ndarray) -> bool:
    try:
        function(matrix)
    except np.linalg.LinAlgError:
        return True
    return False
