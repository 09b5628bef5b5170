"""Copies that are made while something else is computed. Chapters: groups.md, render.md, cuda.md.

The emulator keeps a copy back until it is waited for, and spoils its target until then.
"""
from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from conformance import emulation
from conformance.chapters.groups.test_tensor_cores import (
    LAYOUTS,
    MEMORY,
    by_hand,
    close,
    given,
    launched,
    needs_emulator,
    nvidia_missing,
    product,
    sources,
)
from conformance.emulation import nvrtc
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, param, store
from conformance.trace import verifies
from impl import symbolic
from impl.blocking import Chunk, Pack
from impl.dialects import CUDA
from impl.dtypes import DType, dtypes
from impl.groups import Inner, Pipeline, Spread, lane_steps
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits, Early, verify_kernel
from impl.kernel.analysis import Analysis
from impl.kernel.fragments import UNITS
from impl.render import render
from impl.searching import optimize, taken, with_steps
from impl.steps import StepError, Upcast, apply_steps

UNIT = UNITS[0]


def limits(asynchronous: bool = True, memory: int = MEMORY, units: tuple[str, ...] = (UNIT.name,)
           ) -> DeviceLimits:
    return DeviceLimits(name="CUDA", lanes=256, lockstep=32, local_memory=memory,
                        asynchronous=asynchronous, units=units)


def block_loop(ast: UOp) -> int:
    return next(i for i, r in enumerate(Analysis(ast).ranges) if r.arg[1] is RangeKind.BLOCK)


def early(ast: UOp, amount: int) -> UOp:
    """The kernel with so many copies in its BLOCK loop."""
    made = apply_steps(ast, [Pipeline(block_loop(ast), amount)])
    verify_kernel(made)
    return made


def on_reference(ast: UOp, size: int, *operands: np.ndarray) -> np.ndarray:
    out = np.zeros(size, operands[0].dtype)
    kb.run(ast, out, *operands, device="REFERENCE")
    return out


def emulated(asts: list[UOp], memories: list[np.ndarray], architecture: int = 80,
             sanitize: bool = False) -> list[np.ndarray]:
    """What each kernel stores, in all orders of the lanes."""
    text, called = sources([(ast, lambda: CUDA(architecture)) for ast in asts])
    module, found = emulation.compile(text, "cuda", sanitize=sanitize), []
    for ast, (name, source) in zip(asts, called, strict=True):
        given_ = [np.zeros_like(memories[0]), *memories[1:]]
        arguments = [given_[at] for at in source.parameters]
        if sanitize:
            module.launch(name, launched(ast), source.lanes, 0, arguments, "reversed")
        else:
            module.launch_in_orders(name, launched(ast), source.lanes, 0, arguments)
        found.append(given_[0])
    return found


def off_by_one(memory: np.ndarray) -> np.ndarray:
    """The same elements, where no wide access may begin."""
    room = np.zeros(memory.size + 9, memory.dtype)
    first = next(i for i in range(1, 9) if (room.ctypes.data + i * memory.itemsize) % 16)
    moved = room[first:first + memory.size]
    moved[:] = memory.reshape(-1)
    return moved


# ---------------------------------------------------------------- the step

@verifies("steps.value.equal")
@verifies("groups.pipeline.legal")
def test_copies_made_early_change_no_bit() -> None:
    sizes = (33, 45, 77)
    for turned, amount in itertools.product(LAYOUTS, (2, 3, 5)):
        ast = by_hand(product(*sizes, dtypes.float16, turned), 0, (32, 32), 16, 2, 1)
        operands, _ = given(*sizes, dtypes.float16, turned)
        made = early(ast, amount)
        found, right = (on_reference(each, 33 * 45, *operands) for each in (made, ast))
        np.testing.assert_array_equal(found, right)
        ahead = [s for s in made.src if isinstance(s.arg, Early)]
        assert len(ahead) == 4 and {s.arg.iterations for s in ahead} == {amount - 1}


