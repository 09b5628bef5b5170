"""Loops that stages share, copied operands, padded loops, and products. Chapter: spec/kernel.md."""
from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import flat, load, local, param, store
from conformance.learn import lesson_kernel
from conformance.trace import verifies
from impl import Context, Tensor, symbolic
from impl.choosing import hand_steps, products
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel import (
    Analysis,
    Aside,
    Chunk,
    Cut,
    Dot,
    Fetch,
    Limits,
    Merge,
    Own,
    Pack,
    PadTo,
    Share,
    Split,
    StepError,
    Swap,
    Upcast,
    Way,
    Window,
    apply_steps,
    fold_gates,
    growth,
    verify,
)
from impl.render import C, render
from impl.searching import optimize

BLOCK, LOOP, GLOBAL, REDUCE = RangeKind.BLOCK, RangeKind.LOOP, RangeKind.GLOBAL, RangeKind.REDUCE
DEVICES = ("REFERENCE", "CPU")
WIDE = Limits(vector_bytes=64, vector_registers=32)


def exact(ast: UOp, *arrays: np.ndarray, device: str, **settings: Any) -> np.ndarray:
    """The first array after a run of the kernel as it is written."""
    with Context(NOOPT=1, **settings):
        kb.run(ast, *arrays, device=device)
    return arrays[0]


def applied(ast: UOp, words: str) -> UOp:
    """The kernel after steps that name a loop by its kind: `pack:REDUCE,1`, the first of them."""
    for word in words.split():
        name, _, given = word.partition(":")
        kind, *rest = given.split(",")
        known = Analysis(ast)
        axis = next(i for i, loop in enumerate(known.ranges) if loop.arg[1].name == kind)
        if kind == "GLOBAL" and name in ("own", "share"):
            axis = len(known.info.prefix) - 1
        ast = STEPS[name](axis, *map(int, rest)).apply(known)
    return ast


STEPS: dict[str, Any] = {"chunk": Chunk, "cut": Cut, "merge": Merge, "pack": Pack, "own": Own,
                         "share": Share, "pad": PadTo, "swap": Swap, "upcast": Upcast}


# Loops that stages share


@verifies("kernel.block.order")
@pytest.mark.parametrize("device", DEVICES)
def test_an_iteration_runs_its_stages_before_the_next(device: str) -> None:
    """A LOCAL that holds one piece is enough: it is stored anew in every iteration."""
    piece, i, j, k = (new_range(n, kind) for n, kind in
                      ((6, BLOCK), (4, LOOP), (4, LOOP), (4, REDUCE)))
    buffer = local(0, 4)
    total = kb.reduce(Ops.ADD, load(buffer, k), k)
    value = kb.apply(Ops.SUB, load(buffer, flat((j, 1))), total)
    ast = kb.kernel(store(buffer, i, load(param(1), flat((piece, 4), (i, 1))), piece, i),
                    store(param(0), flat((piece, 4), (j, 1)), value, piece, j))
    given = np.arange(24, dtype=np.float32) ** 2
    wanted = given.reshape(6, 4) - given.reshape(6, 4).sum(1, keepdims=True)
    out = exact(ast, np.zeros(24, np.float32), given, device=device)
    assert (out.reshape(6, 4) == wanted).all()


@verifies("kernel.block.order")
@pytest.mark.parametrize("device", DEVICES)
def test_iterations_run_in_order(device: str) -> None:
    """A sum over a shared loop in memory: each iteration adds to what the last one left."""
    row, step = new_range(3, GLOBAL), new_range(5, BLOCK)
    first, i, last = new_range(4, LOOP), new_range(4, LOOP), new_range(4, LOOP)
    buffer = local(0, 4)
    more = load(param(1), flat((row, 20), (step, 4), (i, 1)))
    doubled = kb.apply(Ops.MUL, load(buffer, i), kb.number(dtypes.float32, 2))
    ast = kb.kernel(store(buffer, first, kb.number(dtypes.float32, 1), first),
                    store(buffer, i, kb.apply(Ops.ADD, doubled, more), step, i),
                    store(param(0), flat((row, 4), (last, 1)), load(buffer, last), last),
                    prefix=(row,))
    given = np.random.default_rng(0).integers(-4, 5, (3, 5, 4)).astype(np.float32)
    wanted = np.ones((3, 4), np.float32)
    for at in range(5):
        wanted = wanted * 2 + given[:, at]
    assert (exact(ast, np.zeros((3, 4), np.float32), given, device=device) == wanted).all()


@verifies("kernel.block.order")
def test_what_is_stored_anew_is_read_anew() -> None:
    """A value without loops of its own is not taken out of the loop that changes its memory."""
    step, inner = new_range(7, BLOCK), new_range(2, BLOCK)
    buffer, doubled = local(0, 1), local(1, 1)
    given = load(param(1), step)
    again = kb.apply(Ops.ADD, load(doubled, 0), load(param(1), inner))
    ast = kb.kernel(store(buffer, 0, given, step),
                    store(doubled, 0, kb.apply(Ops.ADD, load(buffer, 0), load(buffer, 0)), step),
                    store(param(0), flat((step, 2), (inner, 1)), again, step, inner))
    values = np.arange(7, dtype=np.float32)
    for device in DEVICES:
        out = exact(ast, np.zeros((7, 2), np.float32), values, device=device)
        assert (out == 2 * values[:, None] + values[:2]).all()


@verifies("kernel.block.nest")
def test_stages_that_share_a_loop_stand_side_by_side() -> None:
    one, two, i = new_range(3, BLOCK), new_range(4, BLOCK), new_range(5, LOOP)

    def stage(number: int, *loops: UOp) -> UOp:
        return store(param(number), flat(*((r, 1) for r in loops)), load(param(9), 0), *loops)

    def sums(*loops: UOp) -> UOp:
        value = kb.reduce(Ops.ADD, load(param(9), flat(*((r, 1) for r in loops))), *loops)
        return store(param(0), 0, value)

    verify(kb.kernel(stage(0, one, two, i), stage(1, one, two), stage(2, one), stage(3)))
    for wrong in (kb.kernel(stage(0, one), stage(1), stage(2, one)),
                  kb.kernel(stage(0, one, two), stage(1, two)),
                  kb.kernel(stage(0, one, two), stage(1, two, one)),
                  kb.kernel(stage(0, one, two), stage(1, one), stage(2, one, two)),
                  kb.kernel(stage(0, i, one)), kb.kernel(sums(one)),
                  kb.kernel(stage(0), prefix=(one,))):
        with pytest.raises(GraphError, match="BLOCK"):
            verify(wrong)


