"""Your own code in the place of a part of the implementation, judged by the rules of its lesson.

    python -m conformance.learn start memory       write my_memory.py, with what you are to write
    python -m conformance.learn check memory       the smallest counterexample; then tests
    python -m conformance.learn hint memory        the next hint; --all: those that you have read
    python -m conformance.learn solution memory    a solution, for when you have one or give up
    python -m conformance.learn progress           which rules of which lesson are green
    python -m conformance.learn reset memory       begin anew; your file is kept as my_memory.py.old
    python -m conformance.learn run -- python -m impl    a program with all parts that are done

Your file only holds what you want to replace; everything else stays as it is. Tests never live in
your file, so that you can change nothing about them by accident. `--mine` names another file. What
you have reached is kept beside it, in .learn.json.
"""
from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from conformance.learn.lesson import Counterexample, error_text
from conformance.learn.lessons import LESSONS
from conformance.learn.limits import Clock, limited
from conformance.learn.overlay import Missing, Overlay, Progress, digest, module_name, module_path
from conformance.trace import ROOT, chapter_tests

LONGEST = 160  # characters of a line of a test's message
SHORT = 20.0  # seconds of computing for all counterexamples; right code takes less than one
LIMIT = 60.0  # and for each test after them


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


class Verdicts:
    """A pytest plugin: runs the tests that cite a lesson's rules, and hears what came of them."""

    def __init__(self, rules: Sequence[str]) -> None:
        self.rules = rules
        self.ran: dict[str, int] = dict.fromkeys(rules, 0)
        self.red: dict[str, str] = {}
        self.ended = False  # by somebody, with Ctrl-C
        self._cited: dict[str, list[str]] = {}
        self._clock = Clock()

    def pytest_runtest_logstart(self) -> None:
        """A test that never ends fails, and the next one runs."""
        self._clock.start(LIMIT)

    def pytest_runtest_logfinish(self) -> None:
        self._clock.stop()

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        """Somebody ended it; pytest says the same of a test that it cannot read."""
        self.ended = type(excinfo.value) is KeyboardInterrupt

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
    all_red = f"all {len(rules)} rules of this lesson are" if rules[1:] else \
        "the one rule of this lesson is"
    print(f"{mine}: write {names}. At first {all_red} red, and that is right. Then:")
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
        print(f"{red} of {len(lesson.rules)} rules are red on small problems, as far as they were "
              "tried. The tests with the whole runtime come when none is." if red else
              "no rule can be judged before your code answers")
        progress.of(slug).update(green=[], red=[each.rule for each in found] if red else None)
    else:
        progress.of(slug).update(red=None, green=_tested(slug), file=digest(mine))
        if set(progress.of(slug)["green"]) == set(lesson.rules):
            print(*lesson.score(import_module(module_name(slug))), sep="\n")
            print(*_what_now(slug, mine), sep="\n")
    progress.write(slug)
    return 0 if set(progress.of(slug)["green"]) == set(lesson.rules) else 1


def _what_now(slug: str, mine: Path) -> Iterator[str]:
    """The next lesson, and the program with all parts."""
    later = [each for each in LESSONS if LESSONS[each].number > LESSONS[slug].number]
    if later:
        yield (f"next lesson: docs/course/{later[0]}.md, "
               f"python -m conformance.learn start {later[0]}")
    yield ("all your parts at once: python -m conformance.learn run"
           + ("" if mine.parent == Path() else f" --mine {mine.parent}") + " -- python -m impl")


def _counterexamples(slug: str) -> list[Counterexample]:
    with limited(SHORT):
        try:
            module = import_module(module_name(slug))
        except Missing as error:
            return [Counterexample("raised", str(error))]
        except Exception as error:  # any: it is the reader's own code
            return [Counterexample("raised", f"your file raised {error_text(error)}")]
        return list(LESSONS[slug].counterexamples(module))


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
    print("no counterexample on small problems. Now the tests of the chapter run, with the whole "
          "runtime around your code; that takes a minute or more:", flush=True)
    pytest.main(["-q", "--no-header", "--no-summary", "--tb=short", "-p", "no:cacheprovider",
                 "-o", "console_output_style=classic", *map(str, tests)], plugins=[verdicts])
    if verdicts.ended:  # what was not run is not green
        raise KeyboardInterrupt
    print("with the whole runtime around it:")
    green = verdicts.green()
    for rule in LESSONS[slug].rules:
        print(f"{'green' if rule in green else 'RED':<7}{rule}")
        if rule not in green:
            print(f"    {verdicts.red.get(rule, 'no test of it was run to its end')}")
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
        progress.write(slug)
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
    progress.write(slug)
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


def run_together(words: list[str]) -> int:
    """The command `run`: what stands behind `--` is the program."""
    from conformance.learn import together

    parser = argparse.ArgumentParser(
        prog="python -m conformance.learn run", description=together.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mine", type=Path, default=Path(), help="your folder; else this one")
    parser.add_argument("--unchecked", action="store_true",
                        help="also with files that are not done, or were changed")
    cut = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:cut])
    return together.run(words[cut + 1:], options.mine, options.unchecked)


def _named(slug: str, mine: Path) -> str:
    return "" if mine == Path(f"my_{slug}.py") else f" --mine {mine}"


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["run"]:
        return run_together(words[1:])
    parser = argparse.ArgumentParser(prog="python -m conformance.learn", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?",
                        choices=("start", "check", "hint", "solution", "reset", "progress",
                                 "run"))
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

