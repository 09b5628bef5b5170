"""Patterns, rewriting, and algebra that is exact to the bit. See spec/rewrite.md."""
from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.trace import verifies
from impl import Tensor
from impl.dtypes import DType, dtypes
from impl.errors import GraphError
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range, note_origin
from impl.rewrite import (
    ALGEBRA,
    Maker,
    PatternMatcher,
    Rule,
    UPat,
    graph_rewrite,
    is_simple,
    match_statistics,
    print_match_statistics,
    rewrites,
    simplifier,
    simplify,
)
from impl.settings import Context

X, Y, Z = (new_range(8, RangeKind.LOOP, number) for number in range(3))
V = UOp(Ops.DEFINE_VAR, dtypes.index, (), ("v", 0, 9))  # unlike a loop, it has no sources


def number(value: int) -> UOp:
    return UOp.const(dtypes.index, value)


def alu(op: Ops, *sources: UOp) -> UOp:
    return UOp(op, sources[0].dtype, sources)


def chain(length: int) -> UOp:
    node = X
    for _ in range(length):
        node = alu(Ops.NEG, node)
    return node


# Patterns


@verifies("rewrite.match.sources")
def test_one_name_is_one_node() -> None:
    rules = PatternMatcher([(UPat(Ops.SUB, src=(UPat.var("a"), UPat.var("a"))),
                             lambda a: number(0))])
    assert rules.rewrite(alu(Ops.SUB, X, X)) is number(0)
    assert rules.rewrite(alu(Ops.SUB, X, Y)) is None


@verifies("rewrite.match.sources")
def test_sources_in_any_order_fit_together() -> None:
    # a * c + b * c: which sides share the factor is found by trying.
    product = UPat(Ops.MUL, src=[UPat.var("a"), UPat.var("c")])
    other = UPat(Ops.MUL, src=[UPat.var("b"), UPat.var("c")])
    rules = PatternMatcher([(UPat(Ops.ADD, src=[product, other]),
                             lambda a, b, c: alu(Ops.MUL, alu(Ops.ADD, a, b), c))])
    wanted = {alu(Ops.MUL, alu(Ops.ADD, *pair), Z) for pair in ((X, Y), (Y, X))}
    for left in ((X, Z), (Z, X)):
        for right in ((Y, Z), (Z, Y)):
            graph = alu(Ops.ADD, alu(Ops.MUL, *left), alu(Ops.MUL, *right))
            assert rules.rewrite(graph) in wanted
    assert rules.rewrite(alu(Ops.ADD, alu(Ops.MUL, X, X), alu(Ops.MUL, Y, Y))) is None


@verifies("rewrite.match.sources")
@pytest.mark.parametrize("order", list(itertools.permutations((X, Y, number(3)))))
def test_three_sources_in_any_order(order: tuple[UOp, ...]) -> None:
    pattern = UPat(Ops.SINK, src=[UPat.const(3), UPat.var("a"), UPat(arg=Y.arg, name="b")])
    rules = PatternMatcher([(pattern, lambda a, b: alu(Ops.ADD, a, b))])
    assert rules.rewrite(UOp(Ops.SINK, dtypes.index, order)) is alu(Ops.ADD, X, Y)


@verifies("rewrite.match.sources")
def test_a_refusal_tries_the_other_order() -> None:
    rules = PatternMatcher([(UPat(Ops.ADD, src=[UPat.var("a"), UPat.var("b")]),
                             lambda a, b: a if a is Y else None)])
    assert rules.rewrite(alu(Ops.ADD, X, Y)) is Y
    assert rules.rewrite(alu(Ops.ADD, Y, X)) is Y
    assert rules.rewrite(alu(Ops.ADD, X, Z)) is None


@verifies("rewrite.rule.first")
def test_the_first_rule_that_answers_counts() -> None:
    add = UPat(Ops.ADD, name="node")
    declines = Rule(add, lambda node: None, "declines")
    first = Rule(add, lambda node: node.src[0], "first")
    second = Rule(add, lambda node: node.src[1], "second")
    graph = alu(Ops.ADD, X, Y)
    assert PatternMatcher([declines, first, second]).rewrite(graph) is X
    assert (PatternMatcher([second]) + PatternMatcher([first])).rewrite(graph) is Y
    assert PatternMatcher([declines]).rewrite(graph) is None


