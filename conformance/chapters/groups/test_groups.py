"""What lanes of a group do together: exchanges, registers, wide loads. Chapters: groups, render.

Each kernel runs on the emulator as CUDA and as Metal, its lanes forward, reversed and shuffled.
"""
from __future__ import annotations

import contextlib
import random
import re

import numpy as np
import pytest

from conformance import emulation
from conformance.emulation import address_spaces, nvrtc
from conformance.kernels import emulated_kernels as ek
from conformance.kernels import kernel_builder as kb
from conformance.kernels import step_lists
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, local, param, reduce, store
from conformance.trace import verifies
from impl import symbolic
from impl.dialects import OpenCL
from impl.dtypes import DType, dtypes
from impl.errors import GraphError
from impl.groups import Grid, Inner, Local, Warp, lane_steps
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits, verify_kernel
from impl.render import render
from impl.steps import Cut, Own, Split, StepError, Upcast, apply_steps

GLOBAL, LOOP, REDUCE, LANE = (RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE, RangeKind.LANE)
LANGUAGES = ("cuda", "metal")
LIMITS = DeviceLimits(lanes=256, lockstep=32, exchange=True, local_memory=32 << 10)

pytestmark = [pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable()),
              pytest.mark.usefixtures("emulation_folder")]


def reduced(op: Ops, rows: int, columns: int, dtype: DType = INT) -> UOp:
    """out[r] = all elements of a row combined."""
    r, k = new_range(rows, GLOBAL), new_range(columns, REDUCE)
    value = reduce(op, load(param(1, dtype), flat((r, columns), (k, 1))), k)
    return kb.kernel(store(param(0, dtype), r, value), prefix=(r,), name="rows")


def chosen(ast: UOp) -> UOp:
    """The kernel with the steps that a device gets whose lanes exchange values."""
    return apply_steps(ast, [step for step, _ in lane_steps(ast, LIMITS)])


