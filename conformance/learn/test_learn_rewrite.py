"""The lesson on rewriting lets right matchers and walks pass, and no wrong one."""
from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_rewrite
from conformance.learn.lesson_rewrite import bindings, rewriting
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.rewrite")
walk: Any = importlib.import_module("impl.rewrite.walk")


def module_of(**parts: Any) -> Any:
    return SimpleNamespace(match=parts.get("match", solution.match),
                           rewrite=parts.get("rewrite", solution.rewrite))


# Right, in other ways than the solution ----------------------------------------------------


def by_asking_on(pattern: Any, node: Any) -> Any:
    """A generator that takes what is known along."""
    def ways(pattern: Any, node: Any, known: Any) -> Any:
        if not pattern.fits(node) or known.get(pattern.name, node) is not node:
            return
        known = {**known, pattern.name: node} if pattern.name is not None else known
        if pattern.src is None:
            yield known
        elif len(pattern.src) == len(node.src):
            yield from among(list(pattern.src), list(node.src), known, pattern.any_order)

    def among(patterns: Any, sources: Any, known: Any, any_order: bool) -> Any:
        if not patterns:
            yield known
        for place in range(len(sources) if any_order else min(1, len(sources))):
            for found in ways(patterns[0], sources[place], known):
                yield from among(patterns[1:], sources[:place] + sources[place + 1:], found,
                                 any_order)

    return list(ways(pattern, node, {}))


def in_two_steps(root: Any, change: Any, like: Any) -> Any:
    """A stack of tasks: open a node, build it, give the answer on."""
    done: dict[Any, Any] = {}
    tasks = [("open", root, None)]
    while tasks:
        task, node, other = tasks.pop()
        if task == "open" and node not in done:
            tasks.append(("build", node, None))
            tasks += [("open", each, None) for each in reversed(node.src)]
        elif task == "build" and node not in done:
            sources = [done[each] for each in node.src]
            built = like(node, sources) if sources != list(node.src) else node
            answer = change(built)
            if answer is None:
                done[node] = done[built] = built
            else:
                tasks += [("take", node, answer), ("open", answer, None)]
        elif task == "take":
            done[node] = done[other]
    return done[root]


def by_the_runtime(root: Any, change: Any, like: Any) -> Any:
    """Our walk, with nodes that have no line."""
    found = walk._Rewrite.__new__(walk._Rewrite)
    rule = SimpleNamespace(name="rule")
    found.look = lambda node: None if (answer := change(node)) is None else (answer, rule)
    found.gate, found.limit, found.top_down, found.again = None, 10**6, False, True
    found.done, found.open, found.stack = {}, {}, []
    return found.run(root)


@pytest.mark.parametrize("parts", [
    {}, {"match": by_asking_on}, {"rewrite": in_two_steps}, {"match": bindings},
    {"rewrite": by_the_runtime}])
