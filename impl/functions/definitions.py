"""Functions that kernels call, and the types of vectors. Chapter: spec/functions.md.

A function is named after what it takes: `exp_f32` takes a number, `exp_f32x16` a vector. Most are
written once for both, with `$K` for the kind, `$F` for its type and `$I` for integers of its width
(see `fill`). What a definition needs is found by the names in its text.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable

from impl.functions.halves import FROM_FLOAT16, HALVES, TO_FLOAT16, TO_HALF
from impl.functions.tiles import TILES
from impl.functions.transcendental import TEMPLATES, TRIG_LARGE
from impl.functions.types import INLINE, TYPES, bits, fill, whole_limits
from impl.functions.vector_functions import vector_function, vector_type
from impl.functions.words import C_WORDS, worded
from impl.ir import ELEMENTWISE, Ops

#: Names of functions that are made for a kind, and of vector types.
_NAME = re.compile(r"(?<!@)\b(?:(?:[a-z][a-z0-9]*_)*[fiu](?:8|16|32|64)(?:x\d+)?"
                   r"|shuffle|mingle|tiles_allowed|(?:to|from|round)_b?float16)\b")

#: What an operation's function begins with; the kind of its operands follows.
_OF_OPERATIONS = {**{Ops(op): Ops(op).name.lower() for op in sorted(ELEMENTWISE)},
                  Ops.MAXIMUM: "max", Ops.MINIMUM: "min"}
_HALVES = ("float16", "bfloat16")
_FIXED = {
    "shuffle": """#ifdef __clang__
#define shuffle(v, mask, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define shuffle(v, mask, ...) __builtin_shuffle(v, (mask){__VA_ARGS__})
#endif""",
    "mingle": """#ifdef __clang__
#define mingle(a, b, mask, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define mingle(a, b, mask, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif""",
    "to_float16": INLINE + TO_FLOAT16,
    "from_float16": INLINE + FROM_FLOAT16,
    "tohalf_f64": INLINE + TO_HALF,
    "to_bfloat16": INLINE + """unsigned short to_bfloat16(float x) {
  unsigned int u = bits_f32(x), r = (u + (0x7fffu + ((u >> 16) & 1u))) >> 16;
  return x != x ? 0x7fc0 : r;
}""",
    "from_bfloat16": INLINE + """float from_bfloat16(unsigned short x) {
  return unbits_f32((int)((unsigned int)x << 16));
}""",
    # r[impl render.mask.places]
    "nearest": INLINE + "long nearest(long x, long most) "
    "{ return x < -1 ? -1 : x > most ? most : x; }",
    "fence": """#if defined(__SSE__) && defined(__GNUC__) && !defined(__clang__)
#define fence() __builtin_ia32_sfence()
#else
#define fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif""",
    # r[impl functions.function.error]: rounded once; where there is no instruction, in double,
    # where the product of two floats is whole.
    "fused_f32": """#ifdef __FP_FAST_FMAF
#define fused_f32(a, b, c) @fma_f32(a, b, c)
#else
#define fused_f32(a, b, c) ((float)((double)(a) * (b) + (c)))
#endif""",
    **TILES,
    # Numbers as vectors of one element: what templates call.
    "bits_f32": INLINE + "int bits_f32(float x) { union { float f; int i; } b; b.f = x; "
    "return b.i; }",
    "unbits_f32": INLINE + "float unbits_f32(int x) { union { float f; int i; } b; b.i = x; "
    "return b.f; }",
}
#: Numbers have operators for these; templates call them by name, since vectors have none.
_NUMBERS = {
    "sel": "#define sel_$K(m, a, b) ((m) ? (a) : (b))",
    "dup": "#define dup_$K(x) (x)",
    "real": "#define real_$K(x) (($F)(x))",
    "any": "#define any_$K(x) (x)",
    "higher": INLINE + "$F higher_$K($F a, $F b) { return a > b ? a : b; }",
    "lower": INLINE + "$F lower_$K($F a, $F b) { return a < b ? a : b; }",
    # r[impl conventions.zero.sign]: where GCC sees what `x` is, it takes `0 - x` for `-x`.
    "fromzero": INLINE + "$F fromzero_$K($F x) { return 0 - x; }",
    "triglarge": TRIG_LARGE,
    "dot": INLINE + """int dot_$K(int a, int b, int c) {
  for (int l = 0; l < 32; l += 8) c += (a >> l & 255) * (signed char)(b >> l);
  return c;
}""",
}


