"""Operations on whole vectors in C. Chapter: spec/dialects.md.

An operand is a text and its kind: "" for one number for all elements, else that of a vector.
Bools are masks as wide as what they were made from; indices are as wide as they have to be.
"""
from __future__ import annotations

from collections.abc import Sequence

from impl.dtypes import HALF, DType, dtypes
from impl.functions.conversions import convert_vector
from impl.functions.definitions import function_of
from impl.functions.literals import literal
from impl.functions.types import STORAGE, bits, kind_of, mask_of
from impl.ir import COMPARISONS, Ops, UOp
from impl.lowering.legal import OF_BOOLS
from impl.render.dialect import Operand

COMPARED = {Ops.CMPLT: "<", Ops.CMPLE: "<=", Ops.CMPEQ: "==", Ops.CMPNE: "!="}
INFIX = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.DIV: "/", Ops.AND: "&", Ops.OR: "|",
         Ops.XOR: "^"}
_FOLDS = {Ops.ADD: "add", Ops.MUL: "mul", Ops.MAXIMUM: "max", Ops.MINIMUM: "min"}
#: Distances that 32 bits do not hold.
_REACH = 1 << 31


class Vectors:
    """What the C dialect writes for vectors. See `Dialect` for what the methods do."""

    needed: dict[str, None]

    def _call(self, function: str, *given: str) -> str:
        self.needed.setdefault(function)
        return f"{function}({', '.join(given)})"

    def _kind(self, kind: str) -> str:
        self.needed.setdefault(kind)
        return kind

    def vector_type(self, kind: str) -> str:
        """How the type of a kind is called."""
        return self._kind(kind)

    def _as(self, operand: Operand, kind: str) -> str:
        """The operand as a vector of a kind of numbers; other widths are converted."""
        text, have = operand
        if not have:
            return self._call(f"dup_{kind}", text)
        return text if have == kind else self._converts(text, have, kind)

    def _converts(self, text: str, have: str, kind: str) -> str:
        self._kind(kind)
        return convert_vector(text, have, kind, self.needed.setdefault)

    def _mask(self, operand: Operand, kind: str) -> str:
        """The operand, a bool, as a mask."""
        text, have = operand
        return self._as((f"-({text})", "") if not have else operand, mask_of(kind))

    def _mask_kind(self, given: Sequence[Operand], count: int) -> str:
        return next((mask_of(kind) for _, kind in given if kind), f"i32x{count}")

    def _number_kind(self, dtype: DType, count: int, narrow: bool) -> str:
        """The kind of numbers of a dtype; indices may be known to have 32 bits at most."""
        return f"i32x{count}" if dtype is dtypes.index and narrow else kind_of(dtype, count)

    def vector_operation(self, node: UOp, count: int, given: Sequence[Operand], plain: bool,
                         narrow: bool) -> Operand:
        """An operation on vectors: in every element what `operation` gives for numbers."""
        # r[impl dialects.vector.equal]
        op, dtype = node.op, node.dtype
        source = node.src[0].dtype
        if op in COMPARISONS:
            return self._compared(op, source, count, given, narrow)
        if op is Ops.WHERE:
            return self._where(dtype, count, given, narrow)
        if op is Ops.CAST:
            return self._converted(given[0], source, dtype, count, narrow)
        if op is Ops.BITCAST:
            return self._reinterpreted(given[0], source, dtype, count)
        if op is Ops.DOT:
            return self.vector_dot(count, (*given, ("0", "")))
        return self.vector_arithmetic(op, dtype, count, given, plain, narrow)

    def vector_arithmetic(self, op: Ops, dtype: DType, count: int, given: Sequence[Operand],
                          plain: bool = False, narrow: bool = False) -> Operand:
        """Arithmetic of one dtype."""
        if dtype.kind == "b":
            return self._masks(op, given, count)
        if dtype.kind != "f":
            return self._whole(op, dtype, count, given, plain, narrow)
        return self.vector_combine(op, dtype, count, given)

    def vector_combine(self, op: Ops, dtype: DType, count: int,
                       given: Sequence[Operand]) -> Operand:
        """The same in the accumulator's precision: not rounded."""
        if dtype.kind != "f":
            return self.vector_arithmetic(op, dtype, count, given)
        kind = self._kind(kind_of(dtype, count))
        texts = [text for text, _ in given]
        if op in INFIX:
            if not any(have for _, have in given):
                texts[0] = self._as(given[0], kind)
            return f"({texts[0]} {INFIX[op]} {texts[1]})", kind
        texts = [self._as(operand, kind) for operand in given]
        if op is Ops.NEG:
            return f"(-{texts[0]})", kind
        return self._call(function_of(op, kind), *texts), kind

    def _compared(self, op: Ops, source: DType, count: int, given: Sequence[Operand],
                  narrow: bool) -> Operand:
        if source.kind == "b":
            kind = self._mask_kind(given, count)
            one, two = (self._mask(operand, kind) for operand in given)
            return f"{'~' * (op is Ops.CMPEQ)}({one} ^ {two})", self._kind(kind)
        kind = self._number_kind(source, count, narrow)
        one, two = (self._as(operand, kind) for operand in given)
        return f"({one} {COMPARED[op]} {two})", self._kind(mask_of(self._kind(kind)))

    def _where(self, dtype: DType, count: int, given: Sequence[Operand], narrow: bool) -> Operand:
        condition, *choices = given
        if dtype.kind == "b":
            kind = self._mask_kind(choices if any(k for _, k in choices) else given, count)
            one, two = (self._mask(operand, kind) for operand in choices)
        else:
            kind = self._number_kind(dtype, count, narrow)
            one, two = (self._as(operand, kind) for operand in choices)
        self._kind(kind)
        if not condition[1]:
            return f"({condition[0]} ? {one} : {two})", kind
        return self._call(f"sel_{kind}", self._mask(condition, kind), one, two), kind

    def _converted(self, operand: Operand, source: DType, target: DType, count: int,
                   narrow: bool) -> Operand:
        text, have = operand
        if source is target:
            return operand
        kind = self._kind(self._number_kind(target, count, narrow))
        if source.kind == "b":
            mask = self._mask(operand, kind)
            if target.kind == "f":
                ones = self._call(f"dup_{kind}", literal(1.0, target))
                return f"(({kind})({mask} & ({self._kind(mask_of(kind))}){ones}))", kind
            return f"(({kind})({mask} & 1))", kind
        have = have or kind_of(source, count)
        text = self._as(operand, have)
        if source.kind == "f" and target.kind != "f":
            whole = kind_of(target, count)
            text, have = self._call(f"whole_{have}_{whole}", text), self._kind(whole)
        if have != kind:
            text = self._converts(text, have, kind)
        if target not in HALF:
            return text, kind
        if target is dtypes.float16 and source is dtypes.float64:
            return self._call(f"tohalf_{self._kind(kind_of(source, count))}", operand[0]), kind
        return self.vector_finish(target, count, (text, kind))

    def _reinterpreted(self, operand: Operand, source: DType, target: DType,
                       count: int) -> Operand:
        """Half types are made 16 bits and back; bools are made bytes."""
        if source is target:
            return operand
        text, have = operand
        kind = have or kind_of(source, count)
        if source.kind == "b":
            kind = f"u8x{count}"
            text = f"(({self._kind(kind)})({self._mask(operand, kind)} & 1))"
            self._kind(mask_of(kind))
        else:
            text = self._as(operand, self._kind(kind))
        if source in HALF:
            text, kind = self._call(f"to_{source.name}_{kind}", text), f"u16x{count}"
        if target in HALF:
            text = f"(({self._kind(f'u16x{count}')}){text})"
            return self._call(f"from_{target.name}_{kind_of(target, count)}", text), \
                self._kind(kind_of(target, count))
        if target.kind == "b":
            return f"({text} != 0)", self._kind(mask_of(kind))
        kind = self._kind(kind_of(target, count))
        return f"(({kind}){text})", kind

    def _masks(self, op: Ops, given: Sequence[Operand], count: int) -> Operand:
        """Arithmetic of bools, of which there are two operations left: see `legal`."""
        kind = self._kind(self._mask_kind(given, count))
        one, two = (self._mask(operand, kind) for operand in given)
        return f"({one} {INFIX[OF_BOOLS.get(op, op)]} {two})", kind

    def _whole(self, op: Ops, dtype: DType, count: int, given: Sequence[Operand], plain: bool,
               narrow: bool) -> Operand:
        """Arithmetic of integers, which wrap around in every width."""
        # r[impl conventions.integers.exact]
        kind = self._kind(self._number_kind(dtype, count, narrow))
        texts = [self._as(operand, kind) for operand in given]
        if op in INFIX:
            return f"({texts[0]} {INFIX[op]} {texts[1]})", kind
        if op is Ops.NEG:
            return f"(-{texts[0]})", kind
        if plain:
            return f"({texts[0]} {'/' if op is Ops.FLOORDIV else '%'} {texts[1]})", kind
        return self._call(function_of(op, kind), *texts), kind

    def vector_fused(self, dtype: DType, count: int, given: Sequence[Operand]) -> Operand:
        """A product added to a sum."""
        kind = kind_of(dtype, count)
        return self._call(f"fma_{kind}", *(self._as(operand, kind) for operand in given)), \
            self._kind(kind)

    def vector_dot(self, count: int, given: Sequence[Operand]) -> Operand:
        """Products of four bytes added to a sum."""
        kind = f"i32x{count}"
        return self._call(f"dot_{kind}", *(self._as(operand, kind) for operand in given)), \
            self._kind(kind)

    def vector_fold(self, op: Ops, dtype: DType, operand: Operand) -> str:
        """All elements combined: with the vector turned by half, by a quarter, and so on."""
        text, kind = operand
        if dtype.kind == "b":
            return f"({self._call(f'fold_{OF_BOOLS[op].name.lower()}_{kind}', text)} != 0)"
        return self._call(f"fold_{_FOLDS[op]}_{kind}", text)

    def vector_finish(self, dtype: DType, count: int, operand: Operand) -> Operand:
        """Round to a half type; other types are what they are."""
        if dtype not in HALF:
            return operand
        return self._call(f"round_{dtype.name}_f32x{count}", operand[0]), operand[1]

    def vector_start(self, dtype: DType, count: int, number: str) -> Operand:
        """An accumulator that holds a number in all elements."""
        if dtype.kind == "b":
            kind = f"i8x{count}"
            return self._mask((number, ""), kind), self._kind(kind)
        kind = kind_of(dtype, count)
        return self._as((number, ""), kind), self._kind(kind)

    def vector_cast(self, operand: Operand, dtype: DType, kind: str) -> str:
        """The operand as a variable of that kind holds it."""
        return self._mask(operand, kind) if dtype.kind == "b" else self._as(operand, kind)

    def vector_places(self, count: int) -> Operand:
        """0, 1, 2, ...: the places of the elements."""
        kind = self._kind(f"i32x{count}")
        self.needed.setdefault(f"iota_{kind}")
        return f"iota_{kind}", kind

    def vector_within(self, op: Ops, count: int, bits: int, bound: str, turned: bool) -> Operand:
        """How 0, 1, 2, ... compare with a number, or the number with them; elements have `bits`.

        A bound beyond all places is as good as the next one to them, which few bits hold.
        """
        # r[impl render.mask.places]
        kind = self._kind(f"i{max(bits, 8 if count < 1 << 7 else 16)}x{count}")
        self.needed.setdefault(f"iota_{kind}")
        nearest = self._call("nearest", bound, str(count))
        sides = f"iota_{kind}", self._call(f"dup_{kind}", nearest)
        return f"({sides[turned]} {COMPARED[op]} {sides[not turned]})", kind

    def vector_short(self, operand: Operand, count: int) -> Operand:
        """The lowest 32 bits of indices."""
        kind = self._kind(f"i32x{count}")
        return self._as(operand, kind), kind

    def element(self, dtype: DType, operand: Operand, place: int) -> str:
        """One element of a vector, as a number."""
        text, kind = operand
        if not kind:
            return text
        return f"({text}[{place}] != 0)" if dtype.kind == "b" else f"{text}[{place}]"

    def _stored_kind(self, dtype: DType, count: int) -> str:
        """How elements lie in memory: half types as 16 bits."""
        return self._kind(f"u16x{count}" if dtype in HALF else kind_of(dtype, count))

    def _loaded(self, text: str, dtype: DType, count: int) -> Operand:
        kind = self._stored_kind(dtype, count)
        if dtype.kind == "b":
            return f"({text} != 0)", self._kind(mask_of(kind))
        if dtype in HALF:
            return self._call(f"from_{dtype.name}_f32x{count}", text), self._kind(f"f32x{count}")
        return text, kind

    def _array(self, pointer: str, dtype: DType) -> str:
        return f"(const unsigned short *){pointer}" if dtype in STORAGE else pointer

    def vector_load(self, pointer: str, index: str, dtype: DType, count: int) -> Operand:
        """Neighbouring elements; unaligned, as tensors may start anywhere."""
        kind = self._stored_kind(dtype, count)
        return self._loaded(f"*(const {kind}u *)({pointer} + {index})", dtype, count)

    def vector_turned(self, name: str, pointer: str, indices: Sequence[str], dtype: DType,
                      conditions: Sequence[str] = ()) -> tuple[list[str], list[Operand]]:
        """Neighbouring elements at as many places, transposed: the lines that load them to an
        array of that name, and its vectors. Where a condition is false memory is not touched.
        """
        # r[impl dialects.vector.memory+2]
        count = len(indices)
        kind = self._stored_kind(dtype, count)
        lines = [f"{kind} {name}[{count}];"]
        for place, index in enumerate(indices):
            text = f"*(const {kind}u *)({pointer} + {index})"
            if conditions:  # r[impl kernel.access.gated]
                text = f"({conditions[place]} ? ({kind}){text} : ({kind}){{0}})"
            lines.append(f"{name}[{place}] = {text};")
        lines.append(self._call(f"turn_{kind}", name) + ";")
        return lines, [self._loaded(f"{name}[{place}]", dtype, count) for place in range(count)]

    def vector_masked(self, pointer: str, index: str, dtype: DType, count: int,
                      mask: Operand) -> Operand:
        """The same where a mask is true, zero elsewhere; memory is not touched there."""
        # r[impl kernel.access.gated]
        kind = self._stored_kind(dtype, count)
        text = self._call(f"masked_{kind}", self._array(pointer, dtype), index,
                          self._mask(mask, kind))
        return self._loaded(text, dtype, count)

    def vector_gather(self, pointer: str, index: Operand, dtype: DType, count: int,
                      mask: Operand | None, few: bool = False) -> Operand:
        """Elements that lie anywhere: `index` is a vector of places."""
        kind = self._stored_kind(dtype, count)
        where, given = index[1], [self._array(pointer, dtype), index[0]]
        if mask is not None:
            given.append(self._mask(mask, kind))
        name = "gatherm" if mask is not None else "table" if few else "gather"
        return self._loaded(self._call(f"{name}_{self._kind(where)}_{kind}", *given), dtype, count)

    def vector_spread(self, pointer: str, dtype: DType, count: int, mask: Operand) -> Operand:
        """One element wherever a mask is true, zero elsewhere; memory is not touched if it is true
        nowhere.
        """
        # r[impl dialects.vector.memory+2, kernel.access.gated]
        kind = self._stored_kind(dtype, count)
        text = self._call(f"spread_{kind}", self._array(pointer, dtype), self._mask(mask, kind))
        return self._loaded(text, dtype, count)

    def vector_stepped(self, pointer: str, step: int, dtype: DType, count: int,
                       mask: Operand | None) -> Operand | None:
        """Elements that lie `step` apart, backwards below 0, taken out of whole vectors; None where
        these are more than gathering costs. Only memory from the first element to the last is
        touched; where a mask is false, none.
        """
        # r[impl dialects.vector.memory+2, kernel.access.gated]
        if not (2 <= step <= count // 2 or -count // 2 <= step <= -1):
            return None
        kind, given = self._stored_kind(dtype, count), [self._array(pointer, dtype)]
        if mask is not None:
            given.append(self._mask(mask, kind))
        name = ("stepped" if step > 0 else "back") + "m" * (mask is not None)
        return self._loaded(self._call(f"{name}{abs(step)}_{kind}", *given), dtype, count)

    def vector_gated(self, condition: str, found: Operand, dtype: DType,
                     nothing: str) -> Operand:
        """A load, or a number if a condition is false for all elements."""
        # r[impl kernel.access.gated]
        text, kind = found
        other = self.vector_cast((nothing, ""), dtype, kind)
        return f"({condition} ? ({kind}){text} : {other})", kind

    def vector_steps(self, count: int, step: int) -> Operand:
        """0, step, 2 * step, ...: the places of elements that lie evenly."""
        wide = abs(step) * count >= _REACH
        text, kind = self.vector_places(count)
        if wide:
            kind = f"i64x{count}"
            text = self._as((text, f"i32x{count}"), kind)
        return (f"({text} * {step}{'L' * wide})" if step != 1 else text), kind

    def vector_store(self, pointer: str, index: str, dtype: DType, count: int, value: Operand,
                     mask: Operand | None, stream: bool = False) -> str:
        """Write neighbouring elements, those of a mask only if there is one."""
        # r[impl kernel.access.gated]
        kind, text = self._in_memory(dtype, count, value)
        array = f"{'(unsigned short *)' * (dtype in HALF)}{pointer}"
        if mask is not None:
            return self._call(f"put_{kind}", array, index, text, self._mask(mask, kind)) + ";"
        if stream:
            return self._call(f"stream_{kind}", f"{array} + {index}", text) + ";"
        return f"*({kind}u *)({pointer} + {index}) = {text};"

    def vector_store_turned(self, name: str, pointer: str, indices: Sequence[str], dtype: DType,
                            values: Sequence[Operand], stream: bool) -> list[str]:
        """Write a square of values, transposed, to neighbouring elements at as many places."""
        # r[impl dialects.vector.memory+2]
        count = len(indices)
        stored = [self._in_memory(dtype, count, value) for value in values]
        kind = stored[0][0]
        lines = [f"{kind} {name}[{count}];"]
        lines += [f"{name}[{place}] = {text};" for place, (_, text) in enumerate(stored)]
        lines.append(self._call(f"turn_{kind}", name) + ";")
        for place, index in enumerate(indices):
            target = f"{'(unsigned short *)' * (dtype in HALF)}({pointer} + {index})"
            lines.append(self._call(f"stream_{kind}", target, f"{name}[{place}]") + ";" if stream
                         else f"*({kind}u *){target} = {name}[{place}];")
        return lines

    def fetch(self, pointer: str, index: str, written: bool) -> str:
        """Ask for memory that will be read or written soon."""
        return f"__builtin_prefetch({pointer} + {index}, {int(written)});"

    def skip(self, condition: str) -> str:
        """Nothing but stores that do not happen would follow."""
        return f"if (!{condition}) continue;"

    def fence(self) -> str:
        """Stores past the caches may be seen late, unless they are waited for."""
        # r[impl dialects.stream.fence+2]
        return self._call("fence") + ";"

    def vector_scatter(self, pointer: str, index: str, step: Operand | int, dtype: DType,
                       count: int, value: Operand, mask: Operand | None) -> str:
        """Write elements anywhere, one by one."""
        kind, text = self._in_memory(dtype, count, value)
        if isinstance(step, int) and f"{bits(kind)}x{count}" == "32x16" \
                and abs(step) * count < _REACH:
            places = self.vector_steps(count, step)
            given = [f"{pointer} + {index}", places[0], text]
            if mask is not None:
                given.append(self._mask(mask, kind))
            name = "scatterm" if mask is not None else "scatter"
            return self._call(f"{name}_{self._kind(places[1])}_{kind}", *given) + ";"
        pointed = f"((unsigned short *){pointer})" if dtype in HALF else pointer
        place = f"{index} + l * {step}" if isinstance(step, int) else f"{index} + s[l]"
        names = f"{{ {kind} x = {text}; "
        if not isinstance(step, int):
            names += f"{self._kind(step[1])} s = {step[0]}; "
        guard = ""
        if mask is not None:
            names += f"{self._kind(mask_of(kind))} m = {self._mask(mask, kind)}; "
            guard = "if (m[l]) "
        return (f"{names}for (long l = 0; l < {count}; l++) "
                f"{guard}{pointed}[{place}] = x[l]; }}")

    def _in_memory(self, dtype: DType, count: int, value: Operand) -> tuple[str, str]:
        """A value as it lies in memory, and its kind."""
        kind = self._stored_kind(dtype, count)
        if dtype.kind == "b":
            return kind, f"(({kind})({self._mask(value, kind)} & 1))"
        if dtype in HALF:
            text = self._as(value, self._kind(f"f32x{count}"))
            return kind, self._call(f"to_{dtype.name}_f32x{count}", text)
        return kind, self._as(value, kind)

