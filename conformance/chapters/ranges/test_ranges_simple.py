"""What the algebra takes away is in no stage, no kernel and no text. See spec/ranges.md."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor
from impl.dialects import C
from impl.dtypes import dtypes
from impl.ir import KernelInfo, Ops, RangeKind, UOp, new_range
from impl.render import render
from impl.rewrite import is_simple
from impl.searching import optimize

INTS = np.array([-7, -1, 0, 3, 2**31 - 1, -2**31], np.int32)
FLOATS = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan], np.float32)
#: What is written down: (the expression, the operations that its kernel may have).
PROGRAMS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], set[Ops]]] = {
    "-(-x)": (lambda i, x, c: (-x).neg(), set()),
    "x + 0": (lambda i, x, c: (i * 3 + 0) * 1, {Ops.MUL}),
    "(i*4)//4": (lambda i, x, c: (c * 4) // 4, {Ops.CAST}),
    "(i*4 + 3)//4": (lambda i, x, c: (c * 4 + 3) // 4, {Ops.CAST}),
    "(i*4 + 3) mod 4": (lambda i, x, c: (c * 4 + 3) % 4, set()),
    "a condition that always holds": (lambda i, x, c: (c < 6).where(x, x * 2), set()),
    "one that never does": (lambda i, x, c: (c > 5).where(x * 2, i.cast("float32")), {Ops.CAST}),
    "there and back": (lambda i, x, c: i.cast("int64").cast("int32"), set()),
    "x + 1 + 2": (lambda i, x, c: i + 1 + 2, {Ops.ADD}),
    "x * 0": (lambda i, x, c: i * 0 + c, {Ops.CAST}),
    "x / 4": (lambda i, x, c: x / 4, {Ops.MUL}),
    "kept: x + 0.0": (lambda i, x, c: x + 0.0, {Ops.ADD}),
    "kept: x * 0.0": (lambda i, x, c: x * 0.0, {Ops.MUL}),
    "kept: (x*4)//4": (lambda i, x, c: (i * 4) // 4, {Ops.MUL, Ops.FLOORDIV}),
    "kept: x - x": (lambda i, x, c: x - x, {Ops.SUB}),
}
ARITHMETIC = set(map(Ops, range(Ops.NEG, Ops.RESHAPE)))


@pytest.mark.slow
@verifies("ranges.stage.lean")
@verifies("rewrite.simplify.exact")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_reaches_a_kernel(name: str) -> None:
    write, allowed = PROGRAMS[name]
    tensors = [Tensor(INTS).realize(), Tensor(FLOATS).realize(), Tensor.arange(6)]
    steps = write(*tensors).schedule()
    found = {node.op for step in steps for node in step.ast.src[0].src[1].toposort()
             if node.dtype is not dtypes.index} & ARITHMETIC
    assert found <= allowed and (found or not name.startswith("kept"))
    assert all(is_simple(step.ast) for step in steps)
    with np.errstate(all="ignore"):
        value = write(*tensors).numpy()
        with Context(DEVICE="REFERENCE"):
            others = [Tensor(INTS).realize(), Tensor(FLOATS).realize(), Tensor.arange(6)]
            other = write(*others).numpy()
    assert np.array_equal(value, other, equal_nan=True)
    assert np.array_equal(np.signbit(value), np.signbit(other)) or np.isnan(value).any()


@verifies("ranges.stage.lean")
def test_equal_kernels_are_one() -> None:
    """What is left is what would have been written without the idle part."""
    x, y = Tensor(FLOATS).realize(), Tensor(INTS).realize()
    plain, idle = (t.schedule()[0].ast for t in (x * 2, (-x).neg() * (y * 0 + 2).cast("float32")))
    assert plain is idle


@verifies("ranges.stage.lean")
def test_what_is_not_needed_is_not_read() -> None:
    x, y = Tensor(FLOATS).realize(), Tensor(INTS).realize()
    document = (x + (y * 0).cast("float32")).schedule_document()
    assert [len(kernel["reads"]) for kernel in document["kernels"]] == [1]
    step, = (x + (y * 0).cast("float32")).schedule()
    assert len(step.bufs) == 2  # the result and x
    total = (Tensor(INTS).realize().sum() * 0 + y)
    assert total.tolist() == INTS.tolist()
    scan = (y * 0 + x.cast("int64").cast("int32") * 0).cumsum() + 1
    assert scan.tolist() == [1] * 6


@verifies("rewrite.simplify.kernels")
def test_a_kernel_by_hand_is_simple_before_it_is_text() -> None:
    loop = new_range(8, RangeKind.GLOBAL, 0)
    true = UOp.const(dtypes.bool, True)
    pointers = [UOp(Ops.PARAM, dtypes.int32, (), n) for n in (0, 1)]
    target, source = (UOp(Ops.INDEX, dtypes.int32, (p, loop, true)) for p in pointers)
    value = UOp(Ops.LOAD, dtypes.int32, (source,))
    for _ in range(3):
        value = UOp(Ops.NEG, dtypes.int32, (UOp(Ops.NEG, dtypes.int32, (
            UOp(Ops.ADD, dtypes.int32, (value, UOp.const(dtypes.int32, 0))),)),))
    store = UOp(Ops.STORE, dtypes.int32, (target, value))
    made = optimize(UOp(Ops.SINK, dtypes.int32, (store,), KernelInfo("copy", (loop,))))
    assert is_simple(made) and not {Ops.NEG, Ops.ADD} & {
        n.op for n in made.toposort() if n.dtype is dtypes.int32}
    assert "-" not in render(made, C()).body.partition("for")[2]
