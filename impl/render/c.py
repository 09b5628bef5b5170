"""The C dialect: types, literals, operations and the functions they call. Chapter: spec/render.md.

Everything is written so that gcc and clang can vectorise it without `-ffast-math`: functions are
inlined, free of branches where possible, and exact about NaN, wraparound and division by zero.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from impl.dtypes import DType, Scalar, dtypes
from impl.ir import COMPARISONS, Ops, UOp

_SHORT = {"bool": "u8", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16",
          "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "index": "i64",
          "float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64"}
_TYPES = {"u8": "unsigned char", "i8": "signed char", "i16": "short", "u16": "unsigned short",
          "i32": "int", "u32": "unsigned int", "i64": "long", "u64": "unsigned long",
          "f32": "float", "f64": "double"}
_STORAGE = {dtypes.float16: "_Float16", dtypes.bfloat16: "unsigned short"}
_SIZES = {"u8": 1, "i8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
          "f32": 4, "f64": 8}
#: Stage buffers together up to this many bytes stand on the stack.
_STACK_BYTES = 64 << 10
#: No stage buffer has fewer bytes.
_LEAST_LOCAL = 256
_HALF = (dtypes.float16, dtypes.bfloat16)


class C:
    """C for gcc and clang. See `Dialect` for what the methods do."""

    name = "C"
    signature = "void {name}(void **args)"
    threaded = "void {name}(void **args, long thread, long phase, char *scratch)"
    widest_inline = 72
    widest_again = 120

    def __init__(self) -> None:
        self.needed: dict[str, None] = {}

    def begin(self) -> None:
        """Forget the declarations that the last kernel needed."""
        self.needed = {}

    def definitions(self) -> tuple[str, ...]:
        """The functions and vector types that the printed kernel needs."""
        return definitions(self.needed)

    def _call(self, function: str, *given: str) -> str:
        self.needed.setdefault(function)
        return f"{function}({', '.join(given)})"

    def type_of(self, dtype: DType) -> str:
        """The type of a variable; half types are computed with as float."""
        return _TYPES[_SHORT[dtype.name]]

    def storage_of(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return _STORAGE.get(dtype) or self.type_of(dtype)

    def vector_type(self, dtype: DType, count: int) -> str:
        """A type of `count` elements, e.g. f32x16."""
        name = f"{_SHORT[dtype.name]}x{count}"
        self.needed.setdefault(name)
        return name

    # --8<-- [start:vector]
    def vector_of(self, dtype: DType, count: int, element: str) -> str:
        """A loop over the elements that gcc's vectoriser takes, masked loads included.

        Not unrolled: what is unrolled before the vectoriser sees it stays scalar.
        """
        kind = self.vector_type(dtype, count)
        return (f"({{ {self.type_of(dtype)} t[{count}] __attribute__((aligned(64))); "
                '_Pragma("GCC ivdep") _Pragma("GCC unroll 1") '
                f"for (long l = 0; l < {count}; l++) t[l] = {element}; *({kind} *)t; }})")

    def broadcast(self, dtype: DType, count: int, value: str) -> str:
        """x - 0 is x for every x, also for -0 and NaN."""
        return f"({value} - ({self.vector_type(dtype, count)}){{0}})"

    def vector_operation(self, op: Ops, dtype: DType, count: int,
                         given: Sequence[tuple[str, bool]]) -> str | None:
        """Arithmetic that C has for vectors; maxima by a function."""
        if dtype in _HALF or dtype.kind == "b" or not any(vector for _, vector in given):
            return None
        texts = [text for text, _ in given]
        if op in _INFIX and (op is not Ops.DIV or dtype.kind == "f"):
            return f"({texts[0]} {_INFIX[op]} {texts[1]})"
        if op is Ops.NEG:
            return f"(-{texts[0]})"
        if op is Ops.RECIPROCAL:
            return f"({self.literal(1.0, dtype)} / {texts[0]})"
        if op in (Ops.MAXIMUM, Ops.MINIMUM):
            return self._vector_call(_FUNCTIONS[op], dtype, count, given)
        return None

    def vector_fused(self, dtype: DType, count: int,
                     given: Sequence[tuple[str, bool]]) -> str | None:
        """A product added to a sum."""
        return self._vector_call("fma", dtype, count, given)

    def vector_fold(self, op: Ops, dtype: DType, count: int, value: str) -> str | None:
        """Halve the vector until one element is left."""
        if dtype in _HALF or dtype.kind == "b":
            return None
        return self._call(f"fold_{_FOLDS[op]}_{self.vector_type(dtype, count)}", value)

    def _vector_call(self, function: str, dtype: DType, count: int,
                     given: Sequence[tuple[str, bool]]) -> str:
        texts = [text if vector else self.broadcast(dtype, count, text) for text, vector in given]
        return self._call(f"{function}_{self.vector_type(dtype, count)}", *texts)
    # --8<-- [end:vector]

    # --8<-- [start:literal]
    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number that the compiler reads back exactly."""
        # r[impl render.literal.exact]
        if dtype.kind != "f":
            return self._whole(int(value), dtype)
        suffix = "" if dtype is dtypes.float64 else "f"
        number = float(value)
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return ("-" if number < 0 else "") + f"__builtin_inf{suffix}()"
        if number == int(number) and abs(number) < 1e6:
            text = f"{number:.1f}{suffix}"
        else:
            text = number.hex() + suffix
        return f"({text})" if math.copysign(1, number) < 0 else text

    def _whole(self, value: int, dtype: DType) -> str:
        if value == -(1 << 63):
            return "(-9223372036854775807L - 1)"
        if value == -(1 << 31):
            return "(-2147483647 - 1)"
        suffix = {"u32": "u", "u64": "ul"}.get(_SHORT[dtype.name], "")
        if dtype.itemsize == 8 and dtype.kind == "i" and abs(value) >= 1 << 31:
            suffix = "L"
        return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"
    # --8<-- [end:literal]

    # --8<-- [start:operation]
    def operation(self, node: UOp, given: Sequence[str], plain: bool) -> str:
        """An operation on values, exact in the node's dtype."""
        op, dtype = node.op, node.dtype
        if op in COMPARISONS:
            return f"({given[0]} {_COMPARISONS[op]} {given[1]})"
        if op is Ops.WHERE:
            return f"({given[0]} ? {given[1]} : {given[2]})"
        if op is Ops.CAST:
            return self._cast(given[0], node.src[0].dtype, dtype)
        if op is Ops.BITCAST:
            return self._bitcast(given[0], node.src[0].dtype, dtype)
        if dtype.kind == "f":
            return self._round(self._floating(op, dtype, given), op, dtype)
        if dtype.kind == "b":
            return self._logical(op, given)
        return self._integer(op, dtype, given, plain)

    def _round(self, text: str, op: Ops, dtype: DType) -> str:
        """Half types are rounded after every operation."""
        # r[impl kernel.half.round]
        if dtype not in _HALF or op in _EXACT:
            return text
        return self.finish(dtype, text)

    def _floating(self, op: Ops, dtype: DType, given: Sequence[str]) -> str:
        short = "f64" if dtype is dtypes.float64 else "f32"
        if op in _INFIX:
            return f"({given[0]} {_INFIX[op]} {given[1]})"
        if op is Ops.NEG:
            return f"(-{given[0]})"
        if op is Ops.RECIPROCAL:
            return f"({self.literal(1.0, dtype)} / {given[0]})"
        return self._call(f"{_FUNCTIONS[op]}_{short}", *given)

    def _logical(self, op: Ops, given: Sequence[str]) -> str:
        """A result is true if the integer result is not 0."""
        # r[impl kernel.bool.arithmetic]
        if op in (Ops.ADD, Ops.OR, Ops.MAXIMUM):
            return f"({given[0]} | {given[1]})"
        if op in (Ops.MUL, Ops.AND, Ops.MINIMUM, Ops.POW):
            return f"({given[0]} & {given[1]})" if op is not Ops.POW \
                else f"({given[0]} | !{given[1]})"
        if op in (Ops.SUB, Ops.XOR):
            return f"({given[0]} ^ {given[1]})"
        if op is Ops.FLOORDIV:
            return f"({given[0]} & {given[1]})"
        if op is Ops.FLOORMOD:
            return f"({given[0]} & 0)"
        if op is Ops.SHL or op is Ops.SHR:
            return f"({given[0]} & !{given[1]})"
        return given[0]  # NEG, TRUNC, FLOOR

    def _integer(self, op: Ops, dtype: DType, given: Sequence[str], plain: bool) -> str:
        short = _SHORT[dtype.name]
        if op in _INFIX and op is not Ops.DIV:
            return self._narrow(f"({given[0]} {_INFIX[op]} {given[1]})", dtype)
        if op in (Ops.TRUNC, Ops.FLOOR):
            return given[0]
        if op is Ops.NEG:
            return self._narrow(f"(-{given[0]})", dtype)
        if plain:
            return f"({given[0]} {'/' if op is Ops.FLOORDIV else '%'} {given[1]})"
        return self._call(f"{_FUNCTIONS[op]}_{short}", *given)

    def _narrow(self, text: str, dtype: DType) -> str:
        """C computes small integers as int; cut them back."""
        # r[impl conventions.integers.exact]
        if dtype.itemsize >= 4:
            return text
        return f"(({self.type_of(dtype)}){text})"
    # --8<-- [end:operation]

    # --8<-- [start:cast]
    def _cast(self, text: str, source: DType, target: DType) -> str:
        if _SHORT[source.name] == _SHORT[target.name] and source.kind == target.kind \
                and target not in _HALF:
            return text
        if target.kind == "b":
            return f"({text} != 0)"
        if target in _HALF:
            if target is dtypes.float16 and source is dtypes.float64:
                self.needed.setdefault("half")
                return f"((float)(_Float16){text})"
            return text if source is target else self.finish(target, f"((float){text})")
        if source.kind == "f" and target.kind != "f":
            # By way of a wider type, so that values that do not fit wrap around, as elsewhere.
            wide = _SHORT[target.name] if target.itemsize == 8 else \
                "i64" if target is dtypes.uint32 else "i32"
            text = self._call(f"whole_{_SHORT[source.name]}_{wide}", text)
        return f"(({self.type_of(target)}){text})"

    def _bitcast(self, text: str, source: DType, target: DType) -> str:
        if source is target:
            return text
        one = source.name if source in _HALF else _SHORT[source.name]
        two = target.name if target in _HALF else _SHORT[target.name]
        return self._call(f"bitcast_{one}_{two}", text)
    # --8<-- [end:cast]

    def combine(self, op: Ops, dtype: DType, first: str, second: str) -> str:
        """One step of a reduction."""
        if dtype.kind == "f":
            return self._floating(op, dtype, (first, second))
        if dtype.kind == "b":
            return self._logical(op, (first, second))
        return self._integer(op, dtype, (first, second), False)

    def fused(self, dtype: DType, first: str, second: str, third: str) -> str:
        """A product added to a sum, in one operation where the processor has it."""
        return self._call(f"fma_{_SHORT[dtype.name]}", first, second, third)

    def finish(self, dtype: DType, value: str) -> str:
        """Round to a half type; other types are what they are."""
        return self._call(f"round_{dtype.name}", value) if dtype in _HALF else value

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """A pointer taken from the table of arguments."""
        kind = self.storage_of(param.dtype) if written else f"const {self.storage_of(param.dtype)}"
        return f"{kind} *{name} = args[{param.arg}];"

    def variable(self, name: str, position: int) -> str:
        """A run-time integer, read through its pointer."""
        return f"const long {name} = *(const long *)args[{position}];"

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """An array on the stack, or one for each thread if it is large.

        None is smaller than a vector: GCC 12 believes that a masked load of a vector cannot read
        from a smaller array, and drops what was stored there.
        """
        where = "" if total <= _STACK_BYTES else "static _Thread_local "
        count = max(size, _LEAST_LOCAL // dtype.itemsize)
        return f"{where}{self.storage_of(dtype)} {name}[{count}] __attribute__((aligned(64)));"

    # --8<-- [start:memory]
    def load(self, pointer: str, index: str, dtype: DType) -> str:
        """An element, as the type that is computed with."""
        text = f"{pointer}[{index}]"
        if dtype is dtypes.float16:
            return f"((float){text})"
        return self._call("from_bfloat16", text) if dtype is dtypes.bfloat16 else text

    def guarded(self, pointer: str, name: str, dtype: DType) -> str:
        """A copy of a pointer of which the compiler does not know what it points to.

        Each conditional load reads through one of its own. GCC 12 would else put neighbouring ones
        into one group and give all its vectors the same mask.
        """
        # r[impl cpu.compiler.fault]
        kind = self.storage_of(dtype)
        return f'const {kind} *{name} = {pointer}; __asm__("" : "+r"({name}) : : "memory");'

    def load_vector(self, pointer: str, index: str, dtype: DType, count: int) -> str | None:
        """Neighbouring elements; unaligned, as tensors may start anywhere."""
        if dtype in _HALF:
            return None
        return f"*(const {self.vector_type(dtype, count)}u *)({pointer} + {index})"

    def store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """Write an element."""
        if dtype is dtypes.float16:
            value = f"(_Float16){value}"
        elif dtype is dtypes.bfloat16:
            value = self._call("to_bfloat16", value)
        return f"{pointer}[{index}] = {value};"

    def store_vector(self, pointer: str, index: str, dtype: DType, count: int,
                     value: str) -> str | None:
        """Write neighbouring elements."""
        if dtype in _HALF:
            return None
        return f"*({self.vector_type(dtype, count)}u *)({pointer} + {index}) = {value};"
    # --8<-- [end:memory]

    def loop(self, name: str, extent: str, independent: bool, guarded: bool) -> list[str]:
        """A counted loop. Its iterations are independent unless a reduction says otherwise.

        One with conditional loads is not unrolled (see `guarded`).
        """
        return self._loop(name, "0", extent, independent, guarded)

    def _loop(self, name: str, first: str, last: str, independent: bool,
              guarded: bool) -> list[str]:
        lines = [f"for (long {name} = {first}; {name} < {last}; {name}++) {{"]
        if guarded:
            lines.insert(0, "#pragma GCC unroll 1")
        return ["#pragma GCC ivdep", *lines] if independent else lines

    # --8<-- [start:share]
    def share(self, name: str, extent: str, threads: int, independent: bool,
              guarded: bool) -> list[str]:
        """A loop over one of `threads` parts, whose sizes differ by one unit at most.

        The unit is one iteration, or 16 where that makes little difference: then parts begin at
        the beginning of a cache line, if the memory does.
        """
        # r[impl render.thread.parts]
        if extent.isdecimal() and int(extent) % threads == 0:
            each = int(extent) // threads
            first, last = f"thread * {each}", f"thread * {each} + {each}"
        elif extent.isdecimal() and int(extent) >= 256 * threads:
            units = int(extent) // 16
            first = f"{units} * thread / {threads} * 16"
            last = f"(thread < {threads - 1} ? {units} * (thread + 1) / {threads} * 16 : {extent})"
        else:
            first = f"({extent}) * thread / {threads}"
            last = f"({extent}) * (thread + 1) / {threads}"
        return self._loop(name, first, last, independent, guarded)

    def phase(self, number: int, over: bool) -> str:
        """Phases are counted by the device."""
        return f"if (phase == {number}) return;" if over else f"if (phase == {number}) {{"

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """An array in the scratch memory of a run."""
        kind = self.storage_of(dtype)
        return f"{kind} *{name} = ({kind} *)(scratch + {offset});"
    # --8<-- [end:share]


_COMPARISONS = {Ops.CMPLT: "<", Ops.CMPLE: "<=", Ops.CMPEQ: "==", Ops.CMPNE: "!="}
_INFIX = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.DIV: "/", Ops.AND: "&", Ops.OR: "|",
          Ops.XOR: "^"}
