"""The lesson on loops: the text of a kernel, which a C compiler turns into a program.

The texts of all small kernels are compiled together and run once, in a process of their own. Each
access to memory is watched there: it stays inside, and is counted.

    lowering.place.body: p1 is read 6 times, and 2 times would do: a value is computed once for each
    iteration of the innermost loop that it depends on

        p0[i0 * 3 + i1] = cube(p1[i0]) * p2[i0 * 3 + i1], for i0 < 2, i1 < 3
"""
from __future__ import annotations

import functools
import importlib
import math
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.learn.lesson import Counterexample, Lesson, published, raised

SCOPE, PLACE = "kernel.scope.loops", "lowering.place.body"
GATED, DEPTH = "kernel.access.gated", "lowering.depth.unlimited"
EMPTY = "kernel.reduce.empty"
ROOM = 64  # elements of each memory of a small kernel
LONGEST = 200  # characters of text for each value of a kernel, on average


class Value:
    """A number inside loops: what it is made of, and how C writes it."""

    def __init__(self, op: str, src: Sequence[Value] = (), type: str = "float", form: str = "",
                 name: str = "", size: int = 0, start: str = "") -> None:
        self.op, self.src, self.type, self.form = op, tuple(src), type, form
        self.name, self.size, self.start = name, size, start

    @property
    def opens(self) -> str:
        """The line that begins a loop."""
        return f"for (long {self.name} = 0; {self.name} < {self.size}; {self.name}++) {{"

    def text(self, *given: str) -> str:
        """The value in C, from the texts of what it is made of."""
        wanted = 2 if self.op == "reduce" else 0 if self.op in ("loop", "number") else len(self.src)
        if len(given) != wanted or not all(isinstance(each, str) for each in given):
            raise TypeError(f"text({', '.join(map(repr, given))}) of {self.op}: it takes {wanted} "
                            f"text{'s' if wanted != 1 else ''}")
        return self.form.format(*given)

    def __repr__(self) -> str:
        return f"<{self.op}>"


@dataclass(frozen=True, eq=False)
class Store:
    """Where a kernel puts a value, and under which condition."""

    buffer: str
    index: Value
    value: Value
    condition: Value | None = None


class Kernel:
    """Outer loops and one store."""

    def __init__(self, loops: Sequence[Value], store: Store) -> None:
        self.loops, self.store = tuple(loops), store
        last = [each for each in (store.condition, store.index, store.value) if each is not None]
        self.values = ordered([*loops, *last])


def ordered(last: Sequence[Value]) -> tuple[Value, ...]:
    """All values below, each after what it is made of."""
    found: dict[Value, None] = {}
    stack = list(reversed(last))
    while stack:
        waiting = [each for each in stack[-1].src if each not in found]
        stack += reversed(waiting)
        if not waiting:
            found.setdefault(stack.pop())
    return tuple(found)


# Small kernels -----------------------------------------------------------------------------


def loop(number: int, size: int) -> Value:
    return Value("loop", type="long", form=f"i{number}", name=f"i{number}", size=size)


def number(value: int, type: str = "float") -> Value:
    form = f"{value}.0f" if type == "float" else str(value)
    return Value("number", type=type, form=f"({form})" if value < 0 else form)


def add(one: Value, two: Value) -> Value:
    return Value("add", (one, two), one.type, "({0} + {1})")


def multiply(one: Value, two: Value) -> Value:
    return Value("multiply", (one, two), one.type, "({0} * {1})")


def subtract(one: Value, two: Value) -> Value:
    return Value("subtract", (one, two), one.type, "({0} - {1})")


def cube(one: Value) -> Value:
    return Value("cube", (one,), "float", "cube({0})")


def less(one: Value, two: Value) -> Value:
    return Value("less", (one, two), "int", "({0} < {1})")


def load(buffer: int, index: Value, condition: Value | None = None) -> Value:
    if condition is None:
        return Value("load", (index,), "float", f"p{buffer}[{{0}}]", name=f"p{buffer}")
    return Value("gated load", (index, condition), "float", f"({{1}} ? p{buffer}[{{0}}] : 0.0f)",
                 name=f"p{buffer}")


