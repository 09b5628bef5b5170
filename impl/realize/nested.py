"""Runs within runs: what the handler of a signal, or a finalizer, asks for in the middle of one.

Python may call either between any two steps of ours, in the thread that runs. What it finds there
is half done: an expression that no tensor holds yet, a plan for memory as it was, or memory of
which a part has been written.

So a nested run overwrites nothing that was there: it works on a copy. And a run that overwrites
memory is *alone* from its first kernel to its commit: who reads what it overwrites is refused
before anything is done. Chapter: spec/realize.md.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Protocol

from impl.effects import Buffer, in_the_middle, lock
from impl.realize.session import session

#: How often something is planned, or looked for, if nested runs come in between.
NESTED_ATTEMPTS = 4


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
              "impl.caching", "impl.gradient", "impl.replay.recording", "impl.replay.settled",
              "impl.replay.states")


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