# Steps


@verifies("kernel.pad.untouched")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [
    "pad:GLOBAL,4", "pad:GLOBAL,4 upcast:GLOBAL,4", "pad:GLOBAL,4 own:GLOBAL",
    "own:GLOBAL pad:LOOP,8", "own:GLOBAL pad:LOOP,16 upcast:LOOP,16 pad:GLOBAL,4",
    "swap:GLOBAL,1 pad:GLOBAL,8 upcast:GLOBAL,8 own:GLOBAL pad:LOOP,4 pack:REDUCE,1"])
def test_added_iterations_touch_nothing(device: str, steps: str) -> None:
    """Behind the output and before it nothing changes, also where the inputs end."""
    rows, columns, inner = 6, 13, 9
    ast = applied(kb.matmul(rows, columns, inner), steps)
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-4, 5, shape).astype(np.float32)
            for shape in ((rows, inner), (inner, columns)))
    out = np.full((2 * rows, columns), 7, np.float32)
    exact(ast, out, a, b, device=device)
    assert (out[:rows] == a @ b).all()
    assert (out[rows:] == 7).all()


@verifies("kernel.pad.untouched")
def test_an_added_row_is_not_stored() -> None:
    """Without its gates the padded loop would write behind the output."""
    ast = applied(kb.matmul(6, 4, 3), "pad:GLOBAL,4")
    out, a, b = np.full((8, 4), 7, np.float32), np.ones((8, 3), np.float32), np.ones((3, 4))
    exact(ast, out, a, b.astype(np.float32), device="REFERENCE")
    assert (out[:6] == 3).all() and (out[6:] == 7).all()


@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [
    "pack:REDUCE,0", "pack:REDUCE,1", "pack:REDUCE,0 pack:REDUCE,1", "own:GLOBAL pack:REDUCE,1",
    "own:GLOBAL pack:REDUCE,0", "own:GLOBAL share:GLOBAL pack:REDUCE,0",
    "own:GLOBAL share:GLOBAL pack:REDUCE,1", "share:GLOBAL pack:REDUCE,1 pack:REDUCE,0",
    "share:GLOBAL share:GLOBAL pack:REDUCE,0 pack:REDUCE,1",
    "swap:GLOBAL,1 own:GLOBAL upcast:LOOP,4 share:GLOBAL pack:REDUCE,0 pack:REDUCE,1",
    "swap:GLOBAL,1 own:GLOBAL pad:GLOBAL,8 upcast:GLOBAL,8 pack:REDUCE,1 upcast:LOOP,6"])
def test_a_copied_operand_has_the_same_elements(device: str, steps: str) -> None:
    rows, columns, inner = 13, 10, 7
    generator = np.random.default_rng(0)
    a = generator.integers(-4, 5, (rows, inner)).astype(np.float32)
    b = generator.integers(-4, 5, (inner, columns)).astype(np.float32)
    for transposed in (False, True):
        right = np.ascontiguousarray(b.T) if transposed else b
        ast = applied(kb.matmul(rows, columns, inner, transposed), steps)
        out = exact(ast, np.zeros((rows, columns), np.float32), a, right, device=device)
        assert (out == a @ b).all(), ast.arg.steps


@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [
    "chunk:REDUCE,4", "own:GLOBAL chunk:REDUCE,3", "own:GLOBAL chunk:REDUCE,6 upcast:LOOP,4",
    "own:GLOBAL chunk:REDUCE,4 pack:REDUCE,1", "own:GLOBAL chunk:REDUCE,4 pack:REDUCE,0",
    "swap:GLOBAL,1 own:GLOBAL pad:GLOBAL,8 upcast:GLOBAL,8 chunk:REDUCE,4 pack:REDUCE,1 "
    "upcast:LOOP,6", "share:GLOBAL chunk:REDUCE,4 pack:REDUCE,1", "merge:GLOBAL,1",
    "merge:GLOBAL,1 pad:GLOBAL,8 upcast:GLOBAL,8", "own:GLOBAL own:GLOBAL merge:LOOP,1"])
def test_sums_in_chunks_and_loops_made_one(device: str, steps: str) -> None:
    rows, columns, inner = 13, 10, 12
    generator = np.random.default_rng(0)
    a = generator.integers(-4, 5, (rows, inner)).astype(np.float32)
    b = generator.integers(-4, 5, (inner, columns)).astype(np.float32)
    ast = applied(kb.matmul(rows, columns, inner), steps)
    out = exact(ast, np.zeros((rows, columns), np.float32), a, b, device=device)
    assert (out == a @ b).all(), ast.arg.steps


@verifies("kernel.local.order+2")
def test_a_stage_may_replace_what_it_reads() -> None:
    """A sum in chunks adds to a LOCAL; another stage may add to other elements of it."""
    i, j, last = (new_range(4, LOOP) for _ in range(3))
    step, buffer, one = new_range(2, BLOCK), local(0, 8), kb.number(dtypes.float32, 1)

    def more(index: UOp, loop: UOp) -> UOp:
        return store(buffer, index, kb.apply(Ops.ADD, load(buffer, index), one), step, loop)

    zero = kb.number(dtypes.float32, 0)
    first = [store(buffer, i, zero, i), store(buffer, flat((j, 1), (4, 1)), zero, j)]
    ends = store(param(0), last, load(buffer, last), last)
    ast = kb.kernel(*first, more(i, i), more(flat((j, 1), (4, 1)), j), ends)
    for device in DEVICES:
        assert exact(ast, np.zeros(4, np.float32), device=device).tolist() == [2] * 4
    other = store(buffer, i, load(buffer, flat((i, -1), (3, 1))), i)
    with pytest.raises(GraphError, match="after it was read"):
        verify(kb.kernel(*first, other, more(i, i), ends))


