"""Kernels that are better run as two. Chapter: spec/fusion.md.

A product of matrices wants a kernel with one result: then several rows and columns of it share what
is loaded. What other stages do with single elements of it is left to a kernel of its own.

All results of a kernel are alive together, and with them all that it reads. Where the kernel at
the peak is made of parts that only meet in memory anyway, running it as two kernels lets what
the first part has made be used up before the second begins.

Needs: groups in a legal order, where each value lives, and what an order of groups needs at most.
Guarantees: the same stages in the same order; some groups are two. What was given is as it was.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from impl.fusion.groups import Blocked, Group, Grouping, Member
from impl.fusion.limits import FusionLimits
from impl.fusion.products import Tiled
from impl.placement import Placement

Peak = tuple[int, int]  # bytes, and the group that runs then


def split_products(groups: list[Group], blocked: list[Blocked], limits: FusionLimits) -> Grouping:
    """Give each product of matrices a kernel of its own, where only elements of it are handed on.

    Nearly all work of such a kernel is the product, and in a tile it is many times faster.
    """
    tiled = Tiled(limits)
    made: list[Group] = []
    said: list[Blocked] = []
    first: dict[int, int] = {}  # by the number of a group: that of its first part
    for group in groups:
        first[group.number] = len(made)
        parts = _around_products(group, tiled)
        if len(parts) == 1 and group.number == len(made):
            made.append(group)
            continue
        for members in parts:
            if len(made) > first[group.number]:
                said += [(len(made) - 1, each.stage.number, _PRODUCT) for each in members]
            made.append(replace(group, number=len(made), members=members))
    return Grouping(made, [(first[kernel], stage, why) for kernel, stage, why in blocked] + said)


_PRODUCT = "product: its tile needs a kernel with one result"


def _around_products(group: Group, tiled: Tiled) -> list[list[Member]]:
    """The members of a kernel in parts; all in one, if it is not a product that keeps it busy."""
    members = group.members
    if len(members) == 1:
        return [members]
    apart = [len(each.prefix) == len(each.stage.loops) and each.stage in tiled
             for each in members]
    if not any(apart):
        return [members]
    parts: list[list[Member]] = [[]]
    for number, each in enumerate(members):
        if parts[-1] and (apart[number] or apart[number - 1]):
            parts.append([])
        parts[-1].append(each)
    return parts


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
