"""The C dialect: how values, loops and memory are written in C. Chapter: spec/dialects.md.

Vectors are written with the vector types that gcc and clang share; see `vectors` for operations
on them, and `functions` for what both call. Nothing is left to a compiler's vectoriser.
"""
from __future__ import annotations

from collections.abc import Sequence

from impl.dialects.vectors import COMPARED, INFIX, Vectors
from impl.dtypes import HALF, DType, Scalar, dtypes
from impl.functions.definitions import definitions, function_of
from impl.functions.literals import literal
from impl.functions.types import SHORT, STORAGE, TYPES
from impl.ir import COMPARISONS, Ops, UOp
from impl.lowering.legal import COMMON, OF_BOOLS, UNSIGNED_CASTS
from impl.render.dialect import GroupDialect

#: Stage buffers together up to this many bytes stand on the stack.
_STACK_BYTES = 64 << 10
#: No stage buffer has fewer bytes.
_LEAST_LOCAL = 256


class C(Vectors):
    """C for gcc and clang. See `Dialect` for what the methods do."""

    name = "C"
    widest_inline = 72
    counter = "i"
    lacks: frozenset[DType] = frozenset()
    rules = COMMON + UNSIGNED_CASTS
    #: Whether compilers keep floats as they are written; else each operation is a function.
    trusted = True
    #: How statements and choices are written.
    declares, varies = "const {0} {1} = {2};", "{0} {1} = {2};"
    guards, chooses = "if ({0}) {1}", "({0} ? {1} : {2})"

    def __init__(self) -> None:
        self.needed: dict[str, None] = {}
        self.place = 0  # of the next stage buffer in the scratch memory

    @property
    def groups(self) -> GroupDialect | None:
        """There are none."""
        return None

    def signature(self, phased: bool) -> str:
        """The arguments come in a table; then whatever tells a thread what to do."""
        more = ", long thread, long phase, char *scratch" if phased else ""
        return f"void {{name}}(void **args{more})"

    def begin(self) -> None:
        """Forget the declarations that the last kernel needed."""
        self.needed, self.place = {}, 0

    def definitions(self) -> tuple[str, ...]:
        """The functions and vector types that the printed kernel needs."""
        return definitions(self.needed)

    def type_of(self, dtype: DType) -> str:
        """The type of a variable; half types are computed with as float."""
        return TYPES[SHORT[dtype.name]]

    def storage_of(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return STORAGE.get(dtype) or self.type_of(dtype)

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number that the compiler reads back exactly."""
        return literal(value, dtype)

    def constant(self, kind: str, name: str, value: str) -> str:
        """A variable that keeps its value."""
        return self.declares.format(kind, name, value)

    def changing(self, kind: str, name: str, value: str) -> str:
        """A variable."""
        return self.varies.format(kind, name, value)

    def assign(self, target: str, value: str) -> str:
        """An assignment."""
        return f"{target} = {value};"

    def when(self, condition: str, statement: str) -> str:
        """A statement with its condition."""
        return self.guards.format(condition, statement) if condition else statement

    def choice(self, condition: str, one: str, other: str) -> str:
        """One of two values."""
        return self.chooses.format(condition, one, other)

    def opened(self, condition: str = "") -> str:
        """A block."""
        return f"if ({condition}) {{" if condition else "{"

    def counted(self, name: str, first: str, last: str, step: str = "") -> str:
        """A counted loop."""
        more = f"{name} += {step}" if step else f"{name}++"
        begin = self.changing(self.type_of(dtypes.index), name, first)
        return f"for ({begin} {name} < {last}; {more}) {{"

    def closed(self) -> str:
        """A brace."""
        return "}"

    def operation(self, node: UOp, given: Sequence[str], plain: bool) -> str:
        """An operation on values, exact in the node's dtype."""
        op, dtype = node.op, node.dtype
        if op in COMPARISONS:
            return self._compare(op, node.src[0].dtype, given)
        if op is Ops.WHERE:
            return self.choice(given[0], given[1], given[2])
        if op is Ops.CAST:
            return self._cast(given[0], node.src[0].dtype, dtype)
        if op is Ops.BITCAST:
            return self._bitcast(given[0], node.src[0].dtype, dtype)
        if op is Ops.DOT:
            return self.dot(given[0], given[1], "0")
        return self._arithmetic(op, dtype, given, plain)

    def _arithmetic(self, op: Ops, dtype: DType, given: Sequence[str], plain: bool = False) -> str:
        if dtype.kind == "f":
            return self._floating(op, dtype, given)
        if dtype.kind == "b":  # what else bools have is made of these: `COMMON`
            return f"({given[0]} {INFIX[OF_BOOLS.get(op, op)]} {given[1]})"
        return self._integer(op, dtype, given, plain)

    def _compare(self, op: Ops, source: DType, given: Sequence[str]) -> str:
        if source.kind == "f" and not self.trusted:
            return self._call(function_of(op, self._short(source)), *given)
        return f"({given[0]} {COMPARED[op]} {given[1]})"

    def _floating(self, op: Ops, dtype: DType, given: Sequence[str]) -> str:
        short = self._short(dtype)
        if op is Ops.SUB and given[0] == self.literal(0.0, dtype):
            return self._call(f"fromzero_{short}", given[1])
        if op in INFIX and self.trusted:
            return f"({given[0]} {INFIX[op]} {given[1]})"
        if op is Ops.NEG:
            return f"(-{given[0]})"
        return self._call(function_of(op, short), *given)

    def _integer(self, op: Ops, dtype: DType, given: Sequence[str], plain: bool) -> str:
        if op in INFIX:
            return self._narrow(f"({given[0]} {INFIX[op]} {given[1]})", dtype)
        if op is Ops.NEG:
            return self._narrow(f"(-{given[0]})", dtype)
        if plain:
            return f"({given[0]} {'/' if op is Ops.FLOORDIV else '%'} {given[1]})"
        return self._call(function_of(op, self._short(dtype)), *given)

    def _short(self, dtype: DType) -> str:
        """What functions of a type are named after."""
        return SHORT[dtype.name]

    def _narrow(self, text: str, dtype: DType) -> str:
        """C computes small integers as int; cut them back."""
        # r[impl conventions.integers.exact]
        if dtype.itemsize >= 4:
            return text
        return f"(({self.type_of(dtype)}){text})"

    def _cast(self, text: str, source: DType, target: DType) -> str:
        if source is target:
            return text
        if target in HALF:
            return self._call("tohalf_f64", text) if source is dtypes.float64 else \
                self.finish(target, text)
        have, kind = self._short(source), self._short(target)
        if have == kind and source.kind == target.kind and source.itemsize <= target.itemsize:
            return text  # it is held in the same type, and is one of its numbers
        if source.kind == "f" and target.kind != "f":
            return self._call(f"whole_{have}_{kind}", text)
        return self._converted_to(text, source, target)

    def _converted_to(self, text: str, source: DType, target: DType) -> str:
        return f"(({self.type_of(target)}){text})"

    def _bitcast(self, text: str, source: DType, target: DType) -> str:
        if source is target:
            return text
        one = source.name if source in HALF else self._short(source)
        two = target.name if target in HALF else self._short(target)
        return self._call(f"bitcast_{one}_{two}", text)

    def combine(self, op: Ops, dtype: DType, first: str, second: str) -> str:
        """One step of a reduction."""
        return self._arithmetic(op, dtype, (first, second))

    def fused(self, dtype: DType, first: str, second: str, third: str) -> str:
        """A product added to a sum, in one operation where the processor has it."""
        return self._call(f"fma_{SHORT[dtype.name]}", first, second, third)

    def dot(self, first: str, second: str, third: str) -> str:
        """Products of four bytes added to a sum."""
        return self._call("dot_i32", first, second, third)

    def tiles(self, dtype: DType, places: Sequence[str], steps: Sequence[int],
              sizes: Sequence[int]) -> str:
        """A call of the unit's function."""
        product, first, second = places
        rows, *others = steps
        name = {dtypes.int8: "tiles_i8", dtypes.bfloat16: "tiles_bf16"}[dtype]
        return self._call(name, product, str(rows), first, str(others[0]), second,
                          *map(str, (*others[1:], *sizes))) + ";"

    def finish(self, dtype: DType, value: str) -> str:
        """Round to a half type; other types are what they are."""
        return self._call(f"round_{dtype.name}", value) if dtype in HALF else value

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """A pointer taken from the table of arguments."""
        kind = self.storage_of(param.dtype) if written else f"const {self.storage_of(param.dtype)}"
        return self.changing(kind, f"*{name}", f"args[{param.arg}]")

    def text_argument(self, name: str, param: UOp, written: bool) -> str:
        """The same in a text of the user."""
        return self.argument(name, param, written)

    def text_body(self, text: str, name: str) -> str:
        """The text, with its own numbers of lines."""
        return f'#line 1 "{name}"\n{text}\n'

    def variable(self, name: str, position: int, dtype: DType) -> str:
        """A run-time integer, read through its pointer."""
        return self.constant("long", name, f"*(const long *)args[{position}]")

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """An array on the stack, or, if all are too large for it, in the scratch memory.

        None is smaller than a vector: GCC 12 believes that a masked load of a vector cannot read
        from a smaller array, and drops what was stored there.
        """
        kind, own = self.storage_of(dtype), self.own_scratch(total)
        if own:
            place, self.place = self.place, self.place + -(-size * dtype.itemsize // 64) * 64
            return self.changing(kind, f"*{name}", f"({kind} *)(scratch + {place})")
        # r[impl cpu.compiler.fault]
        count = max(size, _LEAST_LOCAL // dtype.itemsize)
        return f"{kind} {name}[{count}] __attribute__((aligned(64)));"

    def own_scratch(self, total: int) -> int:
        """All bytes, if they are too many for the stack."""
        # r[impl dialects.local.large+2]
        return total if total > _STACK_BYTES else 0

    def load(self, pointer: str, index: str, dtype: DType) -> str:
        """An element, as the type that is computed with."""
        text = f"{pointer}[{index}]"
        return self._call(f"from_{dtype.name}", text) if dtype in HALF else text

    def store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """Write an element."""
        if dtype in HALF:
            value = self._call(f"to_{dtype.name}", value)
        return self.assign(f"{pointer}[{index}]", value)

    def loop(self, name: str, extent: str) -> list[str]:
        """A counted loop."""
        return [self.counted(name, "0", extent)]

    def repeated(self) -> str:
        """A compiler that does not know the line takes it for a comment."""
        return "#pragma GCC unroll 4"

    def share(self, name: str, extent: str, threads: int) -> list[str]:
        """A loop over one of `threads` parts, whose sizes differ by one unit at most.

        The unit is one iteration, or 16 where that makes little difference: then parts begin at
        the beginning of a cache line, if the memory does.
        """
        # r[impl dialects.thread.parts+2]
        if extent.isdecimal() and int(extent) % threads == 0:
            each = int(extent) // threads
            first, last = f"thread * {each}", f"thread * {each} + {each}"
        elif extent.isdecimal() and int(extent) >= 256 * threads:
            units = int(extent) // 16
            first = f"{units} * thread / {threads} * 16"
            last = self.choice(f"thread < {threads - 1}",
                               f"{units} * (thread + 1) / {threads} * 16", extent)
        else:
            first = f"({extent}) * thread / {threads}"
            last = f"({extent}) * (thread + 1) / {threads}"
        return [self.counted(name, first, last)]

    def phase(self, number: int, over: bool, last: str = "") -> str:
        """Phases are counted by the device."""
        if not over:
            return self.opened(f"phase == {number}")
        return self.when(f"phase == {number}", f"{{ {last} return; }}" if last else "return;")

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """An array in the scratch memory of a run."""
        kind = self.storage_of(dtype)
        return self.changing(kind, f"*{name}", f"({kind} *)(scratch + {offset})")
