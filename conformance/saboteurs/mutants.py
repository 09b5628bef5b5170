"""How much of what is wrong does the portable suite find, alone?

    python -m conformance.saboteurs.mutants                          faults written by hand
    python -m conformance.saboteurs.mutants --kind values --name sum
    python -m conformance.saboteurs.mutants --count 200 --seed 0     mutants made by a machine
    python -m conformance.saboteurs.mutants --count 50 --of impl --report mutants.json

A fault, or a mutant, is the code of an implementation with one change. The checks of the suite are
asked one after the other until one fails, and then random programs, `--fuzz` of them. No test of
this project's own is asked. What lives is listed; each is a hole in the suite, or the same
implementation in other words.

The faults are in the small runtime `conformance.saboteurs.runtime`, and in `impl`. They were
written with only the specification at hand; `faults.json` has them, by kind. Mutants are those of
`conformance.saboteurs.mutation`. No file is changed.
"""
from __future__ import annotations

import argparse
import ast
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.protocol.serve import serve
from conformance.runner.checks import Check, collect, run_check, smoke
from conformance.runner.fuzz import PROGRAMS_OF_A_CACHE, STYLES, Job, commit, options_of
from conformance.runner.subject import Subject, examine
from conformance.saboteurs.mutation import Overlay, mutants, mutated
from conformance.trace import ROOT

FORMAT = "tensor-mutants/1"
FAULTS = Path(__file__).parent / "faults.json"
RUNTIME = "conformance.saboteurs.runtime:Adapter"
#: What is changed, and how it is driven.
SUBJECTS = {
    "runtime": (RUNTIME, ("conformance/saboteurs/runtime/*.py",)),
    "impl": ("conformance.adapters.impl_adapter:Adapter",
             ("impl/caching/plans.py", "impl/caching/rows.py", "impl/dependencies/*.py",
              "impl/effects/*.py", "impl/effects.py", "impl/fusion/*.py", "impl/memory/*.py",
              "impl/ordering.py", "impl/placement.py", "impl/replay/*.py",
              "impl/schedule/*.py"))}
#: Checks that take the longest, and find little that others do not: they are asked last.
LAST = ("test_two_processes", "in_every_process", "after_its_neighbours", "movements_compose",
        "never_returns_a_stale_plan", "laziness", "names_are_not", "hypothesis")
#: Seconds for a mutant; what does not end by then is found.
LIMIT = 600.0


@dataclass(frozen=True)
class Change:
    """An implementation with one change: `text` for `file`."""

    kind: str
    name: str
    implementation: str
    file: str
    text: str

    def install(self) -> None:
        """Load the changed file in place of what stands in it, in this process."""
        loaded = (f"{self.implementation.partition(':')[0]}.", "impl.")
        for name in [each for each in sys.modules if f"{each}.".startswith(loaded)]:
            del sys.modules[name]  # what a process before this one has loaded
        sys.meta_path.insert(0, _Changed(ROOT / self.file, self.text))


