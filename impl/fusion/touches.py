"""What each kernel reads and writes in memory. Chapter: spec/fusion.md.

Needs: groups, and where each value lives.
Guarantees: of memory outside the kernel every byte is listed that it can touch, with the version
that it means; what only one kernel touches is private to it and not listed.
"""
from __future__ import annotations

from collections.abc import Collection, Sequence

from impl.dependencies import Touch
from impl.fusion.groups import Group
from impl.placement import Placement
from impl.ranges import Access


def private_storages(groups: Sequence[Group], placement: Placement) -> set[int]:
    """The temporaries that only one kernel touches: they become its local buffers.

    A copy has none: it goes from memory to memory, also where nothing is read of what it makes.
    Nor has a kernel that the user has written.
    """
    users: dict[int, set[int]] = {}
    copied = {placement.storage[access.value] for group in groups for member in group.members
              if member.stage.task or member.stage.given for access in member.stage.writes}
    for group in groups:
        for member in group.members:
            for access in (*member.stage.reads, *member.stage.writes):
                users.setdefault(placement.storage[access.value], set()).add(group.number)
    return {n for n, kernels in users.items()
            if len(kernels) == 1 and n in placement.temporaries and n not in copied}


def touches(group: Group, placement: Placement,
            private: Collection[int]) -> tuple[list[Touch], list[Touch]]:
    """What a kernel reads and writes, without what is private to it."""
    reads: dict[Touch, None] = {}
    writes: dict[Touch, None] = {}
    for member in group.members:
        for access in member.stage.reads:
            reads[_touch(access, placement)] = None
        for access in member.stage.writes:
            writes[_touch(access, placement)] = None
    fed = {(t.storage, t.version) for t in writes}
    return ([t for t in sorted(reads)
             if t.storage not in private and (t.storage, t.version) not in fed],
            [t for t in writes if t.storage not in private])


def _touch(access: Access, placement: Placement) -> Touch:
    low, high = access.pattern.bounds
    size = placement.values[access.value].node.dtype.itemsize
    start, stop = (low * size, (high + 1) * size) if low <= high else (0, 0)
    return Touch(placement.storage[access.value], placement.version[access.value], start, stop)
