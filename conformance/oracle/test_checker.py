"""The checker: a right document, and one mistake at a time."""

from __future__ import annotations

import ast
import json
import random
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from conformance.oracle import checker
from conformance.protocol import Document
from conformance.runner import command


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
        "boundaries": [{"before": 0, "after": 2, "buffer": 1, "reason": "asked for"},
                       {"before": 2, "after": 3, "buffer": 2, "reason": "asked for"},
                       {"before": 3, "after": 4, "buffer": 4, "reason": "asked for"}],
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


MISTAKES: list[tuple[str, Spoil]] = [
    ("dependencies.raw.order", lambda d: d["order"].reverse()),
    ("dependencies.raw.order", lambda d: d["dependencies"].pop(1)),
    ("dependencies.war.order", lambda d: d["dependencies"].pop(0)),
    ("dependencies.war.order", lambda d: d.update(order=[1, 0, 2, 3, 4])),
    ("dependencies.raw.order", lambda d: d["kernels"][0]["writes"][0].update(stop=60)),
    ("dependencies.ranges.disjoint", lambda d: d["kernels"][0]["reads"][0].update(start=32)),
    ("dependencies.ranges.disjoint", lambda d: d["dependencies"][0].update(kind="WAW")),
    ("ordering.legal.permutation", lambda d: d["order"].pop()),
    ("ordering.legal.permutation", lambda d: d["order"].append(0)),
    ("effects.version.single-writer", lambda d: d["kernels"][1]["writes"][0].update(version=2)),
    ("effects.version.single-writer", lambda d: d["kernels"][0]["reads"][0].update(version=7)),
    ("fusion.boundary.reason", lambda d: d["boundaries"].pop()),
    ("fusion.boundary.reason", lambda d: d["boundaries"][0].update(reason="x")),
    ("collectives.transfer.untouched", lambda d: d["kernels"][2].update(until=3)),
    ("schedule.document.buffers", lambda d: d["buffers"][0].update(kind="input")),
    ("schedule.document.buffers", lambda d: d["kernels"][4]["writes"].clear()),
    ("schedule.document.buffers", lambda d: d["kernels"][0]["reads"][0].update(buffer=3)),
    ("schedule.document.buffers", lambda d: d["buffers"][0].update(dtype="uint8")),
    ("schedule.document.schema", lambda d: d["kernels"][2].update(collective={
        "kind": "permute", "devices": ["A"], "own": [1], "groups": [[0]], "bytes": 4})),
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
    ("memory.planned.bounds", lambda d: d["memory"].update(lower_bound=64)),
    ("schedule.document.agrees", lambda d: _fused(d, stages=1, listed=[0])),
    ("schedule.document.agrees", lambda d: _fused(d, stages=2, listed=[])),
    ("schedule.document.agrees", lambda d: d["dependencies"][1].update(version=7)),
    ("schedule.document.agrees", lambda d: d["memory"].update(unplanned=193)),
    ("schedule.document.agrees", lambda d: d["memory"]["placements"][1].update(
        in_place_of=d["memory"]["placements"][0]["buffer"])),
    ("schedule.document.schema", lambda d: _fused(d, stages=2, listed=[0, 99])),
    ("schedule.document.schema", lambda d: d["outputs"].extend(d["outputs"])),
    ("schedule.document.schema", lambda d: d["kernels"][0].update(id=1)),
    ("schedule.document.schema", lambda d: d["dependencies"][0].update(before=9)),
    ("dependencies.raw.order", lambda d: d["dependencies"][1].update(before=2, after=0)),
    ("dependencies.waw.order", lambda d: _second_writer(d, version=2)),
    ("effects.version.single-writer", lambda d: _second_writer(d, version=1)),
    ("memory.lifetime.covers", lambda d: d["memory"]["placements"][0].update(first=1)),
    ("memory.alignment.arena", lambda d: d["memory"]["arenas"][0].update(device="GPU")),
    ("schedule.document.devices", lambda d: d["kernels"][3].update(device="GPU")),
    ("memory.reuse.disjoint", lambda d: _taken_over(d, offset=64)),
    ("memory.reuse.disjoint", lambda d: _taken_over(d, in_place_of=1)),
    ("memory.reuse.disjoint", lambda d: _not_read_where_it_is_taken_over(d))]


