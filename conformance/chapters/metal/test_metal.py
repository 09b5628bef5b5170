"""The Metal device, over a mock of PyObjC. Chapter: spec/metal.md. It has never run on hardware."""
from __future__ import annotations

import gc
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import emulation
from conformance.emulation import address_spaces, metal_objects
from conformance.emulation.devices import OnDevice
from conformance.emulation.errors import CompileError as Wrong
from conformance.generators import multi_programs
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import INT, load, param, store
from conformance.runner.subject import Subject
from conformance.trace import verifies
from impl import Context, Device, GlobalCounters, Mesh, Tensor, TinyJit
from impl.collectives import ALGORITHMS
from impl.dialects import Metal
from impl.dtypes import dtypes
from impl.errors import DeviceError, DTypeError
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits
from impl.render import render
from impl.searching import optimize
from impl.symbolic import Variable

ROOT = Path(__file__).parents[3]
LIMITS = DeviceLimits(name="METAL", lanes=256, lockstep=32, local_memory=32 << 10)
TYPES = (dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32,
         dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.bfloat16,
         dtypes.float32)
needs_emulator = pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable())
needs_clang = pytest.mark.skipif(bool(address_spaces.unavailable()),
                                 reason=address_spaces.unavailable())


@pytest.fixture
def mock(emulation_folder: Path) -> Iterator[metal_objects.Device]:
    """A Mac with a GPU, on which nothing has happened."""
    with metal_objects.installed() as device, Context(DEVICE="METAL"):
        device.order = "reversed"
        Device.opened.pop("METAL", None)
        yield device
        Device.opened.pop("METAL", None)


def gpu() -> Any:
    return Device["METAL"]


def added(count: int | UOp, variables: tuple[UOp, ...] = ()) -> UOp:
    """out[i] = a[i] + 1 for so many elements."""
    i = new_range(count, RangeKind.GLOBAL)
    value = kb.apply(Ops.ADD, load(param(1, INT), i), kb.number(INT, 1))
    return kb.kernel(store(param(0, INT), i, value), prefix=(i,), variables=variables, name="added")


def block(values: list[int]) -> Any:
    memory = gpu().allocate(4 * len(values))
    gpu().copy_in(memory, np.array(values, np.int32))
    return memory


def read(memory: Any) -> list[int]:
    found: list[int] = memory.device.copy_out(memory, INT, memory.nbytes // 4).tolist()
    return found


@verifies("metal.error.told+3")
@pytest.mark.skipif(platform.system() == "Darwin", reason="there may be a GPU")
def test_elsewhere_one_line_says_so() -> None:
    line = f"METAL cannot be used: Metal is part of macOS, and this is {platform.system()}; "
    with pytest.raises(DeviceError, match=line):
        Device["METAL"]


@needs_emulator
@verifies("device.several.equal")
@verifies("collectives.memory.reached+2")
def test_a_state_goes_round_two_gpus_and_the_processor(emulation_folder: Path) -> None:
    second = metal_objects.Device()
    with metal_objects.installed(second) as first:
        first.order = second.order = "reversed"
        try:
            subject = Subject(OnDevice("METAL", lacks=("float64",)), "", [])
            assert subject.info.devices == ("METAL", "METAL:1", "CPU")
            for program in list(multi_programs.advancing(3))[1:4:2]:
                subject.check_values(program, "replay")
            mesh = Mesh(("METAL", "METAL:1"))
            rows = np.arange(6, dtype=np.int32)
            for algorithm in ALGORITHMS["all-reduce"]:
                with Context(ALLREDUCE=algorithm):
                    total = Tensor(rows, device="METAL").shard(mesh, shard=0).sum(0, keepdim=True)
                    assert [part.tolist() for part in total.shards] == [[15], [15]]
        finally:
            Device.opened.pop("METAL", None)
            Device.opened.pop("METAL:1", None)


# ---------------------------------------------------------------- values and texts

def functions(dtype: Any) -> list[UOp]:
    """Every function of a type, one kernel each."""
    i = new_range(64, RangeKind.GLOBAL)
    a, b = load(param(1, dtype), i), load(param(2, dtype), i)
    values = [kb.apply(op, a, b) for op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM,
                                            Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)]
    if dtype.kind == "f":
        values += [kb.apply(op, a) for op in kb.FLOAT_FUNCTIONS]
        values += [kb.apply(op, a, b) for op in (Ops.DIV, Ops.POW)]
    else:
        values += [kb.apply(op, a, b) for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.AND, Ops.OR,
                                                 Ops.XOR, Ops.POW, Ops.SHL, Ops.SHR)]
    values += [kb.apply(Ops.CAST, a, dtype=other) for other in TYPES if other is not dtype]
    return [kb.kernel(store(param(0, value.dtype), i, value), prefix=(i,), name="one")
            for value in values]