def total(value: Value, *loops: Value) -> Value:
    return Value("reduce", (value, *loops), "float", "({0} + {1})", "sum", start="0.0f")


def largest(value: Value, *loops: Value) -> Value:
    return Value("reduce", (value, *loops), "float", "larger({0}, {1})", "largest",
                 start="-INFINITY")


def flat(*pairs: tuple[Value, int]) -> Value:
    """A sum of loops times numbers."""
    found = None
    for each, step in pairs:
        part = each if step == 1 else multiply(each, number(step, "long"))
        found = part if found is None else add(found, part)
    assert found is not None
    return found


def kernels() -> dict[str, Kernel]:
    """From the smallest up, each with a line that says what it computes."""
    i, j, four = loop(0, 3), loop(1, 4), loop(0, 4)
    k, q = loop(2, 4), loop(3, 2)
    zero, none = number(0, "long"), loop(2, 0)
    both, row = flat((i, 4), (j, 1)), flat((i, 4), (k, 1))
    shared = cube(load(1, i))
    x = load(1, row)
    mean = multiply(total(x, k), number(2))
    away = subtract(x, mean)
    doubled = load(1, i)
    for _ in range(14):
        doubled = add(doubled, doubled)
    chain = load(1, i)
    for _ in range(1500):
        chain = add(chain, number(1))
    return {
        "p0[0] = 2": Kernel((), Store("p0", zero, number(2))),
        "p0[i0] = p1[i0], for i0 < 3": Kernel((i,), Store("p0", i, load(1, i))),
        "p0[i0 * 4 + i1] = p1[i0 * 4 + i1] * 2 + 1, for i0 < 3, i1 < 4": Kernel(
            (i, j), Store("p0", both, add(multiply(load(1, both), number(2)), number(1)))),
        "p0[i0 * 4 + i1] = cube(p1[i0]) * p2[i0 * 4 + i1], for i0 < 3, i1 < 4": Kernel(
            (i, j), Store("p0", both, multiply(shared, load(2, both)))),
        "p0[i0] = x + x, where x = cube(p1[i0]), for i0 < 3": Kernel(
            (i,), Store("p0", i, add(shared, shared))),
        "p0[i0] = (0 < i0 ? p1[i0 - 1] : 0), for i0 < 3": Kernel((i,), Store("p0", i, load(
            1, subtract(i, number(1, "long")), less(number(0, "long"), i)))),
        "p0[i0 * 20] = (i0 < 2 ? p1[i0] : 0), only where i0 < 2, for i0 < 4": Kernel(
            (four,), Store("p0", multiply(four, number(20, "long")), load(1, four),
                           less(four, number(2, "long")))),
        "p0[i0] = the sum of p1[i0 * 4 + i2] for i2 < 4, for i0 < 3": Kernel(
            (i,), Store("p0", i, total(x, k))),
        "p0[i0] = the largest of p2[i0 * 4 + i2] for i2 < 4, for i0 < 3": Kernel(
            (i,), Store("p0", i, largest(load(2, row), k))),
        "p0[0] = the sum of p1[i2 * 2 + i3] for i2 < 4, i3 < 2": Kernel((), Store(
            "p0", zero, total(load(1, flat((k, 2), (q, 1))), k, q))),
        "p0[0] = the sum of cube(p1[i2]) * p2[i2 * 2 + i3] for i2 < 4, i3 < 2": Kernel((), Store(
            "p0", zero, total(multiply(cube(load(1, k)), load(2, flat((k, 2), (q, 1)))), k, q))),
        "p0[i0] = the sum of p1[i2] for i2 < 0, plus 1, for i0 < 3": Kernel((i,), Store(
            "p0", i, add(total(load(1, none), none), number(1)))),
        "p0[i0 * 4 + i1] = p1[i0 * 4 + i1] - s, where s is the sum of p1[i0 * 4 + i2] for i2 < 4, "
        "for i0 < 3, i1 < 4": Kernel((i, j), Store(
            "p0", both, subtract(load(1, both), total(x, k)))),
        "p0[i0] = the sum for i2 < 4 of the largest of p2[i0 * 8 + i2 * 2 + i3] for i3 < 2, for "
        "i0 < 3": Kernel((i,), Store("p0", i, total(largest(load(2, flat(
            (i, 8), (k, 2), (q, 1))), q), k))),
        "p0[i0] = the sum of d * d for i2 < 4, where d = p1[i0 * 4 + i2] - m and m is twice the "
        "sum of p1[i0 * 4 + i2] for i2 < 4, for i0 < 3": Kernel((i,), Store(
            "p0", i, total(multiply(away, away), k))),
        "p0[i0] = x, doubled 14 times, where x = p1[i0], for i0 < 3": Kernel(
            (i,), Store("p0", i, doubled)),
        "p0[i0] = p1[i0] + 1 + 1 ..., 1500 times, for i0 < 3": Kernel((i,), Store("p0", i, chain))}