def whole(shape: tuple[int, ...], dtype: type = np.int32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


# Exchanges


@verifies("steps.parts.order")
def test_a_sum_has_the_same_bits_in_every_kernel() -> None:
    """2**24 + 1 is 2**24 in float32: which lanes are added first shows."""
    big = 2.0 ** 24
    given = np.array([[big, 1, -big, 1], [big, -big, 1, 1]], np.float32)
    for language in LANGUAGES:
        found = np.zeros((2, 2), np.float32)
        for out in found:
            made = apply_steps(reduced(Ops.ADD, 2, 4, FLOAT), [Warp(1, 4, 4)])
            ek.run(made, out, given, language=language)
        assert (found[0] == found[1]).all()


@verifies("steps.parts.order")
@verifies("steps.value.equal")
def test_lanes_of_a_warp_reduce_by_exchanging() -> None:
    for rows, columns, lanes, width in ((3, 1000, 64, 32), (2, 7, 4, 4), (1, 513, 256, 32),
                                        (4, 40, 32, 32), (2, 2048, 1024, 16), (5, 64, 8, 2)):
        op = (Ops.ADD, Ops.MAXIMUM, Ops.MUL)[columns % 3]
        plain = reduced(op, rows, columns)
        made = apply_steps(plain, [Warp(1, lanes, width)])
        arrays = [np.zeros(rows, np.int32), whole((rows, columns))]
        for language in LANGUAGES:
            assert not ek.problem(plain, made, arrays, language)


@pytest.mark.slow
@verifies("steps.parts.order")
@verifies("kernel.half.wide")
@pytest.mark.parametrize("dtype", [
    dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int64, dtypes.uint8,
    dtypes.int16, dtypes.bool], ids=lambda each: each.name)
def test_every_type_is_exchanged(dtype: DType) -> None:
    plain = reduced(Ops.ADD, 3, 100, dtype)
    made = apply_steps(plain, [Warp(1, 64, 32)])
    values = whole((3, 100)) if dtype.kind == "f" else whole((3, 100)) * 1000003
    given = kb.from_host(values % 2 if dtype is dtypes.bool else values, dtype)
    arrays = [np.zeros(3, given.dtype), given.reshape(3, 100)]
    for language in LANGUAGES:
        if not (language == "metal" and dtype is dtypes.float64):
            assert not ek.problem(plain, made, arrays, language)


@verifies("dialects.exchange.all")
def test_one_barrier_is_enough_for_a_sum() -> None:
    """One in a group of several warps, none in a group of one."""
    for columns, barriers in ((1000, 1), (40, 0)):
        text = ek.source_of(chosen(reduced(Ops.ADD, 300, columns)), "cuda").body
        assert "exchange_i32" in text and text.count("__syncthreads") == barriers, text


@verifies("kernel.warp.whole+2")
def test_warps_are_whole() -> None:
    ast = reduced(Ops.ADD, 3, 100)
    for step in (Warp(1, 48, 32), Warp(1, 64, 3), Warp(1, 64, 64), Warp(1, 64, 1), Warp(0, 64, 32)):
        with pytest.raises(StepError):
            apply_steps(ast, [step])
    made = apply_steps(ast, [Warp(1, 32, 32)])
    for later in (Own(0), Inner(0, 3)):  # the exchange would stand in a loop of the stage
        with pytest.raises(StepError, match="exchange"):
            apply_steps(made, [later])
    with pytest.raises(GraphError, match="OPENCL has no word for"):
        render(made, OpenCL())


@verifies("kernel.warp.whole+2")
def test_an_exchange_in_a_loop_of_a_stage_is_no_kernel() -> None:
    j, k = new_range(7, LOOP), new_range(32, LANE)
    total = reduce(Ops.ADD, load(param(1, INT), flat((j, 32), (k, 1))), k)
    ast = kb.kernel(store(param(0, INT), j, total, j))
    ast = ast.replace(arg=ast.arg.__class__(**{**vars(ast.arg), "lanes": 32}))
    with pytest.raises(GraphError, match="come by"):
        verify_kernel(ast)


@verifies("dialects.exchange.all")
def test_the_emulator_finds_lanes_that_do_not_come() -> None:
    """What the rules above forbid is seen when it happens: an exchange in a branch, no barrier."""
    made = apply_steps(reduced(Ops.ADD, 1, 2048), [Warp(1, 64, 32)])
    arrays = [np.zeros(1, np.int32), whole((1, 2048))]
    source = ek.source_of(made, "cuda")
    branch = re.sub(r"const int (t\d+) = (exchange_i32\(\w+, 4\));",
                    r"int \1 = 0; if (lane % 3) \1 = \2;", source.text)
    module = emulation.compile(branch, "cuda")
    with pytest.raises(emulation.EmulationError, match="wait for others that do not come"):
        module.launch_in_orders("emulated", 1, 64, 0, arrays)
    module = emulation.compile(source.text.replace("__syncthreads();", ""), "cuda")
    with pytest.raises(emulation.OrderDependence):
        module.launch_in_orders("emulated", 1, 64, 0, arrays)


@verifies("render.exchange.order")
def test_every_lane_has_the_result() -> None:
    """out[r, j] = x[r, j] - the sum of the row, which no LOCAL holds."""
    for columns in (32, 50):
        r, j, k = new_range(3, GLOBAL), new_range(columns, LOOP), new_range(columns, REDUCE)
        row = flat((r, columns), (j, 1))
        total = reduce(Ops.ADD, load(param(1, INT), flat((r, columns), (k, 1))), k)
        plain = kb.kernel(store(param(0, INT), row, kb.apply(Ops.SUB, load(param(1, INT), row),
                                                            total), j), prefix=(r,), name="rows")
        made = apply_steps(plain, [Warp(2, 32, 32), Local(1, 32)])
        arrays = [np.zeros((3, columns), np.int32), whole((3, columns))]
        for language in LANGUAGES:
            assert not ek.problem(plain, made, arrays, language)
        assert "__shared__" not in ek.source_of(made, "cuda").body


# Registers


@verifies("lowering.wait.private")
@verifies("steps.value.equal")
@pytest.mark.parametrize("columns", [1, 7, 250, 1000, 2048, 5001])
def test_a_row_stays_in_registers(columns: int) -> None:
    """The exponentials of a softmax: each lane has every 256th, whatever the length of the row."""
    plain = kb.softmax(3, columns)
    made = chosen(plain)
    arrays = [np.zeros((3, columns), np.float32), whole((3, columns), np.float32)]
    for language in LANGUAGES:
        assert not ek.problem(plain, made, arrays, language)
    if columns in (1000, 2048):
        text = ek.source_of(made, "cuda").body
        assert re.search(r"  float m\d\[8\];", text)  # two rounds of four
        assert text.count("__syncthreads") == 2
        assert "#pragma unroll" in text


@verifies("lowering.wait.private")
def test_elements_of_other_lanes_are_no_registers() -> None:
    """Each lane has an element of every round; but the next stage reads the row from its end."""
    for turned in (False, True):
        j, j2 = new_range(256, LOOP), new_range(256, LOOP)
        held = local(0, 256, INT)
        where = kb.apply(Ops.SUB, kb.number(dtypes.index, 255), j2) if turned else j2
        plain = kb.kernel(store(held, j, load(param(1, INT), j), j),
                          store(param(0, INT), j2, load(held, where), j2))
        made = apply_steps(plain, [Cut(0, 64), Local(1, 64)])
        made = apply_steps(made, [Cut(2, 64), Local(3, 64)])
        assert ("__shared__" in ek.source_of(made, "cuda").body) is turned
        arrays = [np.zeros(256, np.int32), whole((256,))]
        assert not ek.problem(plain, made, arrays, "cuda")


@verifies("lowering.wait.private")
def test_what_one_element_of_a_loop_stores_is_not_alike() -> None:
    """A LOCAL of 8 numbers, each stored by another lane, and read by all."""
    j, k, out = new_range(8, LOOP), new_range(8, REDUCE), new_range(8, LOOP)
    held = local(0, 8, INT)
    total = reduce(Ops.ADD, load(held, k), k)
    plain = kb.kernel(store(held, j, load(param(1, INT), j), j),
                      store(param(0, INT), out, total, out))
    made = apply_steps(plain, [Local(0, 8), Local(1, 8)])
    assert not ek.problem(plain, made, [np.zeros(8, np.int32), whole((8,))], "cuda")


# Wide accesses


def doubled(rows: int, columns: int, dtype: DType, first: int = 0, end: int | None = None) -> UOp:
    """out[r, j] = x[r, j] + x[r, j], from element `first` on; beyond column `end` x is 0."""
    r, j = new_range(rows, GLOBAL), new_range(columns, GLOBAL)
    index = flat((r, columns), (j, 1), (first, 1))
    valid = TRUE if end is None else symbolic.less_than(j, end)
    value = load(param(1, dtype), index, valid)
    return kb.kernel(store(param(0, dtype), index, kb.apply(Ops.ADD, value, value)),
                     prefix=(r, j), name="doubled")


@pytest.mark.slow
@verifies("lowering.wide.legal")
@pytest.mark.parametrize("dtype", [
    dtypes.uint8, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int32, dtypes.int64,
    dtypes.bool], ids=lambda each: each.name)
def test_neighbours_go_in_one_access(dtype: DType) -> None:
    plain = doubled(3, 48, dtype)
    made = apply_steps(plain, [Upcast(1, 16), Local(1, 8)])
    given = kb.from_host(whole((3, 48)) % (2 if dtype is dtypes.bool else 100), dtype)
    for language, word in (("cuda", "load_"), ("metal", "(device const packed_")):
        assert not ek.problem(plain, made, [np.zeros_like(given), given], language)
        pieces = 16 // (min(4, 16 // dtype.itemsize) if language == "metal" else
                        16 // dtype.itemsize)
        assert ek.source_of(made, language).body.count(word) == pieces


@verifies("lowering.wide.legal")
def test_what_is_no_multiple_goes_one_by_one() -> None:
    """An odd place, odd rows, a condition for each element; a condition for all is no hindrance."""
    for plain, word in ((doubled(3, 48, INT), "_by_4"), (doubled(3, 48, INT, 1), ""),
                        (doubled(3, 44, INT), "_by_4"), (doubled(3, 48, INT, 2), "_by_2"),
                        (doubled(3, 48, INT, 8), "_by_4"), (doubled(3, 48, INT, 0, 21), "")):
        made = apply_steps(plain, [Upcast(1, 4), Local(1, 8)])
        loads = re.findall(r"load_int(_by_\d)", ek.source_of(made, "cuda").body)
        assert set(loads) == ({word} if word else set())
        arrays = [np.zeros(160, np.int32), whole((160,))]
        assert not ek.problem(plain, made, arrays, "cuda")
    shifted = apply_steps(reduced(Ops.ADD, 3, 45), [Split(1, 4, 0), Local(0, 8)])
    assert "_by_" not in ek.source_of(shifted, "cuda").body  # rows of 45 begin anywhere


@verifies("lowering.wide.legal")
def test_a_condition_for_a_whole_row_is_asked_once() -> None:
    r, j = new_range(6, GLOBAL), new_range(16, GLOBAL)
    index, valid = flat((r, 16), (j, 1)), symbolic.less_than(r, 4)
    plain = kb.kernel(store(param(0, INT), index, load(param(1, INT), index, valid),
                            valid=symbolic.less_than(r, 5)), prefix=(r, j), name="rows")
    made = apply_steps(plain, [Upcast(1, 4), Local(1, 8)])
    for language in LANGUAGES:
        arrays = [whole((6, 16), seed=1), whole((4, 16))]
        assert not ek.problem(plain, made, arrays, language)
    assert "if (v" in (text := ek.source_of(made, "cuda").body) and "load_int_by_4" in text


@verifies("dialects.wide.aligned")
def test_an_argument_may_begin_between() -> None:
    """Emulated, an access of 16 bytes that is not aligned ends the launch."""
    made = apply_steps(doubled(3, 48, INT), [Upcast(1, 4), Local(1, 8)])
    given = whole((200,))
    for language in LANGUAGES:
        source = ek.source_of(made, language)
        module = emulation.compile(source.text, language)
        for first in range(5):
            x, out = given[first:first + 144], np.zeros(200, np.int32)[first:first + 144]
            more = [np.zeros(1, np.int64)] * 29 if language == "metal" else []
            module.launch(source.name, 6, 8, 0, [out, x, *more])
            assert np.array_equal(out, 2 * x), (language, first)
    text = ek.source_of(made, "cuda").text
    text = re.sub(r"const bool wp(\d) = .*", r"const bool wp\1 = true;", text)
    careless = emulation.compile(text, "cuda")
    with pytest.raises(emulation.EmulationError, match="not aligned"):
        careless.launch("emulated", 6, 8, 0, [np.zeros(200, np.int32)[1:], given[1:]])


@verifies("groups.memory.lanes")
def test_lanes_take_neighbours() -> None:
    """Rows of a softmax, a sum and an elementwise operation, where their length allows it."""
    for columns, wide in ((4096, 4), (1024, 4), (4098, 2), (1025, 1)):
        for ast in (kb.softmax(64, columns), reduced(Ops.ADD, 64, columns)):
            text = ek.source_of(chosen(ast), "cuda").body
            assert (f"_by_{wide} " in text) == (wide > 1), text
    half = chosen(doubled(512, 1024, dtypes.float16))
    assert "_by_8 " in ek.source_of(half, "cuda").body
    assert "UPCAST" not in "".join(chosen(doubled(3, 1024, INT)).arg.steps)  # too few for all lanes


@pytest.mark.slow
@verifies("steps.value.equal")
@pytest.mark.parametrize(("columns", "dtype"), [(256, INT), (1024, FLOAT), (2000, FLOAT),
                                                (516, dtypes.float16)])
def test_rows_with_wide_accesses(columns: int, dtype: DType) -> None:
    plain = reduced(Ops.ADD, 5, columns, dtype)
    given = kb.from_host(whole((5, columns)), dtype)
    for ast, arrays in ((plain, [np.zeros(5, given.dtype), given]),
                        (kb.softmax(5, columns), [np.zeros((5, columns), np.float32),
                                                  whole((5, columns), np.float32)])):
        for language in LANGUAGES:
            assert not ek.problem(ast, chosen(ast), arrays, language)


# Indices


@verifies("render.index.narrow")
def test_indices_are_as_long_as_they_need_to_be() -> None:
    """out[i] = 3e9 * i, an index of more than 32 bits; elsewhere none is longer than that."""
    i = new_range(5, GLOBAL)
    for factor, long in ((3_000_000_000, True), (3, False)):
        value = kb.apply(Ops.CAST, symbolic.mul(i, factor), dtype=dtypes.int64)
        made = apply_steps(kb.kernel(store(param(0, dtypes.int64), i, value), prefix=(i,)),
                           [Local(0, 4)])
        for language in LANGUAGES:
            assert ("const long group" in ek.source_of(made, language).body) is long
            assert not ek.problem(made, made, [np.zeros(5, np.int64)], language)
    j = new_range(1 << 31, GLOBAL)
    many = kb.kernel(store(param(0, INT), 0, kb.apply(Ops.CAST, j, dtype=INT)), prefix=(j,))
    assert "const long item" in ek.source_of(apply_steps(many, [Local(0, 4)]), "cuda").body
    n = symbolic.Variable("n", 1, 1 << 33).uop
    k = new_range(n, GLOBAL)
    some = kb.kernel(store(param(0, INT), k, kb.number(INT, 1)), prefix=(k,), variables=(n,))
    assert "const long item" in ek.source_of(apply_steps(some, [Local(0, 4)]), "cuda").body


# Real compilers

TYPES = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int64,
         dtypes.uint64, dtypes.int32, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.bool)


