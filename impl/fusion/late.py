"""What is computed again, late, instead of being kept in memory. Chapter: spec/fusion.md.

A training step stores values in its first half and reads them in its second half. Some of them
follow from others that are kept in any case: the activation from the sum before it, a normalised
row from the centred row and one number. Such a value gets a *late twin*: the same stage once more,
inside a kernel that runs later and that its inputs live to see. Early readers read the value, late
ones its twin, and in between neither needs memory.

Needs: groups in a legal order, and where each value lives.
Guarantees: the same kernels, each with the same prefix, in the same legal order; some have more
stages, and each of those writes a temporary of its own. What was given is as it was.
"""
from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from impl.dependencies import Lives, alive_bytes
from impl.fusion.groups import Group, Member, Pairs, match_loops
from impl.fusion.limits import FusionLimits
from impl.ir import DEAR, ELEMENTWISE, Ops, UOp
from impl.placement import Placement
from impl.ranges import Access, Form, Stage, Value
from impl.symbolic import extent

NEVER = 1 << 60


@dataclass
class _Users:
    """Who makes a value, and who reads it; `group` is -1 for what was there before."""

    group: int = -1
    maker: Member | None = None
    readers: dict[int, list[tuple[Member, Access]]] = field(default_factory=dict)

    def read(self, group: int, member: Member, access: Access) -> None:
        """Note a reader."""
        self.readers.setdefault(group, []).append((member, access))

    def give_up(self, early: int) -> list[tuple[int, Member, Access]]:
        """Forget the readers of groups after `early`, and return them."""
        late = [group for group in self.readers if group > early]
        return [(group, *row) for group in late for row in self.readers.pop(group)]

    @property
    def last(self) -> int:
        """The last group that needs the value."""
        return max(self.group, max(self.readers, default=-1))

    @property
    def stage(self) -> Stage:
        """The stage that makes the value."""
        assert self.maker is not None
        return self.maker.stage


@dataclass
class _Plan:
    """A twin to be made in group `late`: the values computed anew there, sources first."""

    late: int
    again: list[int]
    loops: dict[int, list[UOp]]  # of each, the loops that are those of the group's prefix
    base: list[Access]           # what they read that is kept


