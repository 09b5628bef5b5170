"""Products, rows, convolutions: which steps they get by rule. Chapter: spec/choosing.md."""
from __future__ import annotations

import functools
import itertools
import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.bench.networks import scalar_work
from conformance.kernels import kernel_builder as kb
from conformance.kernels.devices import PROCESSORS, on_each_processor
from conformance.kernels.kernel_builder import flat, load, local, param, store
from conformance.learn import lesson_kernel
from conformance.trace import verifies
from impl import Context, Tensor, Variable, symbolic
from impl.blocking import Aside, Chunk, Pack, Window
from impl.choosing import hand_steps, products
from impl.choosing.planner import Planner
from impl.dialects import C
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits, Way, growth
from impl.nn.quantized import KINDS, Quantized
from impl.render import render
from impl.searching import optimize
from impl.steps import (
    Cut,
    Fetch,
    Merge,
    Own,
    PadTo,
    Share,
    StepError,
    Swap,
    Upcast,
    apply_steps,
    starting_kernel,
)

LOOP, GLOBAL, REDUCE = RangeKind.LOOP, RangeKind.GLOBAL, RangeKind.REDUCE
WIDE = DeviceLimits(vector_bytes=64, vector_registers=32)


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


# Steps


# Long reductions


@verifies("choosing.reduction.long")
@pytest.mark.parametrize(("shape", "axis", "wanted"), [
    ((1 << 14, 8), 0, "UPCAST(0,8) GROUP(1,4)"),     # one vector of results
    ((1 << 14, 32), 0, "UPCAST(0,16) GROUP(2,4)"),
    ((1 << 14, 64), 0, ""),                          # enough of them, also for blocks of sums
    ((64, 8), 0, "UPCAST(0,8)"),                     # nothing waits for long
    ((1 << 14, 3), 0, "GROUP(1,16) GROUP(2,4)"),     # a vector along the elements, three apart
    ((64, 3), 0, "")])
def test_a_long_reduction_has_several_accumulators(shape: tuple[int, ...], axis: int,
                                                   wanted: str) -> None:
    x = Tensor(np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)).realize()
    for name in ("sum", "max"):
        ast = starting_kernel(getattr(x, name)(axis).schedule()[0].ast)
        steps = [step.name for step, _ in hand_steps(ast, WIDE)]
        assert steps[:3] == wanted.split() or not wanted and "GROUP" not in "".join(steps), steps
        with Context(DEVICE="CPU"):
            found = getattr(Tensor(x.numpy()), name)(axis)
            np.testing.assert_array_equal(found.numpy(), getattr(x.numpy(), name)(axis))


@verifies("choosing.reduction.mostly")
def test_of_three_parts_one_may_be_gathered() -> None:
    """Parts of a bias's gradient that lie along it, and one that lies along the sum."""
    count, rows = 32, 64
    block, i = new_range(3, GLOBAL), new_range(count, GLOBAL)
    k = new_range(rows, REDUCE)
    along, across = flat((k, count), (i, 1)), flat((i, rows), (k, 1))
    for parts, wanted in (((along, across, along), ["UPCAST(1,16)"]),
                          ((across, along, across), [])):
        value = functools.reduce(lambda a, b: kb.apply(Ops.ADD, a, b), [
            load(param(place), index, symbolic.equal(block, place - 1))
            for place, index in enumerate(parts, 1)])
        ast = kb.kernel(store(param(0), flat((block, count), (i, 1)),
                              kb.reduce(Ops.ADD, value, k)), prefix=(block, i))
        steps = hand_steps(ast, WIDE)
        assert [step.name for step, _ in steps if "UPCAST" in step.name][:1] == wanted
        given = [np.random.default_rng(place).integers(-9, 9, rows * count).astype(np.float32)
                 for place in range(3)]
        out = np.zeros(3 * count, np.float32)
        found = exact(apply_steps(ast, [step for step, _ in steps]), out, *given, device="CPU")
        for place, index in enumerate(parts):
            matrix = given[place].reshape((rows, count) if index is along else (count, rows))
            wanted_sums = matrix.sum(0 if index is along else 1)
            assert (found.reshape(3, count)[place] == wanted_sums).all()


