"""Kernels that are cut in two because they need too much memory at once. Chapter: spec/fusion.md.

All results of a kernel are alive together, and with them all that it reads. Where the kernel at
the peak is made of parts that only meet in memory anyway, running it as two kernels lets what
the first part has made be used up before the second begins.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from impl.fusion.groups import Blocked, Group
from impl.fusion.late import Homes
from impl.fusion.limits import Limits

Peak = tuple[int, int]  # bytes, and the group that runs then


# --8<-- [start:split]
def split_at_peak(groups: list[Group], blocked: list[Blocked], homes: Homes, limits: Limits,
                  peak_of: Callable[[list[Group]], Peak]) -> tuple[list[Group], list[Blocked]]:
    """Cut the kernel at the peak in two as long as that lowers the peak by a sixteenth.

    `peak_of` orders groups and says how much is alive at most. Each round looks at all groups
    once, so there are few rounds where there are many groups.
    """
    needed = sum(homes.values[v].nbytes for v in homes.temporary)
    if not needed or needed < limits.memory_worth:
        return groups, blocked
    most, where = peak_of(groups)
    for _ in range(min(16, limits.memory_rounds // max(1, len(groups)))):
        seam = _seam(groups, where, homes)
        if most < limits.memory_worth or seam is None:
            break
        tried = _cut(groups, where, seam)
        lower, next_where = peak_of(tried)
        if lower * 16 > most * 15:  # r[impl fusion.split.pays]
            break
        why = f"memory: as one kernel, {most} bytes would be alive at once"
        blocked = [(k + (k > where), s, said) for k, s, said in blocked]
        blocked += [(where, m.stage.number, why) for m in tried[where + 1].members]
        groups, most, where = tried, lower, next_where
    return groups, blocked
# --8<-- [end:split]


# --8<-- [start:seam]
def _seam(groups: Sequence[Group], where: int, homes: Homes) -> int | None:
    """Where to cut a group: before which member, so that both parts write about as much.

    What passes there goes through memory in any case, apart from little things.
    """
    group = groups[where]
    outside = {a.value for g in groups if g is not group for m in g.members
               for a in m.stage.reads}
    last = {a.value: at for at, m in enumerate(group.members) for a in m.stage.reads}
    made = [m.stage.write.value for m in group.members]
    sizes = [homes.values[v].nbytes if v in homes.temporary else 0 for v in made]
    leaving = [size if v in outside else 0 for v, size in zip(made, sizes, strict=True)]
    best: tuple[int, int] | None = None
    for seam in range(1, len(made)):
        passing = [size for v, size in zip(made[:seam], sizes, strict=False)
                   if v not in outside and last.get(v, -1) >= seam]
        if sum(passing) * 16 <= sum(leaving):
            larger = max(sum(leaving[:seam]), sum(leaving[seam:]))
            best = min(best or (larger, seam), (larger, seam))
    return best[1] if best and best[0] < sum(leaving) else None
# --8<-- [end:seam]


def _cut(groups: Sequence[Group], where: int, seam: int) -> list[Group]:
    """The groups with one cut in two; numbered anew, still in a legal order."""
    group = groups[where]
    parts = [replace(group, members=group.members[:seam]),
             replace(group, members=group.members[seam:])]
    return [replace(g, number=number) for number, g in
            enumerate([*groups[:where], *parts, *groups[where + 1:]])]