def refused(ast: UOp, axis: int, amount: int) -> str:
    with pytest.raises(StepError) as caught:
        apply_steps(ast, [Pipeline(axis, amount)])
    return str(caught.value)


@verifies("groups.pipeline.legal")
@verifies("steps.legal.refused")
def test_what_cannot_be_made_early_is_refused() -> None:
    ast = by_hand(product(64, 64, 64, dtypes.float16), 0, (32, 32), 16)
    axis = block_loop(ast)
    for amount, word in ((1, "1 copies for 4"), (5, "5 copies for 4"), (0, "0 copies")):
        assert word in refused(ast, axis, amount)
    assert "is a GLOBAL loop" in refused(ast, 0, 2)
    once = early(ast, 2)
    assert "early already" in refused(once, block_loop(once), 2)
    long = by_hand(product(64, 64, 256, dtypes.float16), 0, (32, 32), 16)
    assert "at most 8" in refused(long, block_loop(long), 9)


def pieces(stored_at: str = "", read_after: bool = False, reads_stored: bool = False,
           gated: bool = False) -> UOp:
    """out[8 b + i] = in[8 b + 7 - i], by way of a LOCAL; or something that is like that."""
    block, i, j = (new_range(n, kind) for n, kind in (
        (5, RangeKind.BLOCK), (8, RangeKind.LOOP), (8, RangeKind.LOOP)))
    size = 64
    local = UOp(Ops.LOCAL, FLOAT, (), (0, size))

    def at(index: UOp, valid: UOp = TRUE) -> UOp:
        return UOp(Ops.INDEX, FLOAT, (local, index, valid))

    source = param(0 if reads_stored else 1)
    place = flat((block, 8), (i, 1)) if stored_at == "block" else i
    valid = kb.apply(Ops.CMPLT, i, kb.number(dtypes.index, 5), dtype=dtypes.bool) if gated else TRUE
    fetched = UOp(Ops.STORE, FLOAT, (at(place, valid), load(source, flat((block, 8), (i, 1))),
                                     block, i))
    turned = kb.apply(Ops.SUB, kb.number(dtypes.index, 7), j, dtype=dtypes.index)
    stores = [fetched, store(param(0), flat((block, 8), (j, 1)),
                             UOp(Ops.LOAD, FLOAT, (at(turned),)), block, j)]
    if read_after:
        stores.append(store(param(2), j, UOp(Ops.LOAD, FLOAT, (at(turned),)), j))
    return kb.kernel(*stores, name="pieces")


@verifies("groups.pipeline.legal")
def test_only_copies_that_nobody_else_needs_are_made_early() -> None:
    wrong: list[dict[str, Any]] = [{"stored_at": "block"}, {"read_after": True},
                                   {"reads_stored": True}, {"gated": True}]
    for kind in wrong:
        ast = pieces(**kind)
        assert "no stage of the loop copies" in refused(ast, block_loop(ast), 2), kind
    given_ = np.arange(40, dtype=np.float32)
    for amount in (2, 3, 4):
        made = early(pieces(), amount)
        for device in ("REFERENCE", "CPU"):
            out = np.zeros(40, np.float32)
            kb.run(with_steps(made, ()), out, given_, device=device)
            np.testing.assert_array_equal(out, given_.reshape(5, 8)[:, ::-1].reshape(-1))


def looked_up() -> UOp:
    """out[8 b + i] = in[places[8 b + i]]: places are copied, and elements at them, which are read
    at places of their own.
    """
    block, i, j, k = (new_range(n, kind) for n, kind in (
        (5, RangeKind.BLOCK), *((8, RangeKind.LOOP),) * 3))

    def place(at: UOp) -> UOp:
        found = load(param(2, dtypes.int32), flat((block, 8), (at, 1)))
        return kb.apply(Ops.CAST, found, dtype=dtypes.index)

    elements, back = kb.local(0, 8), kb.local(1, 8, dtypes.int32)
    turned = load(param(3, dtypes.int32), flat((block, 8), (j, 1)))
    there = kb.apply(Ops.CAST, load(back, k), dtype=dtypes.index)
    return kb.kernel(store(elements, i, load(param(1), place(i)), block, i),
                     store(back, j, turned, block, j),
                     store(param(0), flat((block, 8), (k, 1)), load(elements, there), block, k),
                     name="looked_up")