@verifies("choosing.reduction.mostly")
def test_of_two_parts_of_a_sum_one_may_be_gathered() -> None:
    """Pixels that lie side by side, and others that were stored phase by phase."""
    i, row, column = new_range(3, GLOBAL), new_range(20, REDUCE), new_range(14, REDUCE)
    phases = symbolic.add(symbolic.mul(symbolic.mod(column, 2), 60 * 7),
                          symbolic.add(symbolic.mul(row, 7), symbolic.floordiv(column, 2)))
    value = kb.apply(Ops.MUL, load(param(1), flat((i, 280), (row, 14), (column, 1))),
                     load(param(2), symbolic.add(phases, symbolic.mul(i, 140))))
    ast = kb.kernel(store(param(0), i, kb.reduce(Ops.ADD, value, row, column)), prefix=(i,))
    steps = hand_steps(ast, WIDE)
    assert "GROUP(2,8)" in [step.name for step, _ in steps], steps
    random = np.random.default_rng(0)
    plain, parts = (random.integers(-9, 9, size).astype(np.float32) for size in (840, 840))
    out = exact(apply_steps(ast, [step for step, _ in steps]), np.zeros(3, np.float32), plain,
                parts, device="CPU")
    ordered = parts.reshape(2, 3, 20, 7).transpose(1, 2, 3, 0).reshape(3, 280)
    assert (out == (plain.reshape(3, 280) * ordered).sum(1)).all()


# Rows of memory


@verifies("choosing.rows.vector")
def test_few_rows_read_the_other_operand_from_end_to_end() -> None:
    for rows, columns, whole in ((1, 512, True), (2, 512, True), (8, 512, True), (9, 512, False),
                                 (1, 64, False), (8, 64, False)):
        steps = [step.name for step, _ in hand_steps(kb.matmul(rows, columns, 300), WIDE)]
        assert any(name.startswith("CHUNK") for name in steps) is whole, (rows, columns)


@verifies("choosing.rows.vector")
@verifies("steps.value.equal")
@pytest.mark.parametrize("threads", [1, 2])
@on_each_processor
def test_sums_over_rows_of_memory_of_any_size(device: str, threads: int) -> None:
    limits = DeviceLimits(vector_bytes=64, vector_registers=32, threads=threads)
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


@verifies("choosing.product.parts+2")
@verifies("steps.value.equal")
@pytest.mark.parametrize(("rows", "threads", "parts"), [
    (64, 1, 1), (64, 2, 2), (64, 3, 2), (64, 4, 4), (48, 2, 2), (56, 2, 1), (72, 3, 3), (16, 2, 1)])
def test_tiles_of_rows_that_share_a_copy_are_cut_for_threads(rows: int, threads: int,
                                                             parts: int) -> None:
    """What 8, 8, 8, 6, 7, 9 and 2 tiles cost: a tile for each, and one more for the copy."""
    limits = DeviceLimits(vector_bytes=64, vector_registers=32, threads=threads)
    generator = np.random.default_rng(0)
    x, w = (Tensor(generator.standard_normal((n, 128)).astype(np.float32)) for n in (rows, 256))
    ast = (x @ w.transpose()).softmax(-1).schedule()[0].ast
    steps = [step.name for step, _ in hand_steps(ast, limits)]
    assert any(name.startswith("PACK") for name in steps)
    assert any(name.startswith("SHARE") for name in steps)
    cut = [name for name in steps if name.startswith("CUT")]
    assert cut == ([f"CUT(0,{rows // 8 // parts})"] if parts > 1 else [])
    assert any(name.startswith("THREAD(0,") for name in steps) is (parts > 1)


@verifies("choosing.product.parts+2")
@verifies("steps.value.equal")
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


@verifies("choosing.product.parts+2")
@pytest.mark.parametrize(("rows", "columns", "threads", "shared"), [
    (512, 128, 1, ""), (512, 128, 2, "CUT(0,256)"), (512, 128, 4, "CUT(0,128)"),
    (510, 128, 4, ""), (256, 512, 2, "CUT(0,128)"), (256, 576, 2, ""), (16, 128, 2, ""),
    (512, 64, 2, "")])
def test_threads_share_rows_that_are_copied_out_of_order(rows: int, columns: int, threads: int,
                                                         shared: str) -> None:
    """Not for one panel, few rows, many columns, or where the rows cannot be shared equally."""
    limits = DeviceLimits(vector_bytes=64, vector_registers=32, threads=threads)
    x, g = Tensor.ones(512, rows).contiguous(), Tensor.ones(512, columns).contiguous()
    Tensor.realize(x, g)
    ast = (x.transpose() @ g).schedule()[0].ast
    found = [step.name for step, _ in hand_steps(ast, limits)]
    assert found[0] == shared or not shared and not found[0].startswith("CUT")
    assert not shared or f"THREAD(0,{threads})" in found and "SHARE(1)" in found
    straight = [step.name for step, _ in hand_steps(
        (x @ g).schedule()[0].ast if rows == 512 else ast, limits)]
    assert rows < 512 or not straight[0].startswith("CUT"), "these rows are read as they lie"


