"""A group of stages becomes one kernel. Chapter: spec/fusion.md."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from impl.dtypes import DType
from impl.fusion.groups import Group, Member
from impl.ir import KernelInfo, Ops, RangeKind, UOp, new_range, toposort
from impl.ranges import Access, Pattern, Stage, flatten
from impl.symbolic import Extent, extent, extent_of, is_symbolic, plain


@dataclass(frozen=True)
class Kernel:
    """A kernel in its final form, and what its arguments are.

    `arguments[i]` is the storage behind PARAM i, `variables[i]` the run-time integer behind the
    i-th variable. Equal kernels have the same `ast`, whatever they work on.
    """

    ast: UOp
    arguments: tuple[int, ...]
    variables: tuple[UOp, ...]
    device: str
    copy: bool = False


# --8<-- [start:assemble]
class _KernelBuilder:
    """Renames loops and memory of all stages into the terms of their common kernel."""

    def __init__(self, group: Group, storage_of: Sequence[int], private: set[int]) -> None:
        self.group, self.storage_of, self.private = group, storage_of, private
        self.variables: dict[UOp, UOp] = {}
        self.prefix = [new_range(self._size(size), RangeKind.GLOBAL, number)
                       for number, size in enumerate(group.sizes)]
        self.next_range = len(self.prefix)
        self.arguments: dict[int, int] = {}
        self.locals: dict[int, tuple[UOp, tuple[int, ...]]] = {}
        # Outputs that a later stage of the kernel reads: they pass through a local buffer too.
        self.handed_on = self._handed_on()

    def run(self) -> Kernel:
        """Build the SINK."""
        stores = [store for member in self.group.members for store in self._stores(member)]
        info = KernelInfo(self._name(), tuple(self.prefix), tuple(self.variables.values()))
        ast = UOp(Ops.SINK, stores[0].dtype, tuple(stores), info)
        return Kernel(ast, tuple(self.arguments), tuple(self.variables), self.group.device,
                      self.group.members[0].stage.copy)
    # --8<-- [end:assemble]

    def _name(self) -> str:
        """What a profile shows: `reduce` or `map`, and the extents of the loops."""
        reduces = any(m.stage.form.reduces for m in self.group.members)
        sizes = list(self.group.sizes)
        for member in self.group.members:
            sizes += [extent(r) for r in member.stage.loops if r not in member.prefix]
        label = "_".join("n" if is_symbolic(size) else str(size) for size in sizes[:6])
        return f"{'reduce' if reduces else 'map'}_{label}" if label else "scalar"

    def _handed_on(self) -> set[int]:
        """Values that are written to memory and read again inside the kernel."""
        made = {m.stage.write.value for m in self.group.members}
        read = {a.value for m in self.group.members for a in m.stage.reads}
        return {v for v in made & read if self.storage_of[v] not in self.private}

    def _stores(self, member: Member) -> list[UOp]:
        """The STORE of a stage; and a second one if its value is handed on."""
        stage = member.stage
        renamed: dict[UOp, UOp] = dict(zip(member.prefix, self.prefix, strict=True))
        own = [loop for loop in stage.loops if loop not in renamed]
        for loop in own:
            renamed[loop] = self._range(loop, RangeKind.LOOP)
        self._rename(stage, (*stage.write.index, stage.form.value), renamed)
        value = renamed[stage.form.value]
        write = Access(stage.write.value, replace(
            stage.write.pattern, index=tuple(renamed[i] for i in stage.write.index)))
        own = [renamed[loop] for loop in own]
        if write.value not in self.handed_on:
            return [UOp(Ops.STORE, value.dtype, (self._address(write, value.dtype), value, *own))]
        local = self._address(write, value.dtype)
        first = UOp(Ops.STORE, value.dtype, (local, value, *own))
        # r[impl fusion.group.memory]: from there to memory, in loops of its own
        again = {loop: self._range(loop, RangeKind.LOOP) for loop in own}
        value = UOp(Ops.LOAD, value.dtype, (local,)).substitute(again)
        write = Access(write.value, replace(
            write.pattern, index=tuple(i.substitute(again) for i in write.index)))
        target = self._address(write, value.dtype, False)
        return [first, UOp(Ops.STORE, value.dtype, (target, value, *again.values()))]

    def _range(self, loop: UOp, kind: RangeKind) -> UOp:
        self.next_range += 1
        return new_range(self._size(extent(loop)), kind, self.next_range - 1)

    def _rename(self, stage: Stage, roots: Sequence[UOp], renamed: dict[UOp, UOp]) -> None:
        """Put the expressions into the kernel's terms; no recursion."""
        for node in toposort(roots):
            if node in renamed:
                continue
            if node.op is Ops.RANGE:
                renamed[node] = self._range(node, RangeKind.REDUCE)
            elif node.op is Ops.DEFINE_VAR:
                renamed[node] = self._variable(node)
            elif node.op is Ops.INDEX:
                pattern = Pattern(node.arg, tuple(renamed[i] for i in node.src[2:]),
                                  renamed[node.src[1]])
                access = Access(stage.slots[node.src[0].arg], pattern)
                renamed[node] = self._address(access, node.dtype)
            else:
                sources = tuple(renamed[s] for s in node.src)
                renamed[node] = node if sources == node.src else node.replace(src=sources)

    def _variable(self, node: UOp) -> UOp:
        """Variables are numbered by appearance, so that equal kernels do not differ by a name."""
        if node not in self.variables:
            name = f"variable{len(self.variables)}"
            self.variables[node] = UOp(Ops.DEFINE_VAR, node.dtype, (), (name, *node.arg[1:]))
        return self.variables[node]

    def _size(self, size: int) -> int:
        """A size in the kernel's terms: its own names for the variables."""
        if not isinstance(size, Extent):
            return size
        names = {v: self._variable(v) for v in size.expression.variables()}
        return extent_of(size.expression.substitute(names))

    def _address(self, access: Access, dtype: DType, local: bool = True) -> UOp:
        """The flat address of an access whose index is in the kernel's terms already."""
        shape = access.shape if all(size.__class__ is int for size in access.shape) \
            else tuple(self._size(size) for size in access.shape)
        storage = self.storage_of[access.value]
        if local and (storage in self.private or access.value in self.handed_on):
            pointer, dropped = self._local(access, dtype)
            kept = [d for d in range(len(access.shape)) if d not in dropped]
            flat = flatten(tuple(access.index[d] for d in kept),
                           tuple(shape[d] for d in kept))
        else:
            # r[impl fusion.kernel.canonical]
            position = self.arguments.setdefault(storage, len(self.arguments))
            pointer = UOp(Ops.PARAM, dtype, (), position)
            flat = flatten(access.index, shape)
        return UOp(Ops.INDEX, dtype, (pointer, flat, access.valid))

    def _local(self, access: Access, dtype: DType) -> tuple[UOp, tuple[int, ...]]:
        """A buffer between stages, and the axes that it drops: those of the prefix.

        The first access is the write of the stage that makes the value. If an axis is dropped,
        all other accesses have the same shape, or the stages would not share a kernel.
        """
        storage = access.value
        if storage not in self.locals:
            dropped = tuple(d for d, i in enumerate(access.index) if i in self.prefix)
            # r[impl memory.size.greatest]: a local buffer has one size for all values
            size = plain(math.prod(s for d, s in enumerate(access.shape) if d not in dropped))
            pointer = UOp(Ops.LOCAL, dtype, (), (len(self.locals), size))
            self.locals[storage] = pointer, dropped
        return self.locals[storage]


