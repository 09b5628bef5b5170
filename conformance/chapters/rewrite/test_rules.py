"""Every rule that a pass applies has a name, a reason, and graphs on which all values are tried."""
from __future__ import annotations

import importlib
import itertools
import pkgutil
import warnings
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

import impl
from conformance.chapters.gradient.test_gradient_rules import EXAMPLES as DERIVATIVES
from conformance.chapters.rewrite.test_rewrite import bits, compute, leaf
from conformance.kernels import kernel_builder as kb
from conformance.trace import ROOT, verifies
from impl import reference
from impl.dialects import CUDA, WGSL, C, Metal, OpenCL
from impl.dtypes import ALL, HALF, DType, dtypes
from impl.ir import FALSE, FLOAT_ONLY, TRUE, KernelInfo, Ops, RangeKind, UOp, new_range
from impl.lowering.legal import COMMON, OF_BOOLS, UNSIGNED_CASTS, WORDS, legalize
from impl.render import Dialect, render
from impl.rewrite import ALGEBRA, PatternMatcher, Rule, applies, apply
from impl.rewrite.folding import NEUTRAL
from impl.rewrite.patterns import COMMUTATIVE

SMALL = (dtypes.int8, dtypes.uint8)          # all values are tried
FLOATS = (dtypes.float16, dtypes.float32, dtypes.float64)
EDGES = [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 5e-324, 1e-45, 6e-8, 1e-7, 65504.0, 3e38, 1e308,
         np.inf, -np.inf, np.nan]
Graphs = Iterator[UOp]


def number(dtype: DType, value: float) -> UOp:
    return UOp.const(dtype, value)


def alu(op: Ops, *sources: UOp, dtype: DType | None = None) -> UOp:
    return UOp(op, dtype or sources[0].dtype, sources)


def both(op: Ops, x: UOp, y: UOp, dtype: DType | None = None) -> Graphs:
    yield alu(op, x, y, dtype=dtype)
    yield alu(op, y, x, dtype=dtype)


def with_number(op: Ops, value: float, types: tuple[DType, ...], swapped: bool = False) -> Graphs:
    """An operation on anything and a number."""
    for dtype in types:
        yield alu(op, leaf(dtype, 0), number(dtype, value))
        if swapped:
            yield alu(op, number(dtype, value), leaf(dtype, 0))


def with_itself(ops: tuple[Ops, ...], types: tuple[DType, ...],
                result: DType | None = None) -> Graphs:
    for op, dtype in itertools.product(ops, types):
        yield alu(op, leaf(dtype, 0), leaf(dtype, 0), dtype=result)


def counted(size: int, number: int = 0, dtype: DType = dtypes.int8) -> UOp:
    """A number whose bounds are known: a loop variable in another type."""
    return alu(Ops.CAST, new_range(size, RangeKind.LOOP, number), dtype=dtype)


def folded() -> Graphs:
    for op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM):
        for a, b in itertools.product((0, 1, 2, 100, 127), repeat=2):
            yield alu(op, number(dtypes.int8, -a), number(dtypes.int8, b))
    for op, dtype in itertools.product((Ops.ADD, Ops.SUB, Ops.MUL), FLOATS):
        for x, y in itertools.product(EDGES, repeat=2):
            yield alu(op, number(dtype, x), number(dtype, y))
    for op in (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE):
        for x, y in itertools.product(EDGES, repeat=2):
            yield alu(op, number(dtypes.float16, x), number(dtypes.float16, y), dtype=dtypes.bool)
    for op in (Ops.FLOORDIV, Ops.FLOORMOD):
        for a, b in itertools.product((-128, -7, 0, 7, 127), (-3, -1, 1, 3)):
            if (a, b) != (-128, -1):  # NumPy warns
                yield alu(op, number(dtypes.int8, a), number(dtypes.int8, b))


def folded_unary() -> Graphs:
    for value in (-128, -1, 0, 127):
        yield alu(Ops.NEG, number(dtypes.int8, value))
        yield alu(Ops.CAST, number(dtypes.int8, value), dtype=dtypes.uint8)
    for edge in EDGES:
        yield alu(Ops.NEG, number(dtypes.float32, edge))
        yield alu(Ops.CAST, number(dtypes.float64, edge), dtype=dtypes.float32)
        if abs(edge) < 1e38:
            yield alu(Ops.TRUNC, number(dtypes.float32, edge))
            yield alu(Ops.FLOOR, number(dtypes.float32, edge))


