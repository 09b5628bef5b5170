"""Transcendental functions of float32, for numbers and vectors alike. Chapter: spec/functions.md.

Every text is free of branches, so that it is the same for any number of elements, and a kernel
gives the same bits with vectors and without. `$F`, `$I` and `$K` are a type, its integers and its
kind (see `types.fill`); `sel_$K` chooses, `bits_$K` and `unbits_$K` look at a float as an integer.
`fma_$K` may be rounded twice; `fused_$K` stands where what the product loses must not be lost.
Nothing is assigned to a parameter: WGSL has no such assignment.

`python -m conformance.bench accuracy` measures the errors over all floats.
"""
from __future__ import annotations

# r[impl functions.function.error]
# r[impl functions.function.special]
# What is 0 is not computed: a processor takes a hundred times as long over results that underflow,
# and a mask makes many of them.
_EXP = """$F exp_$K($F x) {
  $I none = x < -104.0f;
  $F c = lower_$K(dup_$K(89.0f), sel_$K(none, dup_$K(0.0f), x));
  $F n = fma_$K(c, dup_$K(1.44269504f), dup_$K(12582912.0f)) - 12582912.0f;
  $F r = fma_$K(n, dup_$K(-0.693145752f), c); r = fma_$K(n, dup_$K(-1.42860677e-6f), r);
  $F p = dup_$K(1.37805939e-3f);
  p = fma_$K(p, r, dup_$K(8.37312452e-3f)); p = fma_$K(p, r, dup_$K(4.16695364e-2f));
  p = fma_$K(p, r, dup_$K(1.66664720e-1f)); p = fma_$K(p, r, dup_$K(4.99999851e-1f));
  p = fma_$K(p, r, dup_$K(1.0f)); p = fma_$K(p, r, dup_$K(1.0f));
  return sel_$K(none, dup_$K(0.0f), scale_$K(p, n));
}"""

#: exp(x + y) for a small y: it is added to what is left of x.
_EXP_PAIR = _EXP.replace("exp_$K($F x)", "exppair_$K($F x, $F y)").replace(
    "  $F p =", "  r = r + y;\n  $F p =")

_EXP2 = """$F exp2_$K($F x) {
  $I none = x < -151.0f;
  $F c = lower_$K(dup_$K(129.0f), sel_$K(none, dup_$K(0.0f), x));
  $F n = @exact(c + 12582912.0f) - 12582912.0f;
  $F r = c - n, p = dup_$K(0.00015353359f);
  p = fma_$K(p, r, dup_$K(0.00133988739f)); p = fma_$K(p, r, dup_$K(0.00961843692f));
  p = fma_$K(p, r, dup_$K(0.0555033237f)); p = fma_$K(p, r, dup_$K(0.240226477f));
  p = fma_$K(p, r, dup_$K(0.693147182f)); p = fma_$K(p, r, dup_$K(1.0f));
  return sel_$K(none, dup_$K(0.0f), scale_$K(p, n));
}"""

#: x * 2**n in two factors, so that subnormal results are right; |n| <= 151 or so.
_SCALE = """$F scale_$K($F x, $F n) {
  $I k = int_$K(n), h = k >> 1;
  return x * unbits_$K((h + 127) << 23) * unbits_$K((k - h + 127) << 23);
}"""

#: x = 2**e * (1 + m), 1 + m from sqrt(1/2) to sqrt(2). The body of a function.
_LOG_PARTS = """$I tiny = x < 1.17549435e-38f;
  $I b = bits_$K(sel_$K(tiny, x * 8388608.0f, x)), k = (b - 0x3f3504f3) >> 23;
  $F e = real_$K(k) - sel_$K(tiny, dup_$K(23.0f), dup_$K(0.0f));
  $F m = unbits_$K(b - (k << 23)) - 1.0f, z = m * m;
  $F p = dup_$K(7.0376836292e-2f);
  p = fma_$K(p, m, dup_$K(-1.1514610310e-1f)); p = fma_$K(p, m, dup_$K(1.1676998740e-1f));
  p = fma_$K(p, m, dup_$K(-1.2420140846e-1f)); p = fma_$K(p, m, dup_$K(1.4249322787e-1f));
  p = fma_$K(p, m, dup_$K(-1.6668057665e-1f)); p = fma_$K(p, m, dup_$K(2.0000714765e-1f));
  p = fma_$K(p, m, dup_$K(-2.4999993993e-1f)); p = fma_$K(p, m, dup_$K(3.3333331174e-1f));
  p = p * m;"""
