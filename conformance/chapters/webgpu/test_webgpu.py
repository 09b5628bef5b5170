"""WebGPU, through the driver that is there: WGSL, memory in words, launches. Chapter: webgpu."""
from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from conformance.chapters.opencl.test_opencl import random_lanes, together
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, param, reduce, store
from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, symbolic, webgpu
from impl.device import Device
from impl.dialects import WGSL
from impl.dtypes import DType, dtypes
from impl.errors import CompileError, DeviceError, DTypeError, GraphError
from impl.groups import Local
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.render import render
from impl.searching import with_steps
from impl.steps.step import apply_steps

GLOBAL, REDUCE = RangeKind.GLOBAL, RangeKind.REDUCE
pytestmark = pytest.mark.device("WEBGPU")

_OPERATIONS = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR, Ops.POW,
               Ops.MAXIMUM, Ops.MINIMUM, Ops.AND, Ops.XOR, Ops.NEG, Ops.CMPLT)


def whole_types() -> list[DType]:
    """The integers that the device has."""
    wide = (dtypes.int64, dtypes.uint64) if device().wide else ()
    return [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32,
            *wide]


def device() -> Any:
    return Device["WEBGPU"]


def run_as_it_is(ast: UOp, *arrays: np.ndarray, values: tuple[int, ...] = ()) -> None:
    """Run a kernel with the steps it has and no others."""
    kb.run(with_steps(ast, ()), *arrays, values=values, device="WEBGPU")


def check_stored(ast: UOp, types: Sequence[DType], *given: np.ndarray) -> None:
    """Every value of a kernel is that of the reference."""
    found = []
    for name in ("REFERENCE", "WEBGPU"):
        outs = [kb.from_host(np.zeros(given[0].size), dtype) for dtype in types]
        kb.run(ast, *outs, *given, device=name)
        found.append([kb.to_host(out, dtype) for out, dtype in zip(outs, types, strict=True)])
    for place, dtype in enumerate(types):
        assert np.array_equal(found[0][place], found[1][place], equal_nan=dtype.kind == "f"), \
            ast.src[place]


# Values


@pytest.mark.slow
@verifies("webgpu.values.reference")
def test_random_kernels_store_what_the_reference_stores() -> None:
    """With the steps that rules choose, and with lanes on random loops."""
    tried = 0
    for seed in range(40):
        each = kb.random_kernel(seed)
        ast = each.ast if seed % 3 == 0 else with_steps(random_lanes(each.ast, seed), ())
        if any(node.dtype is dtypes.float64 for node in ast.toposort()):
            continue
        tried += 1
        assert np.array_equal(each.result(ast, "WEBGPU"), each.result(each.ast, "REFERENCE")), \
            ast.arg.steps
    assert tried > 20


@verifies("webgpu.values.reference")
@verifies("conventions.integers.exact")
def test_integers_are_exact_at_their_limits() -> None:
    for dtype in whole_types():
        ast = together(64 * 64, dtype, 2, lambda given: [
            kb.apply(op, *given[:1 if op is Ops.NEG else 2]) for op in _OPERATIONS])
        values = kb.special(dtype)
        a, b = (np.ascontiguousarray(x).reshape(-1) for x in np.meshgrid(values, values))
        check_stored(ast, [dtypes.bool if op is Ops.CMPLT else dtype for op in _OPERATIONS], a, b)


@verifies("webgpu.values.reference")
@verifies("kernel.half.wide")
def test_casts_of_every_type_to_every_type() -> None:
    every = (*whole_types(), dtypes.bool, dtypes.float16, dtypes.bfloat16, dtypes.float32)
    for one, kinds in itertools.product(every, ("bf", "iu")):
        targets = [two for two in every if two.kind in kinds and two is not one]
        values = kb.special(one, 70)
        if one.kind == "f" and kinds != "bf":  # what does not fit is left open
            given = np.nan_to_num(kb.to_host(values, one).astype(np.float32))
            values = kb.from_host(given.clip(0, 100), one)
        ast = together(70, one, 1, lambda given, targets=targets: [
            kb.apply(Ops.CAST, *given, dtype=two) for two in targets])
        check_stored(ast, targets, values)


