"""The WGSL dialect, of WebGPU. Chapter: spec/webgpu.md.

WGSL has numbers of 32 bits (of 64, with a feature), no pointers to memory, no conversion that is
not asked for, and lets a compiler believe that there is neither NaN nor infinity. So memory is an
array of words, each number has the type in which it is held, and what a float operation gives is
kept `exact` (see `wgsl_functions`).
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from impl.dialects.c import C
from impl.dialects.gpu import Gpu
from impl.dialects.vectors import INFIX
from impl.dtypes import HALF, DType, Scalar, dtypes
from impl.errors import DTypeError, GraphError
from impl.functions.definitions import Definition, needs_of
from impl.functions.wgsl import HELD, text_of
from impl.ir import Ops, UOp
from impl.lowering.legal import COMMON, WORDS

_COMPARED = {Ops.CMPLT: "less_f32", Ops.CMPLE: "most_f32", Ops.CMPEQ: "same_f32",
             Ops.CMPNE: "differ_f32"}
#: Groups in a row: a launch of more has several rows.
ROW = 65535
#: What a launch is told before all else: the phase, and how many groups there are.
TOLD = 2
#: The bindings before those of arguments: what a launch is told, and a zero no compiler knows of.
BOUND = 2


class WGSL(Gpu):
    """The WebGPU Shading Language; `wide`: with integers of 64 bits."""

    name = "WGSL"
    widest = 1
    counter = "k"  # i32 is a type
    rules = COMMON + WORDS

    def __init__(self, wide: bool = True) -> None:
        super().__init__()
        self.wide_integers = wide

    def begin(self) -> None:
        """Forget what the last kernel declared."""
        super().begin()
        self.arrays: dict[str, tuple[str, str]] = {}  # a pointer's words, and its first element
        self.atomic: set[str] = set()                 # words of which parts are written
        self.begins: dict[int, str] = {}              # at which byte an argument begins
        self.shares: list[str] = []
        self.told = TOLD

    def indices(self, small: bool, wraps: bool) -> None:
        """32 bits, if they are enough; places in memory have no more."""
        # r[impl webgpu.index.narrow]
        self.index = "i32" if small or wraps else "i64"
        if self.index == "i64" and not self.wide_integers:
            raise GraphError("WEBGPU", "an index may need more than the 32 bits that WGSL has",
                             "use smaller tensors or bounds of variables, or DEVICE=CPU")

    @property
    def signature(self) -> str:
        """A kernel: its arrays, how many lanes it has, where a lane learns which it is."""
        return self._head(())

    @property
    def threaded(self) -> str:
        """The same with memory that all groups share."""
        return self._head(("scratch",))

    def _head(self, more: tuple[str, ...]) -> str:
        arrays = [f"@group(0) @binding({place}) var<storage, read_write> {words}: "
                  f"array<{self._word(words)}>;"
                  for place, words in enumerate((*self.given, *more), BOUND)]
        return "\n".join([
            "@group(0) @binding(0) var<uniform> told: "
            f"array<vec4<i32>, {-(-self.told // 4)}>;",
            "@group(0) @binding(1) var<storage, read> zeros: array<i32>;",
            "var<private> nothing: i32;", *arrays, *self.shares,
            f"override lanes: u32 = {self.lanes};",  # phases differ in it
            "@compute @workgroup_size(lanes) fn {name}(@builtin(workgroup_id) group_: vec3<u32>, "
            "@builtin(local_invocation_index) lane_: u32)"])

    def _word(self, words: str) -> str:
        return "atomic<u32>" if words in self.atomic else "u32"

    def _next(self) -> str:
        self.told += 1
        return f"told[{(self.told - 1) // 4}][{(self.told - 1) % 4}]"

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """An array of words, bound once also where it is read as two types."""
        # r[impl webgpu.argument.offset+2]
        words = f"b{param.arg}"
        if param.arg not in self.begins:
            self.parameters.append(param.arg)
            self.given.append(words)
            self.begins[param.arg] = self._next()
        if written and param.dtype.itemsize < 4:  # r[impl webgpu.word.rest]
            self.atomic.add(words)
        self.arrays[name] = words, f"o{name}"
        return self.constant("i32", f"o{name}",
                             f"{self.begins[param.arg]} / {param.dtype.itemsize}")

    def variable(self, name: str, position: int) -> str:
        """A run-time integer."""
        return self.constant(self.index, name, self._index(self._next()))

    def ids(self, variables: int) -> str:
        """The numbers of this lane; the last row of groups may be too long."""
        group, groups, lane, lanes = map(self._index, (
            f"i32(group_.x + group_.y * {ROW}u)", "told[0].y", "i32(lane_)", "i32(lanes)"))
        return (f"let group = {group}; let groups = {groups}; if (group >= groups) {{ return; }} "
                f"nothing = zeros[0]; let lane = {lane}; let phase = told[0].x; "
                f"let thread = group * {lanes} + lane; let threads = groups * {lanes};")

    def _index(self, text: str) -> str:
        """A number of 32 bits as an index."""
        return self._long(text) if self.index == "i64" else text

    def constant(self, kind: str, name: str, value: str) -> str:
        """A name for a value."""
        return f"let {name}: {kind} = {value};"

    def changing(self, kind: str, name: str, value: str) -> str:
        """A variable."""
        return f"var {name}: {kind} = {value};"

    def when(self, condition: str, statement: str) -> str:
        """A block, always."""
        return f"if ({condition}) {{ {statement} }}" if condition else statement

    def choice(self, condition: str, one: str, other: str) -> str:
        """A function: both are computed. What is read outside of an array is some number."""
        return f"select({other}, {one}, {condition})"

    def counted(self, name: str, first: str, last: str, step: str = "") -> str:
        """A counted loop."""
        return (f"for (var {name}: {self.index} = {first}; {name} < {last}; "
                f"{name} += {step or 1}) {{")

    def unroll(self) -> str:
        """There is no word for it."""
        return ""

    def type_of(self, dtype: DType) -> str:
        """How a value is held."""
        # r[impl webgpu.error.told]
        if dtype is dtypes.float64 or dtype.itemsize == 8 and dtype is not dtypes.index \
                and not self.wide_integers:
            raise DTypeError("WEBGPU", f"this device has no {dtype.name}",
                             f"cast to {'float32' if dtype.kind == 'f' else 'int32'} first, or set "
                             "DEVICE=CPU")
        return self.index if dtype is dtypes.index else HELD[dtype.name]

    def storage_of(self, dtype: DType) -> str:
        """How bits of a half type are held."""
        return "u32" if dtype in HALF else self.type_of(dtype)

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number. Those that a compiler would compute with are hidden from it."""
        kind = self.type_of(dtype)
        if kind == "bool":
            return "true" if value else "false"
        if kind == "f32":  # r[impl webgpu.float.exact]
            number = float(value)
            if math.isnan(number) or math.isinf(number) or abs(number) < 2.0 ** -126:
                bits = dtypes.float32.numpy.type(number).view("int32")
                return self._call("hidden_f32", f"i32({bits})")
            return f"({number.hex()}f)" if number < 0 else f"{number.hex()}f"
        if dtype is dtypes.index:
            return str(value) if int(value) >= 0 else f"({value})"
        suffix = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}[kind]
        if int(value) == -(1 << 8 * min(dtype.itemsize, 8) - 1) and dtype.itemsize >= 4:
            return f"({int(value) + 1}{suffix} - 1{suffix})"
        return f"({int(value)}{suffix})" if int(value) < 0 else f"{int(value)}{suffix}"

    def _compare(self, op: Ops, source: DType, given: Sequence[str]) -> str:
        """Comparisons of floats know NaN."""
        return self._call(_COMPARED[op], *given) if source.kind == "f" else \
            super()._compare(op, source, given)

    def _floating(self, op: Ops, dtype: DType, given: Sequence[str]) -> str:
        # r[impl webgpu.float.exact]
        if op in (Ops.SUB, Ops.DIV):  # what is taken from itself, or divided by it
            given = (given[0], self._call("apart_f32", given[1]))
        text = super()._floating(op, dtype, given)
        return self._call("exact_f32", text) if op in INFIX else text

    def _integer(self, op: Ops, dtype: DType, given: Sequence[str], plain: bool) -> str:
        return C._integer(self, op, dtype, given, plain)  # they wrap around

    def _short(self, dtype: DType) -> str:
        return self.type_of(dtype)

    def _narrow(self, text: str, dtype: DType) -> str:
        if dtype.itemsize >= 4:
            return text
        return f"extractBits({text}, 0u, {8 * dtype.itemsize}u)"

    def _converted_to(self, text: str, source: DType, target: DType) -> str:
        have, kind = self.type_of(source), self.type_of(target)
        if have in ("i32", "u32") and kind in ("i64", "u64"):  # as what it is, then as asked for
            text, have = (self._long(text), "i64") if have == "i32" else (f"u64({text})", "u64")
        return self._narrow(text if have == kind else f"{kind}({text})", target)

    def _long(self, text: str) -> str:
        """A signed number of 32 bits as one of 64."""
        return self._call("long_i64", text)

    def _bitcast(self, text: str, source: DType, target: DType) -> str:
        return text if source is target else self._value(self._bits(text, source), target)

    def _bits(self, text: str, dtype: DType) -> str:
        """A value as it lies in memory: a u32, of which it may be a part, or a u64."""
        if dtype in HALF:
            return self._call(f"to_{dtype.name}", text)
        if dtype is dtypes.float32:
            return f"bitcast<u32>({text})"
        bits = f"{'u64' if dtype.itemsize == 8 else 'u32'}({text})"
        return f"({bits} & {(1 << 8 * dtype.itemsize) - 1}u)" if dtype.itemsize < 4 else bits

    def _value(self, bits: str, dtype: DType) -> str:
        """What `_bits` was made of."""
        if dtype in HALF:
            return self._call(f"from_{dtype.name}", bits)
        if dtype is dtypes.float32:
            return f"bitcast<f32>({bits})"
        return f"({bits} != 0u)" if dtype.kind == "b" else \
            self._narrow(f"{self.type_of(dtype)}({bits})", dtype)

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """An array that a lane has for itself."""
        return f"var {name}: array<{self.type_of(dtype)}, {max(size, 1)}>;"

    def group_local(self, name: str, dtype: DType, size: int) -> str:
        """Words that the lanes of a group share."""
        self.arrays[name] = name, ""
        if dtype.itemsize < 4:
            self.atomic.add(name)
        words = -(-max(size, 1) * dtype.itemsize // 4)
        self.shares.append(f"var<workgroup> {name}: array<{self._word(name)}, {words}>;")
        return ""

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """A part of the memory that all groups share."""
        self.arrays[name] = "scratch", str(offset // dtype.itemsize)
        if dtype.itemsize < 4:
            self.atomic.add("scratch")
        return ""

    def _place(self, pointer: str, index: str) -> tuple[str, str]:
        words, first = self.arrays[pointer]
        at = f"i32({index})" if self.index == "i64" else index
        return words, f"({first} + {at})" if first else f"({at})"

    def _raw(self, pointer: str, index: str, dtype: DType) -> str:
        words, at = self._place(pointer, index)
        word = f"atomicLoad(&{words}[%s])" if words in self.atomic else f"{words}[%s]"
        if dtype.itemsize == 8:
            return self._call("pair_u64", word % f"2 * {at}", word % f"2 * {at} + 1")
        if dtype.itemsize == 4:
            return word % at
        return self._call(f"part_u{8 * dtype.itemsize}",
                          word % f"{at} / {4 // dtype.itemsize}", at)

    def load(self, pointer: str, index: str, dtype: DType) -> str:
        """An element, as the type that is computed with."""
        return self._value(self._raw(pointer, index, dtype), dtype) if pointer in self.arrays \
            else self._own(pointer, index)

    def store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """Write an element."""
        return self._put(pointer, index, dtype, self._bits(value, dtype)) \
            if pointer in self.arrays else self.assign(self._own(pointer, index), value)

    def copied_load(self, pointer: str, index: str, dtype: DType) -> str:
        """The bits of an element."""
        return self._raw(pointer, index, dtype) if pointer in self.arrays else \
            self._bits(self._own(pointer, index), dtype)

    def copied_store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """Write bits."""
        return self._put(pointer, index, dtype, value) if pointer in self.arrays else \
            self.assign(self._own(pointer, index), self._value(value, dtype))

    def _own(self, pointer: str, index: str) -> str:
        """An element of an array that a lane has for itself."""
        return f"{pointer}[i32({index})]"

    def _put(self, pointer: str, index: str, dtype: DType, bits: str) -> str:
        """Write bits; where they are a part of a word, other lanes may write the rest of it."""
        # r[impl webgpu.word.rest]
        words, at = self._place(pointer, index)
        if dtype.itemsize == 8:
            return (f"{{ let both = {bits}; {words}[2 * {at}] = u32(both & 0xfffffffflu); "
                    f"{words}[2 * {at} + 1] = u32(both >> 32u); }}")
        if dtype.itemsize == 4:
            return f"atomicStore(&{words}[{at}], {bits});" if words in self.atomic else \
                self.assign(f"{words}[{at}]", bits)
        parts, mask = 4 // dtype.itemsize, (1 << 8 * dtype.itemsize) - 1
        return (f"{{ let part = u32({at} % {parts}) * {8 * dtype.itemsize}u; "
                f"atomicAnd(&{words}[{at} / {parts}], ~({mask}u << part)); "
                f"atomicOr(&{words}[{at} / {parts}], {bits} << part); }}")

    def wait(self) -> str:
        """All lanes of a group get here before one goes on."""
        return "workgroupBarrier(); storageBarrier();"

    def _definition(self, name: str) -> Definition:
        text = text_of(name)
        return text, needs_of(name, text)