KERNELS = kernels()


def memory(buffer: int) -> list[int]:
    """What lies in a memory: small numbers, so that all sums are exact; those of p2 below 0."""
    if buffer == 0:
        return [-77] * ROOM
    return [(7 * place) % 5 + 1 if buffer == 1 else -((5 * place) % 7) - 1
            for place in range(ROOM)]


# By definition -----------------------------------------------------------------------------


@functools.cache
def wanted(kernel: Kernel) -> list[float]:
    """What lies in p0 at the end."""
    out: list[float] = list(map(float, memory(0)))
    store = kernel.store
    for counters in product(*(range(each.size) for each in kernel.loops)):
        known = dict(zip(kernel.loops, map(float, counters), strict=True))
        if store.condition is None or _evaluated(store.condition, dict(known)):
            place = int(_evaluated(store.index, dict(known)))
            out[place] = _evaluated(store.value, dict(known))
    return out


@functools.cache
def _below(last: Value) -> tuple[Value, ...]:
    return ordered([last])


def _evaluated(last: Value, known: dict[Value, float]) -> float:
    for value in _below(last):
        if value not in known and not _FREE[value] - known.keys():
            known[value] = _number(value, known)
    return known[last]


def free_loops(values: Sequence[Value]) -> dict[Value, frozenset[Value]]:
    """The loops that each value depends on, where sources come first."""
    found: dict[Value, frozenset[Value]] = {}
    for value in values:
        below = [found[each] for each in value.src]
        own = frozenset({value}) if value.op == "loop" else frozenset[Value]().union(*below)
        found[value] = own - {*value.src[1:]} if value.op == "reduce" else own
    return found


_FREE = {value: loops for kernel in KERNELS.values()
         for value, loops in free_loops(kernel.values).items()}


def _number(value: Value, known: dict[Value, float]) -> float:
    if value.op == "reduce":
        found = -math.inf if value.name == "largest" else 0.0
        loops = value.src[1:]
        around = {each: known[each] for each in _FREE[value]}
        for counters in product(*(range(each.size) for each in loops)):
            inner = {**around, **dict(zip(loops, map(float, counters), strict=True))}
            element = _evaluated(value.src[0], inner)
            found = max(found, element) if value.name == "largest" else found + element
        return found
    given = [known[each] for each in value.src]
    if value.op == "number":
        return float(value.form.strip("()f"))
    if value.op == "gated load" and not given[1]:
        return 0.0
    if value.op in ("load", "gated load"):
        return float(memory(int(value.name[1:]))[int(given[0])])
    if value.op == "cube":
        return given[0] ** 3
    two = given[1]
    return {"add": given[0] + two, "multiply": given[0] * two, "subtract": given[0] - two,
            "less": float(given[0] < two)}[value.op]


