"""A witness is asked about once more, in a new process, before anybody is told to run it.

What a check found may need more than its witness: options, tiers, another program before it. So
the command that is printed has all of them, and was seen to fail; where no program fails alone, the
command runs the check.
"""
from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.oracle import checker
from conformance.protocol import Program, ProtocolError, shapes
from conformance.runner.explaining import described, whole
from conformance.runner.report import Result
from conformance.runner.subject import Failure, NotClaimed, Subject


@dataclass(frozen=True)
class Question:
    """A program, the tiers that are looked at, and the options that it runs with."""

    program: Program
    tiers: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def words(self) -> list[str]:
        """The options of the command that asks it."""
        words = [f"--tier={','.join(self.tiers) or 'values'}"]
        words += [f"--setting={name}={value}"
                  for name, value in self.options.get("settings", {}).items()]
        if "order_seed" in self.options:
            words.append(f"--order-seed={self.options['order_seed']}")
        return words + ["--poison"] * bool(self.options.get("poison"))


def options_of(settings: list[str], order_seed: int | None, poison: bool) -> dict[str, Any]:
    """What `Question.words` wrote.

    Raises:
        ValueError: a setting is no name with a number.
    """
    pairs = [each.partition("=") for each in settings]
    named = {name: int(value) for name, _, value in pairs}
    return {**({"settings": named} if named else {}),
            **({} if order_seed is None else {"order_seed": order_seed}),
            **({"poison": True} if poison else {})}


def wrong(subject: Subject, question: Question) -> str:
    """What is wrong with the answer to a question, or "": values, documents, orders."""
    try:
        shapes.check_program(question.program)
        seen = subject.check_values(question.program, *question.tiers, **question.options)
        found = [str(each) for document in seen.schedule for each in checker.check(document)]
        if "order" in question.tiers:
            found += [str(each) for document, order in zip(seen.schedule, seen.order, strict=False)
                      for each in checker.check_order(document, order)]
        return "; ".join(found[:4])
    except NotClaimed as reason:
        return f"it was not run: {reason}"
    except Failure as failure:
        return failure.message
    except ProtocolError as error:
        return str(error)
    except Exception as error:  # the implementation's own: it is the finding
        return f"{described(error)}\n{whole(error)}"


def confirmed(subject: Subject, result: Result) -> Result:
    """The result with a witness that fails alone, and the command; else the command of the check.

    A result of which nothing can be asked elsewhere is left as it is.
    """
    if not subject.command or not subject.shrinks:
        return result
    for question in _questions(subject, result):
        other = subject.elsewhere()
        try:
            if wrong(other, question):
                words = " ".join(map(shlex.quote, question.words()))
                return replace(result, witness=question.program, repro=(
                    f"python -m conformance run witness.json {subject.spec} {words}").rstrip())
        finally:
            other.close()
    alone = "\n(no program of it fails alone, in a new process; the command runs the whole check)"
    return replace(result, message=result.message + alone * (result.witness is not None), repro=(
        f"python -m conformance {subject.spec} --check {result.test} --profile {subject.profile} "
        f"--seed {subject.seed}"))


def _questions(subject: Subject, result: Result) -> list[Question]:
    """The witness as it was asked about last, and what was asked last of all."""
    asked = subject.asked
    found = [Question(*each) for each in asked[-1:]]
    if result.witness is not None:
        statements = result.witness["statements"]
        same = [Question(*each) for each in asked if each[0]["statements"] == statements]
        found = [*(same[-1:] or [Question(result.witness)]), *found]
    return [each for number, each in enumerate(found) if each not in found[:number]]
