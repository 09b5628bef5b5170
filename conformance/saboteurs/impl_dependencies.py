"""Mistakes in what has to wait for what, made inside `impl.dependencies`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class _Without(ImplPatch):
    target = "impl.dependencies:find"
    kind = ""

    def replacement(self, original: Function) -> Function:
        return lambda *given: [d for d in original(*given) if d.kind != self.kind]


class FindsNoReadsAfterWrites(_Without):
    rule = "dependencies.raw.order"
    description = "no kernel waits for what it reads"
    first = "test_write_read_write"
    kind = "RAW"


class FindsNoWritesAfterReads(_Without):
    rule = "dependencies.war.order"
    description = "no kernel waits for the readers of what it overwrites"
    first = "test_write_read_write"
    kind = "WAR"


class FindsNoWritesAfterWrites(_Without):
    rule = "dependencies.waw.order"
    description = "no kernel waits for the writers of what it overwrites"
    first = "test_write_read_write"
    kind = "WAW"


class BytesAlwaysMeet(ImplPatch):
    rule = "dependencies.ranges.disjoint"
    description = "accesses of one storage are taken to meet, whatever bytes they touch"
    target = "impl.dependencies:Touch.overlaps"

    def replacement(self, original: Function) -> Function:
        return lambda touch, other: True


class NeighboursMeet(ImplPatch):
    rule = "dependencies.ranges.disjoint"
    description = "an access that begins where the next one ends is taken to meet it"
    target = "impl.dependencies:Touch.overlaps"
    first = "test_neighbours_that_share_no_byte_do_not_wait"

    def replacement(self, original: Function) -> Function:
        return lambda touch, other: touch.start <= other.stop and other.start < touch.stop


class WhoWasHalfOverwrittenIsForgotten(Edit):
    rule = "dependencies.waw.order"
    description = "nobody waits for a write of which a later one has overwritten the beginning"
    file = "impl/dependencies/past.py"
    old = "row[3].stop > touch.stop or row[2] == but"
    new = "row[3].stop > touch.stop and row[2] == but"
    first = "test_who_was_overwritten_in_part_is_still_waited_for"