@functools.cache
def needed(kernel: Kernel) -> Counter[str]:
    """How often each memory is read, and `cube` called, if each is computed where it belongs."""
    most: Counter[str] = Counter()
    reductions = [each for each in kernel.values if each.op == "reduce"]
    home: dict[Value, tuple[Value, ...]] = {}

    def path(value: Value) -> tuple[Value, ...]:
        """The loops around a value: up to the innermost that it depends on."""
        free = _FREE[value]
        inner = [each for each in reductions if free & {*each.src[1:]}]
        if inner:
            around = home.get(inner[0]) or home.setdefault(inner[0], path(inner[0]))
            over = inner[0].src[1:]
            return (*around, *over[:max(place for place, each in enumerate(over, 1)
                                        if each in free)])
        deepest = max((place for place, each in enumerate(kernel.loops, 1) if each in free),
                      default=0)
        return kernel.loops[:deepest]

    for value in kernel.values:
        if value.op in ("load", "gated load", "cube"):
            users = sum(value in _below(each.src[0]) and bool(_FREE[value] & {*each.src[1:]})
                        for each in reductions)
            name = "cube" if value.op == "cube" else value.name
            most[name] += max(users, 1) * math.prod(each.size for each in path(value))
    return most


# What is said of a text --------------------------------------------------------------------


HEAD = """\
#include <math.h>
#include <stdio.h>
static long counts[4], outside; static float spare; static char none[1];
static float cube(float x) { counts[3]++; return x * x * x; }
static float larger(float a, float b) { return a > b ? a : b; }
static float *at(float *memory, int which, long index) {
  if (index < 0 || index >= ROOM) { if (!outside) outside = index < 0 ? index : index + 1;
    return &spare; }
  counts[which]++; return memory + index; }
"""


def watched(text: str) -> str:
    """A text in which each p1[..] goes by way of a function that looks at the index."""
    found, place = [], 0
    for opening in re.finditer(r"\bp([012])\s*\[", text):
        if opening.start() < place:
            continue
        depth, end = 1, opening.end()
        while end < len(text) and depth:
            depth += (text[end] == "[") - (text[end] == "]")
            end += 1
        inner = watched(text[opening.end():end - 1])
        which = opening.group(1)
        # &none[..] - none: C takes a float for an argument, and for an index it does not.
        found += [text[place:opening.start()],
                  f"(*at(p{which}, {which}, &none[{inner}] - none))"]
        place = end
    return "".join([*found, text[place:]])


def program(texts: Sequence[str]) -> str:
    """One C program that runs all texts and prints a line of numbers for each."""
    parts = [HEAD.replace("ROOM", str(ROOM))]
    for place, text in enumerate(texts):
        parts.append(f"static void kernel_{place}(float *p0, float *p1, float *p2) {{\n"
                     f'#line 1 "kernel {place}"\n{watched(text)}\n}}\n')
    fill = "".join(f"float p{which}[{ROOM}] = {{{', '.join(f'{v}.0f' for v in memory(which))}}};\n"
                   for which in range(3))
    parts.append('#line 1 "main"\nint main(void) {\n')
    for place in range(len(texts)):
        parts.append(f"{{ {fill} outside = 0; for (int k = 0; k < 4; k++) counts[k] = 0;\n"
                     f"kernel_{place}(p0, p1, p2);\n"
                     f'printf("{place} %ld %ld %ld %ld", outside, counts[1], counts[2], '
                     f'counts[3]); for (int k = 0; k < {ROOM}; k++) printf(" %.9g", p0[k]); '
                     'printf("\\n"); fflush(stdout); }\n')
    return "".join([*parts, "return 0; }\n"])