@verifies("webgpu.values.reference")
def test_bits_are_taken_as_another_type() -> None:
    for pair in ((dtypes.int32, dtypes.float32), (dtypes.uint16, dtypes.float16),
                 (dtypes.int16, dtypes.bfloat16), (dtypes.uint8, dtypes.int8)):
        for one, two in (pair, pair[::-1]):
            ast = together(64, one, 1, lambda given, two=two: [
                kb.apply(Ops.BITCAST, *given, dtype=two)])
            check_stored(ast, [two], kb.special(one, 64))


@verifies("kernel.half.wide")
def test_every_half_is_read_and_written() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    i = new_range(1 << 16, GLOBAL)
    wide = kb.apply(Ops.CAST, load(param(1, dtypes.float16), i), dtype=FLOAT)
    back = kb.apply(Ops.CAST, load(param(2, FLOAT), i), dtype=dtypes.float16)
    out, again = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.uint16)
    ast = kb.kernel(store(param(0, FLOAT), i, wide), store(param(3, dtypes.float16), i, back),
                    prefix=(i,))
    given: np.ndarray = bits.view(np.float16).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        near = (given + np.abs(given) * 2.0 ** -12).astype(np.float32)
        wanted = near.astype(np.float16)
    kb.run(ast, out, bits, near, again, device="WEBGPU")
    assert np.array_equal(out, given, equal_nan=True)
    assert np.array_equal(again.view(np.float16), wanted, equal_nan=True)


@verifies("functions.function.special")
@verifies("functions.function.error")
def test_functions_agree_with_the_reference() -> None:
    names = kb.FLOAT_FUNCTIONS
    ast = together(200, FLOAT, 1, lambda given: [kb.apply(op, *given) for op in names])
    values, found = kb.special(FLOAT, 200), []
    for name in ("REFERENCE", "WEBGPU"):
        outs = [np.zeros(200, np.float32) for _ in names]
        with np.errstate(all="ignore"):
            kb.run(ast, *outs, values, device=name)
        found.append(outs)
    for op, one, two in zip(names, *found, strict=True):
        assert np.allclose(two, one, rtol=4e-7, atol=1e-44, equal_nan=True), op
    zeros = [np.zeros(4, np.float32) for _ in names]
    kb.run(together(4, FLOAT, 1, lambda given: [kb.apply(op, *given) for op in names]),
           *zeros, np.array([-0.0, 0.0, -0.0, 0.0], np.float32), device="WEBGPU")
    for op, out in zip(names, zeros, strict=True):
        if not out.any():  # of an odd function, and the others that keep the sign of a zero
            assert np.signbit(out).tolist() == [op is not Ops.NEG, op is Ops.NEG] * 2, op
    large = (10.0 ** np.linspace(3, 38, 256)).astype(np.float32)
    ast = together(256, FLOAT, 1, lambda given: [kb.apply(op, *given) for op in (Ops.SIN, Ops.COS)])
    outs = [np.zeros(256, np.float32) for _ in range(2)]
    kb.run(ast, *outs, large, device="WEBGPU")
    for out, right in zip(outs, (np.sin, np.cos), strict=True):
        assert np.allclose(out, right(large.astype(np.float64)), rtol=1e-6, atol=1e-7)


