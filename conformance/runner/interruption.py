"""A run that somebody ends: with Ctrl-C, or with the signal that a supervisor sends.

It says so in one line, writes down what it has, and leaves no process behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: What a shell reports of a program that Ctrl-C ended.
STATUS = 130
#: And of one that wrote to a pipe from which nobody reads any more.
UNREAD = 141
#: Seconds that a process which was told to end is given for it.
PATIENCE = 10.0

#: Whether somebody asked for the end.
_asked = threading.Event()


def heed_termination() -> None:
    """Let SIGTERM end this process as Ctrl-C does."""
    def end(number: int, frame: FrameType | None) -> None:
        _asked.set()
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def end_if_asked() -> None:
    """Raise again what got lost: Python drops what a destructor or a callback from C raises."""
    if _asked.is_set():
        _asked.clear()
        raise KeyboardInterrupt


def quietly(command: Callable[[], int]) -> int:
    """The status of a command; one that is ended says so in one line, and without a traceback.

    Also where nobody reads on: `python -m conformance rules | head`.
    """
    heed_termination()
    try:
        status = command()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return STATUS
    except BrokenPipeError:
        if _is_read():  # it was another pipe
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD


def _is_read() -> bool:
    """Whether what is printed still arrives."""
    try:
        print(flush=True)
    except BrokenPipeError:
        return False
    return True


def status_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that says itself that it was ended: Ctrl-C of a terminal reaches both."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        if _asked.is_set():
            process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # only this process was told
            process.terminate()
            process.wait()
        return STATUS


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C waits until the block is left; processes that are started in it never get it.

    A terminal sends it to all of them, and each would print where it was.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def close_when_terminated(close: Callable[[], None]) -> None:
    """In a worker: what it has started ends with it."""
    def end(number: int, frame: FrameType | None) -> None:
        close()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def end_workers() -> None:
    """End the processes that this one has started by `multiprocessing`."""
    for child in multiprocessing.active_children():
        child.terminate()
