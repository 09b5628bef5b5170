"""The checker at work on `impl`: with SPEC=1 every schedule that it makes is checked.

    SPEC=1 pytest
    SPEC=1 python -m conformance fuzz --count 1000

A schedule with a finding is an error where it is made, before any of its kernels runs.
"""

from __future__ import annotations

from conformance.oracle import checker
from conformance.protocol import Document


class WrongSchedule(AssertionError):
    """The checker found something in a schedule."""


def refuse(document: Document) -> None:
    """Raise WrongSchedule if anything is wrong with a document."""
    findings = checker.check(document)
    if findings:
        raise WrongSchedule("; ".join(map(str, findings[:4])))


def watch() -> None:
    """Have every schedule checked that `impl` makes in this process with SPEC=1."""
    from impl.realize import session  # only now: others are tested without it

    if refuse not in session.checkers:
        session.checkers.append(refuse)