@verifies("webgpu.float.exact")
@verifies("conventions.nan.propagate")
def test_no_compiler_takes_floats_for_real_numbers() -> None:
    """A compiler that believes in no NaN makes 0 of x - x, and b of (a + b) - a."""
    def values(given: list[UOp]) -> list[UOp]:
        a, b = given
        zero, minus = kb.number(FLOAT, 0.0), kb.number(FLOAT, -0.0)
        total = kb.apply(Ops.ADD, a, b)
        return [kb.apply(Ops.SUB, a, a), kb.apply(Ops.SUB, total, a), kb.apply(Ops.MUL, a, zero),
                kb.apply(Ops.ADD, a, zero), kb.apply(Ops.ADD, a, minus), kb.apply(Ops.DIV, a, a),
                kb.apply(Ops.SUB, zero, a), kb.apply(Ops.MAXIMUM, a, b),
                kb.apply(Ops.MINIMUM, a, b), kb.apply(Ops.CMPNE, a, a), kb.apply(Ops.CMPLT, a, b),
                kb.apply(Ops.WHERE, kb.apply(Ops.CMPLE, a, b), a, b),
                kb.apply(Ops.SUB, kb.apply(Ops.MUL, a, b), kb.apply(Ops.MUL, a, b))]

    given = kb.special(FLOAT)
    a, b = (np.ascontiguousarray(x).reshape(-1) for x in np.meshgrid(given, given))
    ast = together(64 * 64, FLOAT, 2, values)
    types = [dtypes.bool if n in (9, 10) else FLOAT for n in range(13)]
    with np.errstate(all="ignore"):
        check_stored(ast, types, a, b)
    i = new_range(4, GLOBAL)
    signs = kb.kernel(store(param(0), i, kb.apply(
        Ops.ADD, load(param(1), i), kb.number(FLOAT, 0.0))), prefix=(i,))
    out = np.ones(4, np.float32)
    kb.run(signs, out, np.array([-0.0, 0.0, -0.0, 1.0], np.float32), device="WEBGPU")
    assert np.signbit(out).tolist() == [False] * 4


# The language


@verifies("webgpu.word.rest")
def test_lanes_that_write_parts_of_a_word_keep_the_others() -> None:
    for dtype in (dtypes.uint8, dtypes.bool, dtypes.int16, dtypes.float16, dtypes.bfloat16):
        i = new_range(1000, GLOBAL)
        ast = apply_steps(kb.kernel(store(param(0, dtype), i, load(param(1, dtype), i)),
                                    prefix=(i,)), [Local(0, 64)])
        given = kb.from_host(np.arange(1000) % 120, dtype)
        out = kb.from_host(np.zeros(1000), dtype)
        run_as_it_is(ast, out, given)
        assert np.array_equal(out, given), dtype
        j = new_range(250, GLOBAL)  # every fourth one: the others stay what they are
        at = flat((j, 4))
        few = apply_steps(kb.kernel(store(param(0, dtype), at, load(param(1, dtype), j)),
                                    prefix=(j,)), [Local(0, 64)])
        run_as_it_is(few, out, given)
        wanted = given.copy()
        wanted[::4] = given[:250]
        assert np.array_equal(out, wanted), dtype
        assert "atomicAnd(&words0" in render(ast, WGSL()).body
    assert "atomic" not in render(kb.matmul(4, 4, 4), WGSL()).text


@verifies("webgpu.error.told")
@verifies("device.launch.refused+2")
def test_types_that_are_missing_are_named() -> None:
    with pytest.raises(DTypeError, match="has no float64"):
        (Tensor([1.0], dtype="float64", device="WEBGPU") + 1).realize()
    i = new_range(4, GLOBAL)
    wide = kb.kernel(store(param(0, dtypes.int64), i, load(param(1, dtypes.int64), i)), prefix=(i,))
    assert "u64" in render(wide, WGSL()).text
    with pytest.raises(DTypeError, match="has no int64"):
        render(wide, WGSL(wide=False))
    for ast in (kb.softmax(4, 9), together(8, dtypes.uint8, 2, lambda given: [
            kb.apply(op, *given) for op in (Ops.ADD, Ops.POW)])):
        assert not re.search(r"[iu]64|\dlu?\b|\dli\b", render(ast, WGSL(wide=False)).text)


