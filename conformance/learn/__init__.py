"""Your own code in the place of a part of the implementation, judged by the rules of its lesson.

    python -m conformance.learn start memory       write my_memory.py, with what you are to write
    python -m conformance.learn check memory       the smallest counterexample; then tests
    python -m conformance.learn hint memory        the next hint; --all: those that you have read
    python -m conformance.learn solution memory    a solution, for when you have one or give up
    python -m conformance.learn progress           which rules of which lesson are green
    python -m conformance.learn reset memory       begin anew; your file is kept as my_memory.py.old

Your file only holds what you want to replace; everything else stays as it is. Tests never live in
your file, so that you can change nothing about them by accident. `--mine` names another file. What
you have reached is kept beside it, in .learn.json.
"""
from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from conformance.learn.lesson import Counterexample
from conformance.learn.lessons import LESSONS
from conformance.trace import ROOT, chapter_tests

LONGEST = 160  # characters of a line of a test's message
LIMIT = 60.0  # seconds of computing that the search for counterexamples may take


class Overlay(MetaPathFinder, Loader):
    """Loads a part of `impl` as it is, and then the reader's file into the same module."""

    def __init__(self, slug: str, mine: Path) -> None:
        self.name = module_name(slug)
        self.source, self.mine, self.lesson = module_path(slug), mine, LESSONS[slug]

    def find_spec(self, fullname: str, path: object = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        inner = [str(self.source.parent)] if self.source.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, self.source, loader=self,
                                                      submodule_search_locations=inner)

    def exec_module(self, module: ModuleType) -> None:
        exec(code_of(self.source), module.__dict__)
        if self.lesson.install is None:
            exec(code_of(self.mine), module.__dict__)  # the reader's own code and wish
            return
        space: dict[str, Any] = {"__name__": self.mine.stem}
        exec(code_of(self.mine), space)  # the same; its names are not those of the module
        module.__dict__.update((name, space[name]) for name in self.lesson.functions)
        self.lesson.install(module)


def code_of(path: Path) -> CodeType:
    return compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)


def module_name(slug: str) -> str:
    """The part of the implementation that a reader's functions go into."""
    return f"impl.{LESSONS[slug].module or slug}"


