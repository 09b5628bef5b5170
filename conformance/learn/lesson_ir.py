"""The lesson on lazy values: walks through a graph of nodes, and when two nodes are one.

The reader's functions are asked with small graphs first. Nodes count how often somebody asks for
their sources, so that a walk which goes every way through a graph is found before it ends.

    ir.walk.whole: mul stands before its source a

        a: leaf
        mul: a, a
        you walk: mul, a
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, published, raised

WALK, IDENTITY, SAME = "ir.walk.whole", "ir.identity.one", "ir.node.immutable"
DEEP = 2_000  # nodes in a row: more than Python's functions may call each other


class Asked(RuntimeError):
    """Somebody asks for sources again and again."""


class Counter:
    """How often the sources of some nodes were asked for, and how often they may be."""

    def __init__(self, given: int = 0) -> None:
        self.given, self.asked, self.nodes = given, 0, 0

    def ask(self) -> None:
        self.asked += 1
        if self.asked > 20 * self.given + 100:
            raise Asked(f"you have asked for the sources of {self.given} nodes {self.asked} "
                        "times: what is reached in two ways is to be visited once")


class Node:
    """A node as the reader sees it: an operation, sources, an argument."""

    def __init__(self, name: str, op: str, src: tuple[Node, ...], arg: Any, counter: Counter,
                 turned: bool = False) -> None:
        self.name, self.op, self._src, self.arg = name, op, src, arg
        self.counter, self.turned = counter, turned
        counter.nodes += 1
        self.number = counter.nodes

    @property
    def src(self) -> tuple[Node, ...]:
        self.counter.ask()
        return self._src

    def __hash__(self) -> int:
        return -self.number if self.turned else self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"a node {self.op}"

    def replace(self, src: Sequence[Node]) -> Node:
        """A node like this one, with other sources."""
        return Node(f"new {self.name.removeprefix('new ')}", self.op, tuple(src), self.arg,
                    self.counter, self.turned)


#: A name, an operation, the names of its sources.
Row = tuple[str, str, str]


class Problem(NamedTuple):
    """A graph, where a walk begins, below which nodes it does not go, and what is replaced."""

    rows: tuple[Row, ...]
    roots: tuple[str, ...]
    closed: tuple[str, ...] = ()
    replaced: tuple[tuple[str, str], ...] = ()

    def nodes(self, turned: bool = False) -> dict[str, Node]:
        counter, found = Counter(len(self.rows)), dict[str, Node]()
        for name, op, sources in self.rows:
            found[name] = Node(name, op, tuple(found[each] for each in sources.split()), None,
                               counter, turned)
        return found

    @property
    def picture(self) -> str:
        if len(self.rows) > 12:
            return f"{len(self.rows)} nodes, each made of the one before it"
        lines = [f"{name}: {', '.join(sources.split()) or 'leaf'}"
                 for name, _, sources in self.rows]
        lines += [f"nothing below {', '.join(self.closed)} is visited"] * bool(self.closed)
        return "\n".join(lines)


def _row(name: str, sources: str = "") -> Row:
    return name, name.rstrip("0123456789"), sources


A, B = _row("a"), _row("b")
CHAIN = (A, *(_row(f"neg{at}", f"neg{at - 1}" if at else "a") for at in range(DEEP)))
LADDER = (A, *(_row(f"add{at}", f"add{at - 1} add{at - 1}" if at else "a a") for at in range(60)))
WALKS = (
    Problem((A,), ("a",)), Problem((A, _row("neg", "a")), ("neg",)),
    Problem((A, _row("mul", "a a")), ("mul",)), Problem((A, B, _row("add", "a b")), ("add",)),
    Problem((A, B), ("a", "b")), Problem((A, B), ("a", "a")),
    Problem((A, _row("neg", "a")), ("a", "neg")), Problem((A, _row("neg", "a")), ("neg", "a")),
    Problem((A, B, _row("add", "a b"), _row("neg", "a"), _row("mul", "neg add")), ("mul",)),
    Problem((A, _row("neg", "a"), _row("exp", "neg"), _row("add", "neg exp")), ("add",)),
    Problem((A, _row("exp", "a"), _row("add", "a exp")), ("add",)),
    Problem((A, _row("neg", "a")), ("neg",), ("neg",)),
    Problem((A, _row("neg", "a"), _row("exp", "neg")), ("exp",), ("neg",)),
    Problem((A, B, _row("neg", "a"), _row("add", "neg b"), _row("mul", "add a")), ("mul",),
            ("add",)),
    Problem((A, B, _row("neg", "a"), _row("exp", "neg"), _row("add", "exp b"),
             _row("mul", "add neg")), ("mul",), ("exp",)),
    Problem(LADDER, (LADDER[-1][0],)), Problem(CHAIN, (CHAIN[-1][0],)))
REPLACED = (
    Problem((A, B), ("a",), replaced=(("a", "b"),)),
    Problem((A, B, _row("neg", "a")), ("neg",), replaced=(("a", "b"),)),
    Problem((A, B, _row("sub", "a b")), ("sub",), replaced=(("b", "a"),)),
    Problem((A, B, _row("sub", "a b")), ("sub",), replaced=(("a", "b"), ("b", "a"))),
    Problem((A, B, _row("neg", "b")), ("neg",), replaced=(("a", "b"),)),
    Problem((A, B, _row("neg", "a"), _row("exp", "b"), _row("add", "neg exp")), ("add",),
            replaced=(("a", "b"),)),
    Problem((A, B, _row("neg", "a"), _row("mul", "neg neg")), ("mul",), replaced=(("a", "b"),)),
    Problem((A, B, _row("neg", "a"), _row("exp", "neg"), _row("mul", "exp neg")), ("mul",),
            replaced=(("a", "b"),)),
    Problem((A, _row("neg", "a"), _row("exp", "a")), ("exp",), replaced=(("a", "neg"),)),
    Problem((A, B, _row("neg", "a"), _row("exp", "neg")), ("exp",),
            replaced=(("neg", "b"), ("a", "b"))),
    Problem((A, B, _row("c")), ("a",), replaced=(("a", "b"), ("b", "c"))),
    Problem((A, B, _row("neg", "a"), _row("exp", "neg"), _row("add", "exp b")), ("add",),
            replaced=(("exp", "b"), ("a", "b"))),
    Problem((*LADDER, B), (LADDER[-1][0],), replaced=(("a", "b"),)),
    Problem((*CHAIN, B), (CHAIN[-1][0],), replaced=(("a", "b"),)))


# What is said of walks ---------------------------------------------------------------------


def lazy(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on lazy values."""
    met: set[str] = set()
    judges: Any = ((_walked, WALKS), (_replaced, REPLACED), (_named, PAIRS))
    for judge, problems in judges:
        for problem in problems:
            found = judge(module, problem)
            if found and found.rule not in met:
                met.add(found.rule)
                yield found
            if found and found.rule == "raised":
                return