@verifies("webgpu.index.narrow+2")
def test_indices_have_no_more_bits_than_they_need() -> None:
    """An address may wrap around where it is not used; a number that is compared may not."""
    for dtype, kinds in ((dtypes.int32, ("i32", "i32")), (dtypes.int64, ("i64", ""))):
        i = new_range(8, GLOBAL)
        place = kb.apply(Ops.CAST, load(param(2, dtype), i), dtype=dtypes.index)
        inside = kb.apply(Ops.AND, kb.apply(Ops.CMPLE, kb.number(dtypes.index, 0), place),
                          kb.apply(Ops.CMPLT, place, kb.number(dtypes.index, 5)))
        value = load(param(1, INT), symbolic.mul(place, 3), inside)
        ast = kb.kernel(store(param(0, INT), i, value), prefix=(i,))
        for wide, kind in zip((True, False), kinds, strict=True):
            if kind:
                assert f"let k0: {kind}" in render(ast, WGSL(wide)).body
            else:
                with pytest.raises((GraphError, DTypeError)):
                    render(ast, WGSL(wide))
        if dtype in whole_types():
            given = np.array([0, 4, 5, -1, 2 ** 31 - 1, -2 ** 31, 1, 3], np.int64)
            if dtype is dtypes.int64:
                given[6] = 2 ** 32 + 1
            out = np.zeros(8, np.int32)
            kb.run(ast, out, np.arange(15, dtype=np.int32), given.astype(dtype.numpy),
                   device="WEBGPU")
            wanted = [3 * n if 0 <= n < 5 else 0 for n in given.tolist()]
            assert out.tolist() == wanted


@verifies("webgpu.index.narrow+2")
def test_a_variable_has_the_bits_of_its_type() -> None:
    """In one kernel indices are long, and a variable is not."""
    number = UOp(Ops.DEFINE_VAR, dtypes.int32, (), ("number", 0, 3))
    i = new_range(8, GLOBAL)
    place = kb.apply(Ops.CAST, load(param(2, dtypes.int64), i), dtype=dtypes.index)
    inside = kb.apply(Ops.CMPLT, place, kb.number(dtypes.index, 5))
    place = kb.apply(Ops.ADD, place, kb.apply(Ops.CAST, number, dtype=dtypes.index))
    ast = kb.kernel(store(param(0, INT), i, load(param(1, INT), place, inside)), prefix=(i,),
                    variables=(number,))
    text = render(ast, WGSL(wide=True)).body
    assert "let n0: i32 = " in text and "long_i32_i64(n0)" in text
    if dtypes.int64 in whole_types():
        out = np.zeros(8, np.int32)
        kb.run(ast, out, np.arange(8, dtype=np.int32), np.arange(8), values=(3,), device="WEBGPU")
        assert out.tolist() == [3, 4, 5, 6, 7, 0, 0, 0]


@verifies("webgpu.loop.turns+2")
def test_a_lane_turns_as_often_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """llvmpipe ends the loops of a lane after 65535 turns, and says nothing."""
    i, k = new_range(3, GLOBAL), new_range(9, REDUCE)
    ast = kb.kernel(store(param(0), i, reduce(Ops.ADD, load(param(1), flat((i, 9), (k, 1))), k)),
                    prefix=(i,))
    assert webgpu.turns(ast) == 10
    given = np.ones((260, 260), np.float32)
    with Context(DEVICE="WEBGPU", NOOPT=1):
        assert Tensor(given).sum().item() == 260 * 260
    monkeypatch.setattr(device(), "turns", 100)
    with Context(DEVICE="WEBGPU", SCACHE=0), pytest.raises(DeviceError, match="turn"):
        Tensor(np.ones((7, 263), np.float32)).cumsum(1).sum(0).realize()
        device().optimized(kb.matmul(4, 4, 5000))


# Memory


