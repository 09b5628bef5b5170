"""The lesson on caching: the key under which the plan of a program is found again.

The reader's `key` gets two small programs at a time. They are the same but for their memory, and
then one plan serves both; or they differ, and a plan that both found would be wrong for one.

    caching.key.alias: both programs get one key, so the second would be run by the plan of the
    first

        one: buffer x, buffer y, add(0, 1)
        two: buffer x, add(0, 0)
"""
from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, first_of_each, published, raised

ALIAS, PROGRAM, HELD = "caching.key.alias", "caching.key.program", "caching.key.held"
RENAMING, STABLE, HIT = "caching.key.renaming", "caching.key.stable", "caching.hit.equal"


class Buffer:
    """Some memory. Its name is for people."""

    def __init__(self, name: str) -> None:
        self.name = name


class Node:
    """A node as the reader sees it."""

    def __init__(self, op: str, src: Sequence[Node] = (), arg: Any = None,
                 dtype: str = "float32", shape: tuple[int, ...] = (2, 2),
                 buffer: Any = None) -> None:
        self.op, self.src, self.arg, self.buffer = op, tuple(src), arg, buffer
        self.dtype, self.shape = dtype, shape


class Program(NamedTuple):
    """The nodes asked for, and the buffers that somebody can see after the run."""

    roots: tuple[Node, ...]
    held: tuple[Buffer, ...] = ()

    @property
    def nodes(self) -> list[Node]:
        """All nodes, from left to right, sources first."""
        found: dict[Node, None] = {}
        stack = [*reversed(self.roots)]
        while stack:
            waiting = [each for each in stack[-1].src if each not in found]
            stack += reversed(waiting)
            if not waiting:
                found.setdefault(stack.pop())
        return list(found)

    @property
    def buffers(self) -> list[Buffer]:
        """Each once, in the order of the nodes."""
        return list(dict.fromkeys(node.buffer for node in self.nodes if node.op == "buffer"))

    def __str__(self) -> str:
        place: dict[Node, int] = {}
        parts = []
        for node in self.nodes:
            place[node] = len(place)
            about = [str(place[each]) for each in node.src]
            about += [f"{node.arg!r}"] if node.arg is not None else []
            text = f"buffer {node.buffer.name}" if node.op == "buffer" else \
                f"{node.op}({', '.join(about)})"
            more = [node.dtype] if node.dtype != "float32" else []
            more += [f"{node.shape}"] if node.shape != (2, 2) else []
            parts.append(text + (f" {' '.join(more)}" if more else ""))
        lines = ", ".join(parts)
        if len(self.roots) > 1 or self.roots[0] is not self.nodes[-1]:
            lines += "; asked for: " + ", ".join(str(place[root]) for root in self.roots)
        return lines + ("; still seen: " + ", ".join(each.name for each in self.held)
                        if self.held else "")


# Programs ----------------------------------------------------------------------------------


def leaf(buffer: Buffer, dtype: str = "float32", shape: tuple[int, ...] = (2, 2)) -> Node:
    return Node("buffer", (), None, dtype, shape, buffer)


def number(value: Any, dtype: str = "float32") -> Node:
    return Node("number", (), value, dtype, ())


def op(name: str, *src: Node, arg: Any = None, shape: tuple[int, ...] = (2, 2),
       dtype: str = "float32") -> Node:
    return Node(name, src, arg, dtype, shape)


Make = Callable[[Buffer, Buffer], Program]


def of(make: Callable[[Node, Node], Node]) -> Make:
    """A program of one value, made of two leaves."""
    return lambda x, y: Program((make(leaf(x), leaf(y)),))


def _chain(x: Node, y: Node) -> Node:
    for _ in range(30):
        x = op("add", x, x)
    return x


def _both(x: Node, y: Node) -> Node:
    total = op("add", x, y)
    return op("mul", total, op("neg", total))


#: Programs, each of which is made twice with other buffers: one plan is enough.
SAME: tuple[Make, ...] = (
    of(lambda x, y: op("neg", x)), of(lambda x, y: op("add", x, y)),
    of(lambda x, y: op("add", x, x)), of(lambda x, y: op("sub", y, x)), of(_both),
    of(lambda x, y: op("mul", x, number(2.0))), of(lambda x, y: op("add", x, number(float("nan")))),
    of(lambda x, y: op("sum", op("sub", x, y), arg=(0,), shape=(2,))), of(_chain),
    lambda x, y: Program((op("neg", leaf(y)), op("exp", leaf(x)))),
    lambda x, y: Program((op("add", leaf(x), leaf(y)),), (y,)))


