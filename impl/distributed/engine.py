"""Collectives of several processes, with a limit of time. Chapter: spec/distributed.md.

Before each collective the processes of a group tell each other what they are about to do. So none
takes part in another one's, and who does not come is known by name.
"""
from __future__ import annotations

import functools
import hashlib
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from impl import settings
from impl.distributed.ranks import rank, world
from impl.dtypes import DType, dtypes
from impl.errors import DistributedError, user_line
from impl.ir import Ops

#: Bytes of a note: the number of the collective, what it is, and the user's line.
_NOTE = 256
#: MPI's own names. Its maximum does not say what becomes of NaN.
_SUMS = {Ops.ADD: "SUM", Ops.MUL: "PROD"}
_TYPES = {dtypes.float32: np.float32, dtypes.float64: np.float64, dtypes.int32: np.int32,
          dtypes.int64: np.int64, dtypes.uint32: np.uint32, dtypes.uint64: np.uint64}


class Ranks:
    """Some processes, in an order; this one is among them."""

    def __init__(self, members: Sequence[int]) -> None:
        from mpi4py import MPI
        self.mpi, self.members = MPI, list(members)
        self.place, self.count = self.members.index(rank()), 0
        # Notes of one group are told from those of another.
        self.tag = zlib.crc32(repr(self.members).encode()) % 30_000 + 1

    @functools.cached_property
    def comm(self) -> Any:
        """The group's communicator: to make it all have to be there, and they have just met."""
        return world().Create_group(world().Get_group().Incl(self.members), self.tag)

    def met(self, what: str) -> None:
        """Wait until all are about to do the same.

        Raises:
            DistributedError: one has not come in time, or is about to do something else.
        """
        self.count += 1
        line = user_line()
        note = _written(self.count, what, line)
        notes = [np.zeros(_NOTE, np.uint8) for _ in self.members]
        others = [place for place in range(len(self.members)) if place != self.place]
        coming = {place: world().Irecv(notes[place], self.members[place], self.tag)
                  for place in others}
        sending = [world().Isend(note, self.members[place], self.tag) for place in others]
        late = _waited(coming)
        if late:  # r[impl distributed.late.named]
            who = ", ".join(str(self.members[place]) for place in late)
            raise DistributedError(what, f"rank {who} has not come to step {self.count} ({line}) "
                                   f"within {settings.get('DISTRIBUTED_SECONDS')} s",
                                   "look at what it said last; all ranks have to run the same "
                                   "program and ask for the same values")
        for place in others:
            theirs = _read(notes[place])
            if theirs.split("\n")[:2] != _read(note).split("\n")[:2]:
                # r[impl distributed.other.named]
                raise DistributedError(what, f"at step {self.count} rank {self.members[place]} is "
                                       f"about to do something else: {_shown(theirs)}",
                                       "let all ranks run the same program")
        self.finish(sending)

    def finish(self, requests: Sequence[Any], what: str = "sending") -> None:
        """Wait for requests, for as long as the setting says."""
        late = _waited(dict(enumerate(requests)))
        if late:
            raise DistributedError(what, f"step {self.count} ({user_line()}) was not done within "
                                   f"{settings.get('DISTRIBUTED_SECONDS')} s",
                                   "another rank has ended or hangs")

    def sum(self, values: np.ndarray, op: Ops, dtype: DType) -> bool:
        """Combine in place, if MPI can; whether it could."""
        kind = _TYPES.get(dtype)
        if op not in _SUMS or kind is None:
            return False
        operation = getattr(self.mpi, _SUMS[op])
        given = values.view(kind)
        self.finish([self.comm.Iallreduce(self.mpi.IN_PLACE, given, operation)], "all-reduce")
        return True

    def all(self, values: np.ndarray) -> np.ndarray:
        """The bytes of all, one behind the other."""
        found = np.empty(values.nbytes * len(self.members), np.uint8)
        self.finish([self.comm.Iallgather(values, found)], "all-gather")
        return found

    def exchanged(self, values: np.ndarray) -> np.ndarray:
        """Piece i of the bytes of rank j becomes piece j of rank i."""
        found = np.empty_like(values)
        self.finish([self.comm.Ialltoall(values, found)], "all-to-all")
        return found


def _written(count: int, what: str, line: str) -> np.ndarray:
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    text = f"{count}\n{digest}\n{what[:100]}\n{line[-100:]}".encode()[:_NOTE]
    note = np.zeros(_NOTE, np.uint8)
    note[:len(text)] = np.frombuffer(text, np.uint8)
    return note


def _read(note: np.ndarray) -> str:
    return bytes(note).rstrip(b"\0").decode(errors="replace")  # it may be cut within a letter


def _shown(note: str) -> str:
    count, _, what, line = (note.split("\n") + [""] * 4)[:4]
    return f"{what} at step {count} ({line})"


def _waited(requests: dict[int, Any]) -> list[int]:
    """Those requests that were not done in time."""
    open_ones, deadline = dict(requests), time.monotonic() + settings.get("DISTRIBUTED_SECONDS")
    turns = 0
    while open_ones:
        for key in [key for key, request in open_ones.items() if request.Test()]:
            del open_ones[key]
        turns += 1
        if turns % 1000 == 0 and open_ones:  # the processor may be needed elsewhere
            if time.monotonic() > deadline:
                return list(open_ones)
            time.sleep(0.0002 if turns < 20_000 else 0.005)
    return []