#: What is no logarithm: of infinity, of zero, of negative numbers and NaN. The end of a function.
_LOG_EDGES = """r = sel_$K(x == @inf_f32, x, r);
  r = sel_$K(x == 0.0f, dup_$K(-@inf_f32), r);
  return sel_$K(x >= 0.0f, r, dup_$K(@nan_f32));"""

_LOG = f"""$F log_$K($F x) {{
  {_LOG_PARTS}
  $F low = fma_$K(p, z, e * -2.12194440e-4f), r = fma_$K(z, dup_$K(-0.5f), low);
  r = fma_$K(e, dup_$K(0.693359375f), m + r);
  {_LOG_EDGES}
}}"""

_LOG2 = f"""$F log2_$K($F x) {{
  {_LOG_PARTS}
  $F y = fma_$K(p, z, z * -0.5f), s = m + y;
  y = (m - s) + y;
  $F r = s * 1.44269504f, t = fused_$K(s, dup_$K(1.44269504f), -r);
  t = fma_$K(s, dup_$K(1.92596303e-8f), t); t = fma_$K(y, dup_$K(1.44269504f), t);
  $F u = e + r;
  r = u + (((e - u) + r) + t);
  {_LOG_EDGES}
}}"""

#: x = q * pi/2 + r: three constants for most numbers, 96 bits of 2/pi for large ones.
_TRIG = """$F j = fma_$K(x, dup_$K(0.636619747f), dup_$K(12582912.0f));
  $I q = bits_$K(j); j = j - 12582912.0f;
  $F r = fused_$K(j, dup_$K(-1.57079601f), x); r = fused_$K(j, dup_$K(-3.13916473e-7f), r);
  r = fused_$K(j, dup_$K(-5.39030253e-15f), r);
  $F a = unbits_$K(bits_$K(x) & 0x7fffffff);
  $I large = (a > 71476.0f) & (a < @inf_f32);
  if (any_$J(large)) r = triglarge_$K(x, r, large, &q);
"""
_TRIG_VALUE = """$F s = r * r;
  $F c = dup_$K(2.44677067e-5f);
  c = fma_$K(c, s, dup_$K(-1.38877297e-3f)); c = fma_$K(c, s, dup_$K(4.16666567e-2f));
  c = fma_$K(c, s, dup_$K(-0.5f)); c = fma_$K(c, s, dup_$K(1.0f));
  $F v = dup_$K(2.86567956e-6f);
  v = fma_$K(v, s, dup_$K(-1.98559923e-4f)); v = fma_$K(v, s, dup_$K(8.33338592e-3f));
  v = fma_$K(v, s, dup_$K(-1.66666672e-1f)); v = fma_$K(v, fma_$K(r, s, dup_$K(0.0f)), r);
  v = sel_$K((q & 1) != 0, c, v);
  return unbits_$K(bits_$K(v) ^ ((q & 2) << 30));"""
_SIN = f"""$F sin_$K($F x) {{
  {_TRIG}  {_TRIG_VALUE}
}}"""
_COS = f"""$F cos_$K($F x) {{
  {_TRIG}  q = q + 1;
  {_TRIG_VALUE}
}}"""
#: The product of x and the bits of 2/pi that matter, as a fixed-point number (Payne, Hanek).
TRIG_LARGE = """@apart float triglarge_f32(float x, float r, int large, \
@private *quadrant) {
  @table unsigned int digits[6] = {0x28be60db, 0x9391054a, 0x7f09d5f4, 0x7d4d3770,
                                         0x36d8a566, 0x4f10e410};
  if (!large) return r;
  unsigned int b = (unsigned int)bits_f32(x) & 0x7fffffff;
  unsigned int whole = (b << 8) | 0x80000000u, e = (b >> 23) - 126, i = e >> 5;
  e &= 31;
  unsigned int high = i ? digits[i - 1] : 0, middle = digits[i], low = digits[i + 1];
  if (e) {
    high = high << e | middle >> (32 - e); middle = middle << e | low >> (32 - e);
    low = low << e | digits[i + 2] >> (32 - e);
  }
  unsigned long p = (unsigned long)whole * low;
  p = (unsigned long)whole * middle + (p >> 32);
  p = ((unsigned long)(whole * high) << 32) + p;
  int q = (int)(p >> 62);
  p &= 0x3fffffffffffffffUL;
  if (p & 0x2000000000000000UL) { p -= 0x4000000000000000UL; q++; }
  r = @angle;
  *quadrant = x < 0.0f ? -q : q;
  return x < 0.0f ? -r : r;
}"""
#: Large numbers are rare: one by one.
TRIG_LARGE_VECTOR = """@apart $K triglarge_$K($K x, $K r, $I large, \
$I *quadrant) {
  for (long l = 0; l < $N; l++) {
    int q = (*quadrant)[l];
    r[l] = triglarge_$E32(x[l], r[l], large[l], &q);
    (*quadrant)[l] = q;
  }
  return r;
}""".replace("$E32", "f32")