def executed(texts: Sequence[str]) -> tuple[dict[int, list[float]], str]:
    """The numbers of each kernel, and what the compiler or the end of the program said."""
    compiler: Any = importlib.import_module("impl.cpu.compiler")
    command = compiler.find_compiler()[:1]
    if command and "python" in command[0]:
        command = compiler.find_compiler()[:4]
    with tempfile.TemporaryDirectory(prefix="learn-") as place:
        source, made = Path(place) / "kernels.c", Path(place) / "kernels"
        source.write_text(program(texts), encoding="utf-8")
        compiled = subprocess.run([*command, "-w", "-O0", str(source), "-o", str(made), "-lm"],
                                  capture_output=True, text=True, check=False, timeout=60)
        if compiled.returncode:
            return {}, compiled.stderr
        try:
            ran = subprocess.run([str(made)], capture_output=True, text=True, check=False,
                                 timeout=10)
        except subprocess.TimeoutExpired:
            return {}, "it did not end after 10 seconds"
    rows = [list(map(float, line.split())) for line in ran.stdout.splitlines()]
    return {int(row[0]): row[1:] for row in rows}, "" if ran.returncode == 0 else "it crashed"


def shown(name: str, text: str) -> str:
    """What a kernel computes, and the text that was written for it."""
    lines = text.splitlines()
    more = [f".. and {len(lines) - 24} lines more"] if len(lines) > 24 else []
    return "\n".join([name, "", *(line if len(line) < 100 else line[:96] + " ..."
                                  for line in lines[:24]), *more])


def loops(module: ModuleType) -> Iterator[Counterexample]:
    """The first kernel that breaks each rule of the lesson on loops."""
    texts: list[str] = []
    for name, kernel in KERNELS.items():
        try:
            found = module.loops_of(kernel)
            wrong = _depends(kernel, found)
        except RecursionError as error:
            yield Counterexample(DEPTH, f"loops_of raised RecursionError: {error}", name)
            return
        except Exception as error:  # any: it is the reader's own code
            yield raised(error, name)
            return
        if wrong:
            yield Counterexample(SCOPE, wrong, name)
            return
    for name, kernel in KERNELS.items():
        try:
            text = module.body(kernel)
        except RecursionError as error:
            yield Counterexample(DEPTH, f"body raised RecursionError: {error}", name)
            break
        except Exception as error:  # any: it is the reader's own code
            yield raised(error, name)
            return
        if not isinstance(text, str):
            yield Counterexample("raised", f"body answers {text!r:.60}, and not a text", name)
            return
        if len(text) > LONGEST * (len(kernel.values) + 8):
            yield Counterexample(PLACE, f"your text has {len(text)} characters, and the kernel has "
                                 f"{len(kernel.values)} values: write each once, under a name",
                                 shown(name, text))
            break
        texts.append(text)
    yield from _ran(texts)


def _depends(kernel: Kernel, found: Any) -> str:
    """What is wrong with the reader's loops of each value, or ""."""
    if not isinstance(found, dict):
        return f"loops_of answers {found!r:.60}, and not a dict"
    for value in kernel.values:
        if value not in found:
            return f"loops_of says nothing of {described(value)}"
        if set(found[value]) != set(_FREE[value]):
            return (f"{described(value)} depends on {_names(_FREE[value])}, and you say "
                    f"{_names(found[value])}")
    return ""


def described(value: Value) -> str:
    words = {"loop": value.name, "number": value.form, "reduce": f"the {value.name}"}
    return words.get(value.op, f"the {value.op}" + (f" of {value.name}" if value.name else ""))


def _names(found: Any) -> str:
    return ", ".join(sorted(each.name for each in found)) or "no loop"


def _ran(texts: Sequence[str]) -> Iterator[Counterexample]:
    """What is wrong with what the texts compute, each rule once."""
    rows, said = executed(texts)
    names = list(KERNELS)
    fault = re.search(r"^kernel (\d+):(\d+):.*?error: (.*)$", said, re.M)
    if fault:
        for place, text in enumerate(texts):  # the compiler's own words do not help with those
            if text.count("{") != text.count("}"):
                yield Counterexample("raised", f"your text has {text.count('{')} {{ and "
                                     f"{text.count('}')} }}: a loop ends with a line }}",
                                     shown(names[place], text))
                return
        place = int(fault.group(1))
        yield Counterexample("raised", f"the C compiler says of line {fault.group(2)}: "
                             f"{fault.group(3)}", shown(names[place], texts[place]))
        return
    met: set[str] = set()
    for place, text in enumerate(texts):
        if place not in rows:
            last = said.splitlines()[0] if said else "it ended"
            yield Counterexample("raised", f"your program did not get through: {last}",
                                 shown(names[place], text))
            return
        wrong = _wrong(KERNELS[names[place]], rows[place])
        if wrong and wrong[0] not in met:
            met.add(wrong[0])
            yield Counterexample(*wrong, shown(names[place], text))


