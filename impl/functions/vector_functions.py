"""Functions of whole vectors, of any width. Chapter: spec/functions.md.

C has arithmetic and comparisons for vectors, and no choice, no maximum, no conversion of half
types. They are made of masks here. Where a processor has one instruction for it that GCC does not
find, GCC's name for that instruction is used, and the portable text stands beside it.
"""
from __future__ import annotations

from impl.functions.conversions import convert_vector, resized
from impl.functions.halves import HALVES
from impl.functions.transcendental import TEMPLATES, TRIG_LARGE_VECTOR, VECTOR_TEMPLATES
from impl.functions.types import (
    INLINE,
    SIZES,
    bits,
    fill,
    type_and_lanes,
    type_name,
    unsigned,
    whole_limits,
)

#: Elements that are written out one by one; more become a loop.
_WRITTEN_OUT = 16
#: Elements that lie further apart are gathered under a mask: so many vectors are loaded for them.
_MOST_MASKED = 4


def vector_type(kind: str) -> str:
    """A vector type, and the same for memory, where it may stand anywhere."""
    short, count = type_and_lanes(kind)
    size = SIZES[short] * count
    return (f"typedef {type_name(short)} {kind} __attribute__((vector_size({size})));\n"
            f"typedef {type_name(short)} {kind}u "
            f"__attribute__((vector_size({size}), aligned({SIZES[short]}), may_alias));")


