"""The examples in the texts are run: every chapter's, the lessons' and the README's.

The Python blocks of a file run from top to bottom in one namespace, each line under its own line
number, so that a traceback points into the text. A comment `# -> value` at the end of a statement,
or on a line of its own below it, says what its value is, or what it prints. `...` stands for
anything. Blocks that show code of the project are left out: they are tested where they stand.
A value that an `except` promises has to be met: an error that is not raised any more is a fault
of the text.
"""
from __future__ import annotations

import ast
import contextlib
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.trace import FENCE, ROOT, read_chapters
from conformance.trace.excerpts import SOURCE_LINE

TEXTS = [
    *sorted((ROOT / "spec").glob("*.md")),
    *(ROOT / name for name in ("README.md", "docs/index.md", "docs/demo.md", "docs/differences.md",
                              "docs/several-devices.md", "docs/own-kernels.md", "docs/exporting.md")
      if (ROOT / name).exists()),
    *sorted((ROOT / "docs" / "course").glob("*.md")),
]
MARK = "# -> "

pytestmark = pytest.mark.skipif(not (ROOT / "spec").is_dir(), reason="needs a source checkout")


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """The Python blocks of a text, each with the number of the line before its first."""
    lines = text.splitlines()
    start, fence, runs = 0, "", False
    for number, line in enumerate(lines, 1):
        found = FENCE.match(line)
        if not found or fence and not found[1].startswith(fence):
            continue
        if not fence:
            start, fence = number, found[1]
            runs = line.strip().removeprefix(fence).strip().split(" ")[0] == "python"
            continue
        code = "\n".join(lines[start : number - 1])
        fence = ""
        if runs and not SOURCE_LINE.match(lines[start]):
            yield start, textwrap.dedent(code)  # a folded answer is indented


def expectations(source: str) -> dict[int, str]:
    """The expected text of the statement that ends on each line."""
    found: dict[int, str] = {}
    last_code = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT and token.string.startswith(MARK):
            found[last_code] = token.string.removeprefix(MARK).strip()
        elif token.string.strip() and token.type != tokenize.COMMENT:
            last_code = line
    return found


class Expecting(ast.NodeTransformer):
    """Replaces each statement that has an expected value by a call that compares."""

    def __init__(self, expected: dict[int, str]) -> None:
        self.expected = dict(expected)
        self.promised: set[int] = set()  # lines below an `except`, outside of any `if`
        self._promises = self._may_be_left_out = False

    def visit_If(self, node: ast.If) -> ast.AST:
        before, self._may_be_left_out = self._may_be_left_out, True
        self.generic_visit(node)
        self._may_be_left_out = before
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        before, self._promises = self._promises, True
        self.generic_visit(node)
        self._promises = before
        return node

    def _wanted(self, node: ast.stmt) -> str | None:
        line = node.end_lineno or node.lineno
        wanted = self.expected.pop(line, None)
        if wanted is not None and self._promises and not self._may_be_left_out:
            self.promised.add(node.lineno)
        return wanted

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        wanted = self._wanted(node)
        if wanted is None:
            return node
        prints = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "print"
        name = "__expect_printed__" if prints else "__expect__"
        value = ast.Lambda(no_arguments(), node.value) if prints else node.value
        return compared(node, name, value, wanted)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        wanted = self._wanted(node)
        if wanted is None:
            return node
        target = ast.parse(ast.unparse(node.targets[0]), mode="eval").body
        for part in ast.walk(target):
            ast.copy_location(part, node.targets[0])
        return [node, compared(node, "__expect__", target, wanted)]


def compared(node: ast.stmt, name: str, value: ast.expr, wanted: str) -> ast.Expr:
    """The statement `name(value, wanted, line)`, which stands where `node` stood."""
    arguments = [value, ast.Constant(wanted), ast.Constant(node.lineno)]
    call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), arguments, []))
    return ast.fix_missing_locations(ast.copy_location(call, node))


def no_arguments() -> ast.arguments:
    return ast.arguments([], [], None, [], [], None, [])


