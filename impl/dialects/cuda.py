"""The CUDA dialect, for NVRTC, without any header. Chapter: spec/cuda.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl.dialects.gpu import Gpu
from impl.dialects.units import NVIDIA, is_turned, lines_of_matrices, loader_name
from impl.dtypes import DType
from impl.functions.types import SIZES, TYPES
from impl.functions.words import Words
from impl.ir import UOp
from impl.kernel.fragments import Unit
from impl.render.dialect import Taken

#: How many bytes a type of C has.
SIZE_OF = {text: SIZES[kind] for kind, text in TYPES.items()}

#: The most lanes for which a compiler may take as many registers as there are.
_UNBOUNDED = 256
#: Lanes that a processor of the GPU has at a time, if they multiply matrices: while some wait for
#: memory, others multiply.
_BESIDE = 512


def copies_of_nvidia(capability: int) -> tuple[int, ...]:
    """Bytes of the copies to local memory that go on by themselves; `capability` is 80 for sm_80.
    """
    # r[impl cuda.text.legal]
    return (4, 8, 16) if capability >= 80 else ()


class CUDA(Gpu):  # r[impl cuda.text.legal]
    """CUDA C++ as NVRTC takes it on systems where a long has 64 bits."""

    name = "CUDA"
    words: Words = {
        **Gpu.words, "inline": "static __device__ __forceinline__",
        "apart": "static __device__ __noinline__",
        "library_f32": "%sf",  # NVRTC has C's functions under C's names
        "inf_f32": "__int_as_float(0x7f800000)",
        "inf_f64": "__longlong_as_double(0x7ff0000000000000LL)",
        "nan_f32": "__int_as_float(0x7fc00000)",
        "nan_f64": "__longlong_as_double(0x7ff8000000000000LL)"}
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
        **NVIDIA,
    }

    def __init__(self, architecture: int = 80) -> None:
        super().__init__()
        self.ahead = copies_of_nvidia(architecture)

    def signature(self, phased: bool) -> str:
        """A kernel with its parameters, known once it is printed; and with the phase, and memory
        that all groups share.
        """
        if phased:
            given = [*self.given, "const long phase", "char *scratch"]
            return f'extern "C" __global__ void {{name}}({", ".join(given)})'
        bounds = f"__launch_bounds__({self.lanes}) " if self.lanes > _UNBOUNDED else ""
        if any(name.startswith("multiply_") for name in self.needed):  # tiles that leave no rest
            bounds = f"__launch_bounds__({self.lanes}, {max(_BESIDE // self.lanes, 1)}) "
        return f'extern "C" __global__ void {bounds}{{name}}({", ".join(self.given)})'

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """A parameter."""
        self.parameters.append(param.arg)
        kind = ("" if written else "const ") + self.storage_of(param.dtype)
        self.given.append(f"{kind} *{name}")
        return ""

    def variable(self, name: str, position: int, dtype: DType) -> str:
        """A parameter."""
        self.given.append(f"const long {name}")
        return ""

    def exchanging(self, kind: str) -> str:
        """Types of 32 and 64 bits are exchanged as they are, shorter ones as int."""
        given = f"({TYPES[kind]})__shfl_xor_sync(0xffffffffu, (int)(x), by)" \
            if SIZES[kind] < 4 else "__shfl_xor_sync(0xffffffffu, x, by)"
        return f"#define exchange_{kind}(x, by) {given}"

    def aligned(self, pointer: str) -> str:
        """An argument may begin anywhere. If it begins in between, elements go one by one."""
        # r[impl dialects.wide.aligned]
        return f"const bool w{pointer} = ((unsigned long){pointer} & 15) == 0;"

    def wide_type(self, dtype: DType, count: int) -> str:
        """A structure that the hardware moves at once."""
        name = f"{self.storage_of(dtype)} by {count}"
        self.needed[name] = None
        return name.replace(" ", "_")

    def wide_value(self, pointer: str, index: str, dtype: DType, count: int, local: bool) -> str:
        """A call."""
        return (f"load_{self.wide_type(dtype, count)}({pointer} + {index}, "
                f"{self._aligned_name(pointer)})")

    def _aligned_name(self, pointer: str) -> str:
        """Whether a pointer is aligned; what passes between stages always is."""
        return f"w{pointer}" if pointer.startswith("p") else "true"

    def wide_zero(self, dtype: DType, count: int) -> str:
        """All elements zero."""
        return "{}"

    def wide_part(self, name: str, place: int) -> str:
        """An element."""
        return f"{name}.a[{place}]"

    def wide_write(self, pointer: str, index: str, dtype: DType, values: Sequence[str],
                   local: bool) -> str:
        """A call."""
        kind = self.wide_type(dtype, len(values))
        given = ", ".join([f"{pointer} + {index}", self._aligned_name(pointer), *values])
        return f"store_{kind}({given});"

    def definition(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Those of wide accesses are the language's own."""
        kind, _, count = name.partition(" by ")
        if kind.startswith("ahead "):
            return _ahead(kind.removeprefix("ahead "), int(count)), ()
        return (_wide(kind, int(count)), ()) if count else super().definition(name)

    def copy_ahead(self, to: tuple[str, str], source: tuple[str, str], dtype: DType, count: int,
                   condition: str) -> str:
        """cp.async; where the argument is not aligned, the lane copies by itself."""
        # r[impl render.copy.ahead, cuda.text.legal]
        name = f"ahead {self.storage_of(dtype)} by {count}"
        self.needed[name] = None
        whole = self._aligned_name(source[0]) if count > 1 else "true"
        return (f"{name.replace(' ', '_')}({' + '.join(to)}, {source[0]}, {source[1]}, "
                f"{condition or 'true'}, {whole});")

    def bundle(self) -> str:
        """A group of copies."""
        return 'asm volatile("cp.async.commit_group;" ::: "memory");' if self._copies() else ""

    def arrive(self, open: int) -> str:
        """All groups but the last ones."""
        return f'asm volatile("cp.async.wait_group {open};" ::: "memory");' \
            if self._copies() else ""

    def _copies(self) -> bool:
        """Whether the kernel has begun such a copy so far."""
        return any(name.startswith("ahead ") for name in self.needed)

    def ids(self, variables: int) -> str:
        """The numbers of this lane."""
        return (f"const {self.index} group = blockIdx.x, lane = threadIdx.x, "
                "thread = group * blockDim.x + lane, "
                f"threads = ({self.index})gridDim.x * blockDim.x;")

    def group_local(self, name: str, dtype: DType, size: int) -> str:
        """An array that the lanes of a group share."""
        return f"__shared__ __align__(16) {self.storage_of(dtype)} {name}[{max(size, 1)}];"

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """An array in the memory that all groups share."""
        kind = self.storage_of(dtype)
        return f"{kind} *{name} = ({kind} *)(scratch + {offset});"

    def wait(self) -> str:
        """All lanes of a group get here before one goes on."""
        return "__syncthreads();"

    def lead(self, taken: Taken) -> str:
        """Lanes bring lines of 16 bytes for each other."""
        return lines_of_matrices(taken) if taken.unit.word > 1 else ""

    def take(self, taken: Taken, names: Sequence[str], place: str) -> list[str]:
        """Matrices of 8 x 8 elements of 16 bits at once; elements of 32 bits one by one."""
        if taken.unit.word > 1:
            function = loader_name(len(names), is_turned(taken))
            return [f"unsigned int {', '.join(names)};",
                    self._call(function, *names, f"{taken.pointer} + ({place})") + ";"]
        return [f"const unsigned int {name} = "
                f"{self._call('to_tf32', f'{taken.pointer}[{place} + {offset}]')};"
                for name, offset in zip(names, taken.offsets(), strict=True)]

    def multiply(self, unit: Unit, sums: Sequence[str], first: Sequence[str],
                 second: Sequence[str]) -> str:
        """An instruction of the whole warp."""
        return self._call(f"multiply_{unit.name}", *sums, *first, *second) + ";"

