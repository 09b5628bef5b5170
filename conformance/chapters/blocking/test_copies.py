"""Copies of operands, sums in parts, windows, bytes. Chapter: spec/blocking.md."""
from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from conformance.chapters.choosing.test_choosing import applied, exact
from conformance.kernels import kernel_builder as kb
from conformance.kernels.devices import PROCESSORS, on_each_processor
from conformance.kernels.kernel_builder import flat, load, local, param, store
from conformance.trace import verifies
from impl import Context, Tensor
from impl.blocking import Chunk, Dot, Pack
from impl.choosing import hand_steps
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits, verify_kernel
from impl.searching import optimize
from impl.steps import (
    Fetch,
    Merge,
    Own,
    PadTo,
    Share,
    Split,
    StepError,
    Upcast,
    apply_steps,
)

BLOCK, LOOP, GLOBAL, REDUCE = RangeKind.BLOCK, RangeKind.LOOP, RangeKind.GLOBAL, RangeKind.REDUCE
WIDE = DeviceLimits(vector_bytes=64, vector_registers=32)


@verifies("steps.padding.untouched")
@on_each_processor
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


@verifies("steps.padding.untouched")
def test_an_added_row_is_not_stored() -> None:
    """Without its gates the padded loop would write behind the output."""
    ast = applied(kb.matmul(6, 4, 3), "pad:GLOBAL,4")
    out, a, b = np.full((8, 4), 7, np.float32), np.ones((8, 3), np.float32), np.ones((3, 4))
    exact(ast, out, a, b.astype(np.float32), device="REFERENCE")
    assert (out[:6] == 3).all() and (out[6:] == 7).all()


@verifies("steps.value.equal")
@on_each_processor
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


@verifies("steps.value.equal")
@on_each_processor
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


@verifies("kernel.local.own")
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
    for device in PROCESSORS:
        assert exact(ast, np.zeros(4, np.float32), device=device).tolist() == [2] * 4
    other = store(buffer, i, load(buffer, flat((i, -1), (3, 1))), i)
    with pytest.raises(GraphError, match="after it was read"):
        verify_kernel(kb.kernel(*first, other, more(i, i), ends))


@verifies("steps.value.equal")
@on_each_processor
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


@verifies("blocking.copy.stored")
@verifies("steps.legal.refused")
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


@verifies("blocking.copy.stored")
@verifies("choosing.product.memory+2")
@verifies("steps.value.equal")
@pytest.mark.parametrize("threads", [1, 2])
@on_each_processor
def test_an_operand_that_a_later_stage_stores_is_copied_before(device: str, threads: int) -> None:
    ast = optimize(last_layer(), replace(WIDE, threads=threads))
    assert [step for step in ast.arg.steps if step.startswith("PACK")], ast.arg.steps
    generator = np.random.default_rng(0)
    w, x, h, g = (generator.integers(-4, 5, shape).astype(np.float32)
                  for shape in ((48, 5), (20, 48), (20, 48), (20, 5)))
    wanted = g @ w.T, w - x.T @ g
    assert (exact(ast, w, x, h, g, device=device) == wanted[1]).all()
    assert (h == wanted[0]).all()


@verifies("blocking.copy.stored")
@verifies("steps.value.equal")
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


@verifies("blocking.copy.stored")
@verifies("steps.legal.refused")
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


@verifies("steps.legal.refused")
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


@verifies("steps.legal.refused")
def test_an_operand_inside_of_another_reduction_is_not_copied() -> None:
    """GROUP puts a reduction of its lanes around the one that is named."""
    grouped = apply_steps(kb.matmul(6, 10, 8), [Split(2, 4)])
    axis = next(i for i, r in enumerate(Analysis(grouped).ranges) if r.arg[1] is RangeKind.REDUCE)
    with pytest.raises(StepError, match="reduction around"):
        Pack(axis, 0).apply(Analysis(grouped))
    with pytest.raises(StepError, match="around the sum"):
        Chunk(axis, 2).apply(Analysis(apply_steps(kb.matmul(6, 10, 16), [Split(2, 4)])))


@verifies("steps.value.equal")
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


@verifies("steps.value.equal")
@on_each_processor
def test_a_loop_of_the_prefix_cut_in_two(device: str) -> None:
    ast = applied(kb.matmul(6, 12, 7), "cut:GLOBAL,2")
    assert len(ast.arg.prefix) == 3
    a, b = (np.arange(n, dtype=np.float32).reshape(-1, 7) % 5 for n in (42, 84))
    out = exact(ast, np.zeros((6, 12), np.float32), a, b.T.copy(), device=device)
    assert (out == a @ b.T).all()
    with pytest.raises(StepError, match="12 iterations.*divisor"):
        applied(kb.matmul(12, 5, 7), "cut:GLOBAL,7")


@verifies("steps.padding.untouched")
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


@verifies("kernel.integer.value")
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
    for made, device in itertools.product((ast, apply_steps(ast, [Upcast(0, 16)])), PROCESSORS):
        out = exact(made, np.zeros(19, np.int32), one, two, device=device)
        assert out.tolist() == wanted, device


@verifies("kernel.integer.value")
@verifies("steps.value.equal")
def test_products_of_bytes_four_at_a_time() -> None:
    generator = np.random.default_rng(0)
    limits = DeviceLimits(vector_bytes=64, vector_registers=32, dots=True)
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
        for device in PROCESSORS:
            out = np.zeros((rows, columns), np.int32)
            exact(made, a, np.ascontiguousarray(b.T) if turned else b, out, device=device)
            assert (out == a.astype(np.int32) @ b).all(), (rows, columns, inner, device)


@verifies("steps.legal.refused")
def test_only_products_of_bytes_are_taken_four_at_a_time() -> None:
    with pytest.raises(StepError, match="products of int8"):
        Dot(2).apply(Analysis(kb.matmul(8, 8, 8)))
    assert not any(step.name.startswith("DOT")
                   for step, _ in hand_steps(kb.matmul(8, 64, 64), replace(WIDE, dots=True)))


@verifies("steps.legal.refused")
def test_what_stays_in_the_kernel_is_not_asked_for() -> None:
    i, j, k = (new_range(size, kind) for size, kind in ((4, LOOP), (4, LOOP), (8, REDUCE)))
    total = kb.reduce(Ops.ADD, load(param(1), flat((i, 8), (k, 1))), k)
    ast = kb.kernel(store(local(0, 4), i, total, i), store(param(0), j, load(local(0, 4), j), j))
    known = Analysis(ast)
    with pytest.raises(StepError, match="FETCH"):
        Fetch(known.position[k]).apply(known)