@verifies("rewrite.rule.first")
@pytest.mark.parametrize("pattern, found", [
    (UPat(Ops.ADD), True),
    (UPat((Ops.ADD, Ops.MUL)), True),
    (UPat(Ops.MUL), False),
    (UPat(dtype=dtypes.index), True),
    (UPat(dtype=dtypes.int32), False),
    (UPat(Ops.ADD, src=(UPat(), UPat())), True),
    (UPat(Ops.ADD, src=(UPat(),)), False),
    (UPat(Ops.ADD, src=(UPat(),), allow_any_len=True), True),
    (UPat(Ops.ADD, src=UPat(Ops.RANGE)), False),
    (UPat(Ops.ADD, src=UPat((Ops.RANGE, Ops.CONST))), True),
    (UPat(Ops.ADD, src=(UPat(Ops.RANGE), UPat.const(3))), True),
    (UPat(Ops.ADD, src=(UPat(Ops.RANGE), UPat.const(4))), False),
    (UPat(Ops.ADD, src=(UPat(Ops.RANGE, arg=(0, RangeKind.LOOP)), UPat())), True),
    (UPat(Ops.ADD, src=(UPat(Ops.RANGE, arg=(1, RangeKind.LOOP)), UPat())), False),
    (UPat(where=lambda node: len(node.src) == 2), True),
    (UPat.either(UPat(Ops.MUL), UPat(Ops.ADD, src=(UPat(), UPat.const()))), True),
    (UPat.either(UPat(Ops.MUL), UPat(Ops.ADD, src=(UPat.const(), UPat()))), False),
])
def test_what_patterns_match(pattern: UPat, found: bool) -> None:
    matcher = PatternMatcher([(pattern, lambda: X)])
    assert (matcher.rewrite(alu(Ops.ADD, X, number(3))) is X) == found


@verifies("rewrite.rule.first")
def test_choices_may_capture_differently() -> None:
    pattern = UPat.either(UPat(Ops.ADD, src=(UPat.var("a"), UPat.const(1))),
                          UPat(Ops.MUL, src=(UPat.const(1), UPat.var("a"))))
    rules = PatternMatcher([(pattern, lambda a, ctx: a if ctx == "go" else None)])
    assert rules.rewrite(alu(Ops.ADD, X, number(1)), "go") is X
    assert rules.rewrite(alu(Ops.MUL, number(1), Y), "go") is Y
    assert rules.rewrite(alu(Ops.MUL, number(1), Y), "stop") is None


@verifies("rewrite.match.sources")
def test_a_missing_capture_is_refused() -> None:
    with pytest.raises(GraphError, match="wants 'b'"):
        Rule(UPat.var("a"), lambda b: b)
    with pytest.raises(GraphError, match="cannot capture"):
        Rule(UPat(Ops.ADD, src=UPat.var("a")), lambda a: a)


# The walk

COUNT_DOWN = PatternMatcher([(UPat(Ops.CONST, name="c"),
                              lambda c: number(c.arg - 1) if c.arg > 0 else None)])


@verifies("rewrite.order.visits")
def test_bottom_up_goes_to_the_end() -> None:
    graph = alu(Ops.ADD, alu(Ops.ADD, number(5), V), number(3))
    assert graph_rewrite(graph, COUNT_DOWN) is alu(Ops.ADD, alu(Ops.ADD, number(0), V), number(0))
    distribute = PatternMatcher([(
        UPat(Ops.MUL, src=[UPat(Ops.ADD, src=(UPat.var("a"), UPat.var("b"))), UPat.var("c")]),
        lambda a, b, c: alu(Ops.ADD, alu(Ops.MUL, a, c), alu(Ops.MUL, b, c)))])
    product = alu(Ops.MUL, alu(Ops.ADD, X, Y), alu(Ops.ADD, Y, Z))
    result = graph_rewrite(product, distribute)
    assert all(distribute.rewrite(node) is None for node in result.toposort())
    assert sum(node.op is Ops.MUL for node in result.toposort()) == 4


