"""Floats of 8 bits and integers of 4, beside the package ml_dtypes."""
from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from conformance.kernels.devices import on_each_device
from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, dtypes, finfo, iinfo
from impl.dtypes import DType
from impl.errors import DTypeError, ShapeError

FLOATS = [(dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
          (dtypes.float8_e5m2, ml_dtypes.float8_e5m2)]
INTEGERS = [(dtypes.int4, ml_dtypes.int4), (dtypes.uint4, ml_dtypes.uint4)]
RNG = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, 448, 463.9, 464, 464.1, 57344, 61439, 61440, 1e9, np.inf, -np.inf, np.nan,
           2.0 ** -10, 3 * 2.0 ** -10, 2.0 ** -17, 3 * 2.0 ** -17, 2.0 ** -6, 2.0 ** -14]
X = np.concatenate([RNG.standard_normal(500) * np.exp(RNG.uniform(-12, 12, 500)), SPECIAL]).astype(
    np.float32)
Y = RNG.permutation(X)
WHOLE = RNG.integers(-100, 100, 101)


def same(found: Tensor, expected: Any) -> None:
    """The values, and the bits of those that are numbers: zeros have signs."""
    known = np.asarray(expected)
    assert found.dtype.name == known.dtype.name
    values = known.astype(found.dtype.host)
    assert np.array_equal(found.numpy(), values, equal_nan=values.dtype.kind == "f")
    assert np.array_equal(np.signbit(found.numpy())[values == 0], np.signbit(values)[values == 0])


@pytest.mark.slow
@verifies("dtypes.narrow.rounded")
@on_each_device
@pytest.mark.parametrize(("dtype", "theirs"), FLOATS, ids=str)
def test_floats_of_8_bits_are_rounded(device: str, dtype: DType, theirs: Any) -> None:
    with Context(DEVICE=device), np.errstate(all="ignore"):
        x, known = Tensor(X).cast(dtype), X.astype(theirs)
        y, other = Tensor(Y).cast(dtype), Y.astype(theirs)
        codes = np.arange(256, dtype=np.uint8)
        operations = operator.add, operator.sub, operator.mul, operator.truediv
        found = [x, Tensor(codes).bitcast(dtype), *(meant(x, y) for meant in operations)]
        expected = [known, codes.view(theirs), *(meant(known, other) for meant in operations)]
        held, less = x.bitcast(dtypes.uint8), x < y
        held.realize(less, *found)
        for own, theirs in zip(found, expected, strict=True):
            same(own, theirs)
        assert np.array_equal(held.numpy()[~np.isnan(X)], known.view(np.uint8)[~np.isnan(X)])
        assert np.array_equal(less.numpy(), known < other)


@pytest.mark.slow
@verifies("dtypes.narrow.rounded")
@pytest.mark.parametrize(("dtype", "theirs"), FLOATS, ids=str)
def test_a_float_of_8_bits_is_rounded_on_the_host_as_by_a_kernel(dtype: DType, theirs: Any) -> None:
    with np.errstate(all="ignore"):
        known = X.astype(theirs)
    for made in (Tensor(X, dtype=dtype), Tensor(known), pickle.loads(pickle.dumps(Tensor(known))),
                 copy.deepcopy(Tensor(known))):
        same(made, known)
    numbers = [Tensor(float(x), dtype=dtype).item() for x in X]
    assert np.array_equal(numbers, known.astype(np.float32), equal_nan=True)
    values = np.array([1, 3, 0.5, 200], np.float32)
    held = Tensor(values, dtype=dtype).realize()
    held[1:3] = 2.0
    assert held.tolist() == [1, 2, 2, Tensor(200.0).cast(dtype).item()]
    assert held.sum().dtype is dtype and held.max().item() == held.tolist()[3]
    assert held.isfinite().all().item() and (held + Tensor([1.0])).dtype is dtypes.float32


def torch_of(values: np.ndarray, dtype: str) -> Any:
    torch = pytest.importorskip("torch")
    return torch.tensor(values).to(getattr(torch, dtype))


@verifies("dtypes.narrow.rounded")
def test_a_float_of_8_bits_of_others_is_taken() -> None:
    values = np.array([1, -0.75, 6e-3], np.float32)
    for dtype, theirs in FLOATS:
        given = torch_of(values, dtype.name)
        same(Tensor(given), given.float().numpy().astype(theirs))


@pytest.mark.slow
@verifies("dtypes.wraparound.integer")
@on_each_device
@pytest.mark.parametrize(("dtype", "theirs"), INTEGERS, ids=str)
def test_integers_of_4_bits_wrap_around(device: str, dtype: DType, theirs: Any) -> None:
    with Context(DEVICE=device):
        x, known = Tensor(WHOLE).cast(dtype), WHOLE.astype(theirs)
        y, other = x.flip(0), known[::-1]
        same(x, known)
        found, less, total = [x + y, x - y, x * y, x * 3], x < y, x.sum()
        cut = Tensor(WHOLE.astype(np.float32) / 3).cast(dtype)
        less.realize(total, cut, *found)
        thrice = (known.astype(int) * 3).astype(theirs)
        for own, expected in zip(found, [known + other, known - other, known * other, thrice],
                                 strict=True):
            same(own, expected)
        assert np.array_equal(less.numpy(), known < other)
        assert total.item() == known.astype(int).sum() and total.dtype.itemsize == 4
        assert np.array_equal(cut.numpy(), np.clip(np.trunc(WHOLE / 3), dtype.min, dtype.max))
        for given in (np.array(9), np.array([-9])):
            same(Tensor(given, dtype=dtype), given.astype(theirs))


