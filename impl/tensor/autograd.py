"""`backward` and `gradient`: the gradient chapter seen from a tensor. Chapter: spec/tensor.md."""
from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import ContextDecorator
from typing import Any, Self

from impl.effects import constant_of, was_computed
from impl.errors import DTypeError, GraphError, ShapeError
from impl.gradient import below, compute_gradient, expression_of, nodes
from impl.gradient.custom import Lost
from impl.gradient.hooks import RemovableHook, unwatched, watch
from impl.ir import Ops, UOp
from impl.multi import Mesh
from impl.tensor.creation import Creation
from impl.tensor.parameters import mode, parameters


class Autograd(Creation):
    """Derivatives."""

    __slots__ = ()

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
                             "set requires_grad = True on the parameters before they are used, and "
                             "call backward before they are written to")
        for tensor, node in zip(wanted, found, strict=True):
            if node is not None:
                given = tensor._wrap(node)
                if isinstance(tensor.device, Mesh):  # r[impl multi.gradient.sharding]
                    given = given.shard_like(tensor)
                # r[impl gradient.backward.accumulate]
                tensor.grad = given if tensor.grad is None else tensor.grad + given
        for tensor, node in zip(wanted, found, strict=True):
            for hook in () if node is None else tuple(tensor._hooks_of_grad(1)):
                hook(tensor)  # r[impl gradient.hook.accumulated]
        return self

    def gradient(self, *targets: Self, gradient: Self | None = None) -> list[Self]:
        """The gradients with respect to the targets, in their order; their `grad` stays as it is.

        Those of a target on which the result does not depend are zeros.

        Raises:
            ShapeError: the tensor is not one number, and no gradient is given.
        """
        found = self._gradients(list(targets), gradient)
        # r[impl gradient.target.unused+2]
        return [target._wrap(nodes.full_like(target.uop, 0) if node is None else node)
                for target, node in zip(targets, found, strict=True)]

    def _gradients(self, targets: list[Any], gradient: Self | None) -> list[UOp | None]:
        """One node for each target, or None where there is no dependence."""
        if self.dtype.kind != "f":
            raise DTypeError("gradient", f"a tensor of {self.dtype.name} has no gradient",
                             "use a floating dtype")
        places = [expression_of(unwatched(target.uop)) for target in targets]
        root = expression_of(self.uop)
        if not all(target._parameter for target in targets):
            _refuse_lost(root, places)
        self.runtime.differentiate(root, places)
        known = compute_gradient(root, self._seed(gradient), places)
        for target, place in zip(targets, places, strict=True):
            if constant_of(place) is not None and not target._parameter:
                # r[impl gradient.target.constant]
                raise GraphError("gradient", "every element of a target is one number that is "
                                 "known, and what was computed from it has that number in its "
                                 "place", "set requires_grad on it before it is used, or use "
                                 ".contiguous() of it")
            if place not in known and not target._parameter:
                _refuse_forgotten(root, place, places)
        return [target._after_hooks(known.get(place))
                for target, place in zip(targets, places, strict=True)]

    # Hooks

    def register_hook(self, hook: Callable[[Self], Self | None]) -> RemovableHook:
        """Call hook(gradient) with the gradient of this tensor whenever it is on the way of one;
        what it returns, unless that is None, is used in its place.

        Of a result only the uses after this call are seen: register before it is used. A hook that
        holds what is computed from this tensor keeps both until `remove()` (spec/gradient.md).

        Returns:
            A handle with `remove()`.

        Raises:
            DTypeError: the tensor has no gradient.
        """
        if self.dtype.kind != "f":
            raise DTypeError("register_hook", f"a tensor of {self.dtype.name} has no gradient",
                             "use a floating dtype")
        device, shape, kind = self.device, self.shape, self.__class__

        def seen(gradient: UOp) -> UOp:
            found = hook(kind._holding(gradient, device))
            if found is None:
                return gradient
            if not isinstance(found, kind) or found.shape != shape:
                raise ShapeError("register_hook", f"the hook returned {found!r:.60} for a gradient "
                                 f"of shape {shape}", "return a tensor of its shape, or None")
            return nodes.cast(found.uop, gradient.dtype)

        if self._parameter and self._history is None:
            # What is written to a parameter later is the same one, whose node is another.
            return RemovableHook(self._hooks_of_grad(0), seen)
        self.uop, handle = watch(self.uop, seen)
        return handle

    def register_post_accumulate_grad_hook(self, hook: Callable[[Self], Any]) -> RemovableHook:
        """Call hook(tensor) after each `backward` that has added to its `grad`.

        Raises:
            DTypeError: the tensor requires no gradient.
        """
        if not self._parameter:
            raise DTypeError("register_post_accumulate_grad_hook", "the tensor gets no grad",
                             "set requires_grad on it")
        return RemovableHook(self._hooks_of_grad(1), hook)

    def _hooks_of_grad(self, when: int) -> list[Any]:
        """The hooks of a parameter: those of its gradient (0), and those after `grad` is set."""
        known: tuple[list[Any], list[Any]] | None = getattr(self, "_hooks", None)
        if known is None:
            known = self._hooks = [], []
        return known[when]

    def _after_hooks(self, gradient: UOp | None) -> UOp | None:
        """The gradient of a target, as its hooks leave it."""
        if gradient is not None and getattr(self, "_hooks", None):
            for hook in tuple(self._hooks[0]):
                gradient = hook(gradient)
        return gradient

    @property
    def grad_fn(self) -> UOp | None:
        """The node through which gradients flow; None of a leaf."""
        return None if self.is_leaf else self.uop  # type: ignore[attr-defined]  # of Aliases

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