@pytest.mark.slow
@verifies("choosing.product.parts+2")
@verifies("steps.value.equal")
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


@verifies("choosing.product.memory+2")
@pytest.mark.parametrize(("batch", "threads", "steps"), [
    (8, 1, ["SHARE(1)", "SHARE(0)"]), (8, 2, ["SHARE(1)", "CUT(0,4)", "SHARE(1)"]),
    (6, 4, ["SHARE(1)", "CUT(0,2)", "SHARE(1)"]), (7, 2, ["SHARE(1)"])])
def test_a_batch_shares_a_copy(batch: int, threads: int, steps: list[str]) -> None:
    limits = DeviceLimits(vector_bytes=64, vector_registers=32, threads=threads)
    x, w = Tensor.ones(batch, 64, 128).contiguous(), Tensor.ones(256, 128).contiguous()
    Tensor.realize(x, w)
    ast = (x @ w.transpose()).softmax(-1).schedule()[0].ast
    found = [step.name for step, _ in hand_steps(ast, limits)]
    assert [name for name in found if name.startswith(("SHARE", "CUT"))] == steps
    assert any(name.startswith("PACK") for name in found)


@verifies("choosing.product.memory+2")
@verifies("steps.value.equal")
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
@verifies("steps.value.equal")
@on_each_processor
@pytest.mark.parametrize("given", [(2, 9, 3, 1, 1, 1), (1, 21, 5, 1, 1, 0), (3, 12, 3, 2, 1, 1),
                                   (1, 17, 3, 1, 2, 2), (2, 20, 4, 3, 1, 0), (1, 12, 3, 3, 1, 0)])
def test_windows_read_a_copy_of_what_they_share(device: str, given: tuple[int, ...]) -> None:
    """A stride as long as the window, and nothing is shared: no copy."""
    plain = windows(*given)
    ast = optimize(plain, WIDE)
    assert any(s.startswith("WINDOW") for s in ast.arg.steps) is (given[2] > given[3])
    for copy in (s for s in ast.src if s.src[0].src[0].op is Ops.LOCAL):
        assert any(r.arg[1] is RangeKind.UPCAST for r in copy.src[2:])
    generator = np.random.default_rng(0)
    count, size, taps = given[:3]
    x, w = (generator.integers(-4, 5, (count, n, n)).astype(np.float32) for n in (size, taps))
    loops = [r.src[0].arg for r in plain.arg.prefix]
    wanted, out = np.zeros(loops, np.float32), np.zeros(loops, np.float32)
    exact(plain, wanted, x, w, device="REFERENCE")
    exact(ast, out, x, w, device=device)
    assert wanted.any() and (out == wanted).all(), ast.arg.steps


@verifies("choosing.product.windows")
@verifies("steps.value.equal")
@on_each_processor
@pytest.mark.parametrize(("given", "cache"), [
    ({"padding": 1}, 1 << 18), ({"stride": 2}, 1 << 16), ({"padding": 2, "dilation": 2}, 1 << 18)])
def test_the_gradient_of_weights_reads_a_copy_of_what_its_taps_share(
        device: str, given: dict[str, Any], cache: int) -> None:
    """And as much at a time as the second cache holds, of activations that are computed once."""
    generator = np.random.default_rng(0)
    limits = replace(WIDE, second_cache=cache)
    with Context(DEVICE=device):
        x, shift, w = (Tensor(generator.integers(-4, 5, shape).astype(np.float32)).realize()
                       for shape in ((8, 6, 17, 17), (1, 6, 1, 1), (20, 6, 3, 3)))
        result = (x + shift).relu().conv2d(w, **given)
        weights = Tensor(generator.integers(-4, 5, result.shape).astype(np.float32)).realize()
        slope, = (result * weights).sum().gradient(w)
        plain = starting_kernel(slope.schedule()[0].ast)
    ast = optimize(plain, limits)
    names = " ".join(ast.arg.steps)
    assert "WINDOW" in names and "CHUNK" in names and "PACK" in names, names
    sizes = {node.src[0].arg: symbolic.bounds(node.src[1])[1] + 1 for node in plain.toposort()
             if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM}
    memory = [generator.integers(-3, 4, sizes[place]).astype(np.float32)
              for place in range(len(sizes))]
    target = plain.src[0].src[0].src[0].arg
    found = []
    for kernel, where in ((plain, "REFERENCE"), (ast, device)):
        again = [array.copy() for array in memory]
        with Context(NOOPT=1):
            kb.run(kernel, *again, device=where)
        found.append(again[target])
    assert found[0].any() and (found[0] == found[1]).all(), names


def integers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)).realize()