@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("device", DEVICES)
def test_conversions_and_conditions_are_copied_with_their_operand(device: str) -> None:
    """The operand is cast from int8, shifted, and zero where it is not valid."""
    i, j, k = new_range(9, GLOBAL), new_range(8, GLOBAL), new_range(6, REDUCE)
    place = flat((k, 8), (j, 1))
    valid = kb.symbolic.less_than(place, 41)
    raw = kb.apply(Ops.CAST, load(param(2, dtypes.int8), place, valid), dtype=dtypes.int32)
    right = kb.apply(Ops.ADD, raw, kb.number(dtypes.int32, 3))
    left = load(param(1, dtypes.int32), flat((i, 6), (k, 1)))
    ast = kb.kernel(store(param(0, dtypes.int32), flat((i, 8), (j, 1)),
                          kb.reduce(Ops.ADD, kb.apply(Ops.MUL, left, right), k)), prefix=(j, i))
    changed = apply_steps(ast, [Own(1), Upcast(0, 8), Pack(2, 1)])
    assert len([s for s in changed.src if s.src[0].src[0].op is Ops.LOCAL]) == 1
    generator = np.random.default_rng(0)
    a = generator.integers(-9, 10, (9, 6)).astype(np.int32)
    b = generator.integers(-9, 10, (6, 8)).astype(np.int8)
    known = np.where(np.arange(48).reshape(6, 8) < 41, b, 0).astype(np.int32) + 3
    out = exact(changed, np.zeros((9, 8), np.int32), a, b, device=device)
    assert (out == a @ known).all()


@verifies("kernel.pack.stored+3")
@verifies("kernel.step.refused")
def test_an_operand_that_the_kernel_stores_is_not_copied() -> None:
    """Else an update in place would see old elements of what it has updated, or new ones."""
    i, j, k = new_range(4, GLOBAL), new_range(4, GLOBAL), new_range(4, REDUCE)
    product = kb.apply(Ops.MUL, load(param(0), flat((i, 4), (k, 1))),
                       load(param(1), flat((k, 4), (j, 1))))
    ast = kb.kernel(store(param(0), flat((i, 4), (j, 1)), kb.reduce(Ops.ADD, product, k)),
                    prefix=(i, j))
    with pytest.raises(StepError, match=r"PACK\(2,0\)"):
        Pack(2, 0).apply(Analysis(ast))
    Pack(2, 1).apply(Analysis(ast))


def last_layer() -> UOp:
    """h[b, j] = sum of g[b, k] w[j, k] over k; then w[j, k] -= sum of x[b, j] g[b, k] over b."""
    j, b, k = new_range(48, GLOBAL), new_range(20, LOOP), new_range(5, REDUCE)
    w, x, h, g = (param(i) for i in range(4))
    first = kb.reduce(Ops.ADD, kb.apply(Ops.MUL, load(g, flat((b, 5), (k, 1))),
                                        load(w, flat((j, 5), (k, 1)))), k)
    i, n = new_range(5, LOOP), new_range(20, REDUCE)
    second = kb.reduce(Ops.ADD, kb.apply(Ops.MUL, load(g, flat((n, 5), (i, 1))),
                                         load(x, flat((n, 48), (j, 1)))), n)
    place = flat((j, 5), (i, 1))
    return kb.kernel(store(h, flat((b, 48), (j, 1)), first, b),
                     store(w, place, kb.apply(Ops.SUB, load(w, place), second), i), prefix=(j,))


@verifies("kernel.pack.stored+3")
@verifies("choosing.product.copied")
@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("device", DEVICES)
def test_an_operand_that_a_later_stage_stores_is_copied_before(device: str, threads: int) -> None:
    ast = optimize(last_layer(), replace(WIDE, threads=threads))
    assert [step for step in ast.arg.steps if step.startswith("PACK")], ast.arg.steps
    generator = np.random.default_rng(0)
    w, x, h, g = (generator.integers(-4, 5, shape).astype(np.float32)
                  for shape in ((48, 5), (20, 48), (20, 48), (20, 5)))
    wanted = g @ w.T, w - x.T @ g
    assert (exact(ast, w, x, h, g, device=device) == wanted[1]).all()
    assert (h == wanted[0]).all()


@verifies("kernel.pack.stored+3")
@verifies("kernel.step.equal+2")
def test_an_operand_that_an_earlier_stage_stores_is_copied_after() -> None:
    ast = last_layer()
    turned = ast.replace(src=ast.src[::-1])
    made = optimize(turned, WIDE)
    assert [step for step in made.arg.steps if step.startswith("PACK")], made.arg.steps
    generator = np.random.default_rng(0)
    w, x, h, g = (generator.integers(-4, 5, shape).astype(np.float32)
                  for shape in ((48, 5), (20, 48), (20, 48), (20, 5)))
    wanted = w - x.T @ g
    assert (exact(made, w, x, h, g, device="CPU") == wanted).all()
    assert (h == g @ wanted.T).all()


@verifies("kernel.pack.stored+3")
@verifies("kernel.step.refused")
def test_an_operand_with_a_reader_after_its_store_is_not_copied() -> None:
    """Two stages read it, and one between them stores it: one copy cannot be right for both."""
    ast = last_layer()
    first, second = ast.src
    again = first.replace(src=(kb.place(param(4), first.src[0].src[1]), *first.src[1:]))
    known = Analysis(ast.replace(src=(first, second, again)))
    axis = next(i for i, r in enumerate(known.ranges) if r in first.src[1].src[1:])
    Pack(axis, 0).apply(known)
    with pytest.raises(StepError, match="stores what the operand reads"):
        Pack(axis, 1).apply(known)


@verifies("kernel.step.refused")
def test_steps_that_are_not_legal_are_refused() -> None:
    product, rows = kb.matmul(6, 10, 7), kb.softmax(4, 8)
    shared = Share(1).apply(Analysis(product))
    for ast, step in ((product, PadTo(2, 7)), (product, PadTo(0, 3)), (product, PadTo(0, 1)),
                      (product, Share(0)), (product, Share(2)), (product, Pack(0, 0)),
                      (product, Pack(2, 2)), (rows, Pack(2, 0)), (shared, Share(1)),
                      (shared, Upcast(1, 5)), (shared, PadTo(1, 4)), (product, Merge(1, 0)),
                      (product, Merge(0, 2)), (product, Chunk(2, 7)), (product, Chunk(0, 2)),
                      (rows, Chunk(1, 4))):
        with pytest.raises(StepError, match=type(step).__name__.upper()):
            step.apply(Analysis(ast))


