"""The device that interprets kernels. Chapter: spec/reference.md."""
from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import impl.reference
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import flat, load, param, reduce, store
from conformance.trace import verifies
from impl import Context, Tensor
from impl.device import Device
from impl.dtypes import ALL, DType, dtypes
from impl.ir import (
    BINARY,
    COMPARISONS,
    FLOAT_ONLY,
    TRANSCENDENTAL,
    UNARY,
    Ops,
    RangeKind,
    UOp,
    new_range,
)

FLOATS = [d for d in ALL if d.kind == "f"]
NUMPY = {Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply, Ops.DIV: np.divide,
         Ops.SQRT: np.sqrt, Ops.NEG: np.negative, Ops.TRUNC: np.trunc, Ops.FLOOR: np.floor,
         Ops.MAXIMUM: np.maximum, Ops.MINIMUM: np.minimum, Ops.CMPLT: np.less,
         Ops.CMPLE: np.less_equal, Ops.CMPEQ: np.equal, Ops.CMPNE: np.not_equal}
FUNCTIONS = {Ops.EXP: np.exp, Ops.EXP2: np.exp2, Ops.LOG: np.log, Ops.LOG2: np.log2,
             Ops.SIN: np.sin, Ops.COS: np.cos, Ops.TANH: np.tanh}
#: What NumPy has not: elsewhere it is compared with Python's.
NOT_IN_NUMPY = {Ops.ERF}


def computed(ops: Iterable[Ops], dtype: DType, device: str,
             *given: np.ndarray) -> dict[Ops, np.ndarray]:
    """What operations make of arrays. Their kernels are compiled together."""
    found, asts = {}, [applied(op, dtype, given[0].size) for op in ops]
    for op, ast, program in zip(ops, asts, Device[device].compile(asts), strict=True):
        made = ast.src[0].src[1].dtype
        out = np.zeros(given[0].size, made.numpy)
        kb.launch(program, out, *given[:1 if op in UNARY else 2])
        found[op] = kb.to_host(out, made)
    return found


def applied(op: Ops, dtype: DType, count: int) -> UOp:
    """out[i] = op(a[i]), or op(a[i], b[i])."""
    i = new_range(count, RangeKind.GLOBAL)
    loads = [load(param(1 + n, dtype), i) for n in range(1 if op in UNARY else 2)]
    value = kb.apply(op, *loads)
    return kb.kernel(store(param(0, value.dtype), i, value), prefix=(i,))


@verifies("reference.operation.value")
def test_every_function_is_compared() -> None:
    missing = TRANSCENDENTAL - {*FUNCTIONS} - NOT_IN_NUMPY
    assert not missing, f"FUNCTIONS does not say what they are in NumPy: {sorted(missing)}"


@verifies("reference.operation.value")
def test_every_operation_of_an_expression_rounds() -> None:
    """The numbers above `large` are two apart: it does not change if 1 is added."""
    for dtype, large in ((dtypes.bfloat16, 256), (dtypes.float16, 2048), (dtypes.float32, 1 << 24)):
        given = [kb.from_host(np.array([number], np.float64), dtype) for number in (large, 1)]
        one, two = (load(param(1 + n, dtype), 0) for n in range(2))
        value = kb.apply(Ops.SUB, kb.apply(Ops.ADD, one, two), one)
        out = kb.from_host(np.ones(1), dtype)
        kb.run(kb.kernel(store(param(0, dtype), 0, value)), out, *given, device="REFERENCE")
        assert kb.to_host(out, dtype).tolist() == [0], dtype.name


@verifies("reference.operation.value")
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_arithmetic_rounds_once(dtype: DType, device: str) -> None:
    one, two = kb.special(dtype), kb.special(dtype, seed=1)
    one, two = np.repeat(one, two.size), np.tile(two, one.size)
    a, b = kb.to_host(one, dtype), kb.to_host(two, dtype)
    with np.errstate(all="ignore"):
        for op, found in computed(NUMPY, dtype, device, one, two).items():
            wanted = NUMPY[op](*(a, b)[:1 if op in UNARY else 2])
            if op not in COMPARISONS:
                wanted = kb.to_host(kb.from_host(wanted, dtype), dtype)
            assert np.array_equal(found, wanted, equal_nan=dtype.kind == "f"), op.name
            if op in (Ops.ADD, Ops.MUL, Ops.NEG):
                same = np.signbit(found) == np.signbit(wanted)
                assert same[~np.isnan(wanted)].all(), op.name


