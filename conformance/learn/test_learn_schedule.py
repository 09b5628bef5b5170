"""The lesson on schedules lets right readers of documents pass, and no wrong one."""
from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_schedule
from conformance.learn.lesson_schedule import all_bytes, most, schedules, too_early
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.schedule")


def module_of(**parts: Any) -> Any:
    return SimpleNamespace(**{name: parts.get(name, getattr(solution, name))
                              for name in ("moved", "peak", "early")})


def touches(document: Any) -> list[tuple[int, str, Any]]:
    """Position, what is done, and the touch."""
    return [(position, side, touch) for position, number in enumerate(document["order"])
            for side in ("reads", "writes") for touch in document["kernels"][number][side]]


# Right, in other ways than the solution ----------------------------------------------------


def by_changes(document: Any) -> int:
    """Grows where a life begins, and shrinks behind its end."""
    places: dict[int, list[int]] = {}
    for position, _, touch in touches(document):
        places.setdefault(touch["buffer"], []).append(position)
    changes = [0] * (len(document["order"]) + 1)
    for buffer in document["buffers"]:
        if buffer["kind"] == "temporary" and buffer["id"] in places:
            changes[min(places[buffer["id"]])] += buffer["bytes"]
            changes[max(places[buffer["id"]]) + 1] -= buffer["bytes"]
    return max(sum(changes[:end]) for end in range(1, len(changes) + 1))


def byte_by_byte(document: Any) -> list[tuple[int, int]]:
    memory: dict[tuple[int, int], int] = {}
    seen, found = set[tuple[int, int]](), []
    for position, side, touch in touches(document):
        buffer, number = touch["buffer"], document["order"][position]
        bytes_ = [(buffer, byte) for byte in range(touch["start"], touch["stop"])]
        if side == "writes":
            memory.update(dict.fromkeys(bytes_, touch["version"]))
            seen.add((buffer, touch["version"]))
        elif (touch["version"] or document["buffers"][buffer]["kind"] in lesson_schedule.EMPTY) \
                and (buffer, touch["version"]) not in seen or any(
                    memory.get(byte, 0) > touch["version"] for byte in bytes_):
            found.append((number, buffer))
    return found


def by_adding(document: Any) -> int:
    total = 0
    for _, _, touch in touches(document):
        total += touch["stop"]
        total -= touch["start"]
    return total


