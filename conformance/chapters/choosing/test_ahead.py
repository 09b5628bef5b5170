"""Rows: what is left of them after whole vectors, and the next one. Chapter: spec/choosing.md."""
from __future__ import annotations

import re

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, flat, load, local, param, reduce, store
from conformance.trace import verifies
from impl import Tensor, dtypes
from impl.choosing import hand_steps
from impl.dialects import C
from impl.dtypes import DType
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits
from impl.realize import schedule_document
from impl.render import render
from impl.searching import optimize
from impl.steps import Next, StepError, Upcast, apply_steps

#: Rows of 100 numbers are small beside the second cache; 1,000 of them are not.
WIDE = DeviceLimits(vector_bytes=64, vector_registers=32, second_cache=16 << 10)


def centred(rows: int, columns: int) -> UOp:
    """out[r] = exp(x[r] - max(x[r])), by way of a LOCAL for the maximum."""
    r, k = new_range(rows, RangeKind.GLOBAL), new_range(columns, RangeKind.REDUCE)
    j = new_range(columns, RangeKind.LOOP)
    top = reduce(Ops.MAXIMUM, load(param(1), flat((r, columns), (k, 1))), k)
    shifted = kb.apply(Ops.SUB, load(param(1), flat((r, columns), (j, 1))), load(local(0, 1), 0))
    return kb.kernel(store(local(0, 1), 0, top),
                     store(param(0), flat((r, columns), (j, 1)), kb.apply(Ops.EXP, shifted), j),
                     prefix=(r,))


def names(ast: UOp, limits: DeviceLimits = WIDE) -> list[str]:
    return [step.name for step, _ in hand_steps(ast, limits)]


def values(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(rows * columns).astype(np.float32)


@verifies("choosing.memory.ahead+2")
def test_the_next_row_is_asked_for() -> None:
    assert any(name.startswith("NEXT(") for name in names(centred(1000, 100)))
    assert not any(name.startswith("NEXT(") for name in names(centred(20, 100)))
    assert not any(name.startswith("NEXT(") for name in names(centred(20, 2000)))


@verifies("render.hint.pays+2")
@verifies("steps.value.equal")
def test_each_vector_of_the_next_row_is_asked_for() -> None:
    made = optimize(centred(50, 96), DeviceLimits(vector_bytes=64, vector_registers=32,
                                                  second_cache=4 << 10))
    lines = [line.strip() for line in render(made, C()).body.splitlines()]
    asked = [line for line in lines if line.startswith("__builtin_prefetch(p1 + ")]
    whole = [line for line in lines if "exp_f32x16(" in line]
    assert len(asked) == len(set(asked)) == len(whole) > 0
    assert all(line.endswith(" + 96, 0);") for line in asked)
    given, out = values(50, 96), np.zeros(50 * 96, np.float32)
    kb.run(made, out, given)
    rows = given.reshape(50, 96)
    np.testing.assert_allclose(out.reshape(50, 96), np.exp(rows - rows.max(1, keepdims=True)),
                               rtol=1e-5)


@verifies("choosing.memory.ahead+2")
@verifies("steps.value.equal")
@pytest.mark.parametrize("rows", [1, 5])
def test_rows_that_are_added_ask_for_the_next_ones(rows: int) -> None:
    """A product with few rows reads some rows of its second operand side by side."""
    limits = DeviceLimits(vector_bytes=64, vector_registers=32, second_cache=32 << 10)
    product = kb.matmul(rows, 200, 100)
    chosen = names(product, limits)
    assert chosen[-1].startswith("NEXT(")
    chunk = next(int(name[:-1].split(",")[1]) for name in chosen if name.startswith("CHUNK("))
    body = render(made := optimize(product, limits), C()).body
    asked = re.findall(r"__builtin_prefetch\(p(\d) \+ .* \+ (\d+), 0\)", body)
    assert [int(far) for _, far in asked] == [200 * chunk] * chunk
    assert {number for number, _ in asked} == {"2"}
    a = np.random.default_rng(0).integers(-4, 5, (rows, 100)).astype(np.float32)
    b = np.random.default_rng(1).integers(-4, 5, (100, 200)).astype(np.float32)
    out = np.zeros(rows * 200, np.float32)
    kb.run(made, out, a.reshape(-1), b.reshape(-1))
    assert (out.reshape(rows, 200) == a @ b).all()
    assert not any(name.startswith("NEXT(") for name in names(kb.matmul(rows, 200, 32), limits))


@verifies("choosing.memory.ahead+2")
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.int8, dtypes.float32])
def test_rows_of_narrow_elements_ask_for_the_next_ones(dtype: DType) -> None:
    """Of a matrix whose rows are multiplied by one vector."""
    i, k = new_range(256, RangeKind.GLOBAL), new_range(1024, RangeKind.REDUCE)
    read = load(param(1, dtype), flat((i, 1024), (k, 1)))
    number = read if dtype is FLOAT else kb.apply(Ops.CAST, read, dtype=FLOAT)
    value = kb.apply(Ops.MUL, load(param(2), k), number)
    product = kb.kernel(store(param(0), i, reduce(Ops.ADD, value, k)), prefix=(i,))
    limits = DeviceLimits(vector_bytes=64, vector_registers=32, second_cache=64 << 10)
    chosen = names(product, limits)
    assert chosen[0] == "UPCAST(0,8)"
    assert chosen[-1].startswith("NEXT(") is (dtype is not dtypes.float32)
    rows = np.random.default_rng(0).integers(-4, 5, (256, 1024)).astype(dtype.numpy)
    vector = np.random.default_rng(1).integers(-4, 5, 1024).astype(np.float32)
    out = np.zeros(256, np.float32)
    kb.run(optimize(product, limits), out, rows.reshape(-1), vector)
    assert (out == rows.astype(np.float32) @ vector).all()


