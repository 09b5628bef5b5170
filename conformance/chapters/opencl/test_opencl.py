"""Devices with work-groups: steps for lanes, barriers, OpenCL. Chapters: kernel, render, opencl."""
from __future__ import annotations

import gc
import itertools
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.emulation.devices import OnDevice
from conformance.generators import multi_programs
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, local, param, reduce, store
from conformance.runner.subject import Subject
from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor, TinyJit, opencl, symbolic
from impl.device import Device
from impl.dialects import Metal, OpenCL
from impl.dtypes import DType, dtypes
from impl.errors import CompileError, DeviceError, DTypeError
from impl.groups import Grid, Local, lane_steps
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits
from impl.lowering import waits as groups
from impl.lowering.blocks import Block, Loop, Wait
from impl.lowering.lower import lower
from impl.render import render
from impl.searching import with_steps
from impl.steps import Step, StepError, Upcast, apply_steps

GLOBAL, LOOP, REDUCE, BLOCK = (RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE, RangeKind.BLOCK)

pytestmark = pytest.mark.device("OPENCL")


def plus(*given: UOp) -> UOp:
    return kb.apply(Ops.ADD, *given)


def run_as_it_is(ast: UOp, *arrays: np.ndarray, values: tuple[int, ...] = ()) -> None:
    """Run a kernel with the steps it has and no others."""
    kb.run(with_steps(ast, ()), *arrays, values=values, device="OPENCL")


def rows_minus_sum(rows: int, columns: int) -> UOp:
    """out[r, j] = x[r, j] - the sum of the row, through two LOCALs."""
    r = new_range(rows, GLOBAL)
    j, k, j2 = (new_range(columns, kind) for kind in (LOOP, REDUCE, LOOP))
    one = local(0, columns, INT)
    fetch = store(one, j, load(param(1, INT), flat((r, columns), (j, 1))), j)
    total = reduce(Ops.ADD, load(one, k), k)
    value = kb.apply(Ops.SUB, load(one, j2), total)
    return kb.kernel(fetch, store(param(0, INT), flat((r, columns), (j2, 1)), value, j2),
                     prefix=(r,), name="rows")


# Values


def random_lanes(ast: UOp, seed: int) -> UOp:
    """The kernel with some loops shared by lanes."""
    draw = random.Random(seed)
    for _ in range(4):
        known = Analysis(ast)
        if not known.ranges:
            break
        kind = draw.choice((Local, Local, Grid))
        try:
            step: Step = kind(draw.randrange(len(known.ranges)), draw.choice((2, 4, 16)))
            ast = step.apply(known)
        except StepError:
            continue
    return ast


@pytest.mark.slow
@verifies("opencl.values.reference")
@verifies("steps.value.equal")
def test_random_kernels_store_what_the_reference_stores() -> None:
    """With the steps that rules choose, and with lanes on random loops."""
    made = [kb.random_kernel(seed) for seed in range(40)]
    asts = [each.ast if seed % 3 == 0 else with_steps(random_lanes(
        kb.random_steps(each.ast, seed) if seed % 2 else each.ast, seed), ())
        for seed, each in enumerate(made)]
    Device["OPENCL"].compile(asts)  # together
    for each, ast in zip(made, asts, strict=True):
        wanted = each.result(each.ast, "REFERENCE")
        assert np.array_equal(each.result(ast, "OPENCL"), wanted), ast.arg.steps


_OPERATIONS = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR, Ops.POW,
               Ops.MAXIMUM, Ops.MINIMUM, Ops.AND, Ops.XOR, Ops.NEG, Ops.CMPLT)
_WHOLE = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32,
          dtypes.int64, dtypes.uint64)


def together(count: int, dtype: DType, arguments: int,
             values: Callable[..., list[UOp]]) -> UOp:
    """out0[i], out1[i], ... = values of a[i], ...: the driver takes its time for each kernel."""
    i = new_range(count, GLOBAL)
    stored = len(values([kb.number(dtype, 1)] * arguments))
    made = values([load(param(stored + n, dtype), i) for n in range(arguments)])
    return kb.kernel(*(store(param(place, value.dtype), i, value)
                       for place, value in enumerate(made)), prefix=(i,))


def check_stored(ast: UOp, types: Sequence[DType], *given: np.ndarray) -> None:
    """Every value of a kernel is that of the reference."""
    found = []
    for device in ("REFERENCE", "OPENCL"):
        outs = [kb.from_host(np.zeros(given[0].size), dtype) for dtype in types]
        kb.run(ast, *outs, *given, device=device)
        found.append([kb.to_host(out, dtype) for out, dtype in zip(outs, types, strict=True)])
    for place, dtype in enumerate(types):
        assert np.array_equal(found[0][place], found[1][place], equal_nan=dtype.kind == "f"), \
            ast.src[place]