_FUNCTIONS = {Ops.SQRT: "sqrt", Ops.EXP: "exp", Ops.EXP2: "exp2", Ops.LOG: "log", Ops.LOG2: "log2",
              Ops.SIN: "sin", Ops.COS: "cos", Ops.TANH: "tanh", Ops.ERF: "erf",
              Ops.TRUNC: "trunc", Ops.FLOOR: "floor", Ops.FLOORDIV: "floordiv",
              Ops.FLOORMOD: "floormod", Ops.MAXIMUM: "max", Ops.MINIMUM: "min", Ops.POW: "pow",
              Ops.SHL: "shl", Ops.SHR: "shr"}
_FOLDS = {Ops.ADD: "add", Ops.MUL: "mul", Ops.MAXIMUM: "max", Ops.MINIMUM: "min"}
#: Operations whose result in a half type needs no rounding.
_EXACT = {Ops.NEG, Ops.MAXIMUM, Ops.MINIMUM, Ops.TRUNC, Ops.FLOOR}


# --8<-- [start:functions]
_INLINE = "static inline __attribute__((always_inline)) "

_FIXED = {
    "half": "",
    "shuffle": """#ifdef __clang__
#define shuffle(v, mask, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define shuffle(v, mask, ...) __builtin_shuffle(v, (mask){__VA_ARGS__})
#endif""",
    "round_float16": _INLINE + "float round_float16(float x) { return (float)(_Float16)x; }",
    "bits": "typedef union { float f; int i; unsigned int u; } bits_f32;",
    "to_bfloat16": _INLINE + """unsigned short to_bfloat16(float x) {
  bits_f32 b; b.f = x;
  unsigned int r = (b.u + (0x7fffu + ((b.u >> 16) & 1u))) >> 16;
  return x != x ? 0x7fc0 : r;
}""",
    "from_bfloat16": _INLINE + """float from_bfloat16(unsigned short x) {
  bits_f32 b; b.u = (unsigned int)x << 16; return b.f;
}""",
    "round_bfloat16": _INLINE
    + "float round_bfloat16(float x) { return from_bfloat16(to_bfloat16(x)); }",
    # Nothing, but the compiler does not know it. `const`: it is called once, outside of loops.
    "opaque_zero": """static __attribute__((noinline, const)) int opaque_zero(void) {
  int zero = 0; __asm__("" : "+r"(zero)); return zero;
}""",
    "fma_f32": """#ifdef __FP_FAST_FMAF
#define fma_f32(a, b, c) __builtin_fmaf(a, b, c)
#else
#define fma_f32(a, b, c) ((a) * (b) + (c))
#endif""",
    "fma_f64": """#ifdef __FP_FAST_FMA
#define fma_f64(a, b, c) __builtin_fma(a, b, c)
#else
#define fma_f64(a, b, c) ((a) * (b) + (c))
#endif""",
    # 2**n in two factors, so that subnormal results are right; |n| <= 151 or so.
    "scale_f32": _INLINE + """float scale_f32(float x, int n) {
  bits_f32 a, b; int h = n >> 1;
  a.i = (h + 127) << 23; b.i = (n - h + 127) << 23;
  return x * a.f * b.f;
}""",
    # exp(x) = 2**n * exp(r), |r| <= ln(2)/2; n is rounded by adding and taking away 1.5 * 2**23.
    "exp_f32": _INLINE + """float exp_f32(float x) {
  float c = x < -104.0f ? -104.0f : x; c = c > 89.0f ? 89.0f : c;
  float n = fma_f32(c, 1.44269504f, 12582912.0f) - 12582912.0f;
  float r = fma_f32(n, -0.693145752f, c); r = fma_f32(n, -1.42860677e-6f, r);
  float p = 1.37805939e-3f;
  p = fma_f32(p, r, 8.37312452e-3f); p = fma_f32(p, r, 4.16695364e-2f);
  p = fma_f32(p, r, 1.66664720e-1f); p = fma_f32(p, r, 4.99999851e-1f);
  p = fma_f32(p, r, 1.0f); p = fma_f32(p, r, 1.0f);
  return x != x ? x : scale_f32(p, (int)n);
}""",
    "exp2_f32": _INLINE + """float exp2_f32(float x) {
  float c = x < -151.0f ? -151.0f : x; c = c > 129.0f ? 129.0f : c;
  float n = (c + 12582912.0f) - 12582912.0f;
  float r = c - n;
  float p = 1.54035304e-4f;
  p = fma_f32(p, r, 1.33335581e-3f); p = fma_f32(p, r, 9.61812911e-3f);
  p = fma_f32(p, r, 5.55041087e-2f); p = fma_f32(p, r, 2.40226507e-1f);
  p = fma_f32(p, r, 6.93147181e-1f); p = fma_f32(p, r, 1.0f);
  return x != x ? x : scale_f32(p, (int)n);
}""",
    # log(x) = e * ln(2) + log(m), m from sqrt(1/2) to sqrt(2).
    "log_parts_f32": _INLINE + """float log_parts_f32(float x, float *e) {
  float big = x < 1.17549435e-38f ? x * 8388608.0f : x;
  float shift = x < 1.17549435e-38f ? 23.0f : 0.0f;
  bits_f32 b; b.f = big;
  int k = (b.i - 0x3f3504f3) >> 23;
  b.i -= k << 23;
  *e = (float)k - shift;
  float m = b.f - 1.0f, z = m * m;
  float p = 7.0376836292e-2f;
  p = fma_f32(p, m, -1.1514610310e-1f); p = fma_f32(p, m, 1.1676998740e-1f);
  p = fma_f32(p, m, -1.2420140846e-1f); p = fma_f32(p, m, 1.4249322787e-1f);
  p = fma_f32(p, m, -1.6668057665e-1f); p = fma_f32(p, m, 2.0000714765e-1f);
  p = fma_f32(p, m, -2.4999993993e-1f); p = fma_f32(p, m, 3.3333331174e-1f);
  return m + (fma_f32(p, m * z, -0.5f * z));
}""",
    "log_edges_f32": _INLINE + """float log_edges_f32(float x, float r) {
  r = x == __builtin_inff() ? x : r;
  r = x == 0.0f ? -__builtin_inff() : r;
  return x >= 0.0f ? r : __builtin_nanf("");
}""",
    "log_f32": _INLINE + """float log_f32(float x) {
  float e, m = log_parts_f32(x, &e);
  m = fma_f32(e, -2.12194440e-4f, m);
  return log_edges_f32(x, fma_f32(e, 0.693359375f, m));
}""",
    "log2_f32": _INLINE + """float log2_f32(float x) {
  float e, m = log_parts_f32(x, &e);
  return log_edges_f32(x, fma_f32(m, 1.44269504f, fma_f32(m, 1.92596303e-8f, e)));
}""",
    "tanh_f32": _INLINE + """float tanh_f32(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float p = -5.70498872745e-3f;
  p = fma_f32(p, s, 2.06390887954e-2f); p = fma_f32(p, s, -5.37397155531e-2f);
  p = fma_f32(p, s, 1.33314422036e-1f); p = fma_f32(p, s, -3.33332819422e-1f);
  float small = fma_f32(p * s, x, x);
  float big = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);
  return a < 0.625f ? small : __builtin_copysignf(big, x);
}""",
    "erf_f32": _INLINE + """float erf_f32(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float r = fma_f32(-1.72853470e-5f, a, 3.83197126e-4f);
  float u = fma_f32(-3.88396438e-3f, a, 2.42546219e-2f);
  r = fma_f32(r, s, u); r = fma_f32(r, a, -1.06777877e-1f);
  r = fma_f32(r, a, -6.34846687e-1f); r = fma_f32(r, a, -1.28717512e-1f);
  r = fma_f32(r, a, -a);
  float big = 1.0f - exp_f32(r);
  big = a > 4.0f ? 1.0f : big;
  float p = -5.96761703e-4f;
  p = fma_f32(p, s, 4.99119423e-3f); p = fma_f32(p, s, -2.67681349e-2f);
  p = fma_f32(p, s, 1.12819925e-1f); p = fma_f32(p, s, -3.76125336e-1f);
  p = fma_f32(p, s, 1.28379166e-1f);
  float small = fma_f32(p, x, x);
  float found = a > 0.927734375f ? __builtin_copysignf(big, x) : small;
  return x != x ? x : found;
}""",
}
#: Functions that others call; they are written before them.
_NEEDS = {
    "to_bfloat16": ("bits",), "from_bfloat16": ("bits",),
    "round_bfloat16": ("to_bfloat16", "from_bfloat16"),
    "scale_f32": ("bits",), "exp_f32": ("fma_f32", "scale_f32"),
    "exp2_f32": ("fma_f32", "scale_f32"), "log_parts_f32": ("bits", "fma_f32"),
    "log_f32": ("log_parts_f32", "log_edges_f32"), "log2_f32": ("log_parts_f32", "log_edges_f32"),
    "tanh_f32": ("exp_f32",), "erf_f32": ("exp_f32",),
}
# --8<-- [end:functions]