@verifies("conventions.rounding.function")
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_functions_are_close(dtype: DType, device: str) -> None:
    """Within four units in the last place of the value in float64."""
    stored = np.concatenate([kb.special(dtype, 64), kb.from_host(np.linspace(-20, 20, 999), dtype)])
    given = kb.to_host(stored, dtype)
    digits = {2: 11, 4: 24, 8: 53}[dtype.itemsize] if dtype is not dtypes.bfloat16 else 8
    with np.errstate(all="ignore"):
        for op, rounded in computed(FUNCTIONS, dtype, device, stored).items():
            wide = FUNCTIONS[op](given.astype(np.longdouble))
            wanted = kb.to_host(kb.from_host(wide.astype(np.float64), dtype), dtype)
            found = rounded.astype(np.float64)
            unit = np.exp2(np.floor(np.log2(np.abs(wide))) - digits + 1).astype(np.float64)
            least = {2: 6e-8, 4: 1.5e-45, 8: 5e-324}[dtype.itemsize]
            limit = 4 * np.maximum(unit, 1e-38 if dtype is dtypes.bfloat16 else least)
            near = np.abs(found - wanted.astype(np.float64)) <= limit
            equal = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
            assert (near | equal).all(), (op.name, given[~(near | equal)][:3])


@verifies("reference.operation.value")
def test_a_power_is_no_root_where_one_exponent_is_repeated() -> None:
    def made(op: Ops, *elements: float) -> np.ndarray:
        sources = tuple(UOp.const(dtypes.float32, 0) for _ in elements)
        node = UOp(op, dtypes.float32, sources)
        return impl.reference.compute(node, [np.full(3, each, np.float32) if each != 0.5 else
                                             np.full(1, each, np.float32) for each in elements])

    assert made(Ops.POW, -np.inf, 0.5).tolist() == [np.inf] * 3
    assert str(made(Ops.POW, -0.0, 0.5).tolist()) == "[0.0, 0.0, 0.0]"


@pytest.mark.slow
@verifies("reference.operation.value")
def test_every_operation_is_known_to_both_devices() -> None:
    """Two devices that were written apart agree on every operation and type."""
    every = [Ops(o) for o in sorted(UNARY | BINARY)
             if Ops(o) not in (Ops.CAST, Ops.BITCAST, Ops.DETACH)]
    for dtype in ALL:
        given = [kb.special(dtype, seed=n) for n in range(2)]
        ops = [op for op in every if allowed(op, dtype)]
        first, second = (computed(ops, dtype, device, *given) for device in ("CPU", "REFERENCE"))
        for op, one in first.items():
            if op in (*TRANSCENDENTAL, Ops.POW):
                rough = {2: 5e-2, 4: 1e-5, 8: 1e-12}[dtype.itemsize] if dtype.kind == "f" else 0
                np.testing.assert_allclose(one, second[op], rtol=rough, atol=1e-37,
                                           err_msg=op.name)
            else:
                assert np.array_equal(one, second[op], equal_nan=one.dtype.kind == "f"), (op, dtype)


def allowed(op: Ops, dtype: DType) -> bool:
    """Whether an operation is defined for a type."""
    integers = (Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR)
    return dtype.kind == "f" if op in FLOAT_ONLY else dtype.kind != "f" if op in integers else True


@verifies("reference.operation.value")
@pytest.mark.parametrize("op", [Ops.CAST, Ops.BITCAST])
@pytest.mark.parametrize("target", ALL, ids=lambda d: d.name)
def test_one_number_is_cast_for_every_gated_store(target: DType, op: Ops) -> None:
    """A number has no axis of its own: the loop around its store alone says how often it is."""
    source = dtypes.float32 if op is Ops.CAST else next(
        d for d in ALL[::-1] if d.itemsize == target.itemsize and (d.kind == "b") == (
            target.kind == "b"))
    i = new_range(5, RangeKind.GLOBAL)
    given, out = kb.from_host(np.ones(1), source), np.zeros(4, target.numpy)
    value = kb.apply(op, load(param(1, source), 0), dtype=target)
    kb.run(kb.kernel(store(param(0, target), i, value, valid=kb.apply(Ops.CMPLT, i, kb.number(
        dtypes.index, 4))), prefix=(i,)), out, given, device="REFERENCE")
    wanted = np.ones(4) if op is Ops.CAST else kb.to_host(given.view(target.numpy), target)
    assert kb.to_host(out, target).tolist() == np.broadcast_to(wanted, 4).tolist()


