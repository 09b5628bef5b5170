"""Sums of several processes in the host's memory. Chapter: spec/distributed.md.

A training step has a sum for each gradient, and between two of them nothing is computed. So they
are sent together, after one note. Everything that does not change from one step to the next is
made once, since Python is slowest just after kernels, which leave nothing of it in the caches.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from impl.collectives.device import Exchange
from impl.distributed.engine import Ranks, said
from impl.dtypes import DType, dtypes
from impl.host import np
from impl.ir import Ops
from impl.multi import NOTED, Transfer

#: Sums of fewer bytes go together: to put them in one place costs less than a call.
LARGE = 1 << 16
#: MPI's own names. Its maximum does not say what becomes of NaN.
_SUMS = {Ops.ADD: "SUM", Ops.MUL: "PROD"}
_COMBINE = {Ops.ADD: "add", Ops.MUL: "multiply"}
#: Of elements that are combined later only the bytes count.
_BYTES = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_TYPES = frozenset((dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint32,
                    dtypes.uint64))

#: What is summed and where the sum goes, both as bytes; how, and of which dtype. Without a how the
#: bytes of the other one of two processes go there.
Sum: TypeAlias = "tuple[np.ndarray, np.ndarray, Any, DType]"
#: Something to do with arrays that were chosen before.
Work = tuple[Callable[..., Any], tuple[Any, ...]]


def _combine(op: Any) -> np.ufunc:
    """What combines two arrays."""
    found: np.ufunc = getattr(np, _COMBINE[op])
    return found


def can_sum(op: Ops | None, dtype: DType) -> bool:
    """Whether MPI combines elements of this dtype, and as we do."""
    return op in _SUMS and dtype in _TYPES


def can_go_with_sums(transfer: Transfer, dtype: DType) -> bool:
    """Whether a transfer is a sum of MPI's, or an exchange of two processes."""
    if transfer.kind == "permute":
        return transfer.count == 2 and transfer.shift % 2 == 1
    return transfer.kind == "all-reduce" and can_sum(transfer.op, dtype)


class SumsTogether:
    """Several sums and exchanges after one note; with the note, if they find room in it.

    They can be sent again, as long as their memory stays.
    """

    def __init__(self, ranks: Ranks, given: Sequence[Exchange]) -> None:
        alike: dict[tuple[str, Any, DType], list[Exchange]] = {}
        for one in given:
            alike.setdefault((one[0].kind, one[0].op, one[3]), []).append(one)
        self.ranks, self.note = ranks, "; ".join(
            said(those[0][0], dtype, *(nbytes for _, _, nbytes, _ in those))
            for (_, _, dtype), those in alike.items())
        sums: list[Sum] = [(source.members[0].array[:nbytes], target.members[0].array[:nbytes],
                            op if kind == "all-reduce" else None, dtype)
                           for (kind, op, dtype), those in alike.items()
                           for _, (source, target), nbytes, _ in those]
        self.noted = sum(mine.nbytes for mine, *_ in sums)
        self.sums: Sums | None = None
        if self.noted > NOTED:
            self.noted, self.sums = 0, Sums(ranks, sums)
        self.before, self.after = list[Work](), list[Work]()
        self._lay(sums if self.noted else [])

    def _lay(self, sums: Sequence[Sum]) -> None:
        """Note where each has its bytes in the notes of all."""
        start = 0
        for mine, total, op, dtype in sums:
            stop = start + mine.nbytes
            self.before.append((np.copyto, (self.ranks.given[start:stop], mine)))
            # r[impl distributed.together.once+4]: each has the parts of all, in the same order
            pieces = self.ranks.found[:, start:stop]
            if op is None:
                self.after.append((np.copyto, (total, pieces[1 - self.ranks.place])))
            elif mine.nbytes:
                kind = dtype.numpy
                self.after.append((_combined, (pieces, kind, _combine(op), total.view(kind))))
            start = stop

    def __call__(self) -> None:
        """Send them."""
        for work, arrays in self.before:
            work(*arrays)
        self.ranks.met(self.note, self.noted)
        if self.sums is not None:
            self.sums()
        for work, arrays in self.after:
            work(*arrays)


