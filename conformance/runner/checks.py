"""Runs the checks of the suite against one implementation and reports what came of each.

The checks are the functions `test_...(subject)` of the chapters' test files: those that ask for
nothing but a subject.  They run from the ground floor of the specification up; a check that
needs a rule which has failed is `not-run`, blocked by that rule, so that one mistake is
reported once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from time import perf_counter

from conformance import oracle, protocol
from conformance.generators import grammar
from conformance.protocol import Program
from conformance.runner.confirming import confirmed
from conformance.runner.explaining import described, meant, whole
from conformance.runner.interruption import end_if_asked
from conformance.runner.report import Expectation, Report, Result
from conformance.runner.subject import Failure, Inconclusive, NotClaimed, Subject

CHAPTERS = ("conventions", "statements", "digits", "movements", "sizes", "grammar",
            "dtypes", "tensor",
            "effects", "fusion", "placement", "dependencies", "ordering", "memory", "caching",
            "pairs", "schedule", "realize", "replay", "gradient", "multi", "sharded")

SMOKE: Program = protocol.program([
    {"do": "input", "to": "t0", "dtype": "float32", "shape": [2], "data": "0000803f00000040"},
    {"do": "add", "to": "t1", "from": ["t0", "t0"]},
    {"do": "observe", "names": ["t1"]}])

#: Where the checks are.
SUITE = Path(__file__).parent.parent / "suite"

Function = Callable[[Subject], None]


@dataclass(frozen=True)
class Check:
    """One test of the suite, the rules it verifies and what it needs."""

    name: str
    function: Function
    rules: tuple[str, ...]
    tier: str
    after: tuple[str, ...]

    @property
    def chapter(self) -> str:
        return self.name.split(".")[0].removeprefix("test_")


def collect(chapters: Iterable[str] = CHAPTERS) -> list[Check]:
    """The checks of these chapters, in the order in which they run."""
    found: list[Check] = []
    for chapter in chapters:
        if not (SUITE / f"test_{chapter}.py").is_file():
            continue
        module = import_module(f"conformance.suite.test_{chapter}")
        for name, function in vars(module).items():
            if name.startswith("test_") and hasattr(function, "__rules__"):
                if list(signature(function).parameters) == ["subject"]:
                    found.append(_check_of(chapter, name, function))
    return found


def _check_of(chapter: str, name: str, function: Function) -> Check:
    tier = getattr(function, "__tier__", "values")
    rules = [rule.partition("+")[0] for rule in getattr(function, "__rules__", ())]
    return Check(f"test_{chapter}.{name}", function, tuple(rules), tier,
                 getattr(function, "__after__", ()))


def run_suite(subject: Subject, checks: Sequence[Check], *, tiers: Collection[str] = (),
              rules: Collection[str] = (), expected: Sequence[Expectation] = (),
              tell: Callable[[Result], None] = lambda result: None,
              shard: tuple[int, int] = (1, 1), known: Sequence[Result] = ()) -> Report:
    """Run the checks of these tiers and rules (all when none are given).

    `shard` is a part of them, such as the second of four; what is `known` is not run again.

    Raises:
        ValueError: there are none.
    """
    chosen, missed = selected(checks, tiers, rules)[shard[0] - 1::shard[1]], _stale(expected)
    before = {each.test: each for each in known}
    unknown = Report(protocol.Info("unknown", "unknown", observes=()), list(tiers),
                     subject.profile, subject.seed)
    try:
        problem = smoke(subject)
        gc.collect()
        gc.freeze()  # an implementation that collects garbage need not look at what is here already
    except KeyboardInterrupt:
        return replace(unknown, interrupted="before the first test")
    if problem:
        return replace(unknown, harness=problem)
    report = Report(subject.info, list(tiers or subject.info.observes), subject.profile,
                    subject.seed)
    broken, subject.cells = set[str](), set()
    for number, check in enumerate(chosen):
        try:
            end_if_asked()
            result = before.get(check.name) or judge(
                run_check(subject, check, report.tiers, broken), check, expected)
            report.results.append(result)
            if result.verdict in ("fail", "error", "xfail"):
                broken.update(check.rules)
            tell(result)
        except KeyboardInterrupt:
            report.interrupted = f"in {check.name}, after {number} of {len(chosen)} tests"
            return report
    report.results += missed
    report.grammar = grammar.share(subject.cells, subject.info.statements, subject.info.dtypes)
    return report


def selected(checks: Sequence[Check], tiers: Collection[str],
             rules: Collection[str]) -> list[Check]:
    """The checks of these rules, if there are any for these tiers.

    Raises:
        ValueError: a tier or a rule that is none, or nothing is left to test.
    """
    for tier in tiers:
        if tier not in protocol.TIERS:
            raise ValueError(f"there is no tier {tier}{meant(tier, protocol.TIERS)}; "
                             f"the tiers are {', '.join(protocol.TIERS)}")
    verified = {rule for check in collect() for rule in check.rules} if rules else set()
    for rule in rules:
        if rule not in verified:
            raise ValueError(f"no check verifies a rule {rule}{meant(rule, verified)}; "
                             "`python -m conformance rules` lists all checks")
    chosen = [check for check in checks if not rules or set(rules) & set(check.rules)]
    if not any(check.tier in tiers or not tiers for check in chosen):
        raise ValueError("no check is of this chapter, rule and tier together; "
                         "`python -m conformance rules` lists all checks")
    return chosen


def smoke(subject: Subject) -> str:
    """What keeps the simplest program from running, or "": if it fails, no verdict means
    anything."""
    try:
        protocol.check("message", {"type": "started", "info": subject.info.to_json()})
        unknown = _undeclarable(subject.info)
        if unknown:
            return unknown
        wrong = "; ".join(oracle.differences(
            SMOKE, subject.adapter.run(SMOKE, {"values"}, {}).values))
    except protocol.ProtocolError as error:
        return str(error)
    except Exception as error:  # any: nothing has been established about the other side yet
        wrong = f"{described(error)}\n{whole(error).rstrip()}"
    return wrong and (f"the adapter fails the first program, an addition of two float32: {wrong}\n"
                      f"{protocol.paste(SMOKE).rstrip()}")


def _undeclarable(info: protocol.Info) -> str:
    """What the suite has no name for among the declared statements and dtypes, or ""."""
    for sort, declared, known in (("statement", info.statements, protocol.STATEMENTS),
                                  ("dtype", info.dtypes, protocol.DTYPES)):
        for name in declared:
            if name not in known:
                return f'it declares "{name}", which is no {sort}{meant(name, known)}'
    if "multi" in info.observes and len(info.devices) < 2:
        return f"it claims the tier multi with {len(info.devices)} device, where it takes two"
    if "sharded" in info.observes and len(info.meshes) < 2:
        return f"it claims the tier sharded with {len(info.meshes)} of `meshes`, where it takes two"
    return ""


def run_check(subject: Subject, check: Check, tiers: Collection[str],
              broken: Collection[str]) -> Result:
    """Run one check, whatever it does."""
    blocking = sorted(set(check.after) & set(broken))
    result = Result(check.name, list(check.rules), check.tier, "pass", seed=subject.seed)
    if blocking:
        return replace(result, verdict="not-run", message=f"blocked by rule {blocking[0]}")
    if check.tier not in tiers:
        return replace(result, verdict="not-run", message=f"the tier {check.tier} is not claimed")
    start = perf_counter()
    try:
        subject.begin()
        check.function(subject)
        if subject.refusals:
            result = replace(result, message=f"{subject.refusals} programs were refused")
        if subject.skipped and not subject.examples:
            raise NotClaimed("no program of this check uses only what is declared")
        if subject.refusals and not subject.examples:
            raise Inconclusive(f"all {subject.refusals} programs were refused")
        if not subject.examples and subject.lacks():
            raise NotClaimed("what this check asks for is not declared")
        if not subject.examples:
            result = replace(result, verdict="fail", message="nothing was executed")
    except NotClaimed as reason:
        result = replace(result, verdict="unsupported", message=str(reason))
    except Inconclusive as reason:
        result = replace(result, verdict="inconclusive", message=str(reason))
    except Failure as failure:
        result = replace(result, verdict=failure.verdict, message=failure.message,
                         witness=failure.witness, repro=failure.repro)
    except AssertionError as failure:
        result = replace(result, verdict="fail", message=described(failure))
    except Exception as error:  # any: one check never ends the run of the others
        result = replace(result, verdict="error", message=f"{described(error)}\n{whole(error)}")
    result = replace(result, examples=subject.examples, seconds=round(perf_counter() - start, 3))
    return confirmed(subject, result) if result.verdict in ("fail", "error") else result


def judge(result: Result, check: Check, expected: Sequence[Expectation]) -> Result:
    """The verdict in the light of what is expected to fail."""
    known = [each for each in expected if each.test == check.name]
    if not known or result.verdict not in ("pass", "fail", "error"):
        return result
    note = f"expected: {known[0].reason} {known[0].issue}".strip()
    if result.verdict == "pass":
        return replace(result, verdict="xpass", message=f"passes, but is {note}")
    return replace(result, verdict="xfail", message=f"{note}\n{result.message}")


def _stale(expected: Sequence[Expectation]) -> list[Result]:
    """An expected failure of a test that does not exist is an error, whatever was selected."""
    names = {check.name for check in collect()} if expected else set()
    return [Result(each.test, [each.rule], "values", "error",
                   f"it is expected to fail, but there is no such test{meant(each.test, names)}")
            for each in expected if each.test not in names]