@verifies("choosing.product.phases")
@verifies("steps.value.equal")
def test_loops_that_memory_sees_in_phases_are_two() -> None:
    """Of shuffled pixels, and of a sum over the channels of a group."""
    x, w, bias = integers(1, 16, 9, 8), integers(12, 16, 3, 3), integers(8)
    shuffled = x.conv2d(w, padding=1).reshape(1, 3, 2, 2, 9, 8).permute(0, 1, 4, 2, 5, 3) \
        .reshape(1, 3, 18, 16) + integers(1, 3, 18, 16)
    group = (integers(3, 8, 16) + bias.reshape(1, 8, 1)).reshape(3, 2, 64).sum(2)
    for made, words in ((shuffled, "CUT(2,2) UPCAST PACK"), (group, "CHUNK(2,16) GROUP")):
        ast = starting_kernel(made.schedule()[-1].ast)
        names = " ".join(step.name for step, _ in hand_steps(ast, WIDE))
        assert all(word in names for word in words.split()), names
        _same(ast, optimize(ast, WIDE))


@verifies("choosing.product.phases")
def test_heads_that_share_keys_are_rows_beside_each_other() -> None:
    """Of one query, eight heads for each key share what is read, also of a text that grows."""
    query, keys = integers(1, 16, 1, 32), integers(1, 2, 40, 32)
    places = Variable("places", 1, 40)
    for count in (40, places.bind(9)):
        made = query.scaled_dot_product_attention(
            keys[:, :, :count], keys[:, :, :count], enable_gqa=True)
        ast = starting_kernel(made.schedule()[-1].ast)
        steps = [step for step, _ in hand_steps(ast, WIDE)]
        names = " ".join(step.name for step in steps)
        assert "CUT(0,8) UPCAST(1,8)" in names and "16)" in names, names


@verifies("choosing.product.stage")
@verifies("choosing.product.memory+2")
def test_rows_of_attention_are_as_many_as_registers_hold() -> None:
    """Rows that are padding are asked for where six of them are copied, not at each element."""
    narrow = DeviceLimits(vector_bytes=32, vector_registers=16)
    for tokens, limits, rows, copied in ((128, WIDE, 8, False), (128, narrow, 6, True),
                                         (96, narrow, 6, False), (49, narrow, 6, True),
                                         (98, WIDE, 8, True), (8, narrow, 4, False)):
        query, keys, values = (integers(2, tokens, 64) for _ in range(3))
        made = query.scaled_dot_product_attention(keys, values).schedule()[-1].ast
        steps = [step for step, _ in hand_steps(starting_kernel(made), limits)]
        assert f"UPCAST(1,{rows})" in [step.name for step in steps[:2]], steps
        assert any(type(step) is Aside for step in steps) is copied, steps


@verifies("choosing.product.phases")
def test_a_product_with_few_rows_copies_what_it_would_read_one_by_one() -> None:
    """Four rows share what is copied; if it is read as it lies, a copy would not pay."""
    x, w = integers(2, 16, 33, 33), integers(4, 16, 3, 3)
    for stride, copied in ((1, False), (2, True)):
        ast = starting_kernel(x.conv2d(w, stride=stride).schedule()[-1].ast)
        names = " ".join(step.name for step, _ in hand_steps(ast, WIDE))
        assert ("PACK" in names) is copied, names
        _same(ast, optimize(ast, WIDE))


@verifies("choosing.product.along+2")
@pytest.mark.parametrize(("columns", "inner", "copied"), [
    (2, 300, False), (3, 300, False), (4, 300, True), (3, 200, True)])
def test_two_or_three_columns_copy_no_rows(columns: int, inner: int, copied: bool) -> None:
    """A vector runs along a row of 300 numbers, of which four rows share what is read."""
    ast = kb.matmul(70, columns, inner)
    made = optimize(ast, WIDE)
    assert any(name.startswith("PACK(") for name in made.arg.steps) is copied
    a = np.random.default_rng(0).integers(-4, 5, (70, inner)).astype(np.float32)
    b = np.random.default_rng(1).integers(-4, 5, (inner, columns)).astype(np.float32)
    for device in PROCESSORS:
        out = exact(made, np.zeros(70 * columns, np.float32), a, b, device=device)
        assert (out.reshape(70, columns) == a @ b).all()


@verifies("choosing.product.along+2")
@verifies("steps.value.equal")
def test_few_rows_read_an_operand_as_it_lies() -> None:
    for rows, columns, inner, as_it_lies in ((3, 31, 200, True), (7, 33, 130, True),
                                             (8, 64, 300, False)):
        ast = kb.matmul(rows, columns, inner, transposed=True)
        names = [step.name for step, _ in hand_steps(ast, WIDE)]
        assert any(name.startswith("PACK") for name in names) is not as_it_lies, names
        assert any(name.startswith("GROUP") for name in names) is as_it_lies, names
        _same(ast, optimize(ast, WIDE))
    few_columns = kb.matmul(33, 3, 130)  # the columns do not lie along the sum: they are copied
    names = [step.name for step, _ in hand_steps(few_columns, WIDE)]
    assert any(name.startswith("PACK") for name in names), names
    _same(few_columns, optimize(few_columns, WIDE))


