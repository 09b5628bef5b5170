"""Which write is in place: where every version of a value lives. Chapter: spec/placement.md.

Needs: stages in the order in which they were made, each with the value that it would like to
overwrite; and which values somebody can observe after the schedule.
Guarantees: every value has a storage and a version in it; the stages stand in an order in which
no version is overwritten before all who mean it have read it, and no iteration reads what another
one of its stage has overwritten. Where that is not possible in place there is a copy, with a note.
"""
from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from impl.custom.in_place import merged
from impl.dependencies import Pair, apart, of_versions, same_element
from impl.dtypes import DType
from impl.errors import GraphError
from impl.ir import Ops, Shape, UOp
from impl.multi import Buckets, behind, likeness
from impl.places import Place
from impl.ranges import Access, Form, Index, OwnKernel, Pattern, Stage, Value, load, output_ranges
from impl.symbolic import extent


@dataclass(frozen=True)
class Placement:
    """Where every value lives, and the stages in an order that respects all hazards.

    `storage[value]` is the number of the first value of that memory, `version[value]` which of
    its contents. `kept` are the storages of what was asked for; `copies` tells for what reason
    values were moved; `buckets` which transfers go together: the bucket of each stage that is one.
    """

    values: list[Value]
    stages: list[Stage]
    storage: list[int]
    version: list[int]
    kept: frozenset[int] = frozenset()
    copies: list[str] = field(default_factory=list)
    buckets: dict[int, int] = field(default_factory=dict)

    @cached_property
    def temporaries(self) -> frozenset[int]:
        """The storages that nobody sees before or after the schedule."""
        return frozenset(v.number for v in self.values if self.storage[v.number] == v.number
                         and not v.leaf and v.number not in self.kept)

    @cached_property
    def single(self) -> frozenset[int]:
        """The temporaries that only one value ever fills."""
        filled = Counter(self.storage)
        return frozenset(n for n in self.temporaries if filled[n] == 1)


