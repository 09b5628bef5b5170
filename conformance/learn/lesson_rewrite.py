"""The lesson on rewriting: where does a pattern fit, and what is left when no rule fits any more?

The reader's `match` is compared with all orders of all sources, tried one by one. The reader's
`rewrite` gets rules that are Python functions here, and the rules of the runtime there.

    rewrite.match.sources: the pattern fits with x = b, y = a, z = c, and you find nothing

        pattern add(mul(x, y), mul(x, z)), in any order
        node add(mul(a, b), mul(b, c))
"""
from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, published, raised

SOURCES, VISITS, DEPTH = "rewrite.match.sources", "rewrite.order.visits", "rewrite.depth.iterative"
DEEP = 2_000  # nodes in a row: more than Python's functions may call each other


class Node:
    """A node, made by `made`: the same parts give the same object."""

    def __init__(self, op: str, src: tuple[Node, ...], arg: Any) -> None:
        self.op, self.src, self.arg = op, src, arg

    def __repr__(self) -> str:
        if self.op in ("leaf", "const"):
            return str(self.arg)
        return f"{self.op}({', '.join(map(repr, self.src))})"


_table: dict[tuple[Any, ...], Node] = {}


def made(op: str, *src: Node, arg: Any = None) -> Node:
    """The node with these parts."""
    return _table.setdefault((op, src, arg), Node(op, src, arg))


def like(node: Node, src: Sequence[Node]) -> Node:
    """A node like another one, with other sources."""
    return made(node.op, *src, arg=node.arg)


class Pattern(NamedTuple):
    """What a node has to look like."""

    fits: Callable[[Any], bool]  # of the node alone, without its sources
    src: tuple[Any, ...] | None  # a pattern for each source; None: any sources
    name: str | None
    any_order: bool
    text: str

    def __repr__(self) -> str:
        return self.text


def _any(name: str) -> Pattern:
    return Pattern(lambda node: True, None, name, False, name)


def _op(op: str, *src: Pattern, name: str | None = None, turned: bool = False,
        sources: bool = True) -> Pattern:
    return Pattern(lambda node: bool(node.op == op), src if sources else None, name, turned,
                   f"{op}({', '.join(map(repr, src))})" if sources else op)


# Where a pattern fits ----------------------------------------------------------------------

A, B, C = (made("leaf", arg=name) for name in "abc")
ZERO, ONE, TWO = (made("const", arg=number) for number in range(3))
X, Y, Z = map(_any, "xyz")
NUMBER = _op("const", name="n", sources=False)
MATCHES: tuple[tuple[Pattern, Node], ...] = (
    (X, A), (_op("neg", X), made("neg", A)), (_op("neg", X), made("exp", A)),
    (_op("neg", X), A), (_op("sub", X, Y), made("sub", A, B)), (_op("sub", X, Y), made("sub", A)),
    (_op("add", X), made("add", A, B)), (_op("sub", sources=False, name="x"), made("sub", A, B)),
    (_op("leaf"), made("neg", A)), (_op("neg"), made("neg", A)),
    (_op("sub", X, X), made("sub", A, A)), (_op("sub", X, X), made("sub", A, B)),
    (_op("sub", X, NUMBER), made("sub", A, ONE)), (_op("sub", X, NUMBER), made("sub", ONE, A)),
    (_op("add", X, NUMBER, turned=True), made("add", A, ONE)),
    (_op("add", X, NUMBER, turned=True), made("add", ONE, A)),
    (_op("add", X, NUMBER, turned=True), made("add", A, B)),
    (_op("add", X, Y, turned=True), made("add", A, B)),
    (_op("add", X, X, turned=True), made("add", A, B)),
    (_op("neg", _op("exp", X, name="y")), made("neg", made("exp", A))),
    (_op("neg", _op("add", X, Y, turned=True)), made("neg", made("add", A, B))),
    (_op("sub", _op("neg", X), X), made("sub", made("neg", A), A)),
    (_op("sub", _op("neg", X), X), made("sub", made("neg", A), B)),
    (_op("add", _op("neg", X), X, turned=True), made("add", A, made("neg", A))),
    (_op("sub", _op("mul", X, Y, turned=True), X), made("sub", made("mul", A, B), B)),
    (_op("sub", X, _op("mul", X, Y, turned=True)), made("sub", B, made("mul", A, B))),
    (_op("add", _op("mul", X, Y, turned=True), _op("mul", X, Z, turned=True), turned=True),
     made("add", made("mul", A, B), made("mul", B, C))),
    (_op("add", _op("mul", X, Y, turned=True), _op("mul", X, Z, turned=True), turned=True),
     made("add", made("mul", A, B), made("mul", C, A))),
    (_op("where", X, Y, NUMBER, turned=True), made("where", ONE, A, B)))