def _same(plain: UOp, changed: UOp) -> None:
    """Two kernels store the same whole numbers."""
    generator = np.random.default_rng(0)
    sizes = {node.src[0].arg: symbolic.bounds(node.src[1])[1] + 1 for node in plain.toposort()
             if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM}
    memory = [generator.integers(-3, 4, sizes[place]).astype(np.float32)
              for place in range(len(sizes))]
    target, found = plain.src[-1].src[0].src[0].arg, []
    for kernel in (plain, changed):
        again = [array.copy() for array in memory]
        with Context(NOOPT=1):
            kb.run(kernel, *again, device="REFERENCE")
        found.append(again[target])
    assert found[0].any() and (found[0] == found[1]).all(), changed.arg.steps


@verifies("choosing.window.shared")
@verifies("steps.legal.refused")
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


@verifies("choosing.product.shifts")
@verifies("steps.value.equal")
@on_each_processor
def test_shifts_of_packed_numbers_are_written_out(device: str) -> None:
    """Two numbers of four bits in a byte, and four of two; eight of one are left in their loop."""
    generator = np.random.default_rng(0)
    for width, written in ((4, True), (2, True), (1, False)):
        count = 8 // width
        packed = generator.integers(0, 256, (16, 64)).astype(np.uint8)
        x = generator.integers(-4, 5, (count, 64)).astype(np.float32)
        shifts = np.arange(count, dtype=np.uint32) * width
        numbers = (packed[:, None, :] >> shifts[:, None].astype(np.uint8)) & (2 ** width - 1)
        with Context(DEVICE=device):
            bits = (Tensor(packed).realize().reshape(16, 1, 64).cast(dtypes.uint32)
                    >> Tensor.arange(count, dtype=dtypes.uint32).reshape(-1, 1) * width)
            made = ((bits & (2 ** width - 1)).float() * Tensor(x).realize()).sum((1, 2))
            names = [step.name for step, _ in hand_steps(made.schedule()[-1].ast, WIDE)]
            unrolled = [name for name in names if name.startswith("UNROLL")
                        and name.endswith(f",{count})")]
            assert bool(unrolled) is written, names
            assert (made.numpy() == (numbers * x).sum((1, 2))).all()


@verifies("choosing.window.apart")
def test_scales_of_rows_in_a_tile_are_vectors() -> None:
    """Each block has two times two scales side by side: the rows of the tile do not part them."""
    blocks = Tensor(np.zeros((64, 4, 144), np.uint8)).realize()
    product = Quantized(blocks, KINDS[12]).linear(integers(1, 1024))
    names = [step.name for step, _ in hand_steps(product.schedule()[-1].ast, WIDE)]
    assert names[0] == "UPCAST(0,8)" and sum(name.startswith("MERGE") for name in names) == 2, names


@verifies("choosing.window.apart")
@verifies("steps.value.equal")
@on_each_processor
@pytest.mark.parametrize("width", [8, 13, 14, 21])
def test_results_of_a_pool_are_vectors(device: str, width: int) -> None:
    """One by one are few of them, and none of those that are dear."""
    generator = np.random.default_rng(0)
    x = generator.integers(-3, 4, (3, 2, 6, 2 * width)).astype(np.float32)
    with Context(DEVICE=device):
        given = Tensor(x).realize()
        for dear in (False, True):
            pooled = (given.exp() if dear else given).avg_pool2d(2)
            kernel = pooled.schedule()[0].ast
            alone, total = scalar_work(kernel, WIDE)
            assert alone <= total * (0 if dear else 0.45)
            source = np.exp(x.astype(np.float64)) if dear else x
            expected = source.reshape(3, 2, 3, 2, width, 2).mean((3, 5))
            np.testing.assert_allclose(pooled.numpy(), expected, rtol=1e-6)


