"""Kernels of one's own among those of the scheduler. Chapter: spec/custom.md."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.emulation import metal_objects
from conformance.house.test_examples import run_text
from conformance.kernels.devices import DEVICES, KINDS, PROCESSORS, on_each, on_each_device
from conformance.trace import ROOT, verifies
from impl import Context, Tensor, TinyJit, Variable
from impl.cpu.compiler import find_compiler
from impl.custom import KernelMemory, KernelStore, KernelStores, KernelText, local, loop
from impl.custom.texts import sink_of_text
from impl.device import Device, GlobalCounters
from impl.dialects import WGSL
from impl.dialects.wgsl import indexed
from impl.dtypes import DType, dtypes
from impl.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    DTypeError,
    GraphError,
    ShapeError,
)
from impl.ir import TRANSCENDENTAL, KernelInfo, Ops, UOp
from impl.kernel import DeviceLimits
from impl.render import render
from impl.searching import optimize

NUMBERS = np.random.default_rng(0).standard_normal((4, 10)).astype(np.float32)


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """Nothing is compiled for kernels that run once; every schedule is checked."""
    with Context(DEVICE="REFERENCE", SPEC=1, POISON=1):
        yield


def softmax(out: KernelMemory, x: KernelMemory) -> KernelStores:
    (rows, n), powers = x.shape, local(x.shape[1])
    row, i, j, k, l = loop(rows), *(loop(n) for _ in range(4))  # noqa: E741
    power = powers[i].store((x[row, i] - x[row, k].max(k)).exp()).end(row, i)
    return power.sink(out[row, j].store(powers[j] / powers[l].sum(l)).end(row, j))


def slope(out: KernelMemory, y: KernelMemory, given: KernelMemory) -> KernelStore:
    row, i, k = loop(y.shape[0]), loop(y.shape[1]), loop(y.shape[1])
    total = (given[row, k] * y[row, k]).sum(k)
    return out[row, i].store(y[row, i] * (given[row, i] - total)).end(row, i)


def soft(x: Tensor) -> Tensor:
    def gradient(slopes: list[Any], tensors: list[Any], results: list[Any]) -> list[Any]:
        y = results[0]
        return [None, Tensor.custom_kernel(Tensor.empty_like(y), y, slopes[0], fxn=slope)[0]]
    return Tensor.custom_kernel(Tensor.empty_like(x), x, fxn=softmax, grad_fxn=gradient)[0]


def momentum(weight: KernelMemory, mean: KernelMemory, given: KernelMemory) -> KernelStores:
    i = loop(weight.size)
    new = mean[i] * 0.5 + given[i]
    return weight[i].store(weight[i] - new * 0.25).end(i).sink(mean[i].store(new).end(i))


def put(cache: KernelMemory, row: KernelMemory, at: KernelMemory) -> KernelStore:
    i = loop(row.size)
    return cache[at[0], i].store(row[i]).end(i)


def reverse(x: KernelMemory) -> KernelStore:
    i = loop(x.size)
    return x[i].store(x[x.size - 1 - i]).end(i)


def names(*tensors: Tensor) -> list[str]:
    return [kernel["name"] for kernel in Tensor.schedule_document(*tensors)["kernels"]]


def ready(values: Any, device: str | None = None) -> Tensor:
    return Tensor(values, device=device).realize()


def wanted() -> np.ndarray:
    powers = np.exp(NUMBERS - NUMBERS.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def values_on(device: str) -> None:
    with Context(POISON=0):
        x = ready(NUMBERS, device)
        np.testing.assert_allclose((soft(x * 1) + 1).numpy(), wanted() + 1, 1e-5)
        cache, at = ready(np.zeros((4, 10), np.float32), device), ready([2], device)
        filled = Tensor.custom_kernel(cache, x[0].contiguous(), at, fxn=put)[0].numpy()
        assert (filled[2] == NUMBERS[0]).all() and not filled[[0, 1, 3]].any()
        assert not cache.numpy().any()
        weight, mean = x, ready(NUMBERS * 2, device)
        after = Tensor.custom_kernel(weight, mean, x, fxn=momentum)
        np.testing.assert_allclose(after[1].numpy(), NUMBERS * 2, 1e-6)
        np.testing.assert_allclose(after[0].numpy(), NUMBERS * 0.5, 1e-5, 1e-6)


@pytest.mark.slow
@verifies("custom.value.equal")
@on_each_device
def test_values_on_every_device(device: str) -> None:
    values_on(device)


@pytest.mark.slow
@verifies("custom.value.equal")
@verifies("custom.text.value")
def test_values_on_an_emulated_metal(emulation_folder: Path) -> None:
    with metal_objects.installed():
        Device.opened.pop("METAL", None)
        values_on("METAL")
        texts_on("METAL")
        guide_on("METAL")
        Device.opened.pop("METAL", None)


def values_on_cuda() -> None:
    """Run by the tests of the chapter cuda, where the mock is the driver."""
    values_on("CUDA")
    texts_on("CUDA")
    guide_on("CUDA")


def guide_on(device: str) -> None:
    """Attention, a step of Adam, the greatest elements and the nearest rows, as the guide has them.
    """
    text = (ROOT / "docs" / "own-kernels.md").read_text(encoding="utf-8")
    with Context(DEVICE=device, SPEC=0, POISON=0):
        assert run_text(text, "own-kernels.md") >= 6


@pytest.mark.slow
@verifies("custom.value.equal")
@verifies("custom.gradient.given+2")
@on_each(tuple(kind for kind in DEVICES if kind != "CPU"))
def test_the_guide_on_every_device(device: str) -> None:
    guide_on(device)  # the tests of texts run it on the processor


@verifies("custom.value.equal")
def test_a_kernel_loads_what_stood_there_before() -> None:
    x = ready([1.0, 2.0, 3.0, 4.0])
    turned, = Tensor.custom_kernel(x, fxn=reverse)
    assert turned.tolist() == [4, 3, 2, 1] and x.tolist() == [1, 2, 3, 4]
    x = ready([1.0, 2.0, 3.0, 4.0])  # another one, whose result is not in memory
    x.assign(Tensor.custom_kernel(x, fxn=reverse)[0])
    assert len(names(x)) == 2  # whether iterations run side by side or not
    assert x.tolist() == [4, 3, 2, 1]

    def swap(a: KernelMemory, b: KernelMemory) -> KernelStores:
        i = loop(a.size)
        return a[i].store(b[i]).end(i).sink(b[i].store(a[i]).end(i))
    a, b = ready([1.0, 2.0]), ready([3.0, 4.0])
    first, second = Tensor.custom_kernel(a, b, fxn=swap)
    a.assign(first)
    b.assign(second)
    Tensor.realize(a, b)
    assert a.tolist() == [3, 4] and b.tolist() == [1, 2]


@verifies("custom.value.equal")
def test_captured_and_on_a_mesh() -> None:
    weight, mean = ready(NUMBERS), ready(NUMBERS * 0)

    @TinyJit
    def update(given: Tensor) -> Tensor:
        for tensor, new in zip((weight, mean), Tensor.custom_kernel(weight, mean, given,
                                                                    fxn=momentum), strict=False):
            tensor.assign(new)
        result = soft(given * 2)
        Tensor.realize(weight, mean, result)
        return result
    w, m = NUMBERS.copy(), NUMBERS * 0
    for number in range(4):
        given = np.sin(NUMBERS + number)
        found = update(ready(given))
        m = m * 0.5 + given
        w = w - m * 0.25
        np.testing.assert_allclose(weight.numpy(), w, 1e-5, 1e-6)
        np.testing.assert_allclose(found.numpy(), (Tensor(given) * 2).softmax(1).numpy(), 1e-5)
    x = Tensor(NUMBERS).shard(("REFERENCE", "REFERENCE:1"), 0)
    np.testing.assert_allclose(soft(x).numpy(), wanted(), 1e-5)


@verifies("custom.kernel.alone")
def test_a_kernel_of_its_own() -> None:
    x = ready(NUMBERS)
    result = soft(x * 2) + 1
    assert names(result) == ["map_4_10", "softmax", "map_4_10"]
    assert "softmax on REFERENCE" in result.explain()
    result.realize()
    again = soft(ready(NUMBERS * 3) * 2) + 1
    assert again.schedule_document()["cache"]["hit"]
    one, other = soft(x).schedule(), soft(ready(NUMBERS.T.copy().T)).schedule()
    assert one[0].ast is other[0].ast

    def named(out: KernelMemory) -> KernelStores:
        return out[0].set(7).sink(arg=KernelInfo("set_7"))
    assert names(Tensor.custom_kernel(ready([1.0, 2.0]), fxn=named)[0])[-1] == "set_7"


@verifies("custom.access.inside")
def test_what_lies_outside() -> None:
    def shift(out: KernelMemory, x: KernelMemory, by: KernelMemory) -> KernelStore:
        i = loop(x.size)
        return out[i + by[0]].store(x[i * 2 - 1] + 1).end(i)
    for device in ("REFERENCE", "CPU") if find_compiler() else ("REFERENCE",):
        x, zeros = Tensor([1.0, 2.0, 3.0, 4.0], device=device), Tensor([0.0] * 4, device=device)
        moved = Tensor.custom_kernel(zeros, x, Tensor([2], device=device), fxn=shift)[0]
        assert moved.tolist() == [0, 0, 1, 3]
        moved = Tensor.custom_kernel(zeros, x, Tensor([-2], device=device), fxn=shift)[0]
        assert moved.tolist() == [5, 1, 0, 0]


@verifies("custom.assign.direct")
def test_results_are_stored_where_they_are_assigned() -> None:
    weight, mean, given = ready(NUMBERS), ready(NUMBERS * 0), ready(NUMBERS)
    after = Tensor.custom_kernel(weight, mean, given, fxn=momentum)
    weight.assign(after[0])
    mean.assign(after[1])
    assert names(weight, mean) == ["momentum"]
    Tensor.realize(weight, mean)
    np.testing.assert_allclose(weight.numpy(), NUMBERS * 0.75, 1e-6)
    assert (after[0].numpy() == weight.numpy()).all() and (mean.numpy() == NUMBERS).all()

    cache, row, at = ready(np.zeros((4, 10), np.float32)), ready(NUMBERS[0]), ready([2])
    cache.assign(Tensor.custom_kernel(cache, row, at, fxn=put)[0])
    assert names(cache) == ["put"]
    assert (cache.numpy()[2] == NUMBERS[0]).all() and not cache.numpy()[[0, 1, 3]].any()


@verifies("custom.assign.direct")
def test_what_somebody_needs_is_kept() -> None:
    row, at = ready(NUMBERS[0]), ready([2])
    zeros = np.zeros((4, 10), np.float32)
    filled = zeros.copy()
    filled[2] = NUMBERS[0]
    cache = ready(zeros)
    held = cache.detach()
    cache.assign(Tensor.custom_kernel(cache, row, at, fxn=put)[0])
    assert (cache.numpy() == filled).all() and not held.numpy().any()

    cache = ready(zeros)
    new = Tensor.custom_kernel(cache, row, at, fxn=put)[0]
    cache.assign(new)
    twice, thrice = new * 2, cache * 3
    cache.assign(cache + 1)
    Tensor.realize(cache, twice, thrice, new)
    for found, expected in ((cache, filled + 1), (twice, filled * 2), (thrice, filled * 3),
                            (new, filled)):
        assert (found.numpy() == expected).all()

    cache = ready(zeros)
    new = Tensor.custom_kernel(cache, row, at, fxn=put)[0]
    cache.assign(new)
    cache.assign(cache + 1)
    Tensor.realize(cache, new)
    assert (new.numpy() == filled).all() and (cache.numpy() == filled + 1).all()


@verifies("custom.assign.direct")
def test_a_kernel_that_loads_what_it_has_stored_gets_other_memory() -> None:
    def backwards(weight: KernelMemory, mean: KernelMemory, given: KernelMemory) -> KernelStores:
        first, second = momentum(weight, mean, given).stores
        return second.sink(first)
    weight, mean, given = ready(NUMBERS), ready(NUMBERS), ready(NUMBERS)
    after = Tensor.custom_kernel(weight, mean, given, fxn=backwards)
    weight.assign(after[0])
    mean.assign(after[1])
    Tensor.realize(weight, mean)
    np.testing.assert_allclose(mean.numpy(), NUMBERS * 1.5, 1e-6)
    np.testing.assert_allclose(weight.numpy(), NUMBERS * 0.625, 1e-5)


@verifies("custom.gradient.given+2")
def test_gradients() -> None:
    x, y = (Tensor(NUMBERS, requires_grad=True) for _ in range(2))
    (soft(x * 2) * Tensor(NUMBERS)).sum().backward()
    ((y * 2).softmax(1) * Tensor(NUMBERS)).sum().backward()
    assert x.grad is not None and y.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-4, 1e-6)
    without = Tensor.custom_kernel(Tensor.empty(4, 10), x, fxn=softmax)[0]
    with pytest.raises(GraphError, match="CUSTOM has no gradient rule"):
        without.sum().backward()


def fails(error: type[Exception], message: str, *tensors: Tensor,
          fxn: Callable[..., Any]) -> None:
    with pytest.raises(error, match=message):
        Tensor.custom_kernel(*tensors, fxn=fxn)


@verifies("custom.arguments.refused")
def test_what_is_refused() -> None:
    x = Tensor(NUMBERS)
    n = Variable("n", 1, 10).bind(3)
    fails(ShapeError, "sizes from 1 up", Tensor(NUMBERS)[:, :n], fxn=reverse)
    fails(ShapeError, "sizes from 1 up", Tensor.empty(0, 2), fxn=reverse)
    fails(DeviceError, "are on CPU and REFERENCE", x, Tensor([1.0], device="CPU"), fxn=softmax)
    fails(ArgumentError, "returned NoneType", x, fxn=lambda x: None)
    fails(ShapeError, "3 indices for memory of shape", x, fxn=lambda x: x[0, 0, 0].store(1))
    fails(DTypeError, "float32 is no index", x, fxn=lambda x: x[x[0]].store(1))
    fails(ArgumentError, "use .where", x, fxn=lambda x: x[0].store(1) if x[0] > 0 else None)
    fails(ArgumentError, "stores nothing", x, fxn=lambda x: local(3)[0].store(1))
    fails(ArgumentError, "no number of iterations", x, fxn=lambda x: x[loop(0)].store(1))
    fails(ArgumentError, "is not a loop", x, fxn=lambda x: x[0].store(x[0].sum(x[1])))
    y = Tensor(NUMBERS, requires_grad=True)
    one = Tensor.custom_kernel(y, fxn=reverse, grad_fxn=lambda slopes, tensors, results: [])[0]
    with pytest.raises(ArgumentError, match="0 gradients for 1 tensors"):
        one.sum().backward()
    assert dtypes.index is loop(3).dtype


@verifies("custom.value.equal")
def test_a_kernel_may_call_every_function() -> None:
    """Each one that is an operation of the graph, by the name that tensors have for it."""
    x = ready(np.abs(NUMBERS[0]) + 0.5, "REFERENCE")
    for name in (op.name.lower() for op in sorted(TRANSCENDENTAL)):
        def called(out: KernelMemory, x: KernelMemory, name: str = name) -> KernelStore:
            i = loop(x.size)
            found: KernelStore = out[i].store(getattr(x[i], name)()).end(i)
            return found
        with Context(DEVICE="REFERENCE"):
            out = Tensor.custom_kernel(Tensor.empty(x.shape[0]), x, fxn=called)[0]
            assert out.tolist() == getattr(x, name)().tolist(), name


# ---------------------------------------------------------------- texts

SCALED = "out[item] = scale * x[item] + 1;"
SCALED_TEXTS = {**dict.fromkeys(KINDS, SCALED), "WEBGPU": "out[item] = f32(scale) * x[item] + 1;"}
SUMMED = dict.fromkeys(KINDS, "total[item] = total[item] + x[item + 1];")


def scaled(out: KernelMemory, x: KernelMemory) -> KernelText:
    return KernelText(SCALED_TEXTS, out.size, reads=[x], writes=[out], operations=2,
                      values={"scale": 3})


def summed(total: KernelMemory, x: KernelMemory) -> KernelText:
    return KernelText(SUMMED, 3, reads=[total, x], writes=[total],
                      bounds={total: (0, 3), x: (1, 4)})


def texts_on(device: str) -> None:
    with Context(POISON=0):
        x = ready(NUMBERS, device)
        out = Tensor.empty(4, 10, device=device)
        made = Tensor.custom_kernel(out, x * 2, fxn=scaled)[0] + 1
        assert names(made)[1] == "scaled" and len(names(made)) == 3
        np.testing.assert_allclose(made.numpy(), NUMBERS * 6 + 2, 1e-5, 1e-6)
        total, row = ready(np.arange(4, dtype=np.float32), device), x[0]
        after = Tensor.custom_kernel(total, row, fxn=summed)[0]
        wanted = np.arange(4, dtype=np.float32)
        wanted[:3] += NUMBERS[0, 1:4]
        np.testing.assert_allclose(after.numpy(), wanted, 1e-6)
        assert total.tolist() == [0, 1, 2, 3]
        total.assign(Tensor.custom_kernel(total, ready(NUMBERS[0], device), fxn=summed)[0])
        assert names(total) == ["summed"]
        np.testing.assert_allclose(total.numpy(), wanted, 1e-6)
        many = ready(np.ones(1 << 18, np.float32), device)  # more than lanes and threads
        assert (Tensor.custom_kernel(Tensor.empty(1 << 18, device=device), many,
                                     fxn=scaled)[0].numpy() == 4).all()


@verifies("custom.text.value")
@on_each_device
def test_a_text_on_every_device(device: str) -> None:
    texts_on(device)


@verifies("custom.text.value")
def test_a_text_is_captured_differentiated_and_estimated() -> None:
    @TinyJit
    def captured(x: Tensor) -> Tensor:
        return (Tensor.custom_kernel(Tensor.empty(3), x, fxn=scaled)[0] * 2).realize()
    assert [captured(ready([i, 1.0, 2.0])).tolist()[0] for i in range(4)] == [2, 8, 14, 20]

    def triple(x: Tensor) -> Tensor:
        return Tensor.custom_kernel(Tensor.empty_like(x), x, fxn=scaled, grad_fxn=(
            lambda slopes, tensors, results: [None, slopes[0] * 3]))[0]
    x = Tensor([1.0, 2.0], requires_grad=True)
    triple(x).square().sum().backward()
    assert x.grad is not None and x.grad.tolist() == [24, 42]
    made = Tensor.custom_kernel(Tensor.empty(3), ready([1.0, 2.0, 3.0]), fxn=scaled)[0]
    GlobalCounters.reset()
    made.realize()
    assert GlobalCounters.operations == 6 and GlobalCounters.bytes == 24
    with Context(DEVICE="CPU", NOOPT=0):  # four threads share it, if it is long enough
        limits, ast = DeviceLimits(threads=4, parts=2), kernel_of(1 << 20)
        assert optimize(ast, limits).arg.threads > 1 and optimize(kernel_of(8), limits) \
            .arg.threads == 1


def kernel_of(size: int) -> UOp:
    node = Tensor.custom_kernel(Tensor.empty(size), Tensor.empty(size), fxn=scaled)[0].uop
    ast: UOp = node.arg.ast
    return ast


@verifies("custom.text.watched")
@on_each_device
def test_stores_that_are_not_declared(device: str) -> None:
    source, target = ready([1.0, 2.0, 3.0], device), ready([7.0, 8.0, 9.0], device)

    def stored(text: str, bounds: tuple[int, int] = (0, 3), items: int = 3) -> None:
        def wrong(out: KernelMemory, x: KernelMemory) -> KernelText:
            return KernelText({device: text}, items, reads=[x], writes=[out], bounds={out: bounds})
        Tensor.custom_kernel(target, source, fxn=wrong)[0].realize()

    stored("out[item] = x[item];")
    with pytest.raises(DeviceError, match=r"element 1 of out, outside of its bounds \(0, 1\)"):
        stored("out[item] = x[item];", (0, 1), 2)
    assert target.tolist() == [7, 8, 9]
    if device in ("CPU", "OPENCL"):  # others refuse it, or store nothing there
        address = "(__global float *)" if device == "OPENCL" else "(float *)"
        with pytest.raises(DeviceError, match="element 0 of x, which is not among its writes"):
            stored(f"({address}x)[item] = 5;")
        with pytest.raises(DeviceError, match=r"element 3 of out, which has 3; at .*test_custom"):
            stored("out[item + 1] = x[item];")
        with pytest.raises(DeviceError, match="element -1 of out, which has 3"):
            stored("out[item - 1] = x[item];")
    assert source.tolist() == [1, 2, 3]


@verifies("custom.text.line")
@on_each_device
def test_the_line_of_a_text(device: str) -> None:
    def wrong(out: KernelMemory, x: KernelMemory) -> KernelText:
        return KernelText({device: """
            out[item] = x[item];
            out[item] = ((x[item] ;
        """}, 3, reads=[x], writes=[out])
    line = wrong.__code__.co_firstlineno + 3
    given = Tensor.empty(3, device=device), ready([1.0, 2.0, 3.0], device)
    with pytest.raises(CompileError) as caught:
        Tensor.custom_kernel(*given, fxn=wrong)[0].realize()
    assert "line 3 of the text" in str(caught.value) and "`out[item] = ((x[item] ;`" in \
        str(caught.value) and f"test_custom.py:{line})" in str(caught.value)

    def unknown(out: KernelMemory, x: KernelMemory) -> KernelText:
        return KernelText({device: "out[item] = nobody(x[item]);"}, 3, reads=[x], writes=[out])
    with pytest.raises((CompileError, DeviceError), match="line 1 of the text"):
        Tensor.custom_kernel(*given, fxn=unknown)[0].realize()


@verifies("custom.text.refused")
def test_texts_that_are_refused() -> None:
    x = ready([1.0, 2.0, 3.0])

    def refused(kind: type[Exception], says: str, items: int = 3, device: str = "REFERENCE",
                name: str = "n", declared: bool = True, bounds: tuple[int, int] = (0, 3),
                **more: Any) -> None:
        def text(out: KernelMemory, x: KernelMemory) -> KernelText:
            return KernelText({device: SCALED}, items, reads=[x] if declared else [], writes=[out],
                              bounds={out: bounds}, values={name: 1}, **more)
        with pytest.raises(kind, match=says):
            Tensor.custom_kernel(Tensor.empty(3), x, fxn=text)

    refused(DeviceError, "has a text for CPU, and the tensors are on REFERENCE", device="CPU")
    refused(ArgumentError, "of x is not said whether", declared=False)
    refused(ArgumentError, "cannot be called lane", name="lane")
    refused(ArgumentError, "cannot be called x", name="x")
    refused(ArgumentError, "3 items are no groups of 2 lanes", lanes=2)
    refused(ArgumentError, "items=0 is no such number", items=0)
    refused(ShapeError, "elements 0 to 4 of out", bounds=(0, 4))
    with pytest.raises(DTypeError, match="WGSL has no memory of float16"):
        render(kernel_of_text(dtypes.float16), WGSL())
    for device in PROCESSORS:
        with pytest.raises(CompileError, match=f"wide: a text for WEBGPU, and this is {device}"):
            Device[device].compile([kernel_of_text(dtypes.float32)])


def kernel_of_text(dtype: DType) -> UOp:
    memory = KernelMemory(UOp(Ops.PARAM, dtype, (), 0), (3,))
    made = KernelText({"WEBGPU": "out[item] = 1;"}, 3, writes=[memory])
    return sink_of_text(made, [memory], ["out"], "WEBGPU", "wide")[0]


@verifies("custom.text.value")
def test_elements_in_wgsl() -> None:
    text = indexed("x[y[i & 3]] = a.x[2] + y [ i ]; ax[1]", {"x": "w0", "y": "w1"})
    assert text == "w0[ow0 + i32(w1[ow1 + i32(i & 3)])] = a.x[2] + w1[ow1 + i32( i )]; ax[1]"
