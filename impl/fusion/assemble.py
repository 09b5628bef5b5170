"""A group of stages becomes one kernel. Chapter: spec/fusion.md.

Needs: groups, the storage of every value, and which storages are private to one kernel.
Guarantees: each group has a kernel with numbered loops and arguments; groups that differ only in
storages, variables and numbers of loops have the same one.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from impl.dtypes import DType, Scalar
from impl.fusion.groups import Group, Member
from impl.fusion.narrow import expressed
from impl.ir import TRUE, KernelInfo, Ops, RangeKind, Shape, UOp, identity, new_range
from impl.multi import Transfer, gone_together
from impl.places import Place
from impl.ranges import Access, Index, InOrder, LoopTask, Stage, Task, flatten
from impl.symbolic import Extent, extent, extent_of, is_symbolic, plain


@dataclass
class Kernel:
    """A kernel in its final form, and what its arguments are.

    `arguments[i]` is the storage behind PARAM i, `variables[i]` the run-time integer behind the
    i-th variable. Equal kernels have the same `ast`, whatever they work on.
    """

    ast: UOp
    arguments: tuple[int, ...]
    variables: tuple[UOp, ...]
    device: Place
    task: Task | None = None  # what the runtime does in place of a program

    @property
    def transfer(self) -> Transfer | None:
        """What is sent between the devices of a mesh; None for all else."""
        return self.task if isinstance(self.task, Transfer) else None

    @property
    def loop(self) -> LoopTask | None:
        """The loop that is run; None for all else."""
        return self.task if isinstance(self.task, LoopTask) else None


#: What has a name in a stage, and another one in the kernel.
_NAMED = frozenset((Ops.RANGE, Ops.DEFINE_VAR, Ops.INDEX))


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
        ast = expressed(UOp(Ops.SINK, stores[0].dtype, tuple(stores), info))
        return Kernel(ast, tuple(self.arguments), tuple(self.variables), self.group.device,
                      self.group.members[0].stage.task)

    def _name(self) -> str:
        """What a profile shows: `reduce` or `map`, and the extents of the loops."""
        reduces = any(m.stage.form.reduced for m in self.group.members)
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
        renamed[TRUE] = TRUE
        more = stage.form.in_order
        own = [loop for loop in stage.loops if loop not in renamed]
        for loop in (*own, *(more.loops if more is not None else ())):
            if loop not in renamed:
                ordered = more is not None and loop in more.loops[:1]
                renamed[loop] = self._range(loop, RangeKind.BLOCK if ordered else RangeKind.LOOP)
        new_name = renamed.__getitem__
        for node in stage.form.order:
            if node not in renamed:
                if node.op in _NAMED:
                    renamed[node] = self._renamed(stage, node, renamed)
                else:  # and no function for the most of them
                    sources = tuple(map(new_name, node.src))
                    renamed[node] = node if sources == node.src else \
                        UOp(node.op, node.dtype, sources, node.arg)
        value, dtype = renamed[stage.form.value], stage.form.value.dtype
        own = [renamed[loop] for loop in own]
        target = self._address(stage, stage.write, renamed, dtype)
        first = UOp(Ops.STORE, dtype, (target, value, *own))
        if more is not None:
            if more.table:
                return self._by_key(more, renamed, target, dtype)
            update = self._update(stage, more, renamed, dtype)
            return [update] if more.target is stage.write.pattern else [first, update]
        if stage.write.value not in self.handed_on:
            return [first]
        # From the local buffer to memory, in loops of its own.
        again = {loop: self._numbered(loop.src[0], RangeKind.LOOP) for loop in own}
        flat = renamed[stage.write.pattern.flat]
        if again:
            flat, target = flat.substitute(again), target.substitute(again)
        memory = self._argument(self.storage_of[stage.write.value], flat, TRUE, dtype)
        value = UOp(Ops.LOAD, dtype, (target,))
        return [first, UOp(Ops.STORE, dtype, (memory, value, *again.values()))]

    def _update(self, stage: Stage, more: InOrder, renamed: dict[UOp, UOp], dtype: DType) -> UOp:
        """The STORE whose elements need those stored before: its first loop runs in order."""
        number, value = stage.write.value, renamed[more.value]
        if more.op is not None:
            # r[impl ranges.order.combined+2]
            before = self._address(stage, Access(number, more.before), renamed, dtype)
            found = UOp(Ops.LOAD, dtype, (before,))
            if more.before is not more.target:
                found = UOp(Ops.WHERE, dtype, (renamed[more.before.valid], found,
                                               UOp.const(dtype, _neutral(more.op, dtype))))
            value = UOp(more.op, dtype, (found, value))
        target = self._address(stage, Access(number, more.target), renamed, dtype)
        return UOp(Ops.STORE, dtype, (target, value, *(renamed[loop] for loop in more.loops)))

    def _by_key(self, more: InOrder, renamed: dict[UOp, UOp], target: UOp,
                dtype: DType) -> list[UOp]:
        """A table that holds the last result of each key; what it becomes is the next result."""
        assert more.op is not None
        table = UOp(Ops.LOCAL, dtype, (), (0, more.table))
        row, loops = self._numbered(more.table, RangeKind.LOOP), [renamed[r] for r in more.loops]
        place = UOp(Ops.INDEX, dtype, (table, renamed[more.key], renamed[more.before.valid]))
        found = UOp(Ops.LOAD, dtype, (place,))
        value = UOp(more.op, dtype, (found, renamed[more.value]))
        start = UOp.const(dtype, _neutral(more.op, dtype))
        # r[impl ranges.order.combined+2]
        return [UOp(Ops.STORE, dtype, (UOp(Ops.INDEX, dtype, (table, row, TRUE)), start, row)),
                UOp(Ops.STORE, dtype, (place, value, *loops)),
                UOp(Ops.STORE, dtype, (target, found, *loops))]

    def _range(self, loop: UOp, kind: RangeKind) -> UOp:
        """A loop of a stage in the kernel's terms."""
        return self._numbered(self._size(extent(loop)), kind)

    def _numbered(self, size: int | UOp, kind: RangeKind) -> UOp:
        self.next_range += 1
        return new_range(size, kind, self.next_range - 1)

    def _rename(self, stage: Stage, roots: Sequence[UOp], renamed: dict[UOp, UOp]) -> None:
        """Put the expressions into the kernel's terms; no recursion."""
        stack = list(roots[::-1])
        while stack:
            node = stack[-1]
            if node not in renamed:
                waiting = [s for s in node.src if s not in renamed]
                if waiting:
                    stack += waiting[::-1]
                    continue
                renamed[node] = self._renamed(stage, node, renamed)
            stack.pop()

    def _renamed(self, stage: Stage, node: UOp, renamed: dict[UOp, UOp]) -> UOp:
        """One node in the kernel's terms; those of its sources are known."""
        if node.op is Ops.RANGE:
            return self._range(node, RangeKind.REDUCE)
        if node.op is Ops.DEFINE_VAR:
            return self._variable(node)
        if node.op is Ops.INDEX:
            return self._address(stage, stage.read(node.arg), renamed, node.dtype)
        sources = tuple(map(renamed.__getitem__, node.src))
        return node if sources == node.src else UOp(node.op, node.dtype, sources, node.arg)

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

    def _address(self, stage: Stage, access: Access, renamed: dict[UOp, UOp],
                 dtype: DType) -> UOp:
        """Where an access goes, in the kernel's terms: to memory, or to a local buffer."""
        pattern, storage = access.pattern, self.storage_of[access.value]
        if storage not in self.private and access.value not in self.handed_on:
            return self._argument(storage, renamed[pattern.flat], renamed[pattern.valid], dtype)
        self._rename(stage, pattern.index, renamed)
        index = tuple([renamed[i] for i in pattern.index])
        pointer, dropped = self._local(access.value, pattern.shape, index, dtype)
        kept = [d for d in range(len(index)) if d not in dropped]
        flat = flatten(tuple(index[d] for d in kept),
                       tuple(self._size(pattern.shape[d]) for d in kept))
        return UOp(Ops.INDEX, dtype, (pointer, flat, renamed[pattern.valid]))

    def _argument(self, storage: int, flat: UOp, valid: UOp, dtype: DType) -> UOp:
        """An element of one of the kernel's arguments, which are numbered by appearance."""
        # r[impl fusion.kernel.canonical+2]
        position = self.arguments.setdefault(storage, len(self.arguments))
        return UOp(Ops.INDEX, dtype, (UOp(Ops.PARAM, dtype, (), position), flat, valid))

    def _local(self, value: int, shape: Shape, index: Index,
               dtype: DType) -> tuple[UOp, tuple[int, ...]]:
        """A buffer between stages, and the axes that it drops: those of the prefix.

        The first access is the write of the stage that makes the value. If an axis is dropped,
        all other accesses have the same shape, or the stages would not share a kernel.
        """
        if value not in self.locals:
            dropped = tuple(d for d, i in enumerate(index) if i in self.prefix)
            # r[impl memory.size.greatest]: a local buffer has one size for all values
            size = plain(math.prod(s for d, s in enumerate(shape) if d not in dropped))
            pointer = UOp(Ops.LOCAL, dtype, (), (len(self.locals), size))
            self.locals[value] = pointer, dropped
        return self.locals[value]


