"""float16 as 16 bits, for compilers and processors that know no halves. Chapter: spec/functions.md.

The formulas are written once, for numbers, for vectors of any width and for all languages, like
those of `transcendental`; a language that has a type for halves asks it instead.
"""
from __future__ import annotations

#: `half`: the bits of the nearest half, ties to even; adding 0.5 rounds what is subnormal as a
#: half. `unhalf`: the float that such bits stand for.
HALVES = {
    "half": """$I half_$K($F x) {
  $I u = bits_$K(x) & 0x7fffffff;
  $I r = (u - 0x38000000 + 0xfff + ((u >> 13) & 1)) >> 13;
  r = sel_$J(u < 0x38800000, bits_$K(unbits_$K(u) + 0.5f) - 0x3f000000, r);
  r = sel_$J(u >= 0x47800000, dup_$J(0x7c00), r);
  return sel_$J(u > 0x7f800000, dup_$J(0x7e00), r) | ((bits_$K(x) >> 16) & 0x8000);
}""",
    "unhalf": """$F unhalf_$K($I h) {
  $I u = (h & 0x7fff) << 13;
  $I r = u + 0x38000000;
  r = sel_$J(u < 0x00800000, bits_$K(unbits_$K(u + 0x38800000) - 0x1p-14f), r);
  r = sel_$J(u >= 0x0f800000, u + 0x70000000, r);
  return unbits_$K(r | ((0 - ((h >> 15) & 1)) & (-2147483647 - 1)));
}"""}

#: Numbers: a compiler that has a type for halves is asked.
TO_FLOAT16 = """unsigned short to_float16(float x) {
#ifdef __FLT16_MAX__
  union { _Float16 f; unsigned short u; } b; b.f = (_Float16)x; return b.u;
#else
  return (unsigned short)half_f32(x);
#endif
}"""
FROM_FLOAT16 = """float from_float16(unsigned short x) {
#ifdef __FLT16_MAX__
  union { _Float16 f; unsigned short u; } b; b.u = x; return (float)b.f;
#else
  return unhalf_f32(x);
#endif
}"""
#: A double is rounded once: where a float cuts it off, the last bit of the float says so.
TO_HALF = """float tohalf_f64(double x) {
#ifdef __FLT16_MAX__
  return (float)(_Float16)x;
#else
  float near = (float)x;
  int u = bits_f32(near);
  if ((double)near != x && x == x) u = (u - (@fabs_f64(near) > @fabs_f64(x))) | 1;
  return from_float16(to_float16(unbits_f32(u)));
#endif
}"""
