"""Which stages become one kernel. Chapter: spec/fusion.md.

Needs: stages in a legal order, and where each value lives.
Guarantees: every stage is in one group; groups are numbered in a legal order, each is on one
device, and what passes between its stages stays in one iteration of its prefix. For every fusion
that was tried in vain it is said why.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from impl.dependencies import History
from impl.fusion.limits import FusionLimits
from impl.fusion.products import Tiled, has_tile, in_strips
from impl.ir import Ops, UOp
from impl.placement import Placement
from impl.places import Place
from impl.ranges import Access, Stage
from impl.symbolic import extent


@dataclass
class Member:
    """A stage inside a kernel: which of its loops is which loop of the prefix."""

    stage: Stage
    prefix: list[UOp]


@dataclass
class Group:
    """Stages that become one kernel. `sizes` are the extents of the prefix, outermost first."""

    number: int
    device: Place
    members: list[Member]
    sizes: list[int]
    operations: int
    work: int = 0         # iterations of all stages, reductions included
    local_bytes: int = 0  # what one iteration of the prefix hands from stage to stage
    again_bytes: int = 0  # the most that one stage reads again in each iteration
    arguments: set[int] = field(default_factory=set)


Conflicts = list[tuple[tuple[Member, Access], Access]]  # an earlier access, and ours
Blocked = tuple[int, int, str]  # kernel, stage, why it is not in that kernel
Pairs = list[tuple[int, UOp]]  # position in the prefix, loop of the new stage
#: A stage with so many times the iterations of another one has much more to do.
_MUCH_MORE = 16


@dataclass(frozen=True)
class Grouping:
    """The kernels, in a legal order, and which fusions were tried in vain."""

    groups: list[Group]
    blocked: list[Blocked]


def match_loops(member: Member, theirs: Access, stage: Stage, mine: Access) -> Pairs:
    """Positions of the prefix at which both accesses use one loop of the same extent."""
    pairs: Pairs = []
    prefix, loops = member.prefix, stage.loops
    if prefix and loops and theirs.shape == mine.shape:
        for old, new in zip(theirs.index, mine.index, strict=True):
            if old.op is Ops.RANGE and new.op is Ops.RANGE and old in prefix and new in loops \
                    and extent(old) == extent(new):
                pairs.append((prefix.index(old), new))  # r[impl fusion.value.equal]
    return pairs


class _Grouper:
    """Puts each stage, in order, into the latest kernel that can take it, or into a new one.

    Kernels are numbered in order of creation and a stage only joins a kernel numbered no lower
    than those it depends on. So no cycle can arise, whatever is fused (r[fusion.group.acyclic]).
    """

    def __init__(self, placement: Placement, limits: FusionLimits, fuse: bool) -> None:
        self.values, self.storage_of = placement.values, placement.storage
        self.limits, self.fuse = limits, fuse
        self.tiled = Tiled(limits)
        self.groups: list[Group] = []
        self.past: History[tuple[Member, Access]] = History()
        self.blocked: list[Blocked] = []
        self.fast: dict[tuple[object, ...], tuple[int, int]] = {}  # by form and prefix
        self.matches: dict[tuple[object, ...], Pairs] = {}         # by two patterns and a prefix
        self.alike: dict[tuple[object, ...], Group] = {}           # by device and sizes: the latest
        self.bucket_of = placement.buckets
        self.bucket: int | None = None  # of the last transfer, if no other kernel came after it
        self.numbers = False  # whether there is a kernel that began with numbers alone
        self.made_for = _made_for(placement.stages)
        self.fed: dict[int, Group] = {}  # by stage: the latest kernel of what is made for it

    def add(self, stage: Stage) -> None:
        """Find the stage its kernel."""
        group = self._find(stage)
        self._note(group, group.members[-1])
        if stage.number in self.made_for:
            self.fed[self.made_for[stage.number]] = group

    def _feeding(self, stage: Stage) -> Group | None:
        """The latest kernel of what is made for the same stage as this one."""
        return self.fed.get(self.made_for.get(stage.number, -1))

    def _find(self, stage: Stage) -> Group:
        if self.fuse and not stage.alone:  # r[impl fusion.stages.together]
            for group in self._candidates(stage, self._earliest(stage)):
                ours = self._conflicts(stage, group)
                problem = self._try(group, stage, ours)
                if problem is None:
                    return group
                if ours:
                    self.blocked.append((group.number, stage.number, problem))
        if stage.task is not None and self._goes_with_others(stage):
            return self.groups[-1]
        return self._alone(stage)

    def _goes_with_others(self, stage: Stage) -> bool:
        """Let a transfer go with those of its bucket, if they are the last kernel."""
        before, self.bucket = self.bucket, self.bucket_of.get(stage.number)
        # r[impl collectives.together.bucket+2]
        if self.bucket is None or before != self.bucket \
                or self._earliest(stage) >= len(self.groups) - 1:
            return False
        group, arguments = self.groups[-1], self._arguments(stage)
        if not group.arguments.isdisjoint(arguments):
            return False
        group.members[0].prefix = []
        group.members.append(Member(stage, []))
        group.sizes = []
        group.arguments |= arguments
        group.work += stage.form.iterations
        return True

    def _alone(self, stage: Stage) -> Group:
        prefix = stage.form.independent
        group = Group(len(self.groups), self._device(stage),
                      [Member(stage, prefix)], [extent(r) for r in prefix],
                      stage.form.operations, stage.form.iterations, *self._fast_bytes(stage, None),
                      self._arguments(stage))
        self.groups.append(group)
        if stage.task is None:
            self.bucket = None
        if not stage.form.reduced:
            self.alike[group.device, *group.sizes] = group
            self.numbers |= not stage.reads
        return group

    def _storage(self, access: Access) -> int:
        return self.storage_of[access.value]

    def _arguments(self, stage: Stage) -> set[int]:
        storage = self.storage_of
        return {storage[a.value] for a in (*stage.reads, *stage.writes)}

    def _device(self, stage: Stage) -> Place:
        return self.values[self._storage(stage.write)].device

    def _bytes(self, access: Access) -> int:
        """The bytes of one element."""
        return self.values[self._storage(access)].node.dtype.itemsize

    def _note(self, group: Group, member: Member) -> None:
        storage = self.storage_of
        reads = [(storage[access.value], (member, access)) for access in member.stage.reads]
        writes = [(storage[access.value], (member, access)) for access in member.stage.writes]
        self.past.note(group.number, reads, writes)

    def _conflicts(self, stage: Stage, group: Group) -> Conflicts:
        """A kernel's accesses that the stage has to wait for, each with which of ours."""
        storage, write = self.storage_of, stage.write
        return self.past.with_kernel(group.number, [(storage[a.value], a) for a in stage.reads],
                                     [(storage[write.value], write)])

    def _earliest(self, stage: Stage) -> int:
        """The latest kernel that the stage depends on: no earlier one can take it; -1 for none."""
        storage = self.storage_of
        return self.past.latest([storage[a.value] for a in stage.reads],
                                [storage[stage.write.value]])

    def _candidates(self, stage: Stage, earliest: int) -> list[Group]:
        """The kernel of the latest dependency, then later ones that read the same inputs, then
        the latest with the same loops.
        """
        # r[impl fusion.group.acyclic]
        numbers = [earliest] if earliest >= 0 else []
        storage = self.storage_of
        numbers += [self.past.last_reader(storage[access.value]) for access in stage.reads]
        device = self._device(stage)
        if self.numbers or not stage.reads:
            alike = self.alike.get((device, *[extent(loop) for loop in stage.loops]))
            if alike is not None and _reads_nothing(alike, stage):
                numbers.append(alike.number)
        feeding = self._feeding(stage)
        if feeding is not None:
            numbers.append(feeding.number)
        found = [self.groups[n] for n in dict.fromkeys(numbers) if n >= max(0, earliest)]
        return [g for g in found if g.device == device and not g.members[0].stage.alone
                and self.limits.exceeded(stages=len(g.members) + 1) is None]

    def _try(self, group: Group, stage: Stage,
             conflicts: Conflicts) -> str | None:
        """Join the group if that is legal and pays; else say why not.

        Legal: whatever passes between the stages stays inside one iteration of the common prefix
        (r[fusion.group.legal]).
        """
        pairs = self._common_prefix(group, stage, conflicts)  # r[impl fusion.group.legal]
        sizes = [group.sizes[position] for position, _ in pairs]
        arguments = group.arguments | self._arguments(stage)
        problem = self.limits.exceeded(len(arguments), group.operations + stage.form.operations) \
            or _overwritten_inside(stage, conflicts)
        if problem is not None:
            return problem
        if not conflicts and not pairs:
            return "no common loops: they share an input, but not the way they walk over it"
        problem = self._parallelism(group, stage, pairs, sizes) \
            or self._tiles(group, stage, pairs) or self._strips(group, stage, pairs)
        if problem is None:
            local, again = self._together(group, stage, pairs)
            problem = self.limits.exceeded(again=again, local=local)
        if problem is None:
            self._join(group, stage, pairs, sizes, arguments)
            group.local_bytes, group.again_bytes = local, again
        return problem

    def _common_prefix(self, group: Group, stage: Stage,
                       conflicts: Conflicts) -> Pairs:
        """The loops that all dependences between group and stage share, as a prefix."""
        if not conflicts:
            return self._shared_reads(group, stage)
        pairs: Pairs | None = None
        for (member, theirs), mine in conflicts:
            found = self._matching(member, theirs, stage, mine)
            pairs = found if pairs is None else [p for p in pairs if p in found]
        return _one_to_one(sorted(pairs or [], key=lambda p: p[0]))

    def _matching(self, member: Member, theirs: Access, stage: Stage, mine: Access) -> Pairs:
        """`match_loops`, once for all accesses of the same patterns."""
        key = theirs.pattern, mine.pattern, *member.prefix
        known = self.matches.get(key)
        if known is None:
            known = self.matches[key] = match_loops(member, theirs, stage, mine)
        return known

    def _shared_reads(self, group: Group, stage: Stage) -> Pairs:
        """Without a dependence any pairing of loops is legal: take that of a common input, and
        where one of the two reads nothing, loops in order.

        It pays only if both keep all their loops in the prefix.
        """
        for mine in stage.reads:
            for member, theirs in self.past.readers(group.number, self._storage(mine)):
                pairs = _one_to_one(sorted(self._matching(member, theirs, stage, mine),
                                           key=lambda p: p[0]))
                if len(pairs) == len(group.sizes) == len(stage.loops):
                    return pairs
        together = _reads_nothing(group, stage) or self._feeding(stage) is group
        if together and group.sizes == [extent(r) for r in stage.loops]:
            return list(enumerate(stage.loops))
        return []

    def _parallelism(self, group: Group, stage: Stage, pairs: Pairs,
                     sizes: list[int]) -> str | None:
        independent = math.prod(sizes)  # r[impl fusion.limit.parallel+2]
        if independent >= min(self.limits.parallel, math.prod(group.sizes)) and pairs:
            return None
        work = group.work + stage.form.iterations
        if work <= self.limits.small_kernel:
            return None
        return f"reduce: only {independent} independent iterations would be left, with " \
               f"{work} in all"

    def _tiles(self, group: Group, stage: Stage, pairs: Pairs) -> str | None:
        """Whether products, of the stage or of the kernel, would be left without a tile."""
        kept = [position for position, _ in pairs]
        prefixes = [(stage, [loop for _, loop in pairs])]
        if len(kept) < len(group.sizes):
            prefixes += [(m.stage, [m.prefix[i] for i in kept]) for m in group.members]
        # r[impl fusion.stages.product]
        if any([each in self.tiled and not has_tile(each, prefix)
                for each, prefix in prefixes]):
            return "product: it would have no tile among the other stages"
        return None

    def _strips(self, group: Group, stage: Stage, pairs: Pairs) -> str | None:
        """Whether large stages would be computed in narrow strips for the sake of a small one."""
        # r[impl fusion.stages.strips]
        kept, iterations = [position for position, _ in pairs], stage.form.iterations
        large: list[tuple[Stage, list[UOp]]] = []
        if group.work >= _MUCH_MORE * iterations and len(kept) < len(group.sizes):
            large = [(m.stage, [m.prefix[i] for i in kept]) for m in group.members]
        elif iterations >= _MUCH_MORE * group.work:
            large = [(stage, [loop for _, loop in pairs])]
        if any(self.limits.is_large(math.prod(extent(loop) for loop in each.loops))
               and in_strips(each, prefix) for each, prefix in large):
            return "order: a large stage would be computed in narrow strips"
        return None

    def _together(self, group: Group, stage: Stage, pairs: Pairs) -> tuple[int, int]:
        """Bytes between the stages, and the most that are read again, with the stage joined."""
        local, again = self._fast_bytes(stage, [loop for _, loop in pairs])
        if len(pairs) == len(group.sizes):  # nothing changes for the others
            return local + group.local_bytes, max(again, group.again_bytes)
        kept = [position for position, _ in pairs]
        for member in group.members:
            more = self._fast_bytes(member.stage, [member.prefix[i] for i in kept])
            local, again = local + more[0], max(again, more[1])
        return local, again

    def _fast_bytes(self, stage: Stage, prefix: list[UOp] | None) -> tuple[int, int]:
        """Bytes that one iteration of the prefix makes, and the most that it reads again.

        Stages of one form have loops and accesses in common, so it is reckoned once for them.
        """
        if prefix is None or len(prefix) == len(stage.loops):
            return self._bytes(stage.write), 0
        key = stage.form, stage.write.pattern, *prefix
        known = self.fast.get(key)
        if known is None:
            inner = math.prod(extent(r) for r in stage.loops if r not in prefix)
            known = self.fast[key] = (inner * self._bytes(stage.write),
                                      self._read_again(stage, prefix))
        return known

    def _read_again(self, stage: Stage, prefix: list[UOp]) -> int:
        """The most bytes of one input that do not change with the innermost prefix loop."""
        most = 0
        for access in stage.reads:
            used = access.pattern.ranges
            if prefix and prefix[-1] in used:
                continue
            bytes_read = math.prod(extent(r) for r in used if r not in prefix)
            most = max(most, bytes_read * self._bytes(access))
        return most

    def _join(self, group: Group, stage: Stage, pairs: Pairs, sizes: list[int],
              arguments: set[int]) -> None:
        kept = [position for position, _ in pairs]
        if len(kept) < len(group.sizes):
            for member in group.members:
                member.prefix = [member.prefix[i] for i in kept]
        group.members.append(Member(stage, [loop for _, loop in pairs]))
        group.sizes, group.arguments = sizes, arguments
        group.operations += stage.form.operations
        group.work += stage.form.iterations


