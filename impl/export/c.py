"""A function as C: a source file, a header, a file of weights. Chapter: spec/export.md."""
from __future__ import annotations

import json
from collections.abc import Iterable

from impl.device import Device
from impl.dialects import C
from impl.dtypes import DType, dtypes
from impl.export.artefact import Artefact, KernelCall, Port, Spot
from impl.export.texts import KernelTexts, expression
from impl.host import np
from impl.ir import UOp
from impl.render import SourceText, render

#: How elements are declared; half types are their bits.
_TYPES = {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
          "float64": "double"}
#: What can come of a call.
CODES = {"OK": "it worked", "NOT_LOADED": "nothing was loaded yet",
         "OUT_OF_RANGE": "an integer is outside of its bounds",
         "OTHER_SIZE": "for these integers the function would do something else than what was "
                       "exported",
         "NO_FILE": "the file cannot be opened", "OTHER_FILE": "the file is not of this program"}
_LIMIT = 1 << 31
_ALIGNMENT = 64


def element(dtype: DType) -> str:
    """The type of an element in a declaration."""
    return _TYPES.get(dtype.name) or f"{dtype.name}_t"


def header_of(artefact: Artefact) -> bytes:
    """The beginning of the safetensors file with the states of an artefact."""
    kinds = {"bool": "BOOL", "bfloat16": "BF16"}
    entries, begin = dict[str, object](), 0
    for state, content in zip(artefact.states, artefact.contents, strict=True):
        name = kinds.get(state.dtype.name) or \
            state.dtype.kind.upper() + str(8 * state.dtype.itemsize)
        entries[state.name] = {"dtype": name, "shape": [int(size) for size in state.shape],
                               "data_offsets": [begin, begin + content.nbytes]}
        begin += content.nbytes
    text = json.dumps(entries).encode()
    return text + b" " * (-len(text) % 8)


def weights_of(artefact: Artefact) -> bytes:
    """The safetensors file with the states of an artefact."""
    # r[impl export.weights.named]
    text = header_of(artefact)
    return len(text).to_bytes(8, "little") + text + b"".join(
        np.ascontiguousarray(content).tobytes() for content in artefact.contents)