def test_a_right_one_is_shown_none(parts: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(walk, "_inherit", lambda new, old: new)
    monkeypatch.setattr(lesson_rewrite.Node, "replace", lambda self, src:
                        lesson_rewrite.like(self, src), raising=False)
    assert list(map(str, rewriting(module_of(**parts)))) == []


# Wrong, as one writes them -----------------------------------------------------------------


def without_names(pattern: Any, node: Any) -> Any:
    """One name may be two nodes."""
    if not pattern.fits(node):
        return []
    found = {} if pattern.name is None else {pattern.name: node}
    for one, source in zip(pattern.src or (), node.src, strict=False):
        ways = without_names(one, source)
        if not ways:
            return []
        found.update(ways[0])
    return [found]


def greedy(pattern: Any, node: Any, names: Any = None) -> Any:
    """The first order that fits is taken, and what is found stays."""
    names = {} if names is None else names
    if not pattern.fits(node) or names.setdefault(pattern.name, node) is not node \
            and pattern.name is not None:
        return []
    if pattern.src is not None:
        if len(pattern.src) != len(node.src):
            return []
        left = list(node.src)
        for one in pattern.src:
            fitting = [each for each in left if greedy(one, each, names)]
            if not fitting or not pattern.any_order and fitting[0] is not left[0]:
                return []
            left.remove(fitting[0])
    return [{name: node for name, node in names.items() if name is not None}]


def in_order_only(pattern: Any, node: Any) -> Any:
    return solution.match(pattern._replace(any_order=False), node)


def one_way(pattern: Any, node: Any) -> Any:
    return solution.match(pattern, node)[:1]


def turned_first(pattern: Any, node: Any) -> Any:
    return solution.match(pattern, node)[::-1]


def one_way_for_each_order(pattern: Any, node: Any) -> Any:
    """Of an inner pattern the first way that fits, for each order of the outer one."""
    def first(pattern: Any, node: Any) -> Any:
        if pattern.src is None:
            return pattern
        below = tuple(first(one, source) for one, source in zip(pattern.src, node.src,
                                                                strict=False))
        return pattern._replace(src=below, any_order=False)
    return solution.match(first(pattern, node) if len(pattern.src or ()) == 1 else pattern, node)


def leaves_named_only(pattern: Any, node: Any) -> Any:
    inner = pattern._replace(name=None if pattern.src else pattern.name, src=pattern.src and tuple(
        each._replace(name=None if each.src else each.name) for each in pattern.src))
    return solution.match(inner, node)


def any_number(pattern: Any, node: Any) -> Any:
    return [each for each in solution.match(pattern, node)] or (
        [{}] if pattern.fits(node) and len(pattern.src or ()) != len(node.src) else [])


def calls_itself(root: Any, change: Any, like: Any) -> Any:
    done: dict[Any, Any] = {}

    def visit(node: Any) -> Any:
        if node not in done:
            built = like(node, [visit(each) for each in node.src])
            answer = change(built)
            done[node] = built if answer is None else visit(answer)
        return done[node]
    return visit(root)


def forgets(root: Any, change: Any, like: Any) -> Any:
    built = like(root, [forgets(each, change, like) for each in root.src])
    answer = change(built)
    return built if answer is None else forgets(answer, change, like)


def once(root: Any, change: Any, like: Any) -> Any:
    done: dict[Any, Any] = {}
    for node in solution_order(root):
        built = like(node, [done[each] for each in node.src])
        answer = change(built)
        done[node] = built if answer is None else answer
    return done[root]


def until_none(root: Any, change: Any, like: Any) -> Any:
    """The answer itself again and again, and not what is below it."""
    done: dict[Any, Any] = {}
    for node in solution_order(root):
        built = like(node, [done[each] for each in node.src])
        while (answer := change(built)) is not None:
            built = answer
        done[node] = built
    return done[root]


def top_only(root: Any, change: Any, like: Any) -> Any:
    while (answer := change(root)) is not None:
        root = answer
    return root


def from_above(root: Any, change: Any, like: Any) -> Any:
    while (answer := change(root)) is not None:
        root = answer
    return like(root, [from_above(each, change, like) for each in root.src])


def asks_the_old(root: Any, change: Any, like: Any) -> Any:
    """The rules are asked about the node as it was, with its old sources."""
    return solution.rewrite(root, lambda node: change(node) if node in old else None, like) \
        if (old := set(solution_order(root))) else root


def asks_once(root: Any, change: Any, like: Any) -> Any:
    """What has been asked about is not asked again, also if the answer was another node."""
    asked: set[Any] = set()

    def first(node: Any) -> Any:
        if node.op in asked:
            return None
        answer = change(node)
        if answer is not None:
            asked.add(node.op)
        return answer
    return solution.rewrite(root, first, like)


def solution_order(root: Any) -> Any:
    found: dict[Any, None] = {}
    stack = [root]
    while stack:
        waiting = [each for each in stack[-1].src if each not in found]
        stack += waiting
        if not waiting:
            found.setdefault(stack.pop())
    return found


SOURCES, VISITS, DEPTH = "rewrite.match.sources", "rewrite.order.visits", "rewrite.depth.iterative"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"match": without_names}, f"{SOURCES}: you say that it fits with x = a; it fits nowhere"),
    ({"match": greedy}, f"{SOURCES}: "),
    ({"match": in_order_only}, f"{SOURCES}: the pattern fits with n = 1, x = a, and you find"),
    ({"match": one_way}, "the pattern fits with x = b, y = a, and you find x = a, y = b"),
    ({"match": one_way_for_each_order}, "fits with x = b, y = a, and you find x = a, y = b\n\n"
                                        "    pattern neg(add(x, y)"),
    ({"match": leaves_named_only}, f"{SOURCES}: you say that it fits with x = a; it fits with "
                                   "x = a, y = exp(a)"),
    ({"match": turned_first}, f"{SOURCES}: the first way has to be the one that leaves"),
    ({"match": any_number}, "it fits nowhere\n\n    pattern sub(x, y)"),
    ({"match": lambda pattern, node: [{}] if pattern.fits(node) else []}, f"{SOURCES}: you say"),
    ({"match": lambda pattern, node: None}, "raised: match answers None, and not a list of dicts"),
    ({"rewrite": calls_itself}, f"{DEPTH}: your code raised RecursionError"),
    ({"rewrite": forgets}, f"{VISITS}: you have asked the rules "),
    ({"rewrite": once}, f"{VISITS}: you answer add(a, mul(b, -1)), and add(a, neg(b)) is left"),
    ({"rewrite": until_none}, "a rule applies to mul(b, -1)"),
    ({"rewrite": asks_the_old}, f"{VISITS}: you answer "),
    ({"rewrite": asks_once}, f"{VISITS}: you answer "),
    ({"rewrite": top_only}, f"{VISITS}: you look at add(a, 0) before its source a"),
    ({"rewrite": from_above}, f"{VISITS}: you "),
    ({"rewrite": lambda root, change, like: root}, "you answer add(a, 0), and a is left: a rule"),
    ({"rewrite": lambda root, change, like: None}, "raised: rewrite answers None, and not a node"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in "\n".join(map(str, rewriting(module_of(**parts))))


def test_the_runtime_rewrites_as_the_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from impl.dtypes import dtypes
    from impl.ir import Ops, UOp
    from impl.rewrite import PatternMatcher, UPat, matcher

    asked: list[str] = []

    def match(pattern: Any, node: Any) -> Any:
        asked.append(node.op.name)
        return solution.match(pattern, node)

    monkeypatch.setattr(matcher._Functions, "__missing__", matcher._Functions.__missing__)
    module = lesson_rewrite.published(walk)
    vars(module).update(match=match, rewrite=solution.rewrite)
    lesson_rewrite.install(module)
    x, zero = UOp(Ops.IOTA, dtypes.int32, (), 4), UOp.const(dtypes.int32, 0)
    rules = PatternMatcher([(UPat.alu(Ops.ADD, UPat.var("x"), UPat.const(0)), lambda x: x),
                            (UPat.either(UPat(Ops.NEG, name="n")), lambda n: n.src[0])])
    graph = UOp(Ops.NEG, dtypes.int32, (UOp(Ops.ADD, dtypes.int32, (zero, x)),))
    assert vars(module)["graph_rewrite"](graph, rules) is x and "ADD" in asked


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "rewrite.md").read_text(encoding="utf-8")
    module = lesson_rewrite.published(walk)
    vars(module).update(rewrite=solution.rewrite)
    assert all(line in page for line in lesson_rewrite.score(module))
    assert len(LESSONS["rewrite"].hints) == 7 and "the next of seven hints" in page
