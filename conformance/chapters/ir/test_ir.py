"""The node: identity, walks, and what each stage refuses. See spec/ir.md."""
from __future__ import annotations

import copy
import gc
import math
import pickle
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conformance.trace import verifies
from impl import Tensor, Variable, ir
from impl.dtypes import DType, dtypes
from impl.effects import Buffer
from impl.errors import GraphError, ImmutableError
from impl.ir import (
    FLOAT_ONLY,
    TRUE,
    KernelInfo,
    Ops,
    RangeKind,
    UOp,
    interned_count,
    new_range,
    toposort,
)
from impl.places import Place
from impl.rewrite import LEVELS, verify


def iota(size: int, dtype: DType = dtypes.int32) -> UOp:
    return UOp(Ops.IOTA, dtype, (), size)


def number(value: Any, dtype: DType = dtypes.int32) -> UOp:
    return UOp.const(dtype, value)


def reshape(node: UOp, *shape: int) -> UOp:
    return UOp(Ops.RESHAPE, node.dtype, (node,), shape)


def chain(length: int) -> UOp:
    node = iota(4)
    for _ in range(length):
        node = UOp(Ops.NEG, node.dtype, (node,))
    return node


# Identity


@verifies("ir.identity.one")
def test_equal_parts_are_one_object() -> None:
    first = UOp(Ops.ADD, dtypes.int32, (iota(5), number(1)))
    assert UOp(Ops.ADD, dtypes.int32, (iota(5), number(1))) is first
    others = [UOp(Ops.SUB, dtypes.int32, first.src), UOp(Ops.ADD, dtypes.int64, first.src),
              UOp(Ops.ADD, dtypes.int32, first.src[::-1]), first.rtag("seen")]
    assert len({first, *others}) == 5
    assert first.rtag("seen").rtag(None) is first
    assert first.replace() is first
    assert copy.copy(first) is first and copy.deepcopy(first) is first


@verifies("ir.identity.one")
def test_dead_nodes_leave_the_table() -> None:
    gc.collect()
    before = interned_count()
    node = chain(100)
    assert interned_count() >= before + 100
    del node
    gc.collect()
    assert interned_count() <= before + 1