# --8<-- [start:shared]
class Assembler:
    """Makes the kernels of a plan; those of equal groups are equal, and made once."""

    def __init__(self, storage_of: Sequence[int], private: set[int]) -> None:
        self.storage_of, self.private = storage_of, private
        self.known: dict[tuple[Any, ...], tuple[UOp, list[int], tuple[UOp, ...]]] = {}

    def kernel(self, group: Group) -> Kernel:
        """The kernel of a group; storages in `private` become local buffers."""
        key, storages = self._describe(group)
        known = self.known.get(key)  # r[impl fusion.kernel.shared]
        if known is None:
            made = _KernelBuilder(group, self.storage_of, self.private).run()
            place = {storage: i for i, storage in enumerate(storages)}
            known = made.ast, [place[s] for s in made.arguments], made.variables
            self.known[key] = known
        ast, arguments, variables = known
        return Kernel(ast, tuple(storages[i] for i in arguments), variables, group.device,
                      group.members[0].stage.copy)

    def _describe(self, group: Group) -> tuple[tuple[Any, ...], list[int]]:
        """All that a kernel depends on, storages and values by appearance; and the storages."""
        storages: dict[int, int] = {}
        values: dict[int, int] = {}
        rows: list[Any] = []
        for member in group.members:
            stage = member.stage
            rows.append((stage.form, tuple(stage.loops.index(r) for r in member.prefix)))
            for value in (*stage.slots, stage.write.value):
                storage = self.storage_of[value]
                rows.append((storages.setdefault(storage, len(storages)),
                             values.setdefault(value, len(values)), storage in self.private))
            rows.append(stage.write.pattern)
        return tuple(rows), list(storages)
# --8<-- [end:shared]
