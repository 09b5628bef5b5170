"""Products by the units that GPUs have for small matrices. Chapters: groups.md, render.md, cuda.md.

Where elements lie is written down here once more, as NVIDIA's and others' documents say it.
"""
from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from conformance import emulation
from conformance.emulation import address_spaces, metal_objects, nvrtc
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, param, store
from conformance.trace import verifies
from impl import Context, Device, Tensor, symbolic
from impl.dialects import CUDA, Metal
from impl.dtypes import DType, dtypes
from impl.errors import GraphError
from impl.groups import TC, Inner, Local, lane_steps
from impl.ir import KernelInfo, Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits, growth, verify_kernel
from impl.kernel.analysis import Analysis
from impl.kernel.fragments import (
    UNITS,
    Fragment,
    Unit,
    loops_of,
    units_of_metal,
    units_of_nvidia,
)
from impl.render import key_of, render, symbol, unit_text
from impl.searching import optimize, taken, with_steps
from impl.steps import Abreast, PadTo, Roll, Step, StepError, Upcast, apply_steps

NVIDIA, SIMD = UNITS[:4], UNITS[4:]
LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]
HALF = (dtypes.float16, dtypes.bfloat16)
MEMORY = 48 << 10
needs_emulator = pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable())
needs_clang = pytest.mark.skipif(bool(address_spaces.unavailable()),
                                 reason=address_spaces.unavailable())


def limits(*names: str, lanes: int = 256) -> DeviceLimits:
    return DeviceLimits(name="CUDA", lanes=lanes, lockstep=32, local_memory=MEMORY, units=names)


# ---------------------------------------------------------------- kernels

def product(rows: int, columns: int, deep: int, dtype: DType, turned: tuple[bool, bool] = (False,
            False), batch: int = 1, result: DType | None = None,
            before: Callable[[UOp], UOp] = lambda x: x,
            after: Callable[[UOp, UOp], UOp] = lambda x, column: x) -> UOp:
    """out[b, i, j] = after(sum over k of before(one[b, i, k]) * two[b, k, j]), accumulated in
    float32; `turned` says which of the two operands lies transposed.
    """
    b, i, j = (new_range(n, RangeKind.GLOBAL) for n in (batch, rows, columns))
    k = new_range(deep, RangeKind.REDUCE)
    result = result or dtype
    first = flat((b, rows * deep), *(((k, rows), (i, 1)) if turned[0] else ((i, deep), (k, 1))))
    second = flat((b, deep * columns),
                  *(((j, deep), (k, 1)) if turned[1] else ((k, columns), (j, 1))))
    factors = [wide(before(load(param(1, dtype), first))), wide(load(param(2, dtype), second))]
    total = kb.reduce(Ops.ADD, kb.apply(Ops.MUL, *factors), k)
    value = after(total, j)
    if result is not FLOAT:
        value = kb.apply(Ops.CAST, value, dtype=result)
    place = flat((b, rows * columns), (i, columns), (j, 1))
    prefix = (b, i, j) if batch > 1 else (i, j)
    if batch == 1:
        nothing = UOp.const(dtypes.index, 0)
        place, value = (node.substitute({b: nothing}) for node in (place, value))
    return kb.kernel(store(param(0, result), place, value), prefix=prefix, name="product")


def wide(value: UOp) -> UOp:
    return value if value.dtype is FLOAT else kb.apply(Ops.CAST, value, dtype=FLOAT)


def by_hand(ast: UOp, unit: int, block: tuple[int, int], deep: int, down: int = 2,
            across: int = 1) -> UOp:
    """The product with these numbers for step TC; sizes are padded where they have to be."""
    def loop(kind: RangeKind, place: int = 0) -> int:
        ranges = Analysis(ast).ranges
        return [i for i, r in enumerate(ranges) if r.arg[1] is kind][place]

    first = len(ast.arg.prefix) - 2
    for axis, size in ((first + 1, block[1]), (first, block[0])):
        if Analysis(ast).ranges[axis].src[0].arg % size:
            ast = apply_steps(ast, [PadTo(axis, size)])
    ast = apply_steps(ast, [Inner(first + 1, block[1])])
    ast = apply_steps(ast, [Inner(first, block[0])])
    reduced = loop(RangeKind.REDUCE)
    if Analysis(ast).ranges[reduced].src[0].arg % deep:
        ast = apply_steps(ast, [PadTo(reduced, deep)])
        reduced = loop(RangeKind.REDUCE)
    ast = apply_steps(ast, [TC(reduced, unit, deep, down, across)])
    while any(r.arg[1] is RangeKind.LOOP for r in Analysis(ast).ranges):
        known = Analysis(ast)
        stage = next(s for s in ast.src if any(r.arg[1] is RangeKind.LOOP for r in s.src[2:]))
        last = [r for r in stage.src[2:] if r.arg[1] is RangeKind.LOOP][-1]
        ast = apply_steps(ast, [Local(known.position[last], ast.arg.lanes)])
    return ast