@verifies("ir.identity.one")
def test_threads_get_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a node is slow here, so that all threads look for it before one has made it."""
    rule = ir._shape_rules[Ops.IOTA]

    def slow(src: tuple[UOp, ...], arg: Any) -> Any:
        time.sleep(0.02)
        return rule(src, arg)

    monkeypatch.setitem(ir._shape_rules, Ops.IOTA, slow)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(iota, [987654321] * 4))
    assert len({id(node) for node in made}) == 1


@verifies("ir.identity.one")
def test_leaves_of_a_buffer() -> None:
    buffer = Buffer(Place("CPU"), dtypes.int32, 6)
    size = Variable("size", 1, 9).bind(6)
    shapes: list[Any] = [(6,), (2, 3), (size,), (3, 2)]
    leaves = [buffer.leaf(shape) for shape in shapes]
    assert len({*leaves}) == 4
    assert [buffer.leaf(shape) for shape in shapes] == leaves
    assert UOp(Ops.BUFFER, dtypes.int32, (), (buffer, 0, (2, 3))) is leaves[1]
    tagged = leaves[0].rtag("seen")
    assert tagged.tag == "seen" and tagged is leaves[0].rtag("seen") is not leaves[0]
    assert tagged.rtag(None) is leaves[0] and tagged.shape == (6,) and tagged.reads == buffer.bit
    del leaves[1]
    buffer.version += 1
    assert buffer.leaf((6,)) is not leaves[0]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: buffer.leaf((2, 3)), range(64)))
    assert len({*made}) == 1


@verifies("ir.identity.one")
def test_a_node_that_dies_does_not_take_its_successor_along() -> None:
    """An equal node is made when a node is dead, and stands in the table still."""
    made: list[UOp] = []
    node = iota(987654322)
    # Python tells those first who asked last.
    watching = weakref.ref(node, lambda _: made.append(iota(987654322)))
    del node
    assert watching() is None
    assert iota(987654322) is made[0]


@verifies("ir.node.immutable")
@pytest.mark.parametrize("part", ["op", "dtype", "src", "arg", "tag", "shape", "origin", "more"])
def test_no_part_of_a_node_can_be_set_or_deleted(part: str) -> None:
    node = number(30717)  # nobody else has it: a mistake here would be found everywhere
    before = getattr(node, part, None)
    with pytest.raises(AttributeError, match=f"'{part}' of .*cannot be set.*node.replace"):
        setattr(node, part, 4)
    with pytest.raises(ImmutableError, match=f"'{part}' of .*cannot be deleted"):
        delattr(node, part)
    assert getattr(node, part, None) is before and number(30717) is node
    assert (Tensor([1, 2, 3]) + 30717).tolist() == [30718, 30719, 30720]


@verifies("ir.node.immutable")
def test_what_is_found_out_of_a_node_is_noted_all_the_same() -> None:
    node = reshape(iota(12), 3, 4)
    ir.note_origin(node, "model.py:3")
    assert node.origin == "model.py:3" and reshape(iota(12), 3, 4) is node
    assert type(node) is UOp and not hasattr(node, "__dict__")


@verifies("ir.identity.one")
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64])
def test_numbers_that_look_alike(dtype: DType) -> None:
    zero, minus = number(0.0, dtype), number(-0.0, dtype)
    assert zero is not minus and math.copysign(1, minus.arg) == -1
    assert number(math.nan, dtype) is number(-math.nan, dtype)
    assert number(float("inf") - float("inf"), dtype) is number(math.nan, dtype)
    assert number(1, dtype) is number(1.0, dtype) is number(True, dtype)
    assert number(math.inf, dtype) is not number(-math.inf, dtype)


@verifies("ir.identity.one")
def test_numbers_that_are_made_from_others() -> None:
    """However a number came to be: `replace` and `rtag` know the parts of a node only."""
    zero, minus, nan = (number(value, dtypes.float32) for value in (0.0, -0.0, math.nan))
    for node in (zero, minus, nan):
        assert node.replace(dtype=dtypes.float32) is node
        assert node.rtag("seen").rtag(None) is node
        assert node.replace(dtype=dtypes.float64) is number(node.arg, dtypes.float64)
    assert zero.rtag("seen") is not minus.rtag("seen")
    assert nan.rtag("seen") is number(-math.nan, dtypes.float32).rtag("seen")


@verifies("ir.identity.one")
def test_numbers_of_different_types_differ() -> None:
    nodes = {number(1, d) for d in (dtypes.bool, dtypes.int8, dtypes.int64, dtypes.index,
                                    dtypes.float32)}
    assert len(nodes) == 5
    assert number(True, dtypes.bool).arg is True
    assert type(number(True, dtypes.int8).arg) is int
    assert number(-1, dtypes.uint8) is number(255, dtypes.uint8)


@verifies("ir.identity.one")
def test_pickle_gives_the_same_object() -> None:
    graph = UOp(Ops.MUL, dtypes.float32, (UOp(Ops.CAST, dtypes.float32, (iota(6),)),
                                          number(-0.0, dtypes.float32)), None, "tag")
    again = pickle.loads(pickle.dumps(graph))
    assert again is graph
    assert math.copysign(1, again.src[1].arg) == -1
    for value in (3, 0.0, -0.0, math.nan):
        tagged = number(value, dtypes.float64 if isinstance(value, float) else dtypes.int8).rtag()
        assert pickle.loads(pickle.dumps(tagged)) is tagged


# Walks


@verifies("ir.walk.whole")
def test_sources_come_first_and_once() -> None:
    a, b = iota(3), number(2)
    shared = UOp(Ops.ADD, dtypes.int32, (a, b))
    root = UOp(Ops.MUL, dtypes.int32, (shared, UOp(Ops.SUB, dtypes.int32, (shared, a))))
    for order in (root.toposort(), toposort((root, shared, b)), toposort((b, root))):
        assert len(order) == 5 and set(order) == {a, b, shared, root.src[1], root}
        assert all(order.index(source) < order.index(u) for u in order for source in u.src)
    gated = root.toposort(lambda u: u is not shared)
    assert gated.index(shared) < gated.index(root.src[1]) and gated.index(a) < 2
    assert len(gated) == 4 and gated[2:] == [root.src[1], root]


@verifies("ir.walk.whole")
def test_substitute_replaces_everywhere() -> None:
    a, b, c = iota(3), number(2), number(7)
    root = UOp(Ops.MUL, dtypes.int32, (UOp(Ops.ADD, dtypes.int32, (a, b)), b))
    changed = root.substitute({b: c})
    assert changed is UOp(Ops.MUL, dtypes.int32, (UOp(Ops.ADD, dtypes.int32, (a, c)), c))
    assert root.substitute({}) is root
    assert root.substitute({root: c}) is c


@verifies("ir.walk.whole")
def test_a_chain_of_100_000() -> None:
    deep = chain(100_000)
    assert len(deep.toposort()) == 100_001
    moved = deep.substitute({iota(4): iota(5)})
    assert moved.shape == (5,)
    assert pickle.loads(pickle.dumps(moved)) is moved
    verify(moved, "tensor")


# Shapes


@verifies("ir.shape.tensor")
def test_shapes_of_elementwise_nodes() -> None:
    assert UOp(Ops.ADD, dtypes.int32, (iota(3), number(1))).shape == (3,)
    assert UOp(Ops.ADD, dtypes.int32, (number(2), number(1))).shape == ()
    with pytest.raises(GraphError, match=r"\(3,\) and \(4,\)"):
        UOp(Ops.ADD, dtypes.int32, (iota(3), iota(4)))
    with pytest.raises(GraphError, match="as many elements"):
        reshape(iota(6), 4, 2)


@verifies("ir.shape.tensor")
@pytest.mark.parametrize("op, arg, shape", [
    (Ops.RESHAPE, (3, 2), (3, 2)), (Ops.EXPAND, (2, 3), (2, 3)), (Ops.PERMUTE, (1, 0), (3, 2)),
    (Ops.PAD, ((1, 0), (2, 2)), (3, 7)), (Ops.SHRINK, ((0, 1), (1, 3)), (1, 2)),
    (Ops.FLIP, (0,), (2, 3)), (Ops.UNFOLD, (1, 2, 2, 1, 1), (2, 2, 2)),
    (Ops.FOLD, (0, 4, 1, 1), (4,)), (Ops.REDUCE, (Ops.ADD, (1,)), (2, 1)),
    (Ops.SCAN, (Ops.MUL, 1), (2, 3)),
    (Ops.CONTIGUOUS, None, (2, 3)), (Ops.COPY, "CPU", (2, 3)), (Ops.CAST, None, (2, 3))])
def test_shapes_of_other_nodes(op: Ops, arg: Any, shape: tuple[int, ...]) -> None:
    node = UOp(op, dtypes.int32, (reshape(iota(6), 2, 3),), arg)
    assert node.shape == shape
    verify(node, "tensor")


# What verifiers refuse

FLOATING = sorted(FLOAT_ONLY - {Ops.DIV})
A, F = reshape(iota(6), 2, 3), reshape(iota(6, dtypes.float32), 2, 3)
B = UOp(Ops.CMPLT, dtypes.bool, (A, number(1)))
LOOP = new_range(6, RangeKind.LOOP, 0)
OUTER = new_range(6, RangeKind.GLOBAL, 1)
POINTER = UOp(Ops.PARAM, dtypes.int32, (), 0)
PLACE = UOp(Ops.INDEX, dtypes.int32, (POINTER, LOOP, TRUE))
LOAD = UOp(Ops.LOAD, dtypes.int32, (PLACE,))
STORE = UOp(Ops.STORE, dtypes.int32, (PLACE, LOAD, LOOP))
KERNEL = UOp(Ops.SINK, dtypes.int32, (STORE,), KernelInfo("copy", (OUTER,)))


def movement(op: Ops, arg: Any) -> UOp:
    """The node, even where its shape could not be computed."""
    return UOp(op, dtypes.int32, (A,), arg)


def after(view: UOp, value: UOp, base: UOp = A) -> UOp:
    return UOp(Ops.AFTER, base.dtype, (base, UOp(Ops.STORE, view.dtype, (view, value))))


def through_windows(count: int, size: int, step: int, dilation: int) -> UOp:
    """A write of one number through windows of 13 elements."""
    base = iota(13)
    windows = UOp(Ops.UNFOLD, dtypes.int32, (base,), (0, count, size, step, dilation))
    return after(windows, number(3), base)


def stored(*sources: UOp) -> UOp:
    return UOp(Ops.STORE, dtypes.int32, sources)


#: By the rule that they break, and what of it.
TENSOR_FAULTS: dict[str, list[UOp]] = {
    "ir.stage.operations tensor": [
        LOOP, POINTER, UOp(Ops.LOCAL, dtypes.int32, (), (0, 4))],
    "ir.source.legal count": [
        UOp(Ops.ADD, dtypes.int32, (A,)), UOp(Ops.NEG, dtypes.int32, (A, A))],
    "ir.source.legal fits": [
        UOp(Ops.CONST, dtypes.uint8, (), 256), UOp(Ops.CONST, dtypes.int8, (), 1.5),
        UOp(Ops.CONST, dtypes.float32, (), 0.1),
        UOp(Ops.CONST, dtypes.float32, (), 9876)],
    "ir.dtype.operands equal": [
        UOp(Ops.ADD, dtypes.int32, (A, number(1.0, dtypes.float32))),
        UOp(Ops.NEG, dtypes.float32, (A,))],
    "ir.dtype.operands comparison": [
        UOp(Ops.CMPLT, dtypes.int32, (A, A)),
        UOp(Ops.CMPEQ, dtypes.bool, (A, number(1, dtypes.int8)))],
    "ir.dtype.operands where": [
        UOp(Ops.WHERE, dtypes.int32, (A, A, A)),
        UOp(Ops.WHERE, dtypes.int32, (B, A, F))],
    "ir.dtype.operands float": [
        *(UOp(op, dtypes.int32, (A,)) for op in FLOATING),
        UOp(Ops.DIV, dtypes.int32, (A, A))],
    "ir.dtype.operands integer": [
        UOp(op, node.dtype, (node, node)) for node in (F, B)
        for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR)],
    "ir.dtype.operands bits": [
        UOp(op, dtypes.float32, (F, F)) for op in (Ops.AND, Ops.OR, Ops.XOR)],
    "ir.dtype.operands bitcast": [
        UOp(Ops.BITCAST, dtypes.int64, (A,))],
    "ir.movement.argument expand": [
        movement(Ops.EXPAND, (4, 3)), movement(Ops.EXPAND, (1, 2, 3))],
    "ir.movement.argument permute": [
        movement(Ops.PERMUTE, axes) for axes in ((0, 0), (0,), (0, 1, 1))],
    "ir.movement.argument pad": [
        movement(Ops.PAD, ((0, -1), (0, 0)))],
    "ir.movement.argument shrink": [
        movement(Ops.SHRINK, ((0, 3), (0, 3))),
        movement(Ops.SHRINK, ((1, 0), (0, 3))),
        movement(Ops.SHRINK, ((-1, 1), (0, 3)))],
    "ir.movement.argument flip": [
        movement(Ops.FLIP, (2,)), movement(Ops.FLIP, (0, 0))],
    "ir.movement.argument unfold": [
        movement(Ops.UNFOLD, (1, 3, 2, 1, 1)),
        movement(Ops.UNFOLD, (1, 2, 2, 0, 1))],
    "ir.movement.argument fold": [
        movement(Ops.FOLD, (0, 3, 1, 1)), movement(Ops.FOLD, (1, 9, 1, 1))],
    "ir.reduce.operands axes": [
        movement(Ops.REDUCE, (Ops.SUB, (0,))), movement(Ops.REDUCE, (Ops.ADD, (2,))),
        movement(Ops.REDUCE, (Ops.ADD, (0, 0)))],
    "ir.reduce.operands index": [
        UOp(Ops.GATHER, dtypes.int32, (A, F)),
        UOp(Ops.GATHER, dtypes.int32, (number(1), A))],
    "ir.reduce.operands axis": [
        movement(Ops.SCAN, (Ops.SUB, 0)), movement(Ops.SCAN, (Ops.ADD, 2)),
        UOp(Ops.SCAN, dtypes.int32, (A, F), (Ops.ADD, 0, 4)),
        UOp(Ops.SCAN, dtypes.int32, (A, iota(2)), (Ops.ADD, 0, 4)),
        UOp(Ops.SCAN, dtypes.int32, (A, A), (Ops.ADD, 0))],
    "ir.reduce.operands rows": [
        UOp(Ops.SCATTER, dtypes.int32, (A, iota(2), iota(2))),
        UOp(Ops.SCATTER, dtypes.int32, (iota(4), iota(2), iota(3))),
        UOp(Ops.SCATTER, dtypes.int32, (iota(4), iota(2), iota(2)), Ops.SUB)],
    "ir.write.legal value": [
        after(A, F), after(A, iota(3))],
    "ir.write.legal chain": [
        after(F, F), after(movement(Ops.EXPAND, (2, 3)), A),
        UOp(Ops.AFTER, dtypes.int32, (A, A)),
        through_windows(2, 2, 1, 1), through_windows(2, 2, 2, 2),
        through_windows(3, 4, 3, 2)],
    "ir.shape.tensor known": [
        UOp(Ops.NEG, dtypes.int32, (UOp(Ops.STORE, dtypes.int32, (A, A)),))],
}
KERNEL_FAULTS: dict[str, list[UOp]] = {
    "ir.stage.operations kernel": [
        A, UOp(Ops.DETACH, dtypes.int32, (LOAD,))],
    "ir.kernel.sink": [
        UOp(Ops.SINK, dtypes.int32, (STORE,)), KERNEL.replace(src=(LOAD,)),
        KERNEL.replace(src=()), KERNEL.replace(arg=KernelInfo("copy", (LOOP,)))],
    "ir.kernel.operands range": [
        UOp(Ops.RANGE, dtypes.int32, (number(3),), (0, RangeKind.LOOP)),
        UOp(Ops.RANGE, dtypes.index, (number(3),), (0, RangeKind.LOOP))],
    "ir.kernel.operands index": [
        UOp(Ops.INDEX, dtypes.int32, (LOAD, LOOP, TRUE)),
        UOp(Ops.INDEX, dtypes.int32, (POINTER, number(0), TRUE)),
        UOp(Ops.INDEX, dtypes.int32, (POINTER, LOOP, LOOP)),
        UOp(Ops.INDEX, dtypes.int8, (POINTER, LOOP, TRUE))],
    "ir.kernel.operands load": [
        UOp(Ops.LOAD, dtypes.int32, (POINTER,)),
        UOp(Ops.LOAD, dtypes.int8, (PLACE,))],
    "ir.kernel.operands store": [
        stored(POINTER, LOAD), stored(PLACE, number(1, dtypes.int8)),
        stored(PLACE, LOAD, LOAD), stored(PLACE, LOAD, LOOP, LOOP), stored(PLACE)],
    "ir.kernel.operands reduce": [
        UOp(Ops.REDUCE, dtypes.int32, (LOAD,), Ops.ADD),
        UOp(Ops.REDUCE, dtypes.int32, (LOAD, LOOP), Ops.SUB),
        UOp(Ops.REDUCE, dtypes.int64, (LOAD, LOOP), Ops.ADD),
        UOp(Ops.REDUCE, dtypes.int32, (LOAD, LOOP, LOOP), Ops.ADD)],
}


@verifies("ir.verify.names")
def test_legal_graphs_pass() -> None:
    verify(KERNEL, "kernel")
    view = UOp(Ops.SHRINK, dtypes.int32, (A,), ((0, 1), (0, 3)))
    verify(UOp(Ops.SINK, dtypes.int32, (after(view, number(3)), B)), "tensor")
    for windows in ((1, 3, 1, 1), (3, 1, 1, 1), (2, 2, 2, 1), (2, 2, 1, 2), (3, 3, 3, 2)):
        verify(through_windows(*windows), "tensor")
    reduced = UOp(Ops.REDUCE, dtypes.int32, (LOAD, LOOP), Ops.ADD)
    verify(KERNEL.replace(src=(stored(PLACE, reduced, LOOP),)), "kernel")


@verifies("ir.verify.names")
def test_message_names_node_rule_and_line() -> None:
    bad = UOp(Ops.EXP, dtypes.int8, (iota(9, dtypes.int8),))
    ir.note_origin(bad, "model.py:7")
    with pytest.raises(GraphError) as caught:
        verify(UOp(Ops.NEG, dtypes.int8, (bad,)), "tensor")
    for part in ("EXP", "int8", "r[ir.dtype.operands]", "at model.py:7"):
        assert part in str(caught.value)


@verifies("ir.verify.names")
def test_every_requirement_has_faults() -> None:
    for stage, faults in (("tensor", TENSOR_FAULTS), ("kernel", KERNEL_FAULTS)):
        shared = set(TENSOR_FAULTS)
        assert {r.rule for r in LEVELS[stage]} <= {
            case.partition(" ")[0] for case in {*faults, *shared}}


@verifies("ir.stage.operations+2")
@verifies("ir.source.legal")
@verifies("ir.dtype.operands")
@verifies("ir.movement.argument")
@verifies("ir.reduce.operands")
@verifies("ir.write.legal")
@verifies("ir.shape.tensor")
@pytest.mark.parametrize("case", TENSOR_FAULTS)
def test_malformed_tensor_graphs(case: str) -> None:
    for node in TENSOR_FAULTS[case]:
        with pytest.raises(GraphError, match="breaks") as caught:
            verify(node, "tensor")
        assert f"r[{case.partition(' ')[0]}]" in str(caught.value), node


@verifies("ir.stage.operations+2")
@verifies("ir.kernel.sink+2")
@verifies("ir.kernel.operands+2")
@pytest.mark.parametrize("case", KERNEL_FAULTS)
def test_malformed_kernels(case: str) -> None:
    for node in KERNEL_FAULTS[case]:
        with pytest.raises(GraphError, match="breaks") as caught:
            verify(node, "kernel")
        assert f"r[{case.partition(' ')[0]}]" in str(caught.value), node