@verifies("choosing.memory.ahead+2")
def test_numbers_of_four_bits_ask_for_the_next_rows() -> None:
    """Both halves of a byte are lanes of the sum, and the byte is read for both at once."""
    generator = np.random.default_rng(0)
    packed = generator.integers(0, 256, (512, 64, 16)).astype(np.uint8)
    vector = generator.integers(-4, 5, 2048).astype(np.float32)
    shifts = Tensor([0, 4], dtype=dtypes.uint32).reshape(2, 1)
    halves = (Tensor(packed).realize().reshape(512, 64, 1, 16).cast(dtypes.uint32) >> shifts) & 15
    product = (halves.float() * Tensor(vector).realize().reshape(64, 2, 16)).sum((1, 2, 3))
    *_, item = Tensor.schedule(product)
    assert any(name.startswith("NEXT(") for name in names(item.ast, DeviceLimits(
        vector_bytes=64, vector_registers=32, second_cache=256 << 10)))
    both = np.stack([packed & 15, packed >> 4], 2).reshape(512, 2048).astype(np.float32)
    assert (product.numpy() == both @ vector).all()


@verifies("steps.legal.refused")
def test_what_does_not_go_on_with_the_prefix_is_not_asked_for() -> None:
    i, j = new_range(4, RangeKind.GLOBAL), new_range(32, RangeKind.LOOP)
    same = kb.kernel(store(param(0), flat((i, 32), (j, 1)), load(param(1), j), j), prefix=(i,))
    alone = kb.kernel(store(param(0), j, load(param(1), j), j))
    for ast in (same, alone):
        known = Analysis(ast)
        with pytest.raises(StepError, match="NEXT"):
            Next(known.position[j]).apply(known)


@verifies("choosing.plain.lanes")
@verifies("steps.value.equal")
@pytest.mark.parametrize("columns", [23, 29, 77, 1021])
def test_the_rest_of_a_row_is_a_vector(columns: int) -> None:
    made = optimize(centred(3, columns), WIDE)
    assert sum(name.startswith("PADTO(") for name in made.arg.steps) == 2
    body = render(made, C()).body
    assert "exp_f32(" not in body and "put_f32x16(" in body
    given, out = values(3, columns), np.zeros(3 * columns + 16, np.float32)
    kb.run(made, out, given)
    rows = given.reshape(3, columns)
    np.testing.assert_allclose(out[:3 * columns].reshape(3, columns),
                               np.exp(rows - rows.max(1, keepdims=True)), rtol=1e-5)
    assert not out[3 * columns:].any()


@verifies("choosing.plain.lanes")
def test_one_number_is_no_vector() -> None:
    assert not any(name.startswith("PADTO(") for name in names(centred(3, 65)))


@verifies("tensor.softmax.once")
@pytest.mark.device("CPU")
def test_a_softmax_divides_once_a_row() -> None:
    x = Tensor(np.ones((4, 40), np.float32)).realize()
    document = schedule_document([x.softmax(-1)], programs=True)
    text = "".join(kernel["source"].split("void ", 1)[1] for kernel in document["kernels"])
    assert text.count(" / ") == text.count("(1.0f / ") == 1
    wide = Tensor(np.array([[1e4, 0.0, -1e4], [5.0, 5.0, 5.0]])).cast(dtypes.float32)
    np.testing.assert_allclose(wide.softmax(-1).numpy(), np.array([[1, 0, 0], [1 / 3] * 3]),
                               rtol=1e-6)


@verifies("choosing.memory.ahead+2")
def test_a_copy_of_a_panel_asks_for_the_next_one() -> None:
    m, n, k = (new_range(size, kind) for size, kind in (
        (64, RangeKind.GLOBAL), (256, RangeKind.GLOBAL), (100, RangeKind.REDUCE)))
    value = kb.apply(Ops.MUL, load(param(1), flat((m, 100), (k, 1))),
                     load(param(2), flat((k, 256), (n, 1))))
    product = kb.kernel(store(param(0), flat((m, 256), (n, 1)), reduce(Ops.ADD, value, k)),
                        prefix=(m, n))
    assert any(name.startswith("NEXT(") for name in names(product))
    small = DeviceLimits(vector_bytes=64, vector_registers=32, second_cache=1 << 20)
    assert not any(step.name.startswith("NEXT(") for step, _ in hand_steps(product, small))


@verifies("steps.lanes.lines+2")
@pytest.mark.parametrize(("columns", "apart"), [(77, 80), (80, 80), (63, 63)])
def test_long_rows_of_lanes_begin_with_a_line(columns: int, apart: int) -> None:
    ast = kb.softmax(4, columns)
    made = apply_steps(ast, [Upcast(Analysis(ast).position[ast.arg.prefix[0]], 4)])
    assert {n.arg[1] for n in made.toposort() if n.op is Ops.LOCAL} == {4 * apart}
    given, out = values(4, columns), np.zeros(4 * columns, np.float32)
    kb.run(made, out, given)
    grown = np.exp(given.reshape(4, columns))
    np.testing.assert_allclose(out.reshape(4, columns), grown / grown.sum(1, keepdims=True),
                               rtol=1e-5)