def numbers(dtype: DType, *shape: int, seed: int) -> np.ndarray:
    """Values of a type as they lie in memory."""
    return kb.from_host(np.random.default_rng(seed).normal(size=shape).astype(np.float32), dtype)


def given(rows: int, columns: int, deep: int, dtype: DType, turned: tuple[bool, bool],
          batch: int = 1) -> tuple[list[np.ndarray], np.ndarray]:
    """Operands as they lie in memory, and their product in float64."""
    one, two = numbers(dtype, batch, rows, deep, seed=1), numbers(dtype, batch, deep, columns,
                                                                  seed=2)
    right = kb.to_host(one, dtype).astype(np.float64) @ kb.to_host(two, dtype)
    lying = [np.ascontiguousarray(np.swapaxes(x, 1, 2) if t else x)
             for x, t in zip((one, two), turned, strict=True)]
    return lying, right


def close(found: np.ndarray, right: np.ndarray, dtype: DType, unit: Unit, deep: int) -> None:
    """Within one rounding to the type of the result, and what adding up in float32 may lose."""
    lost = {dtypes.float16: 2.0 ** -11, dtypes.bfloat16: 2.0 ** -8}.get(dtype, 0.0)
    lost += 0.0 if unit.exact else 2.0 ** -9
    np.testing.assert_allclose(kb.to_host(found, dtype).reshape(right.shape), right, lost,
                               max(lost, 2.0 ** -22) * deep)


# ---------------------------------------------------------------- what an MMA means