Binding = dict[str, Any]


def bindings(pattern: Any, node: Any) -> list[Binding]:
    """By definition: all ways, those that leave the sources as they stand first."""
    if not pattern.fits(node):
        return []
    own = {pattern.name: node} if pattern.name is not None else {}
    if pattern.src is None:
        return [own]
    if len(pattern.src) != len(node.src):
        return []
    orders: Any = itertools.permutations(node.src) if pattern.any_order else [node.src]
    found = []
    for order in orders:
        for parts in itertools.product(*(bindings(one, source) for one, source in
                                         zip(pattern.src, order, strict=True))):
            joined = joined_bindings([own, *parts])
            if joined is not None and joined not in found:
                found.append(joined)
    return found


def joined_bindings(parts: Sequence[Binding]) -> Binding | None:
    """All of them, if each name is one node."""
    found: Binding = {}
    for part in parts:
        if any(found.setdefault(name, node) is not node for name, node in part.items()):
            return None
    return found


def _matched(module: ModuleType, pattern: Pattern, node: Node) -> Counterexample | None:
    picture = f"pattern {pattern}" + ", in any order" * pattern.any_order + f"\nnode {node}"
    try:
        answer = module.match(pattern, node)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, picture)
    if not isinstance(answer, list) or not all(isinstance(each, dict) for each in answer):
        return Counterexample("raised", f"match answers {answer!r:.60}, and not a list of dicts",
                              picture)
    wanted = bindings(pattern, node)
    for each in answer:
        if each not in wanted:
            return Counterexample(SOURCES, f"you say that it fits with {_told(each)}; it fits "
                                  + ("nowhere" if not wanted else f"with {_told(wanted[0])}"),
                                  picture)
    for each in wanted:
        if each not in answer:
            return Counterexample(SOURCES, f"the pattern fits with {_told(each)}, and you find "
                                  + (_told(answer[0]) if answer else "nothing"), picture)
    if wanted and answer[0] != wanted[0] and _told(wanted[0]) and pattern.src is not None and \
            all(not isinstance(each.src, tuple) for each in pattern.src):
        return Counterexample(SOURCES, f"the first way has to be the one that leaves the sources "
                              f"as they stand: {_told(wanted[0])}", picture)
    return None


def _told(binding: Binding) -> str:
    return ", ".join(f"{name} = {node}" for name, node in sorted(binding.items())) or "no name"


# What is left ------------------------------------------------------------------------------

Change = Callable[[Any], Any]


class Endless(RuntimeError):
    """The rules are asked again and again."""


def _minus(node: Node) -> Node | None:
    """x - y is x + y * -1."""
    if node.op == "sub":
        return made("add", node.src[0], made("mul", node.src[1], made("const", arg=-1)))
    return None


def _simpler(node: Node) -> Node | None:
    op, src = node.op, node.src
    if op == "add" and src[1] is ZERO or op == "mul" and src[1] is ONE:
        return src[0]
    if op == "mul" and src[1] is ZERO:
        return ZERO
    if op == "mul" and src[1].op == "const" and src[1].arg == -1:
        return made("neg", src[0])
    if op == "neg" and src[0].op == "neg":
        return src[0].src[0]
    if op == "add" and all(each.op == "const" for each in src):
        return made("const", arg=src[0].arg + src[1].arg)
    return None


def changed(node: Node) -> Node | None:
    """The first rule that applies."""
    return _simpler(node) or _minus(node)


def _row(op: str, count: int, start: Node) -> Node:
    for _ in range(count):
        start = made(op, start)
    return start


def _ladder() -> Node:
    node = made("add", A, ZERO)
    for _ in range(40):
        node = made("mul", node, node)
    return node


GRAPHS: tuple[Node, ...] = (
    A, made("add", A, ZERO), made("neg", made("add", A, ZERO)), made("add", A, B),
    made("mul", made("add", A, ZERO), ONE), made("neg", made("neg", made("neg", A))),
    made("mul", made("add", A, B), made("add", ZERO, ZERO)),
    made("add", made("add", ONE, ONE), made("add", ONE, TWO)),
    made("sub", A, B), made("sub", A, made("neg", B)), made("sub", made("sub", A, B), ZERO),
    made("exp", made("mul", made("add", A, ZERO), made("add", A, ZERO))),
    made("mul", made("exp", A), made("mul", B, ZERO)), _ladder(),
    made("add", _row("neg", DEEP, made("add", A, ZERO)), ZERO))


