"""Operations on vectors give what they give on numbers, in any width. Chapter: spec/dialects.md."""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import flat, load, param, reduce, store
from conformance.trace import verifies
from impl import Context, Tensor, symbolic
from impl.cpu import CPUProgram
from impl.cpu.disassembly import machine_code
from impl.cpu.machine import own_features
from impl.device import Device
from impl.dialects import C
from impl.dtypes import ALL, DType, dtypes
from impl.functions.definitions import definition
from impl.functions.types import mask_of
from impl.ir import COMPARISONS, TRUE, Ops, RangeKind, UOp, new_range
from impl.render import render
from impl.searching import with_steps
from impl.steps import Upcast, apply_steps

pytestmark = pytest.mark.device("CPU")

FLOATS = [d for d in ALL if d.kind == "f"]
INTEGERS = [d for d in ALL if d.kind in "iu"]
COUNT = 64 * 64
WIDTHS = (4, 16, 64)
_UNARY = kb.FLOAT_FUNCTIONS
_BINARY = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM, Ops.POW)
_WHOLE = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR)


def operands(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special values."""
    one, two = kb.special(dtype), kb.special(dtype, seed=1)
    return np.repeat(one, len(two)), np.tile(two, len(one))


def same(one: np.ndarray, two: np.ndarray, dtype: DType) -> bool:
    """Equal bits, any NaN being as good as another."""
    a, b = kb.to_host(one, dtype), kb.to_host(two, dtype)
    nan = (a != a) & (b != b)
    plain, other = one.view(np.uint8).reshape(len(one), -1), two.view(np.uint8)
    return bool((nan | (plain == other.reshape(len(two), -1)).all(1)).all())


def vector(ast: UOp, width: int) -> UOp:
    """The kernel with its last loop cut into vectors."""
    return apply_steps(ast, [Upcast(axis=len(ast.arg.prefix) - 1, amount=width)])


class Checks:
    """Kernels that store the same with vectors of any width as without; compiled all at once."""

    def __init__(self) -> None:
        self.cases: list[tuple[UOp, UOp, np.ndarray, Sequence[np.ndarray], DType, int]] = []

    def add(self, ast: UOp, out: np.ndarray, given: Sequence[np.ndarray], dtype: DType,
            widths: Sequence[int] = WIDTHS) -> None:
        """A kernel to be looked at."""
        for width in widths:
            self.cases.append((ast, vector(ast, width), out, given, dtype, width))

    def run(self) -> None:
        """Compile and compare all."""
        with Context(NOOPT=1):
            Device["CPU"].compile([ast for case in self.cases for ast in case[:2]])
            for plain, changed, out, given, dtype, width in self.cases:
                wanted, found = out.copy(), out.copy()
                assert f"x{width} " in render(changed, C()).body
                kb.run(plain, wanted, *given)
                kb.run(changed, found, *given)
                assert same(found, wanted, dtype), (width, plain.src[0].src[1])


@pytest.fixture
def checks() -> Iterator[Checks]:
    """What a test adds is compared at its end."""
    made = Checks()
    yield made
    assert made.cases
    made.run()


def elementwise(value: UOp, i: UOp) -> UOp:
    return kb.kernel(store(param(0, value.dtype), i, value), prefix=(i,))


def empty(dtype: DType, count: int = COUNT) -> np.ndarray:
    return kb.from_host(np.zeros(count), dtype)


@pytest.mark.slow
@verifies("dialects.vector.equal")
@pytest.mark.parametrize("op", [*_UNARY, *_BINARY, Ops.DIV], ids=lambda op: op.name)
def test_arithmetic_of_floats(checks: Checks, op: Ops) -> None:
    for dtype in FLOATS:
        i, (one, two) = new_range(COUNT, RangeKind.GLOBAL), operands(dtype)
        given = [load(param(1, dtype), i)]
        if op not in _UNARY:
            given.append(load(param(2, dtype), i))
        value = kb.apply(op, *given)
        checks.add(elementwise(value, i), empty(dtype), [one, two][:len(given)], dtype,
              (16,) if dtype is not dtypes.float32 else WIDTHS)


@pytest.mark.slow
@verifies("dialects.vector.equal")
@pytest.mark.parametrize("dtype, op", [
    (dtype, op) for dtype in (*INTEGERS, dtypes.bool) for op in (*_BINARY, *_WHOLE, Ops.NEG)
    if (dtype, op) != (dtypes.bool, Ops.FLOORMOD)],  # a remainder of bools is false
    ids=lambda each: each.name)
def test_arithmetic_of_integers(checks: Checks, dtype: DType, op: Ops) -> None:
    i, (one, two) = new_range(COUNT, RangeKind.GLOBAL), operands(dtype)
    a, b = load(param(1, dtype), i), load(param(2, dtype), i)
    given = [a] if op is Ops.NEG else [a, b]
    checks.add(elementwise(kb.apply(op, *given), i), empty(dtype), [one, two][:len(given)], dtype,
               (16,))


@verifies("dialects.vector.equal")
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, -1, -4, -5, 0])
def test_quotients_by_a_number(checks: Checks, divisor: int) -> None:
    for dtype in (dtypes.int32, dtypes.int8, dtypes.int64, dtypes.uint32):
        i, one = new_range(64, RangeKind.GLOBAL), kb.special(dtype)
        number = kb.number(dtype, divisor if dtype.kind == "i" else abs(divisor))
        for op in (Ops.FLOORDIV, Ops.FLOORMOD):
            value = kb.apply(op, load(param(1, dtype), i), number)
            checks.add(elementwise(value, i), empty(dtype, 64), [one], dtype, (16,))


@verifies("dialects.vector.equal")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_comparisons_and_choices(checks: Checks, dtype: DType) -> None:
    """As bools in memory, and as masks of what is chosen, in types of all widths."""
    i, (one, two) = new_range(COUNT, RangeKind.GLOBAL), operands(dtype)
    a, b = load(param(1, dtype), i), load(param(2, dtype), i)
    truths = {op: kb.apply(op, a, b) for op in COMPARISONS}
    for truth in truths.values():
        checks.add(elementwise(truth, i), empty(dtypes.bool), [one, two], dtypes.bool, (16,))
    less, equal = truths[Ops.CMPLT], truths[Ops.CMPEQ]
    checks.add(elementwise(kb.apply(Ops.WHERE, less, a, b), i), empty(dtype), [one, two], dtype)
    either = kb.apply(Ops.WHERE, kb.apply(Ops.OR, less, equal), b, a)
    checks.add(elementwise(either, i), empty(dtype),
          [one, two], dtype, (16,))
    for wide in (dtypes.int8, dtypes.float64, dtypes.float16):
        chosen = kb.apply(Ops.WHERE, less, kb.number(wide, 3), kb.number(wide, 5))
        checks.add(elementwise(chosen, i), empty(wide), [one, two], wide, (16,))


@pytest.mark.slow
@verifies("dialects.vector.equal")
@pytest.mark.parametrize("target", ALL, ids=lambda d: d.name)
def test_casts(checks: Checks, target: DType) -> None:
    for source in ALL:
        i, given = new_range(64, RangeKind.GLOBAL), kb.special(source)
        value = kb.apply(Ops.CAST, load(param(1, source), i), dtype=target)
        checks.add(elementwise(value, i), empty(target, 64), [given], target, (16, 32))
        if source.kind == "f":  # what was an integer is one
            back = kb.apply(Ops.CAST, value, dtype=source)
            checks.add(elementwise(back, i), empty(source, 64), [given], source, (16,))


@verifies("dialects.vector.equal")
@pytest.mark.parametrize("target", [d for d in ALL if d is not dtypes.bool],
                         ids=lambda d: d.name)
def test_bits_of_other_types(checks: Checks, target: DType) -> None:
    for source in ALL:
        if source.itemsize != target.itemsize:
            continue
        i, given = new_range(64, RangeKind.GLOBAL), kb.special(source)
        value = kb.apply(Ops.BITCAST, load(param(1, source), i), dtype=target)
        checks.add(elementwise(value, i), empty(target, 64), [given], target, (16,))


@pytest.mark.slow
@verifies("dialects.vector.equal")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_loads_of_all_sorts(checks: Checks, dtype: DType) -> None:
    """Neighbours, every third element, backwards, by an index; each with a gate and without."""
    given = np.resize(kb.special(dtype), 4 * 64)
    i = new_range(64, RangeKind.GLOBAL)
    table = np.random.default_rng(0).integers(0, 200, 64).astype(np.int32)
    found = kb.apply(Ops.CAST, load(param(2, dtypes.int32), i), dtype=dtypes.index)
    turned = UOp(Ops.FLOORMOD, dtypes.index, (symbolic.mul(i, 7), kb.number(dtypes.index, 64)))
    inside = symbolic.logical_and(symbolic.less_than(2, i), symbolic.less_than(i, 50))
    for place in (i, symbolic.mul(i, 3), symbolic.sub(63, i), found, turned):
        for value in (load(param(1, dtype), place), load(param(1, dtype), place, inside)):
            arrays = [given, table] if place is found else [given]
            checks.add(elementwise(value, i), empty(dtype, 64), arrays, dtype, (8, 16))


@verifies("dialects.vector.equal")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_stores_of_all_sorts(checks: Checks, dtype: DType) -> None:
    """To neighbours where a condition allows it; what is not stored stays as it was."""
    i = new_range(64, RangeKind.GLOBAL)
    given, before = kb.special(dtype), kb.from_host(np.ones(256), dtype)
    inside = symbolic.logical_and(symbolic.less_than(2, i), symbolic.less_than(i, 50))
    for place in (i, symbolic.add(i, 5)):
        ast = kb.kernel(store(param(0, dtype), place, load(param(1, dtype), i), valid=inside),
                        prefix=(i,))
        checks.add(ast, before, [given], dtype, (8, 16))
    two = kb.kernel(store(param(0, dtype), i, load(param(1, dtype), i)),
                    store(param(0, dtype), symbolic.add(symbolic.mul(i, 2), 64),
                          load(param(1, dtype), i)), prefix=(i,))
    checks.add(two, before, [given], dtype, (8, 16))


@verifies("render.mask.places")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_places_are_compared_with_bounds_near_and_far(checks: Checks, dtype: DType) -> None:
    """In a loop of vectors, with the place on either side, and bounds that no byte holds."""
    row, i = new_range(300, RangeKind.GLOBAL), new_range(256, RangeKind.GLOBAL)
    given = np.resize(kb.special(dtype), 256)
    for op in sorted(COMPARISONS, key=lambda each: each.name):
        for apart, first in ((3, -400), (1 << 33, -(1 << 34))):
            bound = symbolic.add(symbolic.mul(row, apart), first)
            sides = [symbolic.add(i, 3), bound]
            for inside in (kb.apply(op, *sides), kb.apply(op, *sides[::-1])):
                value = load(param(1, dtype), i, inside)
                ast = kb.kernel(store(param(0, dtype), flat((row, 256), (i, 1)), value),
                                prefix=(row, i))
                checks.add(ast, empty(dtype, 300 * 256), [given], dtype, (64 // dtype.itemsize,))


@verifies("render.mask.places")
def test_a_mask_of_bytes_is_compared_as_bytes() -> None:
    """One register, where the places as indices take four; a wider choice keeps the indices."""
    i = new_range(256, RangeKind.GLOBAL)
    inside = symbolic.less_than(symbolic.add(i, 3), 100)
    for dtype, kind in ((dtypes.int8, "i8x64"), (dtypes.bfloat16, "i16x64"),
                        (dtypes.float32, "i32x64")):
        text = render(vector(elementwise(load(param(1, dtype), i, inside), i), 64), C()).body
        assert set(re.findall(r"iota_(\w+)", text)) == {kind}, text


@verifies("dialects.vector.nowhere")
@pytest.mark.parametrize("kind", ["f32x16", "f64x8", "i8x64", "u16x16", "i64x2", "f32x4"])
def test_a_mask_of_nothing_asks_for_no_memory(kind: str) -> None:
    """Whatever the processor, and before anything else."""
    for name, given in (("masked", "return ("), ("put", "return;")):
        first = definition(f"{name}_{kind}")[0].splitlines()[1]
        assert first.startswith(f"  if (!any_{mask_of(kind)}(m)) {given}"), first


@verifies("dialects.vector.nowhere")
@pytest.mark.skipif("avx2" not in own_features(), reason="another processor")
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "native"])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.float16, dtypes.float32, dtypes.int64],
                         ids=lambda d: d.name)
def test_one_element_that_a_mask_selects_is_loaded_and_stored(dtype: DType, target: str) -> None:
    """The first, the last or another, and each of 64 bytes."""
    count = 64 // dtype.itemsize
    row, i = new_range(count, RangeKind.GLOBAL), new_range(count, RangeKind.GLOBAL)
    given = kb.from_host(np.arange(1, count + 1), dtype)
    inside, index = kb.apply(Ops.CMPEQ, i, row), flat((row, count), (i, 1))
    taken = store(param(0, dtype), index, load(param(1, dtype), i, inside))
    put = store(param(2, dtype), index, load(param(1, dtype), i), valid=inside)
    ast = vector(kb.kernel(taken, put, prefix=(row, i)), count)
    out, written = empty(dtype, count * count), empty(dtype, count * count)
    with Context(NOOPT=1, CPU_TARGET=target):
        kb.run(ast, out, given, written)
    wanted = np.diag(np.arange(1, count + 1)).ravel()
    for found in (out, written):
        np.testing.assert_array_equal(kb.to_host(found, dtype), wanted)


@verifies("render.index.wraps")
@pytest.mark.parametrize("kind", [dtypes.int32, dtypes.int64], ids=str)
def test_a_place_that_is_read_has_32_bits_where_it_is_valid(kind: DType) -> None:
    """Any number may be read, far from all places too; what is accessed lies in a small table."""
    row, i = new_range(3, RangeKind.GLOBAL), new_range(64, RangeKind.GLOBAL)
    table = np.arange(300, dtype=np.float32) + 1
    info = np.iinfo(kind.numpy)
    places = np.random.default_rng(0).integers(-20, 120, 64).astype(kind.numpy)
    places[[0, 9, 30]] = info.min, info.max, info.max // 4
    read = kb.apply(Ops.CAST, load(param(2, kind), i), dtype=dtypes.index)
    inside = symbolic.logical_and(symbolic.less_equal(0, read), symbolic.less_than(read, 100))
    for apart, kinds in ((100, {"i32x16"}), (1 << 31, {"i64x16"})):
        place = flat((row, apart), (read, 1))
        ast = vector(kb.kernel(store(param(0), flat((row, 64), (i, 1)),
                                     load(param(1), place, inside)), prefix=(row, i)), 16)
        body = render(ast, C()).body
        assert set(re.findall(r"gatherm_(\w+)_f32x16\(", body)) == kinds, body
        if apart > 100:
            continue  # an address that needs 64 bits has them
        out, wanted = np.zeros(3 * 64, np.float32), np.zeros((3, 64), np.float32)
        valid = (places >= 0) & (places < 100)
        for one in range(3):
            wanted[one, valid] = table[100 * one + places[valid]]
        with Context(NOOPT=1):
            kb.run(ast, out, table, places)
        assert (out.reshape(3, 64) == wanted).all()


@verifies("render.index.wraps")
def test_a_place_that_is_also_a_number_has_all_its_bits() -> None:
    """What is stored as a value, or compared, is no address."""
    i = new_range(64, RangeKind.GLOBAL)
    places = np.resize(np.array([3, -2, 1 << 20, 5, (1 << 31) - 1], np.int32), 64)
    read = kb.apply(Ops.CAST, load(param(2, dtypes.int32), i), dtype=dtypes.index)
    place = symbolic.mul(read, 7)
    inside = symbolic.logical_and(symbolic.less_equal(0, read), symbolic.less_than(read, 9))
    value = kb.apply(Ops.CAST, place, dtype=dtypes.int64)
    ast = vector(kb.kernel(store(param(0), i, load(param(1), place, inside)),
                           store(param(3, dtypes.int64), i, value), prefix=(i,)), 8)
    out, numbers = np.zeros(64, np.float32), np.zeros(64, np.int64)
    with Context(NOOPT=1):
        kb.run(ast, out, np.arange(70, dtype=np.float32), places, numbers)
    assert (numbers == places.astype(np.int64) * 7).all()
    valid = (places >= 0) & (places < 9)
    assert (out == np.where(valid, places * 7, 0)).all()


@verifies("dialects.vector.equal")
@pytest.mark.parametrize("far", [1, 1 << 33])
def test_indices_as_values(checks: Checks, far: int) -> None:
    """Also where they need more than 32 bits."""
    i = new_range(64, RangeKind.GLOBAL)
    index = symbolic.add(symbolic.mul(i, far), 5)
    half = UOp(Ops.FLOORDIV, dtypes.index, (index, kb.number(dtypes.index, 3)))
    part = UOp(Ops.FLOORMOD, dtypes.index, (index, kb.number(dtypes.index, 5)))
    for dtype in (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.uint8):
        for value in (index, half, part):
            checks.add(elementwise(kb.apply(Ops.CAST, value, dtype=dtype), i), empty(dtype, 64), [],
                  dtype, (8, 16))
        chosen = kb.apply(Ops.WHERE, symbolic.less_than(index, 30 * far), kb.number(dtype, 2),
                          kb.number(dtype, 7))
        checks.add(elementwise(chosen, i), empty(dtype, 64), [], dtype, (8, 16))


@pytest.mark.slow
@verifies("dialects.vector.equal")
@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM], ids=lambda o: o.name)
def test_reductions_of_vectors(checks: Checks, op: Ops, dtype: DType) -> None:
    """Each column of a matrix, several columns at once; whole numbers, so that no order counts."""
    i, k = new_range(64, RangeKind.GLOBAL), new_range(5, RangeKind.REDUCE)
    value = reduce(op, load(param(1, dtype), flat((k, 64), (i, 1))), k)
    whole = np.random.default_rng(0).integers(0, 3, 5 * 64)
    given = kb.from_host(whole, dtype)
    checks.add(elementwise(value, i), empty(dtype, 64), [given], dtype, (8, 16))


@verifies("dialects.vector.memory+2")
def test_no_element_is_computed_by_itself() -> None:
    """What a vectorised kernel computes is one operation, whatever the dtype."""
    for dtype in (dtypes.float32, dtypes.int32, dtypes.int8, dtypes.bfloat16, dtypes.bool):
        i = new_range(1024, RangeKind.GLOBAL)
        a, b = load(param(1, dtype), i), load(param(2, dtype), i)
        value = kb.apply(Ops.WHERE, kb.apply(Ops.CMPLT, a, b), kb.apply(Ops.MUL, a, b), b)
        body = render(vector(elementwise(value, i), 16), C()).body
        assert not re.search(r"v\d+\[|\bl\b", body), body


@verifies("dialects.vector.memory+2")
@pytest.mark.parametrize(("source", "target", "count"), [
    ("i8x16", "i32x16", 2), ("u8x16", "u32x16", 2), ("i64x16", "i8x16", 3), ("i16x8", "i32x8", 1),
    ("u8x32", "u16x32", 1)])
def test_a_conversion_doubles_or_halves_the_width(source: str, target: str, count: int) -> None:
    """What changes it by more at once is taken apart by a compiler, element by element."""
    text, _ = definition(f"resize_{source}_{target}")
    portable = text.rpartition("#else")[2]
    assert portable.count("__builtin_convertvector") == count, text


@verifies("dialects.vector.memory+2")
@pytest.mark.skipif(not {"avx512f", "avx512bw"} <= own_features(), reason="another processor")
@pytest.mark.parametrize(("source", "target"), [
    (source, target) for source in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
    for target in (dtypes.int32, dtypes.uint32, dtypes.float32)] + [
    (source, target) for source in (dtypes.int32, dtypes.uint32)
    for target in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)])
def test_a_conversion_is_one_instruction(source: DType, target: DType) -> None:
    """For 16 elements; with floats it is two. GCC by itself takes forty."""
    i = new_range(16, RangeKind.GLOBAL)
    value = kb.apply(Ops.CAST, load(param(1, source), i), dtype=target)
    program = Device["CPU"].compile([with_steps(elementwise(value, i), ["UPCAST(0,16)"])])[0]
    assert isinstance(program, CPUProgram)
    listing = machine_code(program.function)
    if "cannot be shown" in listing:
        pytest.skip(listing)
    moves = re.findall(r"\bv(?:p|cvt|ext|ins)\w+", listing)
    assert len(moves) <= 1 + (target.kind == "f"), listing


@verifies("dialects.vector.equal")
@pytest.mark.skipif("avx2" not in own_features(), reason="another processor")
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("count", [8, 16, 32])
def test_whole_numbers_of_another_width_on_other_processors(target: str, count: int) -> None:
    """What has an instruction there is not what has one here."""
    for source in INTEGERS:
        given = kb.special(source)
        i = new_range(given.size, RangeKind.GLOBAL)
        others = [dtype for dtype in INTEGERS if dtype.itemsize != source.itemsize]
        stores = [store(param(place, dtype), i,
                        kb.apply(Ops.CAST, load(param(0, source), i), dtype=dtype))
                  for place, dtype in enumerate(others, 1)]
        made = [np.zeros(given.size, dtype.numpy) for dtype in others]
        with Context(CPU_TARGET=target):
            kb.run(with_steps(kb.kernel(*stores, prefix=(i,)), [f"UPCAST(0,{count})"]),
                   given, *made)
        for dtype, found in zip(others, made, strict=True):
            assert (found == given.astype(dtype.numpy)).all(), (source, dtype)


@verifies("dialects.stream.fence+2")
@verifies("choosing.memory.ahead+2")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64,
                                   np.float16, np.float32, np.float64])
def test_every_type_goes_past_the_caches(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    monkeypatch.setattr("impl.cpu.backend.cached_bytes", lambda: 64)
    with Context(DEVICE="CPU"):
        given = (np.arange(4096) % 100).astype(dtype)
        value = Tensor(given).realize() + 1
        assert any(step.startswith("STREAM") for step in value.schedule()[0].program.steps)
        np.testing.assert_array_equal(value.numpy(), given + np.array(1, dtype))


@pytest.mark.slow
@verifies("dialects.vector.memory+2")
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_squares_are_transposed_in_registers(size: int) -> None:
    """Every type, also those that lie otherwise in memory than in registers."""
    high, wide = 2 * size, 3 * size
    for dtype in ALL:
        given = kb.from_host(np.arange(high * wide) % 13 % (2 if dtype.kind == "b" else 13), dtype)
        i, j = new_range(wide, RangeKind.GLOBAL), new_range(high, RangeKind.GLOBAL)
        value = load(param(1, dtype), flat((j, wide), (i, 1)))
        # The first is a vector along what is stored; the second along what is read, there is more.
        for more in ((), (2, 3)):
            others = [store(param(place, dtype), flat((j, wide), (i, 1)), value) for place in more]
            ast = kb.kernel(store(param(0, dtype), flat((i, high), (j, 1)), value), *others,
                            prefix=(i, j))
            made = apply_steps(ast, [Upcast(0, size), Upcast(1, size)])
            assert "turn_" in render(made, C()).body, dtype
            out, *copies = (np.zeros_like(given) for _ in (0, *more))
            with Context(NOOPT=1):
                kb.run(made, out, given, *copies)
            assert (out.reshape(wide, high) == given.reshape(high, wide).T).all(), dtype
            assert all((copy == given).all() for copy in copies)


@verifies("dialects.vector.memory+2")
@verifies("dialects.vector.within")
@pytest.mark.parametrize(("width", "steps", "chosen"), [
    (4, (2,), ALL), (8, (3, 4), ALL), (16, (2, 3, 7, 8), FLOATS[-2:])])
def test_elements_a_few_apart_are_taken_out_of_whole_vectors(
        width: int, steps: Sequence[int], chosen: Sequence[DType]) -> None:
    """Not a place behind the last element is read, nor one before the first."""
    cases, asts = [(dtype, step) for dtype in chosen for step in steps], list[UOp]()
    for dtype, step in cases:
        i = new_range(2 * width, RangeKind.GLOBAL)
        value = load(param(1, dtype), symbolic.add(flat((i, step)), step % 2))
        asts.append(vector(elementwise(value, i), width))
        text = next((each for each in render(asts[-1], C()).definitions
                     if f" stepped{step}_" in each), "")
        last = (step - 1) * (width - 1)
        assert re.findall(r"\(p \+ (\d+)\)", text) == [
            str(place) for place in (*range(width, last, width), last)], (dtype, step, text)
    with Context(NOOPT=1):
        Device["CPU"].compile(asts)
        for ast, (dtype, step) in zip(asts, cases, strict=True):
            given = kb.from_host(np.arange(2 * width * step + 1) % 13
                                 % (2 if dtype.kind == "b" else 13), dtype)
            out = np.zeros(2 * width, given.dtype)
            kb.run(ast, out, given)
            assert (out == given[step % 2::step][:2 * width]).all(), (dtype, step)


@verifies("dialects.vector.within")
@verifies("kernel.access.gated")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.uint8, dtypes.bool],
                         ids=lambda d: d.name)
def test_elements_a_few_apart_under_a_mask(dtype: DType) -> None:
    """Memory ends behind the last one that is valid; vectors are whole, in part or not valid."""
    for step, valid, width in ((2, 21, 8), (3, 17, 8), (2, 18, 4), (2, 33, 16)):
        i = new_range(48, RangeKind.GLOBAL)
        value = load(param(1, dtype), flat((i, step)), symbolic.less_than(i, valid))
        ast = vector(elementwise(value, i), width)
        assert any(f" steppedm{step}_" in each for each in render(ast, C()).definitions)
        given = kb.from_host(1 + np.arange((valid - 1) * step + 1)
                             % (1 if dtype.kind == "b" else 13), dtype)
        out, wanted = empty(dtype, 48), empty(dtype, 48)
        wanted[:valid] = given[::step]
        with Context(NOOPT=1):
            kb.run(ast, out, given)
        assert (out == wanted).all(), (step, valid, width)


@verifies("dialects.vector.memory+2")
@verifies("dialects.vector.within")
@verifies("kernel.access.gated")
@pytest.mark.parametrize(("dtype", "width"), [
    (dtypes.float32, 16), (dtypes.float32, 8), (dtypes.float64, 4), (dtypes.uint8, 64),
    (dtypes.float16, 16), (dtypes.bool, 8), (dtypes.int64, 8)], ids=str)
def test_elements_from_the_last_to_the_first(dtype: DType, width: int) -> None:
    """Memory begins with the last one that is valid, and ends with the first; nothing is
    gathered where all are valid.
    """
    count = 3 * width
    i = new_range(count, RangeKind.GLOBAL)
    for step in (1, 2, 3):
        if step > width // 2:
            continue
        for valid in (count, count - 3, width + 1, 3, 1):
            place = symbolic.sub((valid - 1) * step, symbolic.mul(i, step))
            inside = symbolic.less_than(i, valid) if valid < count else TRUE
            ast = vector(elementwise(load(param(1, dtype), place, inside), i), width)
            texts = render(ast, C()).definitions
            name = f" back{'m' * (valid < count)}{step}_"
            assert any(name in each for each in texts), (step, valid)
            assert valid < count or not any(" gather" in each for each in texts)
            given = kb.from_host(1 + np.arange((valid - 1) * step + 1)
                                 % (1 if dtype.kind == "b" else 13), dtype)
            out, wanted = empty(dtype, count), empty(dtype, count)
            wanted[:valid] = given[::-step]
            with Context(NOOPT=1):
                kb.run(ast, out, given)
            assert (out == wanted).all(), (step, valid)


@verifies("dialects.vector.memory+2")
def test_copies_turned_by_the_rules_are_as_without_any() -> None:
    """Odd sizes, three axes, two operands of which one is turned, and conditions."""
    for shape in ((37, 53), (16, 16), (5, 33, 40), (3, 64, 17)):
        given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        found = []
        for noopt in (0, 1):
            with Context(NOOPT=noopt):
                x = Tensor(given).realize()
                turned = x.transpose(-1, -2)
                other = Tensor(np.ascontiguousarray(given.swapaxes(-1, -2))).realize()
                found.append([y.numpy() for y in (turned * 2, other + turned, turned.pad(
                    tuple((1, 2) for _ in shape)) + 1, (turned > 5).where(turned, other))])
        for one, two in zip(*found, strict=True):
            assert (one == two).all(), shape


@verifies("dialects.vector.memory+2")
@verifies("kernel.access.gated")
def test_squares_of_which_some_lines_are_not_valid() -> None:
    """Memory ends behind the last line that is valid; the others are zero."""
    given = np.arange(11 * 32, dtype=np.float32) + 1
    i, j = new_range(32, RangeKind.GLOBAL), new_range(16, RangeKind.GLOBAL)
    for condition in (symbolic.less_than(j, 11), symbolic.less_than(i, 20)):
        value = load(param(1), flat((j, 32), (i, 1)), condition if condition.src[0] is j else
                     symbolic.logical_and(condition, symbolic.less_than(j, 11)))
        ast = kb.kernel(store(param(0), flat((i, 16), (j, 1)), value), prefix=(i, j))
        made = apply_steps(ast, [Upcast(0, 16), Upcast(1, 16)])
        out, wanted = np.zeros(512, np.float32), np.zeros((32, 16), np.float32)
        wanted[:, :11] = given.reshape(11, 32).T
        if condition.src[0] is not j:
            wanted[20:] = 0
        with Context(NOOPT=1):
            kb.run(made, out, given)
        assert (out.reshape(32, 16) == wanted).all()
        assert ("turn_" in render(made, C()).body) == (condition.src[0] is j)
