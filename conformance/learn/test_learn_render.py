"""The lesson on loops lets right texts of kernels pass, and no wrong one."""
from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_render
from conformance.learn.lesson import published
from conformance.learn.lesson_render import DEPTH, GATED, KERNELS, PLACE, SCOPE, loads, loops
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.render")


def module_of(**parts: Any) -> Any:
    """The solution with some parts replaced; `writer` is a class in the place of its `Writer`."""
    def body(kernel: Any) -> str:
        writer, store = parts.get("writer", solution.Writer)(kernel), kernel.store
        opened = writer.nest(kernel.loops, kernel.values, [])
        names = writer.names
        gate = f"if ({names[store.condition]}) " if store.condition else ""
        writer.line(len(opened),
                    f"{gate}{store.buffer}[{names[store.index]}] = {names[store.value]};")
        writer.close(0, len(opened))
        return "\n".join(writer.lines)
    return SimpleNamespace(loops_of=parts.get("loops_of", solution.loops_of),
                           body=parts.get("body", body))


# Right, in other ways than the solution ----------------------------------------------------


class OnTop(solution.Writer):
    """All variables are declared at the beginning of the function."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        self.declared: list[str] = []

    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        self.number += 1
        self.names[value] = f"of_{value.type}_{self.number}"
        self.declared.append(f"{value.type} {self.names[value]};")
        self.line(depth, f"{self.names[value]} = {text};")

    def close(self, outer: int, inner: int) -> None:
        super().close(outer, inner)
        if outer == 0:
            self.lines[:0], self.declared = self.declared, []


class Sparing(solution.Writer):
    """What is used once, in its own loops, gets no name."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        self.users: dict[Any, list[Any]] = {}
        for value in kernel.values:
            for source in value.src:
                self.users.setdefault(source, []).append(value)

    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        users = self.users.get(value, ())
        if (len(users) == 1 and value.op != "reduce" and users[0].op != "reduce"
                and self.loops[users[0]] == self.loops[value] and len(text) < 60):
            self.names[value] = text
        else:
            super().declare(value, const, text, depth)


def from_the_loops(kernel: Any) -> Any:
    """From each loop upwards, to all that use it."""
    found: Any = {value: set() for value in kernel.values}
    for loop in kernel.values:
        if loop.op == "loop":
            reached = {loop}
            for value in kernel.values:
                if any(source in reached for source in value.src) and not (
                        value.op == "reduce" and loop in value.src[1:]):
                    reached.add(value)
            for value in reached:
                found[value].add(loop)
    return found


def by_blocks(kernel: Any) -> str:
    """A tree of blocks: each value is put into its block; the tree is printed at the end."""
    loops = solution.loops_of(kernel)
    root: list[Any] = []
    blocks: list[Any] = [((), root)]
    for loop in kernel.loops:
        inner: list[Any] = [loop.opens]
        blocks[-1][1].append(inner)
        blocks.append(((*blocks[-1][0], loop), inner))
    names: dict[Any, str] = {}
    count = [0]

    def put(values: Any, blocks: Any) -> None:
        own: set[Any] = set()
        for value in values:
            place = next((at for at, (opened, _) in enumerate(blocks)
                          if loops[value] <= set(opened)), None)
            if value in names or place is None:
                continue
            opened, lines = blocks[place]
            if value.op in ("loop", "number"):
                names[value] = value.text()
                continue
            count[0] += 1
            name = f"x{count[0]}"
            own.add(value)
            if value.op != "reduce":
                text = value.text(*(names[each] for each in value.src))
                at = next((i for i, each in enumerate(lines) if isinstance(each, list)
                           and each is blocks[min(place + 1, len(blocks) - 1)][1]), len(lines))
                lines.insert(at, f"{value.type} {name} = {text};")
                names[value] = name
                continue
            nest: list[Any] = []
            around: Any = [(opened, nest)]
            for loop in value.src[1:]:
                deeper: list[Any] = [loop.opens]
                around[-1][1].append(deeper)
                around.append(((*around[-1][0], loop), deeper))
            known = dict(names)
            put(solution.below(value.src[0]), around)
            around[-1][1].append(f"{name} = {value.text(name, names[value.src[0]])};")
            names.clear()
            names.update(known)
            names[value] = name
            at = next((i for i, each in enumerate(lines) if isinstance(each, list)
                       and each is blocks[min(place + 1, len(blocks) - 1)][1]), len(lines))
            lines[at:at] = [f"{value.type} {name} = {value.start};", *nest]

    put(kernel.values, blocks)
    store = kernel.store
    gate = f"if ({names[store.condition]}) " if store.condition else ""
    blocks[-1][1].append(f"{gate}{store.buffer}[{names[store.index]}] = {names[store.value]};")

    def printed(lines: list[Any]) -> list[str]:
        found: list[str] = []
        for each in lines:
            found += [*printed(each), "}"] if isinstance(each, list) else [each]
        return found

    return "\n".join(printed(root))