def finished(root: Node) -> Node:
    """By definition: until no rule applies to any node. All results are kept, none is recursive."""
    done: dict[Node, Node] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [each for each in node.src if each not in done]
        if waiting:
            stack += waiting
            continue
        built = like(node, [done[each] for each in node.src])
        answer = changed(built)
        if answer is None or answer in done:
            done[stack.pop()] = built if answer is None else done[answer]
        else:
            stack.append(answer)
    return done[root]


def _rewritten(module: ModuleType, root: Node) -> Counterexample | None:
    below = _below(root)
    small = len(below) < 20
    picture = repr(root) if small else f"a graph of {len(below)} nodes"
    looked: list[Node] = []

    def change(node: Node) -> Node | None:
        looked.append(node)
        if len(looked) > 20 * len(below) + 100:
            raise Endless(f"you have asked the rules {len(looked)} times in a graph of "
                          f"{len(below)} nodes: what is finished is not looked at again")
        return changed(node)

    try:
        answer = module.rewrite(root, change, like)
    except Endless as error:
        return Counterexample(VISITS, str(error), picture)
    except RecursionError as error:
        return Counterexample(DEPTH, f"your code raised RecursionError: {error}", picture)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, picture)
    if not isinstance(answer, Node):
        return Counterexample("raised", f"rewrite answers {answer!r:.60}, and not a node", picture)
    if answer is not finished(root):
        left = [node for node in _below(answer) if changed(node) is not None]
        said = f": a rule applies to {left[0]!r:.60}" if left else ""
        return Counterexample(VISITS, f"you answer {answer!r}, and {finished(root)!r} is left{said}"
                              if small else f"your answer is not finished{said}", picture)
    places = {node: place for place, node in enumerate(dict.fromkeys(looked))}
    for node in below:
        early = [each for each in node.src if places.get(each, 0) > places.get(node, len(places))]
        if early:
            return Counterexample(VISITS, f"you look at {node} before its source {early[0]}",
                                  picture)
    return None


def _below(root: Node) -> list[Node]:
    found = {root: None}
    waiting = [root]
    for node in waiting:
        for source in node.src:
            if source not in found:
                found[source] = None
                waiting.append(source)
    return waiting


