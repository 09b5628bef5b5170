"""Dialects for devices with work-groups. Chapter: spec/dialects.md.

`Gpu` is C without what only CPU compilers have: no vector types, no builtins, no half type, and no
signed overflow, which C leaves undefined. A language differs from it in a table of words, in how a
kernel begins, and in what a lane is called; see `opencl` for the first one.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from impl.dialects.c import C
from impl.dialects.vectors import INFIX
from impl.dtypes import HALF, DType, Scalar, dtypes
from impl.errors import GraphError
from impl.functions.definitions import definitions, needs_of, open_text
from impl.functions.literals import literal
from impl.functions.types import INLINE, SHORT, TYPES
from impl.functions.words import C_WORDS, FLOAT_ANGLE, Words, worded
from impl.ir import Ops
from impl.render.dialect import GroupDialect, Launched

#: Signed integers wrap around: these are computed as unsigned ones.
_WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL)
#: What stands for a number of a half type in memory.
_STORED = "unsigned short"

#: Conversions that need no half type; NaN stays NaN, and each rounds once, to even.
_HALF = {
    "to_float16": "unsigned short to_float16(float x) { return (unsigned short)half_f32(x); }",
    "from_float16": "float from_float16(unsigned short x) { return unhalf_f32(x); }",
    # Rounded to odd first, so that rounding again is as rounding once.
    "odd_f64": """float odd_f64(double x) {
  float f = (float)x;
  if ((double)f == x || x != x) return f;
  unsigned int b = (unsigned int)bits_f32(f), up = (f < 0.0f ? (double)f < x : (double)f > x);
  return unbits_f32((int)((b - up) | 1u));
}""",
}
#: The definitions that a language has made, by what they depend on.
_MADE: dict[tuple[type[Gpu], frozenset[DType], str], tuple[str, tuple[str, ...]]] = {}
_PLAIN = {"fence": ""}


class Gpu(C):
    """What the dialects for work-groups share. See `Dialect` for what the methods do."""

    name = "GPU"
    #: Whether signed integers wrap around in the language itself.
    wraps = False
    #: What the language says where texts of functions leave it open.
    words: Words = {
        **C_WORDS, "inline": "static inline", "apart": "static", "table": "const",
        "library_f32": "%s", "library_f64": "%s", "inf_f32": "INFINITY",
        "inf_f64": "((double)INFINITY)", "nan_f32": "NAN", "nan_f64": "((double)NAN)"}
    #: Definitions that differ from those of C.
    own: dict[str, str] = {}
    #: What begins a unit of kernels.
    header = ""
    #: How the number of a lane among all groups is called, and how many these are.
    together = ("thread", "threads")

    def __init__(self) -> None:
        super().__init__()
        self.lanes = 1
        self.index = "long"  # the type of indices, and of the numbers of lanes and groups
        self.parameters: list[int] = []
        self.given: list[str] = []

    @property
    def groups(self) -> GroupDialect | None:
        """What it adds to C."""
        return self  # type: ignore[return-value]  # each language has the rest

    def begin(self) -> None:
        """Forget the declarations and the parameters of the last kernel."""
        super().begin()
        self.parameters, self.given = [], []

    def indices(self, small: bool, wraps: bool) -> None:
        """As short as they may be, where no sum wraps around."""
        self.index = "int" if small else "long"

    def type_of(self, dtype: DType) -> str:
        """The type of a variable; indices are as wide as the kernel needs them."""
        return self.index if dtype is dtypes.index else super().type_of(dtype)

    def repeated(self) -> str:
        """Compilers of such languages decide on their own."""
        return ""

    def definitions(self) -> tuple[str, ...]:
        """The header, and the functions that the printed kernel needs, in the language's words."""
        return (self.header, *definitions(self.needed, self.definition))

    def definition(self, name: str) -> tuple[str, tuple[str, ...]]:
        """The text of a definition, and the names of those that it needs."""
        key = type(self), self.lacks, name
        if key not in _MADE:
            _MADE[key] = self._definition(name)
        return _MADE[key]

    def _definition(self, name: str) -> tuple[str, tuple[str, ...]]:
        text = self.own.get(name, _PLAIN.get(name))
        if text is None and name in _HALF:
            text = INLINE + _HALF[name]
        elif text is None and name.startswith("bitcast_"):
            text = self.bitcast(name)
        elif text is None and name.startswith("exchange_"):
            text = self.exchanging(name.removeprefix("exchange_"))
        elif text is None and name.startswith(("fma_", "fused_")):
            text = f"#define {name}(a, b, c) fma(a, b, c)"
        elif text is None:
            text = open_text(name)
        return self.worded(text), needs_of(name, text)

    def bitcast(self, name: str) -> str:
        """The function that takes the bits of one type as another one."""
        return INLINE + _bitcast(name)

    def exchanging(self, kind: str) -> str:
        """The function by which lanes of a warp exchange values of a type.

        Raises:
            GraphError: the language has none.
        """
        raise GraphError("render", f"lanes exchange values, which {self.name} has no word for",
                         "use LOCAL and not WARP")

    def worded(self, text: str) -> str:
        """A text in the words of the language."""
        # r[impl device.launch.refused+2]
        angle = {"angle": FLOAT_ANGLE} if dtypes.float64 in self.lacks else {}
        return worded(text, {**self.words, **angle})

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number that the compiler reads back exactly."""
        return literal(value, dtype, self.words)

    def _integer(self, op: Ops, dtype: DType, given: Sequence[str], plain: bool) -> str:
        """Signed integers wrap around, which C leaves open; indices stay in their range."""
        # r[impl conventions.integers.exact]
        if self.wraps or dtype is dtypes.index or (op not in _WRAPPING and op is not Ops.NEG):
            return super()._integer(op, dtype, given, plain)
        # Short integers are computed with as signed ones of 32 bits, unless they say otherwise.
        wide = "unsigned int" if dtype.itemsize < 8 else TYPES["u64"]
        one, *rest = (f"({wide}){text}" for text in given)
        text = f"(0u - {one})" if op is Ops.NEG else f"({one} {INFIX[op]} {rest[0]})"
        return f"(({self.type_of(dtype)}){text})"

    def _cast(self, text: str, source: DType, target: DType) -> str:
        if target is dtypes.float16 and source is dtypes.float64:
            return self._call("round_float16", self._call("odd_f64", text))
        return super()._cast(text, source, target)

    def storage_of(self, dtype: DType) -> str:
        """The type of an element in memory; half types are 16 bits."""
        return _STORED if dtype in HALF else self.type_of(dtype)

    def copied_load(self, pointer: str, index: str, dtype: DType) -> str:
        """An element as it lies in memory."""
        return f"{pointer}[{index}]"

    def copied_store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """Write an element as it is."""
        return self.assign(f"{pointer}[{index}]", value)

    def fetch(self, pointer: str, index: str, written: bool) -> str:
        """Lanes that wait for memory leave the processor to others."""
        return ""

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """An array that a lane has for itself."""
        return f"{self.storage_of(dtype)} {name}[{max(size, 1)}];"

    def own_scratch(self, total: int) -> int:
        """None: a lane has little memory, and all of it is its own."""
        return 0

    #: Elements of one access.
    widest = 16

    def aligned(self, pointer: str) -> str:
        """Nothing: an access of neighbours need not be aligned in most languages."""
        return ""

    def wide_load(self, name: str, pointer: str, index: str, dtype: DType, count: int,
                  local: bool, condition: str) -> list[str]:
        """A variable with neighbouring elements."""
        kind = self.wide_type(dtype, count)
        found = self.wide_value(pointer, index, dtype, count, local)
        return [self.changing(kind, name, found)] if not condition else \
            [self.changing(kind, name, self.wide_zero(dtype, count)),
             self.when(condition, self.assign(name, found))]

    def wide_element(self, name: str, place: int, dtype: DType, copied: bool) -> str:
        """An element of such a variable; `copied`: as it lies in memory."""
        text = self.wide_part(name, place)
        return self._call(f"from_{dtype.name}", text) if dtype in HALF and not copied else text

    def wide_store(self, pointer: str, index: str, dtype: DType, values: Sequence[str],
                   local: bool, copied: bool) -> str:
        """Store neighbours; `copied`: they are already as they lie in memory."""
        stored = [self._call(f"to_{dtype.name}", value) for value in values] \
            if dtype in HALF and not copied else list(values)
        return self.wide_write(pointer, index, dtype, stored, local)

    def wide_type(self, dtype: DType, count: int) -> str:
        """The type of a variable with so many elements as they lie in memory."""
        raise NotImplementedError

    def wide_value(self, pointer: str, index: str, dtype: DType, count: int, local: bool) -> str:
        """That many elements of memory; `local`: of the memory of a group."""
        raise NotImplementedError

    def wide_zero(self, dtype: DType, count: int) -> str:
        """That many zeros."""
        raise NotImplementedError

    def wide_part(self, name: str, place: int) -> str:
        """An element of a variable, as it lies in memory."""
        raise NotImplementedError

    def wide_write(self, pointer: str, index: str, dtype: DType, values: Sequence[str],
                   local: bool) -> str:
        """A statement that writes elements as they lie in memory."""
        raise NotImplementedError

    #: What a copy that is made early has in bytes, to go on by itself: most languages have no word.
    ahead: tuple[int, ...] = ()

    def copy_ahead(self, to: tuple[str, str], source: tuple[str, str], dtype: DType, count: int,
                   condition: str) -> str:
        """Begin a copy."""
        raise NotImplementedError

    def bundle(self) -> str:
        """Lanes make the copies themselves, and are done with them when they go on."""
        return ""

    def arrive(self, open: int) -> str:
        """There is nothing to wait for."""
        return ""

    def of_prefix(self, name: str, place: Launched) -> list[str]:
        """The lane has one iteration, or none if there are more lanes than iterations."""
        # r[impl dialects.group.once+2]
        lines, opened, index = [], self.opened(), place.first
        total = _product(place.shared)
        each = _over(total, place.lanes)
        if index == "group" and place.shared:
            index = f"(group / {each})"
        if index == "item" and place.place == 0:
            group = f"(group % {each})" if place.whole else "group"
            lines = [self.constant(self.index, "item", f"{group} * {place.lanes} + lane")]
            opened = self.opened(f"item < {total}")
        return [*lines, opened, "  " + self.constant(
            self.index, name, _digit(index, place.extents, place.place))]

    def of_lanes(self, name: str, place: Launched, threads: bool) -> list[str]:
        """As many iterations at a time as there are lanes."""
        index, total = f"x{place.first}", _product(place.extents)
        lane, lanes = self.together if threads else ("lane", str(place.lanes))
        value = _digit(index, place.extents, place.place)
        line = "  " + self.constant(self.index, name, value)
        if place.place:
            return [self.opened(), line]
        if not threads and total.isdecimal() and int(total) <= place.lanes:
            opened = self.opened(f"lane < {total}" if int(total) < place.lanes else "")
            return [opened, "  " + self.constant(self.index, index, "lane"), line]
        return [self.counted(index, lane, total, lanes), line]

    #: A word to the compiler.
    unrolls = "#pragma unroll"

    def unroll(self) -> str:
        """That word."""
        return self.unrolls

    def of_warp(self, name: str, extent: str) -> list[str]:
        """Warps begin at multiples of their width."""
        return [self.opened(), "  " + self.constant(self.index, name, f"lane % {extent}")]

    def exchange(self, value: str, dtype: DType, distance: int) -> str:
        """A function of the language. All lanes of the warp call it."""
        # r[impl dialects.exchange.all]
        return self._call(f"exchange_{SHORT[dtype.name]}", value, str(distance))

    def first(self, width: int) -> str:
        """The first lane of its warp."""
        return f"lane % {width} == 0"

    def alone(self) -> str:
        """The first lane does it."""
        return self.opened("lane == 0")


def _product(extents: Sequence[str]) -> str:
    """The product of some numbers of iterations."""
    whole = math.prod(int(e) for e in extents if e.isdecimal())
    rest = [e for e in extents if not e.isdecimal()]
    words = [str(whole)] if whole != 1 or not rest else []
    return " * ".join([*words, *rest]) if len(words) + len(rest) == 1 else \
        "(" + " * ".join([*words, *rest]) + ")"


def _over(total: str, lanes: int) -> str:
    """How many groups have that many iterations, one for each lane."""
    return str(-(-int(total) // lanes)) if total.isdecimal() else \
        f"(({total} + {lanes - 1}) / {lanes})"


def _digit(index: str, extents: Sequence[str], place: int) -> str:
    """One loop's iteration, if all iterations of some loops are numbered."""
    inner = _product(extents[place + 1:])
    text = index if inner == "1" else f"{index} / {inner}"
    return text if place == 0 else f"({text}) % {extents[place]}"


def _bitcast(name: str) -> str:
    """The same bits as another type; half types are 16 bits."""
    source, target = name.removeprefix("bitcast_").split("_")
    types = {"bfloat16": _STORED, "float16": _STORED}
    take = f"to_{source}(x)" if source in types else "x"
    give = f"from_{target}(b.y)" if target in types else "b.y"
    one, two = (types.get(s) or TYPES[s] for s in (source, target))
    return (f"{TYPES.get(target, 'float')} {name}({TYPES.get(source, 'float')} x) "
            f"{{ union {{ {one} x; {two} y; }} b; b.x = {take}; return {give}; }}")