class _Changed(Overlay):
    """Loads one module from a text."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(path, -1)
        self.text = text

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.text, str(self.path), "exec", dont_inherit=True), module.__dict__)


def written(kind: str = "", name: str = "", of: str = "") -> list[Change]:
    """The faults that were written by hand, of a kind, a name and an implementation.

    Raises:
        ValueError: the text that a fault replaces does not stand in its file once.
    """
    changes = []
    for fault in json.loads(FAULTS.read_text(encoding="utf-8")):
        file, old = fault["file"], fault["old"]
        implementation = "impl" if file.startswith("impl/") else "runtime"
        if kind not in ("", fault["kind"]) or name not in fault["name"] \
                or of not in ("", implementation):
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{fault['name']}: {file} has {text.count(old)} times {old!r}. "
                             "Remedy: write the fault anew")
        changes.append(Change(fault["kind"], fault["name"], SUBJECTS[implementation][0], file,
                              text.replace(old, fault["new"])))
    return changes


def drawn(count: int, seed: int, of: str) -> list[Change]:
    """Mutants made by a machine, `count` of those of an implementation."""
    implementation, patterns = SUBJECTS[of]
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    found = [mutant for path in files for mutant in mutants(path)]
    random.Random(f"{seed} {of}").shuffle(found)
    return [Change(Path(each.file).stem if of == "runtime" else each.file.split("/")[1],
                   f"{each.file}:{each.line}  {each.change}", implementation, each.file,
                   ast.unparse(mutated(ROOT / each.file, each.number)))
            for each in found[:count]]


def found_by(change: Change, programs: int, profile: str) -> str:
    """What finds a change, the name of a check or the number of a program; "" if nothing does."""
    subject = Subject.of(change.implementation, profile=profile)
    subject.shrinks = False
    subject.command = [sys.executable, "-m", "conformance.saboteurs.mutants", "--serve",
                       json.dumps([change.implementation, change.file, change.text])]
    if smoke(subject):
        return "the first program"
    for check in sorted(collect(), key=_late):
        if run_check(subject, check, subject.info.observes, ()).verdict in ("fail", "error"):
            return check.name
    job = Job(change.implementation, count=programs, styles="general:1 effects:4")
    for number in range(programs):
        if number % PROGRAMS_OF_A_CACHE == 0:
            subject.adapter.reset()
        style, _, options = options_of(job, number)
        program = STYLES[style](number, job.size)
        if program["statements"] and subject.supports(program) \
                and examine(subject, program, **options)[0]:
            return f"program {number}"
    return ""


def _late(check: Check) -> bool:
    return any(each in check.name for each in LAST)


def _in_child(change: Change, programs: int, profile: str, answer: Connection) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    change.install()
    try:
        answer.send(found_by(change, programs, profile))
    except BaseException as error:  # it cannot even be loaded, or ends the process
        answer.send(f"{type(error).__name__}")
    os._exit(0)


def tried(change: Change, programs: int, profile: str = "ci") -> str:
    """What finds a change, asked in a process of its own."""
    mine, other = get_context("fork").Pipe(False)
    process = get_context("fork").Process(target=_in_child,
                                          args=(change, programs, profile, other))
    process.start()
    other.close()
    try:
        found: str = mine.recv() if mine.poll(LIMIT) else "it does not end"
    except EOFError:
        found = "it ends the process"
    try:
        os.killpg(process.pid or 0, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.join()
    return found


def table(results: Sequence[tuple[Change, str]]) -> str:
    """A line for each kind."""
    total, killed = Counter[str](), Counter[str]()
    for change, found in results:
        for kind in (change.kind, "all"):
            total[kind] += 1
            killed[kind] += bool(found)
    return "\n".join(f"{kind:<14}{killed[kind]:>5} of {count:>4}"
                     f"{100 * killed[kind] / count:>6.0f} %"
                     for kind, count in sorted(total.items(), key=lambda each: each[0] == "all"))


def report(results: Sequence[tuple[Change, str]], options: argparse.Namespace) -> dict[str, Any]:
    return {"format": FORMAT, "commit": commit(), "count": options.count, "seed": options.seed,
            "of": options.of, "fuzz": options.fuzz, "profile": options.profile,
            "results": [{"kind": change.kind, "name": change.name, "found by": found}
                        for change, found in results]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it.  The status is 0 when nothing lives."""
    parser = argparse.ArgumentParser(prog="python -m conformance.saboteurs.mutants",
                                     description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0, help="mutants made by a machine, so many")
    parser.add_argument("--seed", type=int, default=0, help="of their draw")
    parser.add_argument("--of", default="", choices=("", *SUBJECTS), help="what is changed")
    parser.add_argument("--kind", default="", help="only faults of this kind")
    parser.add_argument("--name", default="", help="only faults whose name has this in it")
    parser.add_argument("--fuzz", type=int, default=1000, help="random programs for what lives")
    parser.add_argument("--profile", default="ci", help="of the suite")
    parser.add_argument("--report", type=Path, help="where to write what was found")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        implementation, file, text = json.loads(options.serve)
        Change("", "", implementation, file, text).install()
        module, _, name = implementation.partition(":")
        serve(getattr(import_module(module), name)(), sys.stdin, sys.stdout)
        return 0
    changes = drawn(options.count, options.seed, options.of or "runtime") if options.count \
        else written(options.kind, options.name, options.of)
    results: list[tuple[Change, str]] = []
    try:
        for change in changes:
            results.append((change, tried(change, options.fuzz, options.profile)))
            verdict = f"found by {results[-1][1]}" if results[-1][1] else "LIVES"
            print(f"{change.kind:<12}{change.name}: {verdict}", flush=True)
            if options.report:
                options.report.write_text(json.dumps(report(results, options), indent=1) + "\n",
                                          encoding="utf-8")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(table(results))
    return int(any(not found for _, found in results))


if __name__ == "__main__":
    sys.exit(main())
