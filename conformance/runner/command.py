"""The command line of the conformance suite.

    python -m conformance --impl package.module:Adapter --report report.jsonl
    python -m conformance --impl-cmd ./executable --chapter memory --profile long
    python -m conformance --impl package.module:Adapter --profile quick
    python -m conformance fuzz --impl package.module:Adapter --count 10000 --seed 0 -n 2
    python -m conformance steps --count 10000 --seed 0 -n 2
    python -m conformance sanitize steps --count 500
    python -m conformance sanitize all --report report.json --resume
    python -m conformance run witness.json --impl package.module:Adapter
    python -m conformance run report.jsonl --test NAME --impl package.module:Adapter
    python -m conformance check schedule.json
    python -m conformance validate program.json --schema program
    python -m conformance rules
    python -m conformance new my_impl
"""

from __future__ import annotations

import json
import shlex
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from conformance import oracle, protocol
from conformance.oracle import checker
from conformance.protocol import ProtocolError, shapes
from conformance.runner.checks import CHAPTERS, collect, run_suite
from conformance.runner.confirming import Question, options_of, wrong
from conformance.runner.fuzz import Fuzzing, Job, explained
from conformance.runner.interruption import STATUS, quietly
from conformance.runner.report import Expectation, Result, results_of, witness_of
from conformance.runner.starter import LANGUAGES, write_starter
from conformance.runner.subject import PROFILES, Subject, tiers_of

#: The status where nothing could be asked; 1 is that something is wrong.
NOTHING_ASKED = 2
DEFAULT = "conformance.adapters.impl_adapter:Adapter"
#: What is raised where a command names an implementation, or a file, that there is not.
UNLOADABLE = (ImportError, AttributeError, ValueError, OSError)


def parser() -> ArgumentParser:
    """The options.  Without a command the suite is run."""
    top = ArgumentParser(prog="python -m conformance", description=__doc__.split("\n")[0])
    _common(top)
    _add_suite(top)
    commands = top.add_subparsers(dest="command")
    _add_fuzz(commands.add_parser("fuzz", help="run generated programs until one fails"))
    _add_steps(commands.add_parser("steps", help="try random lists of steps on random kernels"))
    watched = commands.add_parser("sanitize", help="run a command with kernels that watch memory")
    watched.add_argument("words", nargs=REMAINDER, help="the command and its options")
    run = commands.add_parser("run", help="run the suite, or one program and compare its values")
    _common(run)
    _add_suite(run)
    run.add_argument("program", type=Path, nargs="?",
                     help="a program, or a report that has its witness; none: the whole suite")
    run.add_argument("--setting", action="append", default=[], metavar="NAME=NUMBER",
                     help="of a program: a setting that it runs with")
    run.add_argument("--order-seed", type=int, help="of a program: run it in an order drawn so")
    run.add_argument("--poison", action="store_true",
                     help="of a program: overwrite memory that is freed")
    run.add_argument("--test", default="", help="of a report: the test whose witness is run")
    checked = commands.add_parser("check", help="say what is wrong with schedule documents")
    _add_files(checked)
    checked.add_argument("--together", action="store_true",
                         help="they are of one schedule, each of a process: compare the transfers")
    validated = commands.add_parser("validate", help="check JSON files against a shipped schema")
    _add_files(validated)
    validated.add_argument("--schema", default="program",
                           choices=("program", "message", "observation", "schedule", "report"),
                           help="what the files are; program without a wish")
    new = commands.add_parser("new", help="write an adapter to start from")
    new.add_argument("name", help="of the implementation, such as my_impl")
    new.add_argument("--language", default="python", choices=LANGUAGES)
    commands.add_parser("rules", help="list the checks with the rules that they verify")
    return top


def _add_suite(target: ArgumentParser) -> None:
    target.add_argument("--report", type=Path, help="where to write the report, as JSON lines")
    target.add_argument("--junit", type=Path, help="where to write a report for a CI, as JUnit XML")
    target.add_argument("--badge", type=Path, help="where to write a badge, as shields.io reads it")
    target.add_argument("--rule", action="append", default=[], help="only checks of this rule")
    target.add_argument("--chapter", action="append", default=[], choices=CHAPTERS,
                        help="only checks of this chapter")
    target.add_argument("--check", default="", help="only the check of this name")
    target.add_argument("--tier", default="", help="only these tiers, separated by commas")
    target.add_argument("--shard", default="1/1", help="only a part of the checks, such as 2/4")
    target.add_argument("--resume", action="store_true",
                        help="leave out what the --report of an interrupted run has")
    target.add_argument("--expected", type=Path, help="the failures that are known")


