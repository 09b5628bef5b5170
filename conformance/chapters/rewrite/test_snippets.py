"""Rules and graphs as they are written for tinygrad work here, or docs/differences.md says how."""
from __future__ import annotations

from typing import Any

import pytest

from conformance.trace import verifies
from impl import Tensor, Variable
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import KernelInfo, Ops, RangeKind, UOp, new_range
from impl.rewrite import PatternMatcher, UPat, graph_rewrite


def number(value: int) -> UOp:
    return UOp.const(dtypes.int32, value)


def flatten(parts: Any) -> list[UOp]:
    return [node for part in parts for node in part]


@verifies("rewrite.match.sources")
def test_the_sum_of_a_number_with_itself() -> None:
    rules = PatternMatcher([
        (UPat(Ops.ADD, src=(UPat.cvar("x"), UPat.cvar("x"))), lambda x: x * 2),
    ])
    result = graph_rewrite(UOp(Ops.ADD, dtypes.int32, (number(4), number(4))), rules)
    assert result is UOp(Ops.MUL, dtypes.int32, (number(4), number(2)))
    other = UOp(Ops.ADD, dtypes.int32, (number(4), number(5)))
    assert graph_rewrite(other, rules) is other


@verifies("rewrite.order.visits")
def test_parameters_are_replaced_by_what_the_context_has() -> None:
    """A rule with the context first, and one that calls a rewrite of its own, with another one."""
    to_values = PatternMatcher([(UPat(Ops.PARAM, name="x"), lambda ctx, x: ctx[1][x.arg])])
    resolve = PatternMatcher([
        (UPat(Ops.CALL, src=(UPat(Ops.LINEAR),), name="call", allow_any_len=True), lambda call:
         graph_rewrite(call.src[0], to_values, ctx=({}, call.src[1:]), order="walk",
                       name="parameters to buffers")),
        (UPat(Ops.LINEAR, custom_early_reject={Ops.LINEAR}, name="x"), lambda x: x.replace(
            src=tuple(flatten(x.src if x.op is Ops.LINEAR else (x,) for x in x.src)))),
    ])
    inner = UOp(Ops.LINEAR, dtypes.int32, tuple(UOp(Ops.PARAM, dtypes.int32, (), n)
                                                for n in range(2)))
    call = UOp(Ops.CALL, dtypes.int32, (inner, number(7), number(8)))
    resolved = graph_rewrite(call, resolve, name="resolve")
    assert [node.arg for node in resolved.src] == [7, 8] and resolved.op is Ops.LINEAR
    nested = UOp(Ops.LINEAR, dtypes.int32, (resolved, number(9)))
    assert [node.arg for node in graph_rewrite(nested, resolve).src] == [7, 8, 9]


@verifies("rewrite.rule.first")
def test_a_function_with_a_name_decides_itself() -> None:
    def lower(function: UOp) -> UOp | None:
        return None if isinstance(function.arg, KernelInfo) else UOp(
            Ops.LINEAR, function.dtype, function.src)

    rules = PatternMatcher([(UPat(Ops.SINK, name="function"), lower)])
    assert graph_rewrite(number(3).sink(), rules).op is Ops.LINEAR
    kernel = number(3).sink(number(4), arg=KernelInfo("test"))
    assert graph_rewrite(kernel, rules) is kernel and len(kernel.src) == 2


@verifies("ir.walk.whole")
def test_what_one_asks_of_a_tensors_graph() -> None:
    tensor = Tensor([1.0, 2.0]) * 3 + 1
    root = tensor.uop.sink()
    assert root.op is Ops.SINK and root.src == (tensor.uop,)
    assert [u.arg for u in root.toposort() if u.op is Ops.CONST] == [3.0, 1.0]
    variable, value = Variable("n", 1, 9).bind(4).unbind()
    assert variable.arg[0] == "n" and value == 4 and variable.variables() == [variable]
    assert tensor.uop.rtag("seen").replace(arg=None).tag == "seen"


@verifies("symbolic.node.arithmetic")
def test_arithmetic_on_nodes() -> None:
    x, i = number(4), new_range(8, RangeKind.LOOP, 0)
    wanted = [(Ops.ADD, x, number(1)), (Ops.ADD, number(1), x), (Ops.SUB, x, number(1)),
              (Ops.FLOORDIV, x, number(2)), (Ops.FLOORMOD, x, number(2)), (Ops.SUB, number(3), x)]
    assert [x + 1, 1 + x, x - 1, x // 2, x % 2, 3 - x] == [
        UOp(op, dtypes.int32, (left, right)) for op, left, right in wanted]
    assert i + 0 is i and (i * 4) // 4 is i and (i * 4 + i) is i * 5
    with pytest.raises(GraphError, match="int32 and float32 meet"):
        x + UOp.const(dtypes.float32, 1.0)
    with pytest.raises(TypeError):
        x + "1"