@verifies("dtypes.nibble.packed")
@pytest.mark.parametrize(("dtype", "theirs"), INTEGERS, ids=str)
@pytest.mark.parametrize("shape", [(101,), (10, 10), (5, 2, 10)])
def test_two_integers_of_4_bits_lie_in_a_byte(dtype: DType, theirs: Any,
                                              shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    known = WHOLE[:count].reshape(shape).astype(theirs)
    computed = Tensor(WHOLE[:count].reshape(shape)).cast(dtype).realize()
    for held in (computed, Tensor(known), Tensor(known.astype(int), dtype=dtype)):
        buffers = {n.arg[0] for n in held.uop.toposort() if n.op.name == "BUFFER"}
        assert [each.nbytes for each in buffers] == [(count + 1) // 2] == [held.nbytes()]
        same(held, known)
        same(held.realize(), known)
        assert f"{known.reshape(-1)[0]}" in repr(held)
        same(pickle.loads(pickle.dumps(held)), known)


@verifies("dtypes.nibble.packed")
@pytest.mark.parametrize("dtype", [dtypes.int4, dtypes.uint4])
def test_integers_of_4_bits_are_assigned(dtype: DType) -> None:
    held = Tensor([1, 2, 3, 4, 5], dtype=dtype)
    before = held + 1
    held[1:3] = 7
    held.add_(1)
    assert held.tolist() == [2, Tensor(8).cast(dtype).item(), Tensor(8).cast(dtype).item(), 5, 6]
    assert before.tolist() == [2, 3, 4, 5, 6]


@verifies("dtypes.nibble.packed")
def test_captured_functions_read_what_is_packed() -> None:
    state, outside = (Tensor([1, 2, 3], dtype=dtypes.int4) for _ in range(2))

    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state + outside

    captured, known, other = TinyJit(step), np.array([1, 2, 3]), np.array([1, 2, 3])
    for number in range(8):
        if number > 3:
            outside.assign(outside + 1).realize()
            other = other + 1
        known = known + [number, 1, 0]
        found = captured(Tensor([number, 1, 0], dtype=dtypes.int4).realize()).numpy()
        assert np.array_equal(found, (known + other).astype(ml_dtypes.int4).astype(int)), number
    assert captured.replays > 2


@verifies("dtypes.bitcast.size+2")
@pytest.mark.parametrize("dtype", [dtypes.int4, dtypes.uint4])
def test_bits_of_integers_of_4(dtype: DType) -> None:
    held = Tensor(WHOLE[:32].reshape(2, 16)).cast(dtype)
    first = (WHOLE[:32] & 15).reshape(2, 8, 2)
    expected = (first[..., 0] | first[..., 1] << 4).astype(np.uint8)
    for wide in ("uint8", "int8", "int16", "float32", "uint64"):
        seen = held.bitcast(wide)
        assert np.array_equal(seen.bitcast("uint8").numpy(), expected)
        assert np.array_equal(seen.bitcast(dtype).numpy(), held.numpy())
    assert np.array_equal(held.bitcast("uint4").numpy(), first.reshape(2, 16))
    with pytest.raises(ShapeError, match="multiple of 2"):
        held[:, :3].bitcast("uint8")


def _told(kind: str, name: str) -> Any:
    ask: Callable[[str], Any] = getattr(ml_dtypes, kind)
    return ask(name)


@verifies("dtypes.limits.told")
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32",
                                  "float64", "complex64"])
def test_limits_of_floats(name: str) -> None:
    known, own = _told("finfo", name), finfo(name)
    assert (own.bits, own.max, own.min, own.eps, own.tiny, own.smallest_subnormal) == tuple(
        float(each) for each in (known.bits, known.max, known.min, known.eps, known.tiny,
                                 known.smallest_subnormal))
    assert own.resolution == 10.0 ** -math.floor(-math.log10(own.eps))


@verifies("dtypes.limits.told")
def test_limits_of_integers() -> None:
    for name in ("int4", "uint4", "int8", "uint16", "int64", "uint64"):
        known = _told("iinfo", name)
        assert iinfo(name)[:3] == (known.bits, known.max, known.min)
    assert iinfo(Tensor([1])).dtype is dtypes.int32 and finfo().dtype is dtypes.default_float
    with pytest.raises(DTypeError, match="iinfo"):
        finfo(dtypes.int8)
    with pytest.raises(DTypeError, match="finfo"):
        iinfo(dtypes.float16)


@verifies("dtypes.promote.least")
def test_narrow_dtypes_promote() -> None:
    def together(*names: str) -> str:
        return (Tensor.zeros(1, dtype=names[0]) + Tensor.zeros(1, dtype=names[1])).dtype.name

    assert together("float8_e4m3fn", "float8_e5m2") == "float16"
    assert together("float8_e5m2", "bfloat16") == "bfloat16"
    assert together("int32", "float8_e4m3fn") == "float8_e4m3fn"
    assert together("int4", "uint4") == "int8" and together("uint4", "uint8") == "uint8"
    assert together("bool", "uint4") == "uint4" and together("int64", "uint64") == "float32"
