"""Every statement after every other one, on every kind of value.  Chapter: spec/statements.md."""

from __future__ import annotations

from conformance.generators import grammar
from conformance.runner.subject import Subject, tiers_of
from conformance.suite import after, verifies


@verifies("statements.kind.any")
@after("conventions.value.eager")
def test_each_statement_after_each_other_one(subject: Subject) -> None:
    """What each makes, of all dtypes, ranks and sizes, is read by all others and written to."""
    for _, program in subject.part(list(grammar.stars()), at_least=6):
        subject.check_declared(program, *tiers_of(subject, program))