#: GCC's names of instructions: condition, and the expression that uses it.
_GCC = {
    "fma": {"f32x16": ("__AVX512F__", "__builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)"),
            "f64x8": ("__AVX512F__", "__builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4)"),
            "f32x8": ("__FMA__", "__builtin_ia32_vfmaddps256(a, b, c)"),
            "f64x4": ("__FMA__", "__builtin_ia32_vfmaddpd256(a, b, c)"),
            "f32x4": ("__FMA__", "__builtin_ia32_vfmaddps(a, b, c)"),
            "f64x2": ("__FMA__", "__builtin_ia32_vfmaddpd(a, b, c)")},
    "sqrt": {"f32x16": ("__AVX512F__", "__builtin_ia32_sqrtps512_mask(x, x, -1, 4)"),
             "f64x8": ("__AVX512F__", "__builtin_ia32_sqrtpd512_mask(x, x, -1, 4)"),
             "f32x8": ("__AVX__", "__builtin_ia32_sqrtps256(x)"),
             "f64x4": ("__AVX__", "__builtin_ia32_sqrtpd256(x)"),
             "f32x4": ("__SSE__", "__builtin_ia32_sqrtps(x)"),
             "f64x2": ("__SSE2__", "__builtin_ia32_sqrtpd(x)")},
    # The second operand, if one is NaN.
    "higher": {"f32x16": ("__AVX512F__", "__builtin_ia32_maxps512_mask(a, b, b, -1, 4)"),
            "f64x8": ("__AVX512F__", "__builtin_ia32_maxpd512_mask(a, b, b, -1, 4)"),
            "f32x8": ("__AVX__", "__builtin_ia32_maxps256(a, b)"),
            "f64x4": ("__AVX__", "__builtin_ia32_maxpd256(a, b)"),
            "f32x4": ("__SSE__", "__builtin_ia32_maxps(a, b)"),
            "f64x2": ("__SSE2__", "__builtin_ia32_maxpd(a, b)")},
    # x * 2**n, rounded once: subnormal results and overflow are right
    "scale": {"f32x16": ("__AVX512F__", "__builtin_ia32_scalefps512_mask(x, n, x, -1, 4)")},
    "to_float16": {
        "f32x16": ("__AVX512F__", "(u16x16)__builtin_ia32_vcvtps2ph512_mask("
                   "x, 0, (i16x16){0}, -1)"),
        "f32x8": ("__F16C__", "(u16x8)__builtin_ia32_vcvtps2ph256(x, 0)")},
    "from_float16": {
        "f32x16": ("__AVX512F__", "__builtin_ia32_vcvtph2ps512_mask("
                   "(i16x16)x, (f32x16){0}, -1, 4)"),
        "f32x8": ("__F16C__", "__builtin_ia32_vcvtph2ps256((i16x8)x)")},
    # Loads, stores and gathers of the elements that a mask selects. $P: the place of the first,
    # which may lie before the array if the mask leaves it out; C has no pointer to such a place.
    "masked": {
        "f32x16": ("__AVX512DQ__", "__builtin_ia32_loadups512_mask($P, (f32x16){0}, "
                   "__builtin_ia32_cvtd2mask512(m))"),
        "f64x8": ("__AVX512DQ__", "__builtin_ia32_loadupd512_mask($P, (f64x8){0}, "
                  "__builtin_ia32_cvtq2mask512((_WIDE)m))"),
        "f32x8": ("__AVX__", "__builtin_ia32_maskloadps256($P, m)"),
        "f64x4": ("__AVX__", "__builtin_ia32_maskloadpd256($P, (_WIDE)m)"),
        "f32x4": ("__AVX__", "__builtin_ia32_maskloadps($P, m)"),
        "f64x2": ("__AVX__", "__builtin_ia32_maskloadpd($P, (_WIDE)m)")},
    "dot": {"i32x16": ("__AVX512VNNI__", "__builtin_ia32_vpdpbusd_v16si(c, a, b)")},
    "put": {
        "f32x16": ("__AVX512DQ__", "__builtin_ia32_storeups512_mask($P, x, "
                   "__builtin_ia32_cvtd2mask512(m))"),
        "f64x8": ("__AVX512DQ__", "__builtin_ia32_storeupd512_mask($P, x, "
                  "__builtin_ia32_cvtq2mask512((_WIDE)m))"),
        "f32x8": ("__AVX__", "__builtin_ia32_maskstoreps256($P, m, x)"),
        "f64x4": ("__AVX__", "__builtin_ia32_maskstorepd256($P, (_WIDE)m, x)")},
    "gather": {
        "f32x16": ("__AVX512F__", "__builtin_ia32_gathersiv16sf((f32x16){0}, (void *)p, i, -1, 4)"),
        "f32x8": ("__AVX2__", "__builtin_ia32_gathersiv8sf((f32x8){0}, (void *)p, i, "
                  "(f32x8)((i32x8){0} == 0), 4)")},
    # A gather from as many elements as a vector has: they are loaded whole, and permuted.
    "table": {
        "f32x16": ("__AVX512F__", "__builtin_ia32_permvarsf512_mask(*(const f32x16u *)p, "
                   "(i32x16)i, (f32x16){0}, -1)")},
    "gatherm": {
        "f32x16": ("__AVX512DQ__", "__builtin_ia32_gathersiv16sf((f32x16){0}, (void *)p, i, "
                   "__builtin_ia32_cvtd2mask512(m), 4)"),
        "f32x8": ("__AVX2__", "__builtin_ia32_gathersiv8sf((f32x8){0}, (void *)p, i, "
                  "(f32x8)m, 4)")},
    "scatter": {
        "f32x16": ("__AVX512F__", "__builtin_ia32_scattersiv16sf((void *)p, -1, i, x, 4)")},
    "scatterm": {
        "f32x16": ("__AVX512DQ__", "__builtin_ia32_scattersiv16sf((void *)p, "
                   "__builtin_ia32_cvtd2mask512(m), i, x, 4)")},
    # whole vectors past the caches, if the address allows it
    "stream": {
        "f32x16": ("__AVX512F__", "__builtin_ia32_movntps512((void *)p, x)"),
        "f32x8": ("__AVX__", "__builtin_ia32_movntps256((void *)p, x)"),
        "f32x4": ("__SSE__", "__builtin_ia32_movntps((void *)p, x)")},
}
_GCC["lower"] = {kind: (feature, call.replace("max", "min"))
                 for kind, (feature, call) in _GCC["higher"].items()}
