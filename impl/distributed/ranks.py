"""Which process of a job this is. Chapter: spec/distributed.md."""
from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from impl.errors import DeviceError

if TYPE_CHECKING:
    from impl.distributed.monitor import Monitor

#: What the launchers of MPI set for each process.
_LAUNCHED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")


@functools.cache
def monitor() -> Monitor | None:
    """The monitor of a job of several processes; None for a process that is alone.

    Raises:
        DeviceError: the process was launched by MPI, and mpi4py is not there.
    """
    if not any(name in os.environ for name in _LAUNCHED):
        return None
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise DeviceError("distributed", f"mpi4py cannot be used: {error}",
                          "pip install mpi4py mpich") from None
    if MPI.COMM_WORLD.Get_size() == 1:
        return None
    from impl.distributed.monitor import begin_monitor
    return begin_monitor(MPI)


def rank() -> int:
    """The number of this process."""
    known = monitor()
    return 0 if known is None else known.rank


def ranks() -> int:
    """How many processes there are."""
    known = monitor()
    return 1 if known is None else known.size
