"""What has to be true after each pass, and the check. Chapter: spec/schedule.md.

A check reads the draft as a pass has left it and finds what breaks a rule: a value, a kernel, an
access. Those of level 1 take time linear in the draft and run with SPEC=1, all with SPEC=2.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from impl.dependencies import Accesses, Dependency, Touch
from impl.errors import GraphError
from impl.fusion import Group
from impl.ir import TRUE, Ops, UOp, line_of
from impl.memory import ALIGNMENT
from impl.placement import Placement
from impl.ranges import Stage
from impl.rewrite import is_simple, verify
from impl.schedule import passes
from impl.schedule.draft import Draft
from impl.schedule.passes import Pass
from impl.symbolic import bounds, plain


class Finding(NamedTuple):
    """A broken rule: the sentence, the user's line, and the rule, if it is another one."""

    what: str
    origin: Any
    rule: str = ""


@dataclass(frozen=True)
class Check:
    """After this pass, nothing is found that breaks the rule."""

    after: Pass
    rule: str
    says: str
    level: int
    find: Callable[[Draft], Iterator[Finding]]


def check(after: Pass, draft: Draft, level: int) -> None:
    """Check what this pass has left, as thoroughly as SPEC asks for.

    Raises:
        GraphError: something breaks a rule; the error names it, the rule and the user's line.
    """
    for each in CHECKS:  # r[impl schedule.verify.passes]
        if each.after is after and each.level <= level:
            for found in each.find(draft):
                raise GraphError(f"verify after {after.__name__}",
                                 f"{found.what} breaks r[{found.rule or each.rule}]: {each.says}",
                                 "this is a mistake of that pass, or of one before it",
                                 line_of(found.origin) or None)


# ---------------------------------------------------------------- stages

def _free_loops(stage: Stage) -> Iterator[Finding]:
    """Loops that the value of a stage depends on, and that are not its own."""
    form, free = stage.form, dict[UOp, frozenset[UOp]]()
    for node in form.value.toposort():
        mine: frozenset[UOp] = frozenset().union(*(free[s] for s in node.src))
        if node.op is Ops.RANGE:
            mine |= {node}
        elif node.op is Ops.REDUCE:
            mine = free[node.src[0]] - set(node.src[1:])
        free[node] = mine
    own = set(form.loops)
    for loop in sorted(free[form.value] - own, key=lambda loop: loop.arg[0]):
        yield Finding(f"loop {loop.arg[0]} in stage {stage.number}", stage.node.origin)


def _loose_loops(draft: Draft) -> Iterator[Finding]:
    for stage in draft.graph.stages:
        yield from _free_loops(stage)


def _outside(draft: Draft) -> Iterator[Finding]:
    """Reads under no condition that may leave what they read."""
    for stage in draft.graph.stages:
        for access in stage.reads:
            if access.valid is TRUE and all(s for s in access.shape):
                low, high = bounds(access.pattern.flat)
                known = not any(node.op is Ops.LOAD for node in access.pattern.flat.toposort())
                if known and not 0 <= low <= high < plain(math.prod(access.shape)):
                    yield Finding(f"the read of value {access.value} at {low} to {high} in stage "
                                  f"{stage.number}", stage.node.origin)


def _not_simple(draft: Draft) -> Iterator[Finding]:
    for stage in draft.graph.stages:
        if not is_simple(stage.form.value):
            yield Finding(f"the expression of stage {stage.number}", stage.node.origin)


# ---------------------------------------------------------------- versions

def _versions(stages: Iterable[Stage], placement: Placement) -> Iterator[Finding]:
    """Run the stages in their order, and see which content each memory has when it is read."""
    now = {placement.storage[v.number]: placement.version[v.number]
           for v in placement.values if v.leaf}
    for stage in stages:
        for read in stage.reads:
            storage, version = placement.storage[read.value], placement.version[read.value]
            if now.get(storage) != version:
                yield Finding(f"stage {stage.number}, which reads version {version} of memory "
                              f"{storage} where it has version {now.get(storage)},",
                              stage.node.origin)
        for target in stage.writes:
            storage, version = placement.storage[target.value], placement.version[target.value]
            if version <= now.get(storage, -1):
                yield Finding(f"stage {stage.number}, which writes version {version} of memory "
                              f"{storage} after version {now[storage]},", stage.node.origin)
            now[storage] = version


def _placed(draft: Draft) -> Iterator[Finding]:
    yield from _versions(draft.placed.stages, draft.placed)


def _grouped(draft: Draft) -> Iterator[Finding]:
    stages = [member.stage for group in draft.groups for member in group.members]
    yield from _versions(stages, draft.placement)


def _once(draft: Draft) -> Iterator[Finding]:
    """Every stage is in one kernel, and kernels are numbered as they stand."""
    seen: set[int] = set()
    for place, group in enumerate(draft.groups):
        for member in group.members:
            if member.stage.write.value in seen or group.number != place:
                yield Finding(f"stage {member.stage.number} in kernel {group.number}",
                              member.stage.node.origin)
            seen.update(access.value for access in member.stage.writes)
    for stage in draft.placed.stages:
        if stage.write.value not in seen and stage.write.value in draft.placed.kept:
            yield Finding(f"stage {stage.number}, which is in no kernel,", stage.node.origin)


def _devices(draft: Draft) -> Iterator[Finding]:
    for group in draft.groups:
        for member in group.members:
            storage = draft.placement.storage[member.stage.write.value]
            if draft.placement.values[storage].device != group.device:
                yield Finding(f"stage {member.stage.number} in kernel {group.number} on "
                              f"{group.device}", member.stage.node.origin)


