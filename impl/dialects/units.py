"""Functions that fetch fragments of matrices and multiply them. Chapter: spec/dialects.md.

What they are given, `render.matrices` says: registers in the order of the unit.
"""
from __future__ import annotations

from impl.kernel.fragments import UNIT_OF, Unit
from impl.render.dialect import Taken

#: How PTX calls the types of operands.
_PTX = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}


def lines_of_matrices(taken: Taken) -> str:
    """Which line of local memory a lane brings: how far it is from the lane's first element.

    Eight lanes bring the lines of a matrix of 8 x 8, the next eight those of the next one. If the
    lines go across the fragment's pairs, each matrix is turned on its way.
    """
    (eight, four), (*apart, pair) = taken.lanes, taken.elements
    parts = [f"lane % 8 * {pair if is_turned(taken) else eight}"]
    number = 8 * taken.words
    for (size, _, _), step in zip(taken.fragment.elements, apart, strict=False):
        number //= size
        parts.append(f"lane / {number} % {size} * {step}")
    return " + ".join(parts) + f" - lane / 4 % 8 * {eight} - lane % 4 * {four}"


def is_turned(taken: Taken) -> bool:
    """Whether the two elements of a register lie in different lines of local memory."""
    return taken.elements[-1] != 1


def matrix_loader(count: int, turned: bool) -> str:
    """A function that fetches some matrices of 8 x 8 elements of 16 bits: a register of each."""
    to = ", ".join(f"%{i}" for i in range(count))
    names = ", ".join(f"unsigned int &a{i}" for i in range(count))
    found = ", ".join(f'"=r"(a{i})' for i in range(count))
    return (f"static __device__ __forceinline__ void {loader_name(count, turned)}"
            f"({names}, const unsigned short *at) {{\n"
            f'  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{".trans" * turned}.shared.b16 '
            f'{{{to}}}, [%{count}];"\n    : {found} '
            ': "r"((unsigned int)__cvta_generic_to_shared(at)) : "memory");\n}')


def loader_name(count: int, turned: bool) -> str:
    """How that function is called."""
    return f"take_{'turned_' * turned}{count}"


def matrix_product(unit: Unit) -> str:
    """A function that adds a product to four sums, by one instruction of the warp."""
    first, second = (part.size // unit.word for part in (unit.first, unit.second))
    sums = unit.sum.size
    places = iter(range(sums + first + second))
    d, a, b = (", ".join(f"%{next(places)}" for _ in range(n)) for n in (sums, first, second))
    shape, kind = f"m{unit.rows}n{unit.columns}k{unit.depth}", _PTX[unit.dtype.name]
    given = [*(f"float &d{i}" for i in range(sums)),
             *(f"unsigned int a{i}" for i in range(first)),
             *(f"unsigned int b{i}" for i in range(second))]
    read = ", ".join(f'"r"({name.split()[-1]})' for name in given[sums:])
    written = ", ".join(f'"+f"(d{i})' for i in range(sums))
    return (f"static __device__ __forceinline__ void multiply_{unit.name}({', '.join(given)}) {{\n"
            f'  asm volatile("mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 "\n'
            f'    "{{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"\n    : {written}\n    : {read});\n}}')


#: The functions that fetch fragments and multiply them on NVIDIA's GPUs.
NVIDIA = {
    **{loader_name(n, turned): matrix_loader(n, turned)
       for n in (1, 2, 4) for turned in (False, True)},
    **{f"multiply_{unit.name}": matrix_product(unit) for unit in UNIT_OF.values()
       if unit.name.startswith("m16n8")},
    "to_tf32": """static __device__ __forceinline__ unsigned int to_tf32(float x) {
  unsigned int y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)); return y;
}""",
}


def _simdgroup(name: str, kind: str) -> str:
    """A function that adds a product of two matrices of a SIMD group to a third one."""
    return f"""static inline void multiply_simdgroup_{name}(thread float &d0, thread float &d1,
    {kind} a0, {kind} a1, {kind} b0, {kind} b1) {{
  simdgroup_matrix<{kind}, 8, 8> a, b;
  simdgroup_float8x8 d;
  a.thread_elements()[0] = a0; a.thread_elements()[1] = a1;
  b.thread_elements()[0] = b0; b.thread_elements()[1] = b1;
  d.thread_elements()[0] = d0; d.thread_elements()[1] = d1;
  simdgroup_multiply_accumulate(d, a, b, d);
  d0 = d.thread_elements()[0]; d1 = d.thread_elements()[1];
}}"""


#: The same for GPUs under Metal.
SIMDGROUP = {"multiply_simdgroup_float16": _simdgroup("float16", "half"),
             "multiply_simdgroup_float32": _simdgroup("float32", "float")}