def _wrong(kernel: Kernel, row: list[float]) -> tuple[str, str] | None:
    outside, counts, out = int(row[0]), row[1:4], row[4:]
    if outside:
        gated = any(each.op == "gated load" for each in kernel.values)
        return (GATED if gated or kernel.store.condition else SCOPE, "memory is touched at index "
                f"{outside if outside < 0 else outside - 1}, outside of its {ROOM} elements")
    right = wanted(kernel)
    for place, (mine, theirs) in enumerate(zip(out, right, strict=True)):
        if mine != theirs:
            gated = kernel.store.condition is not None and theirs == memory(0)[place]
            empty = any(each.size == 0 for each in kernel.values if each.op == "loop")
            rule = GATED if gated else EMPTY if empty else SCOPE
            if theirs == memory(0)[place]:
                return rule, f"p0[{place}] is {mine:g}, and nothing should be stored there"
            untouched = " (nothing was stored)" if mine == memory(0)[place] else ""
            return rule, f"p0[{place}] is {mine:g}{untouched}, and should be {theirs:g}"
    most = needed(kernel)
    for name, count in zip(("p1", "p2", "cube"), counts, strict=True):
        if count > most[name]:
            verb = "computed" if name == "cube" else "read"
            return PLACE, (f"{name} is {verb} {count:.0f} times, and {most[name]} times would do: "
                           "a value is computed once for each iteration of the innermost loop "
                           "that it depends on")
    return None


# In the runtime ----------------------------------------------------------------------------


PLAIN = frozenset(("float32", "float64", "int32", "int64", "index", "bool"))
MOST = 128  # elements of a sum of floats; a longer one is cut into blocks, by us alone


def install(module: ModuleType) -> None:
    """Let the reader write the text of each kernel in C that is a plain nest with one store."""
    known: Any = module
    ours = known.render
    made: Any = importlib.import_module("impl.dialects").C

    def render(ast: Any, dialect: Any) -> Any:
        if type(dialect) is not made or known.written_text(ast) is not None:
            return ours(ast, dialect)
        legal = known.legalize(ast, dialect.rules)
        if not is_plain(legal):
            return ours(ast, dialect)
        known.lower(legal)  # refuses what is no kernel
        dialect.begin()
        names, kernel = translated(legal, dialect)
        lines = ["  " + dialect.argument(name, param, written) for name, param, written in names]
        text = known.body(kernel)
        lines += ["  " + line for line in text.splitlines()]
        info = legal.arg
        return known.SourceText(known.identifier(info.name), "{\n" + "\n".join(lines) + "\n}\n",
                                dialect.definitions(), dialect.signature(False))

    known.render = render
    importlib.import_module("impl.render").__dict__["render"] = render


def is_plain(ast: Any) -> bool:
    """Whether a kernel is one that the lesson speaks of."""
    info = ast.arg
    if (len(ast.src) != 1 or ast.src[0].arg or info.variables
            or (info.threads, info.lanes) != (1, 1)):
        return False
    nodes = ast.toposort()
    if any(node.op.name in ("LOCAL", "DEFINE_VAR", "MMA", "DOT") or node.dtype.name not in PLAIN
           for node in nodes):
        return False
    ranges = [node for node in nodes if node.op.name == "RANGE"]
    if any(each.arg[1].name not in ("GLOBAL", "LOOP", "REDUCE") or each.src[0].op.name != "CONST"
           for each in ranges):
        return False
    params: dict[int, set[str]] = {}
    for node in nodes:
        if node.op.name == "PARAM":
            params.setdefault(node.arg, set()).add(node.dtype.name)
    short = all(math.prod(each.src[0].arg for each in node.src[1:]) <= MOST for node in nodes
                if node.op.name == "REDUCE" and node.dtype.kind == "f")
    owners = Counter(each for node in nodes if node.op.name == "REDUCE" for each in node.src[1:])
    return short and all(len(each) == 1 for each in params.values()) and all(
        count == 1 for count in owners.values()) and not {*ast.src[0].src[2:]} & owners.keys()