def _walked(module: ModuleType, problem: Problem) -> Counterexample | None:
    answers = []
    for turned in (False, True):
        nodes = problem.nodes(turned)
        closed = {nodes[name] for name in problem.closed}
        try:
            answer = module.walk([nodes[name] for name in problem.roots],
                                 lambda node, closed=closed: node not in closed)
        except Asked as error:
            return Counterexample(WALK, str(error), problem.picture)
        except Exception as error:  # any: it is the reader's own code
            return raised(error, problem.picture)
        unlike = _unlike(answer, nodes)
        if unlike:
            return Counterexample("raised", unlike, problem.picture)
        wrong = _misordered(problem, nodes, answer)
        if wrong:
            return Counterexample(WALK, wrong, _shown(problem, answer))
        answers.append([node.name for node in answer])
    if answers[0] != answers[1]:
        return Counterexample(WALK, f"you walk {', '.join(answers[0])} in one process and "
                              f"{', '.join(answers[1])} in another: the order of a set depends on "
                              "where its members lie in memory", problem.picture)
    return None


def _shown(problem: Problem, answer: Sequence[Node]) -> str:
    if len(answer) > 12:
        return problem.picture
    return f"{problem.picture}\nyou walk: {', '.join(node.name for node in answer)}"


def _unlike(answer: Any, nodes: dict[str, Node]) -> str:
    """What keeps an answer from being a walk at all, or ""."""
    if not isinstance(answer, list):
        return f"walk answers {answer!r:.60}, and not a list of nodes"
    known = set(nodes.values())
    wrong = [each for each in answer if not isinstance(each, Node) or each not in known]
    return f"{wrong[0]!r:.60} in your list is no node of the graph" if wrong else ""


