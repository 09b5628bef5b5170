"""Collectives of several processes, with a limit of time. Chapter: spec/distributed.md.

Before each collective the processes of a group tell each other what they are about to do. So none
takes part in another one's, and who does not come is known by name.
"""
from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from impl.distributed.monitor import Waiting
from impl.distributed.ranks import monitor, ranks
from impl.dtypes import DType, dtypes
from impl.errors import DistributedError, user_line
from impl.ir import Ops
from impl.multi import Transfer

#: Bytes of a note: which collective it is, as a digest, and its number; then what goes with it.
_DIGEST, NOTED = 16, 240
#: Bytes of what a process says of a collective, where they differ; of what `all_gather` is given.
_TOLD, _SHARED = 512, 1000
#: MPI's own names. Its maximum does not say what becomes of NaN.
_SUMS = {Ops.ADD: "SUM", Ops.MUL: "PROD"}
_TYPES = {dtypes.float32: np.float32, dtypes.float64: np.float64, dtypes.int32: np.int32,
          dtypes.int64: np.int64, dtypes.uint32: np.uint32, dtypes.uint64: np.uint64}


_NOTHING = np.empty(0, np.uint8)
#: What is summed and where the sum goes, both as bytes; how, and of which dtype.
Sum = tuple[np.ndarray, np.ndarray, Any, DType]


class Ranks:
    """Some processes, in an order; this one is among them."""

    def __init__(self, members: Sequence[int]) -> None:
        found = monitor()
        assert found is not None
        self.monitor, self.members, self.count, self.what = found, list(members), 0, ""
        self.name = ",".join(map(str, members))
        self.place = self.members.index(found.rank)
        self.note = np.zeros(_DIGEST + NOTED, np.uint8)
        self.notes = np.zeros((len(self.members), _DIGEST + NOTED), np.uint8)

    @functools.cached_property
    def comm(self) -> Any:
        """The group's communicator; the first time all of the group have to come."""
        self.monitor.open(self.waiting)
        world = self.monitor.comm
        if len(self.members) == self.monitor.size:
            return world
        group = world.Get_group().Incl(self.members)
        return self.monitor.call(lambda: world.Create_group(group), self.waiting)

    @functools.cached_property
    def noting(self) -> Any:
        """What sends the notes, begun anew for each collective; None where MPI is older than 4."""
        comm = self.comm
        if self.monitor.mpi.VERSION < 4:
            return None
        return self.monitor.call(lambda: comm.Allgather_init(self.note, self.notes), self.waiting)

    def waiting(self, verb: str = "come to") -> Waiting:
        """What this process waits for; made when somebody asks, as most waits are short."""
        return Waiting(self.name, self.members, self.count, self.what, user_line(), verb)

    def met(self, what: str, given: np.ndarray = _NOTHING) -> np.ndarray:
        """Wait until all are about to do the same, and what each gives with it: the same number of
        bytes, at most `NOTED`, in a row for each process.

        Raises:
            DistributedError: one has not come in time, or is about to do something else.
        """
        if self.monitor.failed is not None:  # r[impl distributed.error.final]
            raise self.monitor.failed
        self.count, self.what = self.count + 1, what
        digest = _digest(what, given.nbytes) + self.count.to_bytes(8, "little")
        stop = _DIGEST + given.nbytes
        self.note.data[:stop] = digest + given.tobytes()
        request = self.noting
        if request is None:
            request = self.comm.Iallgather(self.note, self.notes)
        else:
            request.Start()
        self.monitor.wait([request], self.waiting)
        self.monitor.counts[self.name] = self.count
        if self.notes[:, :_DIGEST].tobytes() != digest * len(self.members):
            raise self._differ()
        return self.notes[:, _DIGEST:stop]

    def _differ(self) -> DistributedError:
        """The error for those whose notes are not those of most; all tell what they are up to."""
        told, texts = bytearray(_TOLD), np.zeros((len(self.members), _TOLD), np.uint8)
        text = f"{self.what[:300]} at collective {self.count} ({user_line()[-150:]})"
        mine = text.encode()[:_TOLD]
        told[:len(mine)] = mine
        self.monitor.wait([self.comm.Iallgather(told, texts)], self.waiting)
        does = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in texts]
        digests = [bytes(note[:_DIGEST]) for note in self.notes]
        most = max(digests, key=digests.count)  # of equally many the first one's
        few = [place for place, digest in enumerate(digests) if digest != most]
        if digests.count(most) == len(few):  # nobody can say who is wrong: it is the others
            few = [place for place, digest in enumerate(digests)
                   if digest != digests[self.place]]
        rest = next(place for place in range(len(digests)) if place not in few)
        # r[impl distributed.other.named]
        others = "; ".join(f"rank {self.members[place]} is about to do something else: "
                           f"{does[place]}" for place in few)
        return self.monitor.fail(self.waiting(), f"at collective {self.count} {others}. Rank "
                                 f"{self.members[rest]} is about to do {does[rest]}",
                                 "let all ranks run the same program")

    def done(self, *requests: Any) -> None:
        """Wait for collectives that all have come to."""
        self.monitor.wait(requests, self._under_way)

    def called(self, work: Callable[[], Any]) -> Any:
        """What a call answers that returns when all others have made it; all have come to it.

        Raises:
            Exception: what the call has raised.
        """
        return self.monitor.call(work, self._under_way)

    def _under_way(self) -> Waiting:
        return self.waiting("gone through")

    def can_sum(self, op: Ops | None, dtype: DType) -> bool:
        """Whether MPI combines elements of this dtype, and as we do."""
        return op in _SUMS and dtype in _TYPES

    def sums(self, given: Sequence[Sum]) -> None:
        """The bytes of all, combined; each is sent before the first one is waited for.

        Two processes send each other theirs, and combine them.
        """
        pairs = [(mine.view(_TYPES[dtype]), total.view(_TYPES[dtype]), op)
                 for mine, total, op, dtype in given]
        comm = self.comm
        if len(self.members) > 2:
            return self.done(*[comm.Iallreduce(mine, total, getattr(self.monitor.mpi, _SUMS[op]))
                               for mine, total, op in pairs])
        other = 1 - self.place
        coming = [comm.Irecv(total, other) for _, total, _ in pairs]
        going = [comm.Isend(mine, other) for mine, *_ in pairs]
        for request, (mine, total, op) in zip(coming, pairs, strict=True):
            self.done(request)
            # Both in one order, as which NaN it is depends on that.
            first, second = (mine, total) if self.place == 0 else (total, mine)
            (np.add if op is Ops.ADD else np.multiply)(first, second, out=total)
        self.done(*going)

    @staticmethod
    def sum_of(pieces: np.ndarray, result: np.ndarray, op: Any, dtype: DType) -> None:
        """The bytes of all, combined; each process has them in a row, in the same order."""
        kind, combine = _TYPES[dtype], np.add if op is Ops.ADD else np.multiply
        combine.reduce(pieces.view(kind), axis=0, dtype=kind, out=result.view(kind))

    def shifted(self, given: np.ndarray, result: np.ndarray, shift: int) -> None:
        """The bytes of the one that stands so many places before this one."""
        count = len(self.members)
        coming = self.comm.Irecv(result, (self.place - shift) % count)
        self.done(self.comm.Isend(given, (self.place + shift) % count), coming)

    def all(self, given: np.ndarray, result: np.ndarray) -> None:
        """The bytes of all, one behind the other."""
        self.done(self.comm.Iallgather(given, result))

    def exchanged(self, given: np.ndarray, result: np.ndarray) -> None:
        """Piece i of the bytes of rank j becomes piece j of rank i."""
        self.done(self.comm.Ialltoall(given, result))


