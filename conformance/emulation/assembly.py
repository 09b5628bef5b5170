"""Inline PTX assembly as calls of the functions of `ptx.h`, one for each instruction.

    asm volatile("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(wide));

becomes

    (ptx::cvt_rn_f16_f32(*(unsigned short *)&(narrow), (float)(wide)));

Several instructions may stand in one statement. What declares registers of its own, jumps, or is
predicated is refused with its line.
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from conformance.emulation.errors import CompileError

STATEMENT = re.compile(r"\b(?:asm|__asm__)\s*(?:volatile\b|__volatile__\b)?\s*\(")
TEXT = re.compile(r'"((?:\\.|[^"\\])*)"')
OPERAND = re.compile(r'\s*(?:\[\w+\]\s*)?"([=+]?)&?\w*([frldhn])"\s*\((.*)\)\s*$', re.S)
TYPES = {"f": "float", "r": "unsigned", "l": "unsigned long long", "d": "double",
         "h": "unsigned short", "n": "long"}
#: Parts of a name that say where to keep something, and nothing about values.
HINTS = re.compile(r"\.L[12]::\w+|::cta|\.volatile|\.relaxed|\.evict_\w+")
PLACE = re.compile(r"%(\d+)")


def without_assembly(source: str) -> str:
    """The source with assembly statements replaced by calls, each line still in its place."""
    pieces, done = [], 0
    for match in STATEMENT.finditer(source):
        if match.start() < done:
            continue
        line = source.count("\n", 0, match.start()) + 1
        parts = list(split_outside(source, match.end(), ":"))
        end = _end(source, match.end())
        calls = _calls(parts, line)
        lines = "\n" * source.count("\n", match.start(), end)
        pieces += [source[done:match.start()], f"({calls})", lines]
        done = end
    return "".join([*pieces, source[done:]])


def split_outside(source: str, start: int, at: str = ",") -> Iterator[str]:
    """The pieces of a list up to the bracket that closes it; brackets and texts stay whole."""
    end = _end(source, start) - 1
    depth, piece, place = 0, start, start
    while place < end:
        place, step = _after_text(source, place)
        if step:
            continue
        letter = source[place]
        if depth == 0 and letter == at and place < end:
            yield source[piece:place]
            piece = place + 1
        depth += (letter in "([{") - (letter in ")]}")
        place += 1
    if at != "," or source[piece:end].strip():
        yield source[piece:end]


def _after_text(source: str, place: int) -> tuple[int, bool]:
    """Behind the quoted text that begins here, if one does."""
    match = TEXT.match(source, place)
    return (match.end(), True) if match else (place, False)


def _end(source: str, start: int) -> int:
    """Behind the bracket that closes the one before `start`."""
    depth, place = 0, start
    while place < len(source):
        place, step = _after_text(source, place)
        if step:
            continue
        if source[place] == ")" and depth == 0:
            return place + 1
        depth += (source[place] in "([{") - (source[place] in ")]}")
        place += 1
    raise CompileError(f"line {source.count(chr(10), 0, start) + 1}: a bracket is not closed")


def _calls(parts: list[str], line: int) -> str:
    text = "".join(TEXT.findall(parts[0])).replace("\\n", "\n").replace("\\t", " ")
    operands = [_operand(each, line) for part in parts[1:3]
                for each in split_outside(part + ")", 0)]
    instructions = [each.strip() for each in _inside(text).split(";") if each.strip()]
    return ", ".join(_call(each, operands, line) for each in instructions)


def _inside(text: str) -> str:
    """Instructions without the braces around all of them."""
    text = text.strip()
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def _operand(text: str, line: int) -> str:
    match = OPERAND.match(text)
    if match is None:
        raise CompileError(f"kernel.cu:{line}: operand {text.strip()!r} of an assembly statement "
                           "is not understood")
    kind = TYPES[match[2]]
    return f"*({kind} *)&({match[3]})" if match[1] else f"({kind})({match[3]})"


def _call(instruction: str, operands: list[str], line: int) -> str:
    """`name.of.it {%0, %1}, [%2 + 4], 16` as a call."""
    name, _, rest = instruction.partition(" ")
    if not re.fullmatch(r"[a-z][\w.:]*", name):
        raise CompileError(f"kernel.cu:{line}: the assembly instruction {instruction!r} is not "
                           "emulated: registers, labels and predicates are not")
    words = [word.strip(" []{}") for word in re.split(r",(?![^\[]*\])", rest) if word.strip()]
    if any(int(place) >= len(operands) for place in PLACE.findall(rest)):
        raise CompileError(f"kernel.cu:{line}: {instruction!r} names an operand that is not there")
    values = [PLACE.sub(lambda match: operands[int(match[1])], word) for word in words]
    function = HINTS.sub("", name).replace(".", "_")
    taken = "_taken" if function.startswith("cp_async_c") and len(values) == 4 else ""
    return f"ptx::{function}{taken}({', '.join(values)})"
