"""Which process of a job this is. Chapter: spec/distributed.md."""
from __future__ import annotations

import functools
import os
import sys
import time
from typing import Any

from impl.errors import DeviceError, DistributedError

#: What the launchers of MPI set for each process.
_LAUNCHED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")


@functools.cache
def world() -> Any:
    """The communicator of all processes; None for a process that nobody launched as one of many.

    Raises:
        DeviceError: the process was launched by MPI, and mpi4py is not there.
    """
    if not any(name in os.environ for name in _LAUNCHED):
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise DeviceError("distributed", f"mpi4py cannot be used: {error}",
                          "pip install 'tensor-schedule[mpi]'") from None
    _end_all_after_errors(MPI.COMM_WORLD)
    return MPI.COMM_WORLD


#: Seconds in which the others may find out for themselves, before their processes are ended.
_GRACE = 10.0


def _end_all_after_errors(comm: Any) -> None:
    """An error that says that the processes do not meet ends all of them, once each has said so.

    Else they would wait for each other at their end: for the one that hangs, for ever.
    """
    before = sys.excepthook

    def said(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        if isinstance(error, DistributedError):
            sys.stdout.flush()
            sys.stderr.flush()
            said_by_all, deadline = comm.Ibarrier(), time.monotonic() + _GRACE
            while not said_by_all.Test() and time.monotonic() < deadline:
                time.sleep(0.01)
            comm.Abort(1)

    sys.excepthook = said


def rank() -> int:
    """The number of this process."""
    return 0 if world() is None else int(world().Get_rank())


def ranks() -> int:
    """How many processes there are."""
    return 1 if world() is None else int(world().Get_size())