def order_of_visits(order: Any) -> list[str]:
    seen: list[str] = []
    rules = PatternMatcher([(UPat(name="node"), lambda node: seen.append(node.op.name))])
    graph_rewrite(alu(Ops.NEG, alu(Ops.ADD, X, number(2))), rules, order=order)
    return seen


@verifies("rewrite.order.visits")
def test_order_of_visits() -> None:
    assert order_of_visits("bottom-up") == ["CONST", "RANGE", "CONST", "ADD", "NEG"]
    assert order_of_visits("top-down") == ["NEG", "ADD", "RANGE", "CONST", "CONST"]


@verifies("rewrite.order.visits")
def test_top_down_pushes_down() -> None:
    negate = PatternMatcher([(UPat(Ops.NEG, src=(UPat(Ops.ADD, src=(UPat.var("a"),
                                                                  UPat.var("b"))),)),
                              lambda a, b: alu(Ops.ADD, alu(Ops.NEG, a), alu(Ops.NEG, b)))])
    graph = alu(Ops.NEG, alu(Ops.ADD, alu(Ops.ADD, X, Y), Z))
    result = graph_rewrite(graph, negate, order="top-down")
    inner = alu(Ops.ADD, alu(Ops.NEG, X), alu(Ops.NEG, Y))
    assert result is alu(Ops.ADD, inner, alu(Ops.NEG, Z))


@verifies("rewrite.order.visits")
def test_top_down_goes_to_the_end_before_the_sources() -> None:
    """Only two rewrites of a node lead to a pattern that its sources would no longer fit."""
    steps = PatternMatcher([
        (UPat(Ops.ADD, name="n"), lambda n: n.replace(op=Ops.SUB)),
        (UPat(Ops.SUB, name="n"), lambda n: n.replace(op=Ops.MUL)),
        (UPat(Ops.MUL, src=(UPat.const(5), UPat.var("x"))), lambda x: alu(Ops.NEG, x))])
    graph = alu(Ops.ADD, number(5), V)
    assert graph_rewrite(graph, COUNT_DOWN + steps, order="top-down") is alu(Ops.NEG, V)


@verifies("rewrite.order.visits")
def test_walk_looks_once() -> None:
    graph = alu(Ops.ADD, alu(Ops.ADD, number(9), V), number(5))
    walked = graph_rewrite(graph, COUNT_DOWN, order="walk")
    assert walked is alu(Ops.ADD, alu(Ops.ADD, number(8), V), number(4))


@verifies("rewrite.order.visits")
def test_gate_stops() -> None:
    graph = alu(Ops.ADD, alu(Ops.MUL, number(9), V), number(5))
    result = graph_rewrite(graph, COUNT_DOWN, gate=lambda node: node.op is not Ops.MUL)
    assert result is alu(Ops.ADD, alu(Ops.MUL, number(9), V), number(0))


@verifies("rewrite.order.visits")
@pytest.mark.parametrize("order", ["bottom-up", "top-down", "walk"])
def test_what_fails_the_gate_stays_and_what_is_below_unless_reached_otherwise(order: Any) -> None:
    negate = PatternMatcher([(UPat((Ops.ADD, Ops.MUL), name="n"), lambda n: n.replace(op=Ops.SUB))])
    below = alu(Ops.ADD, X, Y)
    kept = alu(Ops.MUL, below, Z)
    result = graph_rewrite(alu(Ops.ADD, kept, below), negate, order=order,
                           gate=lambda node: node is not kept)
    assert result is alu(Ops.SUB, kept, alu(Ops.SUB, X, Y))