_INLINE = CUDA.words["inline"] + " "


def _ahead(kind: str, count: int) -> str:
    """How so many elements are copied to local memory while the lane goes on."""
    size = SIZE_OF[kind] * count
    way = "cg" if size == 16 else "ca"  # past the first cache, which only that size may
    return f"""{_INLINE}void ahead_{kind.replace(' ', '_')}_by_{count}({kind} *to,
    const {kind} *p, long at, bool valid, bool whole) {{
  if (!whole) {{
    for (int i = 0; i < {count}; i++) to[i] = valid ? p[at + i] : ({kind})0;
    return;
  }}
  asm volatile("cp.async.{way}.shared.global [%0], [%1], {size}, %2;"
    :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(valid ? p + at : p),
    "r"(valid ? {size} : 0) : "memory");
}}"""


def _wide(kind: str, count: int) -> str:
    """A structure of so many elements, and how it is loaded and stored."""
    name = f"{kind} by {count}".replace(" ", "_")
    given = ", ".join(f"{kind} e{place}" for place in range(count))
    single = " ".join(f"p[{place}] = e{place};" for place in range(count))
    return f"""struct __align__({SIZE_OF[kind] * count}) {name} {{ {kind} a[{count}]; }};
{_INLINE}{name} load_{name}(const {kind} *p, bool whole) {{
  {name} v; if (whole) return *(const {name} *)p;
  for (int i = 0; i < {count}; i++) v.a[i] = p[i];
  return v;
}}
{_INLINE}void store_{name}({kind} *p, bool whole, {given}) {{
  if (whole) {{ {name} v = {{{{{', '.join(f'e{place}' for place in range(count))}}}}};
    *({name} *)p = v; }} else {{ {single} }}
}}"""