class CText:
    """The texts of an artefact in C. `embedded`: the weights are a part of the source."""

    def __init__(self, artefact: Artefact, embedded: bool) -> None:
        self.artefact, self.embedded = artefact, embedded
        self.name, self.functions, self.dialect = artefact.name, KernelTexts("static "), C()
        self.scratch = 0
        self.starts: list[int] = []
        begin = 0
        for state in artefact.states:
            self.starts.append(begin)
            begin += -(-state.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.state_bytes = begin

    def prototype(self) -> str:
        """How the function is called."""
        made = self.artefact
        given = [f"const {element(p.dtype)} *{p.name}" for p in made.inputs]
        given += [f"int64_t {v.name}" for v in made.variables]
        given += [f"{element(p.dtype)} *{p.name}" for p in made.outputs]
        return f"int {self.name}_run({', '.join(given) or 'void'})"

    def header(self) -> str:
        """The header, for C and C++."""
        # r[impl export.c.header]
        made, guard = self.artefact, f"{self.name.upper()}_H"
        codes = [f"#define {self.name.upper()}_{code} {number} /* {what} */"
                 for number, (code, what) in enumerate(CODES.items())]
        told = [*_described("input", made.inputs), *_described("output", made.outputs),
                *_described("state", made.states)]
        told += [f"   integer {v.name}: {v.least} to {v.greatest}" for v in made.variables]
        return "\n".join([
            f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", "",
            '#ifdef __cplusplus', 'extern "C" {', "#endif", "", *codes, "",
            "/* One call. Elements lie in rows, the last axis first.", *told, "*/",
            f"{self.prototype()};", "",
            "/* Read all states from a safetensors file, or write them to one. */",
            f"int {self.name}_load(const char *path);",
            f"int {self.name}_save(const char *path);", "",
            "/* What a code means. */", f"const char *{self.name}_error(int code);", "",
            "#ifdef __cplusplus", "}", "#endif", "#endif", ""])

    def source(self) -> str:
        """The source."""
        body = self._body()
        return "\n".join([
            f"/* {self.name}: made by Tensor Schedule. Needs a C compiler of the GNU family and "
            "libm:", f"     cc -O2 -c {self.name}.c          any processor",
            f"     cc -O2 -march=native -c {self.name}.c     all that this one has",
            "   With clang add -fwrapv. Not for several threads at once: memory is static. */",
            f'#include "{self.name}.h"', "#include <stdio.h>", "#include <string.h>", "",
            "#ifdef __clang__", "#pragma STDC FP_CONTRACT OFF",
            '#pragma clang diagnostic ignored "-Wpsabi"', "#else",
            '#pragma GCC diagnostic ignored "-Wpsabi"',
            '#pragma GCC optimize ("wrapv", "no-strict-aliasing", "fp-contract=off", '
            '"no-tree-vectorize")', "#endif",
            '_Static_assert(sizeof(long) == 8, "long has 64 bits");', "",
            self.functions.text(), *self._memory(), *self._files(), "", *body, ""])

    def _memory(self) -> list[str]:
        """Static memory: what lasts, and what one call needs."""
        # r[impl export.plan.kept+2]
        lines = [_block(name, nbytes) for name, nbytes
                 in (("arena", self.artefact.arena), ("scratch", self.scratch)) if nbytes]
        if not self.embedded:
            return [*lines, _block("state", self.state_bytes), "static int loaded;"]
        whole = np.zeros(max(self.state_bytes, _ALIGNMENT), np.uint8)
        for start, content in zip(self.starts, self.artefact.contents, strict=True):
            flat = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
            whole[start:start + flat.size] = flat
        words = [f"{word:#x}u" for word in whole.view(np.uint32).tolist()]
        rows = [",".join(words[i:i + 12]) for i in range(0, len(words), 12)]
        return [*lines, "static uint32_t words[] __attribute__((aligned(64))) = {\n"
                + ",\n".join(rows) + "};", "static char *const state = (char *)words;",
                "static int loaded = 1;"]

    def _files(self) -> list[str]:
        """Reading and writing of states."""
        text, made, name = header_of(self.artefact), self.artefact, self.name.upper()
        rows = ", ".join(f"{{{start}, {state.nbytes}}}" for start, state
                         in zip(self.starts, made.states, strict=True)) or "{0, 0}"
        quoted = json.dumps(text.decode())
        begin = ", ".join(map(str, len(text).to_bytes(8, "little")))
        return [
            f"static const unsigned char size[8] = {{{begin}}};",
            f"static const char names[] = {quoted};",
            f"static const long states[][2] = {{{rows}}};", "",
            f"int {self.name}_load(const char *path) {{",
            "  unsigned char found[8];", "  unsigned long i, ok;",
            '  FILE *file = fopen(path, "rb");', f"  if (!file) return {name}_NO_FILE;",
            "  ok = fread(found, 8, 1, file) == 1 && !memcmp(found, size, 8);",
            "  for (i = 0; ok && i + 1 < sizeof names; i++) ok = fgetc(file) == names[i];",
            f"  for (i = 0; ok && i < {len(made.states)}u; i++)",
            "    ok = !states[i][1] || fread(state + states[i][0], states[i][1], 1, file) == 1;",
            "  fclose(file);", "  loaded = ok != 0;",
            f"  return ok ? {name}_OK : {name}_OTHER_FILE;", "}", "",
            f"int {self.name}_save(const char *path) {{",
            "  unsigned long i, ok;", "  FILE *file;", f"  if (!loaded) return {name}_NOT_LOADED;",
            '  file = fopen(path, "wb");', f"  if (!file) return {name}_NO_FILE;",
            "  ok = fwrite(size, 8, 1, file) && fwrite(names, sizeof names - 1, 1, file);",
            f"  for (i = 0; ok && i < {len(made.states)}u; i++)",
            "    ok = !states[i][1] || fwrite(state + states[i][0], states[i][1], 1, file);",
            "  ok = !fclose(file) && ok;", f"  return ok ? {name}_OK : {name}_NO_FILE;", "}", "",
            f"const char *{self.name}_error(int code) {{",
            "  static const char *const said[] = {"
            + ", ".join(json.dumps(what) for what in CODES.values()) + "};",
            f'  return code < 0 || code >= {len(CODES)} ? "no such code" : said[code];', "}"]

    def _body(self) -> list[str]:
        """The function itself."""
        # r[impl export.plan.kept+2, export.values.equal]
        made, name = self.artefact, self.name.upper()
        lines = [f"{self.prototype()} {{"]
        if made.states:
            lines.append(f"  if (!loaded) return {name}_NOT_LOADED;")
        for variable in made.variables:  # r[impl export.variable.checked+2]
            lines.append(f"  if ({variable.name} < {variable.least} || {variable.name} > "
                         f"{variable.greatest}) return {name}_OUT_OF_RANGE;")
        named = {v.node: v.name for v in made.variables}
        for condition, outcome in made.conditions:
            text = expression(condition, self.dialect, named)
            lines.append(f"  if ({'!' if outcome else ''}({text})) return {name}_OTHER_SIZE;")
        self.functions.definitions.update(dict.fromkeys(self.dialect.definitions()))
        for call in made.calls:
            lines += self._call(call)
        for source, target, nbytes in made.copies:
            lines.append(f"  memmove({self._spot(target)}, {self._spot(source)}, {nbytes});")
        if made.random is not None:  # r[impl export.random.kept]
            counter = f"((int32_t *)({self._spot(made.random)}))[0]"
            lines.append(f"  {counter} = (int32_t)(((int64_t){counter} + {made.random_used}) "
                         f"% {_LIMIT});")
        return [*lines, f"  return {name}_OK;", "}"]

    def _call(self, call: KernelCall) -> Iterable[str]:
        """One kernel."""
        source, shape = rendered(call.ast)
        name, values = self.functions.name(source), [self._value(*v) for v in call.values]
        count = len(call.spots)
        args = ", ".join([*(f"(void *)({self._spot(s)})" for s in call.spots),
                          *(f"&values[{i}]" for i in range(len(values)))])
        yield "  {"
        if values:
            yield f"    long values[] = {{{', '.join(values)}}};"
        yield f"    void *args[{max(count + len(values), 1)}] = {{{args}}};"
        if not source.phases:
            yield f"    {name}(args);"
        for phase, shared in enumerate(source.phases):
            self.scratch = max(self.scratch, shape, 1)  # the call names it
            loop = f"for (long i = 0; i < {source.threads}; i++) " if shared and \
                source.threads > 1 else ""
            yield f"    {loop}{name}(args, {'i' if loop else '0'}, {phase}, scratch);"
        yield "  }"

    def _value(self, kind: str, number: int) -> str:
        """What a kernel is told besides its memory."""
        if kind == "variable":
            return self.artefact.variables[number].name
        if kind == "number":
            return str(number)
        assert self.artefact.random is not None
        told = f"((int32_t *)({self._spot(self.artefact.random)}))"
        return f"{told}[1]" if kind == "key" else f"{told}[0] + {number}L"

    def _spot(self, spot: Spot) -> str:
        """An address."""
        made = self.artefact
        if spot.kind == "input":
            return made.inputs[spot.number].name
        if spot.kind == "output":
            return made.outputs[spot.number].name
        return f"{spot.kind} + " + str(
            self.starts[spot.number] if spot.kind == "state" else spot.number)


def rendered(ast: UOp) -> tuple[SourceText, int]:
    """The text that the CPU device has for a kernel, and its bytes of scratch memory."""
    # r[impl export.values.equal]
    source = render(Device["CPU"].optimized(ast, False), C())
    return source, source.scratch + source.own


def _described(kind: str, ports: Iterable[Port]) -> list[str]:
    return [f"   {kind} {p.name}: {'bits of ' if p.dtype in _BITS else ''}{p.dtype.name}"
            f"{[int(s) for s in p.shape]}" for p in ports]


_BITS = (dtypes.float16, dtypes.bfloat16)


def _block(name: str, nbytes: int) -> str:
    return f"static char {name}[{max(nbytes, _ALIGNMENT)}] __attribute__((aligned(64)));"