def _flat(x: Buffer, y: Buffer) -> Program:
    """Two nodes, of one buffer or of two."""
    return Program((op("add", op("reshape", leaf(x, shape=(4,)), arg=(2, 2)), leaf(y)),))


def _chained(x: Buffer, *asked: int) -> Program:
    one = op("neg", leaf(x))
    both = one, op("exp", one)
    return Program(tuple(both[place] for place in asked))


def _two(x: Buffer, y: Buffer, *order: int) -> Program:
    both = op("neg", leaf(x)), op("exp", leaf(x))
    return Program(tuple(both[place] for place in order))


#: Pairs of programs that differ, with the rule about it.
DIFFERENT: tuple[tuple[str, Make, Make], ...] = (
    (PROGRAM, of(lambda x, y: op("neg", x)), of(lambda x, y: op("exp", x))),
    (ALIAS, of(lambda x, y: op("add", x, y)), of(lambda x, y: op("add", x, x))),
    (ALIAS, _flat, lambda x, y: _flat(x, x)),
    (PROGRAM, of(lambda x, y: op("sub", op("neg", x), x)),
     of(lambda x, y: op("sub", x, op("neg", x)))),
    (PROGRAM, of(lambda x, y: op("mul", x, number(2.0))),
     of(lambda x, y: op("mul", x, number(3.0)))),
    (PROGRAM, of(lambda x, y: op("mul", x, number(0.0))),
     of(lambda x, y: op("mul", x, number(-0.0)))),
    (PROGRAM, of(lambda x, y: op("sum", x, arg=(0,), shape=(2,))),
     of(lambda x, y: op("sum", x, arg=(1,), shape=(2,)))),
    (PROGRAM, lambda x, y: Program((op("neg", leaf(x, shape=(4,)), shape=(4,)),)),
     lambda x, y: Program((op("neg", leaf(x, shape=(6,)), shape=(6,)),))),
    (PROGRAM, lambda x, y: Program((op("neg", leaf(x, "int32"), dtype="int32"),)),
     of(lambda x, y: op("neg", x))),
    (PROGRAM, of(lambda x, y: op("cast", x, dtype="int32")),
     of(lambda x, y: op("cast", x, dtype="int64"))),
    (PROGRAM, lambda x, y: Program((op("cast", leaf(x, "int32"), dtype="float64"),)),
     lambda x, y: Program((op("cast", leaf(x), dtype="float64"),))),
    (PROGRAM, lambda x, y: Program((op("sum", leaf(x, shape=(3, 2)), arg=(0,), shape=(2,)),)),
     lambda x, y: Program((op("sum", leaf(x, shape=(4, 2)), arg=(0,), shape=(2,)),))),
    (PROGRAM, of(lambda x, y: op("cast", number(0.1), dtype="float64", shape=())),
     of(lambda x, y: op("cast", number(0.1, "float64"), dtype="float64", shape=()))),
    (PROGRAM, of(lambda x, y: op("expand", number(2.0))),
     of(lambda x, y: op("expand", number(2.0), shape=(3, 2)))),
    (PROGRAM, of(lambda x, y: op("expand", number(1, "int32"), dtype="int32")),
     of(lambda x, y: op("expand", number(True, "bool"), dtype="bool"))),
    (ALIAS, of(lambda x, y: op("mul", op("add", x, y), x)),
     of(lambda x, y: op("mul", op("add", x, y), y))),
    (PROGRAM, of(lambda x, y: op("add", op("mul", x, y), x)),
     of(lambda x, y: op("mul", op("add", x, y), x))),
    (PROGRAM, of(lambda x, y: op("add", op("neg", x), op("exp", op("neg", x)))),
     of(lambda x, y: op("add", op("neg", x), op("exp", x)))),
    (PROGRAM, lambda x, y: _two(x, y, 0, 1), lambda x, y: _two(x, y, 1, 0)),
    (PROGRAM, lambda x, y: _two(x, y, 0), lambda x, y: _two(x, y, 0, 1)),
    (PROGRAM, lambda x, y: _chained(x, 1), lambda x, y: _chained(x, 0, 1)),
    (PROGRAM, lambda x, y: _chained(x, 0, 1), lambda x, y: _chained(x, 1, 0)),
    (HELD, lambda x, y: Program((op("add", leaf(x), leaf(y)),)),
     lambda x, y: Program((op("add", leaf(x), leaf(y)),), (x,))),
    (HELD, lambda x, y: Program((op("add", leaf(x), leaf(y)),), (x,)),
     lambda x, y: Program((op("add", leaf(x), leaf(y)),), (y,))))


