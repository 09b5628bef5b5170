"""Kernels of many stages: tiles, vectors, short texts. Chapters: choosing, render."""
from __future__ import annotations

import functools
import math
import re

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import flat, load, param, reduce, store
from conformance.trace import verifies
from impl import Context, Tensor, symbolic
from impl.choosing import hand_steps
from impl.dialects import C
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits, growth
from impl.kernel.analysis import Growths
from impl.render import render
from impl.searching import optimize
from impl.steps import Step, Upcast, apply_steps

WIDE = DeviceLimits(vector_bytes=64, vector_registers=32)
pytestmark = pytest.mark.device("CPU")


@functools.cache
def transformer_block() -> tuple[UOp, ...]:
    """The kernels of attention, a wide layer and their gradients, as they are planned."""
    batch, length, width = 4, 32, 64
    sizes = ((50, width), (width, 3 * width), (width, width), (width, 4 * width),
             (4 * width, width))
    with Context(DEVICE="CPU"):
        ids = Tensor(np.zeros((batch, length), np.int32)).realize()
        weights = [Tensor(np.ones(size, np.float32)).realize() for size in sizes]
        for weight in weights:
            weight.requires_grad = True
        table, joint, out, up, down = weights
        x = table[ids]
        parts = (x.layernorm() @ joint).split(width, dim=2)
        q, k, v = [part.reshape(batch, length, 2, width // 2).transpose(1, 2) for part in parts]
        y = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2)
        x = x + y.reshape(batch, length, width) @ out
        x = x + (x.layernorm() @ up).gelu() @ down
        loss = (x * x).mean()
        loss.backward()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        found = loss.schedule(*gradients)
        return tuple(item.ast for item in found)


def tile(known: Analysis, node: UOp) -> int:
    """How many numbers a value is, side by side."""
    return math.prod(loop.src[0].arg for loop in known.loops(known.free[node] & known.lanes))


@verifies("choosing.product.tile")
def test_the_tiles_of_two_reductions_are_not_multiplied() -> None:
    for ast in transformer_block():
        known = Analysis(optimize(ast, WIDE))
        sums = [node for node in known.order if node.op is Ops.REDUCE]
        assert all(tile(known, node) <= 32 * 16 for node in sums), ast.arg.name


@verifies("choosing.product.tile")
def test_a_loop_in_which_another_reduction_has_lanes_is_not_cut() -> None:
    """Rows of four maxima: a tile of eight rows of the product would make 32 maxima of them."""
    i, j = (new_range(64, RangeKind.GLOBAL) for _ in range(2))
    k, m = (new_range(256, RangeKind.REDUCE) for _ in range(2))
    most = reduce(Ops.MAXIMUM, load(param(1), flat((i, 64 * 256), (j, 256), (k, 1))), k)
    total = reduce(Ops.ADD, kb.apply(Ops.MUL, load(param(2), flat((i, 256), (m, 1))),
                                     load(param(3), flat((m, 1)))), m)
    ast = apply_steps(kb.kernel(store(param(0), flat((i, 64), (j, 1)),
                                      kb.apply(Ops.ADD, most, total)), prefix=(i, j)),
                      [Upcast(1, 4)])
    known = Analysis(apply_steps(ast, [step for step, _ in hand_steps(ast, WIDE)]))
    assert max(tile(known, node) for node in known.order if node.op is Ops.REDUCE) == 4 * 16


@verifies("choosing.plain.lanes")
def test_many_stages_get_one_vector_each() -> None:
    most = max(transformer_block(), key=lambda ast: len(ast.src))
    steps = hand_steps(most, WIDE)
    assert len(most.src) > 20
    assert any(reason == "vector along the contiguous loop" for _, reason in steps)
    assert not any(reason == "several vectors" for _, reason in steps)
    short = hand_steps(kb.softmax(64, 1024), WIDE)
    assert any(reason == "several vectors" for _, reason in short)


@verifies("steps.value.equal")
def test_what_a_step_left_alone_need_not_be_looked_at_again() -> None:
    """Step by step, an analysis that knows the one before says what a fresh one says."""
    for ast in transformer_block():
        known = Analysis(ast)
        seen: Growths = {}, {}
        for step, _ in hand_steps(ast, WIDE):
            assert isinstance(step, Step)
            changed = step.apply(known)
            known, fresh = Analysis(changed, known), Analysis(changed)
            assert known.free == fresh.free
            assert (known.ranges, known.lanes) == (fresh.ranges, fresh.lanes)
            found = growth(known.order, known.ranges, seen)
            assert growth(fresh.order, fresh.ranges).items() <= found.items()


def sums(stages: int) -> UOp:
    """out[s, r, c] = sum over k of a[k, r] * b[s, k, c]: every stage has its own column loop."""
    row, stores = new_range(64, RangeKind.GLOBAL), []
    for stage in range(stages):
        column, k = new_range(64, RangeKind.LOOP), new_range(32, RangeKind.REDUCE)
        product = kb.apply(Ops.MUL, load(param(1), flat((k, 64), (row, 1))),
                           load(param(2), symbolic.add(flat((k, 64), (column, 1)), 2048 * stage)))
        place = symbolic.add(flat((row, 64), (column, 1)), 4096 * stage)
        stores.append(store(param(0), place, reduce(Ops.ADD, product, k), column))
    return kb.kernel(*stores, prefix=(row,))


@verifies("lowering.vector.choice")
def test_one_lane_does_not_take_the_vectors_of_all_stages() -> None:
    """The rows are a lane of every stage, and worth more than any column, but not than all."""
    ast = apply_steps(sums(4), [Upcast(0, 8)])
    while (place := column_of(ast)) is not None:
        ast = apply_steps(ast, [Upcast(place, 16)])
    text = render(ast, C()).body
    assert len(re.findall(r"f32x16 a\d+_", text)) == 4 * 8
    assert not re.findall(r"f32x8 a\d+_", text)
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-3, 4, size).astype(np.float32) for size in ((32, 64), (4, 32, 64)))
    out = np.zeros((4, 64, 64), np.float32)
    with Context(NOOPT=1):
        kb.run(ast, out, a, b)
    assert (out == np.einsum("kr,skc->src", a, b)).all()


def column_of(ast: UOp) -> int | None:
    """The number of a column loop that is not cut yet."""
    known = Analysis(ast)
    return next((i for i, loop in enumerate(known.ranges)
                 if loop.arg[1] is RangeKind.LOOP and loop.src[0].arg == 64), None)


@verifies("lowering.vector.choice")
def test_what_is_computed_outside_of_a_loop_counts_once() -> None:
    """The number of a row is read once for all columns, and is not worth a vector of rows."""
    row, column, k = (new_range(n, kind) for n, kind in (
        (16, RangeKind.GLOBAL), (64, RangeKind.LOOP), (64, RangeKind.REDUCE)))
    several = kb.apply(Ops.MUL, load(param(1), flat((row, 1))),
                       load(param(2), flat((k, 64), (column, 1))))
    ast = kb.kernel(store(param(0), flat((column, 16), (row, 1)), reduce(Ops.ADD, several, k),
                          column), prefix=(row,))
    cut = apply_steps(apply_steps(ast, [Upcast(0, 4)]), [Upcast(1, 16)])
    text = render(cut, C()).body
    assert "f32x16 a" in text, text
