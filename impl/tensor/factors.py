"""Roots of matrices, and reflections as LAPACK packs them. Chapter: spec/tensor.md."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from impl.errors import ShapeError
from impl.host import np
from impl.tensor.linalg import following
from impl.tensor.scientific import Scientific


class Polar(NamedTuple):
    """A matrix with orthogonal columns, and one that only stretches."""

    U: Any
    H: Any


class Reflections(NamedTuple):
    """The triangle R with the vectors of the reflections below it, and their lengths."""

    a: Any
    tau: Any


class Factors(Scientific):
    """Decompositions of which others are made."""

    __slots__ = ()

    def matrix_sqrth(self) -> Self:
        """The positive matrix whose square is this positive one, of which one triangle is read."""
        x = self._variable()

        def change(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (d,), (root,) = changes, y
            values, v = root.eigh()
            inner = v.mT @ ((d + d.mT) * 0.5) @ v
            return [v @ (inner / (values.unsqueeze(-1) + values.unsqueeze(-2))) @ v.mT]
        found: Self = following([x], self._computed("matrix_sqrth", _root), change)[0]
        return found

    def linalg_polar(self) -> Polar:
        """U and H, of which U @ H is the matrix: the nearest one with orthogonal columns.

        Raises:
            ShapeError: there are more columns than rows.
        """
        if len(self.shape) >= 2 and self.shape[-2] < self.shape[-1]:
            raise ShapeError("linalg.polar", f"shape {self.shape} has more columns than rows",
                             "give x.mT, whose parts are U.mT and H")
        x = self._variable()

        def change(_: Sequence[Any], changes: Sequence[Any], y: Sequence[Any]) -> list[Any]:
            (d,), (u, h) = changes, y
            values, v = h.eigh()
            along = u.mT @ d
            sums = values.unsqueeze(-1) + values.unsqueeze(-2)
            turn = v @ ((v.mT @ (along - along.mT) @ v) / sums) @ v.mT
            across = (d - u @ along) @ (v / values.unsqueeze(-2)) @ v.mT
            return [u @ turn + across, along - turn @ h]
        return Polar(*following([x], self._computed("linalg.polar", _polar, square=False), change))

    def geqrf(self) -> Reflections:
        """The reflections of which `qr` is made; `householder_product` and `ormqr` take them."""
        return Reflections(*self.detach()._computed("geqrf", _reflections, square=False))

    def ormqr(self, tau: Self, other: Self, left: bool = True, transpose: bool = False) -> Self:
        """Another matrix times the square Q of the reflections in the columns here."""
        rows, columns = self.shape[-2:]
        turn = self.pad((0, rows - columns)).householder_product(tau)
        turn = turn.mT if transpose else turn
        return turn @ other if left else other @ turn


def _root(array: np.ndarray) -> list[np.ndarray]:
    values, v = np.linalg.eigh(array)
    with np.errstate(invalid="ignore"):
        return [v * np.sqrt(values)[..., None, :] @ np.swapaxes(v, -1, -2)]


def _polar(array: np.ndarray) -> list[np.ndarray]:
    u, sizes, v = np.linalg.svd(array, full_matrices=False)
    return [u @ v, np.swapaxes(v, -1, -2) @ (sizes[..., None] * v)]


def _reflections(array: np.ndarray) -> list[np.ndarray]:
    packed, tau = np.linalg.qr(array, "raw")
    return [np.ascontiguousarray(np.swapaxes(packed, -1, -2)), tau]
