"""The emulator with CUDA sources: what it computes, and that it sees what is wrong."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from conformance import emulation
from conformance.emulation import building, nvrtc, sources
from conformance.emulation.running import Argument
from conformance.house.test_examples import run_text
from conformance.trace import ROOT

PAGE = ROOT / "docs" / "conformance" / "emulation.md"

pytestmark = [
    pytest.mark.usefixtures("emulation_folder"),
    pytest.mark.skipif(bool(emulation.unavailable()), reason=emulation.unavailable()),
]

REDUCTION = """
extern "C" __global__ void __launch_bounds__(256) sum(const float* __restrict__ values,
                                                       float* sums, int count) {
    __shared__ float part[256];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = at < count ? __ldg(values + at) : 0.0f;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();  // last
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
"""
REVERSAL = """
extern "C" __global__ void reverse(float* values) {
    extern __shared__ __align__(16) unsigned char memory[];
    float* kept = (float*)memory;
    kept[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
"""


def test_a_block_reduction() -> None:
    values = np.arange(1000, dtype=np.float32)
    sums = np.zeros(4, np.float32)
    module = emulation.compile(REDUCTION, "cuda")
    module.launch_in_orders("sum", 4, 256, 0, [values, sums, 1000])
    padded = np.pad(values, (0, 24)).reshape(4, 256)
    np.testing.assert_array_equal(sums, padded.sum(axis=1))


def test_an_array_that_is_given_twice_stays_one_array() -> None:
    text = """extern "C" __global__ void move(const float* from, float* to) {
        float value = from[threadIdx.x];
        __syncthreads();
        to[63 - threadIdx.x] = value;
    }"""
    values = np.arange(64, dtype=np.float32)
    emulation.compile(text, "cuda").launch_in_orders("move", 1, 64, 0, [values, values])
    np.testing.assert_array_equal(values, np.arange(64)[::-1])


def test_the_portable_switch_of_fibers_does_the_same() -> None:
    path = building.build("portable", ".so", [
        *building.KERNEL_FLAGS, *building.LINK_FLAGS, "-DFIBERS_PORTABLE", "-include",
        building.HERE / "ptx.h", building.HERE / "emulator.cpp", "-fvisibility=default",
    ], sources.translate(REDUCTION, "cuda"))
    values, sums = np.ones(512, np.float32), np.zeros(2, np.float32)
    emulation.Module(path).launch("sum", 2, 256, 0, [values, sums, 512])
    np.testing.assert_array_equal(sums, [256, 256])


def test_a_missing_barrier_shows() -> None:
    text = REDUCTION.replace("__syncthreads();  // last", "")
    arguments: list[Argument] = [np.ones(256, np.float32), np.zeros(1, np.float32), 256]
    module = emulation.compile(text, "cuda")
    with pytest.raises(emulation.OrderDependence, match="kernel sum: argument 1 .*barrier"):
        module.launch_in_orders("sum", 1, 256, 0, arguments)


def test_shared_memory_that_nobody_wrote_is_nan() -> None:
    module = emulation.compile(REVERSAL.replace("__syncthreads();", ""), "cuda")
    values = np.arange(64, dtype=np.float32)
    module.launch("reverse", 1, 64, 256, [values])
    assert np.isnan(values[:32]).all() and not np.isnan(values[32:]).any()


DIVERGENT = """
extern "C" __global__ void apart(float* values) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
extern "C" __global__ void early(float* values) {
    if (threadIdx.x >= 40) return;
    __syncthreads();
}
extern "C" __global__ void shuffled(float* values) {
    if (threadIdx.x < 8) values[0] = __shfl_down_sync(0xffffffff, values[0], 4);
}
"""


@pytest.mark.parametrize(("kernel", "words"), [
    ("apart", "lanes 0-31 wait in __syncthreads at line 4; "
              "lanes 32-63 wait in __syncthreads at line 6"),
    ("early", "lanes 0-39 wait in __syncthreads at line 10; lanes 40-63 have finished"),
    ("shuffled", "lanes 0-7 wait in __shfl_down_sync at line 13; lanes 8-63 have finished"),
])
def test_lanes_that_wait_for_others_in_vain(kernel: str, words: str) -> None:
    module = emulation.compile(DIVERGENT, "cuda")
    with pytest.raises(emulation.EmulationError) as caught:
        module.launch(kernel, (2, 1), 64, 0, [np.zeros(1, np.float32)], order=7)
    assert words in str(caught.value) and f"kernel {kernel}, group (" in str(caught.value)


@pytest.mark.parametrize(("kernel", "lanes", "shared", "arguments", "words"), [
    ("sum", 257, 0, [np.ones(257, np.float32), np.zeros(1, np.float32), 257],
     "global-buffer-overflow at kernel.cu:6: write of 4 bytes .* variable 'part'"),
    ("sum", 256, 0, [np.ones(100, np.float32), np.zeros(1, np.float32), 101],
     "heap-buffer-overflow at .*: read of 4 bytes .* 400-byte region"),
    ("reverse", 64, 252, [np.ones(64, np.float32)],
     "heap-buffer-overflow at kernel.cu:18: write of 4 bytes .* 252-byte region"),
], ids=["static", "global", "dynamic"])
def test_overruns_are_found(kernel: str, lanes: int, shared: int, arguments: list[Argument],
                            words: str) -> None:
    module = emulation.compile(REDUCTION + REVERSAL, "cuda", sanitize=True)
    with pytest.raises(emulation.MemoryOverrun, match=words):
        module.launch(kernel, 1, lanes, shared, arguments)


def test_a_sound_kernel_runs_under_the_sanitizer() -> None:
    module = emulation.compile(REDUCTION + REVERSAL, "cuda", sanitize=True)
    values = np.arange(64, dtype=np.float32)
    module.launch_in_orders("reverse", 1, 64, 256, [values])
    np.testing.assert_array_equal(values, np.arange(64)[::-1])


@pytest.mark.parametrize(("statement", "words"), [
    ("values[1 << 30] = 1;", "lane 0 touches memory that is not there"),
    ("values[0] = 7 / (int)values[0];", "lane 0 divides a whole number by zero"),
    ("volatile float deep[100000]; deep[0] = deep[99999];", "memory that is not there"),
])
def test_a_fault_ends_the_launch_and_not_the_process(statement: str, words: str) -> None:
    text = f'extern "C" __global__ void fault(float* values) {{ {statement} }}'
    module = emulation.compile(text, "cuda")
    for _ in range(2):
        with pytest.raises(emulation.EmulationError, match=words):
            module.launch("fault", 1, 64, 0, [np.zeros(1, np.float32)])


WARP = """
extern "C" __global__ void warp(const int* in, int* out) {
    int lane = threadIdx.x, all = 0xffffffff, v = in[lane];
    out[lane] = __shfl_sync(all, v, 3);
    out[64 + lane] = __shfl_up_sync(all, v, 2);
    out[128 + lane] = __shfl_down_sync(all, v, 5, 8);
    out[192 + lane] = __shfl_xor_sync(all, v, 16);
    out[256 + lane] = (int)__ballot_sync(all, v % 3 == 0);
    out[320 + lane] = lane % 2 ? __reduce_add_sync(0xaaaaaaaa, v) : 0;
    out[384 + lane] = __syncthreads_count(v % 5 == 0);
    out[448 + lane] = __any_sync(all, v == 40) * 2 + __all_sync(all, v < 32);
}
"""


def test_shuffles_and_votes() -> None:
    values, out = np.arange(64, dtype=np.int32), np.zeros((8, 64), np.int32)
    emulation.compile(WARP, "cuda").launch_in_orders("warp", 1, 64, 0, [values, out])
    lane, warp = values % 32, values // 32 * 32
    down = np.where(values % 8 + 5 < 8, values + 5, values)
    np.testing.assert_array_equal(out[0], warp + 3)
    np.testing.assert_array_equal(out[1], np.where(lane < 2, values, values - 2))
    np.testing.assert_array_equal(out[2], down)
    np.testing.assert_array_equal(out[3], warp + (lane ^ 16))
    ballots = [sum(1 << i for i in range(32) if (w + i) % 3 == 0) for w in (0, 32)]
    np.testing.assert_array_equal(out[4].view(np.uint32),
                                  np.repeat(np.array(ballots, np.uint32), 32))
    odd = np.array([values[w + 1:w + 32:2].sum() for w in (0, 32)])
    np.testing.assert_array_equal(out[5], np.where(values % 2, np.repeat(odd, 32), 0))
    assert (out[6] == 13).all()
    np.testing.assert_array_equal(out[7], np.repeat([1, 2], 32))


NARROW = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void narrow(const float4* in, __half* halves, __nv_bfloat16* brains,
                                  unsigned* total, double factor) {
    int at = threadIdx.x;
    float4 v = in[at];
    halves[4 * at] = __float2half(v.x);
    halves[4 * at + 1] = __hadd(__float2half(v.y), __float2half(1.0f));
    halves[4 * at + 2] = __float2half(v.z) * __float2half(v.w);
    halves[4 * at + 3] = (__half)(float)(v.w * factor);
    brains[at] = __float2bfloat16(v.x);
    atomicAdd(total, 1u);
    atomicMax(total + 1, (unsigned)at);
}
"""


def test_vectors_narrow_types_and_atomics() -> None:
    values = np.random.default_rng(3).normal(0, 300, (32, 4)).astype(np.float32)
    halves, brains = np.zeros((32, 4), np.float16), np.zeros(32, np.uint16)
    total = np.zeros(2, np.uint32)
    module = emulation.compile(NARROW, "cuda")
    module.launch_in_orders("narrow", 1, 32, 0, [values, halves, brains, total, 0.5])
    narrow = values.astype(np.float16)
    with np.errstate(over="ignore"):
        wanted = np.stack([narrow[:, 0], narrow[:, 1] + np.float16(1), narrow[:, 2] * narrow[:, 3],
                           (values[:, 3] * 0.5).astype(np.float16)], axis=1)
    np.testing.assert_array_equal(halves, wanted)
    bits = values[:, 0].view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    np.testing.assert_array_equal(brains, rounded.astype(np.uint16))
    np.testing.assert_array_equal(total, [32, 31])


PRODUCT = """
extern "C" __global__ void product(const unsigned short* a, const unsigned short* b, float* c) {
    __shared__ __align__(16) unsigned short left[256];
    int lane = threadIdx.x;
    unsigned to = (unsigned)__cvta_generic_to_shared(left + lane * 8);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\\n"
                 "cp.async.commit_group;\\n" :: "r"(to), "l"(a + lane * 8) : "memory");
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    unsigned x[4], y[2], from;
    from = (unsigned)__cvta_generic_to_shared(left + lane % 16 * 16 + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
    y[0] = ((const unsigned*)b)[lane / 4 * 8 + lane % 4];
    y[1] = ((const unsigned*)b)[lane / 4 * 8 + lane % 4 + 4];
    float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int at = 0; at < 4; at++)
        c[(lane / 4 + at / 2 * 8) * 8 + lane % 4 * 2 + at % 2] = d[at];
}
"""


def launch_product(text: str) -> tuple[np.ndarray, np.ndarray]:
    """The product that the kernel gave, and the right one."""
    random = np.random.default_rng(5)
    a = random.integers(-4, 5, (16, 16)).astype(np.float16)
    b = random.integers(-4, 5, (16, 8)).astype(np.float16)
    c = np.zeros((16, 8), np.float32)
    arguments: Sequence[Argument] = [a, np.ascontiguousarray(b.T), c]
    emulation.compile(text, "cuda").launch_in_orders("product", 1, 32, 0, arguments)
    return c, a.astype(np.float32) @ b.astype(np.float32) + 1


def test_a_matrix_product_of_a_warp_with_asynchronous_copies() -> None:
    given, right = launch_product(PRODUCT)
    np.testing.assert_array_equal(given, right)


def test_a_copy_that_is_not_waited_for_does_not_arrive() -> None:
    given, _ = launch_product(PRODUCT.replace('asm volatile("cp.async.wait_group 0;");', ""))
    assert np.isnan(given).all()


def test_a_copy_spoils_its_target_until_it_arrives() -> None:
    """What was there before may be gone: whoever reads it too early must not get away with it."""
    filled = PRODUCT.replace("    unsigned to =", "    for (int at = lane; at < 256; at += 32) "
                             "left[at] = a[at];\n    __syncthreads();\n    unsigned to =")
    given, right = launch_product(filled)
    np.testing.assert_array_equal(given, right)
    given, _ = launch_product(filled.replace('asm volatile("cp.async.wait_group 0;");', ""))
    assert np.isnan(given).all()


@pytest.mark.parametrize(("source", "first"), [
    (REDUCTION, 75), (REVERSAL, 75), (DIVERGENT, 75), (WARP, 80), (PRODUCT, 80),
], ids=["reduction", "reversal", "divergent", "warp", "product"])
def test_the_real_compiler_takes_what_is_emulated(source: str, first: int) -> None:
    """The sources of these tests are CUDA, and not only what the emulator makes of it."""
    try:
        images = nvrtc.check(source, [each for each in nvrtc.ARCHITECTURES if each >= first])
    except emulation.Unavailable as reason:
        pytest.skip(str(reason))
    assert all(image.startswith(b"\x7fELF") for image in images.values())


def test_the_real_compiler_refuses_with_a_line() -> None:
    try:
        nvrtc.check(REDUCTION, (75,))
    except emulation.Unavailable as reason:
        pytest.skip(str(reason))
    with pytest.raises(emulation.CompileError, match=r"sm_75: kernel.cu\(6\): error"):
        nvrtc.check(REDUCTION.replace("__ldg(values + at)", "nothing"), (75,))


@pytest.mark.parametrize(("text", "words"), [
    ("int nothing;", "no kernel in the source"),
    (REDUCTION.replace("__ldg(values + at)", "nothing"), "kernel.cu:6:.*nothing"),
    (PRODUCT.replace("cp.async.wait_group 0", "no.such.thing"), "kernel.cu:8:.*no_such_thing"),
    (PRODUCT.replace("cp.async.wait_group 0", "bar.sync %0"), "kernel.cu:8: .* names an operand"),
    (PRODUCT.replace("cp.async.wait_group 0", "@p bra done"), "kernel.cu:8: .*'@p bra done'"),
])
def test_sources_that_are_wrong(text: str, words: str) -> None:
    with pytest.raises(emulation.CompileError, match=words):
        emulation.compile(text, "cuda")


ARRAY = np.zeros(1, np.float32)


@pytest.mark.parametrize(("kernel", "lanes", "arguments", "words"), [
    ("add", 1, [], "no kernel 'add'; there is sum"),
    ("sum", 1, [ARRAY, ARRAY], "takes 3 arguments, and 2 were given"),
    ("sum", 1, [ARRAY, 7, 1], "argument 1 is a pointer, and 7 is no array"),
    ("sum", 1, [ARRAY, ARRAY, 0.5], "argument 2 is 0.5; the kernel takes 4 bytes of kind 'i'"),
    ("sum", 1, [np.zeros((4, 4))[:, 0], ARRAY, 1], "argument 0 is an array with gaps"),
    ("sum", 1025, [ARRAY, ARRAY, 1], "a group has 1 to 1024 lanes"),
])
def test_launches_that_are_refused(kernel: str, lanes: int, arguments: list[Argument],
                                   words: str) -> None:
    module = emulation.compile(REDUCTION, "cuda")
    with pytest.raises(emulation.EmulationError, match=words):
        module.launch(kernel, 1, lanes, 0, arguments)


def test_languages_and_orders_have_names() -> None:
    with pytest.raises(ValueError, match="language 'opencl'"):
        emulation.compile(REDUCTION, "opencl")
    with pytest.raises(ValueError, match="order 'backward'"):
        emulation.compile(REDUCTION, "cuda").launch("sum", 1, 1, 0, [ARRAY, ARRAY, 1], "backward")


@pytest.mark.skipif(not PAGE.is_file(), reason="needs a source checkout")
def test_the_page_tells_the_truth() -> None:
    assert run_text(PAGE.read_text(encoding="utf-8"), str(PAGE)) == 4


def test_a_compiler_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    building.compiler.cache_clear()
    try:
        assert "needs g++" in emulation.unavailable()
    finally:
        monkeypatch.undo()
        building.compiler.cache_clear()