@pytest.mark.parametrize("parts", [{}, {"writer": OnTop}, {"writer": Sparing},
                                   {"loops_of": from_the_loops}, {"body": by_blocks}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert list(map(str, loops(module_of(**parts)))) == []


# Wrong, as one writes them -----------------------------------------------------------------


class Inside(solution.Writer):
    """Everything in the innermost loop."""

    def nest(self, loops: Any, values: Any, opened: Any) -> Any:
        for loop in loops:
            self.line(len(opened), loop.opens)
            opened = [*opened, loop]
        self.compute(values, opened)
        return opened


class Unnamed(solution.Writer):
    """The text of a value wherever it is used."""

    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        if value.op == "reduce":
            super().declare(value, const, text, depth)
        else:
            self.names[value] = text


class Ungated(solution.Writer):
    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        if value.op == "gated load":
            text = f"{value.name}[{self.names[value.src[0]]}]"
        super().declare(value, const, text, depth)


class Late(solution.Writer):
    """Reads first, and asks afterwards."""

    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        if value.op == "gated load":
            index, condition = (self.names[each] for each in value.src)
            self.line(depth, f"const float read = {value.name}[{index}];")
            text = f"({condition} ? read : 0.0f)"
        super().declare(value, const, text, depth)


class Static(OnTop):
    """The accumulator begins once, and not anew for each result."""

    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        super().declare(value, const, text, depth)
        if value.op == "reduce":
            self.lines.pop()
            self.declared[-1] = f"{value.type} {self.names[value]} = {text};"


class FromZero(solution.Writer):
    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        super().declare(value, const, "0.0f" if value.op == "reduce" else text, depth)


class Remembers(solution.Writer):
    """Names from inside of a loop are used after it."""

    def reduce(self, value: Any, opened: Any) -> None:
        what, *over = value.src
        self.declare(value, "", value.start, len(opened))
        inner = self.nest(over, solution.below(what), opened)
        name = self.names[value]
        self.line(len(inner), f"{name} = {value.text(name, self.names[what])};")
        self.close(len(opened), len(inner))


class Deepest(solution.Writer):
    """What stands in a reduction stands in the innermost of its loops."""

    def nest(self, loops: Any, values: Any, opened: Any) -> Any:
        if loops is self.kernel.loops:
            return super().nest(loops, values, opened)
        return Inside.nest(self, loops, values, opened)


class OneType(solution.Writer):
    """Everything is a float."""

    def declare(self, value: Any, const: str, text: str, depth: int) -> None:
        super().declare(value, const, text, depth)
        self.lines[-1] = self.lines[-1].replace(f"{value.type} v", "float v")


class Overwrites(solution.Writer):
    """The last element in the place of the sum."""

    def reduce(self, value: Any, opened: Any) -> None:
        super().reduce(value, opened)
        name = self.names[value]
        at = max(i for i, line in enumerate(self.lines) if line.strip().startswith(f"{name} = "))
        self.lines[at] = f"{name} = {self.lines[at].rstrip(');').rpartition(' ')[2]};"


class Open(solution.Writer):
    def close(self, outer: int, inner: int) -> None:
        super().close(outer, inner if outer else max(inner - 1, 0))


class OneLoop(solution.Writer):
    """The second loop of a reduction is forgotten."""

    def nest(self, loops: Any, values: Any, opened: Any) -> Any:
        return super().nest(loops if loops is self.kernel.loops else loops[:1], values, opened)


def unstored(kernel: Any) -> str:
    """The condition of the store is forgotten."""
    text: str = solution.body(kernel)
    return "\n".join(line.partition(") ")[2] if line.strip().startswith("if (") else line
                     for line in text.splitlines())


def turned(kernel: Any) -> str:
    kernel.loops = kernel.loops[::-1]
    try:
        text: str = solution.body(kernel)
        return text
    finally:
        kernel.loops = kernel.loops[::-1]


def keeps_reduced(kernel: Any) -> Any:
    found: Any = {}
    for value in kernel.values:
        own = {value} if value.op == "loop" else set()
        found[value] = own.union(*(found[each] for each in value.src))
    return found


def calls_itself(kernel: Any) -> Any:
    def of(value: Any) -> Any:
        below = [of(each) for each in value.src]
        own = {value} if value.op == "loop" else set()
        return own.union(*below).difference(value.src[1:] if value.op == "reduce" else ())
    return {value: of(value) for value in reversed(kernel.values)
            if value.op != "add" or len(kernel.values) > 100}


def calls_itself_with_a_dict(kernel: Any) -> Any:
    known: Any = {}

    def of(value: Any) -> Any:
        if value not in known:
            below = [of(each) for each in value.src]
            own = {value} if value.op == "loop" else set()
            known[value] = own.union(*below).difference(
                value.src[1:] if value.op == "reduce" else ())
        return known[value]
    for value in reversed(kernel.values):
        of(value)
    return known


def without_itself(kernel: Any) -> Any:
    return {value: found - {value} for value, found in solution.loops_of(kernel).items()}


def of_its_sources(kernel: Any) -> Any:
    """Loops that a value is made of itself, and none that its sources depend on."""
    return {value: {each for each in (value, *value.src) if each.op == "loop"}
            - set(value.src[1:] if value.op == "reduce" else ()) for value in kernel.values}


def first_loop_only(kernel: Any) -> Any:
    """Of a reduction over two loops one is taken away."""
    found: Any = {}
    for value in kernel.values:
        own = {value} if value.op == "loop" else set()
        found[value] = own.union(*(found[each] for each in value.src)).difference(
            value.src[1:2] if value.op == "reduce" else ())
    return found


def free_of_all(kernel: Any) -> Any:
    """A sum depends on no loop at all."""
    return {value: set() if value.op == "reduce" else found
            for value, found in solution.loops_of(kernel).items()}


def all_outer(kernel: Any) -> Any:
    """Everything stands in all outer loops."""
    return {value: found | set(kernel.loops)
            for value, found in solution.loops_of(kernel).items()}


def without_numbers(kernel: Any) -> Any:
    return {value: found for value, found in solution.loops_of(kernel).items()
            if value.op != "number"}


def of_the_first_source(kernel: Any) -> Any:
    found: Any = {}
    for value in kernel.values:
        found[value] = {value} if value.op == "loop" else set().union(
            *(found[each] for each in value.src[:1])) - set(
            value.src[1:] if value.op == "reduce" else ())
    return found


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"loops_of": of_its_sources}, f"{SCOPE}: "), ({"loops_of": all_outer}, f"{SCOPE}: "),
    ({"loops_of": first_loop_only}, f"{SCOPE}: the sum depends on no loop, and you say i3"),
    ({"loops_of": free_of_all}, f"{SCOPE}: the sum depends on i0, and you say no loop"),
    ({"loops_of": without_numbers}, f"{SCOPE}: loops_of says nothing of 0"),
    ({"loops_of": of_the_first_source}, f"{SCOPE}: "),
    ({"writer": Inside}, f"{PLACE}: p1 is read 12 times, and 3 times would do"),
    ({"writer": Unnamed}, f"{PLACE}: your text has "),
    ({"writer": Ungated}, f"{GATED}: memory is touched at index -1, outside"),
    ({"writer": Late}, f"{GATED}: memory is touched at index -1, outside"),
    ({"writer": Static}, f"{SCOPE}: p0[1] is "),
    ({"writer": FromZero}, f"{SCOPE}: p0[0] is 0, and should be -"),
    ({"writer": Remembers}, "the C compiler says of line "),
    ({"writer": Overwrites}, f"{SCOPE}: p0[0] is 2, and should be "),
    ({"writer": Deepest}, f"{PLACE}: p1 is read 8 times, and 4 times would do"),
    ({"writer": OneType}, "the C compiler says of line 5: array subscript is not an integer"),
    ({"writer": Open}, "raised: your text has 1 { and 0 }: a loop ends with a line }"),
    ({"writer": OneLoop}, "raised: your code raised KeyError"),
    ({"body": unstored}, f"{GATED}: p0[40] is 5, and nothing should be stored there"),
    ({"body": turned}, f"{PLACE}: p1 is read 12 times, and 3 times would do"),
    ({"body": lambda kernel: solution.body(kernel).splitlines()}, "and not a text"),
    ({"body": lambda kernel: ""}, f"{SCOPE}: p0[0] is -77 (nothing was stored), and should be 2"),
    ({"loops_of": keeps_reduced}, f"{SCOPE}: the sum depends on i0, and you say i0, i2"),
    ({"loops_of": without_itself}, f"{SCOPE}: i0 depends on i0, and you say no loop"),
    ({"loops_of": calls_itself_with_a_dict}, f"{DEPTH}: loops_of raised RecursionError"),
    ({"loops_of": lambda kernel: {}}, f"{SCOPE}: loops_of says nothing of "),
]


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in "\n".join(map(str, loops(module_of(**parts))))


