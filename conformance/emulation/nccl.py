"""A stand-in of NCCL, `nccl.cpp`, for the GPUs of the mock driver.

It knows NCCL's calls, looks at what they are given, and does what they say in the memory of the
host. So it holds the order and the types of arguments, groups, streams and errors. Processes of
one machine meet in it, too. It knows nothing of how long a call takes.
"""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from unittest import mock as mocking

from conformance.emulation import building
from conformance.emulation.driver import Mock
from impl.collectives import nccl


class StandIn(nccl.Library):
    """The library, seen from behind."""

    def __init__(self, mock: Mock) -> None:
        super().__init__(str(building.build(
            "nccl", ".so", [*building.FLAGS, "-shared", building.HERE / "nccl.cpp"])))
        self.functions.standin_told.restype = ctypes.c_char_p
        self.functions.standin_begin(
            ctypes.cast(mock.library.cuStreamSynchronize, ctypes.c_void_p))

    def told(self) -> list[str]:
        """The calls so far, each with its numbers."""
        return bytes(self.functions.standin_told()).decode().splitlines()

    def fail(self, error: int) -> None:
        """Let something that is under way have failed."""
        self.functions.standin_fail(error)


@contextlib.contextmanager
def stand_in(mock: Mock) -> Iterator[StandIn]:
    """Let the stand-in be the library that is found."""
    found = StandIn(mock)
    with mocking.patch.object(nccl, "library", lambda: found):
        yield found
