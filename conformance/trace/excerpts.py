"""The code that a text shows: it stands in the text itself, and is kept equal to its source.

A block of code whose first line is a comment with a file and names shows these definitions:

    # impl/memory/greedy.py: best, _attempts

Names are those of functions, classes and variables, and `Class.method` for a part of a class.
`Class:` is its beginning, up to the first method, and no names show the whole file. The comment
above a definition belongs to it.

    python -m conformance.trace.excerpts renew    write all these blocks anew, in the texts
    python -m conformance.trace.excerpts check    say which differ, and fail

A definition that moved to another file is found there, if only one file has its name.
"""
from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from conformance.trace import FENCE, ROOT, Problem

#: The first line of such a block.
SOURCE_LINE = re.compile(r"^\s*(#|//) ((?:impl|conformance)/[\w/]+\.(?:py|c))(?:: (.+))?$")
DEFINED_IN_C = r"(?:^|[^\w.>]){}(?=\s*(?:\(|\[|;|=|,|$))|^#define {}\b"
#: A comment far to the right goes on with one that stands behind code.
CONTINUED = re.compile(r"^ {12,}#")
DESCRIBED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class NoSuchDefinition(LookupError):
    """A text names what its source does not define."""


@dataclass(frozen=True)
class Excerpt:
    """One block of a text: its lines from `first` up to `last`, fences not included."""

    first: int
    last: int
    indent: str
    mark: str
    file: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """The lines of a definition, counted from 0, the last not included."""

    name: str
    first: int
    last: int


def texts(root: Path = ROOT) -> list[Path]:
    """The texts that may show code."""
    return [*sorted((root / "spec").rglob("*.md")), *sorted((root / "docs").rglob("*.md")),
            *root.glob("README.md")]


def excerpts(text: str) -> Iterator[Excerpt]:
    """The blocks of a text that show code of the project, in the order in which they stand."""
    lines = text.splitlines()
    fence, first = "", 0
    for number, line in enumerate(lines):
        found = FENCE.match(line)
        if found and not fence:
            fence, first = found[1], number + 1
        elif found and found[1].startswith(fence):
            fence = ""
            shown = SOURCE_LINE.match(lines[first])
            if shown:
                indent = line[: len(line) - len(line.lstrip())]
                names = tuple(name.strip() for name in (shown[3] or "").split(",") if name.strip())
                yield Excerpt(first, number, indent, shown[1], shown[2], names)


def renewed(text: str, root: Path = ROOT) -> str:
    """The text with all its excerpts as their sources are now.

    Raises:
        NoSuchDefinition: a block names what is not defined in its file, nor in one other.
    """
    lines = text.splitlines()
    for excerpt in reversed(list(excerpts(text))):
        lines[excerpt.first:excerpt.last] = indented(excerpt, root)
    return "\n".join(lines) + "\n"


def indented(excerpt: Excerpt, root: Path) -> list[str]:
    """The lines of an excerpt: where it is from, and the code, as its source is now."""
    file = defining_file(excerpt.file, excerpt.names, root)
    names = f": {', '.join(excerpt.names)}" if excerpt.names else ""
    shown = [f"{excerpt.mark} {file}{names}", *code_of(root / file, excerpt.names)]
    return [excerpt.indent + line if line else "" for line in shown]


def defining_file(file: str, names: tuple[str, ...], root: Path) -> str:
    """The file that defines the names: the one that the text names, or the only other one."""
    if (root / file).exists() and not missing(root / file, names):
        return file
    folder = file.split("/")[0]
    others = [path for path in sorted((root / folder).rglob(f"*{Path(file).suffix}"))
              if names and not missing(path, names)]
    if len(others) == 1:
        return others[0].relative_to(root).as_posix()
    where = ", ".join(path.relative_to(root).as_posix() for path in others)
    raise NoSuchDefinition(
        f"{file} does not define {', '.join(missing(root / file, names)) or file}"
        + (f", and several others do: {where}" if where else " any more, and no other file does"))


def missing(path: Path, names: tuple[str, ...]) -> list[str]:
    """The names that a file does not define."""
    defined = {span.name for span in definitions(path)} if path.exists() else set()
    return [name for name in names if name not in defined]