def reached(problem: Problem, nodes: dict[str, Node]) -> dict[Node, None]:
    """By definition: all that one comes to from the roots."""
    found = dict.fromkeys(nodes[name] for name in problem.roots)
    closed = {nodes[name] for name in problem.closed}
    waiting = list(found)
    for node in waiting:
        for source in () if node in closed else node._src:
            if source not in found:
                found[source] = None
                waiting.append(source)
    return found


def _misordered(problem: Problem, nodes: dict[str, Node], answer: list[Node]) -> str:
    wanted, seen = reached(problem, nodes), set[Node]()
    closed = {nodes[name] for name in problem.closed}
    for node in answer:
        if node in seen:
            return f"{node.name} stands in your list twice"
        if node not in wanted:
            return f"{node.name} stands in your list, and nobody comes to it"
        for source in () if node in closed else node._src:
            if source not in seen:
                return f"{node.name} stands before its source {source.name}"
        seen.add(node)
    missing = [node for node in wanted if node not in seen]
    return f"{missing[0].name} is missing" if missing else ""


# What is said of replacements --------------------------------------------------------------


def _replaced(module: ModuleType, problem: Problem) -> Counterexample | None:
    nodes = problem.nodes()
    root, count = nodes[problem.roots[0]], len(nodes)
    new = {nodes[old]: nodes[name] for old, name in problem.replaced}
    picture = "\n".join([problem.picture, *(f"{old} is replaced by {name}"
                                            for old, name in problem.replaced)])
    try:
        answer = module.replaced(root, dict(new))
    except Asked as error:
        return Counterexample(WALK, f"in `replaced` {error}", picture)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, picture)
    if not isinstance(answer, Node):
        return Counterexample("raised", f"replaced answers {answer!r:.60}, and not a node", picture)
    made, forms = root.counter.nodes - count, Forms()
    touched, wanted = forms.after(root, new)
    if forms.of(answer) != wanted:
        said = "another graph" if len(nodes) > 12 else forms.text(forms.of(answer))
        return Counterexample(SAME, f"you answer {said}; it is {forms.text(wanted)}"
                              if len(nodes) <= 12 else f"you answer {said}", picture)
    if made > touched:
        return Counterexample(SAME, f"you make new nodes, {made} in all, where {touched} would do: "
                              "what has nothing replaced below it stays the same object, and what "
                              "is reached in two ways is made once", picture)
    return None