@verifies("choosing.product.table")
@verifies("steps.value.equal")
@on_each_processor
@pytest.mark.parametrize("size", [8, 11, 16, 17, 32])
def test_a_table_of_few_numbers_is_read_from_a_register(device: str, size: int) -> None:
    """Longer ones, and those that have no power of two of numbers, are read as they were."""
    generator = np.random.default_rng(size)
    table, x = (generator.integers(-9, 10, count).astype(np.float32) for count in (size, 96))
    codes = generator.integers(0, 256, (5, 96)).astype(np.uint8)
    with Context(DEVICE=device):
        given, places = Tensor(table).realize(), Tensor(codes).realize() % size
        found = (given[places] * Tensor(x).realize()).sum(1)
        if size in (8, 16):
            alone, total = scalar_work(found.schedule()[-1].ast, WIDE)
            assert alone <= 0.2 * total
        assert (found.numpy() == (table[codes % size] * x).sum(1)).all()
        if size in (8, 16):  # of two tables most of what is read is scattered, but for them
            both = (given[places] * (given + 1).realize()[places]).sum(1)
            alone, total = scalar_work(both.schedule()[-1].ast, WIDE)
            assert alone <= 0.2 * total
            assert (both.numpy() == (table[codes % size] * (table[codes % size] + 1)).sum(1)).all()
        doubled = given[places.reshape(-1)] * 2
        # What it is called with 16 lanes, on whatever processor this runs.
        text = render(optimize(starting_kernel(doubled.schedule()[-1].ast), WIDE), C()).body
        assert ("table_" in text) is (size == 16)
        assert doubled.numpy().tolist() == (table[codes % size] * 2).reshape(-1).tolist()


@verifies("choosing.window.apart")
@verifies("steps.value.equal")
@on_each_processor
@pytest.mark.parametrize(("size", "step"), [(2, 2), (3, 2), (3, 1)])
def test_the_gradient_of_a_pool_is_made_of_vectors(device: str, size: int, step: int) -> None:
    generator = np.random.default_rng(size + step)
    x = generator.permutation(2 * 26 * 26).reshape(1, 2, 26, 26).astype(np.float32)
    with Context(DEVICE=device):
        given = Tensor(x, requires_grad=True)
        pooled = given.max_pool2d(size, step)
        upstream = generator.integers(1, 5, pooled.shape).astype(np.float32)
        scale = Tensor(upstream).realize()
        part = (pooled * scale).sum().gradient(given)[0]
        for item in part.schedule():
            alone, total = scalar_work(item.ast, WIDE)
            assert alone <= 0.3 * total, item.ast.arg.name
        expected = np.zeros(x.shape)
        for place in np.ndindex(*pooled.shape):
            top, left = place[2] * step, place[3] * step
            seen = x[0, place[1], top:top + size, left:left + size]
            high, wide = np.unravel_index(seen.argmax(), seen.shape)
            expected[0, place[1], top + high, left + wide] += upstream[place]
        assert (part.numpy() == expected).all()


# Bytes


# Choosing


@verifies("choosing.product.tile")
@pytest.mark.parametrize("limits", [
    WIDE, DeviceLimits(), DeviceLimits(vector_bytes=16, vector_registers=32)])
def test_a_tile_fits_the_registers(limits: DeviceLimits) -> None:
    for rows, columns in itertools.product((1, 2, 5, 6, 7, 64, 1021), (1, 3, 16, 48, 100, 1021)):
        tile = products.choose_tile(limits, 4, rows, columns)
        assert (tile.rows + 1) * tile.vectors + 1 <= limits.vector_registers
        assert 1 <= tile.rows <= rows
        assert tile.width * 4 <= limits.vector_bytes


@verifies("choosing.product.tile")
def test_a_tile_multiplies_and_loads_little() -> None:
    for product in lesson_kernel.products():
        limits = DeviceLimits(vector_bytes=4 * product.elements, vector_registers=product.registers)
        tile = products.choose_tile(limits, 4, product.rows, product.columns)
        taken = lesson_kernel.work(product, tile.rows, tile.vectors, tile.width)
        assert 2 * taken.total <= 3 * lesson_kernel.best(product)[0].total, (product, tile)


@verifies("choosing.product.tile")
def test_the_text_of_a_product_loads_what_its_tile_does() -> None:
    text = render(optimize(kb.matmul(60, 64, 64), WIDE), C()).body
    tile = products.choose_tile(WIDE, 4, 60, 64)
    inner = next(part for part in text.split("for (") if "fma" in part).split("}")[0]
    loads = [line for line in inner.splitlines() if line.strip().startswith("const f")]
    assert (inner.count("= fma_f32x16("), len(loads)) == (24, 10)
    assert (tile.rows * tile.vectors, tile.rows + tile.vectors) == (24, 10)


@verifies("choosing.product.tile")
def test_a_large_product_packs_a_panel_and_fills_the_registers() -> None:
    steps = [step.name for step, _ in hand_steps(kb.matmul(512, 512, 512), WIDE)]
    assert [step.split("(")[0] for step in steps] == ["SWAP", "OWN", *["UPCAST"] * 2, "PACK",
                                                      *["UPCAST"] * 2, "NEXT"]
    assert [step[-3:-1] for step in steps[-3:-1]] == [",6", ",2"]
    text = render(optimize(kb.matmul(512, 512, 512), WIDE), C()).body
    assert text.count("= fma_f32x16(") == (6 + 2) * 4