@pytest.mark.slow
@needs_emulator
@verifies("metal.values.reference")
@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int64, dtypes.float16, dtypes.bfloat16,
                                   dtypes.float32], ids=lambda dtype: dtype.name)
def test_every_function(mock: Any, dtype: Any) -> None:
    kernels = functions(dtype)
    gpu().compile(kernels)
    one, two = kb.special(dtype, seed=1), kb.special(dtype, seed=2)
    finite = np.isfinite(kb.to_host(one, dtype)) & (np.abs(kb.to_host(one, dtype)) < 100)
    for ast in kernels:
        value = ast.src[0].src[1]
        found, wanted = (kb.to_host(_result(ast, device, value.dtype, one, two), value.dtype)
                         for device in ("METAL", "REFERENCE"))
        if value.op is Ops.CAST and dtype.kind == "f":  # others may become any number
            found, wanted = (np.where(finite & (kb.to_host(one, dtype) >= 0), each, 0)
                             for each in (found, wanted))
        if value.dtype.kind == "f":
            close = 2e-2 if value.dtype in (dtypes.float16, dtypes.bfloat16) else 2e-6
            np.testing.assert_allclose(found, wanted, close, 1e-37, err_msg=value.op.name)
        else:
            np.testing.assert_array_equal(found, wanted, value.op.name)