def module_path(slug: str) -> Path:
    """Its file: of a folder, the one that names the rest."""
    path = ROOT.joinpath(*module_name(slug).split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def template(slug: str) -> str:
    """The heads and docstrings of what is to be written, without their bodies."""
    lesson = LESSONS[slug]
    names = [f"# {line}".rstrip() for line in lesson.names.splitlines()]
    if lesson.heads:
        return "\n".join(["from __future__ import annotations", "", *names, "", lesson.heads])
    parts = ["from __future__ import annotations", "",
             f"from {module_name(slug)} import *  # everything that you do not write yourself", "",
             *names]
    tree = ast.parse(module_path(slug).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in lesson.functions:
            node.body = [node.body[0], *ast.parse("raise NotImplementedError").body]
            parts.append("\n\n" + ast.unparse(node))
    return "\n".join(parts) + "\n"


# What was reached --------------------------------------------------------------------------


class Progress:
    """What a reader has reached, in a file beside the reader's own."""

    def __init__(self, mine: Path) -> None:
        self.path = mine.resolve().parent / ".learn.json"
        try:
            self.known: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.known = {}

    def of(self, slug: str) -> dict[str, Any]:
        """The green rules of a lesson at its last check, and how many hints were read."""
        found: dict[str, Any] = self.known.setdefault(slug, {"green": [], "hints": 0})
        return found

    def write(self) -> None:
        self.path.write_text(json.dumps(self.known, indent=1) + "\n", encoding="utf-8")


class Verdicts:
    """A pytest plugin: runs the tests that cite a lesson's rules, and hears what came of them."""

    def __init__(self, rules: Sequence[str]) -> None:
        self.rules = rules
        self.ran: dict[str, int] = dict.fromkeys(rules, 0)
        self.red: dict[str, str] = {}
        self._cited: dict[str, list[str]] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            cited = [mark.args[0].partition("+")[0] for mark in item.iter_markers("verifies")]
            self._cited[item.nodeid] = [rule for rule in cited if rule in self.rules]
        items[:] = [item for item in items if self._cited[item.nodeid]]

    def pytest_runtest_logreport(self, report: Any) -> None:
        for rule in self._cited.get(report.nodeid, ()):
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                message = str(crash.message if crash else report.longrepr)
                lines = map(shortened, message.splitlines()[:6])
                self.red.setdefault(rule, f"{report.nodeid.rpartition('::')[2]}: "
                                          + "\n    ".join(lines))
            self.ran[rule] += report.when == "call" and report.passed

    def green(self) -> list[str]:
        """The rules of which a test has passed and none has failed."""
        return [rule for rule in self.rules if self.ran[rule] and rule not in self.red]


def shortened(line: str) -> str:
    return line if len(line) <= LONGEST else line[:LONGEST] + " ..."


# The commands ------------------------------------------------------------------------------


def start(slug: str, mine: Path) -> int:
    if mine.exists():
        print(f"{mine} exists already; go on with it, or begin anew with\n"
              f"python -m conformance.learn reset {slug}{_named(slug, mine)}", file=sys.stderr)
        return 1
    mine.write_text(template(slug), encoding="utf-8")
    names, rules = " and ".join(LESSONS[slug].functions), LESSONS[slug].rules
    print(f"{mine}: write {names}. At first all {len(rules)} rules of this lesson are red, and "
          "that is right. Then:")
    print(f"python -m conformance.learn check {slug}{_named(slug, mine)}")
    return 0


def check(slug: str, mine: Path) -> int:
    """Search for the smallest counterexamples; if there are none, run the lesson's tests."""
    if not mine.exists():
        print(f"there is no {mine}; begin with\npython -m conformance.learn start "
              f"{slug}{_named(slug, mine)}", file=sys.stderr)
        return 1
    if any(name == "impl" or name.startswith("impl.") for name in sys.modules):
        raise RuntimeError("impl is loaded already: run this as python -m conformance.learn")
    lesson, progress = LESSONS[slug], Progress(mine)
    sys.meta_path.insert(0, Overlay(slug, mine.resolve()))
    found = _counterexamples(slug)
    if found:
        print(*found, sep="\n")
        red = len({each.rule for each in found} & {*lesson.rules})
        print(f"{red} of {len(lesson.rules)} rules are red on small problems. The tests with the "
              "whole runtime come when none is." if red else
              "no rule can be judged before your code answers")
        progress.of(slug).update(green=[], red=[each.rule for each in found] if red else None)
    else:
        progress.of(slug)["red"] = None
        progress.of(slug)["green"] = _tested(slug)
        if set(progress.of(slug)["green"]) == set(lesson.rules):
            print(*lesson.score(import_module(module_name(slug))), sep="\n")
    progress.write()
    return 0 if set(progress.of(slug)["green"]) == set(lesson.rules) else 1


def _counterexamples(slug: str) -> list[Counterexample]:
    with _limited(LIMIT):
        try:
            module = import_module(module_name(slug))
        except Exception as error:  # any: it is the reader's own code
            return [Counterexample("raised", f"your file raised {type(error).__name__}: {error}")]
        return list(LESSONS[slug].counterexamples(module))


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """What never ends raises a TimeoutError where it is, on systems that have such a clock."""
    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"it was not done after {seconds:g} seconds of computing")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _tested(slug: str) -> list[str]:
    """Run the tests that cite the lesson's rules, with the whole runtime around the reader's
    code; the rules that are green."""
    try:
        import pytest
    except ModuleNotFoundError:
        print("no counterexample on small problems. The tests with the whole runtime need pytest: "
              'pip install -e ".[test]"', file=sys.stderr)
        return []

    verdicts = Verdicts(LESSONS[slug].rules)
    chapters = LESSONS[slug].chapters or (slug,)
    tests = sorted(path for chapter in chapters
                   for path in chapter_tests(chapter))
    pytest.main(["-q", "--no-header", "--no-summary", "--tb=short", "-p", "no:cacheprovider",
                 "-o", "console_output_style=classic", *map(str, tests)], plugins=[verdicts])
    print("no counterexample on small problems; with the whole runtime around it:")
    green = verdicts.green()
    for rule in LESSONS[slug].rules:
        print(f"{'green' if rule in green else 'RED':<7}{rule}")
        if rule in verdicts.red:
            print(f"    {verdicts.red[rule]}")
    print(f"{len(green)} of {len(LESSONS[slug].rules)} rules are green"
          + (": the lesson is done." if len(green) == len(LESSONS[slug].rules) else "."))
    return green


def hint(slug: str, mine: Path, every: bool = False) -> int:
    """Print the next hint, or all that were read; after the last one, what there is besides."""
    progress, hints = Progress(mine), LESSONS[slug].hints
    number = progress.of(slug)["hints"]
    if every:
        print(*(f"{place}. {text}" for place, text in enumerate(hints[:number], 1)), sep="\n")
    elif number < len(hints):
        print(f"{number + 1} of {len(hints)}: {hints[number]}")
        progress.of(slug)["hints"] += 1
        progress.write()
    else:
        print(f"you have read all {len(hints)} hints. Once more:\npython -m conformance.learn hint "
              f"{slug} --all{_named(slug, mine)}\nA solution:\n"
              f"python -m conformance.learn solution {slug}")
    return 0


def solution(slug: str) -> str:
    """A solution: one that was written for the lesson, or else our own functions."""
    written = Path(__file__).parent / "solutions" / f"{slug}.py"
    if written.exists():
        lines = [line for line in written.read_text(encoding="utf-8").splitlines()[1:]
                 if not line.startswith(("from conformance", "# mypy", "# ruff"))]
        return re.sub(r"\n{3,}", "\n\n\n", "\n".join(lines)).strip()
    text = module_path(slug).read_text(encoding="utf-8")
    parts = [ast.get_source_segment(text, node) or "" for node in ast.parse(text).body
             if isinstance(node, ast.FunctionDef) and node.name in LESSONS[slug].functions]
    return "\n\n\n".join([f"# ours, in {module_path(slug).relative_to(ROOT)}, with all that it "
                          "calls", *parts])


def reset(slug: str, mine: Path) -> int:
    """Write the file anew; what was in it is kept beside it."""
    if mine.exists():
        kept = mine.with_name(f"{mine.name}.old")
        mine.replace(kept)
        print(f"your file is now {kept}")
    progress = Progress(mine)
    progress.known.pop(slug, None)
    progress.write()
    return start(slug, mine)


def show_progress(mine: Path) -> int:
    """A line for each lesson and for each rule; a rule is open while its tests have to wait."""
    progress = Progress(mine)
    for slug, lesson in LESSONS.items():
        known = progress.of(slug)
        print(f"{slug}: {len(known['green'])} of {len(lesson.rules)} rules green at the last "
              f"check, {known['hints']} of {len(lesson.hints)} hints read")
        red = known.get("red") or lesson.rules  # only some where the tests have to wait
        for rule in lesson.rules:
            print(f"  {'green' if rule in known['green'] else 'red' if rule in red else 'open':<7}"
                  f"{rule}")
    return 0


def _named(slug: str, mine: Path) -> str:
    return "" if mine == Path(f"my_{slug}.py") else f" --mine {mine}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.learn", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?",
                        choices=("start", "check", "hint", "solution", "reset", "progress"))
    parser.add_argument("lesson", choices=sorted(LESSONS), nargs="?",
                        help="not needed by `progress`")
    parser.add_argument("--mine", type=Path, help="your file; my_LESSON.py if it is not named")
    parser.add_argument("--all", action="store_true", help="with `hint`: all that you have read")
    options = parser.parse_args(arguments)
    if options.command is None:  # somebody who asks what there is
        parser.print_help()
        return 2
    if options.command == "progress":
        return show_progress(options.mine or Path("my_lesson.py"))
    if options.lesson is None:
        parser.error(f"name a lesson: {', '.join(sorted(LESSONS))}")
    mine = options.mine or Path(f"my_{options.lesson}.py")
    if options.command == "solution":
        print(solution(options.lesson))
        return 0
    if options.command == "hint":
        return hint(options.lesson, mine, options.all)
    commands = {"start": start, "check": check, "reset": reset}
    return commands[options.command](options.lesson, mine)