def rewriting(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on rewriting."""
    for pattern, node in MATCHES:
        found = _matched(module, pattern, node)
        if found is not None:
            yield found
            if found.rule == "raised":
                return
            break
    for root in GRAPHS:
        found = _rewritten(module, root)
        if found is not None:
            yield found
            return


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime find its rules and rewrite its graphs as the reader does."""
    known: Any = module
    matcher: Any = importlib.import_module("impl.rewrite.matcher")
    compiled = matcher._Functions.__missing__

    def missing(functions: Any, op: Any) -> Any:
        rules = functions.matcher.of(op)
        patterns = [pattern_of(rule.pattern) for rule in rules]
        if not rules or None in patterns:
            return compiled(functions, op)
        accepts = functions.matcher.accepts

        def find(node: Any, ctx: Any = None) -> Any:
            for rule, pattern in zip(rules, patterns, strict=True):
                for binding in known.match(pattern, node):
                    given = [ctx if name == "ctx" else binding[name] for name in rule.parameters]
                    answer = rule.function(*given)
                    if answer is not None and answer is not node and (
                            accepts is None or accepts(node, answer)):
                        return answer, rule
            return None

        functions[op] = find
        return find

    matcher._Functions.__missing__ = missing
    known.graph_rewrite = by_the_reader(module)


def by_the_reader(module: ModuleType) -> Callable[..., Any]:
    """The walk of the runtime, with the reader's `rewrite` in it."""
    known: Any = module
    ours = known.graph_rewrite

    def graph_rewrite(root: Any, rules: Any, ctx: Any = None, order: str = "bottom-up",
                      gate: Any = None, limit: int = known.REWRITE_LIMIT,
                      name: str = "graph_rewrite") -> Any:
        if order != "bottom-up" or gate is not None or limit != known.REWRITE_LIMIT:
            return ours(root, rules, ctx, order, gate, limit, name)
        look = known.looker(rules, ctx, name)

        def change(node: Any) -> Any:
            found = look(node)
            return None if found is None else known._inherit(found[0], node)

        return known.rewrite(root, change, lambda node, sources: known._inherit(
            node.replace(src=tuple(sources)), node))

    return graph_rewrite


def pattern_of(pattern: Any) -> Pattern | None:
    """A pattern of the runtime as the reader knows them; None if it says more than they can."""
    if pattern.choices or pattern.allow_any_len or not isinstance(
            pattern.src, (tuple, list, type(None))):
        return None
    sources = None if pattern.src is None else tuple(map(pattern_of, pattern.src))
    if sources is not None and None in sources:
        return None

    def fits(node: Any) -> bool:
        return ((pattern.ops is None or node.op in pattern.ops)
                and (pattern.dtypes is None or node.dtype in pattern.dtypes)
                and (pattern.arg is None or node.arg == pattern.arg)
                and pattern.custom_early_reject <= {source.op for source in node.src}
                and (pattern.where is None or bool(pattern.where(node))))

    return Pattern(fits, sources, pattern.name, isinstance(pattern.src, list), "a pattern")


def asked(graph_rewrite: Callable[..., Any]) -> tuple[int, int]:
    """How many nodes a graph has, and how often the rules are asked about them."""
    from impl.dtypes import dtypes
    from impl.ir import Ops, UOp
    from impl.rewrite import PatternMatcher, UPat

    count = [0]

    def change(node: UOp) -> UOp | None:
        count[0] += 1
        if node.op is Ops.ADD and node.src[1].op is Ops.CONST:
            return node.src[0]
        if node.op is Ops.SUB:
            return UOp(Ops.ADD, node.dtype, (node.src[0], UOp(Ops.NEG, node.dtype, node.src[1:])))
        return None

    node, zero = UOp(Ops.IOTA, dtypes.int32, (), 4), UOp.const(dtypes.int32, 0)
    for _ in range(50):
        node = UOp(Ops.SUB, dtypes.int32, (UOp(Ops.ADD, dtypes.int32, (node, zero)), node))
    graph_rewrite(node, PatternMatcher([(UPat(name="node"), change)]))
    return len(node.toposort()), count[0]


def score(module: ModuleType) -> Iterator[str]:
    """How often the rules are asked, by the reader's walk and by ours."""
    ours: Any = published(module)
    nodes, mine = asked(by_the_reader(module))
    yield (f"in a graph of {nodes} nodes you ask the rules {mine} times, "
           f"we {asked(ours.graph_rewrite)[1]} times")


REWRITE = Lesson(
    number=3, functions=("match", "rewrite"),
    names="""\
A pattern says what a node has to look like:
    pattern.fits(node)      whether the node alone does: its operation, its argument
    pattern.src             a tuple of patterns, one for each source; None if any sources will do
    pattern.any_order       whether the sources may stand in any order
    pattern.name            the name under which the node is found, or None
A node has node.op, node.src (a tuple) and node.arg. Nodes with the same parts are one object.
`change(node)` answers what the first rule that applies makes of a node, or None; `like(node,
sources)` is a node like it with other sources.""",
    heads='''\
def match(pattern, node):
    """All ways in which the pattern fits, as a list of dicts from names to nodes.

    A name that is used twice has to be the same node. The way that leaves the sources as they
    stand comes first. If it does not fit, the list is empty.
    """
    raise NotImplementedError


def rewrite(root, change, like):
    """The graph below `root`, rewritten until no rule applies to any node.

    A node is looked at when its sources are finished. What a rule answers is rewritten in turn.
    """
    raise NotImplementedError
''',
    rules=(SOURCES, VISITS, DEPTH),
    hints=(
        "match: ask `fits` first, then compare the numbers of sources. Without names and orders "
        "you are nearly done: each source has to fit its own pattern.",
        "Let each call answer a list of dicts, one for each way. A node with two sources fits in "
        "all pairs of a way of the first and a way of the second: itertools.product.",
        "Two dicts can be joined if no name stands for two nodes. Never change a dict in place: a "
        "way that fails would leave its names behind.",
        "Any order: do the same for each of itertools.permutations(node.src).",
        "rewrite: begin with a function that calls itself. Rewrite the sources, make the node anew "
        "with them, ask `change`; if that answers something, rewrite the answer in the same way.",
        "Keep a dict from each node to what became of it. Without it a graph in which all is used "
        "twice has no end.",
        "Then use a stack of your own. Look at the top: if sources of it are not in the dict, push "
        "them. If all are, make the node anew and ask. If the answer is not in the dict, push the "
        "answer, and leave the node where it is: it comes to the top again."),
    counterexamples=rewriting, module="rewrite.walk", chapters=("rewrite",), install=install,
    score=score)