@verifies("kernel.step.refused")
def test_an_operand_inside_of_another_reduction_is_not_copied() -> None:
    """GROUP puts a reduction of its lanes around the one that is named."""
    grouped = apply_steps(kb.matmul(6, 10, 8), [Split(2, 4)])
    axis = next(i for i, r in enumerate(Analysis(grouped).ranges) if r.arg[1] is RangeKind.REDUCE)
    with pytest.raises(StepError, match="reduction around"):
        Pack(axis, 0).apply(Analysis(grouped))
    with pytest.raises(StepError, match="around the sum"):
        Chunk(axis, 2).apply(Analysis(apply_steps(kb.matmul(6, 10, 16), [Split(2, 4)])))


@verifies("kernel.step.equal+2")
def test_random_steps_keep_the_values_of_products() -> None:
    """Products are where copies are legal, so they get steps of their own."""
    taken: set[str] = set()
    for seed in range(60):
        draw = random.Random(seed)
        rows, columns, inner = (draw.choice((1, 2, 5, 8, 13)) for _ in range(3))
        transposed = draw.random() < 0.5
        ast = kb.random_steps(kb.matmul(rows, columns, inner, transposed), seed, 8)
        taken.update(step.split("(")[0] for step in ast.arg.steps)
        generator = np.random.default_rng(seed)
        a = generator.integers(-4, 5, (rows, inner)).astype(np.float32)
        b = generator.integers(-4, 5, (inner, columns)).astype(np.float32)
        out = np.zeros((rows, columns), np.float32)
        right = np.ascontiguousarray(b.T) if transposed else b
        exact(ast, out, a, right, device="REFERENCE")
        assert (out == a @ b).all(), (seed, ast.arg.steps)
    assert taken >= {"PACK", "SHARE", "PADTO", "OWN", "UPCAST"}


# Rows of memory


@verifies("choosing.rows.whole")
def test_few_rows_read_the_other_operand_from_end_to_end() -> None:
    for rows, columns, whole in ((1, 512, True), (2, 512, True), (8, 512, True), (9, 512, False),
                                 (1, 64, False), (8, 64, False)):
        steps = [step.name for step, _ in hand_steps(kb.matmul(rows, columns, 300), WIDE)]
        assert any(name.startswith("CHUNK") for name in steps) is whole, (rows, columns)


@verifies("choosing.rows.whole")
@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("device", DEVICES)
def test_sums_over_rows_of_memory_of_any_size(device: str, threads: int) -> None:
    limits = Limits(vector_bytes=64, vector_registers=32, threads=threads)
    generator = np.random.default_rng(0)
    for rows, columns, inner in ((1, 128, 16), (1, 1021, 105), (3, 257, 41), (8, 203, 17)):
        ast = optimize(kb.matmul(rows, columns, inner), limits)
        assert any(step.startswith("CHUNK") for step in ast.arg.steps)
        if columns == 1021:  # worth two threads, each of which has whole vectors
            assert ast.arg.threads == threads
        a = generator.integers(-4, 5, (rows, inner)).astype(np.float32)
        b = generator.integers(-4, 5, (inner, columns)).astype(np.float32)
        out = exact(ast, np.zeros((rows, columns), np.float32), a, b, device=device)
        assert (out == a @ b).all(), (ast.arg.steps, rows, columns, inner)


@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("device", DEVICES)
def test_a_loop_of_the_prefix_cut_in_two(device: str) -> None:
    ast = applied(kb.matmul(6, 12, 7), "cut:GLOBAL,2")
    assert len(ast.arg.prefix) == 3
    a, b = (np.arange(n, dtype=np.float32).reshape(-1, 7) % 5 for n in (42, 84))
    out = exact(ast, np.zeros((6, 12), np.float32), a, b.T.copy(), device=device)
    assert (out == a @ b.T).all()
    with pytest.raises(StepError, match="12 iterations.*divisor"):
        applied(kb.matmul(12, 5, 7), "cut:GLOBAL,7")


@verifies("choosing.product.parts")
@verifies("kernel.step.equal+2")
@pytest.mark.parametrize(("rows", "threads", "parts"), [
    (64, 1, 1), (64, 2, 2), (64, 3, 2), (64, 4, 4), (48, 2, 2), (56, 2, 1), (72, 3, 3), (16, 2, 1)])
def test_tiles_of_rows_that_share_a_copy_are_cut_for_threads(rows: int, threads: int,
                                                             parts: int) -> None:
    """What 8, 8, 8, 6, 7, 9 and 2 tiles cost: a tile for each, and one more for the copy."""
    limits = Limits(vector_bytes=64, vector_registers=32, threads=threads)
    generator = np.random.default_rng(0)
    x, w = (Tensor(generator.standard_normal((n, 128)).astype(np.float32)) for n in (rows, 256))
    ast = (x @ w.transpose()).softmax(-1).schedule()[0].ast
    steps = [step.name for step, _ in hand_steps(ast, limits)]
    assert any(name.startswith("PACK") for name in steps)
    assert any(name.startswith("SHARE") for name in steps)
    cut = [name for name in steps if name.startswith("CUT")]
    assert cut == ([f"CUT(0,{rows // 8 // parts})"] if parts > 1 else [])
    assert any(name.startswith("THREAD(0,") for name in steps) is (parts > 1)


@verifies("choosing.product.parts")
@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("rows", [48, 56, 80])
def test_rows_in_parts_have_the_same_values(rows: int) -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-4, 5, (n, 128)).astype(np.float32) for n in (rows, 256))
    with Context(CPU_COUNT=2):
        product = Tensor(x).realize() @ Tensor(w).realize().transpose()
        apart = product - product.max(-1, keepdim=True)
        assert "SHARE(" in apart.explain()
        found = apart.numpy()
    wanted = x @ w.T
    assert (found == wanted - wanted.max(-1, keepdims=True)).all()


@verifies("choosing.product.parts")
@pytest.mark.parametrize(("rows", "columns", "threads", "shared"), [
    (512, 128, 1, ""), (512, 128, 2, "CUT(0,256)"), (512, 128, 4, "CUT(0,128)"),
    (510, 128, 4, ""), (256, 512, 2, "CUT(0,128)"), (256, 576, 2, ""), (16, 128, 2, ""),
    (512, 64, 2, "")])
