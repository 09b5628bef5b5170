"""Vectors of whole numbers as ones of another width. Chapter: spec/dialects.md.

GCC makes a conversion of parts of the vector, or element by element, where the processor has one
instruction for it. So GCC's name for that instruction is used, and what is portable stands beside.
"""
from __future__ import annotations

from collections.abc import Callable

from impl.functions.types import SIZES, type_and_lanes

#: Vectors with fewer elements are left to the compiler.
_LEAST = 8
#: GCC's instructions take `char` for bytes, and registers of 16 of them also for 8.
_REGISTER = "char __attribute__((vector_size(16)))"
_PAIR = "long long __attribute__((vector_size(16)))"


def ways(have: str, kind: str) -> list[str]:
    """The kinds by way of which a vector is converted, up to the one that is asked for."""
    # r[impl dialects.vector.memory+2]
    (source, count), (target, _) = type_and_lanes(have), type_and_lanes(kind)
    one_is_float = (source[0] == "f") != (target[0] == "f")
    if one_is_float and min(SIZES[source], SIZES[target]) < SIZES["i32"] and count >= _LEAST:
        return [f"i32x{count}", kind]
    return [kind]


def resize_of(have: str, kind: str) -> str:
    """The function for whole numbers of another width; empty where the compiler does as well."""
    (source, count), (target, _) = type_and_lanes(have), type_and_lanes(kind)
    same = "f" in source[0] + target[0] or SIZES[source] == SIZES[target]
    return "" if same or count < _LEAST else f"resize_{have}_{kind}"


def convert_vector(text: str, have: str, kind: str,
                   need: Callable[[str], object] = lambda name: None) -> str:
    """An expression as a vector of another kind; `need` is told the names that it uses."""
    for way in ways(have, kind):
        function = resize_of(have, way)
        need(function or way)
        text = f"{function}({text})" if function else f"__builtin_convertvector({text}, {way})"
        have = way
    return text


def resized(have: str, kind: str) -> str:
    """The body of a function that converts `x` between widths."""
    # r[impl dialects.vector.memory+2]
    portable = f"  return {_step_by_step(have, kind)};"
    feature, call = _instruction(have, kind)
    if not feature:
        return portable
    return (f"#if defined({feature}) && defined(__GNUC__) && !defined(__clang__)\n"
            f"  return ({kind}){call};\n#else\n{portable}\n#endif")


def _step_by_step(have: str, kind: str) -> str:
    """A compiler has instructions that double or halve a width. More at once is taken apart."""
    (source, count), (target, _) = type_and_lanes(have), type_and_lanes(kind)
    size, wanted, text = SIZES[source], SIZES[target], "x"
    while 2 * size < wanted or (size > 2 * wanted and count >= 16):
        size = 2 * size if size < wanted else size // 2
        text = f"__builtin_convertvector({text}, {source[0]}{8 * size}x{count})"
    return f"__builtin_convertvector({text}, {kind})"


def _instruction(have: str, kind: str) -> tuple[str, str]:
    """The feature that a processor needs, and GCC's name for the instruction; or nothing."""
    (source, count), (target, _) = type_and_lanes(have), type_and_lanes(kind)
    widths = SIZES[source], SIZES[target]
    letters = "".join("bwdq"[width.bit_length() - 1] for width in widths)
    longer = f"__builtin_ia32_pmov{'sz'[source[0] == 'u']}x{letters}"
    vectors = {1: f"char __attribute__((vector_size({count})))", 2: f"i16x{count}"}
    small = vectors.get(min(widths), "")
    if (count, widths) in ((16, (1, 4)), (16, (2, 4))):
        return "__AVX512F__", f"{longer}512_mask(({small})x, (i32x16){{0}}, -1)"
    if (count, widths) in ((16, (4, 1)), (16, (4, 2))):
        return "__AVX512F__", (f"__builtin_ia32_pmov{letters}512_mask((i32x16)x, "
                               f"({small}){{0}}, -1)")
    if (count, widths) == (32, (1, 2)):
        return "__AVX512BW__", f"{longer}512_mask(({small})x, (i16x32){{0}}, -1)"
    if (count, widths) == (16, (1, 2)):
        return "__AVX2__", f"{longer}256(({small})x)"
    if (count, widths) == (8, (1, 4)):
        return "__AVX2__", f"{longer}256(({_REGISTER})({_PAIR}){{(long long)x, 0}})"
    if (count, widths) == (8, (2, 4)):
        return "__AVX2__", f"{longer}256(({small})x)"
    return "", ""