def _result(ast: UOp, name: str, dtype: Any, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    device = Device[name]
    memories = [device.allocate(64 * dtype.itemsize)]
    for given in (one, two):
        memories.append(device.allocate(given.nbytes))
        device.copy_in(memories[-1], given)
    program = device.compile([ast])[0]
    program(memories[:program.arguments])
    return device.copy_out(memories[0], dtype, 64)


@needs_emulator
@verifies("metal.values.reference")
def test_random_kernels_store_what_the_reference_stores(mock: Any) -> None:
    kernels = [kb.random_kernel(3000 + seed) for seed in range(20)]
    for noopt in (0, 1):
        with Context(NOOPT=noopt):
            gpu().compile([made.ast for made in kernels])
            for seed, made in enumerate(kernels):
                found = made.result(made.ast, "METAL", seed)
                assert (found == made.result(made.ast, "REFERENCE", seed)).all(), (noopt, seed)


@needs_emulator
@verifies("metal.values.reference")
def test_bits_of_small_numbers_that_the_language_computes_as_int(mock: Any) -> None:
    i, kernels = new_range(64, RangeKind.GLOBAL), list[UOp]()
    for pair in ((dtypes.int8, dtypes.uint8), (dtypes.int16, dtypes.uint16),
                 (dtypes.uint16, dtypes.float16), (dtypes.bfloat16, dtypes.int16)):
        for source, target in (pair, pair[::-1]):
            given = load(param(1, source), i)
            values = [kb.number(source, 3)]
            if source.kind != "f":  # the payload of a NaN is open
                values.append(kb.apply(Ops.ADD, given, given))
            kernels += [kb.kernel(store(param(0, target), i, kb.apply(
                Ops.BITCAST, value, dtype=target)), prefix=(i,)) for value in values]
    gpu().compile(kernels)
    for ast in kernels:
        target = ast.src[0].src[1].dtype
        one = kb.special(ast.src[0].src[1].src[0].dtype)
        found, wanted = (kb.to_host(_result(ast, device, target, one, one), target)
                         for device in ("METAL", "REFERENCE"))
        np.testing.assert_array_equal(found, wanted)


@needs_clang
@verifies("metal.space.named+2")
def test_pointers_name_their_memory() -> None:
    asts = [ast for dtype in TYPES for ast in functions(dtype)]
    asts += [kb.random_kernel(seed).ast for seed in range(40)] + [kb.softmax(5, 700)]
    sources = [render(optimize(ast, LIMITS), Metal()) for ast in asts]
    definitions = dict.fromkeys(each for source in sources for each in source.definitions)
    text = "\n".join((*definitions, *(f"{source.signature.format(name=f'k{at}')} {source.body}"
                                      for at, source in enumerate(sources))))
    assert "threadgroup " in text and "thread int *" in text
    address_spaces.check(text)
    with pytest.raises(Wrong):
        address_spaces.check(text.replace("thread int *quadrant", "int *quadrant")
                             .replace("device float *p0", "constant float *p0"))


@verifies("metal.error.told+3")
def test_doubles_are_refused() -> None:
    i = new_range(4, RangeKind.GLOBAL)
    wide = load(param(1, dtypes.float64), i)
    for value in (wide, kb.apply(Ops.CAST, load(param(1), i), dtype=dtypes.float64),
                  kb.apply(Ops.CAST, wide, dtype=dtypes.float32)):
        ast = kb.kernel(store(param(0, value.dtype), i, value), prefix=(i,))
        with pytest.raises(DTypeError, match="has no float64.*cast to float32"):
            render(ast, Metal())


@needs_emulator
@verifies("metal.compile.meaning")
def test_fast_math_is_off(mock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []
    monkeypatch.setattr(metal_objects.CompileOptions, "setFastMathEnabled_",
                        lambda self, enabled: said.append(enabled))
    gpu().compile([added(5)])
    assert said == [False]


# ---------------------------------------------------------------- launches

@needs_emulator
@verifies("metal.copy.ordered")
def test_copies_come_after_launches(mock: Any) -> None:
    program, one, two = gpu().compile([added(4)])[0], block([1, 2, 3, 4]), block([0] * 4)
    program([two, one])
    gpu().copy_in(one, np.zeros(4, np.int32))
    assert read(two) == [2, 3, 4, 5], "the launch reads what stood there before the copy"
    program([two, one])
    gpu().copy(one, two)
    assert read(one) == [1] * 4
    for _ in range(200):  # more than one command buffer holds
        program([one, one])
    assert read(one.part(4, 8)) == [201, 201]


@needs_emulator
@verifies("metal.error.told+3")
def test_memory_that_is_exhausted_is_an_error(mock: Any) -> None:
    gc.collect()
    one = block([1, 2])
    mock.memory = mock.used + 5000
    before = GlobalCounters.allocated
    with pytest.raises(DeviceError, match="METAL has no 6000 bytes left"):
        gpu().allocate(6000)
    assert GlobalCounters.allocated == before
    assert read(one) == [1, 2] and gpu().allocate(4000).nbytes == 4000


@needs_emulator
@verifies("metal.error.told+3")
def test_a_launch_that_fails_is_an_error(mock: Any) -> None:
    program, small = gpu().compile([added(8)])[0], block([1] * 7)
    program([small, block([1] * 8)])
    with pytest.raises(DeviceError, match="wrote beyond a buffer.*in one of the launches of added"):
        gpu().synchronize()
    wide = block([1] * 8)
    program([wide, wide])
    assert read(wide) == [2] * 8


@needs_emulator
@verifies("metal.values.reference")
def test_programs_run_and_replay(mock: Any) -> None:
    x = Tensor(np.arange(300 * 7, dtype=np.float32).reshape(300, 7) / 100)
    np.testing.assert_allclose(x.softmax().numpy().sum(1), np.ones(300), 1e-6)
    assert (x.sum().item() / float(x.numpy().sum())) == pytest.approx(1)

    @TinyJit
    def step(y: Tensor) -> Tensor:
        return (y * 2 + y.sum()).realize()
    for turn in range(4):
        given = Tensor(np.full(5, turn, np.float32)).realize()
        assert step(given).tolist() == [7 * turn] * 5
    n = Variable("n", 0, 600).uop
    program, memory = gpu().compile([added(n, (n,))])[0], block([0] * 600)
    for value in (0, 3, 600):
        program([memory, memory], [value])
    found = read(memory)
    assert found[:4] == [2, 2, 2, 1] and found[-1] == 1