class _Keeper:
    """Finds the values that need not be kept, and makes their twins."""

    def __init__(self, groups: Sequence[Group], placement: Placement, limits: FusionLimits) -> None:
        self.groups = [replace(group, members=[Member(m.stage, m.prefix) for m in group.members],
                               arguments=set(group.arguments)) for group in groups]
        self.before, self.limits = placement, limits
        self.values, self.temporary = list(placement.values), set(placement.single)
        self.storage_of, self.version_of = list(placement.storage), list(placement.version)
        self.users: defaultdict[int, _Users] = defaultdict(_Users)
        self.replaced: dict[tuple[int, int], int] = {}  # storage, version: by which group
        self.twins: dict[int, list[int]] = {}
        self.costs: dict[Form, int] = {}
        self.places: dict[int, list[tuple[int, int, Member]]] = {}  # group: new members
        for group in self.groups:
            for member in group.members:
                self._look_at(group, member)

    def run(self, hot: Sequence[int]) -> tuple[list[Group], Placement]:
        """Give twins to what is kept past these groups, which need the most memory."""
        for value in list(self.users):
            gap = self._gap(value)
            plan = self._plan(value, *gap) if gap is not None else None
            # r[impl fusion.late.chosen]
            if gap is not None and plan is not None and _any_between(hot, gap[0], plan.late):
                self._make(value, gap[0], plan)
        for number, rows in self.places.items():
            _insert(self.groups[number], rows)
        self._drop_unread()
        return self.groups, replace(self.before, values=self.values, storage=self.storage_of,
                                    version=self.version_of)

    def _look_at(self, group: Group, member: Member) -> None:
        for access in member.stage.writes:
            write = access.value
            users = self.users[write]
            users.group, users.maker = group.number, member
            self.replaced[self.storage_of[write], self.version_of[write] - 1] = group.number
        for access in member.stage.reads:
            self.users[access.value].read(group.number, member, access)

    def _gap(self, value: int) -> tuple[int, int] | None:
        """The longest time in which nobody reads the value: the groups before it and after it."""
        users = self.users[value]
        if value not in self.temporary or not self._repeatable(value):
            return None
        groups = sorted({users.group, *users.readers})
        if len(groups) < 2 or self.values[value].nbytes * 64 < self.limits.memory_worth:
            return None
        length, early, late = max((b - a, a, b) for a, b in zip(groups, groups[1:], strict=False))
        return (early, late) if length > 1 else None

    def _repeatable(self, value: int) -> bool:
        """Whether a stage computes each of its elements from few others."""
        if self.users[value].maker is None:
            return False
        stage = self.users[value].stage  # r[impl fusion.late.chosen]
        return (stage.whole and stage.overwrites is None and not stage.alone
                and self._cost(value) <= self.limits.late)

    def _cost(self, value: int) -> int:
        """The operations for one element."""
        form = self.users[value].stage.form
        cost = self.costs.get(form)
        if cost is None:
            cost = self.costs[form] = NEVER if form.reduced else sum(
                [DEAR.get(n.op, 1) for n in form.value.toposort() if n.op in ELEMENTWISE])
        return cost

    def _plan(self, value: int, early: int, late: int) -> _Plan | None:
        """How to make the value anew: where it is read next, or before that where inputs die."""
        groups = {late}
        for source in self._sources(value):
            if early < self.users[source].last < late:
                groups.add(self.users[source].last)
        for group in sorted(groups, reverse=True):
            recipe = self._recipe(value, group)
            plan = None if recipe is None else self._fit(value, _Plan(group, recipe[0], {},
                                                                      recipe[1]))
            if plan is not None:
                return plan
        return None

    def _sources(self, value: int) -> list[int]:
        """What the value is computed from, through other values that could be made anew."""
        found: dict[int, None] = {}
        pending, cost = [value], 0
        while pending:
            current = pending.pop()
            cost += self._cost(current)
            if cost > self.limits.late:
                continue
            for read in self.users[current].stage.reads:
                if read.value not in found:
                    found[read.value] = None
                    if self._repeatable(read.value):
                        pending.append(read.value)
        return list(found)

    def _recipe(self, value: int, late: int) -> tuple[list[int], list[Access]] | None:
        """What has to be made anew in a group, and what that reads; None if it cannot be done."""
        again, base, pending, cost = {value}, [], [value], 0
        while pending:
            current = pending.pop()
            cost += self._cost(current)
            if cost > self.limits.late:  # r[impl fusion.late.chosen]
                return None
            for read in self.users[current].stage.reads:
                if self._there(read.value, value, late):
                    base.append(read)
                elif self._repeatable(read.value):
                    if read.value not in again:
                        again.add(read.value)
                        pending.append(read.value)
                else:
                    return None
        return self._sources_first(again), base

    def _sources_first(self, values: set[int]) -> list[int]:
        """A few values in the order in which they can be made."""
        found: list[int] = []
        while len(found) < len(values):
            found += [v for v in sorted(values) if v not in found and all(
                r.value in found or r.value not in values for r in self.users[v].stage.reads)]
        return found

    def _there(self, source: int, value: int, late: int) -> bool:
        """Whether a source is in memory while group `late` runs, or is small enough to be kept."""
        key = self.storage_of[source], self.version_of[source]
        if self.replaced.get(key, NEVER) <= late:  # r[impl fusion.late.same]
            return False
        users = self.users[source]
        if users.maker is None or self._twin_of(source, late) is not None:
            return True
        if users.group < late <= users.last:
            return True
        small = self.values[source].nbytes * 16 <= self.values[value].nbytes
        return small and source in self.temporary

    def _twin_of(self, value: int, late: int) -> int | None:
        """A twin that can be read in group `late`."""
        for twin in self.twins.get(value, ()):
            if self.users[twin].group == late or self.users[twin].group < late <= (
                    self.users[twin].last):
                return twin
        return None

    def _fit(self, value: int, plan: _Plan) -> _Plan | None:
        """Find the loops of each new stage that are the prefix of the group; None if some lack.

        What a stage hands on inside the kernel stays in one iteration of the prefix, as always
        (r[fusion.group.legal]).
        """
        group = self.groups[plan.late]
        if group.members[0].stage.alone:
            return None
        for current in reversed(plan.again):  # readers before what they read
            pairs = self._pairs(current, current == value, plan)
            if pairs is None or [position for position, _ in pairs] != list(
                    range(len(group.sizes))):
                return None
            plan.loops[current] = [loop for _, loop in pairs]
        return plan if self._within_limits(group, plan) else None

    def _pairs(self, value: int, asked: bool, plan: _Plan) -> Pairs | None:
        """How the prefix meets the loops of a stage, by all who read it in the group."""
        stage = self.users[value].stage
        found = [match_loops(member, access, stage, stage.write)
                 for member, access in self.users[value].readers.get(plan.late, ()) if asked]
        for reader, loops in plan.loops.items():
            above = self.users[reader].stage
            found += [match_loops(Member(above, loops), access, stage, stage.write)
                      for access in above.reads if access.value == value]
        # What another twin of the group provides is read in the iteration that provides it.
        for read in stage.reads:
            twin = self._twin_of(read.value, plan.late)
            if twin is not None and self.users[twin].group == plan.late:
                maker = self.users[twin].maker
                assert maker is not None
                found.append(match_loops(maker, maker.stage.write, stage, read))
        found = [sorted(pairs, key=lambda pair: pair[0])
                 for pairs in found or self._shared(stage, plan.late)]
        return found[0] if found and all(pairs == found[0] for pairs in found) else None

    def _shared(self, stage: Stage, late: int) -> list[Pairs]:
        """Without a reader in the group: as another stage of the group walks over an input."""
        for read in stage.reads:
            for member, access in self.users[read.value].readers.get(late, ()):
                pairs = match_loops(member, access, stage, read)
                if len(pairs) == len(self.groups[late].sizes):
                    return [pairs]
        return []

    def _within_limits(self, group: Group, plan: _Plan) -> bool:
        stages = [self.users[value].stage for value in plan.again]
        storages = {self.storage_of[access.value] for access in plan.base}
        local = sum(_inner_bytes(self.values, m.stage, m.prefix) for m in group.members)
        local += sum(_inner_bytes(self.values, stage, plan.loops[stage.write.value])
                     for stage in stages)
        return self.limits.exceeded(
            len(group.arguments | storages) + len(stages),
            group.operations + sum(stage.form.operations for stage in stages),
            len(group.members) + len(stages), local=local) is None

    def _make(self, value: int, early: int, plan: _Plan) -> None:
        """Make the twins of a plan, and let the late readers read the one of `value`."""
        group = self.groups[plan.late]
        named = {source: twin for source in self._sources(value)
                 if (twin := self._twin_of(source, plan.late)) is not None}
        for source in plan.again:
            named[source] = self._twin_stage(source, plan, named)
        for number, member, access in self.users[value].give_up(early):
            member.stage = replace(member.stage, slots=tuple(
                named[value] if source == value else source for source in member.stage.slots))
            self.users[named[value]].read(number, member, Access(named[value], access.pattern))
            self.groups[number].arguments.add(named[value])
        group.arguments |= {self.storage_of[access.value] for access in plan.base}

    def _twin_stage(self, value: int, plan: _Plan, named: dict[int, int]) -> int:
        """One twin: the same form, on what is there in the group of the plan."""
        group, old = self.groups[plan.late], self.users[value].stage
        twin = self._new_twin(value)
        stage = replace(old, node=self.values[twin].node,
                        slots=tuple(named.get(source, source) for source in old.slots),
                        write=Access(twin, old.write.pattern),
                        reason=f"late: computed again, not kept ({old.reason})")
        member = Member(stage, plan.loops[value])
        self.users[twin] = _Users(plan.late, member)
        self.twins.setdefault(value, []).append(twin)
        for access in member.stage.reads:
            self.users[access.value].read(plan.late, member, access)
        rows = self.places.setdefault(plan.late, [])
        rows.append((self._before(value, group), len(rows), member))
        group.operations += old.form.operations
        group.arguments.add(twin)
        return twin

    def _new_twin(self, of: int) -> int:
        """A value like another one, with a temporary of its own."""
        old, number = self.values[of], len(self.values)
        node = UOp(Ops.EXPAND, old.node.dtype, (old.node,), old.shape, number)
        self.values.append(Value(number, node, old.device))
        self.storage_of.append(number)
        self.version_of.append(1)
        self.temporary.add(number)
        return number

    def _before(self, value: int, group: Group) -> int:
        """Before which member of the group: the first that reads it, else the last that reads
        what it is made of.
        """
        sources = {access.value for access in self.users[value].stage.reads}
        readers = [at for at, member in enumerate(group.members)
                   if any(a.value == value for a in member.stage.reads)]
        shared = [at for at, member in enumerate(group.members)
                  if any(a.value in sources for a in member.stage.reads)]
        return min(readers) if readers else max(shared, default=len(group.members))

    def _drop_unread(self) -> None:
        """Take out stages whose value nobody reads any more.

        What only such a stage has read is not taken out with it: its readers are not counted again.
        """
        for value in sorted(self.twins, reverse=True):
            users = self.users[value]
            group = self.groups[users.group]
            if not users.readers and len(group.members) > 1:
                group.members[:] = [m for m in group.members if m is not users.maker]