@verifies("steps.value.equal")
def test_addresses_that_are_loaded_are_those_of_their_iteration() -> None:
    draw = np.random.default_rng(3)
    places = draw.permutation(40).astype(np.int32)
    back = np.concatenate([draw.permutation(8) for _ in range(5)]).astype(np.int32)
    given_ = np.arange(40, dtype=np.float32)
    right = given_[places.reshape(5, 8)[np.arange(5)[:, None], back.reshape(5, 8)]].reshape(-1)
    for amount, device in itertools.product((2, 3, 4), ("REFERENCE", "CPU")):
        out = np.zeros(40, np.float32)
        kb.run(with_steps(early(looked_up(), amount), ()), out, given_, places, back,
               device=device)
        np.testing.assert_array_equal(out, right)


@verifies("groups.units.chosen")
def test_copies_are_made_early_where_a_device_copies_by_itself() -> None:
    for sizes, copies in (((4096, 4096, 512), 2), ((1024, 1024, 512), 3), ((256, 256, 512), 3),
                          ((256, 256, 96), 3), ((256, 256, 32), 2), ((256, 256, 16), 1)):
        steps = [step for step, _ in lane_steps(product(*sizes, dtypes.float16), limits())]
        found = [step.amount for step in steps if isinstance(step, Pipeline)]
        assert found == [copies][:copies - 1], (sizes, steps)
    for few in (limits(False), limits(memory=9 << 10)):
        ast = product(1024, 1024, 512, dtypes.float16)
        assert not any(isinstance(step, Pipeline) for step, _ in lane_steps(ast, few))
    names = [step.name for step, _ in lane_steps(product(256, 256, 256, FLOAT), limits(units=()))]
    assert any(name.startswith("PIPELINE") for name in names), names


# ---------------------------------------------------------------- where lanes wait

def order_of(text: str) -> str:
    """What a kernel does in its loop: c(opy), b(undle), w(ait), s(ynchronise), m(ultiply)."""
    words = {"c": r"ahead_\w+\(m", "b": r"commit_group", "w": r"wait_group",
             "s": r"__syncthreads\(", "m": r" take_\w+\(f", "(": r"for \(int i"}
    body = text[text.index('extern "C"'):]
    found = sorted((match.start(), letter) for letter, word in words.items()
                   for match in re.finditer(word, body))
    return re.sub(r"(.)\1+", r"\1", "".join(letter for _, letter in found))


@verifies("lowering.wait.lanes")
@verifies("render.copy.ahead")
def test_each_lane_waits_once_in_an_iteration() -> None:
    ast = by_hand(product(64, 64, 128, dtypes.float16), 0, (32, 32), 16)
    for amount, order in ((2, "cb(wscbm"), (3, "(cb(wscbm"), (4, "(cb(wscbm")):
        text = render(early(ast, amount), CUDA()).text
        assert order_of(text) == order
        assert f"wait_group {amount - 2};" in text and "cp.async.cg" in text


@pytest.mark.slow
@needs_emulator
@verifies("lowering.wait.lanes")
@verifies("render.copy.ahead")
@verifies("steps.value.equal")
def test_products_whose_operands_are_copied_early() -> None:
    """Whole and odd sizes, all layouts, any number of copies; in each order of the lanes."""
    for sizes in ((64, 64, 80), (45, 70, 37)):
        for turned in LAYOUTS if sizes[0] == 64 else LAYOUTS[:1]:
            ast = by_hand(product(*sizes, dtypes.float16, turned), 0, (32, 32), 16)
            operands, right = given(*sizes, dtypes.float16, turned)
            made = [early(ast, amount) for amount in (2, 3)]
            size = np.zeros(sizes[0] * sizes[1], np.float16)
            plain, *found = emulated([ast, *made], [size, *operands])
            for each in found:
                np.testing.assert_array_equal(each, plain)
            close(plain, right, dtypes.float16, UNIT, sizes[2])