# --8<-- [start:exact]
def _unsigned(short: str) -> str:
    return _TYPES["u" + short[1:]]


def _floordiv(short: str) -> str:
    # r[impl kernel.divide.zero]
    # r[impl kernel.divide.floor]
    kind = _TYPES[short]
    if short[0] == "u":
        return f"{kind} floordiv_{short}({kind} a, {kind} b) {{ return b ? a / b : 0; }}"
    return f"""{kind} floordiv_{short}({kind} a, {kind} b) {{
  if (b == 0) return 0;
  if (b == -1) return ({kind})(-({_unsigned(short)})a);
  {kind} q = a / b;
  return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}}"""


def _floormod(short: str) -> str:
    # r[impl kernel.divide.zero]
    # r[impl kernel.divide.floor]
    kind = _TYPES[short]
    if short[0] == "u":
        return f"{kind} floormod_{short}({kind} a, {kind} b) {{ return b ? a % b : 0; }}"
    return f"""{kind} floormod_{short}({kind} a, {kind} b) {{
  if (b == 0 || b == -1) return 0;
  {kind} r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}}"""


def _shift(name: str, short: str) -> str:
    # r[impl kernel.shift.width]
    kind, bits = _TYPES[short], 8 * _SIZES[short]
    fill = f"(a < 0 ? ({kind})-1 : 0)" if name == "shr" and short[0] == "i" else "0"
    value = f"({_unsigned(short)})a << (b & {bits - 1})" if name == "shl" \
        else f"a >> (b & {bits - 1})"
    return (f"{kind} {name}_{short}({kind} a, {kind} b) {{ "
            f"return ({_unsigned(short)})b < {bits} ? ({kind})({value}) : {fill}; }}")