_GCC["any"] = {"i32x16": ("__AVX512DQ__", "__builtin_ia32_cvtd2mask512(x)"),
               "i64x8": ("__AVX512DQ__", "__builtin_ia32_cvtq2mask512((_WIDE)x)"),
               "i64x4": ("__AVX__", "__builtin_ia32_movmskpd256((f64x4)x)"),
               "i64x2": ("__SSE2__", "__builtin_ia32_movmskpd((f64x2)x)"),
               "i32x8": ("__AVX__", "__builtin_ia32_movmskps256((f32x8)x)"),
               "i32x4": ("__SSE__", "__builtin_ia32_movmskps((f32x4)x)"),
               "i8x32": ("__AVX2__", "__builtin_ia32_pmovmskb256((_BYTES)x)"),
               "i8x16": ("__SSE2__", "__builtin_ia32_pmovmskb128((_BYTES)x)"),
               "i16x16": ("__AVX2__", "__builtin_ia32_pmovmskb256((_BYTES)x)"),
               "i16x8": ("__SSE2__", "__builtin_ia32_pmovmskb128((_BYTES)x)")}


def _narrow(width: int, letter: str, letters: str) -> None:
    """Loads and stores under a mask of elements of one or two bytes."""
    for size in (16, 32, 64):
        lanes = size // width
        kind, same = f"i{8 * width}x{lanes}", "_BYTES" if width == 1 else f"i16x{lanes}"
        feature = "__AVX512BW__" if size == 64 else "__AVX512VL__"
        mask = f"__builtin_ia32_cvt{letter}2mask{8 * size}(({same})m)"
        name = f"dqu{letters}{8 * size}_mask"
        _GCC["masked"][kind] = feature, f"__builtin_ia32_load{name}($P, ({same}){{0}}, {mask})"
        _GCC["put"][kind] = feature, f"__builtin_ia32_store{name}($P, ({same})x, {mask})"
        if size == 64:
            _GCC["any"][kind] = feature, mask.replace("m)", "x)")


_narrow(1, "b", "qi")
_narrow(2, "w", "hi")
#: Integers go through the memory instructions of floats of the same width.
_AS_FLOAT = ("masked", "put", "gather", "table", "gatherm", "scatter", "scatterm", "stream")


def _instruction_of(base: str, kind: str) -> str:
    """The kind by whose name GCC knows an instruction for it; empty if there is none."""
    short, count = type_and_lanes(kind)
    letter = "i" if bits(kind) < 32 else "f"
    same = kind if short[0] == "f" or base not in _AS_FLOAT else f"{letter}{bits(kind)}x{count}"
    return same if same in _GCC.get(base, {}) else ""


def _either(base: str, kind: str, portable: str, form: str = "return {};") -> str:
    """One instruction where GCC knows it, else the portable statements."""
    short, count = type_and_lanes(kind)
    size = SIZES[short] * count  # GCC's instructions take `long long`, of which it thinks apart
    wide = f"long long __attribute__((vector_size({size})))"
    same = _instruction_of(base, kind)
    if not same:
        return f"  {portable}"
    letter, (feature, call) = same[0], _GCC[base][same]
    call = call.replace("_BYTES", f"char __attribute__((vector_size({size})))")
    call = call.replace("_WIDE", wide).replace("$P", "(void *)((long)p + at * (long)sizeof *p)")
    if letter == "i" and base == "masked":
        call = f"({kind}){call}"
    elif same != kind:
        given = call.replace("x,", f"({same})x,").replace(", x)", f", ({same})x)")
        call = f"({kind}){given}" if form.startswith("return {}") else given
    return (f"#if defined({feature}) && defined(__GNUC__) && !defined(__clang__)\n"
            f"  {form.replace('{}', call)}\n#else\n  {portable}\n#endif")


def _function(kind: str, head: str, body: str) -> str:
    return INLINE + fill(f"{head} {{\n{body}\n}}", kind)


def each(base: str, kind: str, names: str) -> str:
    """A function of numbers, applied to each element."""
    short, _ = type_and_lanes(kind)
    given = ", ".join(f"{v}[l]" for v in names)
    parameters = ", ".join(f"$K {v}" for v in names)
    return _function(kind, f"$K {base}_$K({parameters})",
                     f"  $K r;\n  for (long l = 0; l < $N; l++) r[l] = {base}_{short}({given});\n"
                     "  return r;")