def _neutral(op: Ops, dtype: DType) -> Scalar:
    """What changes nothing when an element is combined with it: 0.0 would change -0.0."""
    return -0.0 if op is Ops.ADD and dtype.kind == "f" else identity(op, dtype)


class Assembler:
    """Makes the kernels of a plan; those of equal groups are equal, and made once."""

    def __init__(self, storage_of: Sequence[int], private: set[int]) -> None:
        self.storage_of, self.private = storage_of, private
        self.known: dict[tuple[Any, ...], tuple[UOp, list[int], tuple[UOp, ...]]] = {}

    def kernel(self, group: Group) -> Kernel:
        """The kernel of a group; storages in `private` become local buffers."""
        given = group.members[0].stage.given
        if given is not None:  # r[impl custom.kernel.alone]
            arguments = tuple(self.storage_of[value] for value in given.values)
            return Kernel(expressed(given.ast), arguments, (), group.device)
        key, storages = self._describe(group)
        known = self.known.get(key)  # r[impl fusion.kernel.canonical+2]
        if known is None:
            made = _KernelBuilder(group, self.storage_of, self.private).run()
            place = {storage: i for i, storage in enumerate(storages)}
            known = made.ast, [place[s] for s in made.arguments], made.variables
            self.known[key] = known
        ast, places, variables = known
        taken = tuple(storages[i] for i in places)
        task = group.members[0].stage.task
        if isinstance(task, LoopTask):  # equal nests may be of other loops
            values = *task.on, group.members[0].stage.write.value
            task = LoopTask(task.info, tuple(
                taken.index(s) if (s := self.storage_of[v]) in taken else -1 for v in values))
        elif len(group.members) > 1 and isinstance(task, Transfer):
            task = gone_together([member.stage.task for member in group.members
                                  if isinstance(member.stage.task, Transfer)])
        return Kernel(ast, taken, variables, group.device, task)

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