@verifies("rewrite.loop.error")
@pytest.mark.parametrize("order", ["bottom-up", "top-down"])
def test_circles_are_found(order: Any) -> None:
    rules = PatternMatcher([
        Rule(UPat(Ops.ADD, name="n"), lambda n: n.replace(op=Ops.SUB), "there"),
        Rule(UPat(Ops.SUB, name="n"), lambda n: n.replace(op=Ops.ADD), "back")])
    with pytest.raises(GraphError, match="rule (there|back) goes round in circles"):
        graph_rewrite(alu(Ops.ADD, X, Y), rules, order=order)
    wraps = PatternMatcher([Rule(UPat(Ops.NEG, name="n"), lambda n: alu(Ops.NEG, n), "wraps")])
    with pytest.raises(GraphError, match="rule wraps goes round in circles"):
        graph_rewrite(alu(Ops.NEG, X), wraps, order=order)
    grows = PatternMatcher([Rule(UPat(Ops.CONST, name="n"), lambda n: number(n.arg + 1), "grows")])
    with pytest.raises(GraphError, match="rule grows goes round in circles"):
        graph_rewrite(number(0), grows, order=order, limit=500)


@pytest.mark.slow
@verifies("rewrite.depth.iterative")
@pytest.mark.parametrize("order", ["bottom-up", "top-down", "walk"])
def test_long_chains(order: Any) -> None:
    rules = PatternMatcher([(UPat(Ops.NEG, src=(UPat.var("x"),)), lambda x: alu(Ops.FLOOR, x))])
    result = graph_rewrite(chain(100_000), rules, order=order)
    assert {node.op for node in result.toposort()} == {Ops.FLOOR, Ops.RANGE, Ops.CONST}
    assert len(result.toposort()) == 100_002


@verifies("rewrite.origin.kept")
def test_the_users_line_is_kept() -> None:
    graph = alu(Ops.MUL, alu(Ops.ADD, Y, Z), number(777))
    note_origin(graph, "model.py:12")
    rules = PatternMatcher([(UPat(Ops.MUL, name="n"), lambda n: n.replace(op=Ops.SUB))])
    assert graph_rewrite(graph, rules).origin == "model.py:12"
    assert graph_rewrite(graph, COUNT_DOWN).origin == "model.py:12"


def counted() -> dict[str, tuple[int, int]]:
    return {name: (tally.tried, tally.matched) for name, tally in match_statistics.items()}


@verifies("rewrite.statistics.told")
def test_statistics_count() -> None:
    graph = alu(Ops.ADD, number(3), number(1))
    rules = PatternMatcher([
        Rule(UPat(Ops.CONST, name="c"), lambda c: number(0) if c.arg else None, "zero"),
        Rule(UPat(Ops.ADD, src=(UPat(Ops.RANGE), UPat())), lambda: None, "needs a loop")])
    match_statistics.clear()
    with Context(TRACK_MATCH_STATS=1):
        graph_rewrite(graph, rules)
    assert counted() == {"zero": (3, 2)} and match_statistics["zero"].seconds > 0
    graph_rewrite(graph, rules)
    assert counted() == {"zero": (3, 2)}


@verifies("rewrite.statistics.told")
def test_a_rule_that_gives_the_node_back_was_not_applied() -> None:
    add = UPat(Ops.ADD, name="n")
    rules = PatternMatcher([Rule(add, lambda n: n, "idle"), Rule(add, lambda n: X, "other")])
    match_statistics.clear()
    with Context(TRACK_MATCH_STATS=1):
        assert graph_rewrite(alu(Ops.ADD, X, Y), rules) is X
    assert counted() == {"idle": (1, 0), "other": (1, 1)}


@verifies("rewrite.statistics.told")
def test_rewrites_are_kept() -> None:
    rewrites.clear()
    graph = alu(Ops.ADD, alu(Ops.ADD, number(2), V), number(0))
    with Context(TRACK_MATCH_STATS=1):
        graph_rewrite(graph, COUNT_DOWN)
    assert not rewrites
    with Context(TRACK_MATCH_STATS=2):
        graph_rewrite(graph, COUNT_DOWN, name="down")
    kept = [(each.where, each.before.arg, each.after.arg) for each in rewrites]
    assert kept == [("down", 2, 1), ("down", 1, 0)]
    assert rewrites[0].rule == COUNT_DOWN.rules[0].name
    rewrites.clear()