class Reader:
    """Compares what statements give with the texts beside them, and notes their lines."""

    def __init__(self) -> None:
        self.met: set[int] = set()

    def expect(self, value: Any, wanted: str, line: int) -> None:
        """Compare what `value` evaluates to."""
        self.met.add(line)
        compare(repr(value), wanted)

    def expect_printed(self, value: Any, wanted: str, line: int) -> None:
        """Compare what `value` prints."""
        self.met.add(line)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            value()
        compare(printed.getvalue(), wanted)


def compare(shown: str, wanted: str) -> None:
    shown, wanted = (" ".join(text.split()) for text in (shown, wanted))
    pattern = ".*".join(re.escape(part) for part in wanted.split("..."))
    assert re.fullmatch(pattern, shown), f"the text says {wanted}, the code gives {shown}"


def run_text(text: str, filename: str) -> int:
    """Run all blocks of one text; the answer is how many there were."""
    reader = Reader()
    space: dict[str, Any] = {"__name__": "__main__", "__expect__": reader.expect,
                             "__expect_printed__": reader.expect_printed}
    count = 0
    for start, code in blocks(text):
        count += 1
        source = "\n" * start + code
        expecting = Expecting(expectations(source))
        tree = expecting.visit(ast.parse(source, filename))
        left = sorted(expecting.expected)
        assert not left, f"{filename}:{left[0]}: no value stands where '{MARK}' expects one"
        # The text is ours: it is as trusted as the tests beside it.
        exec(compile(tree, filename, "exec", dont_inherit=True), space)  # noqa: S102
        unmet = sorted(expecting.promised - reader.met)
        assert not unmet, f"{filename}:{unmet[0]}: no error was raised where the text shows one"
    return count


@pytest.mark.parametrize("path", [
    pytest.param(path, marks=[pytest.mark.device("CPU")] if path.name == "cpu.md" else [])
    for path in TEXTS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    count = run_text(path.read_text(encoding="utf-8"), str(path))
    is_chapter = path.parent.name == "spec"
    assert count or not is_chapter, f"{path.name}: a chapter needs an example that runs"


def test_every_chapter_is_run() -> None:
    missing = [c.slug for c in read_chapters(ROOT) if ROOT / "spec" / f"{c.slug}.md" not in TEXTS]
    assert not missing, f"chapters with no text: {missing}"


# The runner itself


def fenced(*lines: str) -> str:
    return "\n".join(["# Title", "", "```python", *lines, "```", ""])


def test_values_are_compared() -> None:
    text = fenced("1 + 1  # -> 2", "x = [3]  # -> [3]", "print('a  b')  # -> a b")
    assert run_text(text, "t") == 1
    run_text(fenced("if True:", "    list(range(50))  # -> [0, 1, ..., 49]"), "t")
    run_text(fenced("(1,", " 2)", "# -> (1, 2)"), "t")


@pytest.mark.parametrize("line", ["1 + 1  # -> 3", "x = 1  # -> 2", "print(1)  # -> 2"])
def test_a_wrong_value_fails(line: str) -> None:
    with pytest.raises(AssertionError, match="the text says"):
        run_text(fenced(line), "t")


def test_an_expectation_of_nothing_fails() -> None:
    with pytest.raises(AssertionError, match="t:4: no value stands"):
        run_text(fenced("import io  # -> io"), "t")


def test_an_error_that_is_not_raised_fails() -> None:
    lines = "try:", "    x = 1", "except ValueError as error:", "    print(error)  # -> no"
    with pytest.raises(AssertionError, match="t:7: no error was raised"):
        run_text(fenced(*lines), "t")
    run_text(fenced("if False:", *(f"    {line}" for line in lines)), "t")


def test_shown_code_and_other_blocks_are_left_out() -> None:
    assert run_text("```python\n# impl/x.py: y\n1/0\n```\n```text\n1/0\n```\n", "t") == 0


def test_a_traceback_points_into_the_text() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_text(fenced("x = 0", "1 / x"), "chapter.md")
    last = caught.traceback[-1]
    assert (str(last.path).endswith("chapter.md"), last.lineno + 1) == (True, 5)