#: From 0.625 on 1 - 2 / (exp(2 a) + 1); the exponential is one of numbers up to 20 only.
_TANH = """$F tanh_$K($F x) {
  $F a = unbits_$K(bits_$K(x) & 0x7fffffff), s = x * x, p = dup_$K(-5.70498872745e-3f);
  p = fma_$K(p, s, dup_$K(2.06390887954e-2f)); p = fma_$K(p, s, dup_$K(-5.37397155531e-2f));
  p = fma_$K(p, s, dup_$K(1.33314422036e-1f)); p = fma_$K(p, s, dup_$K(-3.33332819422e-1f));
  $F small = fma_$K(p * s, x, x);
  $F c = lower_$K(dup_$K(10.0f), a);
  $F j = fma_$K(c, dup_$K(2.88539008f), dup_$K(12582912.0f)), n = j - 12582912.0f;
  $F r = fma_$K(n, dup_$K(-0.346572876f), c); r = fma_$K(n, dup_$K(-7.14303385e-7f), r);
  $F e = dup_$K(8.81958008e-2f);
  e = fma_$K(e, r, dup_$K(2.67939985e-1f)); e = fma_$K(e, r, dup_$K(6.66712582e-1f));
  e = fma_$K(e, r, dup_$K(1.33331776f)); e = fma_$K(e, r, dup_$K(1.9999994f));
  e = fma_$K(e, r, dup_$K(2.0f)); e = fma_$K(e, r, dup_$K(1.0f));
  $F big = 1.0f - 2.0f / fma_$K(e, unbits_$K((bits_$K(j) << 23) + 0x3f800000), dup_$K(1.0f));
  big = sel_$K(a < 0.625f, small, big);
  return unbits_$K(bits_$K(big) | (bits_$K(x) & bits_$K(dup_$K(-0.0f))));
}"""

_ERF = """$F erf_$K($F x) {
  $F a = unbits_$K(bits_$K(x) & 0x7fffffff), s = x * x;
  $F r = fma_$K(dup_$K(-1.72853470e-5f), a, dup_$K(3.83197126e-4f));
  $F u = fma_$K(dup_$K(-3.88396438e-3f), a, dup_$K(2.42546219e-2f));
  r = fma_$K(r, s, u); r = fma_$K(r, a, dup_$K(-1.06777877e-1f));
  r = fma_$K(r, a, dup_$K(-6.34846687e-1f)); r = fma_$K(r, a, dup_$K(-1.28717512e-1f));
  r = fma_$K(r, a, -a);
  $F big = 1.0f - exp_$K(r);
  big = sel_$K(a > 4.0f, dup_$K(1.0f), big);
  big = unbits_$K(bits_$K(big) | (bits_$K(x) & bits_$K(dup_$K(-0.0f))));
  $F p = dup_$K(-5.96761703e-4f);
  p = fma_$K(p, s, dup_$K(4.99119423e-3f)); p = fma_$K(p, s, dup_$K(-2.67681349e-2f));
  p = fma_$K(p, s, dup_$K(1.12819925e-1f)); p = fma_$K(p, s, dup_$K(-3.76125336e-1f));
  p = fma_$K(p, s, dup_$K(1.28379166e-1f));
  $F small = fma_$K(p, x, x);
  return sel_$K(a > 0.927734375f, big, small);
}"""