def _floordiv(kind: str) -> str:
    # r[impl kernel.integer.value]
    # r[impl kernel.integer.value]
    if kind[0] == "u":
        return fill("$F floordiv_$K($F a, $F b) { return b ? a / b : 0; }", kind)
    return fill("""$F floordiv_$K($F a, $F b) {
  if (b == 0) return 0;
  if (b == -1) return ($F)(-($U)a);
  $F q = a / b;
  return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}""", kind)


def _floormod(kind: str) -> str:
    # r[impl kernel.integer.value]
    # r[impl kernel.integer.value]
    if kind[0] == "u":
        return fill("$F floormod_$K($F a, $F b) { return b ? a % b : 0; }", kind)
    return fill("""$F floormod_$K($F a, $F b) {
  if (b == 0 || b == -1) return 0;
  $F r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}""", kind)


def _shift(name: str, kind: str) -> str:
    # r[impl kernel.integer.value]
    beyond = "(a < 0 ? ($F)-1 : 0)" if name == "shr" and kind[0] == "i" else "0"
    value = "($U)a << (b & $B)" if name == "shl" else "a >> (b & $B)"
    text = (f"$F {name}_$K($F a, $F b) {{ return ($U)b < {bits(kind)} ? ($F)({value}) "
            f": {beyond}; }}")
    return fill(text.replace("$B", str(bits(kind) - 1)), kind)


def _extreme(name: str, kind: str) -> str:
    sign = ">" if name == "max" else "<"
    if kind[0] == "f":  # r[impl conventions.nan.propagate]
        return fill(f"$F {name}_$K($F a, $F b) {{ $F m = a {sign} b ? a : b; "
                    "return a != a ? a : m; }", kind)
    return fill(f"$F {name}_$K($F a, $F b) {{ return a {sign} b ? a : b; }}", kind)


def _power(kind: str) -> str:
    # r[impl kernel.integer.value]
    negative = "" if kind[0] == "u" else \
        "  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n"
    return fill(f"""$F pow_$K($F a, $F b) {{
{negative}  $U r = 1, x = ($U)a, n = ($U)b;
  for (; n; n >>= 1) {{ if (n & 1) r = ($U)(1u * r * x); x = ($U)(1u * x * x); }}
  return ($F)r;
}}""", kind)


def _integer(kind: str) -> str:
    """A float cut off, or the least integer: for NaN and what does not fit C has no answer."""
    least, suffix = -2.0 ** (bits(kind) - 1), "f" if kind == "f32" else ""
    low, beyond = f"{least.hex()}{suffix}", f"{(-least).hex()}{suffix}"
    return fill(f"$I int_$K($F x) {{ return x >= {low} && x < {beyond} ? ($I)x : "
                f"($I)(($U)1 << {bits(kind) - 1}); }}", kind)


def _whole(source: str, target: str) -> str:
    """A float as an integer, cut off toward zero: r[impl dtypes.cast.float].

    C leaves open what becomes of NaN and of a number that does not fit. Here it is the nearest
    that fits.
    """
    kind = TYPES[source]
    low, high = whole_limits(source, target)
    return f"""{TYPES[target]} whole_{source}_{target}({kind} x) {{
  {kind} c = x > {low} ? x : {low}; c = c < {high} ? c : {high};
  return ({TYPES[target]})c;
}}"""