def test_the_runtime_compiles_the_readers_text() -> None:
    module = published(importlib.import_module("impl.render.printer"))
    known = vars(module)
    ours = known["render"]
    asked: list[str] = []

    def body(kernel: Any) -> str:
        asked.append(solution.body(kernel))
        return asked[-1]

    known.update(loops_of=solution.loops_of, body=body)
    package = importlib.import_module("impl.render")
    kept = vars(package)["render"]
    try:
        lesson_render.install(module)
    finally:
        vars(package)["render"] = kept
    from impl import Context, Tensor
    from impl.dialects import C, OpenCL
    with Context(DEVICE="REFERENCE"):
        a = Tensor.zeros(3, 4).contiguous().realize()
        for tensor in (a * 2, a.sum(1), a.T.pad(((1, 0), (0, 0)))):
            ast = tensor.schedule()[-1].ast
            text = known["render"](ast, C()).body
            assert asked and all(line in text for line in asked.pop().splitlines())
            assert known["render"](ast, OpenCL()).body == ours(ast, OpenCL()).body
        long = Tensor.zeros(2, 200).contiguous().realize().sum(1).schedule()[-1].ast
        assert known["render"](long, C()).body == ours(long, C()).body and not asked


def test_reads_are_counted_from_the_text() -> None:
    lines = ["for (long i0 = 0; i0 < 3; i0++) {", "const float v1 = p1[i0];",
             "p0[i0] = v1 + p1[0];", "}", "p0[0] = p2[3];"]
    assert loads("\n".join(lines)) == 7
    assert loads("const float *p0 = args[0];\nif (v1) p0[0] = p1[2];") == 1


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "render.md").read_text(encoding="utf-8")
    for parts in ({"writer": Inside}, {"writer": Late}):
        said = str(next(iter(loops(module_of(**parts)))))
        assert "\n".join(map(str.rstrip, said.strip().splitlines())) in page
    ours = published(importlib.import_module("impl.render.printer"))
    assert "\n".join(lesson_render.score(ours)) in page
    assert len(KERNELS) == 17 and "seventeen small kernels" in page
    assert len(LESSONS["render"].hints) == 8 and "the next of eight hints" in page