def documented(unit: Unit, which: str, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element i of a fragment, as PTX ISA 9.7.14.5 has it, and for Metal as
    those who use `thread_elements` do.
    """
    group, four = lane >> 2, lane % 4
    if unit.name.startswith("simdgroup"):
        quad = lane // 4
        return (quad & 4) + lane // 2 % 4, (quad & 2) * 2 + lane % 2 * 2 + i
    if which == "sum":
        return group + (8 if i >= 2 else 0), four * 2 + (i & 1)
    if unit.name == "m16n8k8_tf32":
        if which == "second":
            return four + (4 if i == 1 else 0), group
        return group + (8 if i in (1, 3) else 0), four + (4 if i >= 2 else 0)
    if which == "second":
        return four * 2 + (i & 1) + (8 if i >= 2 else 0), group
    if unit.depth == 8:
        return group + (8 if i >= 2 else 0), four * 2 + (i & 1)
    return (group if 0 <= i < 2 or 4 <= i < 6 else group + 8,
            four * 2 + (i & 1) + (8 if i >= 4 else 0))


@verifies("kernel.mma.value")
def test_fragments_are_those_of_the_documents() -> None:
    for unit in UNITS:
        for which in ("first", "second", "sum"):
            part: Fragment = getattr(unit, which)
            found = list(part.places())
            wanted = [documented(unit, which, lane, i)
                      for lane in range(32) for i in range(part.size)]
            assert found == wanted, (unit.name, which)
            assert len(set(found)) == len(found) == 32 * part.size


@verifies("kernel.mma.value")
@verifies("steps.value.equal")
def test_a_unit_computes_what_the_product_is() -> None:
    for place, unit in enumerate(UNITS):
        for turned, sizes in itertools.product(LAYOUTS, ((70, 40, 50), (33, 45, 32))):
            ast = product(*sizes, unit.dtype, turned)
            operands, right = given(*sizes, unit.dtype, turned)
            made = by_hand(ast, place, (32, 32), 16)
            verify_kernel(made)
            out = np.zeros(sizes[0] * sizes[1], operands[0].dtype)
            kb.run(made, out, *operands, device="REFERENCE")
            close(out, right, unit.dtype, UNITS[5], sizes[2])


@verifies("kernel.mma.value")
@verifies("steps.value.equal")
def test_what_stands_before_and_after_a_product_stays_with_it() -> None:
    def before(x: UOp) -> UOp:  # not zero where nothing is loaded
        return kb.apply(Ops.ADD, x, kb.number(x.dtype, 1))

    def after(x: UOp, column: UOp) -> UOp:
        biased = kb.apply(Ops.ADD, x, load(param(3), column))
        return kb.apply(Ops.MAXIMUM, biased, kb.number(FLOAT, 0))

    sizes, bias = (33, 70, 37), numbers(FLOAT, 70, seed=3)
    ast = product(*sizes, dtypes.float16, batch=3, result=FLOAT, before=before, after=after)
    operands, _ = given(*sizes, dtypes.float16, (False, False), 3)
    made = by_hand(ast, 0, (32, 64), 32, 1, 2)
    assert made.arg.steps[0] == "PADTO(2,64)" and len(made.src) == 5
    out = np.zeros(3 * 33 * 70, np.float32)
    kb.run(made, out, *operands, bias, device="REFERENCE")
    left = (operands[0] + np.float16(1)).astype(np.float64)
    right = np.maximum(left @ operands[1].astype(np.float64) + bias, 0)
    np.testing.assert_allclose(out.reshape(right.shape), right, 1e-5, 1e-5)


# ---------------------------------------------------------------- what is legal

def refused(ast: UOp, *steps: Any) -> str:
    with pytest.raises(StepError) as caught:
        apply_steps(ast, steps)
    return str(caught.value)


def blocked(ast: UOp) -> tuple[UOp, int]:
    """A product with a block of 32 x 32 outputs, and its loop of the sum."""
    made = apply_steps(apply_steps(ast, [Inner(1, 32)]), [Inner(0, 32)])
    return made, next(i for i, r in enumerate(Analysis(made).ranges)
                      if r.arg[1] is RangeKind.REDUCE)


@verifies("groups.matrices.refused")
def test_what_a_unit_cannot_compute_is_refused() -> None:
    half, axis = blocked(product(64, 64, 64, dtypes.float16))
    for numbers_, word in (((axis, 6, 32, 1, 1), "there are 6 units"),
                           ((axis, 1, 32, 1, 1), "not of type bfloat16"),
                           ((axis, 0, 24, 1, 1), "64 iterations are no multiple of 24"),
                           ((axis, 2, 4, 1, 1), "4 is no multiple of 8"),
                           ((axis, 0, 0, 1, 1), "0 is no multiple of 16"),
                           ((axis, 0, 32, 4, 1), "32 iterations are no multiple of 64"),
                           ((axis, 0, 32, 1, 8), "32 iterations are no multiple of 64"),
                           ((axis, 0, 32, 0, 1), "0 x 1 warps"),
                           ((axis, 0, 32, 64, 1), "64 x 1 warps"),
                           ((0, 0, 32, 1, 1), "loop 0 is a GLOBAL loop")):
        assert word in refused(half, TC(*numbers_))
    single, axis = blocked(product(64, 64, 64, FLOAT))
    assert "not of type float16" in refused(single, TC(axis, 0, 32, 1, 1))
    loop = Analysis(half).ranges[axis]
    empty = half.substitute({loop: new_range(0, RangeKind.REDUCE)})
    assert "a loop has no iterations" in refused(empty, TC(axis, 0, 32, 1, 1))
    narrow = product(64, 64, 64, dtypes.float16)
    assert "not one loop of rows and one of columns" in refused(narrow, TC(2, 0, 32, 1, 1))


@verifies("steps.legal.refused")
@verifies("kernel.mma.layout+2")
def test_later_steps_leave_a_unit_its_fragments() -> None:
    """ROLL leaves the stages with an MMA alone; ABREAST would part what it reads at once."""
    made = by_hand(product(64, 64, 32, dtypes.float16), 0, (32, 32), 16)
    assert "a unit reads neighbours" in refused(made, Abreast(0, 2))
    ranges = Analysis(made).ranges
    for axis in (i for i, loop in enumerate(ranges) if loop.arg[1] is RangeKind.UPCAST):
        with contextlib.suppress(StepError):
            verify_kernel(apply_steps(made, [Roll(axis)]))


@verifies("groups.matrices.refused")
@pytest.mark.parametrize("size, fits", [(5, True), (16, False)])
def test_what_a_unit_reads_is_not_parted(size: int, fits: bool) -> None:
    """Tiles that are a loop again: five of them still lie within what was copied, 16 do not."""
    made = by_hand(product(64, 64, 32, dtypes.float16), 0, (32, 32), 16)
    tiles = next(i for i, loop in enumerate(Analysis(made).ranges)
                 if loop.arg[1] is RangeKind.UPCAST)
    rolled = apply_steps(made, [Roll(tiles)])
    loop = next(i for i, loop in enumerate(Analysis(rolled).ranges)
                if loop.arg[1] is RangeKind.LOOP)
    if fits:
        verify_kernel(apply_steps(rolled, [PadTo(loop, size)]))
    else:
        assert "an MMA would read elements that there are not" in refused(
            rolled, PadTo(loop, size))


@verifies("groups.matrices.refused")
def test_sums_of_other_things_are_refused() -> None:
    ast, axis = blocked(product(64, 64, 64, dtypes.float16))
    total = next(n for n in ast.toposort() if n.op is Ops.REDUCE)
    words = (("the only loop of the only reduction",
              total.replace(arg=Ops.MAXIMUM)),
             ("no sum of products", total.replace(src=(kb.apply(Ops.ADD, *total.src[0].src),
                                                       total.src[1]))))
    for word, other in words:
        assert word in refused(ast.substitute({total: other}), TC(axis, 0, 32, 1, 1))
    target = next(n for n in ast.src[0].src[0].toposort() if n.op is Ops.PARAM)
    in_place = ast.substitute({target: param(1, dtypes.float16)})
    assert "stores what an operand is read from" in refused(in_place, TC(axis, 0, 32, 1, 1))
    shared = ast.replace(arg=KernelInfo("product", ast.arg.prefix, lanes=32))
    assert "share a loop" in refused(shared, TC(axis, 0, 32, 1, 1))


@verifies("groups.matrices.refused")
def test_a_condition_of_the_padded_sum_reaches_both_operands() -> None:
    """Beyond the end of the sum an operand may be infinite, and 0 times that is NaN."""
    def inverse(x: UOp) -> UOp:
        return kb.apply(Ops.RECIPROCAL, x)

    sizes = (32, 32, 20)
    made = by_hand(product(*sizes, dtypes.float16, before=inverse), 0, (32, 32), 32)
    operands, _ = given(*sizes, dtypes.float16, (False, False))
    out = np.zeros(32 * 32, np.float16)
    kb.run(made, out, *operands, device="REFERENCE")
    assert np.isfinite(out).all()


@verifies("kernel.mma.layout+2")
@verifies("steps.legal.refused")
def test_lanes_share_no_more_of_a_stage_with_an_mma() -> None:
    """A list that a drawn one ended with: a loop beside the warps would be one of their lanes."""
    made = apply_steps(by_hand(product(64, 64, 64, dtypes.float16), 0, (32, 32), 16, 1, 1),
                       [Step.parse("ROLL(2)")])
    verify_kernel(made)
    stage = next(s for s in made.src if any(n.op is Ops.MMA for n in s.src[1].toposort()))
    known = Analysis(made)
    loops = [r for r in stage.src[2:] if r.arg[1] is RangeKind.LOOP]
    assert loops
    for loop in loops:
        with pytest.raises(StepError, match="the lanes of its stage are the warps of an MMA"):
            Local(known.position[loop], known.info.lanes).apply(known)


@verifies("kernel.mma.layout+2")
def test_an_mma_that_no_unit_can_do_is_no_kernel() -> None:
    made = by_hand(product(64, 64, 64, dtypes.float16), 0, (32, 32), 16)
    verify_kernel(made)
    node = next(n for n in made.toposort() if n.op is Ops.MMA)
    stage = next(s for s in made.src if node in s.toposort())
    lanes = [r for r in stage.src[2:] if r.arg[1] is RangeKind.LANE]
    swapped = stage.substitute({lanes[-1]: lanes[-2], lanes[-2]: lanes[-1]})
    turned = stage.replace(src=(*stage.src[:2], *swapped.src[2:]))
    with pytest.raises(GraphError, match="not whole warps"):
        verify_kernel(made.substitute({stage: turned}))
    few = UOp(Ops.SINK, made.dtype, made.src, KernelInfo("product", made.arg.prefix, lanes=128))
    with pytest.raises(GraphError, match="not whole warps"):
        verify_kernel(few)
    longer = new_range(4, RangeKind.UNROLL)  # in the place of a loop over the first fragment
    with pytest.raises(GraphError, match="has not the loops of m16n8k16_float16"):
        verify_kernel(made.substitute({node.src[3 + len(UNITS[0].lanes)]: longer}))
    number = kb.number(dtypes.float16, 1)
    with pytest.raises(GraphError, match="not loaded from a LOCAL"):
        verify_kernel(made.substitute({node: node.replace(src=(number, *node.src[1:]))}))


@verifies("kernel.mma.layout+2")
def test_lines_begin_where_an_access_can() -> None:
    """Lines that are one element longer, and a LOCAL from its second element on."""
    for place, unit in enumerate(UNITS):
        for turned in LAYOUTS:
            made = by_hand(product(64, 64, 64, unit.dtype, turned), place, (32, 32), 16)
            verify_kernel(made)
            product_of = next(n for n in made.toposort() if n.op is Ops.MMA)
            first, (lanes, *_) = product_of.src[0], loops_of(product_of)
            buffer, index, valid = first.src[0].src
            steps = growth(index.toposort(), lanes)[index] or {}
            across = max(steps, key=lambda r: steps[r])
            for moved in (symbolic.add(index, 1), symbolic.add(index, across)):
                other = first.replace(src=(first.src[0].replace(src=(buffer, moved, valid)),))
                with pytest.raises(GraphError, match="does not begin at a multiple"):
                    verify_kernel(made.substitute({first: other}))


# ---------------------------------------------------------------- what is chosen

@verifies("groups.matrices.exact")
@verifies("cuda.text.legal")
def test_units_are_those_of_the_gpu_and_exact_unless_told() -> None:
    exact = {unit.name for unit in UNITS if unit.exact}
    assert [units_of_nvidia(n) for n in (70, 75, 80, 90)] == [
        (), ("m16n8k8_float16",), *[("m16n8k16_float16", "m16n8k16_bfloat16")] * 2]
    assert {*units_of_nvidia(100), *units_of_metal()} < exact
    with Context(ALLOW_TF32=1):
        assert units_of_nvidia(80)[-1] == "m16n8k8_tf32" and "m16n8k8_tf32" not in exact
        assert units_of_nvidia(75) == ("m16n8k8_float16",)
    with Context(TENSOR_CORES=0, ALLOW_TF32=1):
        assert units_of_nvidia(90) == units_of_metal() == ()


@verifies("groups.units.chosen")
def test_products_get_the_unit_of_their_type() -> None:
    every = tuple(unit.name for unit in UNITS)
    for dtype, names, unit in ((dtypes.float16, every, 0), (dtypes.bfloat16, every, 1),
                               (dtypes.float16, every[2:], 2), (FLOAT, every, 3),
                               (dtypes.bfloat16, every[4:], 5), (dtypes.float16, every[4:], 4)):
        for turned in LAYOUTS:
            steps = lane_steps(product(512, 512, 128, dtype, turned), limits(*names))
            found = next(step for step, _ in steps if isinstance(step, TC))
            assert UNITS[found.unit].name == every[unit], (dtype, names)
    for ast in (product(512, 512, 128, FLOAT), product(16, 512, 128, dtypes.float16)):
        steps = lane_steps(ast, limits("m16n8k16_float16"))
        assert not any(isinstance(step, TC) for step, _ in steps)


@verifies("groups.units.chosen")
@verifies("groups.memory.most")
def test_blocks_fit_the_product_and_the_device() -> None:
    for sizes, block in (((4096, 4096, 64), 128), ((512, 512, 64), 32), ((1024, 1024, 64), 64),
                         ((40, 4096, 64), 32), ((33, 33, 17), 32)):
        ast = product(*sizes, dtypes.float16)
        made = taken(ast, lane_steps(ast, limits("m16n8k16_float16")))
        assert f"INNER(1,{block})" in made.arg.steps, (sizes, made.arg.steps)
        assert made.arg.lanes <= 256
    ast = product(4096, 4096, 64, dtypes.float16)
    few = DeviceLimits(name="CUDA", lanes=256, lockstep=32, local_memory=20 << 10,
                       units=("m16n8k16_float16",))
    assert "INNER(1,64)" in [step.name for step, _ in lane_steps(ast, few)]
    assert "INNER(1,64)" in [step.name for step, _ in lane_steps(
        ast, limits("m16n8k16_float16", lanes=128))]


@verifies("searching.asked.steps+2")
def test_a_unit_that_is_not_there_is_refused_by_name() -> None:
    ast = with_steps(product(64, 64, 64, dtypes.float16), ["INNER(1,32)", "INNER(0,32)",
                                                          "TC(4,0,32,2,2)"])
    made = optimize(ast, limits("m16n8k16_float16"))
    assert made.arg.steps[-1] == "TC(4,0,32,2,2)"
    for others, word in ((limits("m16n8k8_float16"), r"use one of 2 \(m16n8k8_float16\)"),
                         (limits(), "leave the product"), (DeviceLimits(), "work-groups")):
        with pytest.raises(StepError, match=word):
            optimize(ast, others)


@verifies("groups.memory.lanes")
def test_lines_that_are_read_at_once_lie_in_different_banks() -> None:
    for (place, unit), turned, outer in itertools.product(
            enumerate(UNITS[:4]), LAYOUTS, (32, 64, 128)):
        ast = by_hand(product(128, 128, 64, unit.dtype, turned), place, (outer, outer), 16, 1, 1)
        node = next(n for n in ast.toposort() if n.op is Ops.MMA)
        for operand, part, side in zip(node.src, (unit.first, unit.second), (0, 1), strict=False):
            line = _line(ast, operand)
            if unit.word == 2:  # eight lines of 16 bytes
                slots = {8 * line * 2 // 8 * i % 128 // 16 for i in range(8)}
                assert line % 8 == 0 and len(slots) == 8, (unit.name, side, line)
                continue
            across = turned[0] if side == 0 else not turned[1]
            banks = set()
            for lane in range(32):
                row, column = documented(unit, ("first", "second")[side], lane, 0)
                outer_, deep = (row, column) if side == 0 else (column, row)
                banks.add((deep * line + outer_ if across else outer_ * line + deep) % 32)
            assert len(banks) == 32, (unit.name, side, line, part)


def _line(ast: UOp, operand: UOp) -> int:
    """How far the lines of an operand's copy are apart: the other step with which it is stored."""
    copy = next(s for s in ast.src if s.src[0].src[0] is operand.src[0].src[0])
    grows = growth(copy.toposort(), copy.src[2:])[copy.src[0].src[1]] or {}
    return max(grows.values())


# ---------------------------------------------------------------- texts, run on the emulator

def sources(cases: list[tuple[UOp, Any]]) -> tuple[str, list[tuple[str, Any]]]:
    """Kernels as one text, and how each is called."""
    found = [render(ast, dialect()) for ast, dialect in cases]
    unit = {key_of(source): source for source in found}
    return unit_text(unit.items()), [(symbol(key_of(source)), source) for source in found]


def launched(ast: UOp) -> int:
    """How many groups a kernel has."""
    count = 1
    for loop in ast.arg.prefix:
        count *= loop.src[0].arg
    return count


@needs_emulator
@verifies("render.mma.registers")
@verifies("kernel.mma.value")
def test_warps_compute_products_of_all_layouts() -> None:
    sizes, cases = (64, 96, 48), []
    for place, unit in enumerate(NVIDIA):
        for turned in LAYOUTS:
            ast = product(*sizes, unit.dtype, turned)
            cases.append((unit, turned, by_hand(ast, place, (32, 32), 16, 2, 1)))
    text, called = sources([(ast, CUDA) for _, _, ast in cases])
    module = emulation.compile(text, "cuda")
    for (unit, turned, ast), (name, source) in zip(cases, called, strict=True):
        operands, right = given(*sizes, unit.dtype, turned)
        out = np.zeros(sizes[0] * sizes[1], operands[0].dtype)
        memories = [out, *operands]
        module.launch_in_orders(name, launched(ast), source.lanes, 0,
                                [memories[at] for at in source.parameters])
        close(out, right, unit.dtype, unit, sizes[2])


@pytest.mark.slow
@needs_emulator
@verifies("render.mma.registers")
@verifies("steps.padding.untouched")
def test_odd_sizes_batches_and_what_is_fused_with_a_product() -> None:
    def before(x: UOp) -> UOp:
        return kb.apply(Ops.ADD, x, kb.number(x.dtype, 1))

    def after(x: UOp, column: UOp) -> UOp:
        biased = kb.apply(Ops.ADD, x, load(param(3), column))
        return kb.apply(Ops.MAXIMUM, biased, kb.number(FLOAT, 0))

    sizes, cases = (45, 70, 37), []
    for place, unit in enumerate(NVIDIA):
        ast = product(*sizes, unit.dtype, (place % 2 == 1, False), batch=2, result=FLOAT,
                      before=before, after=after)
        wanted = taken(ast, lane_steps(ast, limits(unit.name)))
        assert any(name.startswith(f"TC(5,{place}") for name in wanted.arg.steps), wanted.arg.steps
        cases.append((unit, place % 2 == 1, wanted))
    text, called = sources([(ast, CUDA) for _, _, ast in cases])
    module = emulation.compile(text, "cuda", sanitize=True)
    bias = numbers(FLOAT, sizes[1], seed=3)
    for (unit, turned, ast), (name, source) in zip(cases, called, strict=True):
        operands, _ = given(*sizes, unit.dtype, (turned, False), 2)
        out = np.zeros(2 * sizes[0] * sizes[1], np.float32)
        memories = [out, *operands, bias]
        module.launch(name, launched(ast), source.lanes, 0,
                      [memories[at] for at in source.parameters], "reversed")
        one = kb.to_host(operands[0], unit.dtype)
        one = (np.swapaxes(one, 1, 2) if turned else one) + one.dtype.type(1)
        one = kb.to_host(kb.from_host(one, unit.dtype), unit.dtype).astype(np.float64)
        right = np.maximum(one @ kb.to_host(operands[1], unit.dtype) + bias, 0)
        close(out, right, FLOAT, unit, sizes[2])


@verifies("render.mma.registers")
def test_registers_hold_what_the_instruction_expects() -> None:
    """Fragments are passed in the order of the unit: sums, first, second."""
    text = render(by_hand(product(64, 64, 32, dtypes.float16), 0, (32, 32), 16), CUDA()).text
    assert '"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "' in text
    assert '"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"' in text
    assert "__align__(16) unsigned short m1[" in text and "__launch_bounds__(64, 8)" in text
    lines = [line.strip() for line in text.splitlines() if "  multiply_m16n8k16" in line]
    words = [line.partition("(")[2].rstrip(");").split(", ") for line in lines]
    assert [w[0][0] + w[4][0] for w in words] == ["sf"] * len(lines)
    for given_ in words:
        for some in (given_[:4], given_[4:8], given_[8:]):
            assert [int(name.rpartition("_")[2]) % len(some) for name in some] == list(
                range(len(some)))


def nvidia_missing() -> str:
    try:
        nvrtc._nvrtc()
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.skipif(bool(nvidia_missing()), reason=nvidia_missing())
@verifies("cuda.text.legal")
def test_texts_compile_for_every_gpu_with_the_unit() -> None:
    from impl.cuda.compiler import OPTIONS
    for architecture in nvrtc.ARCHITECTURES:
        with Context(ALLOW_TF32=1):
            names = units_of_nvidia(architecture)
        cases = []
        for place, unit in enumerate(NVIDIA):
            if unit.name in names:  # of all layouts for the newest, of others one
                some = slice(None) if architecture == nvrtc.ARCHITECTURES[-1] else slice(
                    (place + architecture) % 4, None, 4)
                cases += [by_hand(product(128, 128, 64, unit.dtype, turned), place, (64, 64), 32, 2,
                                  2) for turned in LAYOUTS[some]]
        assert len(cases) >= len(names) > 0
        nvrtc.check(sources([(ast, CUDA) for ast in cases])[0], (architecture,), OPTIONS)


# ---------------------------------------------------------------- under Metal

@pytest.fixture
def mac(emulation_folder: Any) -> Iterator[metal_objects.Device]:
    """A Mac with a GPU, on which nothing has happened."""
    with metal_objects.installed() as device, Context(DEVICE="METAL"):
        device.order = "reversed"
        Device.opened.pop("METAL", None)
        yield device
        Device.opened.pop("METAL", None)


@needs_emulator
@verifies("render.mma.registers")
@verifies("kernel.mma.value")
@verifies("metal.values.reference")
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, FLOAT],
                         ids=lambda dtype: dtype.name)
