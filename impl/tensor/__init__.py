"""The lazy tensor. Chapter: spec/tensor.md.

`Tensor` is one class in several modules, each of which adds methods to the one before:

    base         the variable: data, values, devices, assignment
    elementwise  operators, functions, comparisons, activations
    special      inverses of angles, gamma and error functions, remainders
    movement     reshaping, reordering, padding, joining
    arrangement  more of that: turns, parts, stacks
    reduce       sums, extremes, deviations, running sums, order, softmax
    indexing     slices, index tensors, gather, scatter
    products     matrix products, einsum, convolution, pooling
    matrices     diagonals, outer products, distances
    spatial      pooling, resizing, sampling, patches
    statistics   medians, quantiles, histograms, sets, writing by index
    conversion   methods named after dtypes
    functional   normalisation, losses, dropout, attention
    losses       more losses, distances, layers as functions
    namespaces   names with a dot
    linalg       inverses, determinants, decompositions
    scientific   functions of physics, factors of matrices
    factors      roots of matrices, reflections
    creation     constants, ranges, random numbers
    autograd     backward, gradient
    aliases      second names, and tensors of the same kind
    inplace      the forms with _, which assign
    interop      NumPy's functions, DLPack, pickle
    custom       kernels of one's own
"""
from __future__ import annotations

import weakref
from contextlib import ContextDecorator
from typing import Any

from impl.errors import ArgumentError
from impl.gradient.nodes import detach
from impl.ir import UOp
from impl.tensor.custom import CustomKernels
from impl.tensor.random import reserve
from impl.tensor.runtime import Runtime

__all__ = ["Runtime", "Tensor", "reserve"]


class Tensor(CustomKernels):
    """A variable that holds a lazy, typed, n-dimensional value.

    Nothing is computed before values are asked for: `numpy()`, `tolist()`, `item()`, `realize()`.
    """

    __slots__ = ()
    training = False  # here, so that it is read quickly (its type finds names that are missing)

    @property
    def data(self) -> Any:
        """The value without its gradient, to be changed in place: `p.data.zero_()` changes p.

        `x.data()` gives the elements as a memoryview, as tinygrad has it.
        """
        alias = _Data._holding(detach(self.uop), self.device)
        alias._ancestors = ((weakref.ref(self), ()), *self._ancestors)
        return alias

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):  # r[impl errors.argument.refused]
            raise ArgumentError("data", f"{value!r:.60} is no tensor", "use x.data = Tensor(...), "
                                "or x.fill_(number)")
        if not any(tensor() is self for tensor, _ in value._ancestors):  # else it is written
            self.assign(value.to(self.device))

    @classmethod
    def train(cls, mode: bool = True) -> _Training:
        """A block in which dropout drops and batch norm learns: `with Tensor.train(): ...`; or a
        function that is one, after `@Tensor.train()`.
        """
        return _Training(cls, mode)


class _Data(Tensor):
    """Another name of a tensor's value: what is written to it is written to the tensor."""

    __slots__ = ()

    def __call__(self) -> memoryview:
        return CustomKernels.data(self)

    def _wrap(self, node: UOp) -> Any:
        known = super()._wrap(node)
        return Tensor._holding(known.uop, known.device)


class _Training(ContextDecorator):
    """Sets `training` of a tensor class for a block, or for each call of a function."""

    def __init__(self, tensors: type[Tensor], mode: bool) -> None:
        self.tensors, self.mode, self.before = tensors, mode, False

    def __enter__(self) -> None:
        self.before, self.tensors.training = self.tensors.training, self.mode

    def __exit__(self, *_: Any) -> None:
        self.tensors.training = self.before

    def _recreate_cm(self) -> _Training:
        """Of each call its own: one may be within another."""
        return _Training(self.tensors, self.mode)
