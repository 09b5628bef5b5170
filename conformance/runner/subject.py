"""What a check of the suite is given: an implementation, and the ways to put questions to it.

A check is a function `test_...(subject)`; pytest and the runner both call it.  It fails by an
assertion, most often a `Failure`, which carries a shrunk witness program.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as counting
from typing import Any, TypeVar

from conformance import oracle, protocol
from conformance.generators import grammar, programs
from conformance.oracle import checker, laying
from conformance.protocol import (
    Adapter,
    Document,
    ImplementationError,
    Info,
    Observation,
    Program,
    ProtocolError,
    Unsupported,
    Value,
    shapes,
)
from conformance.protocol.serve import load
from conformance.protocol.subprocess_adapter import TIMEOUT, SubprocessAdapter
from conformance.runner.explaining import described

Item = TypeVar("Item")
#: How long a committed witness is shrunk that fails: it was small when it was committed.
WITNESS_SECONDS = 5.0
#: So many of the questions of a check are kept, to find out how a witness was asked about.
LAST = 20


class Failure(AssertionError):
    """A check failed.  `witness` is a program that shows it, `repro` a command to paste."""

    verdict = "fail"  # or "error": it ended, or broke the protocol

    def __init__(self, message: str, witness: Program | None = None, repro: str = "") -> None:
        shown = f"\n{protocol.paste(witness)}" if witness else ""
        super().__init__(message + (f"\n{repro}" if repro else "") + shown)
        self.message, self.witness, self.repro = message, witness, repro


class NotClaimed(Exception):
    """The implementation does not claim a tier, or declares that it lacks something."""


class Inconclusive(Exception):
    """Nothing was wrong, and nothing of what could have been wrong was met: no hazard, no reuse.

    So may it be with an implementation that makes one kernel of everything; it is no failure.
    """


class Refused(NotClaimed):
    """A replay was refused, with an error that the implementation declares for that.

    Its choice `refuses` lists the names of these errors. Refusing is allowed where something is
    captured and replayed, and nowhere else; what was refused was not executed.
    """


@dataclass(frozen=True)
class Profile:
    """How many generated programs a check tries, and how large they are.

    Of programs that a check lists itself, the first `whole` are tried and then one of `every`; of
    long lists, which go through a grammar or a ladder of sizes, one of `part`.
    """

    examples: int
    size: int
    whole: int = 0
    every: int = 1
    part: int = 1

    def chosen(self, number: int) -> bool:
        """Whether the program with this number among those that a check lists is tried."""
        return number < self.whole or number % self.every == 0


#: `quick` is for implementations that need seconds for a program, such as a slow compiler; `ci` for
#: those whose tests are run all the time: other seeds take other parts of long lists.
PROFILES = {"quick": Profile(examples=4, size=8, whole=8, every=8, part=40),
            "ci": Profile(examples=12, size=10, part=24),
            "default": Profile(examples=12, size=10), "long": Profile(examples=1000, size=16)}
#: The same by the names that most tools have.
PROFILES |= {"smoke": PROFILES["quick"], "deep": PROFILES["long"]}


@dataclass
class Subject:
    """An implementation under test.  `spec` is what was asked for on the command line.

    Without `shrinks`, a check ends at the first program that fails, which is left as it is: that is
    enough to know that it fails.
    """

    adapter: Adapter
    spec: str
    command: list[str]
    profile: str = "ci"
    seed: int = 0
    examples: int = 0
    refusals: int = 0
    skipped: int = 0
    listed: int = 0
    wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter
    shrinks: bool = True
    #: The cells of the grammar that were met, if they are looked for.
    cells: set[grammar.Cell] | None = None
    #: What was asked since the check began, the last questions of it: program, tiers, options.
    asked: list[tuple[Program, tuple[str, ...], dict[str, Any]]] = field(default_factory=list)

    @staticmethod
    def of(implementation: str = "", command: str = "", profile: str = "ci",
           seed: int = 0, isolated: bool = False, timeout: float = TIMEOUT) -> Subject:
        """The implementation that `--impl` or `--impl-cmd` names.

        `isolated`: in a process of its own, so that nothing that it does ends this one.
        """
        if command:
            words = shlex.split(command)
            return Subject(SubprocessAdapter(words, timeout), f"--impl-cmd {shlex.quote(command)}",
                           words, profile, seed)
        served = [sys.executable, "-m", "conformance.protocol.serve", implementation]
        adapter = SubprocessAdapter(served, timeout) if isolated else load(implementation)
        return Subject(adapter, f"--impl {implementation}", served, profile, seed)

    @property
    def info(self) -> Info:
        return self.adapter.info()

    def elsewhere(self, **environment: str) -> Subject:
        """The same implementation in a process of its own; close its adapter after use."""
        adapter = SubprocessAdapter(self.command, environment=environment)
        return replace(self, adapter=self.wrap(adapter), asked=[])

    def close(self) -> None:
        close = getattr(self.adapter, "close", None)
        if close is not None:
            close()

    # Conditions ----------------------------------------------------------------------------

    def require(self, *tiers: str, setting: str = "", dtypes: Collection[str] = ()) -> None:
        """Leave a check that needs what the implementation does not claim."""
        for tier in tiers:
            if tier not in self.info.observes:
                raise NotClaimed(f"the tier {tier} is not claimed")
        if setting and setting not in self.info.settings:
            raise NotClaimed(f"the setting {setting} is not declared")
        for dtype in dtypes:
            if dtype not in self.info.dtypes:
                raise NotClaimed(f"the dtype {dtype} is not declared")

    def require_stated(self, what: str) -> None:
        """Leave a check of something that the adapter derived, and the implementation never said.

        The choice `derived` lists such parts of schedule documents.
        """
        if what in self.info.choices.get("derived", ()):
            raise NotClaimed(f"it does not say its {what}; the adapter derives them")

    def require_frugal(self, what: str) -> None:
        """Leave a check of how good plans are, if the implementation makes no such claim.

        The choice `frugal` lists what it makes that needs little memory: `memory`, `order`.
        """
        if what not in self.info.choices.get("frugal", ()):
            raise NotClaimed(f"it does not claim to be frugal in its {what}")

    def lacks(self) -> bool:
        """Whether there is a statement or a dtype that is not declared."""
        return not ({*protocol.STATEMENTS} <= {*self.info.statements}
                    and {*protocol.DTYPES} <= {*self.info.dtypes})

    def flushes(self, dtype: str) -> bool:
        """Whether the implementation says that it takes subnormal numbers of a dtype for zero.

        The choice `flushed` lists such dtypes.
        """
        return dtype in self.info.choices.get("flushed", ())

    def met(self, times: int, absent: str) -> None:
        """Leave a check that never met what it looks at. `absent` says what was not there.

        Raises:
            Inconclusive: `times` is 0.
        """
        if not times:
            raise Inconclusive(f"{absent}: nothing was verified")

    def supports(self, program: Program) -> bool:
        """Whether everything that a program uses by name is declared."""
        statements, dtypes = protocol.needs(program)
        return (statements <= set(self.info.statements)
                and dtypes <= set(self.info.dtypes)
                and shapes.within(program, shapes.Limits.of(self.info)))

    def part(self, listed: Sequence[Item], at_least: int = 1) -> Sequence[Item]:
        """What the profile wants of a long list; of each `part` the one that the seed chooses."""
        count = min(PROFILES[self.profile].part, max(1, len(listed) // at_least))
        return listed[self.seed % count::count]

    # Questions -----------------------------------------------------------------------------

    def run(self, program: Program, *tiers: str, **options: Any) -> Observation:
        """Run a program.  What was declared and is answered `unsupported` is a failure."""
        self.examples += 1
        self.asked = [*self.asked[-LAST:], (program, tiers, options)]
        if self.cells is not None:
            self.cells |= grammar.cells(program)
        try:
            return self.adapter.run(program, {"values", *tiers}, options)
        except Unsupported as reason:
            if self.supports(program):
                raise Failure(f"declared, but answered as unsupported: {reason}",
                              program) from reason
            raise NotClaimed(str(reason)) from reason
        except Exception as error:  # the implementation's own: perhaps it says that it refuses
            text = str(error) if isinstance(error, ImplementationError) else \
                f"{type(error).__name__}: {error}"
            refuses = tuple(f"{name}:" for name in self.info.choices.get("refuses", ()))
            if "replay" not in tiers or not text.startswith(refuses):
                raise
            self.examples, self.refusals = self.examples - 1, self.refusals + 1
            raise Refused(text) from error

    def check_values(self, program: Program, *tiers: str, **options: Any) -> Observation:
        """Run a program and compare its values with the oracle's."""
        observation = self.run(program, *tiers, **options)
        wrong = oracle.differences(program, observation.values,
                                   self.info.choices.get("flushed", ()))
        if not wrong and "sharded" in self.info.observes:
            wrong = laying.differences(program, observation.laid)
        if wrong:
            raise Failure("; ".join(wrong[:4]), program)
        return observation

    def check_declared(self, program: Program, *tiers: str, **options: Any) -> None:
        """Check the values of what in a program is declared.

        The failure of a program that fails has the smallest part of it that does.
        """
        def values(each: Program) -> None:
            self.check_values(each, *tiers, **options)

        self._check_part(program, values)

    def check_declared_by(self, program: Program,
                          wrong: Callable[[Program, Sequence[Value]], str]) -> None:
        """The same; `wrong` says what the comparison with the oracle does not see, or ""."""
        def values(each: Program) -> None:
            if found := wrong(each, self.check_values(each).values):
                raise Failure(found, each)

        self._check_part(program, values)

    def _check_part(self, program: Program, check: Callable[[Program], None]) -> None:
        info = self.info
        part = programs.using_only(program, {*info.statements}, {*info.dtypes})
        if not self._chosen():
            return
        if all(each["do"] in (*protocol.SOURCES, "observe") for each in part["statements"]):
            self.skipped += 1
            return
        self.check_smallest(part, check)

    def check_whole(self, program: Program, *tiers: str, **options: Any) -> None:
        """Check the values of a program that means something only as a whole.

        Raises:
            NotClaimed: not all of it is declared.
            Failure: with the smallest part that fails.
        """
        statements, dtypes = protocol.needs(program)
        missing = {*statements, *dtypes} - {*self.info.statements, *self.info.dtypes}
        if missing:
            raise NotClaimed(f"not declared: {', '.join(sorted(missing))}")
        if self._chosen():
            self._check_smallest(program, *tiers, **options)

    @property
    def deep(self) -> bool:
        """Whether the profile has hours, so that nothing has to be left out."""
        return PROFILES[self.profile] is PROFILES["deep"]

    def begin(self) -> None:
        """Start a check: nothing has been counted, and the implementation remembers nothing."""
        self.examples = self.refusals = self.skipped = self.listed = 0
        self.asked = []
        self.adapter.reset()

    def _chosen(self) -> bool:
        """Whether the profile wants the next one of the programs that a check lists."""
        self.listed += 1
        return PROFILES[self.profile].chosen(self.listed - 1)

    def _check_smallest(self, program: Program, *tiers: str, **options: Any) -> None:
        def check(each: Program) -> None:
            self.check_values(each, *tiers, **options)

        self.check_smallest(program, check)

    def check_smallest(self, program: Program, check: Callable[[Program], None]) -> None:
        """Apply a check to a program; the failure has the smallest part of it that fails."""
        try:
            check(program)
        except NotClaimed:
            raise
        except Exception as failure:  # the implementation's own too: it is the finding
            found = self._smallest(check, program, failure, "a program of this check")
            found.verdict = "fail" if isinstance(failure, AssertionError) else "error"
            raise found from None

    def documents(self, program: Program, **options: Any) -> list[Document]:
        """The schedule documents of a program, of which there is at least the form."""
        documents = self.run(program, "schedule", **options).schedule
        for document in documents:
            protocol.check("schedule", document)
        return documents

    def findings(self, program: Program, *prefixes: str, **options: Any) -> list[str]:
        """What the checker finds in the documents of a program, under rules that begin so."""
        return [str(finding) for document in self.documents(program, **options)
                for finding in checker.check(document) if finding.rule.startswith(prefixes)]

    # Many programs -------------------------------------------------------------------------

    def for_programs(self, check: Callable[[Program], None], *, rule: str = "",
                     share: float = 1.0) -> None:
        """Apply a check to the witnesses of a rule (all without one) and to generated programs.

        `share` says which part of the profile's number of programs is enough for this check; where
        that is not all of them, the profile `quick` leaves out witnesses too.  A program that
        fails is shrunk; the failure raised has it as its witness.
        """
        profile = PROFILES[self.profile]
        known = [(name, program) for name, program in programs.witnesses().items()
                 if (not rule or rule in program["rules"]) and self.supports(program)]
        chosen = {name: program for number, (name, program) in enumerate(known)
                  if share == 1.0 or profile.chosen(number)}
        tried, failures = len(chosen), dict[str, Exception]()
        for name, program in chosen.items():
            failure = self._outcome(check, program)
            if failure:
                failures[name] = failure
                if not self.shrinks:
                    break
        for name, failure in failures.items():
            others = [other for other in failures if other != name]
            origin = f"witness {name}" + (f"; also {', '.join(others)}" if others else "")
            raise self._smallest(check, chosen[name], failure, origin, seconds=WITNESS_SECONDS)
        wanted = max(1, int(profile.examples * share))
        for number, program in self._generated(wanted):
            tried += 1
            failure = self._outcome(check, program)
            if failure:
                raise self._smallest(check, program, failure, f"program {number}")
        if not tried:
            raise NotClaimed("no program of this check uses only what is declared")

    def _smallest(self, check: Callable[[Program], None], program: Program, failure: Exception,
                  origin: str, seconds: float = 30.0) -> Failure:
        """The failure of the smallest part of a program that fails."""
        if not self.shrinks:
            return self._explained(failure, program, origin)
        def fails(each: Program, alone: bool = True) -> bool:
            if alone:
                self.adapter.reset()
            return bool(self._outcome(check, each))

        alone = fails(program)  # else by what came before it, which no part of it needs less
        smallest = programs.shrink(program, lambda each: fails(each, alone), seconds=seconds)
        if smallest != program:  # what is said about the whole is no longer true of a part
            smallest = protocol.program(smallest["statements"])
        return self._explained(self._outcome(check, smallest) or failure, smallest, origin)

    def _generated(self, wanted: int) -> Iterator[tuple[int, Program]]:
        """The first generated programs that use only what is declared."""
        size = PROFILES[self.profile].size
        for number in counting(self.seed * 1_000_000):
            if not wanted or number > (self.seed + 1) * 1_000_000:
                return
            program = programs.random_program(number, size)
            if program["statements"] and self.supports(program):
                wanted -= 1
                yield number, program

    def _outcome(self, check: Callable[[Program], None], program: Program) -> Exception | None:
        """The failure of a check on a program, whatever sort of exception it is."""
        try:
            check(program)
        except NotClaimed:
            self.skipped += 1
            return None
        except (AssertionError, ProtocolError) as failure:
            return failure
        except Exception as error:  # the implementation's own: it is the finding
            return Failure(described(error))
        return None

    def _explained(self, failure: Exception, program: Program, origin: str) -> Failure:
        text = failure.message if isinstance(failure, Failure) else \
            str(failure) if isinstance(failure, ProtocolError) else described(failure)
        repro = f"python -m conformance run witness.json {self.spec}"
        return Failure(f"{text}\n({origin})", program, repro)


