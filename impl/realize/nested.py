"""Runs within runs: what the handler of a signal, or a finalizer, asks for in the middle of one.

Python may call either between any two steps of ours, in the thread that runs. What it finds there
is half done: an expression that no tensor holds yet, a plan for memory as it was, or memory of
which a part has been written.

So a nested run overwrites nothing that was there: it works on a copy. And a run that overwrites
memory is *alone* from its first kernel to its commit: who reads what it overwrites is refused
before anything is done. Chapter: spec/realize.md.
"""
from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from impl.effects import Buffer, in_the_middle, lock
from impl.realize.session import session

#: How often something is planned, or looked for, if nested runs come in between.
NESTED_ATTEMPTS = 4


@contextmanager
def handlers_noted() -> Iterator[None]:
    """Within it the handler of a signal marks the turn as disturbed: a capture that one came into
    holds what it has done, too.
    """
    found = {}
    if threading.current_thread() is threading.main_thread():  # handlers run nowhere else
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                found[number] = handler
    mine = {number: functools.partial(_noted, handler) for number, handler in found.items()}
    try:
        for number, noting in mine.items():
            signal.signal(number, noting)
        yield
    finally:
        for number, noting in mine.items():
            if signal.getsignal(number) is noting:  # the function has set no other one
                signal.signal(number, found[number])


def _noted(handler: Callable[[int, Any], object], number: int, frame: Any) -> None:
    lock.disturbed = True
    handler(number, frame)


class Overtaken(Exception):
    """A nested run has changed what a replay had looked at: it looks again."""


class Overwriting(Protocol):
    """A call that overwrites what was there before."""

    written: Sequence[Buffer]

    def touched(self) -> Iterable[Buffer]:
        """What it works on besides the buffers that it is given."""


def begin(call: Overwriting, given: Sequence[Buffer], since: int | None) -> None:
    """Begin a run that overwrites memory; nothing may have changed `since` it was planned.

    Who calls it takes it out of `lock.running` in the end.

    Raises:
        Overtaken: something has.
        GraphError: it would touch what an outer run overwrites, or the other way round.
    """
    if lock.running:
        refuse((*given, *call.touched()), call.written)
    lock.running.append((call, given))
    session.capturing.inlined += 1  # captured functions run as they are
    if since not in (None, lock.changes):
        raise Overtaken


#: What works on expressions that no tensor may hold, or on memory. Where it calls functions of the
#: user's, as `apply_` does, runs there work on copies too, though nothing is half done.
_HALF_DONE = ("impl.tensor", "impl.ir", "impl.effects", "impl.realize", "impl.schedule",
              "impl.caching", "impl.gradient", "impl.replay.arguments", "impl.replay.capture",
              "impl.replay.history", "impl.replay.recording", "impl.replay.results",
              "impl.replay.settled", "impl.replay.stand_ins", "impl.replay.states")


def is_nested() -> bool:
    """Whether this run was asked for in the middle of something of ours."""
    frame, outside = sys._getframe(1).f_back, False
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != "impl" and not name.startswith("impl."):
            outside = True
        elif outside and name.startswith(_HALF_DONE):
            return True
        frame = frame.f_back
    return False


def refuse(touched: Iterable[Buffer], written: Iterable[Buffer] = ()) -> None:
    """Refuse to touch what a run overwrites in whose middle this is, or to overwrite what it
    touches.

    Raises:
        GraphError: somebody wants it.
    """
    # r[impl realize.nested.refused]
    mine, overwritten = set(touched), set(written)
    for call, given in lock.running:
        both = mine.intersection(call.written) or overwritten.intersection(given, call.touched())
        for buffer in both:
            raise in_the_middle(buffer)