@verifies("reference.operation.value")
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_casts_reach_to_the_ends_of_a_type(source: DType) -> None:
    for target in ALL:
        if target.kind not in "iu":
            continue
        ends = np.array([target.min, target.max / 2 + 1, target.max], np.float64)
        given = np.nextafter(ends.astype(source.numpy), source.numpy.type(0))
        i = new_range(given.size, RangeKind.GLOBAL)
        out = np.zeros(given.size, target.numpy)
        value = kb.apply(Ops.CAST, load(param(1, source), i), dtype=target)
        kb.run(kb.kernel(store(param(0, target), i, value), prefix=(i,)), out, given,
               device="REFERENCE")
        assert out.tolist() == [int(number) for number in given], target.name


@pytest.mark.slow
@verifies("reference.operation.value")
@pytest.mark.parametrize("target", ALL, ids=lambda d: d.name)
def test_casts_agree(target: DType) -> None:
    for source in ALL:
        given = kb.special(source)
        if source.kind == "f" and target.kind in "iu":  # values that fit
            host = kb.to_host(given, source).astype(np.float64)
            fits = (host >= float(target.min)) & (host < float(target.max))
            given = np.where(fits, given, np.zeros_like(given))
        i = new_range(given.size, RangeKind.GLOBAL)
        results = []
        ops = [Ops.CAST]
        if source.itemsize == target.itemsize and "b" not in (source.kind, target.kind):
            ops.append(Ops.BITCAST)
        for op in ops:
            for device in ("CPU", "REFERENCE"):
                value = kb.apply(op, load(param(1, source), i), dtype=target)
                out = np.zeros(given.size, target.numpy)
                kb.run(kb.kernel(store(param(0, target), i, value), prefix=(i,)), out, given,
                       device=device)
                results.append(kb.to_host(out, target))
            one, two = results[-2:]
            assert np.array_equal(one, two, equal_nan=target.kind == "f"), (source, op)


@verifies("reference.kernel.plain")
def test_kernels_are_interpreted_as_written() -> None:
    program = Device["REFERENCE"].compile([kb.matmul(32, 32, 32)])[0]
    assert program.steps == () and program.optimized is program.ast


@pytest.mark.slow
@verifies("reference.block.size+2")
@verifies("reference.kernel.plain")
@pytest.mark.parametrize("block", [1, 7, 64, 1000, 1 << 22])
def test_blocks_of_any_size_give_the_same_values(block: int,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impl.reference, "BLOCK_ELEMENTS", block)
    for seed in range(25):
        made = kb.random_kernel(seed)
        wanted = made.arrays()
        kb.run(made.ast, *wanted, device="CPU")
        assert (made.result(made.ast, "REFERENCE") == wanted[0]).all(), seed


@verifies("reference.block.size+2")
def test_a_long_sum_is_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impl.reference, "BLOCK_ELEMENTS", 1 << 10)
    largest = 0
    plain = impl.reference.compute

    def watched(node: object, given: list[np.ndarray]) -> np.ndarray:
        nonlocal largest
        found = plain(node, given)  # type: ignore[arg-type]
        largest = max(largest, found.size)
        return found

    monkeypatch.setattr(impl.reference, "compute", watched)
    k = new_range(100_000, RangeKind.REDUCE)
    value = kb.apply(Ops.ADD, load(param(1, dtypes.int32), k), kb.number(dtypes.int32, 1))
    ast = kb.kernel(store(param(0, dtypes.int32), 0, reduce(Ops.ADD, value, k)))
    out = np.zeros(1, np.int32)
    kb.run(ast, out, np.ones(100_000, np.int32), device="REFERENCE")
    assert out[0] == 200_000 and largest <= 1 << 10