def _fused(document: Document, stages: int, listed: list[int]) -> None:
    """Kernel 0 has so many stages, and these kernels are listed as fused."""
    document["kernels"][0]["stages"] = stages
    document["fusions"] = [{"kernel": number, "reason": "alike"} for number in listed]


def _second_writer(document: Document, version: int) -> None:
    """Kernel 4 writes the state too, at the last position; no dependency says that it waits."""
    document["kernels"][4]["writes"].append({"buffer": 0, "version": version, "start": 0,
                                             "stop": 32})


def _not_read_where_it_is_taken_over(document: Document) -> None:
    in_place(document)
    document["kernels"][3]["reads"].pop()


def _taken_over(document: Document, **wrong: int) -> None:
    """Buffer 4 lies on buffer 2 and says so, but something about it is not true."""
    document["memory"]["placements"][2].update({"offset": 64, "in_place_of": 2, **wrong})
    if "offset" in wrong:
        document["memory"]["placements"][2]["first"] = 2


@pytest.mark.parametrize(("rule", "spoil"), MISTAKES)
def test_each_mistake_is_found_under_its_rule(rule: str, spoil: Spoil) -> None:
    document = deepcopy(right())
    spoil(document)
    assert rule in {each.rule for each in checker.check(document)}


@pytest.mark.parametrize("spoil", [
    lambda d: d["dependencies"].append({"before": 4, "after": 0, "kind": "RAW"}),
    lambda d: d["dependencies"].append({"before": 2, "after": 2, "kind": "RAW"})])
def test_a_dependency_against_the_order_is_found(spoil: Spoil) -> None:
    document = right()
    spoil(document)
    found = checker.check(document)
    assert [each.rule for each in found] == ["dependencies.raw.order"]
    assert "is listed, but the order is [0, 1, 2, 3, 4]" in found[0].message


def test_a_bound_is_of_one_device() -> None:
    """The two devices of this document need their most bytes at different positions."""
    document = right()
    document["buffers"][4]["device"] = "GPU"
    for number in (3, 4):  # there and back
        document["kernels"][number]["kind"] = "copy"
    document["memory"]["arenas"].append({"id": 1, "device": "GPU", "bytes": 64})
    document["memory"]["placements"][2].update(arena=1, offset=0)
    document["memory"].update(planned=192, lower_bound=192)
    assert checker.check(document) == []
    assert checker.joins(document) == [3, 4]
    document["kernels"][2]["kind"] = "copy"  # on one device
    assert checker.joins(document) == [3, 4]


def test_a_bound_may_round_each_buffer_up() -> None:
    document = right()
    for number in (1, 2, 4):
        document["buffers"][number]["bytes"] = 48
    assert checker.lower_bounds(document) == (96, 128)


