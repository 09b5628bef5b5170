"""The lesson on caching lets right keys pass, and no wrong one."""
from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_caching
from conformance.learn.lesson import published
from conformance.learn.lesson_caching import (
    ALIAS,
    DIFFERENT,
    HELD,
    HIT,
    PROGRAM,
    RENAMING,
    STABLE,
    keys,
)
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.caching")


def said_of(key: Any) -> list[str]:
    module: Any = SimpleNamespace(key=key)
    return list(map(str, keys(module)))


def keyed(row: Any = None, exact: Any = solution.exact, leaf: Any = None, roots: bool = True,
          held: bool = True, listed: Any = list, whole: Any = tuple, order: Any = list) -> Any:
    """The solution, with some parts of it in another way."""
    def key(nodes: Any, asked: Any, kept: Any) -> Any:
        place: Any = {}
        slots: Any = {}
        rows = []
        for node in nodes:
            place[node] = len(place)
            sources = [place[each] for each in node.src]
            if node.op == "buffer":
                slot = slots.setdefault(node.buffer, len(slots))
                rows.append(leaf(node, slot) if leaf else
                            ("buffer", slot, node.dtype, node.shape))
            else:
                rows.append(row(node, sources) if row else (
                    node.op, node.dtype, node.shape, exact(node.arg), *sources))
        found: Any = whole(rows)
        if roots:
            found = found, tuple(order([place[each] for each in asked]))
        if held:
            found = found, tuple(sorted(slots[each] for each in kept))
        return found, listed(slots)
    return key


# Right, in other ways than the solution ----------------------------------------------------


def with_a_text(nodes: Any, roots: Any, held: Any) -> Any:
    """One long text."""
    names: Any = {}
    buffers: list[Any] = []
    lines = []
    for number, node in enumerate(nodes):
        names[node] = f"%{number}"
        if node.buffer is not None and node.buffer not in buffers:
            buffers.append(node.buffer)
        memory = "" if node.buffer is None else f"@{buffers.index(node.buffer)}"
        lines.append(f"{names[node]} = {node.op}{memory} {node.dtype} {node.shape} {node.arg!r} "
                     + " ".join(names[each] for each in node.src))
    lines.append("return " + " ".join(names[each] for each in roots))
    lines.append("keep " + " ".join(sorted(str(buffers.index(each)) for each in held)))
    return "\n".join(lines), buffers


def from_the_back(nodes: Any, roots: Any, held: Any) -> Any:
    """Slots are numbered from the last buffer to the first."""
    slots = list(dict.fromkeys(each.buffer for each in reversed(nodes) if each.buffer))
    place = {node: number for number, node in enumerate(nodes)}
    return (tuple((each.op, slots.index(each.buffer) if each.buffer else -1, each.dtype,
                   each.shape, repr(each.arg), tuple(place[s] for s in each.src))
                  for each in nodes),
            tuple(map(place.__getitem__, roots)), tuple(sorted(map(slots.index, held)))), slots


@pytest.mark.parametrize("key", [
    solution.key, with_a_text, from_the_back, keyed(exact=repr),
    keyed(lambda node, sources: (tuple(sources), repr(node.arg), node.shape, node.dtype, node.op))])
def test_a_right_one_is_shown_none(key: Any) -> None:
    assert said_of(key) == []


# Wrong, as one writes them -----------------------------------------------------------------


def as_a_tree(nodes: Any, roots: Any, held: Any) -> Any:
    """The text of an expression, with the names of buffers in it."""
    texts: Any = {}
    for node in nodes:
        texts[node] = node.buffer.name if node.buffer else (
            f"{node.op}{node.shape}{node.dtype}{node.arg!r}"
            f"({', '.join(texts[s][:200] for s in node.src)})")
    return tuple(texts[root] for root in roots), [n.buffer for n in nodes if n.buffer]


def as_they_are_held(nodes: Any, roots: Any, held: Any) -> Any:
    """The slots of what is held, in the order in which somebody says so."""
    key, buffers = solution.key(nodes, roots, [])
    return (key, tuple(map(buffers.index, held))), buffers


def sorted_by_name(nodes: Any, roots: Any, held: Any) -> Any:
    key, buffers = solution.key(nodes, roots, held)
    return key, sorted(buffers, key=lambda each: each.name)