@verifies("choosing.product.column+3")
def test_long_sums_are_vectors_even_if_few_results_lie_side_by_side() -> None:
    x, w = Tensor.ones(4, 32, 14, 14).contiguous().realize(), Tensor.ones(32, 32, 3, 3)
    w = w.contiguous().realize()
    y = x.conv2d(w, padding=1)
    upstream = Tensor.ones(*y.shape).contiguous().realize()
    kernel, = (y * upstream).sum().gradient(w)[0].schedule()
    text = render(optimize(kernel.ast, WIDE), C()).body
    assert text.count("= fma_f32x16(") >= 16
    assert "= fma_f32x4(" not in text


@verifies("choosing.product.column+3")
@pytest.mark.parametrize(("inner", "beside"), [(15, True), (16, False)])
def test_two_results_side_by_side_are_no_vector_where_sums_are_not_short(
        inner: int, beside: bool) -> None:
    """As the gradient of a convolution over time for its windows."""
    c, t, w = (new_range(size, GLOBAL) for size in (32, 100, 2))
    k = new_range(inner, REDUCE)
    value = kb.reduce(Ops.ADD, kb.apply(Ops.MUL, load(param(1), flat((k, 100), (t, 1))),
                                        load(param(2), flat((k, 64), (c, 2), (w, 1)))), k)
    ast = kb.kernel(store(param(0), flat((c, 200), (t, 2), (w, 1)), value), prefix=(c, t, w))
    roles = products.find_roles(Planner(ast, WIDE), value)
    assert roles is not None and (roles.column is w) is beside


@verifies("choosing.product.column+3")
@pytest.mark.parametrize(("size", "channels", "vector"), [
    (24, 16, "channels"), (8, 16, "channels"), (7, 16, "channels"), (16, 16, "pixels"),
    (14, 16, "pixels"), (8, 8, "pixels")])
def test_rows_that_fill_few_lanes_are_no_vectors(size: int, channels: int, vector: str) -> None:
    """Of results that are long sums; with few channels the sums are short."""
    x = Tensor.ones(2, channels, size, size).contiguous().realize()
    w = Tensor.ones(32, channels, 3, 3).contiguous().realize()
    kernel, = x.conv2d(w, padding=1).schedule()
    planner = Planner(kernel.ast, WIDE)
    node = next(n for n in kernel.ast.toposort() if n.op is Ops.REDUCE)
    roles = products.find_roles(planner, node)
    assert roles is not None
    steps = planner.growth[kernel.ast.src[0].src[0].src[1]] or {}
    assert steps[roles.column] == (1 if vector == "pixels" else size * size)


@verifies("choosing.product.memory+2")
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


@verifies("choosing.threads.shares+2")
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
    start = starting_kernel(item.ast)
    steps = hand_steps(start, DeviceLimits(vector_bytes=64, vector_registers=32))
    assert steps and apply_steps(start, [step for step, _ in steps])


def _sums(rows: int, inner: int, columns: int, apart: int = 0) -> UOp:
    m, n, k = new_range(rows, GLOBAL), new_range(columns, GLOBAL), new_range(inner, REDUCE)
    value = kb.apply(Ops.MUL, load(param(1), flat((m, inner), (k, 1))),
                     load(param(2), flat((k, columns), (n, 1))))
    place = flat((m, apart or columns), (n, 1))
    return kb.kernel(store(param(0), place, kb.reduce(Ops.ADD, value, k)), prefix=(m, n))


@verifies("choosing.product.streams")
@pytest.mark.parametrize(("inner", "moments", "rows"), [
    (2, 0, 8), (2, 1, 2), (8, 2, 2), (9, 1, 4), (12, 0, 8)])
def test_rows_of_a_tile_are_few_where_each_result_has_memory_of_its_own(
        inner: int, moments: int, rows: int) -> None:
    m, n, k = new_range(16, GLOBAL), new_range(16, GLOBAL), new_range(inner, REDUCE)
    value = kb.reduce(Ops.ADD, kb.apply(Ops.MUL, load(param(1), flat((k, 16), (m, 1))),
                                        load(param(2), flat((k, 16), (n, 1)))), k)
    place = flat((m, 16), (n, 1))
    for number in range(moments):
        value = kb.apply(Ops.ADD, value, load(param(3 + number), place))
    shared = kb.apply(Ops.ADD, value, load(param(9), n))  # one for all rows
    ast = kb.kernel(store(param(0), place, shared), store(param(10), place, value), prefix=(m, n))
    amounts = [step.amount for step, _ in hand_steps(ast, WIDE) if isinstance(step, Upcast)]
    assert amounts == [16, rows]