#: Operations on vectors of any kind; a choice is two masks.
_ANY = {
    "sel": "$K sel_$K($I m, $K a, $K b) { return ($K)((m & ($I)a) | (~m & ($I)b)); }",
    "bits": "$I bits_$K($K x) { return ($I)x; }",
    "unbits": "$K unbits_$K($I x) { return ($K)x; }",
    "int": "$I int_$K($K x) { return __builtin_convertvector(x, $I); }",
    "real": "$K real_$K($I x) { return __builtin_convertvector(x, $K); }",
}
#: Integers. A comparison is -1 where it is true, so adding it takes one away.
_SIGNED = {
    "floordiv": """$K floordiv_$K($K a, $K b) {
  $K zero = b == 0, minus = b == -1, d = sel_$K(zero | minus, dup_$K(1), b);
  $K q = a / d, r = a - q * d;
  q += (r != 0) & ((r ^ d) < 0);
  return ~zero & sel_$K(minus, -a, q);
}""",
    "floormod": """$K floormod_$K($K a, $K b) {
  $K none = (b == 0) | (b == -1), d = sel_$K(none, dup_$K(1), b);
  $K r = a % d;
  return ~none & (r + (d & (r != 0) & ((r ^ d) < 0)));
}""",
    "shr": """$K shr_$K($K a, $K b) {
  return sel_$K(($U)b < $W, a >> (b & ($W - 1)), a < 0);
}""",
}
_UNSIGNED = {
    "floordiv": """$K floordiv_$K($K a, $K b) {
  $I zero = b == 0;
  return ($K)~zero & (a / sel_$K(zero, dup_$K(1), b));
}""",
    "floormod": """$K floormod_$K($K a, $K b) {
  $I zero = b == 0;
  return ($K)~zero & (a % sel_$K(zero, dup_$K(1), b));
}""",
    "shr": "$K shr_$K($K a, $K b) { return ($K)(b < $W) & (a >> (b & ($W - 1))); }",
}
_INTEGER = {
    "shl": "$K shl_$K($K a, $K b) { return ($K)((($U)b < $W) & ($I)(a << (b & ($W - 1)))); }",
    "max": "$K max_$K($K a, $K b) { return sel_$K(a > b, a, b); }",
    "min": "$K min_$K($K a, $K b) { return sel_$K(a < b, a, b); }",
}


def _extreme(base: str, kind: str) -> str:
    """Maximum or minimum of floats: r[impl conventions.nan.propagate]."""
    other = "higher" if base == "max" else "lower"
    return _function(kind, f"$K {base}_$K($K a, $K b)",
                     f"  return sel_$K(a != a, a, {other}_$K(a, b));")


def _dup(kind: str) -> str:
    """x - 0 is x for every x, also for -0 and NaN."""
    sign = "-" if kind[0] == "f" else "+"
    return INLINE + fill(f"$K dup_$K($E x) {{ return x {sign} ($K){{0}}; }}", kind)


def _fold(op: str, kind: str) -> str:
    """Combine a vector with itself, turned by half, then by a quarter, ...: all elements agree."""
    short, size = type_and_lanes(kind)
    lines, step = list[str](), size // 2
    while step:
        places = ", ".join(str(i ^ step) for i in range(size))
        turned = f"shuffle(v, $I, {places})"
        lines.append("  v = " + {"add": f"v + {turned}", "mul": f"v * {turned}",
                                 "or": f"v | {turned}", "and": f"v & {turned}",
                                 "xor": f"v ^ {turned}"}.get(op, f"{op}_$K(v, {turned})") + ";")
        step //= 2
    return _function(kind, f"$E fold_{op}_$K($K v)", "\n".join([*lines, "  return v[0];"]))