class Forms:
    """What graphs are, however they share their nodes: a number for each form."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, ...], int] = {}

    def number(self, node: Node, sources: Sequence[int]) -> int:
        key = (node.op, *sources) if sources else (node.name.removeprefix("new "),)
        return self.numbers.setdefault(key, len(self.numbers))

    def of(self, root: Node) -> int:
        return self.after(root, {})[1]

    def after(self, root: Node, new: dict[Node, Node]) -> tuple[int, int]:
        """How many nodes have to be made, and the form of the graph with nodes replaced."""
        known: dict[tuple[Node, bool], int] = {}
        changed: set[Node] = set()
        stack = [(root, True)]
        while stack:
            node, inside = key = stack[-1]
            below = [(new[node], False)] if inside and node in new else [
                (source, inside) for source in node._src]
            waiting = [each for each in below if each not in known]
            stack += waiting
            if waiting:
                continue
            stack.pop()
            if inside and any(source in new or source in changed for source in node._src):
                changed.add(node)
            known[key] = known[below[0]] if inside and node in new else \
                self.number(node, [known[each] for each in below])
        return len(changed - set(new)), known[root, True]

    def text(self, form: int) -> str:
        """A form as one writes it; for small ones."""
        key = next(key for key, number in self.numbers.items() if number == form)
        sources = ", ".join(self.text(each) for each in key[1:])
        return f"{key[0]}({sources})" if sources else str(key[0])


# What is said of names ---------------------------------------------------------------------

_LEAF, _TWIN = (Node(name, "leaf", (), None, Counter()) for name in "ab")
Parts = tuple[str, tuple[Node, ...], Any]
#: The parts of two nodes, whether they are one, and what to say where the answer is wrong.
PAIRS: tuple[tuple[Parts, Parts, bool, str], ...] = (
    (("add", (_LEAF, _TWIN), None), ("add", (_LEAF, _TWIN), None), True, "a + b and a + b"),
    (("add", (_LEAF, _TWIN), None), ("mul", (_LEAF, _TWIN), None), False, "a + b and a * b"),
    (("sub", (_LEAF, _TWIN), None), ("sub", (_TWIN, _LEAF), None), False, "a - b and b - a"),
    (("add", (_LEAF, _TWIN), None), ("add", (_LEAF, _LEAF), None), False, "a + b and a + a"),
    (("neg", (_LEAF,), None), ("neg", (_TWIN,), None), False, "-a and -b"),
    (("neg", (_LEAF,), None), ("add", (_LEAF, _LEAF), None), False, "-a and a + a"),
    (("sum", (_LEAF,), (0,)), ("sum", (_LEAF,), (1,)), False, "a.sum(0) and a.sum(1)"),
    (("sum", (_LEAF,), (0,)), ("sum", (_LEAF,), (0,)), True, "a.sum(0) and a.sum(0)"),
    (("const", (), 2.0), ("const", (), 3.0), False, "2.0 and 3.0"),
    (("const", (), 2.5), ("const", (), 2.5), True, "2.5 and 2.5"),
    (("const", (), 1), ("const", (), 1.0), False, "1 and 1.0"),
    (("const", (), 1), ("const", (), True), False, "1 and True"),
    (("const", (), 0.0), ("const", (), -0.0), False, "0.0 and -0.0"),
    (("const", (), float("nan")), ("const", (), float("nan")), True, "NaN and NaN"),
    (("const", (), 1e300), ("const", (), math.inf), False, "1e300 and infinity"),
    (("const", (), 1), ("const", (), "1"), False, "1 and the text '1'"),
    (("const", (), 0.1), ("const", (), 0.1 + 2 ** -56), False, "0.1 and the next number above it"))
WHY = {"1 and 1.0": "; Python finds them equal, and their types differ",
       "1 and True": "; Python finds them equal, and their types differ",
       "0.0 and -0.0": "; Python finds them equal, and 1 divided by them is inf and -inf",
       "NaN and NaN": "; Python finds NaN unequal to itself, so that each would be a new node"}


def _named(module: ModuleType, pair: tuple[Parts, Parts, bool, str]) -> Counterexample | None:
    one, other, same, said = pair
    picture = "\n".join(f"key({op!r}, {tuple(node.name for node in src)}, {arg!r})"
                        for op, src, arg in (one, other))
    try:
        table = {module.key(*one): 1}
        found = module.key(*other) in table
    except Exception as error:  # any: it is the reader's own code
        return raised(error, picture)
    if found == same:
        return None
    return Counterexample(IDENTITY, f"{said} are {'one node' if same else 'two nodes'}, and your "
                          f"keys are {'equal' if found else 'different'}{WHY.get(said, '')}",
                          picture)


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime walk, replace and name constants as the reader does."""
    known: Any = module
    ours, key, replaced = known.toposort, known.key, known.replaced

    def toposort(roots: Any, gate: Any = None, seen: Any = None) -> Any:
        if seen is not None:  # a walk in several pieces
            return ours(roots, gate, seen)
        return known.walk(list(roots), gate or (lambda node: True))

    def floating(dtype: Any, number: float, tag: Any) -> Any:
        parts = known.Ops.CONST, dtype, (), key("const", (), number), tag, "the reader's"
        reference = known._interned.get(parts)
        found = reference() if reference is not None else None
        return found if found is not None else known.intern(parts, number)

    known.toposort, known._floating = toposort, floating
    known.UOp.substitute = lambda self, replacements: replaced(self, replacements)


