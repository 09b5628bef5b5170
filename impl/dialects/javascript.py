"""The JavaScript dialect, for pages without WebGPU. Chapter: spec/dialects.md.

All numbers are doubles: what a type has less is cut off after each operation. Memory is given as
bytes, of which a kernel makes the array that it wants.
"""
from __future__ import annotations

from collections.abc import Sequence

from impl.dialects.c import C
from impl.dialects.vectors import INFIX
from impl.dtypes import HALF, DType, Scalar, dtypes
from impl.functions.definitions import definitions, function_of
from impl.functions.javascript import HEADER, cut_back, javascript_definition, javascript_literal
from impl.ir import Ops, UOp
from impl.lowering.legal import COMMON

_ARRAYS = {"bool": "Uint8Array", "float16": "Uint16Array", "bfloat16": "Uint16Array",
           "index": "Float64Array"}


def array_of(dtype: DType) -> str:
    """The class of arrays that hold elements as they lie in memory."""
    return _ARRAYS.get(dtype.name) or f"{dtype.name.capitalize()}Array"


class JavaScript(C):
    """ECMAScript 2020. See `Dialect` for what the methods do."""

    name = "JavaScript"
    lacks = frozenset((dtypes.int64, dtypes.uint64))
    rules = COMMON
    declares, varies = "const {1} = {2};", "let {1} = {2};"

    def signature(self, phased: bool) -> str:
        """Memory and integers come in an array."""
        return "function {name}(args)"

    def definitions(self) -> tuple[str, ...]:
        """The functions that the printed kernel needs."""
        return (HEADER, *definitions(self.needed, javascript_definition))

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number."""
        return javascript_literal(value, dtype)

    def _rounded(self, text: str, dtype: DType) -> str:
        return text if dtype is dtypes.float64 else f"f{text}"

    def _floating(self, op: Ops, dtype: DType, given: Sequence[str]) -> str:
        # r[impl conventions.rounding.point]
        if op in INFIX:
            return self._rounded(f"({given[0]} {INFIX[op]} {given[1]})", dtype)
        if op is Ops.NEG:
            return f"(-{given[0]})"
        return self._call(function_of(op, self._short(dtype)), *given)

    def _integer(self, op: Ops, dtype: DType, given: Sequence[str], plain: bool) -> str:
        # r[impl conventions.integers.exact]
        kind = self._short(dtype)
        if op is Ops.MUL and dtype is not dtypes.index:
            return cut_back(f"Math.imul({given[0]}, {given[1]})", kind)
        if op in INFIX:
            return cut_back(f"({given[0]} {INFIX[op]} {given[1]})", kind)
        if op is Ops.NEG:
            return cut_back(f"(-{given[0]})", kind)
        if plain and op is Ops.FLOORDIV:
            return f"Math.floor({given[0]} / {given[1]})"
        return super()._integer(op, dtype, given, plain)

    def _cast(self, text: str, source: DType, target: DType) -> str:
        if target.kind == "f" or source.kind == "f" or source is target:
            return super()._cast(text, source, target)
        return cut_back(text if source.kind != "b" else f"(+{text})", self._short(target))

    def _converted_to(self, text: str, source: DType, target: DType) -> str:
        """A bool is a number once it has a sign; a float32 is rounded."""
        return self._rounded(f"({'+' if source.kind == 'b' else ''}{text})", target)

    def fused(self, dtype: DType, first: str, second: str, third: str) -> str:
        """The product of two floats is whole in a double."""
        return self._rounded(f"({first} * {second} + {third})", dtype)

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """An array over the bytes that are given."""
        array, size = array_of(param.dtype), param.dtype.itemsize
        given = f"args[{param.arg}]"
        return self.constant("", name, f"new {array}({given}.buffer, {given}.byteOffset, "
                             f"{given}.byteLength / {size} | 0)")

    def variable(self, name: str, position: int, dtype: DType) -> str:
        """An integer as it is given."""
        return self.constant("", name, f"args[{position}]")

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """An array."""
        return self.constant("", name, f"new {array_of(dtype)}({max(size, 1)})")

    def own_scratch(self, total: int) -> int:
        """None: arrays are made where they are needed."""
        return 0

    def store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """Write an element, which the array rounds and cuts itself."""
        if dtype in HALF:
            value = self._call(f"to_{dtype.name}", value)
        return self.assign(f"{pointer}[{index}]", value)

    def repeated(self) -> str:
        """Compilers of the language decide on their own."""
        return ""

    def fetch(self, pointer: str, index: str, written: bool) -> str:
        """The language has no word for it."""
        return ""