def _extreme(name: str, short: str) -> str:
    kind, sign = _TYPES[short], ">" if name == "max" else "<"
    if short[0] == "f":  # r[impl conventions.nan.propagate]
        return (f"{kind} {name}_{short}({kind} a, {kind} b) {{ "
                f"{kind} m = a {sign} b ? a : b; return a != a ? a : m; }}")
    return f"{kind} {name}_{short}({kind} a, {kind} b) {{ return a {sign} b ? a : b; }}"


def _power(short: str) -> str:
    # r[impl kernel.power.integer]
    kind, wide = _TYPES[short], _unsigned(short)
    negative = "" if short[0] == "u" else \
        "  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n"
    return f"""{kind} pow_{short}({kind} a, {kind} b) {{
{negative}  {wide} r = 1, x = ({wide})a, n = ({wide})b;
  for (; n; n >>= 1) {{ if (n & 1) r = ({wide})(r * x); x = ({wide})(x * x); }}
  return ({kind})r;
}}"""


def _whole(name: str) -> str:
    """A float as an integer, cut off toward zero: r[impl dtypes.cast.float].

    C leaves open what becomes of NaN and of a number that does not fit. Here it is the nearest
    that fits. `opaque_zero` keeps GCC from making a truncation of the cast and the cast back to
    float: that would give -0 for -0.5, and NaN for NaN.
    """
    source, target = name.removeprefix("whole_").split("_")
    kind, bits, digits = _TYPES[source], 8 * _SIZES[target], 24 if source == "f32" else 53
    least, bits = (0.0, bits) if target[0] == "u" else (-2.0 ** (bits - 1), bits - 1)
    most = float((1 << bits) - (1 << max(bits - digits, 0)))
    suffix = "f" if source == "f32" else ""
    low, high = f"{least.hex()}{suffix}", f"{most.hex()}{suffix}"
    return f"""{_TYPES[target]} {name}({kind} x) {{
  {kind} c = x > {low} ? x : {low}; c = c < {high} ? c : {high};
  return ({_TYPES[target]})c | opaque_zero();
}}"""


