"""Functions that are called with the whole gradient of a value. Chapter: spec/gradient.md."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from impl.gradient.custom import Custom, with_gradient
from impl.ir import UOp

#: Takes the gradient of a value, and gives the one that is used in its place.
Hook = Callable[[UOp], UOp]


class RemovableHook:
    """A function that is called until `remove()`, or until the end of a block."""

    __slots__ = ("kept", "function")

    def __init__(self, kept: list[Any], function: Callable[..., Any]) -> None:
        self.kept, self.function = kept, function
        kept.append(function)

    def remove(self) -> None:
        """Call it no more. The same function behind another handle stays."""
        for place, each in enumerate(self.kept):
            if each is self or each is self.function:
                del self.kept[place]
                break
        self.kept = []

    def __enter__(self) -> RemovableHook:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@dataclass(frozen=True, eq=False)
class Watched(Custom):
    """The gradient of a name of a value: that of the value, after the hooks."""

    hooks: list[Hook]


def watch(value: UOp, hook: Hook) -> tuple[UOp, RemovableHook]:
    """Call a hook with the gradient of a value: a name of the value, and what ends it.

    The name belongs to one tensor, as equal expressions are one node. So uses of the value before
    count in its gradient, and are not seen by the hook.
    """
    if isinstance(value.tag, Watched):
        return value, RemovableHook(value.tag.hooks, hook)
    hooks: list[Hook] = []

    def pull(gradient: UOp) -> tuple[UOp]:
        for each in tuple(hooks):  # r[impl gradient.hook.instead]
            gradient = each(gradient)
        return gradient,

    handle = RemovableHook(hooks, hook)
    return with_gradient(value, Watched((value,), pull, hooks)), handle


def unwatched(node: UOp) -> UOp:
    """The value of which a node may be a watched name."""
    return node.src[0] if isinstance(node.tag, Watched) else node