def test_simd_groups_compute_products(mac: Any, dtype: DType) -> None:
    sizes = (45, 40, 37)
    asts = [product(*sizes, dtype, turned) for turned in LAYOUTS]
    for program in Device["METAL"].compile(asts):
        assert any(name.startswith("TC") for name in program.steps), program.steps
    for ast, turned in zip(asts, LAYOUTS, strict=True):
        operands, right = given(*sizes, dtype, turned)
        out = np.zeros(sizes[0] * sizes[1], operands[0].dtype)
        kb.run(ast, out, *operands, device="METAL")
        close(out, right, dtype, SIMD[1], sizes[2])


@needs_clang
@verifies("metal.space.named+2")
def test_matrices_of_simd_groups_name_their_memory() -> None:
    for place, unit in enumerate(SIMD):
        ast = by_hand(product(64, 64, 32, unit.dtype), 4 + place, (32, 32), 16)
        address_spaces.check(render(ast, Metal()).text)


@needs_emulator
@verifies("searching.noopt.plain")
@verifies("steps.value.equal")
def test_a_layer_is_what_it_is_without_steps(mac: Any) -> None:
    x, w, b = (numbers(dtypes.float16, *shape, seed=i)
               for i, shape in enumerate(((3, 33, 40), (40, 64), (64,))))
    found = []
    for plain in (0, 1):
        with Context(NOOPT=plain):
            found.append(((Tensor(x) @ Tensor(w)) + Tensor(b)).relu().numpy().astype(np.float32))
    np.testing.assert_allclose(found[0], found[1], 2.0 ** -10, 2.0 ** -10)