def _bitcast_function(name: str) -> str:
    source, target = name.removeprefix("bitcast_").split("_")
    memory = {"float16": "_Float16", "bfloat16": "unsigned short"}
    take = {"bfloat16": "to_bfloat16(x)"}.get(source, "x")
    give = {"bfloat16": "from_bfloat16(b.y)"}.get(target, "b.y")
    one, two = (memory.get(s) or _TYPES[s] for s in (source, target))
    kind, result = _TYPES.get(source, "float"), _TYPES.get(target, "float")
    return (f"{result} {name}({kind} x) {{ union {{ {one} x; {two} y; }} b; "
            f"b.x = {take}; return {give}; }}")


def _library(name: str) -> str:
    """A function of the C library, under our name."""
    base, short = name.rsplit("_", 1)
    kind, suffix = _TYPES[short], "" if short == "f64" else "f"
    count = 2 if base == "pow" else 1
    parameters = ", ".join(f"{kind} {v}" for v in "ab"[:count])
    return (f"{kind} {name}({parameters}) "
            f"{{ return __builtin_{base}{suffix}({', '.join('ab'[:count])}); }}")
# --8<-- [end:exact]


_MADE: dict[str, Callable[[str], str]] = {
    "floordiv": _floordiv, "floormod": _floormod,
    "shl": lambda s: _shift("shl", s), "shr": lambda s: _shift("shr", s),
    "max": lambda s: _extreme("max", s), "min": lambda s: _extreme("min", s),
}


