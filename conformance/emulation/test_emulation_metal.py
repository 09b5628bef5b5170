"""The emulator with Metal sources, and the strict look at their address spaces."""
from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from conformance import emulation
from conformance.emulation import address_spaces, metal_objects

pytestmark = [
    pytest.mark.usefixtures("emulation_folder"),
    pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable()),
]

REDUCTION = """
#include <metal_stdlib>
using namespace metal;
constant float scales[2] = {1.0f, 2.0f};
kernel void sum(device const float* values [[buffer(0)]], device float* sums [[buffer(1)]],
                constant int& count [[buffer(2)]], uint at [[thread_position_in_grid]],
                uint lane [[thread_index_in_simdgroup]],
                uint simdgroup [[simdgroup_index_in_threadgroup]],
                uint3 group [[threadgroup_position_in_grid]]) {
    threadgroup float parts[8];
    threadgroup float* first = parts;
    float all = simd_sum(int(at) < count ? values[at] : 0.0f);
    if (lane == 0) first[simdgroup] = all;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0 && simdgroup == 0) {
        float sum = 0.0f;
        for (int part = 0; part < 8; part++) sum += parts[part];
        sums[group.x] = sum * scales[1];
    }
}
"""
PRODUCT = """
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
kernel void product(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]],
                    device float* c [[buffer(2)]]) {
    simdgroup_half8x8 left, right;
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
    for (uint k = 0; k < 24; k += 8) {
        simdgroup_load(left, a + k, 24);
        simdgroup_load(right, b, 24, ulong2(k, 0), true);
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, c, 8);
}
"""
ELEMENTWISE = """
#include <metal_stdlib>
using namespace metal;
kernel void elementwise(device half4* a [[buffer(0)]], device bfloat* b [[buffer(1)]],
                        device atomic_uint* count [[buffer(2)]],
                        threadgroup float* kept [[threadgroup(0)]],
                        uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_grid]],
                        ushort lane [[thread_index_in_threadgroup]]) {
    uint i = at.y * size.x + at.x;
    float4 v = exp2(float4(a[i])) + 1.0h;
    v.xy = v.zw;
    a[i] = half4(max(v, float4(2.5f)));
    kept[lane] = float(b[i]) * 2;
    b[i] = bfloat(precise::sqrt(kept[lane]) + select(0.0f, 1.0f, i > 100));
    atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
}
"""


def test_a_threadgroup_reduction() -> None:
    values, sums = np.arange(1000, dtype=np.float32), np.zeros(4, np.float32)
    module = emulation.compile(REDUCTION, "metal")
    module.launch_in_orders("sum", 4, 256, 0, [values, sums, 1000])
    np.testing.assert_array_equal(sums, 2 * np.pad(values, (0, 24)).reshape(4, 256).sum(axis=1))


def test_a_missing_barrier_shows() -> None:
    text = REDUCTION.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", "")
    module = emulation.compile(text, "metal")
    with pytest.raises(emulation.OrderDependence, match="kernel sum: argument 1"):
        module.launch_in_orders("sum", 1, 256, 0,
                                [np.ones(256, np.float32), np.zeros(1, np.float32), 256])


def test_a_divergent_barrier_is_named() -> None:
    text = REDUCTION.replace("threadgroup_barrier", "if (simdgroup < 2)\n    threadgroup_barrier")
    module = emulation.compile(text, "metal")
    with pytest.raises(emulation.EmulationError, match="lanes 0-63 wait in threadgroup_barrier at "
                                                       "line 15; lanes 64-255 have finished"):
        module.launch("sum", 1, 256, 0, [np.ones(256, np.float32), np.zeros(1, np.float32), 256])


def test_memory_of_a_threadgroup_is_guarded() -> None:
    module = emulation.compile(REDUCTION.replace("parts[8]", "parts[7]"), "metal", sanitize=True)
    with pytest.raises(emulation.MemoryOverrun, match="global-buffer-overflow at kernel.metal:13"):
        module.launch("sum", 1, 256, 0, [np.ones(256, np.float32), np.zeros(1, np.float32), 256])