def _combined(pieces: np.ndarray, kind: Any, combine: np.ufunc, total: np.ndarray) -> None:
    """Combine the rows of some bytes."""
    combine.reduce(pieces.view(kind), 0, kind, total)


class Sums:
    """Sums of a group that all have come to: each is sent before the first is waited for.

    Small ones of a dtype are put in one place, and sent as one. Two processes send each other
    theirs, and each combines them: here, or in the kernels that need them.
    """

    def __init__(self, ranks: Ranks, given: Sequence[Sum]) -> None:
        self.ranks, self.is_pair = ranks, len(ranks.members) == 2
        self.packed = list[Work]()
        #: What is sent, where what arrives is put, how MPI combines it; what is done with it then.
        self.messages = list[tuple[np.ndarray, np.ndarray, str]]()
        self.then = list[list[Work]]()
        alike: dict[tuple[Any, DType], list[tuple[np.ndarray, np.ndarray]]] = {}
        for mine, total, op, dtype in given:
            kind = (_BYTES[dtype.itemsize] if op is None else dtype).numpy
            ends = mine.view(kind), total.view(kind)
            if mine.nbytes < LARGE:
                alike.setdefault((op, dtype), []).append(ends)
            else:
                self._send(op, ends[0], ends[1], [(*ends, ends[1])])  # straight to its place
        for (op, _), small in alike.items():
            self._pack(op, small)
        self.again: tuple[list[Any], list[Any]] | None = None  # messages that MPI knows already
        self.runs = 0

    def _pack(self, op: Any, small: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Send several as one."""
        mine = [source for source, _ in small]
        whole = np.concatenate(mine)
        arrived, start, parts = np.empty_like(whole), 0, []
        for source, total in small:
            parts.append((source, arrived[start:start + source.size], total))
            start += source.size
        self.packed.append((np.concatenate, (mine, 0, whole)))
        self._send(op, whole, arrived, parts)

    def _send(self, op: Any, given: np.ndarray, arrived: np.ndarray,
              parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
        """Send one message; each part of what arrives has its source, and the place of the sum."""
        self.messages.append((given, arrived, _SUMS.get(op, "")))
        if op is None or not self.is_pair:  # MPI has combined it, or a kernel will
            self.then.append([(np.copyto, (total, part)) for _, part, total in parts
                              if part is not total])
        # Both in one order, as which NaN it is depends on that.
        elif self.ranks.place == 0:
            self.then.append([(_combine(op), (mine, part, total)) for mine, part, total in parts])
        else:
            self.then.append([(_combine(op), (part, mine, total)) for mine, part, total in parts])

    def __call__(self) -> None:
        """Send them, and wait until all have come."""
        for pack, arrays in self.packed:
            pack(*arrays)
        done = self.ranks.done
        coming, going = self._begun()
        for request, then in zip(coming, self.then, strict=True):
            if not request.Test():
                done(request)
            for work, arrays in then:
                work(*arrays)
        if going:
            done(*going)

    def _begun(self) -> tuple[Sequence[Any], Sequence[Any]]:
        """The messages that come, and those that go, under way."""
        ranks, self.runs = self.ranks, self.runs + 1
        comm, mpi = ranks.comm, ranks.monitor.mpi
        if not self.is_pair:
            return [comm.Iallreduce(given, arrived, getattr(mpi, op))
                    for given, arrived, op in self.messages], []
        other = 1 - ranks.place
        if self.runs == 1:  # most are sent once: memory is another one the next time
            return [comm.Irecv(arrived, other) for _, arrived, _ in self.messages], \
                [comm.Isend(given, other) for given, *_ in self.messages]
        if self.again is None:
            self.again = ([comm.Recv_init(arrived, other) for _, arrived, _ in self.messages],
                          [comm.Send_init(given, other) for given, *_ in self.messages])
            weakref.finalize(self, _free, mpi, [*self.again[0], *self.again[1]]).atexit = False
        coming, going = self.again
        mpi.Prequest.Startall([*coming, *going])
        return coming, going


def _free(mpi: Any, requests: Sequence[Any]) -> None:
    """Let MPI forget messages."""
    if not mpi.Is_finalized():
        for request in requests:
            request.Free()