def _any_between(hot: Sequence[int], early: int, late: int) -> bool:
    at = bisect_right(hot, early)
    return at < len(hot) and hot[at] < late


def _inner_bytes(values: Sequence[Value], stage: Stage, prefix: Sequence[UOp]) -> int:
    """What one iteration of the prefix keeps of a stage's value."""
    outer = set(prefix)
    inner = math.prod(extent(loop) for loop in stage.loops if loop not in outer)
    return inner * values[stage.write.value].node.dtype.itemsize


def _insert(group: Group, rows: list[tuple[int, int, Member]]) -> None:
    """Put twins before the members that they are meant for, each before the twins that read it."""
    before = {m.stage.write.value: at for at, _, m in rows}
    for _, _, member in sorted(rows, key=lambda row: -row[1]):  # readers first
        for access in member.stage.reads:
            if access.value in before:
                before[access.value] = min(before[access.value],
                                           before[member.stage.write.value])
    new: dict[int, list[Member]] = {}
    for _, _, member in sorted(rows, key=lambda row: row[1]):
        new.setdefault(before[member.stage.write.value], []).append(member)
    group.members[:] = [m for at in range(len(group.members) + 1)
                        for m in (*new.get(at, ()), *group.members[at:at + 1])]


def _hot_steps(groups: Sequence[Group], placement: Placement, worth: int) -> list[int]:
    """The groups at which more than half as much is alive as at the peak, if it is `worth` it.

    Groups are taken to run in the order of their numbers.
    """
    lives = Lives(range(len(groups)), [
        [access.value for member in group.members
         for access in (*member.stage.reads, *member.stage.writes)] for group in groups])
    crossing = {value: placement.values[value].nbytes for value in placement.single
                if lives.first.get(value, 0) < lives.last.get(value, 0)}
    alive = alive_bytes(lives.of(crossing), len(groups))
    peak = max(alive, default=0)
    return [group for group, live in enumerate(alive) if live > peak // 2] if peak >= worth else []


def compute_late(groups: list[Group], placement: Placement,
                 limits: FusionLimits) -> tuple[list[Group], Placement]:
    """Groups that make cheap values where they are read, and do not keep them.

    Groups are numbered in a legal order. The new placement has the values of the old one, and the
    twins after them.
    """
    hot = _hot_steps(groups, placement, limits.memory_worth)
    return _Keeper(groups, placement, limits).run(hot) if hot else (groups, placement)