def test_a_product_of_simdgroup_matrices() -> None:
    random = np.random.default_rng(5)
    a, b = (random.integers(-4, 5, (8, 24)).astype(np.float16) for _ in range(2))
    c = np.zeros((8, 8), np.float32)
    module = emulation.compile(PRODUCT, "metal")
    module.launch_in_orders("product", 1, 32, 0, [a, b, c])
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.T.astype(np.float32) + 1)
    with pytest.raises(emulation.EmulationError, match="line 12: .*32 lanes"):
        module.launch("product", 1, 16, 0, [a, b, c])


def test_narrow_types_vectors_and_positions() -> None:
    a = (np.arange(32) / 8).astype(np.float16).reshape(8, 4)
    b, count = np.full(8, 0x4080, np.uint16), np.zeros(1, np.uint32)
    wanted = np.exp2(a.astype(np.float32)) + 1
    wanted[:, :2] = wanted[:, 2:]
    module = emulation.compile(ELEMENTWISE, "metal")
    module.launch_in_orders("elementwise", (2, 1), (2, 2), 16, [a, b, count])
    np.testing.assert_allclose(a, np.maximum(wanted, 2.5), rtol=1e-3)
    assert (b == 0x4035).all() and count[0] == 8  # the square root of twice 4, as bfloat


def test_a_parameter_needs_an_attribute() -> None:
    with pytest.raises(emulation.CompileError, match=r"kernel.metal:5: .*values'.* \[\[buffer"):
        emulation.compile(REDUCTION.replace("values [[buffer(0)]]", "values"), "metal")


checked = pytest.mark.skipif(bool(address_spaces.unavailable()),
                             reason=address_spaces.unavailable())


@checked
@pytest.mark.parametrize("source", [REDUCTION, PRODUCT, ELEMENTWISE])
def test_sources_that_run_are_sound(source: str) -> None:
    address_spaces.check(source)


@checked
@pytest.mark.parametrize(("statement", "words"), [
    ("device float* p = parts;", "'device float .*' with .* 'threadgroup float"),
    ("threadgroup float* p = sums;", "'threadgroup float .*' with .* 'device float"),
    ("float* p = sums;", "cannot initialize"),
    ("count = 3;", "cannot assign to variable 'count'"),
    ("scales[0] = 3;", "cannot assign|read-only|not assignable"),
    ("double wide = 1;", "poisoned"),
    ("sums[0] = expf(sums[0]);", "undeclared identifier 'expf'"),
    ("sums[0] = exp(count);", "no matching function .*'exp'"),
])
def test_sources_that_metal_refuses(statement: str, words: str) -> None:
    place = "    threadgroup float* first = parts;\n"
    text = REDUCTION.replace(place, f"{place}    {statement}\n")
    with pytest.raises(emulation.CompileError, match=f"kernel.metal:12:.*({words})"):
        address_spaces.check(text)


@checked
def test_pointers_of_kernels_name_their_space() -> None:
    with pytest.raises(emulation.CompileError, match="kernel sum: parameter .*address space"):
        address_spaces.check(REDUCTION.replace("device float* sums", "float* sums"))


# PyObjC's Metal, which is not there


@pytest.fixture
def device() -> Iterator[metal_objects.Device]:
    with metal_objects.installed() as mock:
        assert importlib.import_module("Metal").MTLCreateSystemDefaultDevice() is mock
        yield mock


def filled(device: metal_objects.Device, values: np.ndarray) -> Any:
    """A buffer with these values."""
    buffer: Any = device.newBufferWithLength_options_(values.nbytes, 0)
    buffer.contents().as_buffer(values.nbytes)[:] = values.tobytes()
    return buffer


def floats(buffer: Any) -> list[float]:
    return np.frombuffer(buffer.contents().as_buffer(buffer.length()), np.float32).tolist()


