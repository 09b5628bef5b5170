r"""How much of what is wrong does the portable suite find, alone?

    python -m conformance.saboteurs.mutants                          faults written by hand
    python -m conformance.saboteurs.mutants --kind values --name sum
    python -m conformance.saboteurs.mutants --set second             others, by somebody else
    python -m conformance.saboteurs.mutants --count 200 --seed 0     mutants made by a machine
    python -m conformance.saboteurs.mutants --count 50 --of impl --report mutants.json
    python -m conformance.saboteurs.mutants --count 50 --of impl --kind memory
    DEVICE=REFERENCE python -m conformance.saboteurs.mutants --count 50 --of impl --reached FILE \
        --profile quick --busy 30

A fault, or a mutant, is the code of an implementation with one change. The checks of the suite are
asked one after the other until one fails, and then random programs, `--fuzz` of them. No test of
this project's own is asked. What lives is listed; each is a hole in the suite, or the same
implementation in other words. What is not decided after `--busy` seconds of the processor is
neither found nor alive: it is counted apart, with the check that was asked last. With `--reached`,
a file of `conformance.saboteurs.reaching`, only the checks are asked that execute the changed
statement, the quickest first; a change of what none of them executes is counted apart, too, and
so is one of `equivalent.json`, which says why it is the same implementation, or another one that is
right by every law. With `--reached` it is known how long a check takes: where time is over in one
that has taken many times as long, what is changed does not end, and that is found.

The faults are in the small runtime `conformance.saboteurs.runtime`, and in `impl`. They were
written with only the specification at hand; `faults.json`, `faults-second.json`,
`faults-third.json`, `faults-fourth.json`, `faults-fifth.json` and `faults-sixth.json` have them, by
kind. Mutants are those of `conformance.saboteurs.mutation`. No file is changed.
"""
from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from types import ModuleType
from typing import Any

from conformance.generators import effect_programs, programs
from conformance.oracle import checker
from conformance.protocol.serve import serve
from conformance.runner.checks import Check, collect, run_check, smoke
from conformance.runner.fuzz import PROGRAMS_OF_A_CACHE, STYLES, Job, commit, options_of
from conformance.runner.subject import Subject, examine
from conformance.saboteurs.mutation import Mutant, Overlay, mutants, mutated
from conformance.saboteurs.reaching import Reached
from conformance.trace import ROOT

FORMAT = "tensor-mutants/1"
#: Faults that were written by hand: each set when the one before had done its work.
FAULTS = {"first": Path(__file__).parent / "faults.json",
          "second": Path(__file__).parent / "faults-second.json",
          "third": Path(__file__).parent / "faults-third.json",
          "fourth": Path(__file__).parent / "faults-fourth.json",
          "fifth": Path(__file__).parent / "faults-fifth.json",
          "sixth": Path(__file__).parent / "faults-sixth.json"}
RUNTIME = "conformance.saboteurs.runtime:Adapter"
#: What is changed, and how it is driven.
SUBJECTS = {
    "runtime": (RUNTIME, ("conformance/saboteurs/runtime/*.py",)),
    "impl": ("conformance.adapters.impl_adapter:Adapter",
             ("impl/caching/*.py", "impl/dependencies/*.py", "impl/effects/*.py",
              "impl/fusion/*.py", "impl/memory/*.py", "impl/ordering.py", "impl/placement.py",
              "impl/ranges/*.py", "impl/realize/*.py", "impl/replay/*.py", "impl/schedule/*.py",
              "impl/symbolic/*.py"))}
#: Checks that take the longest, and find little that others do not: they are asked last.
LAST = ("test_two_processes", "in_every_process", "after_its_neighbours", "movements_compose",
        "never_returns_a_stale_plan", "laziness", "names_are_not", "hypothesis")
