"""What kernels in WGSL call. Chapter: spec/webgpu.md.

The transcendental functions are those of all languages (see `transcendental`): a formula is a head,
declarations and sums, and WGSL writes heads and declarations in its own way.

`exact_f32` makes a float something that a compiler knows nothing of: its bits, or a zero that lies
in memory (of what a launch is told, a driver may make constants). Otherwise it may take (a + b) - a
for b, x * 0 for 0, and x != x for false; WGSL lets it. An exclusive or would not do: done twice, a
compiler removes it. But it tells a number from the same number made exact, so `apart_f32` is for
what is taken from itself, or divided by itself.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable

from impl.dtypes import DType, Scalar, dtypes, float_bits
from impl.functions.halves import HALVES
from impl.functions.transcendental import TEMPLATES
from impl.functions.words import Words, worded

#: How values are held: small integers in 32 bits, half types as floats.
HELD = {"bool": "bool", "int8": "i32", "int16": "i32", "int32": "i32", "index": "i32",
        "uint8": "u32", "uint16": "u32", "uint32": "u32", "int64": "i64", "uint64": "u64",
        "float16": "f32", "bfloat16": "f32", "float32": "f32"}

_EXACT = {
    "exact_f32": "fn exact_f32(x: f32) -> f32 "
                 "{ return bitcast<f32>(bitcast<i32>(x) | nothing); }",
    "apart_f32": "fn apart_f32(x: f32) -> f32 "
                 "{ return bitcast<f32>(bitcast<i32>(x) ^ nothing); }",
    "hidden_f32": "fn hidden_f32(x: i32) -> f32 { return bitcast<f32>(x | nothing); }",
}
_FLOATS = {
    **_EXACT,
    "add_f32": "fn add_f32(a: f32, b: f32) -> f32 { return exact_f32(a + b); }",
    "mul_f32": "fn mul_f32(a: f32, b: f32) -> f32 { return exact_f32(a * b); }",
    # what is taken from itself, or divided by it
    "sub_f32": "fn sub_f32(a: f32, b: f32) -> f32 { return exact_f32(a - apart_f32(b)); }",
    "div_f32": "fn div_f32(a: f32, b: f32) -> f32 { return exact_f32(a / apart_f32(b)); }",
    "unordered_f32": "fn unordered_f32(x: f32) -> bool "
                     "{ return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }",
    "cmplt_f32": "fn cmplt_f32(a: f32, b: f32) -> bool "
                "{ return (a < b) & !unordered_f32(a) & !unordered_f32(b); }",
    "cmple_f32": "fn cmple_f32(a: f32, b: f32) -> bool "
                "{ return (a <= b) & !unordered_f32(a) & !unordered_f32(b); }",
    "cmpeq_f32": "fn cmpeq_f32(a: f32, b: f32) -> bool "
                "{ return (a == b) & !unordered_f32(a) & !unordered_f32(b); }",
    "cmpne_f32": "fn cmpne_f32(a: f32, b: f32) -> bool { return !cmpeq_f32(a, b); }",
    # r[impl conventions.nan.propagate]
    "max_f32": "fn max_f32(a: f32, b: f32) -> f32 "
               "{ return select(b, a, cmplt_f32(b, a) | unordered_f32(a)); }",
    "min_f32": "fn min_f32(a: f32, b: f32) -> f32 "
               "{ return select(b, a, cmplt_f32(a, b) | unordered_f32(a)); }",
    "lower_f32": "fn lower_f32(a: f32, b: f32) -> f32 { return select(b, a, cmplt_f32(a, b)); }",
    "fromzero_f32": "fn fromzero_f32(x: f32) -> f32 "
                    "{ return exact_f32(hidden_f32(0) - x); }",
    "fma_f32": "fn fma_f32(a: f32, b: f32, c: f32) -> f32 { return exact_f32(fma(a, b, c)); }",
    # r[impl functions.function.error]: an fma may be rounded twice here, so what the product loses
    # is computed, after Dekker: factors are cut in halves whose products are whole.
    "fused_f32": """fn fused_f32(a: f32, b: f32, c: f32) -> f32 {
  let p = exact_f32(a * b);
  let s = exact_f32(a * 4097.0f); let ah = exact_f32(s - exact_f32(s - a));
  let t = exact_f32(b * 4097.0f); let bh = exact_f32(t - exact_f32(t - b));
  let al = exact_f32(a - ah); let bl = exact_f32(b - bh);
  let rest = exact_f32(exact_f32(exact_f32(exact_f32(ah * bh) - p) + ah * bl) + al * bh);
  let sum = exact_f32(p + c); let back = exact_f32(sum - p);
  let lost = exact_f32(exact_f32(p - exact_f32(sum - back)) + exact_f32(c - back));
  let more = exact_f32(lost + exact_f32(rest + exact_f32(al * bl)));
  return select(exact_f32(sum + more), sum, more == 0.0f);  // -0.0 stays what it is
}""",
    "sqrt_f32": "fn sqrt_f32(x: f32) -> f32 { return exact_f32(sqrt(x)); }",
    "trunc_f32": "fn trunc_f32(x: f32) -> f32 { return exact_f32(trunc(x)); }",
    "floor_f32": "fn floor_f32(x: f32) -> f32 { return exact_f32(floor(x)); }",
    "sel_i32": "fn sel_i32(m: bool, a: i32, b: i32) -> i32 { return select(b, a, m); }",
    "dup_i32": "fn dup_i32(x: i32) -> i32 { return x; }",
    "sel_f32": "fn sel_f32(m: bool, a: f32, b: f32) -> f32 { return select(b, a, m); }",
    # Of a zero that it sees, a compiler makes a * b out of a * b + 0, which may be -0.0.
    "dup_f32": "fn dup_f32(x: f32) -> f32 { return select(x, exact_f32(x), x == 0.0f); }",
    "real_f32": "fn real_f32(x: i32) -> f32 { return f32(x); }",
    "int_f32": "fn int_f32(x: f32) -> i32 { return i32(x); }",
    "any_i32": "fn any_i32(x: bool) -> bool { return x; }",
    "bits_f32": "fn bits_f32(x: f32) -> i32 { return bitcast<i32>(x); }",
    "unbits_f32": "fn unbits_f32(x: i32) -> f32 { return bitcast<f32>(x); }",
    "triglarge_f32": """const digits = array<u32, 6>(0x28be60du * 16u + 11u, 0x9391054au, \
0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);
fn triglarge_f32(x: f32, r: f32, large: bool, quadrant: ptr<function, i32>) -> f32 {
  let b = bitcast<u32>(x) & 0x7fffffffu;
  let whole = (b << 8u) | 0x80000000u; var e = (b >> 23u) - 126u; let i = e >> 5u;
  e &= 31u;
  var table = digits;
  var high = 0u; if (i > 0u) { high = table[i - 1u]; }
  var middle = table[i]; var low = table[i + 1u];
  if (e > 0u) {
    high = (high << e) | (middle >> (32u - e)); middle = (middle << e) | (low >> (32u - e));
    low = (low << e) | (table[i + 2u] >> (32u - e));
  }
  let carried = high_u32(whole, low);
  var bottom = whole * middle + carried;
  var top = high_u32(whole, middle) + select(0u, 1u, bottom < carried) + whole * high;
  var q = i32(top >> 30u);
  top &= 0x3fffffffu;
  let negative = (top & 0x20000000u) != 0u;
  if (negative) {
    q += 1; bottom = 0u - bottom; top = 0x40000000u - top - select(0u, 1u, bottom != 0u);
  }
  let n = countLeadingZeros(top);  // as many bits as there are
  var first = bottom;
  if (n < 32u) { first = (top << n) | select(0u, bottom >> (32u - n), n > 0u); }
  let scale = bitcast<f32>((159u - min(n, 32u)) << 23u);
  let angle = f32(first) * scale * 3.40612158e-19f;
  *quadrant = select(q, -q, x < 0.0f);
  return select(angle, -angle, (x < 0.0f) != negative);
}""",
    "high_u32": """fn high_u32(a: u32, b: u32) -> u32 {
  let al = a & 0xffffu; let ah = a >> 16u; let bl = b & 0xffffu; let bh = b >> 16u;
  let middle = ah * bl + ((al * bl) >> 16u);
  return ah * bh + (middle >> 16u) + (((middle & 0xffffu) + al * bh) >> 16u);
}""",
    "to_float16": "fn to_float16(x: f32) -> u32 { return u32(half_f32(x)); }",
    "from_float16": "fn from_float16(x: u32) -> f32 { return unhalf_f32(i32(x)); }",
    "to_bfloat16": """fn to_bfloat16(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  return select((u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u, 0x7fc0u, unordered_f32(x));
}""",
    "from_bfloat16": "fn from_bfloat16(x: u32) -> f32 { return bitcast<f32>(x << 16u); }",
    **{f"round_{half}": f"fn round_{half}(x: f32) -> f32 {{ return from_{half}(to_{half}(x)); }}"
       for half in ("float16", "bfloat16")},
    # Made longer as an unsigned number: llvmpipe compares what it has extended by the sign wrongly.
    "long_i32_i64": "fn long_i32_i64(x: i32) -> i64 "
                    "{ return i64(u64(bitcast<u32>(x)) ^ 0x80000000lu) - 0x80000000li; }",
    "long_i32_u64": "fn long_i32_u64(x: i32) -> u64 { return u64(long_i32_i64(x)); }",
    "long_u32_i64": "fn long_u32_i64(x: u32) -> i64 { return i64(u64(x)); }",
    "long_u32_u64": "fn long_u32_u64(x: u32) -> u64 { return u64(x); }",
    "pair_u64": "fn pair_u64(low: u32, high: u32) -> u64 "
                "{ return u64(low) | (u64(high) << 32u); }",
    "part_u8": "fn part_u8(word: u32, at: i32) -> u32 "
               "{ return extractBits(word, u32(at % 4) * 8u, 8u); }",
    "part_u16": "fn part_u16(word: u32, at: i32) -> u32 "
                "{ return extractBits(word, u32(at % 2) * 16u, 16u); }",
    "dot_i32": """fn dot_i32(a: i32, b: i32, c: i32) -> i32 {
  var d = c;
  for (var l = 0u; l < 32u; l += 8u) {
    d += i32(extractBits(u32(a), l, 8u)) * extractBits(b, l, 8u);
  }
  return d;
}""",
}

#: Functions of integers of a type $T, unsigned $U, with $B bits; those of signed ones first.
_SIGNED = {
    "floordiv": """fn floordiv_$T(a: $T, b: $T) -> $T {
  if (b == $0) { return $0; }
  if (b == -$1) { return $0 - a; }
  let q = a / b;
  return select(q, q - $1, (a % b != $0) & ((a < $0) != (b < $0)));
}""",
    "floormod": """fn floormod_$T(a: $T, b: $T) -> $T {
  if ((b == $0) | (b == -$1)) { return $0; }
  let r = a % b;
  return select(r, r + b, (r != $0) & ((r < $0) != (b < $0)));
}""",
    "shr": """fn shr_$T(a: $T, b: $T) -> $T {
  if (u32(b) < $Bu && b >= $0 && b < $B$S) { return a >> u32(b); }
  return select($0, -$1, a < $0);
}""",
    "pow": """fn pow_$T(a: $T, b: $T) -> $T {
  if (b < $0) {
    if (a == -$1) { return select($1, -$1, (b & $1) != $0); }
    return select($0, $1, a == $1);
  }
  var r = $1; var x = a; var n = b;
  while (n != $0) { if ((n & $1) != $0) { r = r * x; } x = x * x; n = n >> 1u; }
  return r;
}""",
}
_WHOLE = {
    "floordiv": "fn floordiv_$T(a: $T, b: $T) -> $T "
                "{ if (b == $0) { return $0; } return a / b; }",
    "floormod": "fn floormod_$T(a: $T, b: $T) -> $T "
                "{ if (b == $0) { return $0; } return a % b; }",
    "shl": "fn shl_$T(a: $T, b: $T) -> $T "
           "{ if (b >= $0 && b < $B$S) { return a << u32(b); } return $0; }",
    "shr": "fn shr_$T(a: $T, b: $T) -> $T { if (b < $B$S) { return a >> u32(b); } return $0; }",
    "max": "fn max_$T(a: $T, b: $T) -> $T { return max(a, b); }",
    "min": "fn min_$T(a: $T, b: $T) -> $T { return min(a, b); }",
    "pow": """fn pow_$T(a: $T, b: $T) -> $T {
  var r = $1; var x = a; var n = b;
  while (n != $0) { if ((n & $1) != $0) { r = r * x; } x = x * x; n = n >> 1u; }
  return r;
}""",
}
_SUFFIX = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}

#: The least and the greatest float that a type holds, and the conversion between them.
_LIMITS = {"i32": ("-2147483648.0f", "2147483520.0f"), "u64": ("0.0f", "18446742974197923840.0f"),
           "i64": ("-9223372036854775808.0f", "9223371487098961920.0f")}


def _whole_number(kind: str) -> str:
    """A float cut off to an integer; what does not fit is the nearest, and NaN the least."""
    if kind == "u32":  # r[impl dtypes.cast.float]: negative numbers wrap around
        return """fn whole_f32_u32(x: f32) -> u32 {
  if (cmplt_f32(x, 0.0f)) { return u32(i32(lower_f32(-x, 2147483520.0f)) * -1); }
  return u32(select(lower_f32(x, 4294967040.0f), 0.0f, unordered_f32(x)));
}"""
    low, high = _LIMITS[kind]
    return (f"fn whole_f32_{kind}(x: f32) -> {kind} {{\n"
            f"  return {kind}(lower_f32(select({low}, x, cmplt_f32({low}, x)), {high}));\n}}")


_WORDS: Words = {"inf_f32": "hidden_f32(0x7f800000)", "nan_f32": "hidden_f32(0x7fc00000)",
                 "unordered": "unordered_f32({0})", "exact": "exact_f32({0})"}
_HEAD = re.compile(r"^\$([FI]) (\w+)\$K\((.*?)\) \{")
_DECLARED = re.compile(r"\$([FI]) ([^;]*);")
_WHEN = re.compile(r"if \((any_\w+\(\w+\))\) ([^;]*;)")


def formula(template: str) -> str:
    """A function of floats or of their bits, written once for all languages, in WGSL."""
    held = {"F": "f32", "I": "i32"}

    def head(found: re.Match[str]) -> str:
        given = ", ".join(f"{name}: {held[kind[1]]}"
                          for kind, name in (each.split() for each in found[3].split(", ")))
        return f"fn {found[2]}f32({given}) -> {held[found[1]]} {{"

    def declared(found: re.Match[str]) -> str:
        lines = (each.split(" = ", 1) for each in _parts(found[2]))
        return " ".join(f"var {name} = exact_f32({value});" if found[1] == "F" else
                        f"var {name} = {value};" for name, value in lines)

    text = _DECLARED.sub(declared, _HEAD.sub(head, worded(template, _WORDS)))
    text = text.replace("$K", "f32").replace("$J", "i32")
    # r[impl webgpu.float.exact]: the compiler of a browser takes -0 for 0
    text = text.replace("-0.0f", "hidden_f32(i32(-2147483648))")
    return _WHEN.sub(r"if (\1) { \2 }", text)


def _parts(text: str) -> list[str]:
    """What stands between commas that are not inside of parentheses."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found]


def wgsl_literal(value: Scalar, dtype: DType, kind: str, call: Callable[..., str]) -> str:
    """A number that is held as a kind. Those that a compiler would compute with are hidden: `call`
    writes that.
    """
    if kind == "bool":
        return "true" if value else "false"
    if kind == "f32":  # r[impl webgpu.float.exact]
        number = float(value)
        if math.isnan(number) or math.isinf(number) or abs(number) < 2.0 ** -126:
            return call("hidden_f32", f"i32({float_bits(number)})")
        return f"({number.hex()}f)" if number < 0 else f"{number.hex()}f"
    if dtype is dtypes.index:
        return str(value) if int(value) >= 0 else f"({value})"
    suffix, least = _SUFFIX[kind], -(1 << 8 * dtype.itemsize - 1)
    if int(value) == least and dtype.itemsize >= 4:
        return f"({int(value) + 1}{suffix} - 1{suffix})"
    return f"({int(value)}{suffix})" if int(value) < 0 else f"{int(value)}{suffix}"


def _bitcast(source: str, target: str) -> str:
    """The bits of one type as another; halves are the lower bits of a word."""
    one, two = (HELD.get(name, name) for name in (source, target))
    value = f"to_{source}(x)" if source in HELD else f"from_{target}(x)" if target in HELD \
        else f"bitcast<{two}>(x)"
    return f"fn bitcast_{source}_{target}(x: {one}) -> {two} {{ return {value}; }}"


def text_of(name: str) -> str:
    """The text of a function; none for the name of a type."""
    base, _, kind = name.rpartition("_")
    if name in _FLOATS:
        return _FLOATS[name]
    if base.startswith("bitcast_"):
        return _bitcast(base.removeprefix("bitcast_"), kind)
    if base == "whole_f32":
        return _whole_number(kind)
    if kind == "f32" and (template := TEMPLATES.get(base) or HALVES.get(base)):
        return formula(template)
    table = _SIGNED if kind[:1] == "i" and base in _SIGNED else _WHOLE
    if base not in table:
        return ""
    suffix = _SUFFIX[kind]
    return (table[base].replace("$T", kind).replace("$0", f"0{suffix}")
            .replace("$1", f"1{suffix}").replace("$B", kind[1:]).replace("$S", suffix))