def _turn(kind: str) -> str:
    """Transpose a square: as many vectors as each has elements.

    Quarters that lie across are exchanged, in squares of half, a quarter, ... of the size.
    """
    size = type_and_lanes(kind)[1]
    lines, step = list[str](), size // 2
    while step:
        upper = ", ".join(str(i + size - step if i & step else i) for i in range(size))
        lower = ", ".join(str(i + size if i & step else i + step) for i in range(size))
        for one in (i for i in range(size) if not i & step):
            lines.append(f"  $K {'abcdefg'[step.bit_length()]}{one} = v[{one}];"
                         f" v[{one}] = mingle(v[{one}], v[{one + step}], $I, {upper});"
                         f" v[{one + step}] = mingle({'abcdefg'[step.bit_length()]}{one}, "
                         f"v[{one + step}], $I, {lower});")
        step //= 2
    return _function(kind, "void turn_$K($K *v)", "\n".join(lines))


def _stepped(step: int, kind: str, masked: bool) -> str:
    """Elements that lie `step` apart: of neighbouring vectors each gives those that it has.

    The last vector ends with the last element, so nothing behind it is read. Under a mask that
    leaves some out, each of the vectors has a mask of its own; if they are many, the elements are
    gathered.
    """
    # r[impl dialects.vector.within]
    size = type_and_lanes(kind)[1]
    name = f"$K stepped{'m' * masked}{step}_$K(const $E *p{', $I m' * masked})"
    whole = f"if (!any_$I(~m)) return stepped{step}_$K(p);"
    if masked and (step > _MOST_MASKED or not _instruction_of("masked", kind)):
        return _function(kind, name, f"  {whole}\n  return gatherm_i32x{size}_$K("
                                     f"p, iota_i32x{size} * {step}, m);")
    last = (size - 1) * step + 1 - size
    starts = [*range(0, last, size), last]

    def load(start: int) -> str:
        if not masked:
            return f"*(const $Ku *)(p + {start})" if start else "*(const $Ku *)p"
        lanes = [place // step if place % step == 0 else size
                 for place in range(start, start + size)]
        return f"masked_$K(p, {start}, mingle(m, ($I){{0}}, $I, {', '.join(map(str, lanes))}))"
    lines = [f"  {whole}"] * masked + [f"  $K r = {load(0)};"]
    places = [min(step * i, size - 1) for i in range(size)]
    for start, before in zip(starts[1:], starts, strict=False):
        taken = ", ".join(str(places[i] if step * i < before + size else
                              min(step * i - start + size, 2 * size - 1)) for i in range(size))
        lines.append(f"  r = mingle(r, ($K){load(start)}, $I, {taken});")
        places = [*range(size)]
    return _function(kind, name, "\n".join([*lines, "  return r;"]))


def _backward(step: int, kind: str, masked: bool) -> str:
    """Elements that lie `step` apart, from the last one on: those from the first one on, turned
    around. `p` is the place of the one with the highest address.
    """
    # r[impl dialects.vector.within]
    size = type_and_lanes(kind)[1]
    first, around = step * (1 - size), ", ".join(map(str, range(size - 1, -1, -1)))
    if masked and step == 1:
        return _function(kind, "$K backm1_$K(const $E *p, $I m)", f"""\
  $K r = masked_$K(p, {first}, mingle(m, m, $I, {around}));
  return mingle(r, r, $I, {around});""")
    if masked:
        return _function(kind, f"$K backm{step}_$K(const $E *p, $I m)",
                         f"  return any_$I(~m) ? gatherm_i32x{size}_$K(p, iota_i32x{size} * {-step}"
                         f", m) : back{step}_$K(p);")
    load = "*(const $Ku *)(p{})" if step == 1 else f"stepped{step}_$K(p{{}})"
    return _function(kind, f"$K back{step}_$K(const $E *p)",
                     f"  $K r = {load.format(f' - {-first}')};\n"
                     f"  return mingle(r, r, $I, {around});")


