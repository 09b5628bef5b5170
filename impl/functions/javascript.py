"""Functions that kernels in JavaScript call. Chapter: spec/functions.md.

Numbers are doubles. A float32 is a double that `f` has rounded; an integer of 32 bits or less is a
double that an operator of bits has cut back, an index one that nothing cuts.
"""
from __future__ import annotations

import math

from impl.dtypes import DType, Scalar, dtypes, wrap
from impl.functions.definitions import Definition

#: What begins every module.
HEADER = """const f = Math.fround;
const bits = new DataView(new ArrayBuffer(8));"""
_METHODS = {"f32": "Float32", "f64": "Float64", "i8": "Int8", "u8": "Uint8", "i16": "Int16",
            "u16": "Uint16", "i32": "Int32", "u32": "Uint32"}
_ERF = """function erf(x) {
  if (!(Math.abs(x) < 6)) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= 2 * x * x / (2 * n + 1);
    sum += term;
  }
  return 1.1283791670955126 * Math.exp(-x * x) * sum;
}"""
_FIXED: dict[str, tuple[str, tuple[str, ...]]] = {
    "erf": (_ERF, ()),
    "power": ("""function power(x, y) {
  return x === 1 || x === -1 && Math.abs(y) === Infinity ? 1 : x ** y;
}""", ()),
    "to_float16": ("""function to_float16(x) {
  bits.setFloat32(0, x);
  const u = bits.getUint32(0), s = u >>> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return s | 0x7e00;
  if (a >= 0x477ff000) return s | 0x7c00;
  if (a < 0x33000000) return s;
  if (a < 0x38800000) {
    const shift = 126 - (a >>> 23), m = a & 0x7fffff | 0x800000;
    const q = m >>> shift, rest = m & (1 << shift) - 1, tie = 1 << shift - 1;
    return s | q + (rest > tie || rest === tie && q & 1 ? 1 : 0);
  }
  return s | a + 0xfff + (a >>> 13 & 1) - 0x38000000 >>> 13;
}""", ()),
    "from_float16": ("""function from_float16(h) {
  const e = h >>> 10 & 31, m = h & 0x3ff, s = h & 0x8000 ? -1 : 1;
  if (e === 31) return m ? NaN : s * Infinity;
  return s * (e ? (m + 1024) * 2 ** (e - 25) : m * 2 ** -24);
}""", ()),
    "to_bfloat16": ("""function to_bfloat16(x) {
  bits.setFloat32(0, x);
  const u = bits.getUint32(0);
  return x !== x ? 0x7fc0 : u + 0x7fff + (u >>> 16 & 1) >>> 16;
}""", ()),
    "from_bfloat16": ("""function from_bfloat16(h) {
  bits.setUint32(0, h << 16);
  return bits.getFloat32(0);
}""", ()),
    "tohalf_f64": ("""function tohalf_f64(x) {
  bits.setFloat32(0, x);
  const near = bits.getFloat32(0), u = bits.getUint32(0);
  if (near === x || x !== x) return round_float16(near);
  bits.setUint32(0, u - (Math.abs(near) > Math.abs(x)) | 1);
  return round_float16(bits.getFloat32(0));
}""", ("round_float16",)),
}
#: Functions of floats that `Math` does not have under their names.
_FLOATS = {
    "exp2": "2 ** a", "erf": "erf(a)", "pow": "power(a, b)",
    "max": "a !== a ? a : a > b ? a : b",
    "min": "a !== a ? a : a < b ? a : b",
    "fromzero": "0 - a", "fma": "a * b + c",
}
_INTEGERS = {
    "floordiv": "b === 0 ? 0 : $C(Math.floor(a / b))",
    "floormod": "b === 0 ? 0 : $C(a - b * Math.floor(a / b))",
    "shl": "b >= 0 && b < $B ? $C(a << b) : 0",
    "shr": "b >= 0 && b < $B ? $C($S) : a < 0 ? -1 : 0",
    "max": "a > b ? a : b", "min": "a < b ? a : b",
}


