"""What a function's text leaves open, and what a language says there. Chapter: spec/functions.md.

Functions that kernels call are written once, in what C and the languages for GPUs share. Where
they differ, the text has a word with @ before it, and a language has a table of words. A word may
take what stands in parentheses behind it.
"""
from __future__ import annotations

import re
from collections.abc import Mapping

Words = Mapping[str, str]
_OPEN = re.compile(r"@(\w+)(?:\(([^()]*)\))?")

#: C, as gcc and clang know it.
C_WORDS: Words = {
    "inline": "static inline __attribute__((always_inline))",  # a small function
    "apart": "static __attribute__((noinline))",               # a large one
    "table": "static const",                                   # numbers inside a function
    "private": "int",                                          # what a pointer points at
    "library_f32": "__builtin_%sf", "library_f64": "__builtin_%s",
    "inf_f32": "__builtin_inff()", "inf_f64": "__builtin_inf()",
    "nan_f32": '__builtin_nanf("")', "nan_f64": '__builtin_nan("")',
    # What is left of a large angle: 2**-62 * pi / 2
    "angle": "(float)((double)(long)p * 0x1.921fb54442d18p-62)",
    "unordered": "({0} != {0})",  # whether a number is NaN
    "exact": "({0})",             # a sum that must be rounded where it stands
}
#: Where a device has no doubles, what is left of an angle is rounded to float once more.
FLOAT_ANGLE = "(float)(long)p * 3.40612158e-19f"


def worded(text: str, words: Words) -> str:
    """A text in a language's words. `@sqrt_f32` is the library's function for floats."""
    def said(found: re.Match[str]) -> str:
        name, given = found[1], found[2]
        word = words.get(name)
        if word is None:
            base, _, kind = name.rpartition("_")
            word = words[f"library_{kind}"] % base
        if given is None:
            return word
        return word.replace("{0}", given) if "{0}" in word else f"{word}({given})"

    return _OPEN.sub(said, text)