def _half(base: str, kind: str) -> str:
    """float16 and bfloat16 in memory are 16 bits; they are computed with as float."""
    whole = f"u16x{type_and_lanes(kind)[1]}"
    if base == "to_float16":
        plain = f"return __builtin_convertvector(half_$K(x), {whole});"
        return _function(kind, f"{whole} to_float16_$K($K x)", _either(base, kind, plain))
    if base == "from_float16":
        plain = "return unhalf_$K(__builtin_convertvector(x, $I));"
        return _function(kind, f"$K from_float16_$K({whole} x)", _either(base, kind, plain))
    wide = unsigned(kind)
    if base == "to_bfloat16":
        short = convert_vector("u", wide, whole)
        return _function(kind, f"{whole} to_bfloat16_$K($K x)", f"""  $U u = ($U)x;
  u = (u + (0x7fffu + ((u >> 16) & 1u))) >> 16;
  u = ($U)sel_$J(x != x, dup_$J(0x7fc0), ($I)u);
  return {short};""")
    if base == "from_bfloat16":
        found = convert_vector("x", whole, wide)
        return _function(kind, f"$K from_bfloat16_$K({whole} x)",
                         f"  return ($K)({found} << 16);")
    name = base.removeprefix("round_")
    return _function(kind, f"$K {base}_$K($K x)", f"  return from_{name}_$K(to_{name}_$K(x));")


def _move(base: str, kind: str, index: str = "") -> str:
    """Loads and stores of elements that lie anywhere, or that a mask selects."""
    _, count = type_and_lanes(kind)
    if base == "masked":
        # r[impl dialects.vector.nowhere]
        loop = ("if (!any_$I(~m)) return *(const $Ku *)(p + at);\n  $K r = {0};\n"
                "  for (long l = 0; l < $N; l++) if (m[l]) r[l] = p[at + l];\n  return r;")
        return _function(kind, "$K masked_$K(const $E *p, long at, $I m)",
                         "  if (!any_$I(m)) return ($K){0};\n" + _either(base, kind, loop))
    if base == "put":
        loop = ("if (!any_$I(~m)) { *($Ku *)(p + at) = x; return; }\n"
                "  for (long l = 0; l < $N; l++) if (m[l]) p[at + l] = x[l];")
        return _function(kind, "void put_$K($E *p, long at, $K x, $I m)",
                         "  if (!any_$I(m)) return;\n" + _either(base, kind, loop, "{};"))
    if base == "stream":
        plain = "*($Ku *)p = x;"
        near = _either(base, kind, plain, f"if (((long)p & {bits(kind) * count // 8 - 1}) == 0) "
                       "{ {}; return; }\n  " + plain)
        return _function(kind, "void stream_$K($E *p, $K x)", near)
    if base in ("scatter", "scatterm"):
        mask, guard = (", $I m", "if (m[l]) ") if base == "scatterm" else ("", "")
        loop = f"for (long l = 0; l < $N; l++) {guard}p[i[l]] = x[l];"
        return _function(kind, f"void {base}_{index}_$K($E *p, {index} i, $K x{mask})",
                         _either(base, kind, loop, "{};"))
    if base == "spread":
        return _function(kind, "$K spread_$K(const $E *p, $I m)",
                         "  return any_$I(m) ? sel_$K(m, dup_$K(*p), ($K){0}) : ($K){0};")
    if base == "gatherm":
        loop = ("$K r = {0};\n  for (long l = 0; l < $N; l++) if (m[l]) r[l] = p[i[l]];\n"
                "  return r;")
        return _function(kind, f"$K gatherm_{index}_$K(const $E *p, {index} i, $I m)",
                         _either(base, kind, loop) if index.startswith("i32") else f"  {loop}")
    if count <= _WRITTEN_OUT:
        loop = "return ($K){" + ", ".join(f"p[i[{place}]]" for place in range(count)) + "};"
    else:
        loop = "$K r;\n  for (long l = 0; l < $N; l++) r[l] = p[i[l]];\n  return r;"
    body = _either(base, kind, loop) if index.startswith("i32") else f"  {loop}"
    return _function(kind, f"$K {base}_{index}_$K(const $E *p, {index} i)", body)


def _whole(source: str, target: str) -> str:
    """A float as an integer; see `functions._whole`."""
    low, high = whole_limits(type_and_lanes(source)[0], type_and_lanes(target)[0])
    return _function(source, f"{target} whole_{source}_{target}($K x)", f"""  \
$K c = sel_$K(x > {low}, x, dup_$K({low})); c = sel_$K(c < {high}, c, dup_$K({high}));
  return {convert_vector("c", source, target)};""")


