"""The CUDA dialect, for NVRTC, without any header. Chapter: spec/cuda.md."""
from __future__ import annotations

from impl.dtypes import DType
from impl.ir import UOp
from impl.render.gpu import Gpu
from impl.render.types import SIZES, TYPES

#: The most lanes for which a compiler may take as many registers as there are.
_UNBOUNDED = 256


# --8<-- [start:dialect]
class CUDA(Gpu):  # r[impl cuda.text.plain]
    """CUDA C++ as NVRTC takes it on systems where a long has 64 bits."""

    name = "CUDA"
    inline = "static __device__ __forceinline__ "
    words = (
        ("static __attribute__((noinline)) ", "static __device__ __noinline__ "),
        ("static const unsigned", "const unsigned"),
        ("__builtin_inff()", "__int_as_float(0x7f800000)"),
        ("__builtin_inf()", "__longlong_as_double(0x7ff0000000000000LL)"),
        ('__builtin_nanf("")', "__int_as_float(0x7fc00000)"),
        ('__builtin_nan("")', "__longlong_as_double(0x7ff8000000000000LL)"),
        ("__builtin_", ""))
    own = {
        "bits_f32": "#define bits_f32(x) __float_as_int(x)",
        "unbits_f32": "#define unbits_f32(x) __int_as_float(x)",
        "fma_f32": "#define fma_f32(a, b, c) __fmaf_rn(a, b, c)",
        "fma_f64": "#define fma_f64(a, b, c) __fma_rn(a, b, c)",
        "fence": "#define fence() __threadfence()",
        # What the hardware converts needs no type of a header.
        "to_float16": """static __device__ __forceinline__ unsigned short to_float16(float x) {
  unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h;
}""",
        "from_float16": """static __device__ __forceinline__ float from_float16(unsigned short h) {
  float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x;
}""",
    }

    @property
    def signature(self) -> str:
        """A kernel with its parameters, known once it is printed."""
        bounds = f"__launch_bounds__({self.lanes}) " if self.lanes > _UNBOUNDED else ""
        return f'extern "C" __global__ void {bounds}{{name}}({", ".join(self.given)})'

    @property
    def threaded(self) -> str:
        """The same with the phase, and memory that all groups share."""
        given = [*self.given, "const long phase", "char *scratch"]
        return f'extern "C" __global__ void {{name}}({", ".join(given)})'

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """A parameter."""
        self.parameters.append(param.arg)
        kind = ("" if written else "const ") + self.storage_of(param.dtype)
        self.given.append(f"{kind} *{name}")
        return ""

    def variable(self, name: str, position: int) -> str:
        """A parameter."""
        self.given.append(f"const long {name}")
        return ""

    def library(self, text: str, name: str) -> str:
        """NVRTC has C's functions under C's names."""
        return text

    def exchanging(self, kind: str) -> str:
        """Types of 32 and 64 bits are exchanged as they are, shorter ones as int."""
        given = f"({TYPES[kind]})__shfl_xor_sync(0xffffffffu, (int)(x), by)" \
            if SIZES[kind] < 4 else "__shfl_xor_sync(0xffffffffu, x, by)"
        return f"#define exchange_{kind}(x, by) {given}"

    def ids(self) -> str:
        """The numbers of this lane."""
        return ("const long group = blockIdx.x, lane = threadIdx.x, "
                "thread = group * blockDim.x + lane, threads = (long)gridDim.x * blockDim.x;")

    def group_local(self, name: str, dtype: DType, size: int) -> str:
        """An array that the lanes of a group share."""
        return f"__shared__ {self.storage_of(dtype)} {name}[{max(size, 1)}];"

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """An array in the memory that all groups share."""
        kind = self.storage_of(dtype)
        return f"{kind} *{name} = ({kind} *)(scratch + {offset});"

    def wait(self) -> str:
        """All lanes of a group get here before one goes on."""
        return "__syncthreads();"
# --8<-- [end:dialect]