def asked(walk: Callable[..., Any]) -> int:
    """How often a walk asks for sources, in a graph of 240 nodes that are used twice and more."""
    rows = [A, *(_row(f"add{at}", f"add{at - 1} add{max(at - 7, 0)}" if at else "a a")
                 for at in range(239))]
    nodes = Problem(tuple(rows), ("add238",)).nodes()
    walk([nodes["add238"]], lambda node: True)
    return nodes["a"].counter.asked


def score(module: ModuleType) -> Iterator[str]:
    """How often sources are asked for."""
    ours = published(module).__dict__["toposort"]
    yield (f"in a walk through 240 nodes you ask for sources {asked(module.__dict__['walk'])} "
           f"times, we {asked(ours)} times; 240 is the least")


IR = Lesson(
    number=1, functions=("walk", "replaced", "key"), chapters=("ir",),
    names="""\
A node has
    node.op                 what it does: "add"
    node.src                the nodes that it is made of, a tuple; a leaf has none
    node.arg                what else it needs: the axes of a sum, the number of a constant
    node.replace(src=...)   a node like it with other sources
Nodes can be members of a set and keys of a dict. Nobody may change a node: others hold it.""",
    heads='''\
def walk(roots, gate):
    """A list of all nodes that one comes to from the roots, sources before users, each once.

    Below a node for which gate(node) is False nobody goes; the node itself is in the list.
    """
    raise NotImplementedError


def replaced(root, new):
    """The graph below `root`, with nodes replaced: `new` is a dict from nodes to nodes.

    What stands in the place of a node is taken as it is. What has nothing replaced below stays.
    """
    raise NotImplementedError


def key(op, src, arg):
    """What two nodes have in common if they are one: anything that can be the key of a dict."""
    raise NotImplementedError
''',
    rules=(WALK, SAME, IDENTITY),
    hints=(
        "Begin with a function that calls itself for each source, and then puts the node behind "
        "them. It is right for small graphs. What does it need to visit nothing twice?",
        "A set of the nodes that were seen answers in no time. Look there before you go on, and "
        "not only before you put a node into the list.",
        "Python's functions may call each other about a thousand times. So take a list as the "
        "stack: pop a node, and push what is still to do.",
        "A node has to be met twice: when it is opened (then its sources come on the stack), and "
        "when they are done (then it goes into the list). Push the pair (node, True) first, and "
        "the sources above it.",
        "replaced: walk, with a gate that is closed below what is replaced. Then the list says in "
        "which order new nodes can be made: sources first. A dict from each node to what became of "
        "it is all you need.",
        "If no source of a node has become another one, the node itself goes into the dict, and "
        "not a copy.",
        "key: (op, src, arg) is nearly right. What about 1, 1.0 and True? Put the type in. 0.0 and "
        "-0.0? NaN? repr() of a number tells all of them apart, and is the same for two NaNs."),
    counterexamples=lazy, module="ir", install=install, score=score)
