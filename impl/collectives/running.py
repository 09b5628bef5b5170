"""Transfers carried out on the memories of devices. Chapter: spec/collectives.md."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, zip_longest

from impl import settings
from impl.collectives.steps import Move, Rounds, permuted, rounds
from impl.device import DeviceBackend, GlobalCounters, Memory, Program
from impl.dtypes import DType
from impl.ir import TRUE, KernelInfo, Ops, RangeKind, UOp, new_range


@lru_cache(256)
def combining_kernel(op: Ops, dtype: DType, size: int) -> UOp:
    """The kernel that combines the elements of its second argument with those of its first."""
    loop = new_range(size, RangeKind.GLOBAL, 0)
    first, second = (UOp(Ops.INDEX, dtype, (UOp(Ops.PARAM, dtype, (), number), loop, TRUE))
                     for number in range(2))
    value = UOp(op, dtype, (UOp(Ops.LOAD, dtype, (first,)), UOp(Ops.LOAD, dtype, (second,))))
    store = UOp(Ops.STORE, dtype, (first, value))
    return UOp(Ops.SINK, dtype, (store,), KernelInfo(f"combine_{size}", (loop,)))


#: What one device does in a phase: copies, and combinations.
Action = Callable[[], object]
#: For each device of a group what it does; all do theirs at a time.
Phase = list[list[Action]]

#: The setting that names the algorithm of a collective.
SETTINGS = {"all-reduce": "ALLREDUCE", "all-gather": "ALLGATHER",
            "reduce-scatter": "REDUCESCATTER", "all-to-all": "ALLTOALL",
            "broadcast": "BROADCAST"}


class Peers:
    """Some devices of a mesh that send each other elements of a dtype."""

    def __init__(self, devices: Sequence[DeviceBackend], dtype: DType) -> None:
        self.devices, self.dtype = devices, dtype
        # r[impl collectives.memory.reached+2]
        self.shared = all(device.host_memory and device.shared_memory for device in devices)

    def rounds(self, kind: str, nbytes: int, shift: int = 0) -> Rounds:
        """The rounds of a collective, of which each device has so many bytes."""
        size, count = nbytes // self.dtype.itemsize, len(self.devices)
        if kind == "permute":
            return permuted(size, count, shift)
        # r[impl collectives.algorithm.named+2]
        name = str(settings.get(SETTINGS[kind]))
        each = size // count if kind == "all-to-all" else size
        return rounds(kind, each, count, self.dtype.itemsize, name)

    def run(self, found: Rounds, sources: Sequence[Memory], targets: Sequence[Memory],
            op: Ops | None = None) -> None:
        """Carry out rounds of moves, from the source of each device to its target."""
        for phase in self.phases(found, sources, targets, op):
            for actions in phase:
                for action in actions:
                    action()

    def phases(self, found: Rounds, sources: Sequence[Memory], targets: Sequence[Memory],
               op: Ops | None = None) -> Iterator[Phase]:
        """What each device has to do, in phases: none begins before all have done the last one.

        A round is one phase, or two where it overwrites what it sends.
        """
        # r[impl collectives.reduce.equal+2]: each part is combined once, and copied
        item = self.dtype.itemsize
        most = max((m.target + m.stop - m.start for moves in found for m in moves), default=0)
        values = list(targets)
        if values and most * item > values[0].nbytes:  # it works in more than the result
            values = [device.allocate(most * item) for device in self.devices]
            # What is left of it at the end are the local moves of the last round.
            *found, last = found
        for moves in found:
            yield from self._round(moves, sources, values, values, op)
        if values != list(targets):
            yield from self._round(last, sources, values, targets, op)

    def _round(self, moves: Sequence[Move], sources: Sequence[Memory], values: Sequence[Memory],
               targets: Sequence[Memory], op: Ops | None) -> Iterator[Phase]:
        """The phases of one round, which reads `values` and writes `targets`."""
        item = self.dtype.itemsize
        moves = [move for move in moves if move.stop > move.start]
        staged, applied = self._phase(), self._phase()
        # r[impl collectives.round.before+2]: what is sent is not what arrives meanwhile
        overwritten = values is targets and _meet(moves)
        for move in moves:
            nbytes = (move.stop - move.start) * item
            sent = (sources if move.given else values)[move.sender].part(move.start * item, nbytes)
            if overwritten or move.combined and not self.shared:
                staging = self.devices[move.receiver].allocate(nbytes)
                staged[move.receiver].append(partial(staging.device.copy, staging, sent, nbytes))
                sent = staging
            target = targets[move.receiver].part(move.target * item, nbytes)
            if move.combined:
                assert op is not None
                applied[move.receiver].append(self._combination(move.receiver, op, target, sent))
            else:
                applied[move.receiver].append(partial(target.device.copy, target, sent, nbytes))
        if any(staged) and not overwritten:  # each stages for itself
            applied = [[*first, *then] for first, then in zip(staged, applied, strict=True)]
        elif any(staged):
            yield staged
        if any(applied):
            yield applied

    def _phase(self) -> Phase:
        return [[] for _ in self.devices]

    def compile(self, found: Rounds, op: Ops) -> None:
        """Compile the kernels that combine what arrives in some rounds."""
        for device, size in dict.fromkeys((move.receiver, move.stop - move.start)
                                          for moves in found for move in moves if move.combined):
            if size > 0:
                self.devices[device].compile([combining_kernel(op, self.dtype, size)])

    def _combination(self, device: int, op: Ops, target: Memory, other: Memory) -> Action:
        """Combine the elements of two blocks, in the first of them."""
        kernel = combining_kernel(op, self.dtype, target.nbytes // self.dtype.itemsize)
        return partial(_combined, self.devices[device].compile([kernel])[0], [target, other])

    def combine(self, device: int, op: Ops, target: Memory, other: Memory) -> None:
        """Combine the elements of two blocks of a device, in the first of them."""
        self._combination(device, op, target, other)()


def at_once(given: Sequence[Iterable[Phase]]) -> list[Phase]:
    """The phases of several collectives of the same devices, which go side by side."""
    if len(given) == 1:
        return list(given[0])
    # r[impl collectives.together.equal]
    return [[list(chain(*mine)) for mine in zip(*(phase for phase in each if phase), strict=True)]
            for each in zip_longest(*given)]


def _combined(program: Program, memories: Sequence[Memory]) -> None:
    program.run(memories, ())
    GlobalCounters.launched(program.cost())


def _meet(moves: Sequence[Move]) -> bool:
    """Whether a move of a round reads of the value what another one writes."""
    written: dict[int, list[tuple[int, int]]] = {}
    for move in moves:
        written.setdefault(move.receiver, []).append(
            (move.target, move.target + move.stop - move.start))
    return any(not move.given and any(start < move.stop and move.start < stop
                                      for start, stop in written.get(move.sender, ()))
               for move in moves)