@verifies("reference.device.always")
def test_it_needs_no_program_of_the_machine() -> None:
    code = ("import sys; sys.modules['ziglang'] = None\n"
            "from conformance.saboteurs.impl_patches import inherited\n"
            "from impl import Tensor\n"
            "with inherited():\n"
            "    a = Tensor([[1.0, 2.0], [3.0, 4.0]])\n"
            "    print((a @ a).exp().log().sum().item())")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env={**os.environ, "PATH": "", "CC": "", "DEVICE": "REFERENCE"},
                         cwd=Path(__file__).parents[3])
    assert abs(float(run.stdout) - 54) < 1e-3 and run.stderr == ""


@verifies("reference.block.size+2")
def test_a_long_stage_is_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a softmax are blocks of the prefix, each with stage buffers of its own."""
    ast, given = kb.softmax(50, 33), np.random.default_rng(0).standard_normal((50, 33))
    inputs = given.astype(np.float32)
    wanted, found = np.zeros((50, 33), np.float32), np.zeros((50, 33), np.float32)
    kb.run(ast, wanted, inputs, device="REFERENCE")
    monkeypatch.setattr(impl.reference, "BLOCK_ELEMENTS", 7 * 33)
    kb.run(ast, found, inputs, device="REFERENCE")
    exact = np.exp(given - given.max(1, keepdims=True))
    np.testing.assert_allclose(wanted, exact / exact.sum(1, keepdims=True), rtol=1e-5)
    assert (found == wanted).all()


@verifies("reference.warning.none")
def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for op in (Ops.DIV, Ops.MUL, Ops.FLOORDIV, Ops.LOG, Ops.POW, Ops.CAST):
            dtype = dtypes.int32 if op is Ops.FLOORDIV else dtypes.float32
            given = [kb.special(dtype, seed=n) for n in range(2 if op in BINARY else 1)]
            i = new_range(64, RangeKind.GLOBAL)
            result = dtypes.int8 if op is Ops.CAST else dtype
            loads = [load(param(1 + n, dtype), i) for n in range(len(given))]
            value = kb.apply(op, *loads, dtype=result)
            kb.run(kb.kernel(store(param(0, result), i, value), prefix=(i,)),
                   np.zeros(64, result.numpy), *given, device="REFERENCE")
    assert capsys.readouterr() == ("", "")


@verifies("reference.operation.value")
def test_products_of_matrices_in_every_layout() -> None:
    """Sums of products take a faster way; it must not matter where the loops stand."""
    generator = np.random.default_rng(0)
    a = generator.integers(-9, 9, (3, 4, 5)).astype(np.float64)
    b = generator.integers(-9, 9, (5, 3, 6)).astype(np.float64)
    n, i, j, k = (new_range(size, kind) for size, kind in (
        (3, RangeKind.GLOBAL), (4, RangeKind.LOOP), (6, RangeKind.LOOP), (5, RangeKind.REDUCE)))
    left = load(param(1, dtypes.float64), flat((n, 20), (i, 5), (k, 1)))
    right = load(param(2, dtypes.float64), flat((k, 18), (n, 6), (j, 1)))
    total = reduce(Ops.ADD, kb.apply(Ops.MUL, left, right), k)
    ast = kb.kernel(store(param(0, dtypes.float64), flat((n, 24), (j, 4), (i, 1)), total, j, i),
                    prefix=(n,))
    out = np.zeros((3, 6, 4))
    kb.run(ast, out, a, b, device="REFERENCE")
    assert (out == np.einsum("nik,knj->nji", a, b)).all()


@verifies("reference.operation.value")
def test_a_power_of_numbers_is_a_number() -> None:
    """Also where it is an operand of a sum of products, which are computed as matrices."""
    with Context(DEVICE="REFERENCE"):
        two, three, rows = Tensor(2.0), Tensor(3.0), Tensor(np.arange(6.0).reshape(3, 2))
        Tensor.realize(two, three, rows)
        assert (two.pow(three) * rows).sum().item() == 120
        assert (two.pow(three) * rows).sum(0).tolist() == [48, 72]
