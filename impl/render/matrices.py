"""How a kernel takes fragments of matrices and multiplies them. Chapter: spec/render.md.

An MMA and its two operands become calls of small functions. What these are, a language says; here
is which registers they get: one for each `word` elements of a fragment, in the order of the unit.
"""
from __future__ import annotations

from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.kernel.analysis import growth
from impl.kernel.fragments import UNIT_OF, Unit, loops_of
from impl.render.dialect import Dialect, Taken
from impl.render.lower import Lowered
from impl.render.values import Values


class Matrices(Values):
    """Prints fragments and products."""

    def __init__(self, low: Lowered, dialect: Dialect, kept: frozenset[UOp]) -> None:
        super().__init__(low, dialect, kept)
        #: The registers of each operand, by the values of the lanes that it has besides its own.
        self.fragments: dict[UOp, tuple[tuple[UOp, ...], dict[tuple[int, ...], list[str]]]] = {}

    def _is_fragment(self, load: UOp) -> bool:
        """Whether a load is an operand of an MMA."""
        user = self.low.single.get(load)
        return user is not None and user.op is Ops.MMA and load in user.src[:2]

    def _take_fragment(self, load: UOp) -> None:
        """The registers of an operand, for each of its tiles."""
        # r[impl render.mma.registers]
        user = self.low.single[load]
        assert self.groups is not None
        unit, (lanes, *elements) = UNIT_OF[user.arg], loops_of(user)
        side = user.src.index(load)
        access, own = self.low.access[load.src[0]], elements[side]
        grows = growth(access.base.toposort(), lanes)[access.base] or {}
        taken = Taken(unit, (unit.first, unit.second)[side], self.names[load.src[0].src[0]],
                      tuple(grows.get(r, 0) for r in lanes),
                      tuple(access.steps.get(r, 0) for r in own))
        tiles = tuple(r for r in self.low.lanes(load) if r not in own)
        lead = self.groups.lead(taken)
        if lead:
            name = self._fresh("r", 1)[0]
            self._line(self.dialect.constant("long", name, lead))
            lead = f" + {name}"
        found = {}
        base = self._text(access.base, (), [()])[0]
        for values in self._combinations(tiles):
            start = sum(v * access.steps.get(r, 0) for v, r in zip(values, tiles, strict=True))
            found[values] = self._fresh("f", taken.words)
            place = f"{base} + {start}{lead}" if start else base + lead
            for line in self.groups.take(taken, found[values], place):
                self._line(line)
        self.fragments[load] = tiles, found

    def _multiply_fragments(self, node: UOp) -> None:
        """Sums with a product added, a call for each of the tiles."""
        assert self.groups is not None
        unit, (_, _, _, elements) = UNIT_OF[node.arg], loops_of(node)
        wide = self._wide(node)
        at = self._combinations(wide)
        before = node.src[2]
        if before.op is Ops.MMA and self.low.users[before] == 1:
            names = self.texts[before]  # nobody else needs what they were
        else:
            names = self._fresh("s", len(at))
            for name, text in zip(names, self._text(before, wide, at), strict=True):
                self._line(self.dialect.changing(self.dialect.type_of(dtypes.float32), name, text))
        tiles = tuple(r for r in wide if r not in elements)
        named = {tuple(values[wide.index(r)] for r in (*tiles, *elements)): name
                 for values, name in zip(at, names, strict=True)}
        for values in self._combinations(tiles):
            sums = [named[(*values, *of)] for of in self._combinations(elements)]
            factors = [found[tuple(values[tiles.index(r)] for r in own)]
                       for own, found in (self.fragments[f] for f in node.src[:2])]
            self._line(self.groups.multiply(unit, sums, *factors))
        self.texts[node] = names


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