def _bitcast_function(name: str) -> str:
    source, target = name.removeprefix("bitcast_").split("_")
    take = f"to_{source}(x)" if source in _HALVES else "x"
    give = f"from_{target}(b.y)" if target in _HALVES else "b.y"
    one, two = ("unsigned short" if s in _HALVES else TYPES[s] for s in (source, target))
    kind, result = TYPES.get(source, "float"), TYPES.get(target, "float")
    return (f"{result} {name}({kind} x) {{ union {{ {one} x; {two} y; }} b; "
            f"b.x = {take}; return {give}; }}")


def _library(base: str, kind: str) -> str:
    """A function of the C library, under our name."""
    names = "ab"[:2 if base == "pow" else 1]
    parameters = ", ".join(f"{TYPES[kind]} {v}" for v in names)
    return (f"{TYPES[kind]} {base}_{kind}({parameters}) "
            f"{{ return @{base}_{kind}({', '.join(names)}); }}")


def _fused(kind: str) -> str:
    suffix = "f" if kind == "f32" else ""
    return f"""#ifdef __FP_FAST_FMA{suffix.upper()}
#define fma_{kind}(a, b, c) @fma_{kind}(a, b, c)
#else
#define fma_{kind}(a, b, c) ((a) * (b) + (c))
#endif"""


_MADE: dict[str, Callable[[str], str]] = {
    "floordiv": _floordiv, "floormod": _floormod,
    "shl": lambda s: _shift("shl", s), "shr": lambda s: _shift("shr", s),
    "max": lambda s: _extreme("max", s), "min": lambda s: _extreme("min", s), "pow": _power,
    "int": _integer,
}


def _number_function(name: str) -> str:
    """The definition of a function of numbers."""
    if name.startswith("bitcast_"):
        return INLINE + _bitcast_function(name)
    if name.startswith("whole_"):
        return INLINE + _whole(*name.removeprefix("whole_").split("_"))
    base, _, kind = name.rpartition("_")
    if base in _NUMBERS:
        return fill(_NUMBERS[base], kind)
    if base == "fma":
        return _fused(kind)
    formula = TEMPLATES.get(base) or HALVES.get(base)
    if formula is not None and kind == "f32":
        return INLINE + fill(formula, kind)
    if base in _MADE and not (base == "pow" and kind[0] == "f"):
        return INLINE + _MADE[base](kind)
    return INLINE + _library(base, kind)


@functools.lru_cache(maxsize=4096)
def definition(name: str) -> tuple[str, tuple[str, ...]]:
    """The text of a definition in C, and the names of those that it needs."""
    text = open_text(name)
    return worded(text, C_WORDS), needs_of(name, text)


def open_text(name: str) -> str:
    """The text of a definition; the words in which languages differ are left open."""
    if name in _FIXED:
        text = _FIXED[name]
    elif "_" not in name:
        text = vector_type(name) if "x" in name else ""
    elif name.removeprefix("round_") in _HALVES:
        half = name.removeprefix("round_")
        text = INLINE + f"float {name}(float x) {{ return from_{half}(to_{half}(x)); }}"
    elif "x" in name.rpartition("_")[2]:
        text = vector_function(name)
    else:
        text = _number_function(name)
    return text


def function_of(op: Ops, kind: str) -> str:
    """The name of the function that computes an operation on operands of a kind: `exp_f32`."""
    return f"{_OF_OPERATIONS[op]}_{kind}"


def needs_of(name: str, text: str) -> tuple[str, ...]:
    """The names of functions and types in the text of a definition, without its own."""
    return tuple(dict.fromkeys(found for found in _NAME.findall(text) if found != name))


Definition = tuple[str, tuple[str, ...]]


def definitions(names: Iterable[str],
                find: Callable[[str], Definition] = definition) -> tuple[str, ...]:
    """The definitions of functions and types, each after those that it needs."""
    ordered: dict[str, str] = {}
    stack = list(names)[::-1]
    while stack:
        name = stack[-1]
        text, needs = find(name)
        waiting = [n for n in needs if n not in ordered]
        if waiting:
            stack.extend(waiting[::-1])
        else:
            ordered.setdefault(stack.pop(), text)
    return tuple(text for text in ordered.values() if text)