@verifies("rewrite.statistics.told")
def test_the_tallies_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    match_statistics.clear()
    with Context(TRACK_MATCH_STATS=1):
        graph_rewrite(alu(Ops.ADD, X, number(0)), ALGEBRA)
    print_match_statistics()
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["tried", "matched", "ms", "rule"]
    assert any(row.split()[:2] == ["1", "1"] and row.endswith("  x + 0") for row in rows)


# Algebra

TYPES = (dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float16,
         dtypes.float32, dtypes.float64)
ARITHMETIC = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM)
INTEGER = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR)
COMPARE = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)
FUNCTIONS: dict[Ops, Any] = {
    Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply, Ops.MAXIMUM: np.maximum,
    Ops.MINIMUM: np.minimum, Ops.DIV: np.true_divide, Ops.FLOORDIV: np.floor_divide,
    Ops.FLOORMOD: np.remainder, Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor, Ops.SHL: np.left_shift, Ops.SHR: np.right_shift, Ops.CMPLT: np.less,
    Ops.CMPLE: np.less_equal, Ops.CMPEQ: np.equal, Ops.CMPNE: np.not_equal, Ops.NEG: np.negative,
    Ops.WHERE: np.where, Ops.TRUNC: np.trunc, Ops.FLOOR: np.floor}


def leaf(dtype: DType, name: int) -> UOp:
    pointer = UOp(Ops.PARAM, dtype, (), name)
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (pointer, number(0), TRUE)),))


def samples(dtype: DType) -> list[Any]:
    """Values that break wrong algebra."""
    if dtype.kind == "f":
        return [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 1e-7, 60000.0, np.inf, -np.inf, np.nan]
    if dtype.kind == "b":
        return [False, True]
    return sorted({int(dtype.min), int(dtype.max), 0, 1, 2, 3, 7, int(dtype.max) - 1})


def compute(node: UOp, values: dict[UOp, np.ndarray]) -> np.ndarray:
    """What NumPy makes of a scalar expression, for many values at once."""
    done = dict(values)
    with np.errstate(all="ignore"):
        for part in node.toposort(lambda u: u not in done):
            if part in done:
                continue
            if part.op is Ops.CONST:
                done[part] = np.array(part.arg, part.dtype.numpy)
            elif part.op is Ops.CAST:
                done[part] = done[part.src[0]].astype(part.dtype.numpy)
            elif part.op is Ops.BITCAST:
                done[part] = done[part.src[0]].view(part.dtype.numpy)
            else:
                done[part] = FUNCTIONS[part.op](*[done[s] for s in part.src])
            assert done[part].dtype == part.dtype.numpy, part
    return done[node]


def bits(array: np.ndarray) -> list[Any]:
    """The values, told apart as a program can tell them apart."""
    return [("nan",) if x != x else (x, np.signbit(x) if array.dtype.kind == "f" else 0)
            for x in array.ravel().tolist()]


STEPS = st.lists(st.tuples(*[st.integers(0, 1000)] * 4), min_size=1, max_size=12)