# What is said ------------------------------------------------------------------------------


def keys(module: ModuleType) -> Iterator[Counterexample]:
    """The first pair of programs that breaks each rule of the lesson on caching."""
    return first_of_each(_judged(module, *pair) for pair in _pairs())


def _pairs() -> Iterator[tuple[str, Program, Program]]:
    """All pairs, from the smallest up; those of one program come with the rule about renaming."""
    x, y = Buffer("x"), Buffer("y")
    for make in SAME:
        # With the names turned round, too: whoever sorts by name or by address is found.
        yield RENAMING, make(x, y), make(Buffer("b"), Buffer("a"))
        yield RENAMING, make(x, y), make(y, x)
    total = op("add", leaf(x), leaf(y))
    yield RENAMING, Program((total,), (x, y)), Program((total,), (y, x))
    for rule, first, second in DIFFERENT:
        yield rule, first(x, y), second(x, y)


def _judged(module: ModuleType, rule: str, one: Program,
            two: Program) -> Iterator[Counterexample]:
    shown = "\n".join(f"{name}: {program!s:.300}" for name, program in (("one", one), ("two", two)))
    found = []
    for program in (one, two):
        try:
            answer = module.key(program.nodes, list(program.roots), list(program.held))
        except Exception as error:  # any: it is the reader's own code
            yield raised(error, shown)
            return
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], list):
            yield Counterexample("raised", f"key answers {answer!r:.60}, and not (key, list of "
                                 "buffers)", shown)
            return
        unhashable = _unhashable(answer[0])
        if unhashable:
            yield Counterexample("raised", f"your key contains a {unhashable}, and cannot be "
                                 "looked up in a dict: make a tuple of it", shown)
            return
        strange = _strange(answer[0])
        if strange:
            yield Counterexample(STABLE, f"{strange}; another process would call it another name",
                                 shown)
        if len(answer[1]) != len(program.buffers) or {*answer[1]} != {*program.buffers}:
            yield Counterexample(HIT, f"you list the buffers {_named(answer[1])}; the program has "
                                 f"{_named(program.buffers)}", shown)
            return
        found.append(answer)
    (first, mine), (second, theirs) = found
    if rule != RENAMING and first == second:
        yield Counterexample(rule, "both programs get one key, so the second would be run by the "
                             "plan of the first", shown)
    elif rule == RENAMING and first != second:
        yield Counterexample(rule, "the same program on other buffers gets another key, so its "
                             "plan is not found", shown)
    elif rule == RENAMING:
        renamed = dict(zip(one.buffers, two.buffers, strict=True))
        for slot, (own, other) in enumerate(zip(mine, theirs, strict=True)):
            if renamed[own] is not other:
                yield Counterexample(HIT, f"slot {slot} is {own.name} in one program and "
                                     f"{other.name} in the other, where it should be "
                                     f"{renamed[own].name}", shown)
                return


def _named(buffers: Sequence[Any]) -> str:
    return ", ".join(getattr(each, "name", repr(each)) for each in buffers) or "none"


def _unhashable(key: Any) -> str:
    """The type of what keeps a key from being looked up, or ""."""
    if isinstance(key, tuple):
        return next(filter(None, map(_unhashable, key)), "")
    try:
        hash(key)
    except TypeError:
        return type(key).__name__
    return ""


def _strange(key: Any) -> str:
    """What of a key is not the same in every process, or ""."""
    if isinstance(key, tuple):
        return next(filter(None, map(_strange, key)), "")
    if isinstance(key, (set, frozenset, dict)):
        return f"your key contains a {type(key).__name__}, whose order is not always the same"
    if isinstance(key, str):
        return f"your key contains {key!r:.50}, an address" if " at 0x" in key else ""
    if key is None or isinstance(key, (int, float, bytes)):
        large = isinstance(key, int) and abs(key) > 1 << 40
        return f"your key contains {key!r}, an address or a hash" if large else ""
    return f"your key contains a {type(key).__name__}"


# In the runtime ----------------------------------------------------------------------------


PLAIN_ROW = frozenset(("BIND", "DEFINE_VAR", "AFTER", "COPY", "SHARD", "LOOP", "CUSTOM", "SCAN"))