#: In place of what an implementation shows: that it is to be found out.
WANTED = "?"
#: What is said of a change that shows nothing else than the code itself.
UNCHANGED = "nothing: it shows what the code itself shows"
#: What is said of a change of what no check executes.
UNREACHED = "nothing: no check executes it"
#: What is said of a change that is the same in other words, and of which no program can show more.
EQUIVALENT = "equivalent: "
#: Why such mutants are equivalent: by file and change.
ARGUED = Path(__file__).parent / "equivalent.json"
#: Random programs of which everything that is shown is compared.
SOME = 50
#: Chapters whose checks find most of what is wrong with a schedule: they are asked first.
FIRST = ("conventions", "effects", "placement", "dependencies", "memory", "schedule")
#: By the kind of a change, those that are asked before: what is asked is the same for all.
NEAREST = {"movements": ("movements",), "ranges": ("movements", "sizes"), "sizes": ("sizes",),
           "values": ("digits", "conventions", "statements"), "symbolic": ("movements", "sizes"),
           "caches": ("pairs", "caching"), "caching": ("pairs", "caching"),
           "memory": ("memory", "ordering"), "ordering": ("ordering", "memory"),
           "dependencies": ("dependencies", "ordering", "effects"),
           "effects": ("effects", "realize", "dependencies"), "documents": ("schedule",),
           "schedule": ("schedule",), "replay": ("replay",), "writes": ("effects", "dependencies")}
#: What is said of a change about which nothing is known, because the time is over.
UNDECIDED = "no time"
#: What takes so many times as long as without a change, and so many seconds, does not end.
TIMES, ENDLESS = 20, 20.0
#: Seconds of the processor for the first programs and for all, those in which what is asked can
#: still say where it was, and seconds of the clock.
AT_FIRST, BUSY, GRACE, LIMIT = 25, 600, 10, 3600.0


@dataclass(frozen=True)
class Change:
    """An implementation with one change: `text` for `file`."""

    kind: str
    name: str
    implementation: str
    file: str
    text: str
    line: int = 0

    @property
    def said(self) -> str:
        """What it is, with the line that it is in and without its number, which moves."""
        lines = (ROOT / self.file).read_text(encoding="utf-8").splitlines()
        return f"{lines[self.line - 1].strip()} || {self.name.partition('  ')[2]}"

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


def written(kind: str = "", name: str = "", of: str = "", chosen: str = "first") -> list[Change]:
    """The faults of a set that were written by hand, of a kind, a name and an implementation.

    Raises:
        ValueError: a text that a fault replaces does not stand in its file once.
    """
    changes = []
    for fault in json.loads(FAULTS[chosen].read_text(encoding="utf-8")):
        file = fault["file"]
        implementation = "impl" if file.startswith("impl/") else "runtime"
        if kind not in ("", fault["kind"]) or name not in fault["name"] \
                or of not in ("", implementation):
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        for old, new in fault["edits"]:
            if text.count(old) != 1:
                raise ValueError(f"{fault['name']}: {file} has {text.count(old)} times {old!r}. "
                                 "Remedy: write the fault anew")
            text = text.replace(old, new)
        changes.append(Change(fault["kind"], fault["name"], SUBJECTS[implementation][0], file,
                              text))
    return changes


def files_of(of: str) -> list[Path]:
    """The files of an implementation that are changed."""
    return sorted(path for pattern in SUBJECTS[of][1] for path in ROOT.glob(pattern))


def drawn(count: int, seed: int, of: str, kind: str = "") -> list[Change]:
    """Mutants made by a machine, `count` of those of an implementation, of a kind."""
    found = [mutant for path in files_of(of) for mutant in mutants(path)]
    found = [each for each in found if kind in ("", _kind(each.file, of))]
    random.Random(f"{seed} {of}").shuffle(found)
    return [_changed(each, of) for each in found[:count]]


def again(report: Path, of: str, kind: str = "") -> list[Change]:
    """The mutants that a report names; a line may have moved, or be gone."""
    changes = []
    for each in json.loads(report.read_text(encoding="utf-8"))["results"]:
        place, _, change = each["name"].partition("  ")
        file, _, line = place.partition(":")
        found = [other for other in mutants(ROOT / file) if other.change == change] \
            if kind in ("", each["kind"]) and (ROOT / file).exists() else []
        if found:
            nearest = min(found, key=lambda other: abs(other.line - int(line)))
            changes.append(_changed(nearest, of))
    return changes