def _vector(name: str) -> str:
    short, count = name.split("x")
    kind, size = _TYPES[short], _SIZES[short] * int(count)
    return (f"typedef {kind} {name} __attribute__((vector_size({size})));\n"
            f"typedef {kind} {name}u "
            f"__attribute__((vector_size({size}), aligned({_SIZES[short]}), may_alias));")


#: gcc's names for a fused multiply-add of a whole vector; without them it may take vectors apart.
_VECTOR_FMA = {"f32x16": ("__AVX512F__", "vfmaddps512_mask(a, b, c, -1, 4)"),
               "f64x8": ("__AVX512F__", "vfmaddpd512_mask(a, b, c, -1, 4)"),
               "f32x8": ("__FMA__", "vfmaddps256(a, b, c)"),
               "f64x4": ("__FMA__", "vfmaddpd256(a, b, c)"),
               "f32x4": ("__FMA__", "vfmaddps(a, b, c)"),
               "f64x2": ("__FMA__", "vfmaddpd(a, b, c)")}


def _vector_function(base: str, kind: str) -> str:
    """A function of one element, applied to each."""
    scalar, count = kind.split("x")
    if base != "fma":
        return _vector_extreme(base, kind, _mask_type(kind))
    names = "abc"[:3 if base == "fma" else 2]
    parameters = ", ".join(f"{kind} {v}" for v in names)
    given = ", ".join(f"{v}[l]" for v in names)
    loop = (f"{kind} r; for (long l = 0; l < {count}; l++) r[l] = {base}_{scalar}({given}); "
            "return r;")
    if base == "fma" and kind in _VECTOR_FMA:
        feature, call = _VECTOR_FMA[kind]
        loop = (f"\n#if defined({feature}) && defined(__GNUC__) && !defined(__clang__)\n"
                f"  return __builtin_ia32_{call};\n#else\n  {loop}\n#endif\n")
    return f"{kind} {base}_{kind}({parameters}) {{ {loop} }}"


