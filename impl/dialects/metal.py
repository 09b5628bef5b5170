"""The Metal dialect: address spaces, and no doubles. Chapter: spec/metal.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl.dialects.gpu import Gpu
from impl.dialects.units import SIMDGROUP
from impl.dtypes import HALF, DType, dtypes
from impl.functions.types import INLINE, SIZES, TYPES
from impl.functions.words import Words
from impl.ir import UOp
from impl.kernel.fragments import Unit
from impl.render.dialect import Taken

#: Where the buffers of a kernel stand: its arguments, what phases share, and the values.
ARGUMENTS, SCRATCH, VALUES = 29, 29, 30
#: The most lanes that a group is asked to have.
LANES = 256
_HALF = {each.name for each in HALF}


class Metal(Gpu):  # r[impl metal.space.named+2]
    """Metal Shading Language. Every pointer says in which memory it points."""

    name = "METAL"
    header = "#include <metal_stdlib>\nusing namespace metal;"
    lacks = frozenset((dtypes.float64,))
    together = ("place", "places")  # `thread` is a word of the language
    words: Words = {**Gpu.words, "private": "thread int"}
    own = {
        "bits_f32": "#define bits_f32(x) as_type<int>(x)",
        "unbits_f32": "#define unbits_f32(x) as_type<float>(x)",
        "to_float16": "#define to_float16(x) as_type<ushort>((half)(x))",
        "from_float16": "#define from_float16(x) ((float)as_type<half>((ushort)(x)))",
        "fence": "#define fence()",
        **SIMDGROUP,
    }

    def signature(self, phased: bool) -> str:
        """A kernel with its parameters, known once it is printed; and with memory that all groups
        share. The phase is the last of the values.
        """
        lanes = LANES if phased else self.lanes
        more = [f"device char *scratch [[buffer({SCRATCH})]]"] if phased else []
        words = [*self.given, *more, f"constant long *values [[buffer({VALUES})]]",
                 "uint group_ [[threadgroup_position_in_grid]]",
                 "uint lane_ [[thread_position_in_threadgroup]]",
                 "uint lanes_ [[threads_per_threadgroup]]",
                 "uint groups_ [[threadgroups_per_grid]]"]
        return (f"[[max_total_threads_per_threadgroup({lanes})]] "
                f"kernel void {{name}}({', '.join(words)})")

    def begin(self) -> None:
        """Forget the declarations and the parameters of the last kernel."""
        super().begin()
        self.variables = 0

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """A parameter; one buffer is one parameter, also where it is read as two types."""
        kind = "device " + ("" if written else "const ") + self.storage_of(param.dtype)
        if param.arg in self.parameters:
            return f"{kind} *{name} = ({kind} *)p{param.arg};"
        self.given.append(f"{kind} *{name} [[buffer({len(self.given)})]]")
        self.parameters.append(param.arg)
        return ""

    def variable(self, name: str, position: int, dtype: DType) -> str:
        """A run-time integer, one of the values."""
        self.variables += 1
        return f"const long {name} = values[{self.variables - 1}];"

    def exchanging(self, kind: str) -> str:
        """Metal exchanges up to 32 bits; longer integers go in two halves."""
        if SIZES[kind] == 8:
            return (f"{INLINE}{TYPES[kind]} exchange_{kind}({TYPES[kind]} x, ushort by) {{\n"
                    "  uint2 h = as_type<uint2>(x);\n"
                    "  h.x = simd_shuffle_xor(h.x, by); h.y = simd_shuffle_xor(h.y, by);\n"
                    f"  return as_type<{TYPES[kind]}>(h);\n}}")
        given = f"({TYPES[kind]})simd_shuffle_xor((int)(x), by)" if SIZES[kind] < 4 \
            else "simd_shuffle_xor(x, by)"
        return f"#define exchange_{kind}(x, by) {given}"

    def ids(self, variables: int) -> str:
        """The numbers of this lane, and of the phase if there is one."""
        return (f"const {self.index} group = group_, lane = lane_, place = group * lanes_ + lane, "
                f"places = ({self.index})groups_ * lanes_, phase = values[{variables}];")

    widest = 4

    def wide_type(self, dtype: DType, count: int) -> str:
        """A packed vector may lie wherever one of its elements may."""
        kind = self.storage_of(dtype)
        return f"packed_{kind.replace('unsigned ', 'u').replace('signed ', '')}{count}"

    def _wide_place(self, pointer: str, index: str, kind: str, local: bool) -> str:
        return f"*({'threadgroup' if local else 'device'} {kind} *)({pointer} + {index})"

    def wide_value(self, pointer: str, index: str, dtype: DType, count: int, local: bool) -> str:
        """A packed vector in memory."""
        kind = self.wide_type(dtype, count)
        return self._wide_place(pointer, index, kind if local else f"const {kind}", local)

    def wide_zero(self, dtype: DType, count: int) -> str:
        """All elements zero."""
        return f"{self.wide_type(dtype, count)}(0)"

    def wide_part(self, name: str, place: int) -> str:
        """An element."""
        return f"{name}[{place}]"

    def wide_write(self, pointer: str, index: str, dtype: DType, values: Sequence[str],
                   local: bool) -> str:
        """A packed vector of the values."""
        kind = self.wide_type(dtype, len(values))
        return f"{self._wide_place(pointer, index, kind, local)} = {kind}({', '.join(values)});"

    def bitcast(self, name: str) -> str:
        """Metal has words for that; half types are 16 bits, and sums of chars are of type int."""
        source, target = name.removeprefix("bitcast_").split("_")
        one, two = ("ushort" if each in _HALF else TYPES[each].replace("unsigned ", "u").replace(
            "signed char", "char") for each in (source, target))
        taken = f"to_{source}(x)" if source in _HALF else "(x)"
        text = f"as_type<{two}>(({one}){taken})"
        return f"#define {name}(x) " + (f"from_{target}({text})" if target in _HALF else text)

    def group_local(self, name: str, dtype: DType, size: int) -> str:
        """An array that the lanes of a group share."""
        return f"threadgroup {self.storage_of(dtype)} {name}[{max(size, 1)}];"

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """An array in the memory that all groups share."""
        kind = self.storage_of(dtype)
        return f"device {kind} *{name} = (device {kind} *)(scratch + {offset});"

    def wait(self) -> str:
        """All lanes of a group get here before one goes on."""
        return "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);"

    def lead(self, taken: Taken) -> str:
        """Each lane takes its own elements."""
        return ""

    def take(self, taken: Taken, names: Sequence[str], place: str) -> list[str]:
        """Element by element."""
        half = taken.unit.dtype is dtypes.float16
        kind, function = ("half", "as_type<half>") if half else ("float", "")
        return [f"const {kind} {name} = {function}({taken.pointer}[{place} + {offset}]);"
                for name, offset in zip(names, taken.offsets(), strict=True)]

    def multiply(self, unit: Unit, sums: Sequence[str], first: Sequence[str],
                 second: Sequence[str]) -> str:
        """A product of matrices of the SIMD group."""
        return self._call(f"multiply_{unit.name}", *sums, *first, *second) + ";"