def _changed(mutant: Mutant, of: str) -> Change:
    return Change(_kind(mutant.file, of), f"{mutant.file}:{mutant.line}  {mutant.change}",
                  SUBJECTS[of][0], mutant.file,
                  ast.unparse(mutated(ROOT / mutant.file, mutant.number)), mutant.line)


def _kind(file: str, of: str) -> str:
    """A file of the small runtime, a chapter of `impl`."""
    return Path(file).stem if of == "runtime" else file.split("/")[1].removesuffix(".py")


@dataclass(frozen=True)
class Asked:
    """What is asked of each change.

    `usual` is what an implementation without a change shows of a few programs. With it, a change
    that shows the same is not asked more: perhaps it is none. After `busy` seconds of the
    processor nothing more is asked. With `reached`, only those are asked that execute the change.
    """

    programs: int = 1000
    profile: str = "default"
    usual: str = ""
    busy: int = BUSY
    reached: Reached | None = None

    def checks(self, change: Change) -> list[Check]:
        """The checks for a change, in the order in which they are asked."""
        checks = sorted(collect(), key=lambda check: _late(change.kind, check))
        if self.reached is None:
            return checks
        reached, seconds = self.reached, self.reached.seconds
        here = {*reached.checks_of(change.file, change.line), *self.processes(change)}
        return sorted([check for check in checks if check.name in here], key=lambda check: (
            check.name in reached.elsewhere, check.chapter not in NEAREST.get(change.kind, ()),
            seconds[check.name]))

    def is_endless(self, name: str, seconds: float) -> bool:
        """Whether a check has taken so long that it does not end."""
        usual = self.reached.seconds.get(name) if self.reached else None
        return usual is not None and seconds > max(ENDLESS, TIMES * usual)

    def meets(self, change: Change) -> bool:
        """Whether any check may execute a change."""
        return self.reached is None or bool(
            self.reached.checks_of(change.file, change.line)
            or self.processes(change))

    def processes(self, change: Change) -> list[str]:
        """The checks that start processes, if a change shows in no other way."""
        reached = self.reached
        if reached is None or reached.checks_of(change.file, change.line):
            return []
        return reached.elsewhere if change.kind == "caching" else []


def shown(subject: Subject) -> tuple[str, str]:
    """What finds a change among a few programs, and a digest of all that they showed."""
    digest = sha256()
    asked = [(name, program) for name, program in sorted(programs.witnesses().items())]
    asked += [(f"program {number}", effect_programs.random_program(number, 10))
              for number in range(SOME)]
    for name, program in asked:
        if not subject.supports(program):
            continue
        try:
            seen = subject.check_values(program, *subject.info.observes)
            digest.update(json.dumps(seen.to_json(), sort_keys=True).encode())
            for document in seen.schedule:
                assert not checker.check(document)
        except Exception:  # whatever it is: it is found
            return name, ""
    return "", digest.hexdigest()


def found_by(change: Change, asked: Asked, tell: Callable[[str], None] = lambda name: None) -> str:
    """What finds a change, the name of a check or the number of a program; "" if nothing does.

    `tell` is told each of them before it is asked.
    """
    profile = asked.profile
    subject = Subject.of(change.implementation, profile=profile)
    subject.shrinks = False
    subject.command = [sys.executable, "-m", "conformance.saboteurs.mutants", "--serve",
                       json.dumps([change.implementation, change.file, change.text])]
    if smoke(subject):
        return "the first program"
    gc.collect()
    gc.freeze()  # an implementation that collects garbage need not look at what is here already
    if asked.usual:
        found, digest = shown(subject)
        if found or digest == asked.usual or asked.usual == WANTED:
            return found or (digest if asked.usual == WANTED else UNCHANGED)
        _limit(asked.busy, asked)
    for check in asked.checks(change):
        tell(check.name)
        if run_check(subject, check, subject.info.observes, ()).verdict in ("fail", "error"):
            return check.name
    job = Job(change.implementation, count=asked.programs, styles="general:1 effects:4")
    for number in range(asked.programs):
        tell(f"program {number}")
        if number % PROGRAMS_OF_A_CACHE == 0:
            subject.adapter.reset()
        style, _, options = options_of(job, number)
        program = STYLES[style](number, job.size)
        if program["statements"] and subject.supports(program) \
                and examine(subject, program, **options)[0]:
            return f"program {number}"
    return ""


