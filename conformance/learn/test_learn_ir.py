"""The lesson on lazy values lets right walks pass, and no wrong one."""
from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_ir
from conformance.learn.lesson_ir import lazy
from conformance.learn.lessons import LESSONS

published: Any = importlib.import_module("impl.ir")
solution: Any = importlib.import_module("conformance.learn.solutions.ir")


def module_of(**parts: Any) -> Any:
    return SimpleNamespace(**{name: parts.get(name, getattr(solution, name))
                              for name in ("walk", "replaced", "key")})


# Right, in other ways than the solution ----------------------------------------------------


def by_iterators(roots: Any, gate: Any) -> list[Any]:
    found, seen = [], set(roots)
    for root in dict.fromkeys(roots):
        stack = [(root, iter(root.src if gate(root) else ()))]
        if root in found:
            continue
        while stack:
            node, sources = stack[-1]
            source = next((each for each in sources if each not in seen or each in roots
                           and each not in found), None)
            if source is None:
                found.append(stack.pop()[0])
            else:
                seen.add(source)
                stack.append((source, iter(source.src if gate(source) else ())))
    return found


def by_counting(roots: Any, gate: Any) -> list[Any]:
    """Users of a node first, and all of it turned round."""
    users: dict[Any, int] = dict.fromkeys(roots, 0)
    below = {}
    for node in (waiting := list(users)):
        below[node] = node.src if gate(node) else ()
        for source in below[node]:
            if source not in users:
                users[source] = 0
                waiting.append(source)
            users[source] += 1
    ready, found = [node for node in users if not users[node]], []
    while ready:
        found.append(node := ready.pop())
        for source in below[node]:
            users[source] -= 1
            if not users[source]:
                ready.append(source)
    return found[::-1]


def by_rounds(roots: Any, gate: Any) -> list[Any]:
    """Opened and finished nodes in one stack with marks, and sources kept in a dict."""
    state: dict[Any, Any] = {}
    found, stack = [], list(reversed(roots))
    while stack:
        node = stack[-1]
        if node not in state:
            state[node] = node.src if gate(node) else ()
            stack += [each for each in reversed(state[node]) if each not in state]
        else:
            stack.pop()
            if state[node] is not None:
                found.append(node)
                state[node] = None
    return found


def by_bytes(op: Any, src: Any, arg: Any) -> Any:
    if isinstance(arg, float):
        return op, src, "nan" if math.isnan(arg) else struct.pack("d", arg)
    return op, src, type(arg), arg


def by_sign(op: Any, src: Any, arg: Any) -> Any:
    if arg != arg:
        return op, src, "nan"
    sign = math.copysign(1, arg) if isinstance(arg, float) else None
    return op, src, type(arg), arg, sign


def in_one_go(root: Any, new: Any) -> Any:
    """Two dicts: what changed, and what it became."""
    became = dict(new)
    for node in published.toposort((root,), lambda node: node not in new):
        sources = node.src
        if node not in became and any(each in became for each in sources):
            made = [became.get(each, each) for each in sources]
            if any(a is not b for a, b in zip(made, sources, strict=True)):
                became[node] = node.replace(src=made)
    return became.get(root, root)


RIGHT = [{}, {"walk": by_iterators, "key": by_bytes}, {"walk": by_counting, "replaced": in_one_go},
         {"walk": by_rounds, "key": by_sign},
         {"walk": published.toposort, "key": lambda op, src, arg: (op, src, type(arg), str(arg))}]


@pytest.mark.parametrize("parts", RIGHT)
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert list(map(str, lazy(module_of(**parts)))) == []


# Wrong, as one writes them -----------------------------------------------------------------


def calls_itself(roots: Any, gate: Any) -> list[Any]:
    found: dict[Any, None] = {}

    def visit(node: Any) -> None:
        if node not in found:
            for source in node.src if gate(node) else ():
                visit(source)
            found[node] = None

    for root in roots:
        visit(root)
    return list(found)


def every_way(roots: Any, gate: Any) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        for source in node.src if gate(node) else ():
            visit(source)
        if node not in found:
            found.append(node)

    for root in roots:
        visit(root)
    return found


def users_first(roots: Any, gate: Any) -> list[Any]:
    return by_counting(roots, gate)[::-1]


def breadth_first(roots: Any, gate: Any) -> list[Any]:
    """Turned round: right for trees, and for many other graphs."""
    found = list(dict.fromkeys(roots))
    for node in found:
        found += [each for each in dict.fromkeys(node.src if gate(node) else ())
                  if each not in found]
    return found[::-1]


def through_a_set(roots: Any, gate: Any) -> list[Any]:
    found: dict[Any, None] = {}
    stack = [(root, False) for root in roots]
    while stack:
        node, done = stack.pop()
        if done:
            found.setdefault(node)
        elif node not in found:
            stack.append((node, True))
            stack += [(each, False) for each in (set(node.src) if gate(node) else ())]
    return list(found)


def copied(root: Any, new: Any) -> Any:
    became = dict(new)
    for node in solution.walk([root], lambda node: node not in new):
        if node not in became:
            became[node] = node.replace(src=[became[each] for each in node.src])
    return became[root]


def again_and_again(root: Any, new: Any) -> Any:
    if root in new:
        return new[root]
    sources = [again_and_again(each, new) for each in root.src]
    return root.replace(src=sources) if sources != list(root.src) else root