@verifies("opencl.values.reference")
@verifies("conventions.integers.exact")
def test_integers_are_exact_at_their_limits() -> None:
    asts = [together(64 * 64, dtype, 2, lambda given: [
        kb.apply(op, *given[:1 if op is Ops.NEG else 2]) for op in _OPERATIONS])
        for dtype in _WHOLE]
    Device["OPENCL"].compile(asts)
    for dtype, ast in zip(_WHOLE, asts, strict=True):
        values = kb.special(dtype)
        a, b = (np.ascontiguousarray(x).reshape(-1) for x in np.meshgrid(values, values))
        check_stored(ast, [dtypes.bool if op is Ops.CMPLT else dtype for op in _OPERATIONS], a, b)


@pytest.mark.slow
@verifies("opencl.values.reference")
@verifies("kernel.half.wide")
def test_casts_of_every_type_to_every_type() -> None:
    """Half types are 16 bits: all of them are read, and floats near ties are rounded to them."""
    every = (*_WHOLE, dtypes.bool, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
    cases = []
    for one, kinds in itertools.product(every, ("bf", "i", "u")):
        targets = [two for two in every if two.kind in kinds and two is not one]
        values = kb.special(one, 70)
        if one.kind == "f" and kinds != "bf":  # what does not fit is left open
            given = np.nan_to_num(kb.to_host(values, one).astype(np.float32))
            values = kb.from_host(given.clip(0 if kinds == "u" else -100, 100), one)
        cases.append((values, targets, together(70, one, 1, lambda given, targets=targets: [
            kb.apply(Ops.CAST, *given, dtype=two) for two in targets])))
    Device["OPENCL"].compile([ast for _, _, ast in cases])
    for values, targets, ast in cases:
        check_stored(ast, targets, values)


@verifies("kernel.half.wide")
def test_every_half_is_read_and_written() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    for dtype in (dtypes.float16, dtypes.bfloat16):
        i = new_range(1 << 16, GLOBAL)
        wide = kb.apply(Ops.CAST, load(param(1, dtype), i), dtype=FLOAT)
        back = kb.apply(Ops.CAST, load(param(2, FLOAT), i), dtype=dtype)
        out, again = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.uint16)
        ast = kb.kernel(store(param(0, FLOAT), i, wide), store(param(3, dtype), i, back),
                        prefix=(i,))
        given = kb.to_host(bits if dtype is dtypes.bfloat16 else bits.view(np.float16), dtype)
        near: np.ndarray = given.astype(np.float32)
        with np.errstate(invalid="ignore"):
            near = (near + np.abs(near) * 2.0 ** -12).astype(np.float32)
        kb.run(ast, out, bits, near, again, device="OPENCL")
        assert np.array_equal(out, given.astype(np.float32), equal_nan=True)
        with np.errstate(over="ignore"):
            wanted = kb.to_host(kb.from_host(near, dtype), dtype).astype(np.float32)
        kind = again if dtype is dtypes.bfloat16 else again.view(np.float16)
        assert np.array_equal(kb.to_host(kind, dtype).astype(np.float32), wanted, equal_nan=True)


@verifies("functions.function.special")
@verifies("functions.function.error")
def test_functions_agree_with_the_reference() -> None:
    names = kb.FLOAT_FUNCTIONS
    for dtype in (dtypes.float32, dtypes.float64):
        i = new_range(200, GLOBAL)
        ast = kb.kernel(*(store(param(place, dtype), i, kb.apply(op, load(param(20, dtype), i)))
                          for place, op in enumerate(names)), prefix=(i,))
        values, rest = kb.special(dtype, 200), [np.zeros(1, dtype.numpy)] * (20 - len(names))
        found = []
        for device in ("REFERENCE", "OPENCL"):
            outs = [np.zeros(200, dtype.numpy) for _ in names]
            with np.errstate(all="ignore"):
                kb.run(ast, *outs, *rest, values, device=device)
            found.append(outs)
        for op, one, two in zip(names, *found, strict=True):
            assert np.allclose(two, one, rtol=4e-7, atol=1e-44, equal_nan=True), op


# Steps


@verifies("groups.lane.legal+2")
def test_lanes_share_what_they_may() -> None:
    ast = rows_minus_sum(6, 40)
    each, shared = apply_steps(ast, [Local(0, 4)]), apply_steps(ast, [Local(1, 4), Local(2, 4)])
    assert each.arg.lanes == shared.arg.lanes == 4
    for asked, steps in ((ast, [Local(0, 4), Local(1, 4)]), (ast, [Local(1, 4), Local(0, 4)]),
                         (ast, [Local(1, 4), Local(2, 8)]), (ast, [Local(0, 1)]),
                         (ast, [Local(1, 4), Grid(2, 8)])):
        with pytest.raises(StepError):
            apply_steps(asked, steps)
    i, j = new_range(4, GLOBAL), new_range(5, GLOBAL)
    nest = kb.kernel(store(param(0, INT), flat((i, 5), (j, 1)), kb.number(INT, 1)), prefix=(i, j))
    with pytest.raises(StepError, match="behind"):
        apply_steps(nest, [Local(0, 4)])
    for parts in (each, shared, apply_steps(nest, [Local(1, 4), Local(0, 4)])):
        assert render(parts, OpenCL()).lanes == 4