def test_threads_share_rows_that_are_copied_out_of_order(rows: int, columns: int, threads: int,
                                                         shared: str) -> None:
    """Not for one panel, few rows, many columns, or where the rows cannot be shared equally."""
    limits = Limits(vector_bytes=64, vector_registers=32, threads=threads)
    x, g = Tensor.ones(512, rows).contiguous(), Tensor.ones(512, columns).contiguous()
    Tensor.realize(x, g)
    ast = (x.transpose() @ g).schedule()[0].ast
    found = [step.name for step, _ in hand_steps(ast, limits)]
    assert found[0] == shared or not shared and not found[0].startswith("CUT")
    assert not shared or f"THREAD(0,{threads})" in found and "SHARE(1)" in found
    straight = [step.name for step, _ in hand_steps(
        (x @ g).schedule()[0].ast if rows == 512 else ast, limits)]
    assert rows < 512 or not straight[0].startswith("CUT"), "these rows are read as they lie"


@verifies("choosing.product.parts")
@verifies("kernel.step.equal+2")
@pytest.mark.parametrize(("rows", "columns", "batch"), [
    (96, 80, ()), (97, 80, ()), (48, 130, ()), (128, 128, (3,)), (64, 64, (1,))])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_threads_share_have_the_same_values(rows: int, columns: int,
                                                      batch: tuple[int, ...], turned: bool) -> None:
    """Also where the other operand has to be turned, too."""
    generator = np.random.default_rng(0)
    x = generator.integers(-3, 4, (*batch, 200, rows)).astype(np.float32)
    g = generator.integers(-3, 4, (*batch, *((columns, 200) if turned else (200, columns))))
    for count in (2, 3):
        with Context(CPU_COUNT=count):
            other = Tensor(g.astype(np.float32)).realize()
            other = other.transpose(-1, -2) if turned else other
            found = (Tensor(x).realize().transpose(-1, -2) @ other + 1).numpy()
        wanted = np.swapaxes(x, -1, -2) @ (np.swapaxes(g, -1, -2) if turned else g) + 1
        assert (found == wanted).all(), count


@verifies("choosing.product.copied")
@pytest.mark.parametrize(("batch", "threads", "steps"), [
    (8, 1, ["SHARE(1)", "SHARE(0)"]), (8, 2, ["SHARE(1)", "CUT(0,4)", "SHARE(1)"]),
    (6, 4, ["SHARE(1)", "CUT(0,2)", "SHARE(1)"]), (7, 2, ["SHARE(1)"])])
def test_a_batch_shares_a_copy(batch: int, threads: int, steps: list[str]) -> None:
    limits = Limits(vector_bytes=64, vector_registers=32, threads=threads)
    x, w = Tensor.ones(batch, 64, 128).contiguous(), Tensor.ones(256, 128).contiguous()
    Tensor.realize(x, w)
    ast = (x @ w.transpose()).softmax(-1).schedule()[0].ast
    found = [step.name for step, _ in hand_steps(ast, limits)]
    assert [name for name in found if name.startswith(("SHARE", "CUT"))] == steps
    assert any(name.startswith("PACK") for name in found)


@verifies("choosing.product.copied")
@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("own", [False, True])
def test_a_batch_with_a_copy_has_the_same_values(threads: int, own: bool) -> None:
    """Also where each of the batch has an operand of its own, after one that all share."""
    generator = np.random.default_rng(0)
    x, w, v = (generator.integers(-2, 3, shape).astype(np.float32)
               for shape in ((6, 32, 64), (64, 64), (6, 64, 64) if own else (64, 64)))
    with Context(CPU_COUNT=threads):
        first = (Tensor(x).realize() @ Tensor(w).realize().transpose()).relu()
        found = (first @ Tensor(v).realize().transpose(-2, -1)).numpy()
    assert (found == np.maximum(x @ w.T, 0) @ np.swapaxes(v, -2, -1)).all()


# Windows


def windows(count: int, size: int, taps: int, stride: int, step: int, pad: int) -> UOp:
    """out[n, y, x] = sum of in[n, y * stride + i * step, ...] * w[n, i, j], with zeros around."""
    reach = size + 2 * pad - step * (taps - 1) - 1
    n, y, x = (new_range(e, GLOBAL) for e in (count, reach // stride + 1, reach // stride + 1))
    i, j = new_range(taps, REDUCE), new_range(taps, REDUCE)
    valid = TRUE
    at = []
    for output, inner in ((y, i), (x, j)):
        seen = symbolic.add(symbolic.mul(output, stride), symbolic.mul(inner, step))
        at.append(symbolic.sub(seen, pad))
        if pad:
            valid = symbolic.logical_and(valid, symbolic.logical_and(
                symbolic.less_than(pad - 1, seen), symbolic.less_than(seen, size + pad)))
    index = symbolic.total([symbolic.mul(n, size * size), symbolic.mul(at[0], size), at[1]])
    pixel = UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.INDEX, dtypes.float32,
                                               (param(1), index, valid)),))
    weight = load(param(2), flat((n, taps * taps), (i, taps), (j, 1)))
    out = reach // stride + 1
    return kb.kernel(store(param(0), flat((n, out * out), (y, out), (x, 1)),
                           kb.reduce(Ops.ADD, kb.apply(Ops.MUL, pixel, weight), i, j)),
                     prefix=(n, y, x))


@verifies("choosing.window.shared")
@verifies("kernel.step.equal+2")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("given", [(2, 9, 3, 1, 1, 1), (1, 21, 5, 1, 1, 0), (3, 12, 3, 2, 1, 1),
                                   (1, 17, 3, 1, 2, 2), (2, 20, 4, 3, 1, 0), (1, 12, 3, 3, 1, 0)])
def test_windows_read_a_copy_of_what_they_share(device: str, given: tuple[int, ...]) -> None:
    """A stride as long as the window, and nothing is shared: no copy."""
    plain = windows(*given)
    ast = optimize(plain, WIDE)
    assert any(s.startswith("WINDOW") for s in ast.arg.steps) is (given[2] > given[3])
    generator = np.random.default_rng(0)
    count, size, taps = given[:3]
    x, w = (generator.integers(-4, 5, (count, n, n)).astype(np.float32) for n in (size, taps))
    loops = [r.src[0].arg for r in plain.arg.prefix]
    wanted, out = np.zeros(loops, np.float32), np.zeros(loops, np.float32)
    exact(plain, wanted, x, w, device="REFERENCE")
    exact(ast, out, x, w, device=device)
    assert wanted.any() and (out == wanted).all(), ast.arg.steps