def _refuse_lost(root: UOp, targets: Container[UOp]) -> None:
    """Refuse a gradient whose way leads through what a replay returned and nobody holds any more.

    Where something requires a gradient all that depends on it is held, so only for other targets
    the way may be lost.
    """
    for node in below([root], ends=targets):
        custom = node.tag if node.op is Ops.DETACH else None
        if isinstance(custom, Lost) and custom.others:  # r[impl replay.gradient.eager]
            raise custom.error
        if node.op is Ops.BUFFER and node.arg[0].told == node.arg[1] and node not in targets \
                and expression_of(node) is node:
            raise GraphError("gradient", "its way leads through the result of a captured function "
                             "that nobody holds any more", "keep that result in a variable, set "
                             "requires_grad on what the gradient is for, or .detach() the result")


def _refuse_forgotten(root: UOp, target: UOp, targets: Container[UOp]) -> None:
    """Refuse zeros for what requires no gradient, where a value on the way was computed after it.

    Only of what depends on a tensor that requires a gradient it is kept how it was computed.
    """
    born = max((leaf.arg[0].number for leaf in target.toposort() if leaf.op is Ops.BUFFER),
               default=0)
    for node in below([root], ends=targets):
        if node.op is Ops.BUFFER and node.arg[0].number > born and node.dtype.kind == "f" \
                and was_computed(node) and expression_of(node) is node:
            # r[impl gradient.realized.forgotten]
            raise GraphError("gradient", "its way may lead through a value that was computed "
                             "before, and how is kept only where a tensor requires a gradient",
                             "set requires_grad on what the gradient is for, or ask before a value "
                             "on the way is realized or printed")


class GradientMode(ContextDecorator):
    """A block, or a function, whose operations pass gradients on or do not.

    PyTorch's names: `off` is `no_grad`, `on` is `enable_grad`, and `set` `set_grad_enabled`.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.before, self.begun = wanted, list[bool](), False

    def _recreate_cm(self) -> Self:
        return type(self)(self.wanted)  # each call of a decorated function has its own

    def __enter__(self) -> Self:
        if self.begun:  # by `set`
            self.begun = False
            return self
        self.before.append(mode.gradients)
        mode.gradients = self.wanted
        return self

    def __exit__(self, *_: object) -> None:
        mode.gradients = self.before.pop()

    @classmethod
    def off(cls, function: Callable[..., Any] | bool = True) -> Any:
        """No operation in the block passes a gradient on: `with off():`, `@off()`, `@off`."""
        return cls(False)(function) if callable(function) else cls(not function)

    @classmethod
    def on(cls, function: Callable[..., Any] | None = None) -> Any:
        """The operations in the block pass gradients on, within one where they do not."""
        return cls(True)(function) if callable(function) else cls(True)

    @classmethod
    def set(cls, mode: bool) -> Self:  # noqa: A003
        """From now on, or in a block."""
        made = cls(bool(mode)).__enter__()
        made.begun = True
        return made

    @staticmethod
    def is_on() -> bool:
        """Whether operations pass gradients on."""
        return mode.gradients