@verifies("steps.threads.refused+2")
def test_a_reduction_that_reads_what_is_stored_later_is_shared() -> None:
    """In place: the sum of each row of x, and then x = x + the sum."""
    r, j, k = new_range(3, GLOBAL), new_range(40, LOOP), new_range(40, REDUCE)
    at = flat((r, 40), (j, 1))
    total = reduce(Ops.ADD, load(param(0, INT), flat((r, 40), (k, 1))), k)
    ast = kb.kernel(store(param(0, INT), at, plus(load(param(0, INT), at), total), j), prefix=(r,))
    steps = [Local(Analysis(ast).position[loop], 4) for loop in (j, k)]
    found = np.arange(120, dtype=np.int32)
    wanted = found.reshape(3, 40) + found.reshape(3, 40).sum(1, keepdims=True)
    run_as_it_is(apply_steps(ast, steps), found)
    assert np.array_equal(found.reshape(3, 40), wanted)


@verifies("groups.lane.legal+2")
@verifies("steps.threads.refused+2")
def test_a_reduction_that_reads_what_was_stored_before_is_not_moved() -> None:
    """In place: x = x + 1, and then the sum of x."""
    r, j, k = new_range(3, GLOBAL), new_range(40, LOOP), new_range(40, REDUCE)
    at = flat((r, 40), (j, 1))
    more = store(param(0, INT), at, plus(load(param(0, INT), at), kb.number(INT, 1)), j)
    total = reduce(Ops.ADD, load(param(0, INT), flat((r, 40), (k, 1))), k)
    ast = kb.kernel(more, store(param(1, INT), r, total), prefix=(r,))
    number = next(i for i, loop in enumerate(Analysis(ast).ranges) if loop is k)
    with pytest.raises(StepError, match="before"):
        apply_steps(ast, [Local(number, 4)])
    values = np.arange(120, dtype=np.int32)
    out = np.zeros(3, np.int32)
    given = values.copy()
    run_as_it_is(apply_steps(ast, [Local(1, 4)]), given, out)
    assert np.array_equal(given, values + 1)
    assert np.array_equal(out, (values + 1).reshape(3, 40).sum(1))


@pytest.mark.slow
@verifies("steps.parts.order")
@verifies("steps.threads.refused+2")
def test_a_reduction_is_shared_by_lanes() -> None:
    for rows, columns, lanes in ((3, 1000, 64), (2, 7, 4), (1, 513, 256), (4, 256, 256)):
        r, k = new_range(rows, GLOBAL), new_range(columns, REDUCE)
        for op in (Ops.ADD, Ops.MAXIMUM, Ops.MUL):
            value = reduce(op, load(param(1, INT), flat((r, columns), (k, 1))), k)
            plain = kb.kernel(store(param(0, INT), r, value), prefix=(r,))
            ast = apply_steps(plain, [Local(1, lanes)])
            given = np.random.default_rng(0).integers(-9, 9, (rows, columns)).astype(np.int32)
            found, wanted = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
            run_as_it_is(ast, found, given)
            kb.run(plain, wanted, given, device="REFERENCE")
            assert np.array_equal(found, wanted), (rows, columns, lanes, op)


@verifies("groups.lane.legal+2")
def test_all_groups_share_what_has_no_prefix() -> None:
    for size in (4096, 5000, 100_000):
        k = new_range(size, REDUCE)
        total = reduce(Ops.ADD, load(param(1, INT), k), k)
        i, j = new_range(7, LOOP), new_range(size, LOOP)
        value = plus(load(param(1, INT), j), kb.apply(Ops.CAST, i, dtype=INT))
        ast = kb.kernel(store(param(0, INT), 0, total),
                        store(param(2, INT), flat((i, size), (j, 1)), plus(value, total), i, j))
        steps: list[Step] = [Grid(Analysis(ast).position[loop], 2048) for loop in (k,)]
        cut = apply_steps(ast, steps)
        for loop in (j, i):
            cut = apply_steps(cut, [Grid(Analysis(cut).position[loop], 2048)])
        given = np.random.default_rng(0).integers(-9, 9, size).astype(np.int32)
        out, more = np.zeros(1, np.int32), np.zeros(7 * size, np.int32)
        run_as_it_is(cut, out, given, more)
        assert out[0] == given.sum()
        assert np.array_equal(more.reshape(7, size), given + np.arange(7)[:, None] + out[0])


# Launches


@verifies("dialects.group.once+2")
@verifies("opencl.launch.reach")
def test_every_iteration_is_run_once() -> None:
    """out[...] += 1 with odd extents; loops of the prefix shared by lanes, by groups, by both."""
    for extents, shared, lanes in (((5,), 1, 4), ((3, 7), 1, 4), ((3, 7), 2, 16), ((2, 3, 5), 2, 8),
                                   ((1, 1), 2, 4), ((33,), 0, 1), ((2, 3), 0, 1)):
        loops = [new_range(extent, GLOBAL) for extent in extents]
        size = int(np.prod(extents))
        strides = [int(np.prod(extents[i + 1:])) for i in range(len(extents))]
        at = flat(*zip(loops, strides, strict=True))
        ast = kb.kernel(store(param(0, INT), at, plus(load(param(0, INT), at), kb.number(INT, 1))),
                        prefix=loops)
        steps = [Local(len(loops) - 1 - i, lanes) for i in range(shared)]
        out = np.zeros(size + 5, np.int32)
        run_as_it_is(apply_steps(ast, steps), out)
        assert out.tolist() == [1] * size + [0] * 5, (extents, shared)


