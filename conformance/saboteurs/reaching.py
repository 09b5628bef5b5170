"""Which checks of the portable suite execute which statements of an implementation.

    DEVICE=REFERENCE python -m conformance.saboteurs.reaching --of impl --report reached.json
    python -m conformance.saboteurs.reaching --of impl --report reached.json --chapter replay

A check that does not execute a statement finds no mistake in it. So who asks what the suite finds
of a mutant need ask only the checks that execute it, and a statement that no check executes is a
hole that is known before any mutant is made. With `--chapter`, what is known of others is kept.

The statements of the implementation are marked when it is loaded, in memory. What a check does in a
process of its own is not seen: such checks are listed, and may execute anything.
"""
from __future__ import annotations

import argparse
import ast
import json
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any

from conformance.protocol import Adapter
from conformance.runner.checks import collect, run_check, smoke
from conformance.runner.fuzz import commit
from conformance.runner.subject import PROFILES, Subject
from conformance.saboteurs.mutation import Overlay
from conformance.trace import ROOT

FORMAT = "tensor-reached/1"
#: The name in a marked module of what its statements mark.
MARKS = "__reached__"


class Marked(Overlay):
    """Loads one module whose statements say that they were executed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, -1)
        self.file = str(path.relative_to(ROOT))
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.lines = [statement.lineno for body in _bodies(self.tree) for statement in body]
        self.marks = bytearray(len(self.lines))
        number = 0
        for body in list(_bodies(self.tree)):
            fresh: list[ast.stmt] = []
            for statement in body:
                if not _comes_first(statement):
                    fresh += ast.parse(f"{MARKS}[{number}] = 1").body
                fresh.append(statement)
                number += 1
            body[:] = fresh
        ast.fix_missing_locations(self.tree)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[MARKS] = self.marks
        exec(compile(self.tree, str(self.path), "exec", dont_inherit=True), module.__dict__)

    def taken(self) -> set[int]:
        """The lines of the statements that were executed since this was asked."""
        found = {line for line, mark in zip(self.lines, self.marks, strict=True) if mark}
        self.marks[:] = bytes(len(self.marks))
        return found


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body:
                yield body


def _comes_first(statement: ast.stmt) -> bool:
    """Whether nothing may stand before a statement: a docstring, what is of the future."""
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__" \
        or isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@dataclass(frozen=True)
class Reached:
    """What a run said: for each file and line, the checks that executed the statement there."""

    files: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]
    elsewhere: list[str]  # the checks that start processes

    @staticmethod
    def read(path: Path) -> Reached:
        said = json.loads(path.read_text(encoding="utf-8"))
        names = list(said["seconds"])
        return Reached({file: {int(line): [names[number] for number in numbers]
                               for line, numbers in lines.items()}
                        for file, lines in said["files"].items()},
                       said["seconds"], said["elsewhere"])

    def write(self, path: Path, said: dict[str, Any]) -> None:
        number = {name: place for place, name in enumerate(self.seconds)}
        files = {file: {line: sorted(number[name] for name in names)
                        for line, names in sorted(lines.items())}
                 for file, lines in self.files.items()}
        path.write_text(json.dumps({"format": FORMAT, "commit": commit(), **said,
                                    "seconds": self.seconds, "elsewhere": self.elsewhere,
                                    "files": files}) + "\n", encoding="utf-8")

    def checks_of(self, file: str, line: int) -> list[str]:
        """The checks that execute the statement that a line is in.

        A statement of the module itself is executed when it is loaded; what it says is met by all
        who execute anything of the file.
        """
        lines = self.files.get(file, {})
        starts = sorted(lines)
        place = bisect_right(starts, line) - 1
        if place < 0:
            return []
        if starts[place] in _outermost(file):
            return sorted({name for names in lines.values() for name in names})
        return lines[starts[place]]


def _outermost(file: str) -> set[int]:
    """The lines of the statements of a module and of its classes: of functions what is given."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    bodies = [tree.body, *(each.body for each in tree.body if isinstance(each, ast.ClassDef))]
    return {statement.lineno for body in bodies for statement in body}


def look(implementation: str, files: Sequence[Path], profile: str,
         chapters: Sequence[str], known: Reached | None) -> Reached:
    """Ask the checks, one after the other, and note what each of them executes."""
    loaded = (f"{implementation.partition(':')[0]}.", "impl.")
    for name in [each for each in sys.modules if f"{each}.".startswith(loaded)]:
        del sys.modules[name]
    marked = [Marked(path) for path in files]
    sys.meta_path[:0] = marked
    subject = Subject.of(implementation, profile=profile)
    if problem := smoke(subject):
        raise SystemExit(problem)
    seconds = {} if known is None else {
        name: spent for name, spent in known.seconds.items()
        if name.split(".")[0].removeprefix("test_") not in chapters}
    found = {each.file: {line: [name for name in (known.files.get(each.file, {}).get(line, [])
                                                  if known else []) if name in seconds]
                         for line in each.lines} for each in marked}
    for each in marked:
        each.taken()
    started, elsewhere = list[Adapter](), [
        name for name in (known.elsewhere if known else []) if name in seconds]

    def noted(adapter: Adapter) -> Adapter:
        started.append(adapter)
        return adapter

    subject.wrap = noted
    for check in collect():
        if chapters and check.chapter not in chapters:
            continue
        begun = process_time()
        started.clear()
        verdict = run_check(subject, check, subject.info.observes, ()).verdict
        seconds[check.name] = round(process_time() - begun, 2)
        print(f"{seconds[check.name]:>8.2f}  {verdict:<12}{check.name}", flush=True)
        for each in marked:
            for line in each.taken():
                found[each.file][line].append(check.name)
        elsewhere += [check.name] * bool(started)
    return Reached(found, seconds, elsewhere)


def table(reached: Reached) -> str:
    """A line for each file: its statements, and those that no check executes."""
    rows = []
    for file, lines in sorted(reached.files.items()):
        inside = [line for line in lines if line not in _outermost(file)]
        missed = [line for line in inside if not lines[line]]
        rows.append(f"{file:<36}{len(inside) - len(missed):>5} of {len(inside):>4}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    from conformance.saboteurs.mutants import SUBJECTS, files_of
    parser = argparse.ArgumentParser(prog="python -m conformance.saboteurs.reaching",
                                     description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", default="impl", choices=tuple(SUBJECTS), help="what is asked")
    parser.add_argument("--profile", default="default", choices=tuple(PROFILES))
    parser.add_argument("--chapter", action="append", default=[], help="only checks of these")
    parser.add_argument("--report", type=Path, required=True, help="where to write what was seen")
    options = parser.parse_args(arguments)
    known = Reached.read(options.report) if options.chapter and options.report.exists() else None
    found = look(SUBJECTS[options.of][0], files_of(options.of), options.profile, options.chapter,
                 known)
    found.write(options.report, {"of": options.of, "profile": options.profile})
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