def into_the_new(root: Any, new: Any) -> Any:
    became: dict[Any, Any] = {}
    for node in solution.walk([root, *new.values()], lambda node: True):
        made = node.replace(src=[became[each] for each in node.src]) if any(
            became[each] is not each for each in node.src) else node
        became[node] = became.get(new[made], new[made]) if made in new else made
    return became[root]


def again(root: Any, new: Any) -> Any:
    """What stands in the place of a node is replaced in its turn."""
    found = solution.replaced(root, new)
    return again(found, new) if found is not root and found in new else found


def below_the_replaced(root: Any, new: Any) -> Any:
    """Makes nodes below what is replaced, which nobody will use."""
    became = dict(new)
    for node in solution.walk([root], lambda node: True):
        if node not in became:
            sources = [became[each] for each in node.src]
            became[node] = node.replace(src=sources) if sources != list(node.src) else node
    return became[root]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"replaced": again}, "ir.node.immutable: you answer c; it is b"),
    ({"replaced": below_the_replaced}, "you make new nodes, 2 in all, where 1 would do"),
    ({"walk": calls_itself}, "raised: your code raised RecursionError"),
    ({"walk": every_way}, "ir.walk.whole: you have asked for the sources of 61 nodes"),
    ({"walk": users_first}, "ir.walk.whole: neg stands before its source a"),
    ({"walk": breadth_first}, "ir.walk.whole: neg stands before its source a\n\n    a: leaf\n"),
    ({"walk": through_a_set}, "in one process and"),
    ({"walk": lambda roots, gate: solution.walk(roots[:1], gate)}, "ir.walk.whole: b is missing"),
    ({"walk": lambda roots, gate: solution.walk(roots, gate)[:-1]}, "ir.walk.whole: a is missing"),
    ({"walk": lambda roots, gate: [x for r in roots for x in solution.walk([r], gate)]},
     "ir.walk.whole: a stands in your list twice"),
    ({"walk": lambda roots, gate: solution.walk(roots, lambda node: True)},
     "ir.walk.whole: a stands in your list, and nobody comes to it"),
    ({"walk": lambda roots, gate: [x for x in solution.walk(roots, gate) if gate(x)]},
     "ir.walk.whole: neg is missing"),
    ({"walk": lambda roots, gate: None}, "raised: walk answers None, and not a list of nodes"),
    ({"walk": lambda roots, gate: ["a"]}, "raised: 'a' in your list is no node of the graph"),
    ({"replaced": copied}, "ir.node.immutable: you make new nodes, 2 in all, where 1 would do"),
    ({"replaced": again_and_again}, "in `replaced` you have asked for the sources of 62 nodes"),
    ({"replaced": into_the_new}, "ir.node.immutable: you answer sub(b, b); it is sub(b, a)"),
    ({"replaced": lambda root, new: new.get(root, root)}, "you answer neg(a); it is neg(b)"),
    ({"replaced": lambda root, new: None}, "raised: replaced answers None, and not a node"),
    ({"key": lambda op, src, arg: (op, src, arg)}, "ir.identity.one: 1 and 1.0 are two nodes"),
    ({"key": lambda op, src, arg: (op, src, type(arg), arg)}, "0.0 and -0.0 are two nodes, and"),
    ({"key": lambda op, src, arg: (op, arg)}, "ir.identity.one: a - b and b - a are two nodes"),
    ({"key": lambda op, src, arg: (op, frozenset(src), repr(arg))}, "a - b and b - a are two"),
    ({"key": lambda op, src, arg: (op, str(src), repr(arg))}, "a - b and b - a are two nodes"),
    ({"key": lambda op, src, arg: (op, src, id(arg))}, "ir.identity.one: NaN and NaN are one node"),
    ({"key": lambda op, src, arg: (op, src, type(arg), round(arg, 9) if op == "const" else arg)},
     "ir.identity.one: "),
    ({"key": lambda op, src, arg: (src, repr(arg))}, "a + b and a * b are two nodes"),
    ({"key": lambda op, src, arg: (op, src and src[0], repr(arg))},
     "a + b and a + a are two nodes"),
    ({"replaced": lambda root, new: solution.replaced(root, {
        old: node for old, node in new.items() if not old.src})}, "ir.node.immutable: you answer"),
    ({"key": lambda op, src, arg: [op, src, arg]}, "raised: your code raised TypeError"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in "\n".join(map(str, lazy(module_of(**parts))))


def test_the_runtime_walks_as_the_reader_does() -> None:
    module: Any = lesson_ir.published(published)
    walked: list[int] = []

    def walk(roots: Any, gate: Callable[..., bool]) -> Any:
        walked.append(len(roots))
        return solution.walk(roots, gate)

    vars(module).update(walk=walk, replaced=solution.replaced, key=solution.key)
    lesson_ir.install(module)
    float32 = importlib.import_module("impl.dtypes").dtypes.float32
    one, two = (module.UOp.const(float32, number) for number in (1.0, -0.0))
    assert module.UOp.const(float32, 1.0) is one
    assert module.UOp.const(float32, 0.0) is not two
    add = module.UOp(module.Ops.ADD, float32, (one, two))
    assert add.toposort() == [one, two, add] and add.substitute({two: one}).src == (one, one)
    assert walked == [1]


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "ir.md").read_text(encoding="utf-8")
    module: Any = SimpleNamespace(walk=solution.walk, __file__=published.__file__)
    assert all(line in page for line in lesson_ir.score(module))
    assert len(LESSONS["ir"].hints) == 7 and "the next of seven hints" in page
