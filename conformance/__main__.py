"""The command line of the conformance suite.

    python -m conformance --impl package.module:Adapter --report report.jsonl
    python -m conformance --impl-cmd ./executable --chapter memory --profile long
    python -m conformance fuzz --impl package.module:Adapter --count 10000 --seed 0 -n 2
    python -m conformance run witness.json --impl package.module:Adapter
    python -m conformance validate program.json --schema program
    python -m conformance rules
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from conformance import oracle, protocol, shapes
from conformance.fuzz import Job
from conformance.fuzz import run as fuzzing
from conformance.protocol import Program, ProtocolError
from conformance.report import Expectation, Result
from conformance.runner import CHAPTERS, collect, run_suite
from conformance.subject import Subject, fails

DEFAULT = "impl.adapter:Adapter"


def parser() -> ArgumentParser:
    """The options.  Without a command the suite is run."""
    top = ArgumentParser(prog="python -m conformance", description=__doc__.split("\n")[0])
    _common(top)
    top.add_argument("--report", type=Path, help="where to write the report")
    top.add_argument("--rule", action="append", default=[], help="only checks of this rule")
    top.add_argument("--chapter", action="append", default=[], choices=CHAPTERS)
    top.add_argument("--tier", default="", help="only these tiers, separated by commas")
    top.add_argument("--expected", type=Path, help="the failures that are known")
    commands = top.add_subparsers(dest="command")
    fuzz = commands.add_parser("fuzz", help="run generated programs until one fails")
    _common(fuzz)
    fuzz.add_argument("--count", type=int, default=10_000)
    fuzz.add_argument("--size", type=int, default=14, help="the most choices in a program")
    fuzz.add_argument("-n", "--processes", type=int, default=1)
    run = commands.add_parser("run", help="run one program and compare its values")
    _common(run)
    run.add_argument("program", type=Path)
    checked = commands.add_parser("validate", help="check JSON files against a shipped schema")
    checked.add_argument("files", type=Path, nargs="+")
    checked.add_argument("--schema", default="program",
                         choices=("program", "message", "observation", "schedule", "report"))
    commands.add_parser("rules", help="list the checks with the rules that they verify")
    return top


def _common(target: ArgumentParser) -> None:
    target.add_argument("--impl", default=DEFAULT, help="package.module:Adapter")
    target.add_argument("--impl-cmd", default="", help="an executable that speaks JSON lines")
    target.add_argument("--profile", default="ci", choices=("ci", "long"))
    target.add_argument("--seed", type=int, default=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.  The status is 0 when nothing is wrong, 1 otherwise."""
    options = parser().parse_args(arguments)
    commands = {None: suite, "fuzz": fuzz, "run": run_one, "validate": validate_files,
                "rules": list_rules}
    return commands[options.command](options)


def _subject(options: Namespace) -> Subject:
    return Subject.of(options.impl, options.impl_cmd, options.profile, options.seed)


def suite(options: Namespace) -> int:
    """Run the checks, print a table, write the report."""
    try:
        subject = _subject(options)
    except (ImportError, AttributeError, ValueError) as error:
        print(f"the harness is broken, nothing was tested: {type(error).__name__}: {error}")
        return 1
    tiers = [tier for tier in options.tier.split(",") if tier]
    expected = Expectation.read(options.expected) if options.expected else []
    try:
        report = run_suite(subject, collect(options.chapter or CHAPTERS), tiers=tiers,
                           rules=options.rule, expected=expected, tell=_tell)
    finally:
        subject.close()
    if options.report:
        report.write(options.report)
    print(report.table())
    return 0 if report.ok else 1


def _tell(result: Result) -> None:
    print(f"{result.verdict:<12}{result.test}  {result.seconds:.1f} s", file=sys.stderr)


def list_rules(options: Namespace) -> int:
    """Print every check of the suite."""
    for check in collect():
        print(f"{check.tier:<10}{check.name:<60}{' '.join(check.rules)}")
    return 0


def validate_files(options: Namespace) -> int:
    """Check files against a schema; programs also for being well formed."""
    wrong = 0
    for path in options.files:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        try:
            for line in lines:
                document = json.loads(line)
                protocol.check(options.schema, document)
                if options.schema == "program":
                    shapes.check_program(document)
            print(f"{path}: right")
        except (ValueError, ProtocolError) as error:
            print(f"{path}: {error}")
            wrong += 1
    return 1 if wrong else 0


def run_one(options: Namespace) -> int:
    """Run the program of a file and print what is wrong with it, or its values."""
    program: Program = json.loads(options.program.read_text(encoding="utf-8"))
    protocol.check("program", program)
    subject = _subject(options)
    try:
        wrong = fails(subject, program)
    finally:
        subject.close()
    if wrong:
        print(f"wrong: {wrong}")
        return 1
    for expected in oracle.run(program):
        print(f"{expected.name} = {expected.value.tolist()}")
    return 0


def fuzz(options: Namespace) -> int:
    """Run generated programs, shrink the first that fails and print it."""
    job = Job(options.impl, options.impl_cmd, options.seed, options.count, options.size)
    failures = fuzzing(job, options.processes)
    print("\n".join(failures) or f"{options.count} programs, nothing wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