@pytest.mark.slow
@needs_emulator
@verifies("render.copy.ahead")
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, FLOAT],
                         ids=lambda dtype: dtype.name)
def test_copies_of_memory_that_begins_anywhere(dtype: DType) -> None:
    sizes, place = (40, 33, 48), [unit.dtype for unit in UNITS].index(dtype)
    ast = early(by_hand(product(*sizes, dtype), place, (32, 32), 16), 3)
    operands, right = given(*sizes, dtype, (False, False))
    memories = [np.zeros(40 * 33, operands[0].dtype), *map(off_by_one, operands)]
    found, = emulated([ast], memories, sanitize=True)
    close(found, right, dtype, UNITS[place], sizes[2])


@needs_emulator
@verifies("lowering.wait.lanes")
def test_what_is_computed_on_the_way_is_stored_early_by_the_lanes() -> None:
    def before(x: UOp) -> UOp:
        return kb.apply(Ops.ADD, x, kb.number(x.dtype, 1))

    sizes = (45, 64, 52)
    ast = early(by_hand(product(*sizes, dtypes.float16, before=before), 0, (32, 32), 16), 3)
    operands, _ = given(*sizes, dtypes.float16, (False, False))
    found, = emulated([ast], [np.zeros(45 * 64, np.float16), *operands])
    left = (operands[0] + np.float16(1)).astype(np.float64)
    close(found, left @ operands[1].astype(np.float64), dtypes.float16, UNIT, sizes[2])
    assert order_of(render(ast, CUDA()).text) == "(cb(wscbm"  # the other operand is copied


@needs_emulator
@verifies("groups.units.chosen")
@verifies("render.copy.ahead")
def test_ordinary_products_have_their_operands_copied_early() -> None:
    sizes = (70, 64, 48)
    for turned in LAYOUTS:
        ast = product(*sizes, FLOAT, turned)
        made = taken(ast, lane_steps(ast, limits(units=())))
        assert made.arg.steps[-1].startswith("PIPELINE")
        assert "cp.async" in render(made, CUDA()).text
        operands, right = given(*sizes, FLOAT, turned)
        found, = emulated([made], [np.zeros(70 * 64, np.float32), *operands])
        close(found, right, FLOAT, UNITS[5], sizes[2])


@needs_emulator
@verifies("cuda.text.legal")
@verifies("lowering.wait.lanes")
def test_an_older_gpu_makes_its_copies_itself() -> None:
    sizes = (64, 64, 80)
    ast = early(by_hand(product(*sizes, dtypes.float16), 2, (32, 32), 16), 3)
    operands, right = given(*sizes, dtypes.float16, (False, False))
    text = render(ast, CUDA(75)).text
    assert "cp.async" not in text and "ahead" not in text
    found, = emulated([ast], [np.zeros(64 * 64, np.float16), *operands], 75)
    close(found, right, dtypes.float16, UNITS[2], sizes[2])


