"""What a search needs of a device, and memory to try kernels on. Chapter: spec/searching.md."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from impl import symbolic
from impl.host import np
from impl.ir import Ops, UOp
from impl.kernel.analysis import Analysis, DeviceLimits, buffer_key

#: A kernel that needs more memory than this is not tried.
_MOST_BYTES = 2 << 30
#: One sample takes at least so many seconds, so that the clock does not matter.
_SAMPLE = 1e-4


class Bench(Protocol):
    """What a device has to offer, so that kernels can be tried on it."""

    @property
    def limits(self) -> DeviceLimits:
        """What the steps may use."""

    def code_version(self) -> str:
        """Everything about the device and its compiler on which times depend."""

    def trial(self, asts: Sequence[UOp], seconds: float) -> list[Any]:
        """Programs for kernels as they stand; None for one that takes longer to compile."""

    def release(self, programs: Sequence[Any]) -> None:
        """Forget programs that were tried."""

    def allocate(self, nbytes: int) -> Any:
        """Memory of the device."""

    def put(self, memory: Any, flat: np.ndarray) -> None:
        """Write bytes of the host to the start of a block."""

    def table(self, launches: Sequence[Any]) -> Any:
        """Launches that are replayed together."""

    def seconds(self, work: Callable[[], None]) -> float:
        """How long the device works on what `work` launches."""


@dataclass
class Trial:
    """Memory to run a kernel on, with values in it; what runs overwrite is nobody's."""

    bench: Bench
    memories: list[Any]
    values: list[int]
    again: dict[int, np.ndarray]  # what is read and overwritten, as it was

    @classmethod
    def of(cls, ast: UOp, bench: Bench) -> Trial | None:
        """Memory as large as the kernel's addresses ask for; None if they do not say."""
        known = Analysis(ast)
        values = [(node.arg[1] + node.arg[2]) // 2 for node in known.info.variables]
        sizes = [0] * known.params
        loaded: set[int] = set()
        for node in known.order:
            if node.op is Ops.LOAD and node.src[0].src[0].op is Ops.PARAM:
                loaded.add(node.src[0].src[0].arg)
            if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM:
                if any(below.op is Ops.LOAD for below in node.src[1].toposort()):
                    return None  # an element chooses the address
                most = symbolic.bounds(node.src[1])[1] + 1
                place = node.src[0].arg
                sizes[place] = max(sizes[place], most * node.dtype.itemsize)
        if sum(sizes) > _MOST_BYTES:
            return None
        memories = [bench.allocate(max(size, 64)) for size in sizes]
        filled = _filled(memories, known)
        for memory, values_of in zip(memories, filled, strict=True):
            bench.put(memory, values_of)
        again = {place: filled[place] for place in sorted(loaded)
                 if (Ops.PARAM, place) in known.stored}
        return cls(bench, memories, values, again)

    def sample(self, program: Any) -> float:
        """Seconds that one run takes, over as many runs as it takes to tell."""
        count, seconds = 1, self._runs(program, 1)
        # r[impl searching.trial.harmless]: what a run overwrites is put back before the next one
        if not self.again and seconds < _SAMPLE:
            count = min(int(_SAMPLE / max(seconds, 1e-7)) + 1, 1000)
            seconds = self._runs(program, count)
        return seconds / count

    def _runs(self, program: Any, count: int) -> float:
        for place, before in self.again.items():
            self.bench.put(self.memories[place], before)
        table = self.bench.table([(program, self.memories, self.values)] * count)
        return self.bench.seconds(table.replay)


def _filled(memories: Sequence[Any], known: Analysis) -> list[np.ndarray]:
    """Bytes of ordinary numbers: neither subnormal nor so large that sums overflow soon."""
    kinds = {buffer_key(node): node.dtype for node in known.order if node.op is Ops.PARAM}
    found = []
    for place, memory in enumerate(memories):
        dtype, pattern = kinds.get((Ops.PARAM, place)), (np.arange(64) % 13 - 6) / 4
        if dtype is None or dtype.kind != "f":
            pattern = np.zeros(1, np.uint8)
        elif np.dtype(dtype.numpy).kind == "f":
            pattern = pattern.astype(dtype.numpy)
        else:  # bfloat16 as its bits
            pattern = (pattern.astype(np.float32).view(np.uint32) >> 16).astype(dtype.numpy)
        found.append(np.resize(pattern.view(np.uint8), memory.nbytes))
    return found