def translated(ast: Any, dialect: Any) -> tuple[list[tuple[str, Any, bool]], Kernel]:
    """A kernel of the runtime as the reader knows them, and its arguments."""
    found: dict[Any, Value] = {}
    store = ast.src[0]
    target = store.src[0]
    params = {}
    for node in ast.toposort():
        if node.op.name == "PARAM":
            params[node] = f"p{node.arg}"
        elif node.op.name not in ("INDEX", "STORE", "SINK"):
            found[node] = value_of(node, found, params, dialect, len(found))
    loops = [found[each] for each in (*ast.arg.prefix, *store.src[2:])]
    valid = target.src[2]
    condition = None if _always(valid) else found[valid]
    names = [(name, node, node is target.src[0])
             for node, name in sorted(params.items(), key=lambda each: each[0].arg)]
    return names, Kernel(loops, Store(params[target.src[0]], found[target.src[1]],
                                      found[store.src[1]], condition))


def _always(valid: Any) -> bool:
    return valid.op.name == "CONST" and bool(valid.arg)


def value_of(node: Any, found: dict[Any, Value], params: dict[Any, str], dialect: Any,
             number: int) -> Value:
    """One value of the runtime as the reader knows them."""
    kind = dialect.type_of(node.dtype)
    if node.op.name == "CONST":
        return Value("number", (), kind, _plain(dialect.literal(node.arg, node.dtype)))
    if node.op.name == "RANGE":
        name = f"i{number}"
        return Value("loop", (), kind, name, name, node.src[0].arg)
    if node.op.name == "LOAD":
        index = node.src[0]
        pointer = params[index.src[0]]
        text = _plain(dialect.load(pointer, "\0", node.dtype)).replace("\0", "{0}")
        if _always(index.src[2]):
            return Value("load", (found[index.src[1]],), kind, text, pointer)
        nothing = dialect.literal({"f": 0.0, "b": False}.get(node.dtype.kind, 0), node.dtype)
        return Value("gated load", (found[index.src[1]], found[index.src[2]]), kind,
                     f"({{1}} ? {text} : {nothing})", pointer)
    if node.op.name == "REDUCE":
        known: Any = importlib.import_module("impl.ir")
        start = dialect.literal(known.identity(node.arg, node.dtype), node.dtype)
        form = _plain(dialect.combine(node.arg, node.dtype, "\1", "\0"))
        return Value("reduce", [found[each] for each in node.src], kind,
                     form.replace("\0", "{0}").replace("\1", "{1}"), node.arg.name, start=start)
    marks = [chr(1 + place) for place in range(len(node.src))]
    form = _plain(dialect.operation(node, marks, False))
    for place, mark in enumerate(marks):
        form = form.replace(mark, f"{{{place}}}")
    return Value(node.op.name.lower(), [found[each] for each in node.src], kind, form)


def _plain(text: str) -> str:
    """A text in which no brace means a place for another text."""
    return text.replace("{", "{{").replace("}", "}}")


# The score ---------------------------------------------------------------------------------