# ---------------------------------------------------------------- kernels in time

def _line(group: Group) -> Any:
    return group.members[-1].stage.node.origin


def _unordered(accesses: Accesses, edges: Iterable[Dependency], order: Sequence[int],
               groups: Sequence[Group]) -> Iterator[Finding]:
    """Pairs of kernels that touch one byte, one of them writing, and do not wait."""
    before = dict[int, int]()  # kernel -> those that have finished when it starts, a bit each
    waits: dict[int, list[int]] = {}
    for edge in edges:
        waits.setdefault(edge.after, []).append(edge.before)
    for place, kernel in enumerate(order):
        before[kernel] = 0
        for other in waits.get(kernel, ()):
            before[kernel] |= before.get(other, 0) | 1 << other
        for earlier in order[:place]:
            kind = "" if before[kernel] >> earlier & 1 else \
                _meet(accesses[earlier], accesses[kernel])
            if kind:
                yield Finding(f"kernel {kernel}, which does not wait for kernel {earlier},",
                              _line(groups[kernel]), f"dependencies.{kind}.order")


def _meet(first: tuple[list[Touch], list[Touch]], second: tuple[list[Touch], list[Touch]]) -> str:
    """The hazard between two kernels, if one writes a byte that the other touches."""
    for kind, mine, theirs in (("raw", first[1], second[0]), ("war", first[0], second[1]),
                               ("waw", first[1], second[1])):
        if any(a.storage == b.storage and a.overlaps(b) for a in mine for b in theirs):
            return kind
    return ""


def _waiting(draft: Draft) -> Iterator[Finding]:
    yield from _unordered(draft.accesses, draft.waits, range(len(draft.groups)), draft.groups)


def _still_waiting(draft: Draft) -> Iterator[Finding]:
    yield from _unordered(draft.takeovers.accesses, draft.dependencies, draft.order, draft.groups)


def _against(edges: Iterable[Dependency], draft: Draft) -> Iterator[Finding]:
    """Kernels that run before one that they wait for."""
    if sorted(draft.order) != list(range(len(draft.groups))):
        yield Finding(f"the order {draft.order} of {len(draft.groups)} kernels", None)
        return
    position = {kernel: place for place, kernel in enumerate(draft.order)}
    for edge in edges:
        if position[edge.before] >= position[edge.after]:
            yield Finding(f"kernel {edge.after}, which runs before kernel {edge.before},",
                          _line(draft.groups[edge.after]))


# ---------------------------------------------------------------- memory and kernels

def _arenas(draft: Draft) -> Iterator[Finding]:
    for device, one in draft.memories.items():
        for life in one.lifetimes:
            offset = one.offsets[life.storage]
            if offset % ALIGNMENT or offset < 0 or offset + life.nbytes > one.planned:
                yield Finding(f"memory {life.storage} at byte {offset} of {one.planned} on "
                              f"{device}", draft.placement.values[life.storage].node.origin)


def _shared_bytes(draft: Draft) -> Iterator[Finding]:
    for one in draft.memories.values():
        spans = sorted(one.lifetimes, key=lambda life: one.offsets[life.storage])
        for place, life in enumerate(spans):
            end = one.offsets[life.storage] + life.nbytes
            for other in spans[place + 1:]:
                if one.offsets[other.storage] >= end:
                    break
                if life.meets(other):
                    yield Finding(f"memory {life.storage} with memory {other.storage}",
                                  draft.placement.values[life.storage].node.origin)


def _kernels(draft: Draft) -> Iterator[Finding]:
    for number, kernel in enumerate(draft.kernels):
        try:
            verify(kernel.ast, "kernel")
        except GraphError as error:
            raise GraphError(f"verify kernel {number}", error.detail, error.remedy,
                             line_of(_line(draft.groups[number])) or error.line) from None
        for node in kernel.ast.toposort():
            if node.op is Ops.PARAM and not 0 <= node.arg < len(kernel.arguments):
                yield Finding(f"argument {node.arg} of kernel {number}",
                              _line(draft.groups[number]))


CHECKS = (
    Check(passes.make_stages, "ranges.reduce.own", "a value depends on the loops around it only",
          1, _loose_loops),
    Check(passes.make_stages, "ranges.access.inside", "a read without a condition is inside", 2,
          _outside),
    Check(passes.make_stages, "ranges.stage.lean", "no rule of the algebra applies to it", 2,
          _not_simple),
    Check(passes.place, "placement.in-place.safe",
          "each version is read before it is overwritten", 1, _placed),
    Check(passes.split, "fusion.stages.together", "each stage is in one kernel", 1, _once),
    Check(passes.split, "fusion.group.acyclic", "kernels stand in a legal order", 1, _grouped),
    Check(passes.split, "fusion.cut.device", "a kernel is on one device", 1, _devices),
    Check(passes.find_hazards, "dependencies.raw.order", "hazards wait", 2, _waiting),
    Check(passes.put_in_order, "ordering.legal.permutation", "what waits runs later", 1,
          lambda draft: _against(draft.waits, draft)),
    Check(passes.take_over, "ordering.legal.permutation", "what waits runs later", 1,
          lambda draft: _against(draft.dependencies, draft)),
    Check(passes.take_over, "dependencies.raw.order", "hazards wait", 2, _still_waiting),
    Check(passes.lay_out, "memory.alignment.arena", "it is aligned, and inside its arena", 1,
          _arenas),
    Check(passes.lay_out, "memory.reuse.disjoint", "two that are alive at once share no byte", 2,
          _shared_bytes),
    Check(passes.assemble, "fusion.kernel.canonical", "every argument is one of the kernel's", 1,
          _kernels),
)