def _mask_type(kind: str) -> str:
    """What comparing two vectors gives: integers of the same size, 0 or -1."""
    scalar, count = kind.split("x")
    return f"i{8 * _SIZES[scalar]}x{count}"


def _vector_extreme(base: str, kind: str, mask: str) -> str:
    """Maximum or minimum by masks: C has no conditional for vectors. NaN wins."""
    chosen = f"a {'>' if base == 'max' else '<'} b"
    if kind[0] == "f":
        chosen = f"({chosen}) | (a != a)"
    return (f"{kind} {base}_{kind}({kind} a, {kind} b) {{ {mask} m = {chosen}; "
            f"return ({kind})((m & ({mask})a) | (~m & ({mask})b)); }}")


def _fold_needs(op: str, kind: str) -> tuple[str, ...]:
    function = () if op in ("add", "mul") else (f"{op}_{kind}",)
    return (kind, _mask_type(kind), *function, "shuffle")


def _fold_function(base: str, kind: str) -> str:
    """Combine a vector with itself, turned by half, then by a quarter, ...: all elements agree."""
    op, (scalar, count) = base.removeprefix("fold_"), kind.split("x")
    size, mask, lines = int(count), _mask_type(kind), list[str]()
    step = size // 2
    while step:
        places = ", ".join(str(i ^ step) for i in range(size))
        turned = f"shuffle(v, {mask}, {places})"
        lines.append("v = " + {"add": f"v + {turned}", "mul": f"v * {turned}"}.get(
            op, f"{op}_{kind}(v, {turned})") + ";")
        step //= 2
    body = "\n  ".join(lines)
    return f"{_TYPES[scalar]} {base}_{kind}({kind} v) {{\n  {body}\n  return v[0];\n}}"