def all_gather(purpose: str, given: bytes) -> list[bytes]:
    """What all processes give, at most 1,000 bytes each, once all have come with this purpose.

    Raises:
        DistributedError: one has not come in time, or is about to do something else.
    """
    if ranks() == 1:
        return [given[:_SHARED]]
    everybody = group(tuple(range(ranks())))
    everybody.met(purpose)
    mine = np.frombuffer(given[:_SHARED].ljust(_SHARED, b"\0"), np.uint8)
    found = np.empty((ranks(), _SHARED), np.uint8)
    everybody.all(mine, found)
    return [bytes(row).rstrip(b"\0") for row in found]


@functools.cache
def group(members: tuple[int, ...]) -> Ranks:
    """The group of some processes: one, whichever mesh it belongs to."""
    return Ranks(members)


@functools.lru_cache(1024)
def _digest(what: str, given: int) -> bytes:
    """What is about to be done, and how many bytes of it go with the note."""
    return hashlib.blake2b(f"{what} {given}".encode(), digest_size=_DIGEST - 8).digest()


def said(transfer: Transfer, dtype: DType, *sizes: int) -> str:
    """What a process says of a transfer before it takes part: all that decides what comes of it."""
    # r[impl distributed.other.named]
    how = f" ({transfer.op.name.lower()})" if transfer.op is not None else \
        f" by {transfer.shift}" * bool(transfer.shift)
    return f"{transfer.kind}{how} over {transfer.axis} of {', '.join(map(str, sizes))} bytes of " \
        f"{dtype.name}"