class _Placer:
    """Starts from 'every assign is in place' and gives way where that breaks a hazard."""

    def __init__(self, values: Sequence[Value], stages: Sequence[Stage],
                 held: Collection[int], asked: Collection[int], bucket: int) -> None:
        self.values, self.stages, self.held, self.asked = list(values), list(stages), held, asked
        self.bucket = bucket
        self.buckets: dict[int, int] = {}  # of the transfers that go together, by their stages
        self.taken: set[int] = set()  # values that some assign overwrites in place
        self.notes: list[str] = []
        self.same: dict[int, int] = {}  # values that are there as another one

    def run(self) -> Placement:
        """Find an order; as long as there is none, take the hazard away by a copy."""
        for stage in list(self.stages):
            if stage.overwrites is not None and stage.given is None:
                self._choose(stage)
        plain = self.stages
        self._assign_directly()
        if self.stages is not plain and self._sort()[1]:
            self.stages, self.same = plain, {}
        while True:
            order, stuck = self._sort()
            if not stuck:
                return self._placement(order)
            self._resolve(stuck)

    def _choose(self, stage: Stage) -> None:
        """In place unless the old version is held, or the stage would read what it has written."""
        assert stage.overwrites is not None
        if stage.overwrites in self.held:  # r[impl placement.held.kept]
            self._move(stage, "the old version stays observable")
        elif stage.overwrites in self.taken:  # r[impl placement.version.one-successor]
            self._move(stage, "the old version has another successor")
        elif self._reads_own_target(stage):  # r[impl placement.in-place.safe]
            if stage.whole:
                self._move(stage, "it reads elements that it has overwritten")
            else:
                self._bounce(stage, "it reads elements that it has overwritten")
        overwrites = self.stages[stage.number].overwrites
        if overwrites is not None:
            self.taken.add(overwrites)

    def _reads_own_target(self, stage: Stage) -> bool:
        """Whether some iteration may read an element that another one writes."""
        return any(read.value == stage.overwrites and not same_element(read, stage.write)
                   and not apart(read, stage.write) for read in stage.reads)

    def _move(self, stage: Stage, why: str) -> None:
        """Give the new version memory of its own; the rest of the old one is copied there."""
        self.notes.append(f"copy: assign of {stage.node.shape} is not in place: {why}")
        copied = None
        if not stage.whole:
            assert stage.overwrites is not None
            copied = self._copy_stage(self.values[stage.overwrites], stage).write.value
        self.stages[stage.number] = replace(stage, overwrites=copied)

    def _copy_stage(self, old: Value, stage: Stage) -> Stage:
        shape = stage.write.shape
        value = self._new_value(old.node, old.device, shape)
        index = output_ranges(shape)
        form = _copy_form(old.node.dtype, shape, index, Pattern(shape, index))
        copy = Stage(len(self.stages), value.node, form, (old.number,),
                     Access(value.number, form.write), "assign: the old version is kept")
        self.stages.append(copy)
        return copy

    def _bounce(self, stage: Stage, why: str) -> None:
        """Compute what is to be written into a temporary first."""
        self.notes.append(f"copy: the value of a view write goes through a temporary: {why}")
        shape = tuple(extent(loop) for loop in stage.loops)
        value = self._new_value(stage.node, self.values[stage.write.value].device, shape)
        target = Pattern(shape, tuple(stage.loops))
        self.stages.append(replace(
            stage, number=len(self.stages), node=value.node, form=replace(stage.form, write=target),
            write=Access(value.number, target), overwrites=None, whole=True,
            reason="assign: read before it is overwritten"))
        index = output_ranges(shape)
        renamed = dict(zip(stage.loops, index, strict=True))
        write = Pattern(stage.write.shape, tuple(i.substitute(renamed) for i in stage.write.index))
        form = _copy_form(stage.node.dtype, shape, index, write)
        self.stages[stage.number] = replace(stage, form=form, slots=(value.number,),
                                            write=Access(stage.write.value, write))

    def _assign_directly(self) -> None:
        """Let kernels of the user store into the memory to which their values are assigned."""
        if all(stage.given is None for stage in self.stages):
            return
        stages: list[Stage | None] = [*self.stages]
        readers: dict[int, list[Stage]] = {}
        makers = {access.value: stage for stage in self.stages for access in stage.writes}
        for stage in self.stages:
            for value in {access.value for access in stage.reads}:
                readers.setdefault(value, []).append(stage)
        for stage in self.stages:
            if stage.given is None:
                continue
            for number, access in enumerate(stage.writes):
                users = readers.get(access.value, ())
                if len(users) == 1 and _is_assign(users[0]) and not (
                        access.value in self.held and users[0].write.value in self.taken):
                    current = stages[stage.number]
                    assert current is not None
                    old = dict(current.replaced).get(access.value)
                    kept = None if old is None else makers[old]
                    made = _stored_directly(current, number, users[0], kept)
                    if made is not None:
                        stages[stage.number], stages[users[0].number] = made, None
                        self.same[access.value] = users[0].write.value
                        if kept is not None:
                            stages[kept.number] = None
        if None in stages:
            left = [stage for stage in stages if stage is not None]
            self.stages = [replace(stage, number=number) for number, stage in enumerate(left)]

    def _new_value(self, node: UOp, device: Place, shape: tuple[int, ...]) -> Value:
        stand_in = UOp(Ops.EXPAND, node.dtype, (node,), shape, len(self.values))
        value = Value(len(self.values), stand_in, device)
        self.values.append(value)
        return value

    def _edges(self) -> set[Pair]:
        """Which stage must come before which: a value is a version of some memory."""
        return of_versions([{a.value for a in stage.reads} for stage in self.stages],
                           [[a.value for a in stage.writes] for stage in self.stages],
                           [[old for _, old in stage.replaced] for stage in self.stages])

    def _sort(self) -> tuple[list[Stage], list[Stage]]:
        """The stages in order of number as far as the hazards allow, and those left over.

        Transfers of one bucket stand behind each other, after all that needs none of them.
        """
        after: list[list[int]] = [[] for _ in self.stages]
        missing = [0] * len(self.stages)
        for before, number in self._edges():
            after[before].append(number)
            missing[number] += 1
        ready = [number for number, count in enumerate(missing) if count == 0]
        heapq.heapify(ready)
        order: list[Stage] = []
        buckets, self.buckets = Buckets(self.bucket), {}
        while ready or buckets:
            going = self._going(heapq.heappop(ready), buckets) if ready else \
                buckets.next(lambda: behind(after, {
                    stage.number for stage in self.stages if stage.task is not None}))
            if len(going) > 1:
                self.buckets.update(dict.fromkeys(going, going[0]))
            for number in going:
                order.append(self.stages[number])
                for other in after[number]:
                    missing[other] -= 1
                    if missing[other] == 0:
                        heapq.heappush(ready, other)
        done = {s.number for s in order}
        return order, [s for s in self.stages if s.number not in done]

    def _going(self, number: int, buckets: Buckets) -> list[int]:
        """A stage that is ready; a transfer may have to wait for others to go with it."""
        stage = self.stages[number]
        if stage.task is None:
            return [number]
        return buckets.add(number, likeness(stage.task, stage.node.dtype),
                           self.values[stage.write.value].nbytes)

    def _resolve(self, stuck: list[Stage]) -> None:
        """Take one hazard out of a cycle.

        A stuck view write that reads a version about to be overwritten reads it into a temporary;
        where that has been done, the version is overwritten elsewhere.
        """
        # r[impl placement.cycle.copied]
        # A kernel of the user stores into copies that nobody else knows.
        stuck = [s for s in stuck if s.given is None]
        targets = {s.overwrites for s in stuck if s.overwrites is not None}
        for stage in stuck:
            early = any(a.value in targets and a.value != stage.overwrites
                        for a in stage.reads)
            if stage.overwrites is not None and early:
                return self._bounce(stage, "a later version is written before it is read")
        read = {a.value for s in stuck for a in s.reads}
        for stage in stuck:
            if stage.overwrites in read:
                return self._move(stage, "a reader of the old version comes later")
        names = ", ".join(str(s.number) for s in stuck)
        raise GraphError("placement", f"stages {names} wait for each other",
                         "report this: a cycle without a write cannot arise")

    def _placement(self, order: list[Stage]) -> Placement:
        storage = list(range(len(self.values)))
        version = [0 if v.leaf else 1 for v in self.values]
        for stage in order:
            for value, old in stage.replaced:
                storage[value], version[value] = storage[old], version[old] + 1
        for value, other in self.same.items():
            storage[value], version[value] = storage[other], version[other]
        kept = frozenset(storage[number] for number in self.asked)
        return Placement(self.values, order, storage, version, kept, self.notes, self.buckets)


