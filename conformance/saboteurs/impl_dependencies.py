"""Mistakes in what has to wait for what, made inside `impl.dependencies`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