@verifies("webgpu.argument.offset+2")
def test_an_argument_may_begin_anywhere() -> None:
    values = np.arange(1000, dtype=np.int32)
    with Context(DEVICE="WEBGPU"):
        for name in ("int32", "uint8", "float16"):
            x = Tensor(values.astype(name)).realize()
            for first in (1, 3, 63, 64, 200, 999):
                assert np.array_equal((x[first:] + 1).numpy(), values.astype(name)[first:] + 1)
            x[5:9] = x[1:5] + 2
            x[7:9] = 3
            wanted = values.astype(name)
            wanted[5:9], wanted[7:9] = wanted[1:5] + 2, 3
            assert np.array_equal(x.numpy(), wanted)
    for dtype in (dtypes.int32, dtypes.uint8, dtypes.float16):
        i = new_range(32, GLOBAL)
        ast = kb.kernel(store(param(0, dtype), i, load(param(1, dtype), i)), prefix=(i,))
        program, memory = device().compile([ast])[0], device().allocate(1024)
        for to, source in ((4, 600), (256, 8), (300, 512), (260, 20)):
            given = np.arange(1024, dtype=np.uint32).astype(np.uint8)
            device().copy_in(memory, given)
            size = 32 * dtype.itemsize
            program([memory.part(to, size), memory.part(source, size)])
            given[to:to + size] = given[source:source + size]
            assert np.array_equal(device().copy_out(memory, dtypes.uint8, 1024), given)
    with pytest.raises(DeviceError, match="inside of an element"):
        device().compile([kb.kernel(store(param(0, INT), 0, kb.number(INT, 1)))])[0](
            [memory.part(6, 8)])


@verifies("webgpu.word.rest")
def test_copies_of_bytes_leave_their_neighbours() -> None:
    memory = device().allocate(64)
    device().copy_in(memory, np.arange(64, dtype=np.uint8))
    for start, count in ((1, 1), (5, 6), (8, 4), (15, 17)):
        device().copy_in(memory.part(start, count), np.full(count, 200 + count, np.uint8))
    wanted = np.arange(64, dtype=np.uint8)
    for start, count in ((1, 1), (5, 6), (8, 4), (15, 17)):
        wanted[start:start + count] = 200 + count
    for offset, count in ((0, 64), (1, 2), (3, 9), (63, 1)):
        found = device().copy_out(memory, dtypes.uint8, count, offset)
        assert np.array_equal(found, wanted[offset:offset + count])
    other = device().allocate(64)
    device().copy(other, memory, 64)
    device().copy(other.part(3, 7), memory.part(20, 7))
    wanted[3:10] = wanted[20:27]
    assert np.array_equal(device().copy_out(other, dtypes.uint8, 64), wanted)


@verifies("webgpu.error.told")
def test_an_argument_that_cannot_be_bound_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    i = new_range(64, GLOBAL)
    ast = kb.kernel(store(param(0, INT), i, load(param(1, INT), i)), prefix=(i,))
    program = device().compile([ast])[0]
    blocks = [device().allocate(256), device().allocate(256)]
    monkeypatch.setattr(device(), "most", {**device().most, "max-storage-buffer-binding-size": 128})
    with pytest.raises(DeviceError, match="an argument of 256 bytes"):
        program(blocks)
    monkeypatch.undo()
    program(blocks)


@verifies("webgpu.error.told")
def test_memory_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceError, match="bytes left"):
        device().allocate(1 << 45)
    assert (Tensor([1.0], device="WEBGPU") + 1).item() == 2


@verifies("device.copy.exact")
def test_copies_between_devices_are_exact() -> None:
    values = kb.special(FLOAT, 999)
    x = Tensor(values, device="CPU").realize()
    again = x.to("WEBGPU").realize().to("WEBGPU:1").realize().to("REFERENCE").to("WEBGPU").to("CPU")
    assert np.array_equal(again.numpy().view(np.uint32), values.view(np.uint32))


# Launches