class Key(tuple[Any, ...]):
    """A key of the runtime that equals another one if the reader's are equal.

    Its text, of which names are made, is ours: other processes have no key of the reader's.
    """

    mine: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.mine == other.mine

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.mine)


def install(module: ModuleType) -> None:
    """Let the runtime keep the plans of plain programs under the reader's keys."""
    known: Any = module
    ours = known.canonicalize
    rows: Any = importlib.import_module("impl.caching.rows")

    def canonicalize(effects: Any, device_key: Any) -> Any:
        made = ours(effects, device_key)
        described = getattr(effects, "description", None)
        if described is None:
            described = rows.Rows()
            described.add(effects.roots)
        if described.sized or made.variables or known.has_sizes(
                effects.nodes) or any(node.op.name in PLAIN_ROW and known.leaf_of(node) is None
                                      for node in described.place):
            return made
        found: dict[Any, Node] = {}
        circumstances = []
        for node in described.place:
            memory = known.leaf_of(node)
            if memory is None:
                found[node] = Node(
                    "number" if node.op.name == "CONST" else node.op.name.lower(),
                    [found[each] for each in node.src], node.arg, node.dtype.name, node.shape)
                continue
            buffer = memory.arg[0]
            found[node] = Node("buffer", (), None, node.dtype.name, node.shape, buffer)
            circumstances.append(rows.leaf_row(node, buffer, {}, node.shape)[1:])
        held = [leaf.arg[0] for leaf in effects.held if leaf.arg[0] in described.slots]
        mine, buffers = known.key([*found.values()], [found[root] for root in effects.roots], held)
        key = Key(made.key)
        key.mine = mine, tuple(circumstances), made.key[3:]
        return known.Canonical(key, buffers, made.variables, made.values)

    known.canonicalize = canonicalize


def score(module: ModuleType) -> Iterator[str]:
    """Plans made for a few calls of a few programs: with the reader's keys and with ours."""
    from impl import Context, Tensor
    from impl.schedule import pipeline, schedule_cache

    mine, ours = module.__dict__["canonicalize"], published(module).__dict__["canonicalize"]
    before = pipeline.canonicalize
    try:
        counts = []
        for chosen in (mine, ours):
            pipeline.canonicalize = chosen
            schedule_cache.clear()
            with Context(DEVICE="REFERENCE"):
                for step in range(10):
                    x, y = (Tensor([float(step), 1.0]).realize() for _ in range(2))
                    for each in ((x + y).exp(), (x * x - y).sum(), x.flip(0) * 2 + y):
                        each.realize()
            counts.append(schedule_cache.misses)
            schedule_cache.clear()
    finally:
        pipeline.canonicalize = before
    yield f"30 calls of 3 programs: {counts[0]} plans with your keys, {counts[1]} with ours"


CACHING = Lesson(
    number=14, functions=("key",),
    names="""\
The nodes of a program come from left to right, sources first. A node says
    node.op            "buffer", "number", or an operation: "add", "sum"
    node.src           the nodes that it is made of
    node.arg           a number, the axes of a sum, ..., or None
    node.dtype, node.shape
    node.buffer        of a "buffer", the memory: an object, the same one for the same memory
`roots` are the nodes that were asked for; `held` are buffers that somebody can still see after
the run.""",
    heads='''\
def key(nodes, roots, held):
    """What the plan of a program is kept under, and the buffers of this call: (key, buffers).

    Two programs get equal keys if they are the same but for their memory. Then buffers[i] of one
    takes the place of buffers[i] of the other. A key is made of tuples, numbers and texts.
    """
    raise NotImplementedError
''',
    rules=(ALIAS, PROGRAM, HELD, RENAMING, STABLE, HIT),
    hints=(
        "Give each node a number: its place in `nodes`. Then a node is described by a tuple: its "
        "operation, and the numbers of its sources.",
        "A buffer is described by the number of its first appearance: a dict from buffers to "
        "numbers, and setdefault(buffer, len(slots)). The list of its keys is what you answer.",
        "What else belongs into the tuple? Try to name two programs that differ in one thing only: "
        "the shape, the dtype, the axis, the number.",
        "0.0 == -0.0, and nan != nan. float.hex() tells the first two apart, and is the same text "
        "for every nan.",
        "`roots` go into the key as numbers, in their order; `held` as sorted slots."),
    counterexamples=keys, module="caching.plans", chapters=("caching",), install=install,
    score=score)