def _is_assign(stage: Stage) -> bool:
    """Whether a stage does nothing but to put one value where another one was."""
    form = stage.form
    return (stage.overwrites is not None and stage.whole and form.value.op is Ops.LOAD
            and len(form.reads) == 1 and form.reads[0][1].flat is form.write.flat
            and form.value.src[0].src[2].op is Ops.CONST)


def _stored_directly(stage: Stage, number: int, assign: Stage, kept: Stage | None) -> Stage | None:
    """The stage of a kernel of the user, of which one value is stored where it is assigned to.

    `kept` copies what stands there, if the kernel stores a part only. None where that must not be.
    """
    target, given = assign.overwrites, stage.given
    assert target is not None and given is not None
    access = stage.writes[number]
    if kept is not None and kept.slots != (target,):
        return None
    values, ast, place = list(given.values), given.ast, given.values.index(access.value)
    sources = [at for at, value in enumerate(values) if value == target]
    if len(sources) > 1 or target in [old for _, old in stage.replaced]:
        return None
    values[place] = assign.write.value
    if sources:  # r[impl custom.assign.direct]
        one = merged(ast, place, sources[0])
        if one is None:
            return None
        values[sources[0]], ast = assign.write.value, one
        del values[place]
    made = Access(assign.write.value, access.pattern), target
    pairs = [(stage.write, stage.overwrites), *given.more]
    pairs[number] = made
    return replace(stage, write=pairs[0][0], overwrites=pairs[0][1],
                   given=OwnKernel(ast, tuple(values), tuple(pairs[1:])))


def _copy_form(dtype: DType, shape: Shape, index: Index, write: Pattern) -> Form:
    """A nest that stores a value as it is."""
    read = Pattern(shape, index)
    loops = [i for i in index if i.op is Ops.RANGE]
    return Form(loops, load(dtype, 0, read), write, [(0, read)])


def place_writes(values: Sequence[Value], stages: Sequence[Stage], held: Collection[int],
                 asked: Collection[int], bucket: int = 0) -> Placement:
    """Decide where every version lives (r[placement.held.kept], r[placement.in-place.safe]).

    `held` are the values that somebody can observe after the schedule; among them those that were
    `asked` for. `bucket` are the most bytes of transfers that go together.
    """
    return _Placer(values, stages, held, asked, bucket).run()