def one_after_another(op: Ops) -> Graphs:
    for dtype, (a, b) in itertools.product(SMALL, itertools.product((1, 3, 100), repeat=2)):
        inner = alu(op, leaf(dtype, 0), number(dtype, a))
        yield from both(op, inner, number(dtype, b))


def decided() -> Graphs:
    x = counted(10)
    for op, value in ((Ops.CMPLT, 10), (Ops.CMPLT, 0), (Ops.CMPLE, 9), (Ops.CMPLE, -1),
                      (Ops.CMPEQ, 10), (Ops.CMPEQ, -1), (Ops.CMPNE, 10), (Ops.CMPNE, -3)):
        yield alu(op, x, number(dtypes.int8, value), dtype=dtypes.bool)
    for op in (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE):
        yield alu(op, alu(Ops.ADD, x, number(dtypes.int8, 20)), counted(5, 1), dtype=dtypes.bool)


def extremes(op: Ops) -> Graphs:
    low, high = counted(10), alu(Ops.ADD, counted(5, 1), number(dtypes.int8, 9))
    yield from both(op, low, high)
    yield from both(op, leaf(dtypes.int8, 0), number(dtypes.int8, -128))
    yield from both(op, leaf(dtypes.int8, 0), number(dtypes.int8, 127))


def products() -> Graphs:
    for op, factor in itertools.product((Ops.FLOORDIV, Ops.FLOORMOD), (1, 3, -3, 12)):
        c = number(dtypes.int8, factor)
        yield alu(op, alu(Ops.MUL, counted(10), c), c)
        yield alu(op, alu(Ops.MUL, c, counted(10)), c)


def sums() -> Graphs:
    for op in (Ops.FLOORDIV, Ops.FLOORMOD):
        c = number(dtypes.int8, 4)
        product = alu(Ops.MUL, counted(10), c)
        for rest in (counted(4, 1), number(dtypes.int8, 3)):
            yield alu(op, alu(Ops.ADD, product, rest), c)
            yield alu(op, alu(Ops.ADD, rest, product), c)


def denied() -> Graphs:
    for inner, outer in itertools.product((Ops.CMPNE, Ops.XOR), repeat=2):
        yield alu(outer, alu(inner, leaf(dtypes.bool, 0), TRUE), TRUE)


def choices(make: Callable[[UOp, UOp, UOp], UOp]) -> Graphs:
    for dtype in (dtypes.int8, dtypes.float32):
        yield make(leaf(dtypes.bool, 2), leaf(dtype, 0), leaf(dtype, 1))


def where(condition: UOp, x: UOp, y: UOp) -> UOp:
    return alu(Ops.WHERE, condition, x, y, dtype=x.dtype)


def casts() -> Graphs:
    for types in (((dtypes.int8, dtypes.int32, dtypes.float32)),
                  ((dtypes.uint8, dtypes.int16, dtypes.uint8)),
                  ((dtypes.float16, dtypes.float32, dtypes.float64)),
                  ((dtypes.bool, dtypes.int8, dtypes.float16))):
        first, second, third = types
        yield alu(Ops.CAST, alu(Ops.CAST, leaf(first, 0), dtype=second), dtype=third)
    yield alu(Ops.CAST, counted(100), dtype=dtypes.int32)


def of_float_numbers(*ops: Ops) -> Graphs:
    for dtype, op in itertools.product(SMALL, ops):
        y = alu(Ops.CAST, leaf(dtype, 0), dtype=dtypes.float16)
        yield alu(op, y, y, dtype=dtypes.bool)


def compared_with_numbers() -> Graphs:
    values = (-np.inf, -129.0, -128.5, -128.0, -0.5, -0.0, 7.0, 7.25, 127.0, 255.5, 256.0,
              np.inf, np.nan)
    for op, dtype, value in itertools.product(
            (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE), SMALL, values):
        y = alu(Ops.CAST, leaf(dtype, 0), dtype=dtypes.float32)
        yield from both(op, y, number(dtypes.float32, value), dtypes.bool)


def limited() -> Graphs:
    for op, dtype, value in itertools.product((Ops.CMPLT, Ops.CMPLE), SMALL, (0, 5, 127)):
        x, c = leaf(dtype, 0), number(dtype, value)
        yield where(alu(op, x, c, dtype=dtypes.bool), c, x)


