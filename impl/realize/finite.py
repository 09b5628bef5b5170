"""CHECK_NAN: the first kernel that makes a NaN, and what it was given. Chapter: spec/inspect.md."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from impl.device import Device, Memory
from impl.dtypes import FLOAT8, DType, dtypes, from_bits
from impl.errors import NaNError
from impl.host import np
from impl.ir import line_of
from impl.realize.run import Run
from impl.schedule import label, shown_numbers


class Watch:
    """What the memory that a kernel writes held before, to know what it has made.

    At `level` 2 infinities are looked for, too: they are often meant, as in a mask.
    """

    def __init__(self, run: Run, level: int) -> None:
        self.run, self.level = run, level
        self.touched: set[int] = set()  # by the kernels before

    def begin(self, number: int, memories: Sequence[Memory]) -> None:
        """A kernel is about to run."""
        self.number, self.kernel = number, self.run.plan.kernels[number]
        self.memories = dict(zip(self.kernel.arguments, memories, strict=True))
        for storage in self._anew():
            for memory in self.memories[storage].members:
                memory.device.put(memory, np.zeros(memory.nbytes, np.uint8))
        self.touched.update(self.memories)
        written = {touch.storage for touch in self.kernel.writes}
        self.before = {storage: self._bits(storage) for storage in written if self._floats(storage)}

    def _anew(self) -> list[int]:
        """What holds only what an earlier run left: not to be taken for what this one makes."""
        return [storage for storage in self.memories if self._floats(storage)
                and storage not in self.touched
                and self.run.plan.storages[storage].kind != "input"
                and not any(self._meet(storage, other) for other in self.memories)]

    def _meet(self, storage: int, other: int) -> bool:
        """Whether two temporaries have memory in common."""
        planned = self.run.plan.memories.get(self.run.plan.storages[storage].device)
        if other == storage or planned is None \
                or not {storage, other} <= planned.offsets.keys():
            return False
        (one, many), (two, few) = ((planned.offsets[each], self.run.plan.storages[each].nbytes)
                                   for each in (storage, other))
        return one < two + few and two < one + many

    def _floats(self, storage: int) -> bool:
        return storage in self.memories and self.run.plan.storages[storage].dtype.kind == "f"

    def _bits(self, storage: int) -> np.ndarray:
        """The elements of all devices, as they lie there."""
        dtype, parts = self.run.plan.storages[storage].dtype, []
        nbytes = self.run.buffers[storage].nbytes
        for memory in self.memories[storage].members:
            parts.append(memory.device.get(memory, 0, min(nbytes, memory.nbytes)))
        whole = np.concatenate(parts)
        return whole[:whole.size - whole.size % dtype.itemsize].view(f"u{dtype.itemsize}")

    def end(self) -> None:
        """The kernel has run: look at what it has made.

        Raises:
            NaNError: an element that it has changed is no number, or not finite.
        """
        Device[self.kernel.device].synchronize()
        for storage, before in self.before.items():
            after, dtype = self._bits(storage), self.run.plan.storages[storage].dtype
            values = _numbers(after, dtype)
            wrong = np.isnan(values) if self.level < 2 else ~np.isfinite(values)
            found = np.flatnonzero(wrong & (before != after))
            if found.size:  # r[impl inspect.nan.first]
                self._refuse(storage, values, found)

    def _refuse(self, storage: int, values: np.ndarray, found: np.ndarray) -> None:
        names, is_nan = shown_numbers(self.run.plan), bool(np.isnan(values[found[0]]))
        inputs, given = [], False
        for each in dict.fromkeys(touch.storage for touch in self.kernel.reads):
            dtype = self.run.plan.storages[each].dtype
            if each in self.memories and dtype.kind in "fiu":
                bits = self.before[each] if each in self.before else self._bits(each)
                read = _numbers(bits, dtype)
                inputs.append(f"b{names.get(each, each)} ({_told(read)})")
                given |= bool((np.isnan(read) if is_nan else np.isinf(read)).any())
        operations = label(self.run.plan, self.number, self.run.effects.nodes).partition(" (")[0]
        kind = "NaN" if is_nan else "infinity"
        made = f"has {kind}, and was given some" if given else f"makes {kind}"
        raise NaNError(
            self.kernel.name, f"kernel {self.number} ({operations}) {made}: {found.size} of "
            f"{values.size} elements of b{names.get(storage, storage)}, the first of them element "
            f"{found[0]}; it reads {', '.join(inputs) or 'nothing'}",
            "look at these inputs; FUSE=0 gives each operation a kernel of its own, and "
            "CHECK_NAN=0 lets it pass",
            line_of(self.run.origins()[self.number]) or None)


def _numbers(bits: np.ndarray, dtype: DType) -> np.ndarray:
    coded = dtype is dtypes.bfloat16 or dtype in FLOAT8
    return from_bits(bits, dtype) if coded else bits.view(dtype.numpy)


def _told(values: np.ndarray) -> str:
    """The least and the greatest of some numbers, and how many are none."""
    if values.dtype.kind != "f":
        return f"{values.min()} to {values.max()}" if values.size else "empty"
    finite = values[np.isfinite(values)].astype(np.float64)
    parts: list[str] = [f"{finite.min():.6g} to {finite.max():.6g}"] if finite.size else []
    others: Iterable[tuple[str, int]] = (
        ("NaN", int(np.isnan(values).sum())), ("infinite", int(np.isinf(values).sum())))
    return ", ".join([*parts, *(f"{count} {name}" for name, count in others if count)]) or "empty"