@verifies("choosing.window.shared")
@verifies("kernel.step.refused")
def test_what_is_no_window_is_not_copied_as_one() -> None:
    """A condition on the output alone tells windows apart; strides may leave places out."""
    plain = windows(1, 8, 3, 1, 1, 0)
    x = plain.arg.prefix[2]
    loads = [n for n in plain.toposort() if n.op is Ops.LOAD and n.src[0].src[0].arg == 1]
    gate = symbolic.less_than(x, 4)
    gated = plain.substitute({loads[0]: loads[0].replace(src=(loads[0].src[0].replace(
        src=(*loads[0].src[0].src[:2], gate)),))})
    for ast in (gated, windows(1, 11, 2, 3, 1, 0), kb.matmul(5, 6, 7)):
        own = applied(ast, "own:GLOBAL own:GLOBAL")
        known = Analysis(own)
        axis = next(i for i, r in enumerate(known.ranges) if r.arg[1] is REDUCE)
        if ast is gated:  # the rows still are windows: the other loops are copied as they are
            read = Window(axis, 0).apply(known).src[0]
            assert [r.src[0].arg for r in read.src[2:]] == [6, 3, 8]
            continue
        with pytest.raises(StepError, match="windows"):
            Window(axis, 0).apply(known)


@verifies("kernel.pad.untouched")
def test_a_private_array_is_read_beyond_what_is_stored() -> None:
    """What a padded iteration reads of a LOCAL is nobody's; beyond the array it reads nothing."""
    i, j = new_range(6, LOOP), new_range(5, LOOP)
    for size, conditions in ((8, 0), (7, 1)):
        buffer = local(0, size)
        ast = kb.kernel(store(buffer, i, load(param(1), i), i),
                        store(param(0), j, load(buffer, j), j))
        known = Analysis(ast)
        padded = PadTo(known.position[j], 8).apply(known)
        reads = [n for n in padded.src[1].src[1].toposort() if n.op is Ops.INDEX]
        assert [n.src[2] is not TRUE for n in reads] == [bool(conditions)]
        assert padded.src[1].src[0].src[2] is not TRUE
        known = Analysis(ast)
        first = PadTo(known.position[i], 4).apply(known)
        assert first.src[0].src[0].src[2] is not TRUE


# Bytes


@verifies("kernel.dot.bytes")
def test_four_products_of_bytes() -> None:
    """Numbers and vectors, on every device: the first bytes are unsigned, the second signed."""
    generator = np.random.default_rng(0)
    one, two = (generator.integers(-1 << 31, 1 << 31, 19).astype(np.int32) for _ in range(2))
    one[:2], two[:2] = -1, (-(1 << 31) + 0x808080, 0x7F7F7F7F)
    wanted = [sum((a >> s & 255) * ((b >> s & 255 ^ 128) - 128) for s in (0, 8, 16, 24))
              for a, b in zip(one.tolist(), two.tolist(), strict=True)]
    i = new_range(19, LOOP)
    first, second = (kb.load(kb.param(n, dtypes.int32), i) for n in (1, 2))
    ast = kb.kernel(store(kb.param(0, dtypes.int32), i, kb.apply(Ops.DOT, first, second), i))
    for made, device in itertools.product((ast, apply_steps(ast, [Upcast(0, 16)])), DEVICES):
        out = exact(made, np.zeros(19, np.int32), one, two, device=device)
        assert out.tolist() == wanted, device


@verifies("kernel.dot.bytes")
@verifies("kernel.step.equal+2")
def test_products_of_bytes_four_at_a_time() -> None:
    generator = np.random.default_rng(0)
    limits = Limits(vector_bytes=64, vector_registers=32, dots=True)
    for rows, columns, inner, turned in ((8, 130, 4, False), (13, 40, 23, True),
                                         (9, 70, 130, False)):
        a, b = (generator.integers(-128, 128, shape).astype(np.int8)
                for shape in ((rows, inner), (inner, columns)))
        with Context(DEVICE="CPU"):
            right = Tensor(np.ascontiguousarray(b.T)).realize().T if turned else Tensor(b).realize()
            product = Tensor(a).realize().matmul(right, dtype=dtypes.int32)
            ast = product.schedule()[0].ast
        made = optimize(ast, limits)
        assert made.arg.steps[0].startswith("DOT"), made.arg.steps
        for device in DEVICES:
            out = np.zeros((rows, columns), np.int32)
            exact(made, a, np.ascontiguousarray(b.T) if turned else b, out, device=device)
            assert (out == a.astype(np.int32) @ b).all(), (rows, columns, inner, device)


@verifies("kernel.step.refused")
def test_only_products_of_bytes_are_taken_four_at_a_time() -> None:
    with pytest.raises(StepError, match="products of int8"):
        Dot(2).apply(Analysis(kb.matmul(8, 8, 8)))
    assert not any(step.name.startswith("DOT")
                   for step, _ in hand_steps(kb.matmul(8, 64, 64), replace(WIDE, dots=True)))


# Choosing


@verifies("choosing.product.registers")
@pytest.mark.parametrize("limits", [WIDE, Limits(), Limits(vector_bytes=16, vector_registers=32)])
def test_a_tile_fits_the_registers(limits: Limits) -> None:
    for rows, columns in itertools.product((1, 2, 5, 6, 7, 64, 1021), (1, 3, 16, 48, 100, 1021)):
        tile = products.choose_tile(limits, 4, rows, columns)
        assert (tile.rows + 1) * tile.vectors + 1 <= limits.vector_registers
        assert 1 <= tile.rows <= rows
        assert tile.width * 4 <= limits.vector_bytes


@verifies("choosing.product.loads")
def test_a_tile_multiplies_and_loads_little() -> None:
    for product in lesson_kernel.products():
        limits = Limits(vector_bytes=4 * product.elements, vector_registers=product.registers)
        tile = products.choose_tile(limits, 4, product.rows, product.columns)
        taken = lesson_kernel.work(product, tile.rows, tile.vectors, tile.width)
        assert 2 * taken.total <= 3 * lesson_kernel.best(product)[0].total, (product, tile)


@verifies("choosing.product.loads")
def test_the_text_of_a_product_loads_what_its_tile_does() -> None:
    text = render(optimize(kb.matmul(60, 64, 64), WIDE), C()).body
    tile = products.choose_tile(WIDE, 4, 60, 64)
    inner = next(part for part in text.split("for (") if "fma" in part).split("}")[0]
    loads = [line for line in inner.splitlines() if line.strip().startswith("const f")]
    assert (inner.count("= fma_f32x16("), len(loads)) == (24, 10)
    assert (tile.rows * tile.vectors, tile.rows + tile.vectors) == (24, 10)


