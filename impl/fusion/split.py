"""Kernels that are cut in two because they need too much memory at once. Chapter: spec/fusion.md.

All results of a kernel are alive together, and with them all that it reads. Where the kernel at
the peak is made of parts that only meet in memory anyway, running it as two kernels lets what
the first part has made be used up before the second begins.

Needs: groups in a legal order, where each value lives, and what an order of groups needs at most.
Guarantees: the same stages in the same order; some groups are two. What was given is as it was.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from impl.fusion.groups import Blocked, Group, Grouping
from impl.fusion.limits import FusionLimits
from impl.placement import Placement

Peak = tuple[int, int]  # bytes, and the group that runs then


def split_at_peak(groups: list[Group], blocked: list[Blocked], placement: Placement,
                  limits: FusionLimits, peak_of: Callable[[list[Group]], Peak]) -> Grouping:
    """Cut the kernel at the peak in two as long as that lowers the peak by a sixteenth.

    `peak_of` orders groups and says how much is alive at most. Each round looks at all groups
    once, so there are few rounds where there are many groups.
    """
    needed = sum(placement.values[v].nbytes for v in placement.single)
    if not needed or needed < limits.memory_worth:
        return Grouping(groups, blocked)
    most, where = peak_of(groups)
    for _ in range(min(16, limits.memory_rounds // max(1, len(groups)))):
        seam = _seam(groups, where, placement)
        if most < limits.memory_worth or seam is None:
            break
        tried = _cut(groups, where, seam)
        lower, next_where = peak_of(tried)
        if lower * 16 > most * 15:  # r[impl fusion.split.pays+2]
            break
        why = f"memory: as one kernel, {most} bytes would be alive at once"
        blocked = [(k + (k > where), s, said) for k, s, said in blocked]
        blocked += [(where, m.stage.number, why) for m in tried[where + 1].members]
        groups, most, where = tried, lower, next_where
    return Grouping(groups, blocked)


def _seam(groups: Sequence[Group], where: int, placement: Placement) -> int | None:
    """Where to cut a group: before which member, so that both parts write about as much.

    What passes there goes through memory in any case, apart from little things.
    """
    group = groups[where]
    outside = {a.value for g in groups if g is not group for m in g.members
               for a in m.stage.reads}
    last = {a.value: at for at, m in enumerate(group.members) for a in m.stage.reads}
    made = [m.stage.write.value for m in group.members]
    sizes = [placement.values[v].nbytes if v in placement.single else 0 for v in made]
    leaving = [size if v in outside else 0 for v, size in zip(made, sizes, strict=True)]
    best: tuple[int, int] | None = None
    for seam in range(1, len(made)):
        passing = [size for v, size in zip(made[:seam], sizes, strict=False)
                   if v not in outside and last.get(v, -1) >= seam]
        if sum(passing) * 16 <= sum(leaving):
            larger = max(sum(leaving[:seam]), sum(leaving[seam:]))
            best = min(best or (larger, seam), (larger, seam))
    return best[1] if best and best[0] < sum(leaving) else None


def _cut(groups: Sequence[Group], where: int, seam: int) -> list[Group]:
    """The groups with one cut in two; numbered anew, still in a legal order."""
    group = groups[where]
    parts = [replace(group, members=group.members[:seam]),
             replace(group, members=group.members[seam:])]
    return [replace(g, number=number) for number, g in
            enumerate([*groups[:where], *parts, *groups[where + 1:]])]