def cut_back(text: str, kind: str) -> str:
    """A number cut back to an integer type; 64 bits are those of an index, and not cut."""
    # r[impl conventions.integers.exact]
    width = int(kind[1:])
    if width == 64:
        return text
    if width == 32:
        return f"({text} {'|' if kind[0] == 'i' else '>>>'} 0)"
    return f"({text} << {32 - width} >> {32 - width})" if kind[0] == "i" else \
        f"({text} & {(1 << width) - 1})"


def javascript_literal(value: Scalar, dtype: DType) -> str:
    """A number."""
    if dtype.kind != "f":
        return str(int(value)) if int(value) >= 0 else f"({int(value)})"
    number = float(wrap(value, dtype if dtype.itemsize == 8 else dtypes.float32))
    if math.isnan(number):
        return "NaN"
    text = "Infinity" if math.isinf(number) else repr(abs(number))
    return f"(-{text})" if math.copysign(1, number) < 0 else text


def javascript_definition(name: str) -> Definition:
    """The text of a function, and the names of those that it needs."""
    base, _, kind = name.rpartition("_")
    if name in _FIXED:
        return _FIXED[name]
    if base == "round":
        return (f"function {name}(x) {{ return from_{kind}(to_{kind}(f(x))); }}",
                (f"to_{kind}", f"from_{kind}"))
    if base.startswith("bitcast_"):
        return _bitcast(base.removeprefix("bitcast_"), kind)
    if base.startswith("whole_"):
        return _whole(name, base.removeprefix("whole_"), kind), ()
    if kind[0] == "f":
        text = _FLOATS.get(base, f"Math.{base}(a)")  # a double, of which a float32 is rounded
        text = f"f({text})" if kind == "f32" else text
        needs = ("erf",) if base == "erf" else ("power",) if base == "pow" else ()
        return f"function {name}(a, b, c) {{ return {text}; }}", needs
    if base == "pow":
        return _power(name, kind), ()
    shift = "a >>> b" if kind[0] == "u" else "a >> b"
    text = _INTEGERS[base].replace("$S", shift).replace("$B", kind[1:])
    before, mark, after = text.partition("$C(")
    if mark:  # the parentheses of $C are balanced, and what follows them may be a choice
        end = _closing(after)
        text = before + cut_back(f"({after[:end]})", kind) + after[end + 1:]
    return f"function {name}(a, b) {{ return {text}; }}", ()


def _closing(text: str) -> int:
    """Where the parenthesis closes that was opened before a text."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return place
    raise ValueError(text)


def _bitcast(source: str, target: str) -> Definition:
    """The same bits as another type; halves are those of 16 bits."""
    needs = tuple(f"{way}_{one}" for way, one in (("to", source), ("from", target))
                  if one.endswith("float16"))
    put, take = (_METHODS.get(one, "Uint16") for one in (source, target))
    given = f"to_{source}(x)" if source.endswith("float16") else "x"
    found = f"bits.get{take}(0)" if take.endswith("8") else f"bits.get{take}(0, true)"
    found = f"from_{target}({found})" if target.endswith("float16") else found
    return (f"function bitcast_{source}_{target}(x) {{ bits.set{put}(0, {given}, true); "
            f"return {found}; }}"), needs


def _whole(name: str, source: str, target: str) -> str:
    """A float cut off to an integer: r[dtypes.cast.float]."""
    if target == "u32":  # by way of more bits, of which the lowest are left
        return f"function {name}(x) {{ return Math.trunc(x) >>> 0; }}"
    if target == "i64":
        return f"function {name}(x) {{ return Math.trunc(x) || 0; }}"
    high = "2147483520" if source == "f32" else "2147483647"
    return (f"function {name}(x) {{ return Math.trunc(x > -2147483648 ? x < {high} ? x : {high} "
            ": -2147483648); }")


def _power(name: str, kind: str) -> str:
    """A power of integers, which wraps around."""
    negative = "" if kind[0] == "u" else \
        " if (b < 0) return a === 1 ? 1 : a === -1 ? (b & 1 ? -1 : 1) : 0;"
    return (f"function {name}(a, b) {{{negative} let r = 1; for (let n = b; n; n = n >>> 1) {{ "
            f"if (n & 1) r = Math.imul(r, a); a = Math.imul(a, a); }} "
            f"return {cut_back('r', kind)}; }}")