# ---------------------------------------------------------------- copies of halves

@needs_emulator
@verifies("render.half.copied+2")
def test_a_copied_half_keeps_its_bits() -> None:
    i, count = new_range(64, RangeKind.GLOBAL), 64
    for dtype in HALF:
        every = (np.arange(count, dtype=np.uint16) * 0x0401 + 0x7C00).astype(np.uint16)  # NaNs, too
        turned = kb.apply(Ops.SUB, kb.number(dtypes.index, count - 1), i, dtype=dtypes.index)
        ast = kb.kernel(store(param(0, dtype), turned, load(param(1, dtype), i)), prefix=(i,),
                        name="turned")
        text = render(apply_steps(ast, [Local(0, 64)]), CUDA())
        out = np.zeros(count, np.uint16)
        emulation.compile(text.text, "cuda").launch("turned", 1, 64, 0, [out, every])
        np.testing.assert_array_equal(out, every[::-1])
        assert "from_" not in text.text and "to_" not in text.text


@needs_emulator
@verifies("render.half.copied+2")
def test_halves_that_are_copied_several_at_once_keep_their_bits() -> None:
    """Eight neighbours to eight neighbours, to single places, and from single places."""
    for dtype in HALF:
        for first, second in ((1, 1), (1, 2), (2, 1)):
            i, size = new_range(32, RangeKind.GLOBAL), 64
            every = (np.arange(size, dtype=np.uint16) * 0x0401 + 0x7C00).astype(np.uint16)
            ast = kb.kernel(store(param(0, dtype), kb.flat((i, first)),
                                  load(param(1, dtype), kb.flat((i, second)))), prefix=(i,),
                            name="copied")
            text = render(apply_steps(ast, [Upcast(0, 8), Local(0, 4)]), CUDA())
            assert "load_" in text.text or "store_" in text.text
            assert "from_" not in text.text and " to_" not in text.text
            out = np.zeros(size, np.uint16)
            emulation.compile(text.text, "cuda").launch("copied", 1, 4, 0, [out, every])
            np.testing.assert_array_equal(out[:32 * first:first], every[:32 * second:second])