#: log(a) as a sum of two floats, times b, and exp of that; then what IEEE 754 says of the rest.
_POW = """$F pow_$K($F x, $F b) {
  $F a = unbits_$K(bits_$K(x) & 0x7fffffff);
  $I tiny = a < 1.17549435e-38f;
  $F big = sel_$K(tiny, a * 8388608.0f, a);
  $I k = (bits_$K(big) - 0x3f3504f3) >> 23;
  $F i = real_$K(k) - sel_$K(tiny, dup_$K(23.0f), dup_$K(0.0f));
  $F m = unbits_$K(bits_$K(big) - (k << 23));
  $F p = m + 1.0f, r = 1.0f / p;
  m = m - 1.0f;
  $F high = r * m, low = r * fused_$K(high, -m, fused_$K(high, dup_$K(-2.0f), m));
  $F s = high * high;
  r = dup_$K(0.1293334961f);
  r = fma_$K(r, s, dup_$K(0.1419928074f)); r = fma_$K(r, s, dup_$K(0.2000148296f));
  r = fma_$K(r, s, dup_$K(0.3333332539f));
  $F t = fma_$K(high, low + low, fused_$K(high, high, -s));
  p = s * high;
  t = fma_$K(s, low, fma_$K(t, high, fused_$K(s, high, -p)));
  s = fma_$K(r, p, fma_$K(r, t, low));
  r = high + high;
  t = fused_$K(dup_$K(6.93147182e-1f), i, r);
  p = fused_$K(dup_$K(-6.93147182e-1f), i, t);
  s = fma_$K(dup_$K(-1.90465421e-9f), i, fma_$K(dup_$K(2.0f), s, r - p));
  $F first = t + s, second = (t - first) + s;
  high = first * b;
  low = fma_$K(second, b, fused_$K(first, b, -high));
  $I wide = unbits_$K(bits_$K(high) & 0x7fffffff) > 252.0f;
  t = high + low;
  t = exppair_$K(t, (high - t) + low);
  $F inf = dup_$K(@inf_f32), zero = dup_$K(0.0f), one = dup_$K(1.0f);
  t = sel_$K(wide, sel_$K(high < 0.0f, zero, inf), t);
  $I down = b < 0.0f;
  t = sel_$K(a == 0.0f, sel_$K(down, inf, zero), t);
  t = sel_$K(a == inf, sel_$K(down, zero, inf), t);
  t = sel_$K(b == inf, sel_$K(a < 1.0f, zero, inf), t);
  t = sel_$K(b == -inf, sel_$K(a < 1.0f, inf, zero), t);
  $F halved = b * 0.5f;
  $I odd = (floor_$K(b) == b) & (floor_$K(halved) != halved) & (b - b == 0.0f);
  $I sign = bits_$K(x) & bits_$K(dup_$K(-0.0f));
  t = sel_$K(odd, unbits_$K(bits_$K(t) | sign), t);
  $F none = dup_$K(@nan_f32);
  t = sel_$K((x < 0.0f) & (x != -inf) & (floor_$K(b) != b), none, t);
  t = sel_$K((x == -1.0f) & ((b == inf) | (b == -inf)), one, t);
  t = sel_$K(@unordered(x) | @unordered(b), none, t);
  return sel_$K((x == 1.0f) | (b == 0.0f), one, t);
}"""

TEMPLATES = {"exp": _EXP, "exppair": _EXP_PAIR, "exp2": _EXP2, "scale": _SCALE, "log": _LOG,
             "log2": _LOG2, "sin": _SIN, "cos": _COS, "tanh": _TANH, "erf": _ERF, "pow": _POW}

#: Functions of vectors for which numbers have the C library; $L: from here on, all are whole.
VECTOR_TEMPLATES = {
    "trunc": """$K trunc_$K($K x) {
  $I sign = bits_$K(x) & bits_$K(dup_$K(-0.0));
  $K a = unbits_$K(bits_$K(x) ^ sign);
  return sel_$K(a < $L, unbits_$K(bits_$K(real_$K(int_$K(a))) | sign), x);
}""",
    "floor": """$K floor_$K($K x) {
  $K t = trunc_$K(x);
  return sel_$K(t > x, t - 1, t);
}""",
}