WRONG: list[tuple[Any, str]] = [
    (keyed(leaf=lambda node, slot: ("buffer", id(node.buffer), node.dtype, node.shape)),
     f"{STABLE}: your key contains "),
    (keyed(leaf=lambda node, slot: ("buffer", str(node.buffer), node.dtype, node.shape)),
     f"{RENAMING}: the same program on other buffers"),
    (keyed(leaf=lambda node, slot: ("buffer", node.buffer.name, node.dtype, node.shape)),
     f"{RENAMING}: the same program on other buffers gets another key"),
    (keyed(leaf=lambda node, slot: ("buffer", node.dtype, node.shape)),
     f"{ALIAS}: both programs get one key"),
    (keyed(lambda node, sources: (node.op, node.shape, solution.exact(node.arg), *sources)),
     f"{PROGRAM}: both programs get one key, so the second would be run by the plan of the first"
     "\n\n    one: buffer x, cast(0) int32"),
    (keyed(lambda node, sources: (node.op, node.dtype, node.shape, *sources)),
     f"{PROGRAM}: both programs get one key, so the second would be run by the plan of the first"
     "\n\n    one: buffer x, number(2.0) (), mul(0, 1)"),
    (keyed(lambda node, sources: (node.op, node.dtype, node.shape, solution.exact(node.arg),
                                  *sorted(sources))), f"{PROGRAM}: both programs get one key"),
    (keyed(lambda node, sources: (node.op, node.dtype, node.shape, solution.exact(node.arg))),
     f"{PROGRAM}: both programs get one key"),
    (keyed(leaf=lambda node, slot: ("buffer", slot, node.dtype),
           row=lambda node, sources: (node.op, node.dtype, solution.exact(node.arg), *sources)),
     "one: buffer x (4,), neg(0) (4,)"),
    (keyed(leaf=lambda node, slot: ("buffer", slot, node.shape)),
     "one: buffer x int32, cast(0) float64\n    two: buffer x, cast(0) float64"),
    (keyed(leaf=lambda node, slot: ("buffer", slot, node.dtype)),
     "one: buffer x (3, 2), sum(0, (0,)) (2,)\n    two: buffer x (4, 2), sum(0, (0,)) (2,)"),
    (keyed(lambda node, sources: (node.op, node.dtype, solution.exact(node.arg), *sources)),
     "one: number(2.0) (), expand(0)\n    two: number(2.0) (), expand(0) (3, 2)"),
    (keyed(lambda node, sources: (node.op, node.op == "number" or node.dtype, node.shape,
                                  solution.exact(node.arg), *sources)),
     "one: number(0.1) (), cast(0) float64 ()\n    two: number(0.1) float64 (), cast(0) "),
    (as_they_are_held, f"{RENAMING}: the same program on other buffers gets another key"),
    (keyed(exact=lambda arg: arg), "one: buffer x, number(0.0) (), mul(0, 1)"),
    (keyed(exact=lambda arg: arg), f"{RENAMING}: the same program on other buffers"),
    (keyed(roots=False), "one: buffer x, neg(0), exp(1)"),
    (keyed(held=False), f"{HELD}: both programs get one key"),
    (keyed(whole=frozenset), f"{STABLE}: your key contains a frozenset, whose order is not"),
    (keyed(whole=list), "raised: your key contains a list, and cannot be looked up in a dict"),
    (keyed(listed=lambda slots: []), f"{HIT}: you list the buffers none; the program has x"),
    (sorted_by_name, f"{HIT}: slot 0 is "),
    (as_a_tree, f"{RENAMING}: the same program"),
    (lambda nodes, roots, held: (tuple(nodes), []), f"{STABLE}: your key contains a Node"),
    (lambda nodes, roots, held: None, "raised: key answers None, and not (key, list of buffers)"),
    (keyed(order=sorted), f"{PROGRAM}: both programs get one key, so the second would be run by "
     "the plan of the first\n\n    one: buffer x, neg(0), exp(1); asked for: 1, 2"),
]


@pytest.mark.parametrize(("key", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(key: Any, said: str) -> None:
    assert said in "\n".join(said_of(key))


def test_the_runtime_finds_plans_by_the_readers_keys() -> None:
    module = published(importlib.import_module("impl.caching.plans"))
    known = vars(module)
    ours, asked = known["canonicalize"], list[Any]()

    def key(nodes: Any, roots: Any, held: Any) -> Any:
        asked.append(nodes)
        return solution.key(nodes, roots, held)

    known.update(key=key)
    lesson_caching.install(module)
    from impl import Context, Tensor
    from impl.caching import walk
    with Context(DEVICE="REFERENCE"):
        a, b = (Tensor([1.0, 2.0]).realize() for _ in range(2))
        made = [[each(walk([tensor.uop]), "device") for each in (known["canonicalize"], ours)]
                for tensor in (a + b, b + a, a + a, (a + b) * 2, (a + b) * 3)]
    for one, theirs in made:
        assert one.buffers == theirs.buffers
        for other, others in made:
            assert (one.key == other.key) == (theirs.key == others.key)
            assert one.key != others.key
    assert len(asked) == 5 and asked[3][-1].op == "mul"


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "caching.md").read_text(encoding="utf-8")
    for key, said in (WRONG[3], WRONG[2]):
        found = next(each for each in said_of(key) if said in each)
        assert "\n".join(map(str.rstrip, found.strip().splitlines())) in page
    assert len(LESSONS["caching"].hints) == 5 and "the next of five hints" in page
    assert len(DIFFERENT) == 24 and "24 pairs" in page