def vector_function(name: str) -> str:
    """The definition of a function of vectors, by its name."""
    base, _, kind = name.rpartition("_")
    short, _ = type_and_lanes(kind)
    if base.startswith("resize_"):
        source = base.removeprefix("resize_")
        return _function(kind, f"$K {name}({source} x)", resized(source, kind))
    if base.startswith("whole_"):
        return _whole(base.removeprefix("whole_"), kind)
    if base.startswith(("gather", "scatter", "table")):
        name, index = base.split("_")
        return _move(name, kind, index)
    if base.startswith("fold_"):
        return _fold(base.removeprefix("fold_"), kind)
    if base in ("masked", "put", "stream", "spread"):
        return _move(base, kind)
    if base == "turn":
        return _turn(kind)
    if base.startswith("stepped"):
        masked = base.startswith("steppedm")
        return _stepped(int(base.removeprefix("stepped").removeprefix("m")), kind, masked)
    if base.startswith("back"):
        masked = base.startswith("backm")
        return _backward(int(base.removeprefix("back").removeprefix("m")), kind, masked)
    if base == "dup":
        return _dup(kind)
    if base == "tohalf":
        return _function(kind, "f32x$N tohalf_$K($K x)",
                         "  f32x$N r;\n  for (long l = 0; l < $N; l++) "
                         "r[l] = tohalf_f64(x[l]);\n  return r;")
    if base.endswith("float16"):
        return _half(base, kind)
    if base == "iota":
        return f"#define {name} (({kind}){{{', '.join(map(str, range(type_and_lanes(kind)[1])))}}})"
    if base in ("fma", "fused", "dot", "sqrt", "scale", "higher", "lower", "any"):
        return _instruction(base, kind)
    if base == "triglarge":
        return fill(TRIG_LARGE_VECTOR, kind)
    if base in ("max", "min") and short[0] == "f":
        return _extreme(base, kind)
    template = (_ANY.get(base) or (_SIGNED if short[0] == "i" else _UNSIGNED).get(base)
                if short[0] != "f" else _ANY.get(base)) or (
                    _INTEGER.get(base) if short[0] != "f" else None)
    if short == "f32":
        template = template or TEMPLATES.get(base) or HALVES.get(base)
    if short[0] == "f":
        template = template or VECTOR_TEMPLATES.get(base)
    if template is None:
        return each(base, kind, "ab" if base in ("pow", "floordiv", "floormod") else "x")
    whole = {"f32": "8388608.0f", "f64": "4503599627370496.0"}.get(short, "")
    return INLINE + fill(template.replace("$W", str(bits(kind))).replace("$L", whole), kind)


def _instruction(base: str, kind: str) -> str:
    """What a processor may have an instruction for, or be it from masks or element by element."""
    if base == "any":
        return _function(kind, "int any_$K($K x)", _either(
            base, kind, "return fold_or_$K(x) != 0;", "return {} != 0;"))  # of up to 64 bits
    if base == "scale":
        body = TEMPLATES["scale"].partition("{\n")[2].rpartition("}")[0].strip()
        return _function(kind, "$K scale_$K($K x, $K n)", _either(base, kind, body))
    if base in ("higher", "lower"):
        sign = ">" if base == "higher" else "<"
        return _function(kind, f"$K {base}_$K($K a, $K b)", _either(
            base, kind, f"return sel_$K(a {sign} b, a, b);"))
    names = {"fma": "abc", "fused": "abc", "dot": "abc"}.get(base, "x")
    given = ", ".join(f"{v}[l]" for v in names)
    element, _ = type_and_lanes(kind)
    loop = f"$K r; for (long l = 0; l < $N; l++) r[l] = {base}_{element}({given}); return r;"
    head = f"$K {base}_$K({', '.join(f'$K {v}' for v in names)})"
    return _function(kind, head, _either("fma" if base == "fused" else base, kind, loop))