_INT8_FLOATS = (dtypes.int8, *FLOATS)
#: Rule of the algebra -> graphs to which it applies, over leaves of which all values are tried.
EXAMPLES: dict[str, Callable[[], Graphs]] = {
    "fold binary": folded, "fold unary": folded_unary,
    "x + 0": lambda: itertools.chain(with_number(Ops.ADD, 0, SMALL, True),
                                     with_number(Ops.ADD, -0.0, FLOATS, True)),
    "x - 0": lambda: itertools.chain(with_number(Ops.SUB, 0, SMALL),
                                     with_number(Ops.SUB, 0.0, FLOATS)),
    "x - x": lambda: with_itself((Ops.SUB,), SMALL),
    "x * 0": lambda: with_number(Ops.MUL, 0, SMALL, True),
    "x * 1": lambda: with_number(Ops.MUL, 1, (*SMALL, *FLOATS), True),
    "x / 1": lambda: with_number(Ops.DIV, 1.0, FLOATS),
    "x // 1": lambda: with_number(Ops.FLOORDIV, 1, SMALL),
    "x mod 1": lambda: with_number(Ops.FLOORMOD, 1, SMALL),
    "x & x": lambda: itertools.chain(
        with_itself((Ops.AND, Ops.OR, Ops.MAXIMUM, Ops.MINIMUM), (*SMALL, dtypes.bool)),
        with_itself((Ops.MAXIMUM, Ops.MINIMUM), FLOATS)),
    "x ^ x": lambda: with_itself((Ops.XOR,), (*SMALL, dtypes.bool)),
    "x & 0": lambda: with_number(Ops.AND, 0, (*SMALL, dtypes.bool), True),
    "x | 0": lambda: with_number(Ops.OR, 0, (*SMALL, dtypes.bool), True),
    "x ^ 0": lambda: with_number(Ops.XOR, 0, (*SMALL, dtypes.bool), True),
    "x & true": lambda: with_number(Ops.AND, True, (dtypes.bool,), True),
    "x | true": lambda: with_number(Ops.OR, True, (dtypes.bool,), True),
    "x << 0": lambda: with_number(Ops.SHL, 0, SMALL),
    "x >> 0": lambda: with_number(Ops.SHR, 0, SMALL),
    "x + a + b": lambda: one_after_another(Ops.ADD),
    "x * a * b": lambda: one_after_another(Ops.MUL),
    "x < y, decided": decided,
    "max(x, y), decided": lambda: extremes(Ops.MAXIMUM),
    "min(x, y), decided": lambda: extremes(Ops.MINIMUM),
    "x // c, small": lambda: iter([alu(Ops.FLOORDIV, counted(10), number(dtypes.int8, 10))]),
    "x mod c, small": lambda: iter([alu(Ops.FLOORMOD, counted(10), number(dtypes.int8, 10))]),
    "x*c // c": products, "(x*c + y) // c": sums,
    "x == x": lambda: with_itself((Ops.CMPEQ, Ops.CMPLE), (*SMALL, dtypes.bool), dtypes.bool),
    "x != x": lambda: with_itself((Ops.CMPNE,), (*SMALL, dtypes.bool), dtypes.bool),
    "x < x": lambda: with_itself((Ops.CMPLT,), (*SMALL, *FLOATS), dtypes.bool),
    "float(n) == float(n)": lambda: of_float_numbers(Ops.CMPEQ, Ops.CMPLE),
    "float(n) != float(n)": lambda: of_float_numbers(Ops.CMPNE),
    "float(n) < c": compared_with_numbers,
    "b == true": lambda: with_number(Ops.CMPEQ, True, (dtypes.bool,), True),
    "b != false": lambda: with_number(Ops.CMPNE, False, (dtypes.bool,), True),
    "not not b": denied,
    "x / 2**k": lambda: itertools.chain.from_iterable(
        with_number(Ops.DIV, value, FLOATS) for value in (2.0, -8.0, 0.25, 2.0 ** 13)),
    "- -x": lambda: (alu(Ops.NEG, alu(Ops.NEG, leaf(dtype, 0))) for dtype in _INT8_FLOATS),
    "x + -y": lambda: itertools.chain.from_iterable(
        both(Ops.ADD, leaf(dtype, 0), alu(Ops.NEG, leaf(dtype, 1))) for dtype in _INT8_FLOATS),
    "x - -y": lambda: (alu(Ops.SUB, leaf(dtype, 0), alu(Ops.NEG, leaf(dtype, 1)))
                       for dtype in _INT8_FLOATS),
    "where(constant)": lambda: itertools.chain(
        choices(lambda c, x, y: where(TRUE, x, y)), choices(lambda c, x, y: where(FALSE, x, y))),
    "where(c, x, x)": lambda: choices(lambda c, x, y: where(c, x, x)),
    "where(c, true, false)": lambda: iter([where(leaf(dtypes.bool, 2), TRUE, FALSE)]),
    "where(c, where(c, x, y), z)": lambda: choices(lambda c, x, y: where(c, where(c, x, y), y)),
    "where(c, x, where(c, y, z))": lambda: choices(lambda c, x, y: where(c, x, where(c, x, y))),
    "where(x <= c, c, x)": limited,
    "cast to the same type": lambda: (alu(Ops.CAST, leaf(dtype, 0)) for dtype in _INT8_FLOATS),
    "double cast": casts,
    "bitcast to the same type": lambda: (alu(Ops.BITCAST, leaf(dtype, 0))
                                         for dtype in _INT8_FLOATS),
}