@verifies("dialects.group.once+2")
@verifies("opencl.launch.reach")
def test_extents_that_are_known_at_run_time() -> None:
    n, m = (symbolic.Variable(name, 0, 50).uop for name in "nm")
    i, j = new_range(n, GLOBAL), new_range(m, GLOBAL)
    at = symbolic.add(symbolic.mul(i, m), j)
    value = plus(load(param(0, INT), at), kb.number(INT, 1))
    ast = kb.kernel(store(param(0, INT), at, value), prefix=(i, j), variables=(n, m))
    for steps in ([], [Local(1, 8)], [Local(1, 8), Local(0, 8)]):
        made = apply_steps(ast, steps)
        for first, second in ((0, 3), (3, 0), (1, 1), (7, 9), (50, 50)):
            out = np.zeros(2600, np.int32)
            run_as_it_is(made, out, values=(first, second))
            assert out.sum() == first * second and out[:first * second].all()


@verifies("opencl.launch.reach")
@verifies("device.memory.blocks")
def test_arguments_begin_anywhere() -> None:
    device = Device["OPENCL"]
    i = new_range(5, GLOBAL)
    ast = kb.kernel(store(param(0, dtypes.int8), i, load(param(1, dtypes.int8), i)), prefix=(i,))
    program = device.compile([ast])[0]
    whole, out = device.allocate(64), device.allocate(64)
    device.copy_in(whole, np.arange(64, dtype=np.int8))
    device.copy_in(out, np.zeros(64, np.int8))
    program([out.part(3, 20).part(4, 5), whole.part(11, 5)])
    found = device.copy_out(out, dtypes.int8, 64)
    assert found.tolist() == [0] * 7 + [11, 12, 13, 14, 15] + [0] * 52
    with pytest.raises(DeviceError, match="copy"):
        _ = out.array


# Waiting


def waits_inside(low: Any) -> list[tuple[Block, ...]]:
    """For each barrier, the blocks around it, without the root."""
    found: list[tuple[Block, ...]] = []
    stack: list[tuple[Block, tuple[Block, ...]]] = [(low.root, ())]
    while stack:
        block, around = stack.pop()
        found += [around for item in block.items if isinstance(item, Wait)]
        stack += [(item.block, (*around, item.block)) for item in block.items
                  if isinstance(item, Loop)]
    return found


@verifies("lowering.wait.lanes")
def test_lanes_wait_where_they_need_each_other() -> None:
    """A barrier between what is stored and what is loaded; none where lanes keep to themselves."""
    ast = rows_minus_sum(6, 1000)
    shared = apply_steps(ast, [Local(1, 64), Local(2, 64)])
    assert render(shared, OpenCL()).body.count("barrier") == 1
    assert render(apply_steps(ast, [Local(0, 64)]), OpenCL()).body.count("barrier") == 0
    given = np.random.default_rng(0).integers(-9, 9, (6, 1000)).astype(np.int32)
    for made in (shared, apply_steps(ast, [Local(0, 64)])):
        out = np.zeros_like(given)
        run_as_it_is(made, out, given)
        assert np.array_equal(out, given - given.sum(1, keepdims=True))


def pieces(count: int, size: int) -> UOp:
    """out[p, j] = x[p, size - 1 - j], a piece after the other through one LOCAL."""
    p, j, j2 = new_range(count, BLOCK), new_range(size, LOOP), new_range(size, LOOP)
    held = local(0, size, INT)
    fetch = store(held, j, load(param(1, INT), flat((p, size), (j, 1))), p, j)
    turned = kb.apply(Ops.SUB, kb.number(dtypes.index, size - 1), j2)
    return kb.kernel(fetch, store(param(0, INT), flat((p, size), (j2, 1)), load(held, turned), p,
                                  j2))


@verifies("lowering.wait.lanes")
def test_a_loop_that_stages_share_comes_round() -> None:
    """The second piece must not overwrite the first one while it is read."""
    ast = pieces(20, 96)
    for loop in [r for r in Analysis(ast).ranges if r.arg[1] is LOOP]:
        ast = apply_steps(ast, [Local(Analysis(ast).position[loop], 32)])
    assert render(ast, OpenCL()).body.count("barrier") == 2
    given = np.arange(20 * 96, dtype=np.int32).reshape(20, 96)
    out = np.zeros_like(given)
    run_as_it_is(ast, out, given)
    assert np.array_equal(out, given[:, ::-1])