@pytest.mark.slow
@pytest.mark.skipif(bool(nvidia_missing()), reason=nvidia_missing())
@verifies("cuda.text.legal")
def test_texts_with_early_copies_compile() -> None:
    from impl.cuda.compiler import OPTIONS
    for architecture in nvrtc.ARCHITECTURES:
        unit = 0 if architecture >= 80 else 2
        cases: list[tuple[UOp, Any]] = []
        for turned, amount in zip(LAYOUTS, itertools.cycle((2, 3))):
            ast = by_hand(product(128, 128, 128, dtypes.float16, turned), unit, (64, 64), 32, 2, 2)
            cases.append((early(ast, amount), lambda: CUDA(architecture)))  # noqa: B023
        ordinary = product(100, 64, 48, FLOAT)
        cases.append((taken(ordinary, lane_steps(ordinary, limits(units=()))),
                      lambda: CUDA(architecture)))  # noqa: B023
        text = sources(cases)[0]
        assert ("cp.async" in text) is (architecture >= 80)
        nvrtc.check(text, (architecture,), OPTIONS)


@verifies("steps.value.equal")
def test_later_steps_leave_early_copies_what_they_are() -> None:
    ast = early(by_hand(product(64, 64, 64, dtypes.float16), 0, (32, 32), 16), 2)
    operands, _ = given(64, 64, 64, dtypes.float16, (False, False))
    made = apply_steps(ast, [Upcast(0, 2)])
    assert sum(isinstance(s.arg, Early) for s in made.src) == 4
    found, right = (on_reference(each, 64 * 64, *operands) for each in (made, ast))
    np.testing.assert_array_equal(found, right)


# ---------------------------------------------------------------- banks

def read_at_once(ast: UOp, buffer: UOp) -> list[int]:
    """Where the first eight lanes read a LOCAL in the stage that has most loads of it."""
    stage = next(s for s in ast.src if any(n.op is Ops.REDUCE for n in s.toposort()))
    shared = [r for r in stage.src[2:] if r.arg[1] is RangeKind.LANE]
    index = next(n.src[0].src[1] for n in stage.toposort()
                 if n.op is Ops.LOAD and n.src[0].src[0] is buffer)
    others = dict.fromkeys((r for r in index.toposort() if r.op is Ops.RANGE), 0)
    sizes = [r.src[0].arg for r in shared]
    lanes = list(itertools.product(*map(range, sizes)))[:8]
    return [symbolic.evaluate(index, others | dict(zip(shared, at, strict=True))) for at in lanes]


@verifies("groups.memory.lanes")
def test_lanes_read_lines_of_an_ordinary_product_from_different_banks() -> None:
    for sizes, turned in itertools.product(((64, 64, 48), (512, 512, 512)), LAYOUTS):
        ast = product(*sizes, FLOAT, turned)
        made = taken(ast, lane_steps(ast, limits(False, units=())))
        assert sum(name.startswith("SPREAD") for name in made.arg.steps) == 2
        copies = dict.fromkeys(s.src[0].src[0] for s in made.src
                               if s.src[0].src[0].op is Ops.LOCAL and s.src[1].op is Ops.LOAD)
        assert len(copies) == 2
        for buffer in copies:
            places = dict.fromkeys(read_at_once(made, buffer))
            assert all(place % 4 == 0 for place in places)
            assert len({place // 4 % 8 for place in places}) == len(places), (sizes, turned)


@verifies("steps.value.equal")
@verifies("steps.legal.refused")
def test_longer_lines_have_the_same_elements() -> None:
    ast = product(24, 32, 40, FLOAT)
    blocks = apply_steps(ast, [Inner(1, 16), Inner(0, 8), Upcast(3, 4), Upcast(2, 4), Chunk(6, 8)])
    inner = next(i for i, r in enumerate(Analysis(blocks).ranges) if r.arg[1] is RangeKind.REDUCE)
    lying, _ = given(24, 32, 40, FLOAT, (False, False))
    # Whole numbers: NumPy's product adds in another order for another layout, on some processors.
    operands = [np.rint(8 * each) for each in lying]
    found = [on_reference(apply_steps(blocks, [kind(inner, factor)]), 24 * 32, *operands)
             for kind, factor in itertools.product((Pack, Spread), (0, 1))]
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])
    with pytest.raises(StepError, match="work-groups"):
        optimize(with_steps(ast, ["SPREAD(2,0)"]), DeviceLimits())