def everything(node: UOp) -> list[float]:
    """All values of a leaf; of a floating type those that break wrong algebra."""
    if node.op is Ops.RANGE:
        return list(range(node.src[0].arg))
    if node.dtype.kind == "f":
        return EDGES
    return [False, True] if node.dtype.kind == "b" else \
        list(range(int(node.dtype.min), int(node.dtype.max) + 1))


def values_of(graph: UOp) -> dict[UOp, np.ndarray]:
    """Every combination of the values of all leaves."""
    leaves = [n for n in graph.toposort(lambda u: u.op is not Ops.LOAD and u.op is not Ops.RANGE)
              if n.op is Ops.LOAD or n.op is Ops.RANGE]
    columns = np.meshgrid(*[np.array(everything(n)) for n in leaves], indexing="ij")
    with np.errstate(all="ignore"):
        return {n: c.ravel().astype(n.dtype.numpy) for n, c in zip(leaves, columns, strict=True)}


@verifies("rewrite.simplify.exact")
@pytest.mark.parametrize("rule", ALGEBRA.rules, ids=lambda rule: rule.name)
def test_a_rule_keeps_every_value(rule: Rule) -> None:
    """All values of small types and the edges of the others, before and after this rule alone."""
    tried = 0
    for graph in EXAMPLES[rule.name]():
        found = apply(rule, graph)
        assert found is not None, f"{rule.name} does not apply to {graph!r}"
        assert found.dtype is graph.dtype
        values = values_of(graph)
        shape = next(iter(values.values()), np.zeros(1)).shape
        before, after = (np.broadcast_to(compute(node, values), shape) for node in (graph, found))
        assert bits(before) == bits(after), f"{rule.name}: {graph!r}"
        tried += 1
    assert tried


def of_bools(*ops: Ops, result: DType | None = None) -> Graphs:
    b, c = leaf(dtypes.bool, 0), leaf(dtypes.bool, 1)
    return (alu(op, b, c, dtype=result) for op in ops)


def of_halves() -> Graphs:
    """What NumPy computes with halves is rounded once; other functions are, after float64."""
    for dtype in (dtypes.float16, dtypes.bfloat16):
        x, y = leaf(dtype, 0), leaf(dtype, 1)
        yield from (alu(op, x, y) for op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV))
        yield alu(Ops.SQRT, x)
        yield alu(Ops.ADD, x, number(dtype, 0.1))


def of_shorts() -> Graphs:
    for dtype in SMALL:
        x, y = leaf(dtype, 0), leaf(dtype, 1)
        yield from (alu(op, x, y) for op in (
            Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MAXIMUM, Ops.MINIMUM,
            Ops.POW, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR))
        yield alu(Ops.NEG, x)


def as_bits(node: UOp, dtype: DType) -> UOp:
    return alu(Ops.BITCAST, node, dtype=dtype)


def to(targets: Iterable[DType], sources: Iterable[DType]) -> Graphs:
    return (alu(Ops.CAST, leaf(source, 0), dtype=target)
            for target, source in itertools.product(targets, sources))


