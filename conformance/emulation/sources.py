"""CUDA and Metal sources as C++: almost nothing is rewritten, the headers do the work.

CUDA: `extern __shared__ T name[];` becomes a pointer to the dynamic shared memory, and inline
assembly becomes calls (see `assembly`). Metal: a declaration `threadgroup T name[n];` becomes
static memory of the group, where the same word before a pointer means nothing in C++. Lines stay
where they are, so that messages name the lines of the source. A table of the kernels follows.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.emulation.assembly import split_outside, without_assembly
from conformance.emulation.errors import CompileError

FILE_NAMES = {"cuda": "kernel.cu", "metal": "kernel.metal"}
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
CUDA_KERNEL = re.compile(r"__global__\s[^;{}()]*?(?:__launch_bounds__\s*\([^()]*\)[^;{}()]*?)?"
                         r"\b(\w+)\s*\(")
METAL_KERNEL = re.compile(r"(?:\bkernel|\[\[\s*kernel\s*\]\])\s+void\s+(\w+)\s*\(")
DYNAMIC_SHARED = re.compile(r"\bextern\s+__shared__\s+([^;\[\]=]*?)\b(\w+)\s*\[\s*\]\s*;")
ALIGNMENT = re.compile(r"\b(?:__align__|alignas|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)")
GROUP_MEMORY = re.compile(r"\bthreadgroup(?=\s+(?:[\w:]+(?:\s*<[^<>;]*>)?\s+)+\w+\s*[\[;])")
ATTRIBUTE = re.compile(r"\[\[\s*(\w+)\s*(?:\(\s*(\d+)\s*\))?\s*\]\]")
POSITIONS = {
    "thread_position_in_grid", "thread_position_in_threadgroup", "threadgroup_position_in_grid",
    "threads_per_threadgroup", "threadgroups_per_grid", "threads_per_grid",
    "thread_index_in_threadgroup", "thread_index_in_simdgroup", "threads_per_simdgroup",
    "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup",
    "dispatch_threads_per_threadgroup",
}
TABLE_END = """
extern "C" unsigned char __start_emulation_shared[] __attribute__((weak, visibility("hidden")));
extern "C" unsigned char __stop_emulation_shared[] __attribute__((weak, visibility("hidden")));
extern "C" EMULATION_VISIBLE const EmulationSource emulation_source = {
    emulation_kernels, sizeof emulation_kernels / sizeof *emulation_kernels,
    __start_emulation_shared, __stop_emulation_shared};
"""


def translate(source: str, language: str) -> str:
    """The C++ text that runs a source of `language` ("cuda" or "metal") under the emulator."""
    if language not in FILE_NAMES:
        raise ValueError(f"language {language!r}: it is 'cuda' or 'metal'")
    body, table = {"cuda": _cuda, "metal": _metal}[language](without_comments(source))
    return f'#line 1 "{FILE_NAMES[language]}"\n{body}\n#line 1 "table"\n{table}{TABLE_END}'


def without_comments(source: str) -> str:
    """The source with comments blank, and each line still in its place."""
    def blank(match: re.Match[str]) -> str:
        text = match.group()
        return text if text.startswith('"') else " " + "\n" * text.count("\n")
    return COMMENT_OR_TEXT.sub(blank, source)


def _cuda(source: str) -> tuple[str, str]:
    names = CUDA_KERNEL.findall(source)
    if not names:
        raise CompileError("no kernel in the source: nothing is declared __global__")
    body = without_assembly(DYNAMIC_SHARED.sub(_pointer_to_dynamic, source))
    rows = ", ".join(f"EMULATION_KERNEL({name})" for name in dict.fromkeys(names))
    return body, f"static const EmulationKernel emulation_kernels[] = {{{rows}}};"


def _pointer_to_dynamic(match: re.Match[str]) -> str:
    """The dynamic memory has an address at run time only. The reference follows it."""
    kind, name = ALIGNMENT.sub("", match[1]).strip(), match[2]
    lines = "\n" * match[0].count("\n")
    return f"static {kind} *&{name} = *({kind} **)&emulation_dynamic;{lines}"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a Metal kernel: where its value comes from, as its attribute says."""

    text: str
    attribute: str
    number: int


def metal_kernels(source: str) -> dict[str, list[Parameter]]:
    """Each kernel of a Metal source without comments, with its parameters."""
    found = {match[1]: list(_parameters(source, match.end()))
             for match in METAL_KERNEL.finditer(source)}
    if not found:
        raise CompileError("no kernel in the source: nothing is declared kernel")
    return found


def _parameters(source: str, start: int) -> Iterator[Parameter]:
    """The parameters of the list whose first character is at `start`."""
    for text in split_outside(source, start):
        attributes = [match for match in ATTRIBUTE.finditer(text)
                      if match[1] in POSITIONS | {"buffer", "threadgroup"}]
        if len(attributes) != 1:
            line = source.count("\n", 0, start) + 1
            raise CompileError(f"kernel.metal:{line}: parameter {text.strip()!r} needs one known "
                               "attribute: [[buffer(n)]], [[threadgroup(0)]] or a position")
        yield Parameter(text, attributes[0][1], int(attributes[0][2] or 0))


def _metal(source: str) -> tuple[str, str]:
    body = ATTRIBUTE.sub("", GROUP_MEMORY.sub("EMULATION_SHARED", source))
    kernels = metal_kernels(source)
    tables = "\n".join(_metal_table(name, each) for name, each in kernels.items())
    rows = ", ".join(f'{{"{name}", call_{name}, {len(each)}, parameters_{name}}}'
                     for name, each in kernels.items())
    return body, f"{tables}\nstatic const EmulationKernel emulation_kernels[] = {{{rows}}};"


def _metal_table(name: str, parameters: list[Parameter]) -> str:
    """The function that calls a kernel with its buffers, values and positions."""
    kinds = [f"emulation::At<{at}, decltype(&{name})>::type" for at in range(len(parameters))]
    values = ", ".join(_value(kind, each) for kind, each in zip(kinds, parameters, strict=True))
    rows = ", ".join(f"emulation::Described<{kind}>::in({_slot(each)})"
                     for kind, each in zip(kinds, parameters, strict=True))
    return (f"static void call_{name}(void **arguments) {{ {name}({values}); }}\n"
            f"static const EmulationParameter parameters_{name}[] = {{{rows}}};")


def _value(kind: str, parameter: Parameter) -> str:
    if parameter.attribute == "buffer":
        return f"emulation::Argument<{kind}>::of(arguments[{parameter.number}])"
    if parameter.attribute == "threadgroup":
        return f"({kind})emulation_dynamic"
    return f"emulation::Position<{kind}>::of(emulation::{parameter.attribute}())"


def _slot(parameter: Parameter) -> int:
    if parameter.attribute == "threadgroup" and parameter.number:
        raise CompileError("one [[threadgroup(0)]] argument is what is emulated")
    return {"buffer": parameter.number, "threadgroup": -2}.get(parameter.attribute, -1)
