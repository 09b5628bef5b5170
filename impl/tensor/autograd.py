"""`backward` and `gradient`: the gradient chapter seen from a tensor. Chapter: spec/tensor.md."""
from __future__ import annotations

from typing import Any, Self

from impl.errors import DTypeError, ShapeError
from impl.gradient import compute_gradient, nodes
from impl.ir import Ops, UOp
from impl.tensor.base import parameters
from impl.tensor.creation import Creation


def _names(node: UOp) -> list[UOp]:
    """The nodes by which a graph may know a tensor: its own, and those that became its leaf."""
    if node.op is not Ops.BUFFER:
        return [node] if node.realized is None else [node, node.realized]
    computed = [reference() for reference in node.arg[0].nodes]
    return [node, *(one for one in computed if one is not None and one.realized is node)]


class Autograd(Creation):
    """Derivatives."""

    __slots__ = ()

    # --8<-- [start:backward]
    def backward(self, gradient: Self | None = None) -> Self:
        """Add the gradient of this tensor to the `grad` of every tensor that `requires_grad`.

        Args:
            gradient: the gradient with respect to this tensor, in its shape; 1 if it is one number.

        Raises:
            ShapeError: the tensor is not one number, and no gradient is given.
            DTypeError: nothing below it requires a gradient (r[gradient.backward.nothing]).
        """
        wanted = parameters()
        found = self._gradients(wanted, gradient)
        if not any(node is not None for node in found):  # r[impl gradient.backward.nothing]
            raise DTypeError("backward", "the result depends on no tensor that requires a gradient",
                             "set requires_grad = True on the parameters before they are used")
        for tensor, node in zip(wanted, found, strict=True):
            if node is not None:
                # r[impl gradient.backward.accumulate]
                tensor.grad = tensor._wrap(node) if tensor.grad is None else \
                    tensor.grad + tensor._wrap(node)
        return self

    def gradient(self, *targets: Self, gradient: Self | None = None) -> list[Self]:
        """The gradients with respect to the targets, in their order; their `grad` stays as it is.

        Raises:
            ShapeError: the tensor is not one number, and no gradient is given.
            DTypeError: the result does not depend on a target (r[gradient.target.unused]).
        """
        found = self._gradients(list(targets), gradient)
        for number, node in enumerate(found):
            if node is None:  # r[impl gradient.target.unused]
                raise DTypeError("gradient", f"the result does not depend on target {number}, "
                                 f"{targets[number]!r}", "leave it out, or set requires_grad = "
                                 "True on it before it is used")
        return [target._wrap(node) for target, node in zip(targets, found, strict=True)
                if node is not None]
    # --8<-- [end:backward]

    def _gradients(self, targets: list[Any], gradient: Self | None) -> list[UOp | None]:
        """One node for each target, or None where there is no dependence."""
        if self.dtype.kind != "f":
            raise DTypeError("gradient", f"a tensor of {self.dtype.name} has no gradient",
                             "use a floating dtype")
        names = [_names(target.uop) for target in targets]
        known = compute_gradient(self.uop, self._seed(gradient),
                                 [node for each in names for node in each])
        return [_sum([known[node] for node in each if node in known]) for each in names]

    def _seed(self, gradient: Self | None) -> UOp:
        if gradient is None:
            if self.numel() != 1:  # r[impl gradient.seed.scalar]
                raise ShapeError("backward", f"a tensor of shape {self.shape} has no gradient of "
                                 "its own", "reduce it to one number, or give gradient=")
            return nodes.full_like(self.uop, 1)
        if gradient.shape != self.shape:
            raise ShapeError("backward", f"a gradient of shape {gradient.shape} for a tensor of "
                             f"shape {self.shape}", "give it in the tensor's shape")
        return nodes.cast(gradient.uop, self.dtype)


def _sum(parts: list[UOp]) -> UOp | None:
    total: UOp | None = None
    for part in parts:
        total = part if total is None else nodes.add(total, part)
    return total
