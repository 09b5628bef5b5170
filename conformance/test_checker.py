"""The checker: a right document, and one mistake at a time."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest

from conformance import checker
from conformance.protocol import Document


def right() -> Document:
    """a (state) is read into b, then overwritten; b becomes c, c becomes the output d."""
    def buffer(number: int, kind: str) -> dict:
        return {"id": number, "kind": kind, "dtype": "float32", "shape": [16], "bytes": 64,
                "device": "CPU"}

    def access(number: int, version: int, start: int = 0, stop: int = 64) -> dict:
        return {"buffer": number, "version": version, "start": start, "stop": stop}

    def kernel(number: int, reads: list, writes: list) -> dict:
        return {"id": number, "kind": "kernel", "device": "CPU", "reads": reads, "writes": writes}

    def place(number: int, offset: int, first: int, last: int) -> dict:
        return {"buffer": number, "arena": 0, "offset": offset, "bytes": 64, "first": first,
                "last": last, "in_place_of": None}

    return {
        "format": "tensor-schedule/1",
        "buffers": [buffer(0, "state"), buffer(1, "temporary"), buffer(2, "temporary"),
                    buffer(3, "output"), buffer(4, "temporary")],
        "kernels": [kernel(0, [access(0, 0)], [access(1, 1)]),
                    kernel(1, [], [access(0, 1, 0, 32)]), kernel(2, [access(1, 1)], [access(2, 1)]),
                    kernel(3, [access(2, 1)], [access(4, 1)]),
                    kernel(4, [access(4, 1)], [access(3, 1)])],
        "dependencies": [
            {"before": 0, "after": 1, "kind": "WAR", "buffer": 0, "version": 1},
            {"before": 0, "after": 2, "kind": "RAW", "buffer": 1, "version": 1},
            {"before": 2, "after": 3, "kind": "RAW", "buffer": 2, "version": 1},
            {"before": 3, "after": 4, "kind": "RAW", "buffer": 4, "version": 1}],
        "order": [0, 1, 2, 3, 4], "outputs": [3],
        "boundaries": [{"before": 0, "after": 2, "buffer": 1, "reason": "asked"},
                       {"before": 2, "after": 3, "buffer": 2, "reason": "asked"},
                       {"before": 3, "after": 4, "buffer": 4, "reason": "asked"}],
        "memory": {"alignment": 64, "arenas": [{"id": 0, "device": "CPU", "bytes": 128}],
                   "placements": [place(1, 0, 0, 2), place(2, 64, 2, 3), place(4, 0, 3, 4)],
                   "planned": 128, "unplanned": 192, "lower_bound": 128}}


def test_a_right_document_has_no_findings() -> None:
    assert checker.check(right()) == []


def in_place(document: Document) -> None:
    document["memory"]["placements"][1].update(offset=0, in_place_of=1)
    document["memory"]["placements"][2].update(offset=0, in_place_of=2)
    document["memory"].update(planned=64, lower_bound=64,
                              arenas=[{"id": 0, "device": "CPU", "bytes": 64}])


def test_memory_may_be_handed_over_in_place() -> None:
    document = right()
    in_place(document)
    assert checker.check(document) == []
    document["memory"]["placements"][1]["in_place_of"] = None
    assert "memory.reuse.disjoint" in {each.rule for each in checker.check(document)}


Spoil = Callable[[Document], object]


@pytest.mark.parametrize(("rule", "spoil"), [
    ("dependencies.raw.order", lambda d: d["order"].reverse()),
    ("dependencies.raw.order", lambda d: d["dependencies"].pop(1)),
    ("dependencies.war.order", lambda d: d["dependencies"].pop(0)),
    ("dependencies.war.order", lambda d: d.update(order=[1, 0, 2, 3, 4])),
    ("dependencies.raw.order", lambda d: d["kernels"][0]["writes"][0].update(stop=60)),
    ("dependencies.ranges.disjoint", lambda d: d["kernels"][0]["reads"][0].update(start=32)),
    ("ordering.legal.permutation", lambda d: d["order"].pop()),
    ("ordering.legal.permutation", lambda d: d["order"].append(0)),
    ("effects.version.single-writer", lambda d: d["kernels"][1]["writes"][0].update(version=2)),
    ("effects.version.single-writer", lambda d: d["kernels"][0]["reads"][0].update(version=7)),
    ("fusion.boundary.reason", lambda d: d["boundaries"].pop()),
    ("schedule.document.schema", lambda d: d.pop("kernels")),
    ("schedule.document.schema", lambda d: d["kernels"][0]["reads"][0].update(buffer=9)),
    ("schedule.document.schema", lambda d: d["kernels"][0]["reads"][0].update(stop=65)),
    ("schedule.document.schema", lambda d: d.update(outputs=[1])),
    ("memory.lifetime.covers", lambda d: d["memory"]["placements"].pop()),
    ("memory.lifetime.covers", lambda d: d["memory"]["placements"][0].update(last=1)),
    ("memory.reuse.disjoint", lambda d: d["memory"]["placements"][1].update(offset=0)),
    ("memory.reuse.disjoint", lambda d: d["memory"]["placements"][1].update(bytes=32)),
    ("memory.alignment.arena", lambda d: d["memory"]["placements"][1].update(offset=32)),
    ("memory.alignment.arena", lambda d: d["memory"]["placements"][1].update(offset=128)),
    ("memory.alignment.arena", lambda d: d["memory"]["placements"][1].update(arena=3)),
    ("memory.planned.bounds", lambda d: d["memory"].update(planned=64)),
    ("memory.planned.bounds", lambda d: d["memory"].update(unplanned=100)),
    ("memory.planned.bounds", lambda d: d["memory"].update(lower_bound=64))])
def test_each_mistake_is_found_under_its_rule(rule: str, spoil: Spoil) -> None:
    document = deepcopy(right())
    spoil(document)
    assert rule in {each.rule for each in checker.check(document)}


def test_a_dependency_may_be_implied_by_others() -> None:
    document = right()
    document["kernels"][4]["reads"].append({"buffer": 1, "version": 1, "start": 0, "stop": 64})
    document["memory"]["placements"][0]["last"] = 4
    document["memory"]["placements"][2]["offset"] = 128
    document["memory"].update(planned=192, lower_bound=192,
                              arenas=[{"id": 0, "device": "CPU", "bytes": 192}])
    document["boundaries"].append({"before": 0, "after": 4, "buffer": 1, "reason": "asked"})
    assert checker.check(document) == []