@pytest.mark.slow
@verifies("cuda.text.legal")
@pytest.mark.parametrize("dtype", TYPES, ids=lambda each: each.name)
def test_nvrtc_takes_exchanges_and_wide_accesses(dtype: DType) -> None:
    """For sm_75, 80, 90 and 100."""
    for made in (apply_steps(reduced(Ops.MAXIMUM, 3, 100, dtype), [Warp(1, 64, 32)]),
                 apply_steps(doubled(3, 48, dtype), [Upcast(1, 16), Local(1, 8)])):
        try:
            nvrtc.check(ek.source_of(made, "cuda").text)
        except emulation.Unavailable as reason:
            pytest.skip(str(reason))


@verifies("metal.space.named+2")
@pytest.mark.parametrize("dtype", [each for each in TYPES if each is not dtypes.float64],
                         ids=lambda each: each.name)
def test_address_spaces_of_exchanges_and_wide_accesses(dtype: DType) -> None:
    """Looked at by clang, where it is there."""
    for made in (apply_steps(reduced(Ops.MAXIMUM, 3, 100, dtype), [Warp(1, 64, 32)]),
                 apply_steps(doubled(3, 48, dtype), [Upcast(1, 16), Local(1, 8)])):
        try:
            address_spaces.check(ek.source_of(made, "metal").text)
        except emulation.Unavailable as reason:
            pytest.skip(str(reason))