def same_values(one: Observation, other: Observation, *,
                order: Sequence[int] | None = None) -> list[str]:
    """The names of values that differ in any bit between two runs (NaN equals NaN)."""
    if len(one.values) != len(other.values):
        return [f"{len(one.values)} values against {len(other.values)}"]
    return [left.name for left, right in zip(one.values, other.values, strict=False)
            if (left.dtype, left.shape) != (right.dtype, right.shape)
            or not _same_array(left, right)]


def _same_array(left: protocol.Value, right: protocol.Value) -> bool:
    if left.data == right.data:
        return True
    one, other = left.array(), right.array()
    both_nan = (one != one) & (other != other)
    return bool(((one == other) | both_nan).all())


def fails(subject: Subject, program: Program, **options: Any) -> str:
    """What is wrong with the values, schedules and orders of one program; "" if nothing is."""
    return examine(subject, program, **options)[0]


def put(subject: Subject, program: Program, **options: Any) -> list[Document]:
    """Put a program to an implementation, and answer its schedules if its values are right.

    Whatever goes wrong is raised: a `Failure`, or the exception of the implementation itself.
    """
    shapes.check_program(program)
    return subject.check_values(program, *tiers_of(subject, program), **options).schedule


def tiers_of(subject: Subject, program: Program) -> tuple[str, ...]:
    """What is looked at where nobody says what: schedules, and replays of what is repeated."""
    repeats = any(each["do"] in protocol.REPETITIONS for each in program["statements"])
    return tuple(tier for tier in ("schedule", *(("replay",) if repeats else ()))
                 if tier in subject.info.observes)


def examine(subject: Subject, program: Program, **options: Any) -> tuple[str, list[Document]]:
    """What is wrong with a program, and the documents of its schedules.

    This is the question that `fuzz` asks. What a program repeats is captured and replayed.
    """
    documents: list[Document] = []
    try:
        documents = put(subject, program, **options)
        found = [str(finding) for document in documents for finding in checker.check(document)]
        return "; ".join(found[:4]), documents
    except Refused as reason:
        return str(reason), documents
    except NotClaimed:
        return "", documents
    except Failure as failure:
        return failure.message, documents
    except Exception as error:  # the implementation's own: it is the finding
        return described(error), documents