def expression(dtype: DType, steps: list[tuple[int, ...]]) -> UOp:
    """A scalar expression over two leaves; every step refers to earlier ones by counting back."""
    numbers = [UOp.const(dtype, v) for v in samples(dtype)]
    made = [leaf(dtype, 0), leaf(dtype, 1)]
    conditions = [leaf(dtypes.bool, 2), TRUE]

    def pick(choice: int) -> UOp:
        if choice % 3 == 0:
            return numbers[choice // 3 % len(numbers)]
        return made[-1 - choice // 3 % min(len(made), 4)]

    for kind, first, second, third in steps:
        a, b, condition = pick(first), pick(second), conditions[-1 - third % len(conditions)]
        choice = kind % 8
        if choice == 0:
            conditions.append(UOp(COMPARE[third % 4], dtypes.bool, (a, b)))
        elif choice == 1:
            made.append(UOp(Ops.WHERE, dtype, (condition, a, b)))
        elif choice == 2:
            conditions.append(UOp((Ops.AND, Ops.OR, Ops.XOR)[third % 3], dtypes.bool,
                                  (condition, conditions[-1 - first % len(conditions)])))
        elif choice == 3:
            made.append(cast_there_and_back(a, TYPES[third % len(TYPES)]))
        elif dtype.kind == "b":
            made.append(UOp(INTEGER[2 + third % 3], dtype, (a, b)))
        elif choice == 4 and dtype.kind == "i":
            made.append(UOp(Ops.NEG, dtype, (a,)))
        elif choice == 5:
            ops = (Ops.DIV,) if dtype.kind == "f" else INTEGER
            made.append(UOp(ops[third % len(ops)], dtype, (a, shift_amount(ops, third, b))))
        else:
            made.append(UOp(ARITHMETIC[third % 5], dtype, (a, b)))
    return UOp(Ops.WHERE, dtype, (conditions[-1], made[-1], made[-2]))


def shift_amount(ops: tuple[Ops, ...], choice: int, given: UOp) -> UOp:
    """NumPy leaves shifts by too much and division by zero open, so they are not compared."""
    op = ops[choice % len(ops)]
    if op in (Ops.SHL, Ops.SHR, Ops.FLOORDIV, Ops.FLOORMOD):
        return UOp.const(given.dtype, 1 + choice % 3)
    return given


def cast_there_and_back(node: UOp, other: DType) -> UOp:
    if node.dtype.kind == "f" and other.kind in "iu":
        other = dtypes.float64  # out of range it is unspecified
    if node.dtype.kind in "iu" and other.kind == "f" and node.dtype.itemsize > 2:
        other = dtypes.int64 if node.dtype is not dtypes.int64 else dtypes.int8
    if node.dtype.kind in "iu" and other is dtypes.float16:
        other = dtypes.float32
    return UOp(Ops.CAST, node.dtype, (UOp(Ops.CAST, other, (node,)),))


@verifies("rewrite.simplify.exact")
def test_what_simplify_does() -> None:
    x, b = leaf(dtypes.int32, 0), leaf(dtypes.bool, 1)
    zero, one = UOp.const(dtypes.int32, 0), UOp.const(dtypes.int32, 1)
    assert simplify(alu(Ops.MUL, alu(Ops.ADD, x, zero), one)) is x
    assert simplify(alu(Ops.MUL, x, zero)) is zero
    assert simplify(UOp(Ops.CMPEQ, dtypes.bool, (x, x))) is TRUE
    assert simplify(alu(Ops.AND, b, TRUE)) is b
    assert simplify(UOp(Ops.WHERE, dtypes.int32, (TRUE, x, zero))) is x
    assert simplify(alu(Ops.MAXIMUM, x, x)) is x
    assert simplify(alu(Ops.NEG, alu(Ops.NEG, x))) is x
    wide = UOp(Ops.CAST, dtypes.int64, (x,))
    assert simplify(UOp(Ops.CAST, dtypes.int32, (wide,))) is x
    assert simplify(UOp(Ops.CAST, dtypes.float64, (wide,))) is UOp(Ops.CAST, dtypes.float64, (x,))


@verifies("rewrite.simplify.exact")
@pytest.mark.parametrize("target, via, goes", [
    (dtypes.int32, dtypes.float64, True), (dtypes.int16, dtypes.float32, True),
    (dtypes.int32, dtypes.float32, False), (dtypes.uint64, dtypes.float64, False)])
def test_whole_numbers_that_were_floats_in_between(target: DType, via: DType, goes: bool) -> None:
    """A device without that type of floats can run what does not need it."""
    with Context(DEVICE="REFERENCE"):
        x = Tensor(np.array([0, 5, 100], target.numpy)).realize()
        item, = x.cast(via).cast(target).schedule()
    assert any(node.dtype is via for node in item.ast.toposort()) is not goes


@verifies("rewrite.simplify.exact")
def test_what_simplify_leaves_alone() -> None:
    f = leaf(dtypes.float32, 0)
    zero = UOp.const(dtypes.float32, 0.0)
    about = UOp(Ops.CAST, dtypes.float32, (leaf(dtypes.int32, 1),))
    for graph in (UOp(Ops.CMPLT, dtypes.bool, (about, UOp.const(dtypes.float32, 2.0 ** 24 + 2))),
                  alu(Ops.ADD, f, zero), alu(Ops.MUL, f, zero), alu(Ops.SUB, f, f),
                  UOp(Ops.CMPEQ, dtypes.bool, (f, f)), alu(Ops.DIV, f, f),
                  UOp(Ops.CAST, dtypes.int32, (UOp.const(dtypes.float32, np.inf),)),
                  UOp(Ops.CAST, dtypes.float32, (UOp(Ops.CAST, dtypes.float16, (f,)),)),
                  alu(Ops.DIV, f, UOp.const(dtypes.float32, 3.0)),
                  alu(Ops.EXP, UOp.const(dtypes.float32, 1.0))):
        assert simplify(graph) is graph
    seventh = UOp.const(dtypes.float32, 8.0)
    assert simplify(alu(Ops.DIV, f, seventh)).op is Ops.MUL  # exact: a power of two


@verifies("rewrite.simplify.exact")
def test_simplify_keeps_shapes() -> None:
    """A whole tensor of zeros is not one scalar zero."""
    counted = UOp(Ops.IOTA, dtypes.int32, (), 5)
    product = alu(Ops.MUL, counted, UOp.const(dtypes.int32, 0))
    assert simplify(product).shape == (5,)
    assert simplify(alu(Ops.MUL, counted, UOp.const(dtypes.int32, 1))) is counted


@verifies("rewrite.simplify.exact")
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@given(steps=STEPS)
@settings(max_examples=120)
def test_simplify_keeps_every_bit(dtype: DType, steps: list[tuple[int, ...]]) -> None:
    graph = expression(dtype, steps)
    pairs = list(itertools.product(samples(dtype), samples(dtype), (False, True)))
    columns = [np.array(column) for column in zip(*pairs, strict=True)]
    leaves = [leaf(dtype, 0), leaf(dtype, 1), leaf(dtypes.bool, 2)]
    with np.errstate(all="ignore"):
        values = {u: c.astype(u.dtype.numpy) for u, c in zip(leaves, columns, strict=True)}
    simple = simplify(graph)
    shape = columns[0].shape
    before = np.broadcast_to(compute(graph, values), shape)
    after = np.broadcast_to(compute(simple, values), shape)
    assert bits(before) == bits(after)


@verifies("rewrite.maker.finished+2")
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@given(steps=STEPS)
@settings(max_examples=60)
def test_what_is_made_node_by_node_is_simple(dtype: DType, steps: list[tuple[int, ...]]) -> None:
    graph, simple = expression(dtype, steps), simplifier()
    done: dict[UOp, UOp] = {}
    for node in graph.toposort():
        sources = tuple(done[source] for source in node.src)
        done[node] = simple.made(node.replace(src=sources))
    assert is_simple(done[graph])
    assert done[graph] is simplify(graph)


@verifies("rewrite.maker.finished+2")
def test_what_a_rule_returns_is_looked_at_as_far_as_it_is_new() -> None:
    a, b = leaf(dtypes.float32, 0), leaf(dtypes.float32, 1)
    simple = simplifier()
    minus = simple.made(alu(Ops.NEG, b))
    twice = simple.made(alu(Ops.NEG, minus))
    assert twice is b and simple.made(alu(Ops.ADD, a, minus)) is alu(Ops.SUB, a, b)
    both = PatternMatcher([
        Rule(UPat(Ops.SQRT, src=(UPat.var("x"),)),
             lambda x: alu(Ops.EXP, alu(Ops.NEG, alu(Ops.NEG, x)))), *ALGEBRA.rules])
    assert Maker(both, "test").made(alu(Ops.SQRT, a)) is alu(Ops.EXP, a)