def commit_sum(device: metal_objects.Device, source: str, values: Any, sums: Any) -> Any:
    """A committed command buffer that sums 256 values."""
    metal: Any = importlib.import_module("Metal")
    options = metal.MTLCompileOptions.alloc().init()
    library, error = device.newLibraryWithSource_options_error_(source, options, None)
    assert library is not None and error is None, error and error.localizedDescription()
    function: Any = library.newFunctionWithName_("sum")
    state, _ = device.newComputePipelineStateWithFunction_error_(function, None)
    command = device.newCommandQueue().commandBuffer()
    encoder = command.computeCommandEncoder()
    encoder.setComputePipelineState_(state)
    encoder.setBuffer_offset_atIndex_(values, 0, 0)
    encoder.setBuffer_offset_atIndex_(sums, 4, 1)
    encoder.setBytes_length_atIndex_(np.int32(256).tobytes(), 4, 2)
    one, lanes = metal.MTLSizeMake(1, 1, 1), metal.MTLSizeMake(256, 1, 1)
    encoder.dispatchThreadgroups_threadsPerThreadgroup_(one, lanes)
    encoder.endEncoding()
    command.commit()
    return command


def test_a_program_for_metal_runs_when_it_is_waited_for(device: metal_objects.Device) -> None:
    values, sums = filled(device, np.ones(256, np.float32)), filled(device, np.zeros(2, np.float32))
    command = commit_sum(device, REDUCTION, values, sums)
    assert floats(sums) == [0, 0] and command.status() == metal_objects.COMMITTED
    command.waitUntilCompleted()
    assert floats(sums) == [0, 512] and command.status() == metal_objects.COMPLETED
    assert command.error() is None and command.GPUEndTime() > command.GPUStartTime()


def test_buffers_are_copied_and_filled(device: metal_objects.Device) -> None:
    one, two = filled(device, np.ones(4, np.float32)), device.newBufferWithLength_options_(16, 0)
    assert two is not None and np.isnan(floats(two)).all()
    command = device.newCommandQueue().commandBuffer()
    encoder = command.blitCommandEncoder()
    encoder.fillBuffer_range_value_(two, (0, 8), 0)
    encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(one, 0, two, 8, 8)
    with pytest.raises(ValueError, match="encoder before"):
        command.computeCommandEncoder()
    with pytest.raises(ValueError, match="encoders have ended"):
        command.commit()
    encoder.endEncoding()
    command.commit()
    command.waitUntilCompleted()
    assert floats(two) == [0, 0, 1, 1]


def test_a_kernel_that_goes_wrong_fails_its_command_buffer(device: metal_objects.Device) -> None:
    values, sums = filled(device, np.ones(256, np.float32)), filled(device, np.zeros(2, np.float32))
    text = REDUCTION.replace("threadgroup_barrier", "if (simdgroup < 2)\n    threadgroup_barrier")
    command = commit_sum(device, text, values, sums)
    command.waitUntilCompleted()
    failure = command.error()
    assert command.status() == metal_objects.FAILED and failure is not None
    assert "lanes 64-255 have finished" in failure.localizedDescription()
    test_a_program_for_metal_runs_when_it_is_waited_for(device)


def test_a_write_beyond_a_buffer_fails_its_command_buffer(device: metal_objects.Device) -> None:
    values, sums = filled(device, np.ones(256, np.float32)), filled(device, np.zeros(1, np.float32))
    command = commit_sum(device, REDUCTION, values, sums)  # the sum is put behind its only element
    command.waitUntilCompleted()
    failure = command.error()
    assert failure is not None
    assert failure.localizedDescription() == "kernel sum wrote beyond a buffer of 4 bytes"


def test_memory_of_metal_ends_and_comes_back(device: metal_objects.Device) -> None:
    device.memory = 100
    kept = device.newBufferWithLength_options_(60, 0)
    assert kept is not None and device.newBufferWithLength_options_(60, 0) is None
    del kept
    assert device.newBufferWithLength_options_(60, 0) is not None
    assert device.currentAllocatedSize() == 0


def test_a_source_that_is_wrong_is_an_error_of_the_library(device: metal_objects.Device) -> None:
    library, error = device.newLibraryWithSource_options_error_(
        REDUCTION.replace("simd_sum(", "simd_some("), None, None)
    assert library is None and error is not None
    assert "kernel.metal:12" in error.localizedDescription()
    assert "simd_some" in error.localizedDescription()