def code_of(path: Path, names: tuple[str, ...]) -> list[str]:
    """The lines of the named definitions, in the order of the names, as far left as they go."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if not names:
        return lines
    spans = {span.name: span for span in definitions(path)}
    code: list[str] = []
    shown = {(span.first, span.last): span for span in map(spans.__getitem__, names)}
    for span in shown.values():  # a statement that gives several of the names is shown once
        before = span.first
        while code and before and not lines[before - 1].strip():
            before -= 1
        code += lines[before:span.last]
    return textwrap.dedent("\n".join(code)).splitlines()


def definitions(path: Path) -> tuple[Span, ...]:
    """All that a file defines and a text can show."""
    text = path.read_text(encoding="utf-8")
    return c_definitions(text) if path.suffix == ".c" else python_definitions(text)


@cache
def python_definitions(text: str) -> tuple[Span, ...]:
    """Functions, classes and variables, and those of the classes."""
    lines = text.splitlines()
    found: list[Span] = []
    waiting: list[tuple[str, ast.stmt]] = [("", node) for node in ast.parse(text).body]
    for prefix, node in waiting:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        first -= 1
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        last = end_of(node, lines)
        found += [Span(prefix + name, first, last) for name in defined_names(node)]
        if isinstance(node, ast.ClassDef):
            found.append(Span(f"{prefix}{node.name}:", first, head_of(node, lines)))
            waiting += [(f"{prefix}{node.name}.", inner) for inner in node.body]
    return tuple(found)


def defined_names(node: ast.stmt) -> list[str]:
    """The names that a statement gives."""
    if isinstance(node, DESCRIBED):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else \
        [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target)
            if isinstance(part, ast.Name)]


def end_of(node: ast.stmt, lines: list[str]) -> int:
    """The last line of a statement, with a comment behind it that goes on below."""
    last = node.end_lineno or node.lineno
    while last < len(lines) and CONTINUED.match(lines[last]):
        last += 1
    return last


def head_of(node: ast.ClassDef, lines: list[str]) -> int:
    """The last line of the beginning of a class: its documentation and its fields."""
    fields = list(takewhile(lambda each: not isinstance(each, DESCRIBED), node.body))
    return end_of(fields[-1], lines) if fields else node.lineno


@cache
def c_definitions(text: str) -> tuple[Span, ...]:
    """The paragraphs at the left edge of a C text, by the names that they declare."""
    lines = text.splitlines()
    found: list[Span] = []
    first, depth = 0, 0
    for number, line in enumerate([*lines, ""]):
        if not line.strip() and not depth:
            paragraph = lines[first:number]
            names = {name for each in paragraph if each and not each.startswith((" ", "/*", "}"))
                     or each.startswith("} ") for name in re.findall(r"\w+", each)
                     if re.search(DEFINED_IN_C.format(name, name), each)}
            found += [Span(name, first, number) for name in sorted(names)]
            first = number + 1
        depth += line.count("{") - line.count("}")
    return tuple(found)


def differences(root: Path = ROOT) -> Iterator[Problem]:
    """The blocks that do not show their source as it is."""
    for path in texts(root):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for excerpt in excerpts(text):
            place = path.relative_to(root).as_posix(), excerpt.first + 1
            try:
                code = indented(excerpt, root)
            except NoSuchDefinition as error:
                yield Problem(*place, str(error), "name what the text means by its name now")
                continue
            if code != lines[excerpt.first:excerpt.last]:
                yield Problem(*place, f"the block is not what {excerpt.file} says",
                              "python -m conformance.trace.excerpts renew")


def renew(root: Path = ROOT) -> int:
    """Write all texts anew. 1 if a block could not be renewed."""
    status = 0
    for path in texts(root):
        text = path.read_text(encoding="utf-8")
        try:
            new = renewed(text, root)
        except NoSuchDefinition as error:
            print(f"{path.relative_to(root)}: {error}", file=sys.stderr)
            status = 1
            continue
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path.relative_to(root)}: renewed")
    return status


def main() -> int:
    """The commands `renew` and `check`."""
    parser = argparse.ArgumentParser(prog="python -m conformance.trace.excerpts",
                                     description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["renew", "check"])
    if parser.parse_args().command == "renew":
        return renew()
    problems = list(differences())
    print(*problems, sep="\n", end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