def loads(text: str) -> int:
    """How often a text reads memory, counted from its loops: no line of it is run."""
    count, around = 0, [1]
    for line in text.splitlines():
        opened = re.search(r"for \(long \w+ = 0; \w+ < (\d+);", line)
        part = line.partition("] = ")[2] if re.match(r"\s*(if \(.*\) )?p\d+\[", line) else line
        if "args[" not in line:
            count += around[-1] * len(re.findall(r"\bp\d+\[", part))
        if opened:
            around.append(around[-1] * int(opened.group(1)))
        elif line.strip() == "}" and len(around) > 1:
            around.pop()
    return count


def score(module: ModuleType) -> Iterator[str]:
    """How often texts of real kernels read memory: the reader's, and ours."""
    from impl import Context, Tensor
    from impl.dialects import C

    mine, ours = module.__dict__["render"], published(module).__dict__["render"]
    yield f"{'':<26}{'memory read':>12}{'ours':>7}{'at least':>10}"
    with Context(DEVICE="REFERENCE"):
        a, b = (Tensor.zeros(16, 16).contiguous().realize() for _ in range(2))
        row = Tensor.zeros(16).contiguous().realize()
        made = {"a row added to each row": (a + row, 256 + 16), "a product": (a @ b, 2 * 16 ** 3),
                "sums of rows": (a.sum(1), 256),
                "a column times each column": (a * row.reshape(16, 1), 256 + 16)}
        for name, (tensor, least) in made.items():
            ast = tensor.schedule()[-1].ast
            counts = [loads(render(ast, C()).body) for render in (mine, ours)]
            yield f"{name:<26}{counts[0]:>12}{counts[1]:>7}{least:>10}"


RENDER = Lesson(
    number=7, functions=("loops_of", "body"),
    names="""\
A kernel is outer loops around one store:
    kernel.loops       the outer loops, the outermost first
    kernel.store       store.buffer (a name, such as "p0"), store.index, store.value, and
                       store.condition, or None
    kernel.values      all values, each after those that it is made of
A value says
    value.op           "loop", "number", "reduce", or another word
    value.src          the values that it is made of
    value.type         its type in C
    value.text(a, b)   its text in C, from the texts of its sources; that of a loop or a number
                       takes none: value.text(). If a load has a condition, it is one of the
                       sources of the load, and in its text
A loop has loop.opens, the line of C that begins it; a line "}" ends it. A reduction has
    reduce.src         (what it reduces, a loop, perhaps more loops)
    reduce.start       the text of its first value
    reduce.text(a, b)  the next value, from the one before and from an element""",
    heads='''\
def loops_of(kernel):
    """A dict from each value of the kernel to the set of loops that it depends on.

    A loop depends on itself. A reduction depends on none of the loops that it reduces.
    """
    raise NotImplementedError


def body(kernel):
    """The text of the kernel in C: its loops, and what stands in them.

    Each value is computed once for each iteration of the innermost loop that it depends on.
    """
    raise NotImplementedError
''',
    rules=(SCOPE, PLACE, GATED, EMPTY, DEPTH),
    hints=(
        "loops_of: one loop over kernel.values. The sources of a value come before it, so their "
        "sets are known: join them. A reduction takes its own loops away.",
        "body, first without reductions: open all loops, write a line `const float v3 = ...;` for "
        "each value, then the store. A dict remembers the name of each value.",
        "A number needs no name, and a loop has its own: value.text().",
        "Now to the right place: open no loop yet. Write all values that depend on no loop. Open "
        "the first loop, write all that are left and depend on open loops only. Go on like this.",
        "The store: f\"{buffer}[{index}] = {value};\", with `if ({condition}) ` before it if there "
        "is one.",
        "A reduction: `float a7 = start;`, open its loops as you opened the others, write what is "
        "below it and not there yet, then `a7 = text(a7, element);`, and close the loops. Inside "
        "there may be another reduction, so let the function call itself.",
        "What was declared inside of a loop is unknown to C after the loop. Forget those names "
        "when you close it: another reduction may need the value again.",
        "Only what is below the reduction belongs into its loops. Something else may depend on the "
        "same loop, and on the result of this very reduction."),
    counterexamples=loops, module="render.printer", chapters=("kernel", "lowering"),
    install=install, score=score)