def _late(kind: str, check: Check) -> tuple[bool, bool, bool]:
    return (any(each in check.name for each in LAST), check.chapter not in NEAREST.get(kind, ()),
            check.chapter not in FIRST)


def _limit(seconds: int, asked: Asked) -> None:
    """Give this process so many seconds of the processor: then it is told that they are over."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, asked.busy + GRACE))


def _in_child(change: Change, asked: Asked, folder: str, answer: Connection) -> None:
    os.setsid()
    # What is kept on disk has the version of the code that stands in its files: a change in memory
    # would take the texts of other code, and leave its own behind.
    os.environ["CACHE_FOLDER"] = folder
    last, began = ["the first program"], [process_time()]

    def tell(name: str) -> None:
        last.append(name)
        began.append(process_time())

    def over(*_: object) -> None:
        endless = asked.is_endless(last[-1], process_time() - began[-1])
        answer.send(f"{last[-1]}, which does not end" if endless
                    else f"{UNDECIDED}: in {last[-1]}")
        os._exit(0)

    signal.signal(signal.SIGXCPU, over)
    _limit(min(AT_FIRST, asked.busy) if asked.usual else asked.busy, asked)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    change.install()
    try:
        answer.send(found_by(change, asked, tell))
    except BaseException as error:  # it cannot even be loaded, or ends the process
        answer.send(f"{type(error).__name__}")
    os._exit(0)


def usual(implementation: str) -> str:
    """What an implementation shows without a change."""
    file = str(Path(__file__).relative_to(ROOT))  # of which nobody loads anything
    return tried(Change("", "", implementation, file, ""), Asked(usual=WANTED))


def tried(change: Change, asked: Asked) -> str:
    """What finds a change, asked in a process of its own."""
    if change.line and (reason := argued().get((change.file, change.said))):
        return EQUIVALENT + reason
    if not asked.meets(change):
        return UNREACHED
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        return _answer(change, asked, folder)


def _answer(change: Change, asked: Asked, folder: str) -> str:
    mine, other = get_context("fork").Pipe(False)
    process = get_context("fork").Process(target=_in_child,
                                          args=(change, asked, folder, other))
    process.start()
    other.close()
    try:
        found: str = mine.recv() if mine.poll(LIMIT) else f"{UNDECIDED}: by the clock"
    except EOFError:  # it ends the process, or is ended where no handler is called any more
        process.join()
        found = f"{UNDECIDED}: ended from outside" if process.exitcode == -signal.SIGKILL \
            else "it ends the process"
    try:
        os.killpg(process.pid or 0, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.join()
    return found


@cache
def argued() -> dict[tuple[str, str], str]:
    """The mutants that are equivalent, by file and what they are, and why."""
    return {(each["file"], change): each["reason"]
            for each in json.loads(ARGUED.read_text(encoding="utf-8"))
            for change in each["mutants"]}


def _counts(found: str) -> bool:
    """Whether a change counts in the rate: something executes it, and it is one."""
    return found not in (UNCHANGED, UNREACHED) and not found.startswith((UNDECIDED, EQUIVALENT))


def _is_found(found: str) -> bool:
    return bool(found) and _counts(found)


def table(results: Sequence[tuple[Change, str]]) -> str:
    """A line for each kind."""
    total, killed = Counter[str](), Counter[str]()
    same, never = (sum(found == said for _, found in results) for said in (UNCHANGED, UNREACHED))
    late, alike = (sum(found.startswith(said) for _, found in results)
                   for said in (UNDECIDED, EQUIVALENT))
    for change, found in results:
        if not _counts(found):
            continue
        for kind in (change.kind, "all"):
            total[kind] += 1
            killed[kind] += bool(found)
    lines = [f"{kind:<14}{killed[kind]:>5} of {count:>4}{100 * killed[kind] / count:>6.0f} %"
             for kind, count in sorted(total.items(), key=lambda each: each[0] == "all")]
    return "\n".join([*lines, *[f"{same} more show what the code itself shows"] * bool(same),
                      *[f"{alike} more are equivalent, as is argued"] * bool(alike),
                      *[f"{never} more are of what no check executes"] * bool(never),
                      *[f"{late} more were not decided in time"] * bool(late)])


def speed(results: Sequence[tuple[Change, str]], seconds: Sequence[float]) -> str:
    """How long it took to find what was found, by the clock of this machine; "" for nothing."""
    taken = sorted(each for each, (_, found) in zip(seconds, results, strict=True)
                   if _is_found(found))
    if not taken:
        return ""
    return (f"found in {median(taken):.1f} s (median), nine of ten in "
            f"{taken[min(len(taken) - 1, 9 * len(taken) // 10)]:.1f} s")


def report(results: Sequence[tuple[Change, str]], seconds: Sequence[float],
           options: argparse.Namespace) -> dict[str, Any]:
    return {"format": FORMAT, "commit": commit(), "count": options.count, "seed": options.seed,
            "of": options.of, "set": options.set, "fuzz": options.fuzz, "profile": options.profile,
            "busy": options.busy, "kind": options.kind, "changed": options.changed,
            "reached": options.reached is not None,
            "results": [{"kind": change.kind, "name": change.name, "found by": found,
                         "seconds": round(taken, 1)}
                        for (change, found), taken in zip(results, seconds, strict=True)]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it.  The status is 0 when nothing lives, and all was decided."""
    parser = argparse.ArgumentParser(prog="python -m conformance.saboteurs.mutants",
                                     description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0, help="mutants made by a machine, so many")
    parser.add_argument("--seed", type=int, default=0, help="of their draw")
    parser.add_argument("--reached", type=Path,
                        help="a file of conformance.saboteurs.reaching: who executes what")
    parser.add_argument("--again", type=Path, help="the mutants that a report names")
    parser.add_argument("--of", default="", choices=("", *SUBJECTS), help="what is changed")
    parser.add_argument("--set", default="first", choices=tuple(FAULTS), help="which faults")
    parser.add_argument("--changed", action="store_true",
                        help="ask no more of what shows, of a few programs, what the code shows")
    parser.add_argument("--kind", default="", help="only faults or mutants of this kind")
    parser.add_argument("--name", default="", help="only faults whose name has this in it")
    parser.add_argument("--fuzz", type=int, default=1000, help="random programs for what lives")
    parser.add_argument("--profile", default="default", help="of the suite")
    parser.add_argument("--busy", type=int, default=BUSY,
                        help="seconds of the processor for each; what takes longer is not decided")
    parser.add_argument("--report", type=Path, help="where to write what was found")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        implementation, file, text = json.loads(options.serve)
        Change("", "", implementation, file, text).install()
        module, _, name = implementation.partition(":")
        serve(getattr(import_module(module), name)(), sys.stdin, sys.stdout)
        return 0
    asked = Asked(options.fuzz, options.profile,
                  usual(SUBJECTS[options.of or "runtime"][0]) if options.changed else "",
                  options.busy, Reached.read(options.reached) if options.reached else None)
    changes = again(options.again, options.of or "impl", options.kind) if options.again \
        else drawn(options.count, options.seed, options.of or "runtime", options.kind) \
        if options.count \
        else written(options.kind, options.name, options.of, options.set)
    results, seconds = list[tuple[Change, str]](), list[float]()
    try:
        for change in changes:
            begun = monotonic()
            results.append((change, tried(change, asked)))
            seconds.append(monotonic() - begun)
            found = results[-1][1]
            verdict = f"found by {found}" if _is_found(found) else found or "LIVES"
            print(f"{change.kind:<12}{change.name}: {verdict}", flush=True)
            if options.report:
                said = json.dumps(report(results, seconds, options), indent=1)
                options.report.write_text(said + "\n", encoding="utf-8")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(table(results), speed(results[:len(seconds)], seconds), sep="\n")
    return int(any(not found or found.startswith(UNDECIDED) for _, found in results))


if __name__ == "__main__":
    sys.exit(main())