#: The same for the rules by which a language gets what it lacks.
LEGAL: dict[str, Callable[[], Graphs]] = {
    "b + c": lambda: of_bools(*OF_BOOLS), "b ** c": lambda: of_bools(Ops.POW),
    "b << c": lambda: of_bools(Ops.SHL, Ops.SHR), "b mod c": lambda: of_bools(Ops.FLOORMOD),
    "-b": lambda: iter([alu(Ops.NEG, leaf(dtypes.bool, 0))]),
    "b < c": lambda: of_bools(Ops.CMPLT), "b <= c": lambda: of_bools(Ops.CMPLE),
    "floor(n)": lambda: (alu(op, leaf(dtype, 0)) for op in (Ops.TRUNC, Ops.FLOOR)
                         for dtype in (*SMALL, dtypes.bool)),
    "h + h": of_halves,
    "1 / x": lambda: (alu(Ops.RECIPROCAL, leaf(dtype, 0)) for dtype in FLOATS),
    "bool(x)": lambda: to([dtypes.bool], _INT8_FLOATS),
    "half(n)": lambda: to(HALF, [*SMALL, dtypes.int16, dtypes.bool]),
    "bfloat16(double)": lambda: to([dtypes.bfloat16], [dtypes.float64]),
    "short(x)": lambda: to(SMALL, FLOATS), "uint32(x)": lambda: to([dtypes.uint32], FLOATS),
    "short + short": of_shorts,
    "-n": lambda: (alu(Ops.NEG, leaf(dtype, 0)) for dtype in SMALL),
    "number(b)": lambda: to(_INT8_FLOATS, [dtypes.bool]),
    "bits of bits": lambda: iter([as_bits(as_bits(leaf(dtypes.float32, 0), dtypes.uint32),
                                          dtypes.float32)]),
    "bits of n": lambda: (as_bits(leaf(one, 0), two)
                          for one, two in itertools.permutations(SMALL, 2)),
    "bits of a half": lambda: (as_bits(leaf(one, 0), two) for one, two in (
        (dtypes.float16, dtypes.int16), (dtypes.int16, dtypes.float16),
        (dtypes.float16, dtypes.bfloat16), (dtypes.bfloat16, dtypes.float16))),
}
#: Rules about memory, which is tried with kernels.
MEMORY = {"load x", "store x"}


def meaning(graph: UOp, values: dict[UOp, np.ndarray]) -> np.ndarray:
    """What the reference device makes of a scalar expression."""
    done = dict(values)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for node in graph.toposort(lambda u: u not in values):
            if node.op is Ops.CONST:
                wide = node.dtype is dtypes.bfloat16
                done[node] = np.array(node.arg, np.float32 if wide else node.dtype.numpy)
            elif node not in done:
                done[node] = reference.compute(node, [done[source] for source in node.src])
    return done[graph]


@verifies("lowering.legal.exact+2")
@pytest.mark.parametrize("rule", [
    rule for rule in (*COMMON.rules, *UNSIGNED_CASTS.rules, *WORDS.rules)
    if rule.name not in MEMORY], ids=lambda rule: rule.name)
def test_what_a_language_lacks_has_its_value(rule: Rule) -> None:
    """All values of small types and the edges of the others, by the reference device."""
    tried = 0
    for graph in LEGAL[rule.name]():
        found = apply(rule, graph)
        assert found is not None and found.dtype is graph.dtype, f"{rule.name}: {graph!r}"
        given = {node: reference.round_to(each.astype(np.float32), node.dtype)
                 if node.dtype is dtypes.bfloat16 else each
                 for node, each in values_of(graph).items()}
        shape = next(iter(given.values())).shape
        before, after = (np.broadcast_to(meaning(node, given), shape) for node in (graph, found))
        assert before.dtype == after.dtype and bits(before) == bits(after), f"{rule.name}: {graph}"
        tried += 1
    assert tried