@verifies("choosing.product.memory+2")
def test_outputs_across_lines_are_asked_for() -> None:
    def fetches(*sizes: int) -> bool:
        return any(type(step) is Fetch for step, _ in hand_steps(_sums(*sizes), WIDE))
    assert fetches(64, 100, 841)
    assert not fetches(64, 100, 832)  # 52 lines a row
    assert not fetches(64, 16, 841)   # the sums are there before the memory is


@verifies("lowering.fetch.before+3")
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
    for device in PROCESSORS:
        out = exact(made, np.zeros(18 * 200, np.float32), wanted, other, device=device)
        assert (out.reshape(18, 200)[:, :columns] == wanted @ other).all()


@verifies("lowering.fetch.before+3")
def test_lines_between_what_is_stored_are_not_asked_for() -> None:
    """A vector whose elements are stored 289 apart, as results of a transposed convolution are."""
    i, k = new_range(16, GLOBAL), new_range(40, REDUCE)
    value = kb.apply(Ops.MUL, load(param(1), flat((k, 16), (i, 1))), load(param(2), k))
    ast = kb.kernel(store(param(0), flat((i, 289)), kb.reduce(Ops.ADD, value, k)), prefix=(i,))
    made = apply_steps(ast, [Upcast(0, 16)])
    made = Fetch(Analysis(made).position[next(
        r for r in Analysis(made).ranges if r.arg[1] is REDUCE)]).apply(Analysis(made))
    asked = re.findall(r"__builtin_prefetch\(p0 \+ (?:\d+ \+ )?(\d+),", render(made, C()).body)
    assert [int(place) for place in asked] == [289 * each for each in range(16)]


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


@verifies("blocking.copy.stored")
@verifies("choosing.product.memory+2")
@pytest.mark.parametrize("before", [False, True])
def test_an_operand_is_copied_before_it_is_updated_or_after(before: bool) -> None:
    x = np.random.default_rng(0).integers(-4, 5, (12, 10)).astype(np.float32)
    weight = np.random.default_rng(1).integers(-4, 5, (32, 10)).astype(np.float32)
    ast = applied(_in_place(before), "upcast:GLOBAL,16 pack:REDUCE,1")
    for made in (ast, optimize(_in_place(before), WIDE)):
        for device in PROCESSORS:
            given = weight.reshape(-1).copy()
            out = exact(made, np.zeros(12 * 32, np.float32), given, x, device=device)
            assert (out.reshape(12, 32) == x @ (weight * (1 + before)).T).all()
            assert (given.reshape(32, 10) == 2 * weight).all()


@verifies("choosing.product.memory+2")
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


@verifies("choosing.product.memory+2")
@pytest.mark.parametrize("width", [64, 50])
def test_an_operand_of_several_parts_is_computed_once(width: int) -> None:
    ast, loop = _of_parts(width)
    assert any(type(step) is Aside for step, _ in hand_steps(ast, WIDE))
    aside = Aside(Analysis(ast).position[loop], 0).apply(Analysis(ast))
    rng = np.random.default_rng(3)
    x, y, z = (rng.integers(-4, 5, size).astype(np.float32)
               for size in ((16, width), (16, width), (width, 96)))
    for made in (optimize(ast, WIDE), aside):
        for device in PROCESSORS:
            out = exact(made, np.zeros(16 * 96, np.float32), x.reshape(-1), y.reshape(-1),
                        z.reshape(-1), device=device)
            assert (out.reshape(16, 96) == (2 * x + y) @ z).all()


@verifies("choosing.product.refused")
@verifies("choosing.step.legal+2")
def test_a_plan_that_is_not_legal_is_not_taken() -> None:
    """Convolutions with stride and dilation along their rows."""
    for stride, kernel, dilation in (((3, 1), (4, 3), (2, 1)), ((2, 1), (3, 3), (2, 1))):
        x = Tensor.arange(2 * 37 * 30).reshape(1, 2, 37, 30).float().contiguous().realize()
        w = Tensor.ones(2, 2, *kernel).contiguous().realize()

        def convolved(x: Tensor, w: Tensor, stride: Any = stride, dilation: Any = dilation) -> Any:
            return x.conv_transpose2d(w, stride=stride, dilation=dilation).sum((0, 1)).numpy()
        found = convolved(x, w)
        with Context(NOOPT=1):
            assert np.array_equal(found, convolved(x + 0, w + 0))
