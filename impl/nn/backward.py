"""Functions that see the gradients at a layer, made of hooks of its input and its output."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from impl.errors import ArgumentError
from impl.gradient.hooks import RemovableHook
from impl.tensor import Tensor
from impl.transforms import custom_gradient

__all__ = ["BackwardHooks"]

#: Another name of a value, whose hooks are its own.
_passed = custom_gradient(lambda x: (x, lambda gradient: gradient))


class _Call:
    """One call of a layer: whether its input has a gradient, and that of its output."""

    __slots__ = ("watched", "output")

    def __init__(self, watched: bool) -> None:
        self.watched = watched
        self.output: Tensor | None = None

    def taken(self) -> Tensor | None:
        """The gradient of the output, and no longer kept: it stands on the layer's input, of which
        the hook belongs to a node that would hold it, and so itself, for ever.
        """
        output, self.output = self.output, None
        return output


class BackwardHooks:
    """The functions that are called with gradients at one layer: `before` with those of the output,
    `after` with those of the input, too.

    What one returns is what the next one gets. Where the input has no gradient, since nothing
    below requires one, those `after` are called with `None` as soon as that of the output is there.
    """

    __slots__ = ("layer", "before", "after", "calls")

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.before: list[Callable[..., Any]] = []
        self.after: list[Callable[..., Any]] = []
        self.calls: list[_Call] = []
        layer.register_forward_pre_hook(self.entered)
        layer.register_forward_hook(self.left)

    def register(self, when: list[Any], hook: Callable[..., Any], prepend: bool) -> RemovableHook:
        """One more function."""
        handle = RemovableHook(when, hook)
        if prepend:
            when.insert(0, when.pop())
        return handle

    def _alone(self, values: tuple[Any, ...], what: str) -> int | None:
        """The place of the one value that may have a gradient."""
        places = [place for place, value in enumerate(values)
                  if isinstance(value, Tensor) and value.is_floating_point()]
        if len(places) > 1:  # r[impl errors.argument.refused]
            raise ArgumentError(f"nn.{type(self.layer).__name__}", f"a backward hook of a layer "
                                f"with {len(places)} {what}", "use x.register_hook of each tensor")
        return places[0] if places else None

    def entered(self, layer: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, of which the tensor has a hook."""
        place = self._alone(given, "inputs") if self.after else None
        call = _Call(place is not None and bool(given[place].requires_grad))
        self.calls.append(call)
        if place is None or not call.watched:
            return given
        entering = _passed(given[place])
        entering.register_hook(lambda gradient: self._all(self.after, gradient, call.taken()))
        return (*given[:place], entering, *given[place + 1:])

    def left(self, layer: Any, given: tuple[Any, ...], output: Any) -> Any:
        """The output, with a hook."""
        call = self.calls.pop()
        several = output if isinstance(output, tuple) else (output,)
        place = self._alone(several, "outputs") if self.before or self.after else None
        if place is None:
            return output

        def seen(gradient: Tensor) -> Tensor:
            gradient = self._all(self.before, gradient)
            call.output = gradient if call.watched else None
            for hook in () if call.watched else tuple(self.after):
                hook(layer, (None,), (gradient,))
            return gradient

        leaving = _passed(several[place])
        leaving.register_hook(seen)
        return (*several[:place], leaving, *several[place + 1:]) \
            if isinstance(output, tuple) else leaving

    def _all(self, hooks: list[Any], gradient: Tensor, *output: Tensor | None) -> Tensor:
        """A gradient after all functions, in their order."""
        for hook in tuple(hooks):
            found = hook(self.layer, (gradient,), *((one,) for one in output))
            found = found[0] if isinstance(found, (tuple, list)) else found
            gradient = gradient if found is None else found
        return gradient
