"""Whose turn it is: one lock for all that plans, runs and writes. Chapter: spec/effects.md."""
from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Turns:
    """The lock of all that plans, runs and writes; and the turn of a function that is captured.

    `with lock:` is short. A turn lasts as long as the function's Python: meanwhile no other thread
    gives a tensor a new value, which would be taken for an effect of the function. But if its
    thread waits for another one, that may be one of those that wait here. So they go on then, and
    the turn is marked as `disturbed`: nothing that it saw may be recorded.
    """

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        if hasattr(os, "register_at_fork"):  # a child is made between two steps, never in one
            os.register_at_fork(before=self.mutex.acquire, after_in_parent=self.mutex.release,
                                after_in_child=self.mutex.release)
        self.owner = 0  # the thread whose turn it is
        self.running: list[Any] = []  # calls that overwrite memory now, one within another
        self.launching = False  # whether a captured call is looked at, or launched
        self.changes = 0  # how often a run has changed what a graph reads, or what is in memory
        self.disturbed = False
        self.guest = 0  # how often a thread has entered in another one's turn; the mutex is its own

    def __enter__(self) -> None:
        self.mutex.acquire()
        if self.guest:
            self.guest += 1
        elif self.owner and self.owner != threading.get_ident():
            self._enter_as_guest(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        if self.guest:
            self.guest -= 1
        self.mutex.release()

    def _enter_as_guest(self, me: int) -> None:
        """Give way to the turn, or disturb it if it waits."""
        # r[impl replay.thread.isolated+2]
        while self.owner not in (0, me):
            self.mutex.release()
            waited_for = self._wait(me)
            self.mutex.acquire()
            if waited_for and self.owner:
                self.disturbed, self.guest = True, 1
                return

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """A turn for this thread; False if it is another thread's, and that one waits for this."""
        with self:
            free = self.owner == 0
            if free:
                self.owner, self.disturbed = threading.get_ident(), False
        try:
            yield free
        finally:
            if free:
                self.owner = 0

    def _wait(self, me: int) -> bool:
        """Wait until no turn is another thread's, or (the answer) until its thread waits too."""
        place, since = None, time.monotonic()
        while (owner := self.owner) not in (0, me):
            frame = sys._current_frames().get(owner)
            here = (id(frame), frame.f_lasti) if frame is not None else None
            if here != place:
                place, since = here, time.monotonic()
            waits = frame is not None and frame.f_code.co_filename == threading.__file__
            if time.monotonic() - since > (_WAITS if waits else _BLOCKED):
                return True
            del frame
            time.sleep(0.002)
        return False


#: Seconds for which a thread has not moved, in `threading` or anywhere else, before it is taken to
#: wait for another one.
_WAITS, _BLOCKED = 0.05, 1.0
lock = Turns()