@verifies("choosing.product.registers")
def test_a_large_product_packs_a_panel_and_fills_the_registers() -> None:
    steps = [step.name for step, _ in hand_steps(kb.matmul(512, 512, 512), WIDE)]
    assert [step.split("(")[0] for step in steps] == ["SWAP", "OWN", *["UPCAST"] * 2, "PACK",
                                                      *["UPCAST"] * 2, "NEXT"]
    assert [step[-3:-1] for step in steps[-3:-1]] == [",6", ",2"]
    text = render(optimize(kb.matmul(512, 512, 512), WIDE), C()).body
    assert text.count("= fma_f32x16(") == (6 + 2) * 4


@verifies("choosing.product.flat")
def test_a_flat_product_stores_its_rows_from_end_to_end() -> None:
    """The columns are the inner loop of the stage, whatever they leave over."""
    generator = np.random.default_rng(0)
    for rows, columns, inner in ((515, 512, 8), (600, 521, 3)):
        plain = kb.matmul(rows, columns, inner)
        for threads in (1, 2):
            made = optimize(plain, replace(WIDE, threads=threads))
            assert not made.arg.prefix and made.arg.threads == threads
            index = made.src[0].src[0].src[1]
            loops = [r for r in made.src[0].src[2:] if r.arg[1] in (LOOP, RangeKind.THREAD)]
            steps = growth(index.toposort(), loops)[index] or {}
            assert [steps[r] >= columns for r in loops] == [True, False], made.arg.steps
            a = generator.integers(-4, 5, (rows, inner)).astype(np.float32)
            b = generator.integers(-4, 5, (inner, columns)).astype(np.float32)
            out = exact(made, np.zeros((rows, columns), np.float32), a, b, device="CPU")
            assert (out == a @ b).all(), (rows, columns, inner)
    deep = optimize(kb.matmul(515, 512, 100), WIDE)
    assert deep.arg.prefix


@verifies("choosing.threads.pays")
@pytest.mark.parametrize("columns", [512, 320, 96])
def test_panels_that_share_a_copy_leave_something_to_threads(columns: int) -> None:
    """The first operand lies turned, so all panels of a thread, or each, have a copy of it."""
    i, j, k = new_range(512, GLOBAL), new_range(columns, GLOBAL), new_range(256, REDUCE)
    product = kb.apply(Ops.MUL, load(param(1), flat((k, 512), (i, 1))),
                       load(param(2), flat((k, columns), (j, 1))))
    ast = kb.kernel(store(param(0), flat((i, columns), (j, 1)), kb.reduce(Ops.ADD, product, k)),
                    prefix=(i, j))
    made = optimize(ast, replace(WIDE, threads=2))
    assert made.arg.threads == 2, made.arg.steps
    assert sum(step.startswith("PACK") for step in made.arg.steps) == 2
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-4, 5, (256, n)).astype(np.float32) for n in (512, columns))
    assert (exact(made, np.zeros((512, columns), np.float32), a, b, device="CPU") == a.T @ b).all()


@verifies("cpu.values.reference")
@pytest.mark.parametrize("seed", range(3))
def test_products_of_any_layout_and_size(seed: int) -> None:
    """Rows, columns and sums of odd and prime sizes, transposed or not, with what is fused."""
    draw = random.Random(seed)
    generator = np.random.default_rng(seed)
    for _ in range(6):
        m, n, k = (draw.choice((1, 2, 6, 7, 16, 31, 64, 67, 130)) for _ in range(3))
        one, two = draw.random() < 0.5, draw.random() < 0.5
        a = generator.integers(-4, 5, (k, m) if one else (m, k)).astype(np.float32)
        b = generator.integers(-4, 5, (n, k) if two else (k, n)).astype(np.float32)
        bias = generator.integers(-9, 10, n).astype(np.float32)
        left, right = (a.T if one else a), (b.T if two else b)
        with Context(DEVICE="CPU"):
            x, y = Tensor(a).realize(), Tensor(b).realize()
            given = (x.T if one else x) @ (y.T if two else y)
            found = (given + Tensor(bias)).relu().numpy()
        assert (found == np.maximum(left @ right + bias, 0)).all(), (m, n, k, one, two)


@verifies("searching.reason.given")
def test_what_turns_out_to_be_no_product_gets_other_steps() -> None:
    """A convolution in groups: its loops become one, and then there are too few rows."""
    with Context(DEVICE="REFERENCE"):
        x = Tensor(np.ones((2, 12, 8, 9), np.float16)).realize()
        weight = Tensor(np.ones((8, 3, 2, 2), np.float16)).realize()
        item = x.conv2d(weight, groups=4, dilation=2, padding=1).schedule()[-1]
    steps = hand_steps(fold_gates(item.ast), Limits(vector_bytes=64, vector_registers=32))
    assert steps and apply_steps(fold_gates(item.ast), [step for step, _ in steps])


def _sums(rows: int, inner: int, columns: int, apart: int = 0) -> UOp:
    m, n, k = new_range(rows, GLOBAL), new_range(columns, GLOBAL), new_range(inner, REDUCE)
    value = kb.apply(Ops.MUL, load(param(1), flat((m, inner), (k, 1))),
                     load(param(2), flat((k, columns), (n, 1))))
    place = flat((m, apart or columns), (n, 1))
    return kb.kernel(store(param(0), place, kb.reduce(Ops.ADD, value, k)), prefix=(m, n))


@verifies("choosing.product.fetch")
def test_outputs_across_lines_are_asked_for() -> None:
    def fetches(*sizes: int) -> bool:
        return any(type(step) is Fetch for step, _ in hand_steps(_sums(*sizes), WIDE))
    assert fetches(64, 100, 841)
    assert not fetches(64, 100, 832)  # 52 lines a row
    assert not fetches(64, 16, 841)   # the sums are there before the memory is


