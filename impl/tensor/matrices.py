"""Matrices and vectors: diagonals, outer and other products, sums with products.

Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from typing import Any, Self

from impl.dtypes import dtypes
from impl.errors import AxisError, ShapeError
from impl.gradient import nodes
from impl.ir import Ops
from impl.tensor.movement import whole
from impl.tensor.products import Products


class Matrices(Products):
    """What is written with letters for matrices and vectors."""

    __slots__ = ()

    # Diagonals

    def diag(self, diagonal: int = 0) -> Self:
        """The diagonal of a matrix, or the matrix that has this vector on its diagonal."""
        if len(self.shape) not in (1, 2):
            raise ShapeError("diag", f"shape {self.shape} is no vector and no matrix",
                             "use .diagonal() or .diag_embed() for more axes")
        return self.diag_embed(diagonal) if len(self.shape) == 1 else self.diagonal(diagonal)

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """Matrices with the last axis on a diagonal, zero elsewhere; their axes are named."""
        rank, size = len(self.shape) + 1, self.shape[self._axis(-1, "diag_embed")]
        rows, columns = (axis + rank if axis < 0 else axis for axis in (dim1, dim2))
        if not (0 <= rows < rank and 0 <= columns < rank and rows != columns):
            raise AxisError("diag_embed", f"axes {dim1} and {dim2} of {rank}", "name two axes")
        # A row of the matrix, laid out flat, is one longer than the way from one element of the
        # diagonal to the next.
        side = size + abs(offset)
        line = self.unsqueeze(-1).pad((0, side)).flatten(-2)  # size * (side + 1)
        before = max(offset, 0) + max(-offset, 0) * side
        whole_line = line.pad((before, max(0, side * side - before - line.shape[-1])))
        square = whole_line.narrow(-1, 0, side * side).unflatten(-1, (side, side))
        return square.movedim((-2, -1), (rows, columns))

    def diagflat(self, offset: int = 0) -> Self:
        """The matrix that has all elements on its diagonal."""
        return self.flatten().diag_embed(offset)

    def trace(self) -> Self:
        """The sum of a matrix' diagonal."""
        return self.diagonal().sum()

    # Products

    def inner(self, other: Any) -> Self:
        """Sums of products along the last axes of both."""
        theirs = self._tensor(other)
        if not self.shape or not theirs.shape:
            return self * theirs
        return self.tensordot(theirs, dims=([-1], [-1]))

    def mv(self, vec: Any) -> Self:
        """A matrix times a vector."""
        return self.matmul(vec)

    def vdot(self, other: Any) -> Self:
        """The sum of the products of two vectors."""
        return self.dot(other)

    def ger(self, vec2: Any) -> Self:
        """outer"""
        return self.outer(vec2)

    def tensordot(self, other: Self, dims: Any = 2) -> Self:
        """Sums of products over pairs of axes: the last `dims` here with the first there, or lists.
        """
        mine, theirs = self._summed_axes(other, dims)
        for one, two in zip(mine, theirs, strict=True):
            if self.shape[one] != other.shape[two]:  # one of them is 1: the other is summed
                if self.shape[one] == 1:
                    return self.tensordot(other.sum(two, keepdim=True), dims)
                return self.sum(one, keepdim=True).tensordot(other, dims)
        rest = [axis for axis in range(len(self.shape)) if axis not in mine]
        beside = [axis for axis in range(len(other.shape)) if axis not in theirs]
        shape = tuple(self.shape[axis] for axis in rest) + tuple(
            other.shape[axis] for axis in beside)
        count = math.prod(self.shape[axis] for axis in mine)
        left = self.permute(*rest, *mine).reshape(
            math.prod(self.shape[axis] for axis in rest), count)
        right = other.permute(*theirs, *beside).reshape(
            count, math.prod(other.shape[axis] for axis in beside))
        return left.matmul(right).reshape(shape)

    def _summed_axes(self, other: Self, dims: Any) -> tuple[list[int], list[int]]:
        if isinstance(dims, int):
            mine: Any = range(len(self.shape) - dims, len(self.shape))
            theirs: Any = range(dims)
        else:
            mine, theirs = ((one,) if isinstance(one, int) else one for one in dims)
        left = [self._axis(axis, "tensordot") for axis in mine]
        right = [other._axis(axis, "tensordot") for axis in theirs]
        sizes = [self.shape[axis] for axis in left], [other.shape[axis] for axis in right]
        if any(a != b and 1 not in (a, b) for a, b in zip(*sizes, strict=False)) \
                or len(sizes[0]) != len(sizes[1]):
            raise ShapeError("tensordot", f"axes of sizes {sizes[0]} and {sizes[1]} of shapes "
                             f"{self.shape} and {other.shape}", "name axes of equal sizes")
        return left, right

    def kron(self, other: Self) -> Self:
        """The Kronecker product: each element times the other tensor, in its place."""
        rank = max(len(self.shape), len(other.shape))
        mine = self.reshape((1,) * (rank - len(self.shape)) + self.shape)
        theirs = other.reshape((1,) * (rank - len(other.shape)) + other.shape)
        spread = mine.reshape(tuple(size for own in mine.shape for size in (own, 1)))
        wide = spread * theirs.reshape(tuple(size for own in theirs.shape for size in (1, own)))
        return wide.reshape(tuple(a * b for a, b in zip(mine.shape, theirs.shape, strict=True)))

    def cross(self, other: Self, dim: int | None = None) -> Self:
        """The vector product along an axis of size 3: the first one of this size by default."""
        first = next((axis for axis, size in enumerate(self.shape) if size == 3), -1)
        axis = self._axis(first if dim is None else dim, "cross")
        if self.shape[axis] != 3 or other.shape[axis] != 3:
            raise ShapeError("cross", f"axis {axis} of {self.shape} and {other.shape}",
                             "name an axis of size 3")
        ahead, behind = -1, -2
        return self.roll(ahead, axis) * other.roll(behind, axis) \
            - self.roll(behind, axis) * other.roll(ahead, axis)

    def addmm(self, mat1: Any, mat2: Any, beta: float = 1, alpha: float = 1) -> Self:
        """beta * self + alpha * (mat1 @ mat2)"""
        return self._added(mat1.matmul(mat2), beta, alpha)

    def _added(self, product: Self, beta: float, alpha: float) -> Self:
        """beta * self + alpha * product, in the dtype of both, whatever the numbers are."""
        mine, theirs = (
            one if factor == 1 or one.dtype.kind == "b" and factor else
            one * (factor if one.dtype.kind == "f" else int(factor))
            for one, factor in ((self, beta), (product, alpha)))
        return theirs if beta == 0 else mine + theirs

    def addmv(self, mat: Any, vec: Any, beta: float = 1, alpha: float = 1) -> Self:
        """beta * self + alpha * (mat @ vec)"""
        return self.addmm(mat, vec, beta, alpha)

    def baddbmm(self, batch1: Any, batch2: Any, beta: float = 1, alpha: float = 1) -> Self:
        """beta * self + alpha * (batch1 @ batch2)"""
        return self.addmm(batch1, batch2, beta, alpha)

    def addbmm(self, batch1: Any, batch2: Any, beta: float = 1, alpha: float = 1) -> Self:
        """beta * self + alpha * the sum of the products of all matrices of two batches"""
        product = batch1.matmul(batch2)
        return self._added(product.sum(0, dtype=product.dtype), beta, alpha)

    def addr(self, vec1: Any, vec2: Any, beta: float = 1, alpha: float = 1) -> Self:
        """beta * self + alpha * outer(vec1, vec2)"""
        return self._added(vec1.outer(vec2), beta, alpha)

    def matrix_power(self, n: int) -> Self:
        """A square matrix multiplied with itself, `n` times in all."""
        if isinstance(n, int) and n < 0:
            inverse: Self = self.inverse()  # type: ignore[attr-defined]  # of Linalg
            return inverse.matrix_power(-n)
        exponent = whole(n, "matrix_power", "exponent")
        if len(self.shape) < 2 or self.shape[-1] != self.shape[-2]:
            raise ShapeError("matrix_power", f"{self.shape} is no square matrix",
                             "give equal last axes")
        size = self.shape[-1]
        row, column = (nodes.expand(nodes.iota_along(size, axis, 2), (size, size))
                       for axis in (0, 1))
        unit = self._wrap(nodes.cast(nodes.binary(Ops.CMPEQ, row, column), self.dtype))
        result, power = unit.expand(self.shape), self
        while exponent:
            if exponent & 1:
                result = power if result.uop is unit.uop else result.matmul(power)
            power, exponent = power.matmul(power), exponent >> 1
        return result

    # Distances

    def cdist(self, other: Self, p: float = 2.0, compute_mode: Any = None) -> Self:
        """The p-norm of each difference of a row here and a row there: (..., rows, rows).

        `compute_mode` is PyTorch's, and makes no difference.
        """
        difference = self.unsqueeze(-2) - other.unsqueeze(-3)
        return difference.norm(p, -1)

    def dist(self, other: Any, p: float = 2.0) -> Self:
        """The p-norm of the difference."""
        return (self - other).norm(p)

    def cov(self, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Self:
        """The covariances of rows, of which each is a variable and its columns observations.

        Args:
            fweights: how often each observation was made.
            aweights: how much each one counts.
        """
        rows = self.cast(self._result_float())
        rows = rows.reshape(1, -1) if len(self.shape) < 2 else rows
        weights = [self._tensor(one).cast(rows.dtype) for one in (fweights, aweights)
                   if one is not None]
        if not weights:
            centred = rows - rows.mean(1, keepdim=True)
            found = centred.matmul(centred.T) / max(rows.shape[1] - correction, 0)
        else:
            weight = math.prod(weights[1:], start=weights[0])
            total = weight.sum()
            centred = rows - (rows * weight).sum(1, keepdim=True) / total
            less = correction if aweights is None else (weight * weights[-1]).sum() / total \
                * correction
            found = (centred * weight).matmul(centred.T) / (total - less).maximum(0)
        return found.reshape(()) if rows.shape[0] == 1 else found

    def corrcoef(self) -> Self:
        """The correlations of rows, of which each is a variable and its columns observations."""
        covariance = self.cov()
        if not covariance.shape:
            return covariance / covariance
        deviation = covariance.diagonal().sqrt()
        return (covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0)).clip(-1, 1)

    def vander(self, N: int | None = None, increasing: bool = False) -> Self:  # noqa: N803
        """The powers of each element of a vector, the highest first; of each of many vectors."""
        if not self.shape:
            return self.reshape(1).vander(N, increasing)
        own = self.shape[-1]
        count = own if N is None else whole(N, "vander", "count")
        if count > 1 << 16:  # r[impl tensor.arguments.refused+2]
            raise ShapeError("vander", f"{N} powers are too many", f"give at most {1 << 16}")
        powers = [self.ones_like() if power == 0 else self ** power  # type: ignore[attr-defined]
                  for power in range(count)]
        if not powers:
            return self.cast(dtypes.default_float).reshape(-1, 1)[:, :0]
        stacked: Self = powers[0].stack(*powers[1:], dim=-1)
        return stacked if increasing else stacked.flip(-1)
