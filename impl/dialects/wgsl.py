"""The WGSL dialect, of WebGPU. Chapter: spec/webgpu.md.

WGSL has numbers of 32 bits (of 64, with a feature), no pointers to memory, no conversion that is
not asked for, and lets a compiler believe that there is neither NaN nor infinity. So memory is an
array of words, each number has the type in which it is held, and operations on floats are functions
that keep what they give exact (see `functions.wgsl`).
"""
from __future__ import annotations

import re
from collections.abc import Mapping

from impl.custom.texts import marked
from impl.dialects.gpu import Gpu
from impl.dtypes import DType, Scalar, dtypes
from impl.errors import DTypeError, GraphError
from impl.functions.definitions import Definition, needs_of
from impl.functions.wgsl import HELD, text_of, wgsl_literal
from impl.ir import UOp
from impl.lowering.legal import COMMON, WORDS

#: Groups in a row: a launch of more has several rows.
ROW = 65535
#: What a launch is told before all else: the phase, and how many groups there are.
TOLD = 2
#: The bindings before those of arguments: what a launch is told, and a zero no compiler knows of.
BOUND = 2


class WGSL(Gpu):
    """The WebGPU Shading Language; `wide`: with integers of 64 bits."""

    name = "WEBGPU"
    widest = 1
    counter = "k"  # i32 is a type
    rules = COMMON + WORDS
    declares, varies = "let {1}: {0} = {2};", "var {1}: {0} = {2};"
    # Of a choice both are computed. What is read outside of an array is some number.
    guards, chooses = "if ({0}) {{ {1} }}", "select({2}, {1}, {0})"
    unrolls = ""
    wraps = True
    trusted = False  # r[impl webgpu.float.exact]

    def __init__(self, wide: bool = True) -> None:
        super().__init__()
        longer = () if wide else (dtypes.int64, dtypes.uint64)
        self.lacks = frozenset((dtypes.float64, *longer))

    def begin(self) -> None:
        """Forget what the last kernel declared."""
        super().begin()
        self.arrays: dict[str, tuple[str, str]] = {}  # a pointer's words, and its first element
        self.atomic: set[str] = set()                 # words of which parts are written
        self.begins: dict[int, str] = {}              # at which byte an argument begins
        self.shares: list[str] = []
        self.typed: dict[str, str] = {}               # elements of the arguments of a text
        self.named: dict[str, str] = {}               # and their arrays, by their names in it
        self.told = TOLD

    def indices(self, small: bool, wraps: bool) -> None:
        """32 bits, if they are enough; places in memory have no more."""
        # r[impl webgpu.index.narrow+2]
        self.index = "i32" if small or wraps else "i64"
        if self.index == "i64" and dtypes.int64 in self.lacks:
            raise GraphError("WEBGPU", "an index may need more than the 32 bits that WGSL has",
                             "use smaller tensors or bounds of variables, or DEVICE=CPU")

    def signature(self, phased: bool) -> str:
        """A kernel: its arrays, how many lanes it has, where a lane learns which it is; and with
        memory that all groups share.
        """
        more = ["scratch"] if phased else []
        arrays = [f"@group(0) @binding({place}) var<storage, read_write> {words}: "
                  f"array<{self._word(words)}>;"
                  for place, words in enumerate([*self.given, *more], BOUND)]
        return "\n".join([
            "@group(0) @binding(0) var<uniform> told: "
            f"array<vec4<i32>, {-(-self.told // 4)}>;",
            "@group(0) @binding(1) var<storage, read> zeros: array<i32>;",
            "var<private> nothing: i32;", *arrays, *self.shares,
            f"override lanes: u32 = {self.lanes};",  # phases differ in it
            "@compute @workgroup_size(lanes) fn {name}(@builtin(workgroup_id) group_: vec3<u32>, "
            "@builtin(local_invocation_index) lane_: u32)"])

    def _word(self, words: str) -> str:
        return "atomic<u32>" if words in self.atomic else self.typed.get(words, "u32")

    def _next(self) -> str:
        self.told += 1
        return f"told[{(self.told - 1) // 4}][{(self.told - 1) % 4}]"

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """An array of words, bound once also where it is read as two types."""
        # r[impl webgpu.argument.offset+2]
        words = f"words{param.arg}"
        if param.arg not in self.begins:
            self.parameters.append(param.arg)
            self.given.append(words)
            self.begins[param.arg] = self._next()
        self._words(name, words, f"o{name}", param.dtype, written)
        return self.constant("i32", f"o{name}",
                             f"{self.begins[param.arg]} / {param.dtype.itemsize}")

    def text_argument(self, name: str, param: UOp, written: bool) -> str:
        """An array of elements, and where the argument begins in it.

        Raises:
            DTypeError: an element has not 32 bits, as everything in WGSL's memory.
        """
        if param.dtype.itemsize != 4:  # r[impl custom.text.refused]
            raise DTypeError("custom_kernel", f"WGSL has no memory of {param.dtype.name}",
                             "cast it to float32, int32 or uint32 before")
        words = f"words{param.arg}"
        self.parameters.append(param.arg)
        self.given.append(words)
        self.typed[words] = self.type_of(param.dtype)
        self.named[name] = words
        return self.constant("i32", f"o{words}", f"{self._next()} / 4")

    def text_body(self, text: str, name: str) -> str:
        """The text, in which x[i] means element i of the argument."""
        return f"{marked(name)}\n{indexed(text, self.named)}\n"

    def _words(self, name: str, words: str, first: str, dtype: DType, written: bool = True) -> None:
        """A pointer to an element of an array of words, and whether parts of words are stored."""
        self.arrays[name] = words, first
        if written and dtype.itemsize < 4:  # r[impl webgpu.word.rest]
            self.atomic.add(words)

    def variable(self, name: str, position: int, dtype: DType) -> str:
        """A run-time integer."""
        return self.constant(self.type_of(dtype), name, self._converted_to(
            self._next(), dtypes.int32, dtype))  # r[impl webgpu.index.narrow+2]

    def ids(self, variables: int) -> str:
        """The numbers of this lane; the last row of groups may be too long."""
        group, groups, lane, lanes = map(self._index, (
            f"i32(group_.x + group_.y * {ROW}u)", "told[0].y", "i32(lane_)", "i32(lanes)"))
        return (f"let group = {group}; let groups = {groups}; if (group >= groups) {{ return; }} "
                f"nothing = zeros[0]; let lane = {lane}; let phase = told[0].x; "
                f"let thread = group * {lanes} + lane; let threads = groups * {lanes};")

    def _index(self, text: str) -> str:
        """A number of 32 bits as an index."""
        return self._converted_to(text, dtypes.int32, dtypes.index)

    def type_of(self, dtype: DType) -> str:
        """How a value is held."""
        return self.index if dtype is dtypes.index else HELD[dtype.name]

    _short = type_of  # functions are named after it

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number. Those that a compiler would compute with are hidden from it."""
        return wgsl_literal(value, dtype, self.type_of(dtype), self._call)

    def _narrow(self, text: str, dtype: DType) -> str:
        if dtype.itemsize >= 4:
            return text
        return f"extractBits({text}, 0u, {8 * dtype.itemsize}u)"

    def _converted_to(self, text: str, source: DType, target: DType) -> str:
        have, kind = self.type_of(source), self.type_of(target)
        if have[1:] == "32" and kind[1:] == "64" and source.kind != "f":
            return self._call(f"long_{have}_{kind}", text)
        return self._narrow(text if have == kind else f"{kind}({text})", target)

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """An array that a lane has for itself."""
        return f"var {name}: array<{self.type_of(dtype)}, {max(size, 1)}>;"

    def group_local(self, name: str, dtype: DType, size: int) -> str:
        """Words that the lanes of a group share."""
        self._words(name, name, "", dtype)
        words = -(-max(size, 1) * dtype.itemsize // 4)
        self.shares.append(f"var<workgroup> {name}: array<{self._word(name)}, {words}>;")
        return ""

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """A part of the memory that all groups share."""
        self._words(name, "scratch", str(offset // dtype.itemsize), dtype)
        return ""

    def _place(self, pointer: str, index: str) -> tuple[str, str]:
        words, first = self.arrays[pointer]
        at = f"i32({index})" if self.index == "i64" else index
        return words, f"({first} + {at})" if first else f"({at})"

    def load(self, pointer: str, index: str, dtype: DType) -> str:
        """Bits in memory, or in an array that a lane has for itself."""
        if pointer not in self.arrays:
            return f"{pointer}[i32({index})]"
        words, at = self._place(pointer, index)
        word = f"atomicLoad(&{words}[%s])" if words in self.atomic else f"{words}[%s]"
        if dtype.itemsize == 8:
            return self._call("pair_u64", word % f"2 * {at}", word % f"2 * {at} + 1")
        if dtype.itemsize == 4:
            return word % at
        return self._call(f"part_u{8 * dtype.itemsize}",
                          word % f"{at} / {4 // dtype.itemsize}", at)

    def store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """Write bits; where they are a part of a word, other lanes may write the rest of it."""
        # r[impl webgpu.word.rest]
        if pointer not in self.arrays:
            return self.assign(f"{pointer}[i32({index})]", value)
        words, at = self._place(pointer, index)
        if dtype.itemsize == 8:
            return (f"{{ let both = {value}; {words}[2 * {at}] = u32(both & 0xfffffffflu); "
                    f"{words}[2 * {at} + 1] = u32(both >> 32u); }}")
        if dtype.itemsize == 4:
            return f"atomicStore(&{words}[{at}], {value});" if words in self.atomic else \
                self.assign(f"{words}[{at}]", value)
        parts, mask = 4 // dtype.itemsize, (1 << 8 * dtype.itemsize) - 1
        return (f"{{ let part = u32({at} % {parts}) * {8 * dtype.itemsize}u; "
                f"atomicAnd(&{words}[{at} / {parts}], ~({mask}u << part)); "
                f"atomicOr(&{words}[{at} / {parts}], {value} << part); }}")

    def wait(self) -> str:
        """All lanes of a group get here before one goes on."""
        return "workgroupBarrier(); storageBarrier();"

    def _definition(self, name: str) -> Definition:
        text = text_of(name)
        return text, needs_of(name, text)


def indexed(text: str, arrays: Mapping[str, str]) -> str:
    """A text in which `x[i]` is an element of the array that x stands for, from where it begins."""
    if not arrays:
        return text
    found, ends, last = list[str](), list[bool](), 0
    names = "|".join(map(re.escape, arrays))
    for match in re.finditer(rf"(?<![\w.])({names})\s*\[|\[|\]", text):
        found.append(text[last:match.start()])
        last = match.end()
        if match[0] == "]":
            found.append(")]" if ends and ends.pop() else "]")
        else:
            words = arrays.get(match[1] or "")
            ends.append(words is not None)
            found.append(f"{words}[o{words} + i32(" if words else "[")
    return "".join([*found, text[last:]])