def _add_fuzz(fuzz: ArgumentParser) -> None:
    _common(fuzz)
    fuzz.add_argument("--count", type=int, default=10_000, help="how many programs")
    fuzz.add_argument("--size", type=int, default=14, help="the most choices in a program")
    fuzz.add_argument("-n", "--processes", type=int, default=1,
                      help="processes that share the work")
    fuzz.add_argument("--styles", default="general:1 effects:4",
                      help="the shares of the generators: about everything, about effects")
    fuzz.add_argument("--settings", default="ordinary",
                      help="shares of settings, such as 'ordinary:6 NOOPT=1:1 FUSE=0,POISON=1:1'")
    fuzz.add_argument("--devices", default="",
                      help="run each program on each of these devices of this project, "
                      "CUDA and METAL emulated: 'CPU,REFERENCE,CUDA'")
    fuzz.add_argument("--meshes", action="store_true",
                      help="lay each program on a mesh of 1 to 6 devices, and run it as it is and "
                      "captured and replayed")
    fuzz.add_argument("--orders", action="store_true",
                      help="run every program in a legal order drawn at random")
    fuzz.add_argument("--report", dest="fuzz_report", type=Path,
                      help="where to write what was run, after every chunk")
    fuzz.add_argument("--resume", action="store_true", help="go on where the report ends")
    fuzz.add_argument("--chunk", type=int, default=100, help="programs in a chunk")
    fuzz.add_argument("--failures", type=int, default=3, help="stop after so many")
    fuzz.add_argument("--every", type=float, default=10, help="seconds between lines of progress")


def _add_steps(steps: ArgumentParser) -> None:
    steps.add_argument("--count", type=int, default=10_000, help="how many lists")
    steps.add_argument("--seed", type=int, default=0, help="of the first program")
    steps.add_argument("-n", "--processes", type=int, default=1,
                       help="processes that share the work")
    steps.add_argument("--groups", action="store_true",
                       help="lists for devices with work-groups, on the emulator")
    steps.add_argument("--report", dest="steps_report", type=Path,
                       help="where to write what was tried, after every process")


def _add_files(command: ArgumentParser) -> None:
    command.add_argument("files", type=Path, nargs="+")


def _common(target: ArgumentParser) -> None:
    target.add_argument("--impl", default=DEFAULT, help="package.module:Adapter")
    target.add_argument("--impl-cmd", "--cmd", default="",
                        help="an executable that speaks JSON lines")
    target.add_argument("--isolated", action="store_true",
                        help="run --impl in a process of its own: it may crash or hang")
    target.add_argument("--timeout", type=float, default=60.0,
                        help="seconds for an answer of a process of its own")
    target.add_argument("--profile", default="default", choices=tuple(PROFILES),
                        help="how many programs, and how large; quick: for slow compilers")
    target.add_argument("--seed", type=int, default=0,
                        help="of what is generated")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    The status is 0 when nothing is wrong, 1 when something is, 2 when nothing could be asked, 130
    after an interruption.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["sanitize"]:  # its words may begin with an option
        try:
            from conformance.kernels import sanitized  # for kernels of `impl` only
        except ImportError:
            return _needs_clone("sanitize")
        return quietly(lambda: sanitized.main(words[1:]))
    options = parser().parse_args(words, Namespace(given=words))
    commands = {None: suite, "fuzz": fuzz, "steps": steps,
                "run": suite if getattr(options, "program", None) is None else run_one,
                "new": start, "check": check_files, "validate": validate_files, "rules": list_rules}
    return quietly(lambda: commands[options.command](options))


def console() -> None:
    """The command `tensor-conformance`."""
    sys.exit(main())


def _subject(options: Namespace) -> Subject:
    return Subject.of(options.impl, options.impl_cmd, options.profile, options.seed,
                      options.isolated, options.timeout)


def suite(options: Namespace) -> int:
    """Run the checks, print a table, write the report."""
    try:
        subject = _subject(options)
    except UNLOADABLE as error:
        print(f"nothing was tested: {options.impl_cmd or options.impl} cannot be loaded: {error}. "
              "Remedy: --impl package.module:Class, or --impl-cmd with a program that there is")
        return NOTHING_ASKED
    tiers = [tier for tier in options.tier.split(",") if tier]
    try:
        expected = Expectation.read(options.expected) if options.expected else []
        known = results_of(options.report) if options.resume and options.report else []
        checks = [each for each in collect(options.chapter or CHAPTERS)
                  if options.check in (each.name, each.name.rpartition(".")[2], "")]
        report = run_suite(subject, checks, tiers=tiers,
                           rules=options.rule, expected=expected, tell=_tell,
                           shard=part_of(options.shard), known=known)
    except (ValueError, ProtocolError) as error:
        print(f"nothing was tested: {error}")
        return NOTHING_ASKED
    finally:
        subject.close()
    report.command = shlex.join(["python", "-m", "conformance", *options.given])
    if options.report:
        report.locate(options.report)
        report.write(options.report)
    if options.junit:
        options.junit.write_text(report.junit(), encoding="utf-8")
    if options.badge:
        options.badge.write_text(json.dumps(report.badge()) + "\n", encoding="utf-8")
    print(report.table())
    if report.interrupted:
        return STATUS
    if report.harness:
        return NOTHING_ASKED
    return 0 if report.ok else 1