@verifies("webgpu.launch.all")
@verifies("dialects.group.once+2")
def test_groups_that_fill_more_than_a_row() -> None:
    """A launch may have 65535 groups in a row, and here it has more, and not a multiple."""
    for count in (65535, 65536, 150_001):
        i = new_range(count, GLOBAL)
        value = kb.apply(Ops.ADD, load(param(0, INT), i), kb.number(INT, 1))
        out = np.zeros(count + 70_000, np.int32)
        run_as_it_is(kb.kernel(store(param(0, INT), i, value), prefix=(i,)), out)
        assert out[:count].tolist() == [1] * count and not out[count:].any()


@verifies("webgpu.launch.all")
def test_extents_that_are_known_at_run_time() -> None:
    n = symbolic.Variable("n", 0, 50).uop
    i = new_range(n, GLOBAL)
    value = kb.apply(Ops.ADD, load(param(0, INT), i), kb.number(INT, 1))
    ast = apply_steps(kb.kernel(store(param(0, INT), i, value), prefix=(i,), variables=(n,)),
                      [Local(0, 16)])
    for count in (0, 1, 16, 33, 50):
        out = np.zeros(60, np.int32)
        run_as_it_is(ast, out, values=(count,))
        assert out.tolist() == [1] * count + [0] * (60 - count)


@verifies("webgpu.launch.all")
def test_what_is_gathered_runs_in_the_order_in_which_it_was_asked_for() -> None:
    """More launches than are gathered, and copies between them."""
    i = new_range(64, GLOBAL)
    double = kb.kernel(store(param(0, INT), i, kb.apply(
        Ops.ADD, load(param(0, INT), i), load(param(0, INT), i))), prefix=(i,))
    program, memory = device().compile([double])[0], device().allocate(256)
    given = np.arange(64, dtype=np.int32)
    for times in (1, 3, 200):
        device().copy_in(memory, given)
        for _ in range(times):
            program([memory])
        with np.errstate(over="ignore"):
            wanted = (given.astype(np.int64) << times).astype(np.int32) if times < 60 else 0 * given
        assert np.array_equal(device().copy_out(memory, INT, 64), wanted)
    for more in (1, 2):  # nothing is read in between
        device().copy_in(memory, given + more)
        program([memory])
    assert np.array_equal(device().copy_out(memory, INT, 64), 2 * (given + 2))


@verifies("webgpu.error.told")
def test_a_text_that_is_refused_says_of_which_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WGSL, "wait", lambda dialect: "no such word;")
    with Context(SCACHE=0), pytest.raises(CompileError, match="refused softmax"):
        device().build({"0" * 24: device().rendered(kb.softmax(3, 1003)).text})


@verifies("webgpu.error.told")
def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import wgpu
    monkeypatch.setattr(webgpu, "_found", webgpu._found.__wrapped__)
    assert webgpu.webgpu_problem() == ""
    monkeypatch.setattr(type(wgpu.gpu), "enumerate_adapters_sync", lambda gpu: [])
    assert "finds no adapter" in webgpu.webgpu_problem()
    monkeypatch.setitem(sys.modules, "wgpu", None)
    monkeypatch.setattr(webgpu, "_library", webgpu._library.__wrapped__)
    assert "wgpu" in webgpu.webgpu_problem() and "pip install" in webgpu.webgpu_problem()
    assert "\n" not in webgpu.webgpu_problem()


@verifies("replay.devices.each")
def test_a_capture_is_replayed_on_the_device() -> None:
    with Context(DEVICE="WEBGPU"):
        @TinyJit
        def step(x: Tensor) -> Tensor:
            return (x * 2 + 1).softmax(1).sum(0)

        for seed in range(5):
            values = np.random.default_rng(seed).standard_normal((20, 300)).astype(np.float32)
            e = np.exp(values * 2 + 1)
            found = step(Tensor(values)).numpy()
            assert np.allclose(found, (e / e.sum(1, keepdims=True)).sum(0), rtol=1e-4)