@verifies("lowering.length.linear")
def test_loops_in_loops_are_gone_through_a_few_times_each(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty loops around two stages; each is entered as it begins, and as it comes round."""
    nest = [new_range(2, BLOCK) for _ in range(30)]
    j, j2, held = new_range(96, RangeKind.LANE), new_range(96, RangeKind.LANE), local(0, 96, INT)
    ast = kb.kernel(store(held, j, load(param(1, INT), j), *nest, j),
                    store(param(0, INT), j2, load(held, j2), *nest, j2))
    low = lower(ast.replace(arg=replace(ast.arg, lanes=32)), False)
    walks, course = [], groups._Walk._course

    def counted(walk: Any, block: Block, now: Any) -> Any:
        walks.append(block)
        assert len(walks) <= 4 * len(nest)  # else two to the power of 30 of them would follow
        return course(walk, block, now)
    monkeypatch.setattr(groups._Walk, "_course", counted)
    groups.place_waits(low)
    assert len(waits_inside(low)) == 2


@verifies("lowering.wait.lanes")
def test_all_lanes_come_by_a_barrier() -> None:
    asts = [rows_minus_sum(6, 1000), pieces(20, 96), kb.softmax(40, 5000),
            *(kb.random_kernel(seed).ast for seed in range(100))]
    seen = 0
    for ast in asts:
        made = apply_steps(ast, [step for step, _ in lane_steps(
            ast, DeviceLimits(lanes=32, local_memory=32 << 10))])
        low = lower(made, False)
        groups.place_waits(low)
        for around in waits_inside(low):
            seen += 1
            for block in around:
                assert not block.alone and block.loop is not None
                assert block.loop in made.arg.prefix or block.loop.arg[1] is BLOCK
    assert seen > 3


@verifies("lowering.wait.lanes")
def test_what_lanes_do_not_share_is_stored_once() -> None:
    """out[r] += the sum of the row: all lanes know it, one stores it."""
    r, k = new_range(5, GLOBAL), new_range(256, REDUCE)
    total = reduce(Ops.ADD, load(param(1, INT), flat((r, 256), (k, 1))), k)
    ast = kb.kernel(store(param(0, INT), r, plus(load(param(0, INT), r), total)), prefix=(r,))
    made = apply_steps(ast, [Local(1, 64)])
    assert "if (lane == 0) {" in render(made, OpenCL()).body
    given = np.random.default_rng(0).integers(-9, 9, (5, 256)).astype(np.int32)
    out = np.arange(5, dtype=np.int32)
    run_as_it_is(made, out, given)
    assert np.array_equal(out, np.arange(5) + given.sum(1))


# The device


@verifies("device.memory.kept+3")
def test_a_pool_keeps_no_more_than_its_limit() -> None:
    device: Any = opencl.OpenCLDevice("OPENCL")
    assert device.pool.limit == device.cl_device.global_mem_size // 4
    device.pool.limit = 5 << 20
    held = [device.allocate(2 << 20) for _ in range(4)]
    held.clear()
    held.append(device.allocate(256))
    assert device.pool.held == 4 << 20


@verifies("opencl.memory.reuse")
def test_freed_memory_is_used_again() -> None:
    device = Device["OPENCL"]
    memory = device.allocate(12345)
    del memory
    gc.collect()
    GlobalCounters.reset()
    again = device.allocate(12345)
    assert GlobalCounters.fresh == 0 and again.nbytes == 12345


@verifies("opencl.error.told+2")
@verifies("device.memory.blocks")
def test_what_the_driver_refuses_leaves_the_device_usable() -> None:
    gc.collect()
    device = Device["OPENCL"]
    before = GlobalCounters.allocated
    with pytest.raises(DeviceError, match=str(1 << 50)):
        device.allocate(1 << 50)
    assert GlobalCounters.allocated == before
    i = new_range(5, GLOBAL)
    ast = kb.kernel(store(param(0, INT), i, kb.number(INT, 3)), prefix=(i,), name="three")
    program: Any = device.load([ast])[0]
    out = device.allocate(20)
    shape, program.shape = program.shape, SimpleNamespace(launches=lambda values: [(1, 1 << 20)])
    with pytest.raises(DeviceError, match="three"):
        program([out])
    text, program.text = program.text, SimpleNamespace(
        definitions=(), signature="this is no {name}", body="at all", name="three")
    with pytest.raises(CompileError, match="three"):
        device.build({"0" * 64: program.text})  # type: ignore[attr-defined]
    program.shape, program.text = shape, text
    program([out])
    assert device.copy_out(out, INT, 5).tolist() == [3] * 5


@verifies("opencl.time.event")
def test_a_launch_is_timed_by_the_device() -> None:
    device = Device["OPENCL"]
    program = device.compile([kb.matmul(256, 256, 256)])[0]
    memories = [device.allocate(256 * 256 * 4) for _ in range(3)]
    start = time.perf_counter()

    def launches() -> None:
        for _ in range(3):
            program(memories)
    assert 0 < device.seconds(launches) < time.perf_counter() - start
    assert device.seconds(lambda: time.sleep(0.01)) == 0, "the device had nothing to do"


@verifies("opencl.table.prepared")
@verifies("device.table.equal+2")
def test_a_table_sets_arguments_once() -> None:
    """In one that has been made, what did not change is not looked at again."""
    device: Any = Device["OPENCL"]
    n, k = symbolic.Variable("n", 0, 600).uop, new_range(1 << 16, REDUCE)
    i = new_range(n, GLOBAL)
    more = plus(load(param(1, INT), i), kb.number(INT, 1))
    total = reduce(Ops.ADD, load(param(1, INT), k), k)
    added, summed = device.compile([
        kb.kernel(store(param(0, INT), i, more), prefix=(i,), variables=(n,)),
        kb.kernel(store(param(0, INT), kb.number(dtypes.index, 0), total))])
    one, two, big, out = (device.allocate(size) for size in (2400, 2400, 4 << 16, 4))
    for memory in (one, two, big):
        device.copy_in(memory, np.ones(memory.nbytes // 4, np.int32))
    table = device.table([(added, [one, one], [600]), (summed, [out, big], []),
                          (added, [one, two], [0])])
    table.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opencl.OpenCLProgram, "parts", lambda *given: [])
        table.run()
    assert device.copy_out(one, INT, 600).tolist() == [3] * 600
    assert device.copy_out(out, INT, 1)[0] == 1 << 16
    table.set_value(2, 0, 3)
    table.set_memory(0, 0, two)
    table.run()
    assert device.copy_out(one, INT, 4).tolist() == [5, 5, 5, 3]
    assert device.copy_out(two, INT, 600).tolist() == [4] * 600


@verifies("opencl.cache.key")
def test_programs_are_kept_for_this_driver() -> None:
    i = new_range(11, GLOBAL)
    ast = kb.kernel(store(param(0, INT), i, kb.number(INT, 4711)), prefix=(i,))
    first = opencl.OpenCLDevice("OPENCL")
    keys = [first.rendered(ast).key]
    first.load([ast])
    again = opencl.OpenCLDevice("OPENCL")
    GlobalCounters.reset()
    again.load([ast])
    assert GlobalCounters.compiled == 0 and GlobalCounters.disk_hits == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opencl, "FLAGS", (*opencl.FLAGS, "-cl-mad-enable"))
        other = opencl.OpenCLDevice("OPENCL")
        keys.append(other.rendered(ast).key)
        assert keys[0] != keys[1] and first.plan_key() != other.plan_key()


@verifies("device.key.complete+2")
def test_kernels_that_differ_in_their_arguments_alone_are_two() -> None:
    """Sums of 50 rows, and of n: one text, but for the parameters."""
    n = symbolic.Variable("n", 1, 50).uop
    asts = []
    for count in (50, n):
        r, k = new_range(count, GLOBAL), new_range(4096, REDUCE)
        total = reduce(Ops.ADD, load(param(1), flat((r, 4096), (k, 1))), k)
        asts.append(kb.kernel(store(param(0), r, total), prefix=(r,),
                              variables=(n,) if count is n else ()))
    made = [render(Device["OPENCL"].optimized(ast), OpenCL()) for ast in asts]
    assert made[0].body == made[1].body and made[0].prelude == made[1].prelude
    device: Any = Device["OPENCL"]
    assert device.rendered(asts[0]).key != device.rendered(asts[1]).key
    given = np.arange(50 * 4096, dtype=np.float32).reshape(50, 4096) % 7
    for ast, values, rows in ((asts[0], (), 50), (asts[1], (40,), 40), (asts[0], (), 50)):
        out = np.zeros(50, np.float32)
        kb.run(ast, out, given, values=values, device="OPENCL")
        assert np.array_equal(out[:rows], given[:rows].sum(1)) and not out[rows:].any()


@verifies("device.launch.refused+2")
def test_a_type_that_the_device_lacks_is_named() -> None:
    device = opencl.OpenCLDevice("OPENCL")
    device._identity()  # is known from now on
    device.double = False
    i = new_range(4, GLOBAL)
    ast = kb.kernel(store(param(0, dtypes.float64), i, kb.number(dtypes.float64, 1)), prefix=(i,))
    with pytest.raises(DTypeError, match="float64.*Remedy: cast to float32"):
        device.compile([ast])


@verifies("device.launch.refused+2")
def test_floats_need_no_doubles() -> None:
    """Large angles are reduced as a fixed-point number, which is made a float at the end."""
    count = 64
    i = new_range(count, GLOBAL)
    x = load(param(1), i)
    values = [*(kb.apply(op, x) for op in (Ops.SIN, Ops.COS, *kb.FLOAT_FUNCTIONS)),
              kb.apply(Ops.POW, x, x),
              *(kb.apply(Ops.CAST, x, dtype=each) for each in (*_WHOLE, dtypes.float16))]
    asts = [kb.kernel(store(param(0, each.dtype), i, each), prefix=(i,)) for each in values]
    assert "double" in render(asts[0], OpenCL()).text
    assert not any("double" in render(ast, OpenCL(double=False)).text for ast in asts)
    device = opencl.OpenCLDevice("OPENCL")
    device.double = False
    given = (10.0 ** np.linspace(3, 38, count)).astype(np.float32)
    for ast, wanted in ((asts[0], np.sin), (asts[1], np.cos)):
        assert "double" not in (device.source(ast) or "")
        out, there = device.allocate(4 * count), device.allocate(4 * count)
        device.copy_in(there, given)
        device.load([ast])[0]([out, there])
        found = device.copy_out(out, FLOAT, count)
        assert np.allclose(found, wanted(given.astype(np.float64)), rtol=1e-6, atol=1e-7)


@verifies("render.text.deterministic")
def test_definitions_are_made_once_for_a_language() -> None:
    """A dialect is an object for each kernel; what it defines is not."""
    made = OpenCL().definition("sin_f32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenCL, "worded", None)
        assert OpenCL().definition("sin_f32") == made


def greatest_of_a_row(count: int, rows: int, columns: int) -> UOp:
    """out[r] = the sum of the greatest of x + 0, of x + 1, ... in a row."""
    r, value = new_range(rows, GLOBAL), kb.number(FLOAT, 0)
    for number in range(count):
        k = new_range(columns, REDUCE)
        x = plus(load(param(1), flat((r, columns), (k, 1))), kb.number(FLOAT, number))
        value = plus(value, reduce(Ops.MAXIMUM, x, k))
    return kb.kernel(store(param(0), r, value), prefix=(r,))


def local_bytes(text: str) -> int:
    """What the lanes of a group share, by the text."""
    sizes = re.findall(r"__local (?:unsigned )?(int|float|char|long) \w+\[(\d+)\]", text)
    assert len(sizes) == text.count("__local ")
    return sum({"char": 1, "int": 4, "float": 4, "long": 8}[kind] * int(size)
               for kind, size in sizes)


@pytest.mark.slow
@verifies("groups.memory.most")
def test_lanes_share_no_more_than_there_is() -> None:
    """Each of 16 reductions would take a LOCAL for its parts."""
    ast = greatest_of_a_row(16, 6, 4096)
    found = []
    for bytes_ in (1 << 20, 15 << 10, 5000, 1000, 64):
        limits = DeviceLimits(lanes=256, lockstep=32, local_memory=bytes_)
        made = apply_steps(ast, [step for step, _ in lane_steps(ast, limits)])
        found.append(local_bytes(render(made, OpenCL()).text))
        assert found[-1] <= bytes_
    assert found[0] > 15 << 10 and found[1] > 13 << 10 and found[2] > 4000
    given, out = np.random.default_rng(0).random((6, 4096), np.float32), np.zeros(6, np.float32)
    made = apply_steps(ast, [step for step, _ in lane_steps(
        ast, DeviceLimits(lanes=256, lockstep=32, local_memory=5000))])
    run_as_it_is(made, out, given)
    assert np.allclose(out, 16 * given.max(1) + 16 * 15 / 2)


@verifies("groups.memory.most")
def test_a_product_in_blocks_needs_local_memory() -> None:
    ast = kb.matmul(256, 256, 256)
    for bytes_, blocks in ((48 << 10, True), (4000, False), (2000, False)):
        limits = DeviceLimits(lanes=256, lockstep=32, local_memory=bytes_)
        made = apply_steps(ast, [step for step, _ in lane_steps(ast, limits)])
        assert ("INNER" in "".join(made.arg.steps)) is blocks
        assert local_bytes(render(made, OpenCL()).text) <= bytes_


@verifies("dialects.group.size")
def test_a_text_says_how_many_lanes_a_group_has() -> None:
    limits = DeviceLimits(lanes=256, lockstep=32, local_memory=32 << 10)
    alone, rows = kb.softmax(5, 700), kb.softmax(40, 5000)
    for ast in (alone, apply_steps(rows, [step for step, _ in lane_steps(rows, limits)])):
        lanes = ast.arg.lanes
        assert (lanes > 1) is (ast is not alone)
        assert f"reqd_work_group_size({lanes}, 1, 1)" in render(ast, OpenCL()).signature
        assert f"max_total_threads_per_threadgroup({lanes})" in render(ast, Metal()).signature
    k = new_range(1 << 20, REDUCE)
    ast = kb.kernel(store(param(0), kb.number(dtypes.index, 0), reduce(
        Ops.ADD, load(param(1), k), k)))
    phased = apply_steps(ast, [step for step, _ in lane_steps(ast, limits)])
    made = render(phased, OpenCL())
    assert len(made.phases) > 1 and "work_group_size" not in made.signature
    assert "max_total_threads_per_threadgroup(256)" in render(phased, Metal()).signature


@pytest.mark.slow
@verifies("device.local.limit+3")
def test_stages_that_need_more_local_memory_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((4, 3000)).astype(np.float32)
    counts = []
    for limit in (1 << 18, 1 << 12):
        monkeypatch.setattr(Device["OPENCL"], "local_bytes", limit)
        with Context(DEVICE="OPENCL", SCACHE=0):
            x = Tensor(values).realize()
            found = (x.exp().sum(1, keepdim=True) + x.exp()).softmax(1)
            counts.append(len(Tensor.schedule_document(found)["kernels"]))
            e = np.exp(values.astype(np.float64))
            e = np.exp(e - e.max(1, keepdims=True))
            assert np.allclose(found.numpy(), e / e.sum(1, keepdims=True), rtol=1e-3)
    assert counts[0] < counts[1]


# Several devices


@verifies("device.copy.exact")
def test_copies_between_devices_are_exact() -> None:
    values = kb.special(FLOAT, 999)
    x = Tensor(values, device="CPU").realize()
    there = x.to("OPENCL").realize()
    again = there.to("OPENCL:1").realize().to("REFERENCE").realize().to("OPENCL").to("CPU")
    assert np.array_equal(again.numpy().view(np.uint32), values.view(np.uint32))


@pytest.mark.slow
@verifies("device.several.equal")
def test_a_state_goes_round_two_devices_and_the_processor() -> None:
    subject = Subject(OnDevice("OPENCL"), "", [])
    assert subject.info.devices == ("OPENCL", "OPENCL:1", "CPU")
    for program in list(multi_programs.advancing(3))[1:4:2]:
        subject.check_values(program, "replay")


@verifies("realize.device.named")
def test_kernels_on_two_devices_in_one_schedule() -> None:
    values = np.random.default_rng(0).standard_normal((30, 70)).astype(np.float32)
    x, y = Tensor(values, device="CPU"), Tensor(values, device="OPENCL")
    found = ((x * 2).sum(1).to("OPENCL") + (y + 1).sum(1)).to("CPU") - x.max(1)
    wanted = (values * 2).sum(1) + (values + 1).sum(1) - values.max(1)
    assert np.allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


@verifies("replay.devices.each")
def test_a_capture_is_replayed_on_the_device() -> None:
    with Context(DEVICE="OPENCL"):
        @TinyJit
        def step(x: Tensor) -> Tensor:
            return (x * 2 + 1).softmax(1).sum(0)

        for seed in range(5):
            values = np.random.default_rng(seed).standard_normal((20, 300)).astype(np.float32)
            e = np.exp(values * 2 + 1)
            found = step(Tensor(values)).numpy()
            assert np.allclose(found, (e / e.sum(1, keepdims=True)).sum(0), rtol=1e-4)


@verifies("steps.value.equal")
def test_register_tiles_and_lanes_together() -> None:
    a, b = (np.random.default_rng(s).standard_normal(shape).astype(np.float32)
            for s, shape in ((0, (36, 40)), (1, (40, 44))))
    ast = kb.matmul(36, 44, 40)
    lists: list[list[Step]] = [[], [Upcast(1, 4), Upcast(0, 4), Local(1, 8), Local(0, 8)]]
    for steps in lists:
        out = np.zeros((36, 44), np.float32)
        if steps:
            run_as_it_is(apply_steps(ast, steps), out, a, b)
        else:
            kb.run(ast, out, a, b, device="OPENCL")
        assert np.allclose(out, a @ b, rtol=1e-4, atol=1e-4)


def tiled(rows: int, columns: int, inner: int) -> UOp:
    """A product with the steps that a GPU gets."""
    ast = kb.matmul(rows, columns, inner)
    limits = DeviceLimits(lanes=256, lockstep=32, local_memory=32 << 10)
    steps = [step for step, _ in lane_steps(ast, limits)]
    return apply_steps(ast, steps)


@verifies("lowering.wait.private")
@verifies("steps.value.equal")
def test_products_in_blocks_by_way_of_local_memory() -> None:
    """Sums stay in registers; the operands lie in local memory, between two barriers."""
    for rows, columns, inner in ((64, 96, 32), (40, 33, 48), (128, 64, 20)):
        ast = tiled(rows, columns, inner)
        assert "INNER" in "".join(ast.arg.steps) and ast.arg.lanes == 64
        text = render(ast, OpenCL()).body
        assert text.count("__local") == 2 and text.count("barrier") == 2
        a, b = (np.random.default_rng(s).integers(-4, 5, shape).astype(np.float32)
                for s, shape in ((0, (rows, inner)), (1, (inner, columns))))
        out = np.zeros((rows, columns), np.float32)
        run_as_it_is(ast, out, a, b)
        assert np.array_equal(out, a @ b), (rows, columns, inner)


@verifies("dialects.group.once+2")
@verifies("lowering.wait.private")
def test_stages_may_count_their_loops_in_other_orders() -> None:
    """One lane stores what another one reads, although both stages have the same two loops."""
    i, j, kept = new_range(4, LOOP), new_range(8, LOOP), local(0, 32)
    across, down = flat((i, 8), (j, 1)), flat((j, 4), (i, 1))
    ast = kb.kernel(store(kept, across, load(param(1), across), i, j),
                    store(param(0), down, load(kept, across), j, i))
    ast = apply_steps(ast, [Local(0, 32), Local(1, 32)])
    given, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run_as_it_is(ast, out, given)
    assert np.array_equal(out, given.reshape(4, 8).T.ravel())


@verifies("lowering.wait.private")
def test_what_another_lane_reads_is_not_private() -> None:
    """out[j] = x[size - 1 - j] by way of a LOCAL: lanes read what others stored."""
    for turned, shared in ((True, 1), (False, 0)):
        j, j2 = new_range(64, LOOP), new_range(64, LOOP)
        held = local(0, 64, INT)
        where = kb.apply(Ops.SUB, kb.number(dtypes.index, 63), j2) if turned else j2
        ast = kb.kernel(store(held, j, load(param(1, INT), j), j),
                        store(param(0, INT), j2, load(held, where), j2))
        made = apply_steps(ast, [Local(0, 64), Local(1, 64)])
        assert render(made, OpenCL()).body.count("__local") == shared
        given, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
        run_as_it_is(made, out, given)
        assert np.array_equal(out, given[::-1] if turned else given)
