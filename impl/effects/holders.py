"""Who holds a value for the user, and lives. Chapter: spec/effects.md."""
from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from impl.ir import UOp
from impl.places import Place


class Holder(Protocol):
    """Whatever holds a value for the user: a Tensor."""

    uop: UOp
    device: Place

    def hold(self, node: UOp, leaf: UOp, unasked: bool = False) -> None:
        """Hold a value from now on where it is in memory, if it still is the value; `unasked`: for
        others it had to be computed, so its expression is kept for gradients.
        """


class _Live(weakref.ref[Any]):
    """A weak reference that is equal to no other one: tensors are compared by their elements."""

    __slots__ = ()
    __eq__, __hash__ = object.__eq__, object.__hash__


#: The living tensors, each with the thread that made it.
_live: dict[_Live, int] = {}
_died, _this_thread = _live.pop, threading.get_ident


def register(holder: Holder) -> None:
    """Note a living tensor: its value is observable until it dies."""
    _live[_Live(holder, _died)] = _this_thread()  # r[impl effects.rescue.dead]


def register_line(holder: str, name: Callable[[Any], str]) -> str:
    """The words of `register`; `name` tells what an object is called."""
    return f"{name(_live)}[{name(_Live)}({holder}, {name(_died)})] = {name(_this_thread)}()"


def living() -> list[Holder]:
    """All living tensors, oldest first."""
    # r[impl effects.rescue.dead]
    return [h for h in [r() for r in list(_live)] if h is not None]


def living_here() -> set[int]:
    """The identities of the living tensors that this thread made."""
    here = threading.get_ident()
    return {id(h) for h in [r() for r, made_in in list(_live.items()) if made_in == here]
            if h is not None}