# Drawn lists


@pytest.mark.slow
@verifies("steps.value.equal")
@verifies("steps.legal.refused")
def test_drawn_lists_for_lanes_equal_no_steps() -> None:
    """Kernels of tensor programs, drawn steps, among them those of work-groups."""
    made, failed = step_lists.check_lanes(range(20), 1)
    assert not failed, str(failed[0])
    assert len(made) >= 8 and any("LOCAL" in step for trial in made for step in trial.steps)


@verifies("steps.value.equal")
@verifies("steps.legal.refused")
@verifies("kernel.mma.layout+2")
def test_drawn_lists_after_tc_equal_no_steps() -> None:
    """Of seeds among which one had a list that was taken and made no kernel."""
    made, failed = step_lists.check_units((10, 102, 104), 2)
    assert not failed, str(failed[0])
    after = {step.partition("(")[0] for trial in made for step in trial.steps[-2:]}
    assert after - {"TC", "INNER", "PADTO"}, "nothing was drawn after TC"


@pytest.mark.slow
@verifies("steps.value.equal")
def test_warps_in_drawn_lists() -> None:
    """Reductions of rows under lists that begin with WARP."""
    draw = random.Random(3)
    for number in range(8):
        columns = draw.choice((33, 64, 100, 128))
        plain = kb.softmax(3, columns) if number % 2 else reduced(Ops.ADD, 3, columns)
        lanes = draw.choice((4, 8, 32))
        axis = next(i for i, r in enumerate(Analysis(plain).ranges) if r.arg[1] is REDUCE)
        before = [Split(axis, 4, number % 4 // 2)] if columns % 4 == 0 else []
        made = apply_steps(plain, before)
        axis = next(i for i, r in enumerate(Analysis(made).ranges) if r.arg[1] is REDUCE)
        with contextlib.suppress(StepError):
            made = apply_steps(made, [Warp(axis, lanes, draw.choice((2, 4, lanes)))])
        made = apply_steps(made, step_lists.drawn_list(made, draw, lanes))
        out = np.zeros((3, columns), np.float32) if number % 2 else np.zeros(3, np.int32)
        given = whole((3, columns), np.float32 if number % 2 else np.int32)
        for language in LANGUAGES:
            assert not ek.problem(plain, made, [out, given], language)


@verifies("metal.values.reference")
def test_phases_know_their_number_beside_variables() -> None:
    """Two phases of n elements: Metal has the number of the phase behind the variables."""
    n = symbolic.Variable("n", 1, 40).uop
    j, j2 = new_range(n, LOOP), new_range(n, LOOP)
    held = local(0, 40, INT)
    plain = kb.kernel(store(held, j, load(param(1, INT), j), j),
                      store(param(0, INT), j2, load(held, j2), j2), variables=(n,))
    made = apply_steps(plain, [Grid(0, 8), Grid(1, 8)])
    for language in LANGUAGES:
        arrays = [np.zeros(40, np.int32), whole((40,))]
        assert not ek.problem(plain, made, arrays, language, values=(37,))
