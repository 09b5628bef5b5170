"""What a runtime claims of its plans, or keeps in files: right ones pass, wrong ones do not."""

from __future__ import annotations

from pathlib import Path

from conformance.generators import packing_programs
from conformance.oracle import checker
from conformance.protocol import Document, shapes
from conformance.runner.checks import collect, run_check
from conformance.runner.subject import Subject
from conformance.suite.test_caching import damage
from conformance.suite.test_memory import FEW, wasteful
from conformance.suite.test_ordering import chain_by_chain, peak


def test_boxes_fill_a_rectangle() -> None:
    for seed in packing_programs.HARD:
        boxes = packing_programs.boxes(seed)
        heights = {phase: sum(box.size for box in boxes if box.first <= phase < box.stop)
                   for phase in range(max(box.stop for box in boxes))}
        assert set(heights.values()) == {packing_programs.least(boxes)
                                         // (4 * packing_programs.UNIT)}
        shapes.check_program(packing_programs.packed(boxes))
    assert packing_programs.boxes(1) == packing_programs.boxes(1) != packing_programs.boxes(2)


def test_boxes_with_holes_leave_some_of_each_phase_free() -> None:
    for seed in packing_programs.WITH_HOLES:
        boxes, enough = packing_programs.boxes_with_holes(seed)
        for phase in range(max(box.stop for box in boxes)):
            alive = sum(box.size for box in boxes if box.first <= phase < box.stop)
            assert 4 * packing_programs.UNIT * alive < enough
        assert len(boxes) <= FEW
        shapes.check_program(packing_programs.packed(boxes, padded=True))


def test_graphs_are_programs_whose_ends_are_looked_at() -> None:
    for seed in packing_programs.GRAPHS:
        program = packing_programs.graph(seed)
        shapes.check_program(program)
        assert len(program["statements"][-1]["names"]) == 2
        assert program == packing_programs.graph(seed) != packing_programs.graph(seed + 1)


def test_a_plan_that_needs_more_than_is_enough_is_wasteful() -> None:
    memory = {"placements": [{}] * 3, "planned": 640}
    assert not wasteful({"memory": memory}, 640)
    assert wasteful({"memory": memory}, 576) == \
        "640 bytes are planned for 3 temporaries, where 576 are enough"
    assert not wasteful({"memory": {**memory, "placements": [{}] * 41}}, 576)
    assert not wasteful({}, 576)


def _two_chains() -> Document:
    """0 -> 1 and 2 -> 3, with a temporary of 64 bytes in each, and results."""
    def access(buffer: int, version: int) -> list[dict[str, int]]:
        return [{"buffer": buffer, "version": version, "start": 0, "stop": 64}]

    kinds = ("temporary", "output", "temporary", "output")
    return {"buffers": [{"id": number, "kind": kind, "bytes": 64, "device": "CPU"}
                        for number, kind in enumerate(kinds)],
            "kernels": [{"id": number, "kind": "kernel", "device": "CPU",
                         "reads": access(number - 1, 1) if number % 2 else [],
                         "writes": access(number, 1)} for number in range(4)],
            "dependencies": [{"before": number, "after": number + 1, "kind": "RAW",
                              "buffer": number, "version": 1} for number in (0, 2)],
            "order": [0, 2, 1, 3]}


def test_the_peak_of_an_order_is_what_is_alive_together() -> None:
    document = _two_chains()
    assert not checker.check_order(document, [0, 2, 1, 3])
    assert chain_by_chain(document) == [0, 1, 2, 3]
    assert peak(document, [0, 2, 1, 3]) == 128
    assert peak(document, [0, 1, 2, 3]) == 64


def test_each_way_to_damage_a_file_changes_it(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    for number in range(4):
        file.write_bytes(b"what was kept")
        damage(file, number)
        assert file.read_bytes() != b"what was kept"
        file.write_bytes(b"")
        damage(file, number)


def test_files_that_are_right_pass_and_others_do_not() -> None:
    [check] = [each for each in collect(["caching"]) if "caching.kept.equal" in each.rules]
    found = {}
    for name in ("Keeps", "Believes", "Confuses"):
        implementation = f"conformance.saboteurs.kept:{name}"
        subject = Subject.of(implementation, profile="smoke")
        subject.shrinks = False
        found[name] = run_check(subject, check, subject.info.observes, ()).verdict
    assert found["Keeps"] == "pass" and found["Confuses"] == "fail"
    assert found["Believes"] in ("fail", "error")