def test_every_finding_is_made_by_some_mistake() -> None:
    """A line of the checker that reports something, and never does here, verifies nothing."""
    path = Path(checker.__file__)
    lines = {node.lineno for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"}
    met: set[int] = set()

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != checker.__file__:
            return None
        met.add(frame.f_lineno)
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        for _, spoil in MISTAKES:
            document = right()
            spoil(document)
            checker.check(document)
        checker.check_together([right(), sent()])
        checker.check_together([right(), right()])
    finally:
        sys.settrace(before)
    assert lines and not lines - met


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of every mapping and list inside a value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def test_the_checker_answers_whatever_it_is_given() -> None:
    chooser, found = random.Random(0), 0
    for _ in range(3000):
        document = right()
        for _ in range(chooser.randrange(1, 4)):
            owner, key = chooser.choice(list(places(document)))
            how = chooser.randrange(5)
            if how == 0:
                del owner[key]
            elif how == 1 and isinstance(owner, list):
                owner.append(deepcopy(owner[key]))
            else:
                owner[key] = chooser.choice([0, 1, 2, 3, 4, 9, 32, 64, 10**30, -1, None, "", [], {}]
                                            if how == 2 else [0, 1, 2, 3, 4, 9, 32, 64])
        found += bool(checker.check(document))
    assert found > 2000


def test_a_dependency_may_be_implied_by_others() -> None:
    document = right()
    document["kernels"][4]["reads"].append({"buffer": 1, "version": 1, "start": 0, "stop": 64})
    document["memory"]["placements"][0]["last"] = 4
    document["memory"]["placements"][2]["offset"] = 128
    document["memory"].update(planned=192, lower_bound=192,
                              arenas=[{"id": 0, "device": "CPU", "bytes": 192}])
    document["boundaries"].append({"before": 0, "after": 4, "buffer": 1, "reason": "asked for"})
    assert checker.check(document) == []


def test_the_command_says_what_is_wrong_with_a_file(tmp_path: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    broken = right()
    broken["order"].reverse()
    texts = {"right": json.dumps(right()), "two": json.dumps([right(), broken]), "text": "{",
             "nothing": "[]", "no document": "3"}
    statuses, said = {}, {}
    for name, text in texts.items():
        path = tmp_path / f"{name}.json"
        path.write_text(text, encoding="utf-8")
        statuses[name] = command.main(["check", str(path)])
        said[name] = capsys.readouterr().out.replace(str(tmp_path), "")
    assert statuses == {"right": 0, "two": 1, "text": 1, "nothing": 1, "no document": 1}
    assert said["right"] == "/right.json: right, 5 kernels, 4 hazards\n"
    assert "/two.json[1]: dependencies.raw.order: RAW on buffer 1: kernel 0" in said["two"]
    assert "schedule.document.schema" in said["no document"]


def test_a_boundary_is_where_bytes_pass() -> None:
    """Kernel 3 writes the other half of what kernel 0 made: kernel 2 gets nothing from it."""
    document = right()
    document["kernels"][3]["writes"].append({"buffer": 1, "version": 2, "start": 32, "stop": 64})
    document["kernels"][0]["writes"][0]["stop"] = 32
    document["kernels"][4]["reads"].append({"buffer": 1, "version": 2, "start": 0, "stop": 32})
    document["boundaries"].append({"before": 0, "after": 4, "buffer": 1, "reason": "asked for"})
    assert "fusion.boundary.reason" not in {each.rule for each in checker.check(document)}
    document["boundaries"].pop()
    assert "fusion.boundary.reason" in {each.rule for each in checker.check(document)}


def sent() -> Document:
    """The right document, whose third kernel is a transfer that is waited for by the fourth."""
    document = right()
    document["kernels"][2].update(kind="copy", transfer="all-reduce over rows", sent=64, until=2)
    return document


def test_who_touches_what_is_being_sent_is_found() -> None:
    assert not checker.check(sent())
    early = sent()
    early["kernels"][2]["until"] = 3
    assert any(each.rule == "collectives.transfer.untouched" and "kernel 3 reads buffer 2"
               in each.message for each in checker.check(early))
    early["memory"]["placements"] = [
        {**each, "last": 3} for each in early["memory"]["placements"]]
    early["kernels"][3]["until"] = 3  # transfers are done one after the other
    early["kernels"][3]["kind"] = "copy"
    assert not any(each.rule == "collectives.transfer.untouched" for each in checker.check(early))


def test_processes_send_the_same_in_the_same_order(tmp_path: Path, capsys: Any) -> None:
    one, other, none = sent(), sent(), right()
    other["kernels"][2]["transfer"] = "all-reduce over columns"
    assert not checker.check_together([one, deepcopy(one), one])
    for wrong in (other, none):
        [finding] = checker.check_together([one, one, wrong])
        assert finding.rule == "collectives.order.same" and "document 2" in finding.message
    paths = []
    for number, document in enumerate((one, one, other)):
        paths.append(str(tmp_path / f"{number}.json"))
        Path(paths[-1]).write_text(json.dumps(document), encoding="utf-8")
    assert command.main(["check", "--together", *paths[:2]]) == 0
    assert command.main(["check", "--together", *paths]) == 1
    assert "collectives.order.same: transfer 0" in capsys.readouterr().out
