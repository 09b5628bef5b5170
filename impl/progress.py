"""How far long work has come, as one line on the terminal. Chapter: spec/progress.md."""
from __future__ import annotations

import os
import sys
import threading
import time
from typing import TextIO

from impl import settings

#: Seconds that work takes before it tells of itself, and between two looks at how far it is.
LATE, EVERY = 1.0, 0.2
_BAR = 20
#: Held by the work that tells of itself: work within it says nothing.
_line = threading.Lock()


class Progress:
    """Work that may take long. Use it as a context; `step` says that parts are done."""

    def __init__(self, what: str, total: int = 0) -> None:
        """`total` is how many parts there are; 0 if nobody knows."""
        self.what, self.total, self.done = what, total, 0
        self._over = threading.Event()
        self._teller: threading.Thread | None = None

    def step(self, count: int = 1) -> None:
        """So many parts more are done."""
        self.done += count

    def text(self, seconds: float, width: int = 80) -> str:
        """The line, which fits so many characters."""
        bar = ""
        if self.total:
            full = _BAR * self.done // self.total
            bar = f" [{'#' * full}{'.' * (_BAR - full)}] {self.done:,} of {self.total:,}"
        elif self.done:
            bar = f" {self.done:,} done"
        return f"{self.what}:{bar}{',' if bar else ''} {seconds:.0f} s"[:width - 1]

    def __enter__(self) -> Progress:
        """Begin; where somebody looks, a thread waits until it is late."""
        if _is_looked_at(sys.stderr) and _line.acquire(blocking=False):
            # r[impl progress.line.late]
            self._teller = threading.Thread(target=self._tell, args=(sys.stderr,), daemon=True)
            self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._teller is not None:
            self._over.set()
            self._teller.join()
            _line.release()

    def _tell(self, terminal: TextIO) -> None:
        began = time.monotonic()
        if self._over.wait(LATE):
            return
        while True:
            said = self.text(time.monotonic() - began, _width(terminal))
            terminal.write(f"\r{said}\x1b[K")
            terminal.flush()
            if self._over.wait(EVERY):
                break
        terminal.write("\r\x1b[K")  # r[impl progress.line.gone]
        terminal.flush()


def _is_looked_at(terminal: TextIO | None) -> bool:
    """Whether somebody sits there, and wants to know."""
    # r[impl progress.line.quiet]
    return bool(settings.get("PROGRESS")) and terminal is not None and terminal.isatty()


def _width(terminal: TextIO) -> int:
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
