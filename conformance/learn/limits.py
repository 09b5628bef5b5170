"""What code of a reader may take: time, and memory. A loop or a list without end ends in words."""
from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOM = 2 << 30  # bytes that may be taken on top of what is there already


class Clock:
    """What never ends raises a TimeoutError where it is, on systems that have such a clock."""

    def __init__(self) -> None:
        self.before: Any = None
        self.left = 0.0

    def start(self, seconds: float) -> None:
        """From now on so many seconds of computing are left."""
        def late(number: int, frame: object) -> None:
            raise TimeoutError(f"it was not done after {seconds:g} seconds of computing: is there "
                               "a loop without an end?")

        if hasattr(signal, "setitimer"):
            self.before = signal.signal(signal.SIGVTALRM, late)
            self.left, _ = signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    def stop(self) -> None:
        """It was done in time; a clock around this one goes on."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_VIRTUAL, self.left)
            signal.signal(signal.SIGVTALRM, self.before)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Let what runs inside compute for so long, and take `ROOM` bytes more, and no more."""
    clock = Clock()
    clock.start(seconds)
    try:
        with _limited_memory():
            yield
    finally:
        clock.stop()


@contextmanager
def _limited_memory() -> Iterator[None]:
    """A list that grows for ever raises a MemoryError, before the machine has none left."""
    pages = Path("/proc/self/statm")
    if not pages.exists():  # no Linux: nobody says how much is used
        yield
        return
    import resource

    used = int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    least, most = resource.getrlimit(resource.RLIMIT_AS)
    room = used + ROOM if least == resource.RLIM_INFINITY else min(used + ROOM, least)
    resource.setrlimit(resource.RLIMIT_AS, (room, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (least, most))