def _reads_nothing(group: Group, stage: Stage) -> bool:
    """Whether a stage stores numbers only, or all stages of a kernel do."""
    # r[impl fusion.stages.together]
    return not stage.reads or not any(member.stage.reads for member in group.members)


def _overwritten_inside(stage: Stage, conflicts: Conflicts) -> str | None:
    """Whether one kernel would have to see two contents of a memory (r[fusion.group.legal]).

    A kernel reads memory as it was before the kernel. What one stage hands to another goes through
    a local buffer; that cannot hold the rest of a memory of which only a part was written.
    """
    for (member, theirs), mine in conflicts:
        if theirs is member.stage.write:  # r[impl fusion.group.legal]
            if mine is stage.write:
                return "memory: written twice"
            if not member.stage.whole:
                return "memory: read after only a part of it was written"
    return None


def _made_for(stages: Sequence[Stage]) -> dict[int, int]:
    """By the number of a small stage, that of one that has much more to do, and is the first to
    read what it makes.
    """
    # r[impl fusion.stages.feeding]
    readers: dict[int, Stage] = {}
    for stage in stages:
        for access in stage.reads:
            readers.setdefault(access.value, stage)
    found = {}
    for stage in stages:
        reader = readers.get(stage.write.value)
        if reader is not None and not stage.form.reduced \
                and reader.form.iterations >= _MUCH_MORE * stage.form.iterations:
            found[stage.number] = reader.number
    return found


def _one_to_one(pairs: Pairs) -> Pairs:
    """Each position and each loop at most once, the first come first."""
    seen_positions: set[int] = set()
    seen_loops: set[UOp] = set()
    kept: Pairs = []
    for position, loop in pairs:
        if position not in seen_positions and loop not in seen_loops:
            seen_positions.add(position)
            seen_loops.add(loop)
            kept.append((position, loop))
    return kept


def group_stages(placement: Placement, limits: FusionLimits, fuse: bool) -> Grouping:
    """Cut the stages, placed and in a legal order, into kernels."""
    grouper = _Grouper(placement, limits, fuse)
    for stage in placement.stages:
        grouper.add(stage)
    return Grouping(grouper.groups, grouper.blocked)
