"""A process beside each process of a job, so that the others can say who was killed.

    mpiexec -n 4 python -m impl.distributed train.py

`mpiexec` ends a whole job at once when one of its processes dies, before the others can find out
which. Here the process that it knows of is this one: it starts Python with the words that follow
it, waits, and when that was killed it lets the others speak first. Chapter: spec/distributed.md.
"""
from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from types import FrameType

from impl import settings
from impl.distributed.monitor import ROLL

#: Linux's prctl: the signal that a process gets when its parent has ended.
_PARENT_ENDED = 1


def _ends_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_ENDED, signal.SIGKILL)


def main() -> int:
    """The status of the program; of one that a signal ended, once the others had their time."""
    if len(sys.argv) < 2:
        print("usage: mpiexec -n 4 python -m impl.distributed train.py [words]", file=sys.stderr)
        return 2
    # What the launcher has opened for MPI belongs to the program.
    program = subprocess.Popen([sys.executable, *sys.argv[1:]], close_fds=False,
                               preexec_fn=_ends_with_parent)

    def passed_on(number: int, frame: FrameType | None) -> None:
        program.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, passed_on)
    status = program.wait()
    if status < 0:  # r[impl distributed.end.named+2]
        time.sleep(2 * (settings.get("DISTRIBUTED_SECONDS") + ROLL))  # their end is ours, too
        return 128 - status
    return status


if __name__ == "__main__":
    sys.exit(main())