@pytest.mark.parametrize("parts", [
    {}, {"peak": by_changes}, {"early": byte_by_byte, "moved": by_adding},
    {"moved": all_bytes, "peak": most, "early": too_early},
    {"early": lambda document: sorted(byte_by_byte(document), reverse=True)}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert list(map(str, schedules(module_of(**parts)))) == []


# Wrong, as one writes them -----------------------------------------------------------------


def by_number(document: Any) -> Any:
    return {**document, "order": sorted(document["order"])}


def whole_buffers(document: Any) -> int:
    return sum(document["buffers"][touch["buffer"]]["bytes"] for _, _, touch in touches(document))


def newest_only(document: Any) -> list[tuple[int, int]]:
    """Takes every later version for one of the same bytes."""
    now: dict[int, int] = {}
    found = []
    for position, side, touch in touches(document):
        if side == "writes":
            now[touch["buffer"]] = touch["version"]
        elif now.get(touch["buffer"], 0) != touch["version"]:
            found.append((document["order"][position], touch["buffer"]))
    return found


def not_yet_only(document: Any) -> list[tuple[int, int]]:
    seen = {(buffer["id"], 0) for buffer in document["buffers"]}
    found = []
    for position, side, touch in touches(document):
        key = touch["buffer"], touch["version"]
        if side == "writes":
            seen.add(key)
        elif key not in seen:
            found.append((document["order"][position], touch["buffer"]))
    return found


def zero_is_there(document: Any) -> list[tuple[int, int]]:
    """Takes version 0 of a temporary for something."""
    return byte_by_byte({**document, "buffers": [{**each, "kind": "input"}
                                                 for each in document["buffers"]]})


def writes_first(document: Any) -> list[tuple[int, int]]:
    rows = [{**kernel, "reads": [], "writes": kernel["writes"]} for kernel in document["kernels"]]
    later = [{**kernel, "writes": []} for kernel in document["kernels"]]
    count = len(rows)
    order = [each for number in document["order"] for each in (number, number + count)]
    found = byte_by_byte({**document, "kernels": rows + later, "order": order})
    return [(number - count, buffer) for number, buffer in found]


def ends_early(document: Any) -> int:
    sizes = {buffer["id"]: buffer["bytes"] for buffer in document["buffers"]}
    return max((sum(sizes[buffer] for buffer in lesson_schedule.alive(document, position)
                    if buffer in lesson_schedule.alive(document, position + 1))
                for position in range(len(document["order"]))), default=0)


def once_for_each_buffer(document: Any) -> int:
    """What several kernels touch is counted once."""
    return sum({touch["buffer"]: touch["stop"] - touch["start"]
                for _, _, touch in touches(document)}.values())


def once_for_each_kernel(document: Any) -> int:
    """What a kernel reads and writes is counted once."""
    return sum({(position, touch["buffer"]): touch["stop"] - touch["start"]
                for position, _, touch in touches(document)}.values())


def of_inputs(document: Any) -> int:
    kinds = {buffer["id"]: buffer["kind"] for buffer in document["buffers"]}
    return sum(touch["stop"] - touch["start"] for _, _, touch in touches(document)
               if kinds[touch["buffer"]] != "temporary")


def touched_now(document: Any) -> int:
    """What waits for a later kernel is forgotten."""
    sizes = {each["id"]: each["bytes"] * (each["kind"] == "temporary")
             for each in document["buffers"]}
    return max(sum(sizes[buffer] for buffer in {
        touch["buffer"] for at, _, touch in touches(document) if at == position})
        for position in range(len(document["order"])))


def begins_late(document: Any) -> int:
    """A temporary is not alive yet while its first kernel writes it."""
    sizes = {buffer["id"]: buffer["bytes"] for buffer in document["buffers"]}
    return max((sum(sizes[buffer] for buffer in lesson_schedule.alive(document, position)
                    if position and buffer in lesson_schedule.alive(document, position - 1))
                for position in range(len(document["order"]))), default=0)


def for_ever(document: Any) -> int:
    """What was touched once stays alive."""
    return sum(document["buffers"][buffer]["bytes"] for buffer in {
        touch["buffer"] for _, _, touch in touches(document)}
        if document["buffers"][buffer]["kind"] == "temporary")


COMPLETE, BUFFERS, FLOW = ("schedule.document.complete", "schedule.document.buffers",
                           "schedule.document.flow")
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"moved": whole_buffers}, f"{COMPLETE}: you say that 264 bytes are moved; it is 200"),
    ({"moved": lambda document: sum(touch["stop"] - touch["start"] for _, side, touch in
                                    touches(document) if side == "reads")}, f"{COMPLETE}: you say"),
    ({"moved": lambda document: sum(buffer["bytes"] for buffer in document["buffers"])},
     f"{COMPLETE}: you say that 120 bytes are moved; it is 48"),
    ({"moved": lambda document: sum(touch["stop"] - touch["start"] for _, side, touch in
                                    touches(document) if side == "writes")}, f"{COMPLETE}: you"),
    ({"moved": lambda document: sum(touch["stop"] for _, _, touch in touches(document))},
     f"{COMPLETE}: you say that 232 bytes are moved; it is 200"),
    ({"moved": lambda document: len(touches(document))}, f"{COMPLETE}: you say that 2 bytes"),
    ({"moved": once_for_each_buffer}, f"{COMPLETE}: you say that 112 bytes are moved; it is 176"),
    ({"moved": once_for_each_kernel}, f"{COMPLETE}: you say that "),
    ({"moved": of_inputs}, f"{COMPLETE}: you say that 48 bytes are moved; it is 176"),
    ({"peak": touched_now}, f"{BUFFERS}: you say that "),
    ({"peak": begins_late}, f"{BUFFERS}: you say that "),
    ({"peak": for_ever}, f"{BUFFERS}: you say that 72 bytes are alive at most; it is 64"),
    ({"peak": lambda document: 0}, f"{BUFFERS}: you say that 0 bytes are alive at most; it is 64"),
    ({"peak": lambda document: sum(each["kind"] == "temporary" for each in document["buffers"])},
     f"{BUFFERS}: you say that 2 bytes are alive at most; it is 0"),
    ({"moved": lambda document: None}, "raised: moved answers no whole number"),
    ({"peak": lambda document: sum(buffer["bytes"] for buffer in document["buffers"]
                                   if buffer["kind"] == "temporary")}, f"{BUFFERS}: you say that "
                                                                       "72 bytes are alive"),
    ({"peak": lambda document: solution.peak({**document, "buffers": [
        {**each, "kind": "temporary"} for each in document["buffers"]]})}, f"{BUFFERS}: you say"),
    ({"peak": lambda document: solution.peak(by_number(document))}, f"{BUFFERS}: you say"),
    ({"peak": ends_early}, f"{BUFFERS}: you say that 64 bytes are alive at most; it is 72"),
    ({"peak": lambda document: max(each["bytes"] for each in document["buffers"])},
     f"{BUFFERS}: you say that 64 bytes are alive at most; it is 0"),
    ({"early": lambda document: []}, f"{FLOW}: kernel 1 reads a version of buffer 1 that is not"),
    ({"early": lambda document: solution.early(by_number(document))}, "order: 1, 0"),
    ({"early": newest_only}, f"{FLOW}: you name (2, 1); what is read there is right"),
    ({"early": not_yet_only}, "order: 0, 2, 1"),
    ({"early": zero_is_there}, "kernel 0 reads a version of buffer 1 that is not there"),
    ({"early": writes_first}, f"{FLOW}: you name (1, 1); what is read there is right"),
    ({"early": lambda document: [number for number, _ in solution.early(document)]},
     "raised: in the list of early stands 1, and not a pair (kernel, buffer)\n"),
    ({"early": lambda document: None}, "raised: early answers None, and not a list"),
    ({"early": lambda document: document["nothing"]}, "raised: your code raised KeyError"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    found = "\n".join(map(str, schedules(module_of(**parts))))
    assert said in found and "    kernel 0: " in found


def test_the_runtime_shows_its_documents_to_the_reader() -> None:
    given: list[Any] = []

    def early(document: Any) -> Any:
        given.append(document)
        return solution.early(document) + [(0, 9)] * len(given[1:])

    made = {"kernels": [{"id": 0, "reads": [], "writes": [], "bytes": 0}], "order": [0],
            "buffers": []}
    module: Any = SimpleNamespace(document=lambda plan: made, **{
        **vars(module_of()), "early": early})
    lesson_schedule.install(module)
    assert module.document(None) is made and given == [made]
    with pytest.raises(ValueError, match="your `early` says"):
        module.document(None)
    made["kernels"] = [{"id": 0, "reads": [], "writes": [], "bytes": 8}]
    given.clear()
    with pytest.raises(ValueError, match="your `moved` says 0 bytes"):
        module.document(None)


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "schedule.md").read_text(encoding="utf-8")
    assert all(line in page for line in lesson_schedule.score(module_of()))
    assert len(LESSONS["schedule"].hints) == 6 and "the next of six hints" in page