def part_of(text: str) -> tuple[int, int]:
    """Which part of how many: "2/4" is (2, 4).

    Raises:
        ValueError: it is none of them.
    """
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise ValueError(f"{text!r} is no part; write for example --shard 2/4")
    return int(number), int(count)


def _needs_clone(command: str) -> int:
    print(f"`{command}` is about the implementation of this project: it needs a clone of it")
    return NOTHING_ASKED


def _tell(result: Result) -> None:
    unasked = ("not-run", "unsupported", "inconclusive")
    why = f"  ({result.message})" if result.verdict in unasked else ""
    print(f"{result.verdict:<14}{result.test}  {result.seconds:.1f} s{why}", file=sys.stderr)


def start(options: Namespace) -> int:
    """Write an adapter to start from into this folder."""
    try:
        path, commands = write_starter(options.name, Path.cwd(), options.language)
    except ValueError as error:
        print(error)
        return 1
    print("\n    ".join([f"wrote {path.name}; test it with", *commands]))
    return 0


def list_rules(options: Namespace) -> int:
    """Print every check of the suite."""
    for check in collect():
        print(f"{check.tier:<10}{check.name}\n{'':<10}    {' '.join(check.rules)}")
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


def check_files(options: Namespace) -> int:
    """Print what the checker finds in schedule documents: of a file one, or a list of them."""
    wrong, together = 0, list[protocol.Document]()
    for path in options.files:
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            says = error.strerror if isinstance(error, OSError) else f"it is no JSON: {error}"
            print(f"{path}: {says}")
            wrong += 1
            continue
        documents = read if isinstance(read, list) else [read]
        for number, document in enumerate(documents):
            name = str(path) if len(documents) == 1 else f"{path}[{number}]"
            findings = checker.check(document)
            wrong += bool(findings)
            together += [document]
            print("\n".join(f"{name}: {finding}" for finding in findings) or f"{name}: right, "
                  f"{counted(len(document['kernels']), 'kernel')}, "
                  f"{counted(len(checker.hazards(document)), 'hazard')}")
        if not documents:
            print(f"{path}: there is no document in it")
            wrong += 1
    if options.together and not wrong:
        findings = checker.check_together(together)
        print("\n".join(map(str, findings)) or f"together: right, {len(together)} documents")
        wrong += bool(findings)
    return 1 if wrong else 0


def counted(number: int, noun: str) -> str:
    """"1 kernel", "2 kernels"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def run_one(options: Namespace) -> int:
    """Run the program of a file and print what is wrong with it, or its values."""
    try:
        program = witness_of(options.program, options.test)
        protocol.check("program", program)
        subject = _subject(options)
    except (*UNLOADABLE, ProtocolError) as error:
        print(f"nothing was run: {error}")
        return 1
    try:
        tiers = tuple(filter(None, options.tier.split(","))) or tiers_of(subject, program)
        found = wrong(subject, Question(program, tiers, options_of(
            options.setting, options.order_seed, options.poison)))
    except ValueError as error:
        print(f"nothing was run: {error}; write for example --setting NAME=1")
        return NOTHING_ASKED
    finally:
        subject.close()
    if found:
        print(f"wrong: {found}")
        return 1
    for expected in oracle.run(program):
        print(f"{expected.name} = {expected.value.tolist()}")
    return 0


def fuzz(options: Namespace) -> int:
    """Run generated programs, shrink those that fail and print them."""
    job = Job(options.impl, options.impl_cmd, options.seed, options.count, options.size,
              options.styles, options.settings, options.orders, options.chunk, options.failures,
              options.devices, options.meshes)
    try:
        fuzzing = Fuzzing(job, options.processes, options.fuzz_report, options.resume,
                          every=options.every)
        tally = fuzzing.run()
    except ValueError as error:
        print(error)
        return 1
    print("\n".join(map(explained, tally.failures))
          or f"{tally.programs} programs, nothing wrong"
          f", {tally.skipped} were not for this implementation, {tally.refused} were refused")
    if fuzzing.interrupted:
        kept = f"; go on with --report {fuzzing.path} --resume" if fuzzing.path else ""
        print(f"interrupted after {len(fuzzing.done)} of {len(list(job.chunks()))} chunks{kept}",
              file=sys.stderr)
        return STATUS
    return 1 if tally.failures else 0


def steps(options: Namespace) -> int:
    """Run random kernels under random lists of optimisation steps; only `impl` has such steps."""
    try:
        from conformance.kernels.step_lists import Profile
    except ImportError:
        return _needs_clone("steps")
    found = Profile(options.seed, options.count, options.processes, report=options.steps_report,
                    groups=options.groups)
    right = found.run()
    print(f"{found.tried.total()} lists of steps, {len(found.failures)} wrong")
    if found.interrupted:
        print("interrupted", file=sys.stderr)
        return STATUS
    return 0 if right else 1