@verifies("render.fetch.before")
@pytest.mark.parametrize("columns", [45, 48])
def test_each_line_is_asked_for_once_before_the_sum(columns: int) -> None:
    made = optimize(_sums(18, 100, columns, 200), WIDE)
    if not any(each.arg is Way.AHEAD for each in made.src):
        known = Analysis(made)
        loop = next(r for r in known.ranges if r.arg[1] is REDUCE)
        made = Fetch(known.position[loop]).apply(known)
    lines = [line.strip() for line in render(made, C()).body.splitlines()]
    asked = [i for i, line in enumerate(lines) if line.startswith("__builtin_prefetch(p0 + ")]
    assert len({lines[i] for i in asked}) == len(asked) >= 3 * 9
    sums = next(i for i, line in enumerate(lines) if "a" in line and "= fma_" in line)
    assert asked[0] < sums
    places = [int(lines[i].rsplit("+ ", 1)[1].split(",")[0]) for i in asked[:4]]
    assert places == [0, 16, 32, 47]  # the memory need not begin with a line
    wanted = np.random.default_rng(0).integers(-4, 5, (18, 100)).astype(np.float32)
    other = np.random.default_rng(1).integers(-4, 5, (100, columns)).astype(np.float32)
    for device in DEVICES:
        out = exact(made, np.zeros(18 * 200, np.float32), wanted, other, device=device)
        assert (out.reshape(18, 200)[:, :columns] == wanted @ other).all()


@verifies("kernel.step.refused")
def test_what_stays_in_the_kernel_is_not_asked_for() -> None:
    i, j, k = (new_range(size, kind) for size, kind in ((4, LOOP), (4, LOOP), (8, REDUCE)))
    total = kb.reduce(Ops.ADD, load(param(1), flat((i, 8), (k, 1))), k)
    ast = kb.kernel(store(local(0, 4), i, total, i), store(param(0), j, load(local(0, 4), j), j))
    known = Analysis(ast)
    with pytest.raises(StepError, match="FETCH"):
        Fetch(known.position[k]).apply(known)


def _in_place(before: bool) -> UOp:
    """out = x w, and w becomes 2 w, one row at a time; `before`: it does so first."""
    n, m, k, j = (new_range(size, kind) for size, kind in
                  ((32, GLOBAL), (12, LOOP), (10, REDUCE), (10, LOOP)))
    weight = param(1)
    product = kb.apply(Ops.MUL, load(param(2), flat((m, 10), (k, 1))),
                       load(weight, flat((n, 10), (k, 1))))
    sums = store(param(0), flat((m, 32), (n, 1)), kb.reduce(Ops.ADD, product, k), m)
    place = flat((n, 10), (j, 1))
    twice = store(weight, place, kb.apply(Ops.ADD, load(weight, place), load(weight, place)), j)
    return kb.kernel(*((twice, sums) if before else (sums, twice)), prefix=(n,))


@verifies("kernel.pack.stored+3")
@verifies("choosing.product.copied")
@pytest.mark.parametrize("before", [False, True])
def test_an_operand_is_copied_before_it_is_updated_or_after(before: bool) -> None:
    x = np.random.default_rng(0).integers(-4, 5, (12, 10)).astype(np.float32)
    weight = np.random.default_rng(1).integers(-4, 5, (32, 10)).astype(np.float32)
    ast = applied(_in_place(before), "upcast:GLOBAL,16 pack:REDUCE,1")
    for made in (ast, optimize(_in_place(before), WIDE)):
        for device in DEVICES:
            given = weight.reshape(-1).copy()
            out = exact(made, np.zeros(12 * 32, np.float32), given, x, device=device)
            assert (out.reshape(12, 32) == x @ (weight * (1 + before)).T).all()
            assert (given.reshape(32, 10) == 2 * weight).all()


@verifies("choosing.product.copied")
def test_what_would_be_gathered_for_each_row_is_copied() -> None:
    """The second stage makes the prefix a vector, along which the first one's operand lies across.
    """
    n, m, k, deep = (new_range(64, GLOBAL), new_range(12, LOOP), new_range(10, REDUCE),
                     new_range(200, REDUCE))
    product = kb.apply(Ops.MUL, load(param(1), flat((m, 10), (k, 1))),
                       load(param(2), flat((n, 10), (k, 1))))
    down = kb.reduce(Ops.ADD, load(param(3), flat((deep, 64), (n, 1))), deep)
    ast = kb.kernel(store(param(0), flat((m, 64), (n, 1)), kb.reduce(Ops.ADD, product, k), m),
                    store(param(4), n, down), prefix=(n,))
    assert any(type(step) is Pack for step, _ in hand_steps(ast, WIDE))
    rng = np.random.default_rng(2)
    x, y, z = (rng.integers(-4, 5, size).astype(np.float32) for size in (120, 640, 12800))
    out, sums = np.zeros(768, np.float32), np.zeros(64, np.float32)
    kb.run(ast, out, x, y, z, sums)
    assert (out.reshape(12, 64) == x.reshape(12, 10) @ y.reshape(64, 10).T).all()
    assert (sums == z.reshape(200, 64).sum(0)).all()


def _of_parts(width: int) -> tuple[UOp, UOp]:
    """A LOCAL with the doubled rows of x, and the product of these plus y with a matrix.

    And the loop of its sum.
    """
    row, i, n, k = (new_range(16, GLOBAL), new_range(width, LOOP), new_range(96, LOOP),
                    new_range(width, REDUCE))
    place = flat((row, width), (i, 1))
    buffer = local(0, width)
    first = store(buffer, i, kb.apply(Ops.ADD, load(param(1), place), load(param(1), place)), i)
    part = kb.apply(Ops.ADD, load(buffer, k), load(param(2), flat((row, width), (k, 1))))
    value = kb.apply(Ops.MUL, part, load(param(3), flat((k, 96), (n, 1))))
    done = store(param(0), flat((row, 96), (n, 1)), kb.reduce(Ops.ADD, value, k), n)
    return kb.kernel(first, done, prefix=(row,)), k


@verifies("choosing.product.copied")
@pytest.mark.parametrize("width", [64, 50])
def test_an_operand_of_several_parts_is_computed_once(width: int) -> None:
    ast, loop = _of_parts(width)
    assert any(type(step) is Aside for step, _ in hand_steps(ast, WIDE))
    aside = Aside(Analysis(ast).position[loop], 0).apply(Analysis(ast))
    rng = np.random.default_rng(3)
    x, y, z = (rng.integers(-4, 5, size).astype(np.float32)
               for size in ((16, width), (16, width), (width, 96)))
    for made in (optimize(ast, WIDE), aside):
        for device in DEVICES:
            out = exact(made, np.zeros(16 * 96, np.float32), x.reshape(-1), y.reshape(-1),
                        z.reshape(-1), device=device)
            assert (out.reshape(16, 96) == (2 * x + y) @ z).all()