@verifies("lowering.legal.exact+2")
@pytest.mark.parametrize("dialect", [C, OpenCL, CUDA, Metal, WGSL])
def test_nothing_that_a_language_lacks_is_printed(dialect: type[Dialect]) -> None:
    """Every example of a rule that a language wants is none any more, and is text."""
    made = dialect()
    rules = [rule for rule in made.rules.rules if rule.name in LEGAL]
    for graph in itertools.chain.from_iterable(LEGAL[rule.name]() for rule in rules):
        if dtypes.float64 not in {node.dtype for node in graph.toposort()}:
            assert not applies(legalize(graph, made.rules), made.rules)
            i = new_range(1, RangeKind.GLOBAL)
            place = UOp(Ops.INDEX, graph.dtype, (UOp(Ops.PARAM, graph.dtype, (), 9), i, TRUE))
            store = UOp(Ops.STORE, graph.dtype, (place, graph))
            kernel = UOp(Ops.SINK, dtypes.bool, (store,), KernelInfo("example", prefix=(i,)))
            assert render(kernel, made).text == render(legalize(kernel, made.rules), made).text


@verifies("lowering.legal.exact+2")
@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
def test_memory_of_bits_holds_what_memory_holds(dtype: DType) -> None:
    """A kernel that copies, and one that computes, before and after `WORDS`."""
    i, given = new_range(64, RangeKind.GLOBAL), kb.special(dtype)
    value = kb.load(kb.param(1, dtype), i)
    for stored in (value, kb.apply(Ops.WHERE, kb.apply(Ops.CMPEQ, value, value), value, value)):
        ast = kb.kernel(kb.store(kb.param(0, dtype), i, stored), prefix=(i,))
        words, outs = legalize(ast, WORDS), [np.zeros_like(given) for _ in range(2)]
        assert all(node.dtype.kind == "u" for node in words.toposort() if node.op is Ops.PARAM)
        for kernel, out in zip((ast, words), outs, strict=True):
            kb.run(kernel, out, given, device="REFERENCE")
        assert outs[0].tobytes() == outs[1].tobytes() == given.tobytes()


@verifies("rewrite.simplify.exact")
@pytest.mark.parametrize("op", sorted(NEUTRAL), ids=lambda op: Ops(op).name)
def test_what_changes_nothing_changes_no_bit(op: Ops) -> None:
    """Every number of small types, and the edges of the others, right and left of everything."""
    kinds = "f" if op in FLOAT_ONLY else "biuf" if op in (Ops.ADD, Ops.SUB, Ops.MUL) else "biu"
    for dtype in (dtype for dtype in (*SMALL, dtypes.bool, *FLOATS) if dtype.kind in kinds):
        x = leaf(dtype, 0)
        for value, left in itertools.product(everything(x), (False, True)):
            if NEUTRAL[op](number(dtype, value).arg) and (not left or op in COMMUTATIVE):
                all_values, single = values_of(x)[x], np.array(value, dtype.numpy)
                node = alu(op, *((number(dtype, value), x) if left else (x, number(dtype, value))))
                parts = [single, all_values] if left else [all_values, single]
                found = reference.compute(node, parts)
                assert bits(found) == bits(all_values), (op, dtype, value)


def live_lists() -> dict[str, PatternMatcher]:
    """The lists of rules that the modules of the implementation hold, by module and name."""
    found: dict[str, PatternMatcher] = {}
    for entry in pkgutil.walk_packages(impl.__path__, "impl."):
        if not entry.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(entry.name)).items():
                if isinstance(value, PatternMatcher) and value not in found.values():
                    found[f"{entry.name}.{name}"] = value
    return found


#: The lists whose rules are tested one by one, and the names that the tests have examples for.
TESTED = [set(EXAMPLES), set(LEGAL), MEMORY, set(DERIVATIVES)]


@verifies("rewrite.rule.named")
def test_every_rule_of_every_list_has_a_name_a_reason_and_a_test() -> None:
    lists = live_lists()
    assert any(matcher.rules == ALGEBRA.rules for matcher in lists.values())
    for where_, matcher in lists.items():
        names = [rule.name for rule in matcher.rules]
        assert len(set(names)) == len(names), where_
        for rule in PatternMatcher(matcher.rules).rules:
            assert rule.name and "lambda" not in rule.name, f"{where_}: {rule.name} has no name"
            assert rule.reason, f"{where_}: {rule.name} has no reason"
            assert any(rule.name in tested for tested in TESTED), f"{where_}: {rule.name}: no test"
    assert set(EXAMPLES) == {rule.name for rule in ALGEBRA.rules}


@verifies("rewrite.rule.first")
def test_the_chapter_shows_the_function_that_is_made() -> None:
    chapter = (ROOT / "spec" / "rewrite.md").read_text(encoding="utf-8")
    assert f"```text\n{ALGEBRA.text(Ops.NEG)}```" in chapter