def _definition(name: str) -> str:
    if name in _FIXED:
        return _FIXED[name]
    if name.startswith("bitcast_"):
        return _INLINE + _bitcast_function(name)
    if name.startswith("whole_"):
        return _INLINE + _whole(name)
    base, _, short = name.rpartition("_")
    if base.startswith("fold_"):
        return _INLINE + _fold_function(base, short)
    if base and "x" in short:
        return _INLINE + _vector_function(base, short)
    if base in _MADE:
        return _INLINE + _MADE[base](short)
    if base == "pow" and short[0] != "f":
        return _INLINE + _power(short)
    return _INLINE + _library(name) if base else _vector(name)


def _needs(name: str) -> tuple[str, ...]:
    if name.startswith("bitcast_") and "bfloat16" in name:
        return "to_bfloat16", "from_bfloat16"
    if name.startswith("whole_"):
        return ("opaque_zero",)
    base, _, short = name.rpartition("_")
    if base.startswith("fold_"):
        return _fold_needs(base.removeprefix("fold_"), short)
    if base and "x" in short and short[0] in "fiu":
        scalar = f"{base}_{short.split('x')[0]}"
        return (short, scalar) if base == "fma" else (short, _mask_type(short))
    return _NEEDS.get(name, ())


def definitions(names: Iterable[str]) -> tuple[str, ...]:
    """The definitions of functions and types, each after those that it needs."""
    ordered: dict[str, None] = {}
    stack = list(names)[::-1]
    while stack:
        name = stack[-1]
        waiting = [n for n in _needs(name) if n not in ordered]
        if waiting:
            stack.extend(waiting[::-1])
        else:
            ordered.setdefault(stack.pop())
    return tuple(text for text in map(_definition, ordered) if text)
