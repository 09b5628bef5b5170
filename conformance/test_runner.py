"""A run of the suite: what it demands of a check, what it writes down, and how it ends."""
from __future__ import annotations

from collections.abc import Collection

import pytest

from conformance.protocol import Adapter, Info, Observation, Options, Program
from conformance.runner import Check, collect, run_check
from conformance.saboteurs.__main__ import DEMO
from conformance.subject import Subject


class SaysNothing:
    """A right implementation that claims every tier, but nothing ever happens in its schedules."""

    def __init__(self, adapter: Adapter, manner: str) -> None:
        self.adapter, self.manner = adapter, manner

    def info(self) -> Info:
        return self.adapter.info()

    def reset(self) -> None:
        self.adapter.reset()

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        seen = self.adapter.run(program, observe, options or {})
        if self.manner == "no documents":
            seen.schedule = []
        for document in seen.schedule:
            document.update(kernels=[], dependencies=[], order=[], boundaries=[])
            if "memory" in document:
                document["memory"].update(placements=[], arenas=[], planned=0, unplanned=0,
                                          lower_bound=0)
        return seen

    def close(self) -> None:
        getattr(self.adapter, "close", lambda: None)()


SCHEDULED = [check for check in collect() if check.tier in ("schedule", "order", "memory")]
#: What these ask about is not in the schedules that say nothing; the others are about plans.
OF_PLANS = [check for check in collect() if check.tier == "cache"]


@pytest.mark.parametrize("manner", ["no documents", "empty documents"])
def test_a_rule_whose_condition_never_occurs_is_not_passed(manner: str) -> None:
    """It has not been verified: there was nothing that could have broken it."""
    subject = Subject.of(command=DEMO)
    subject.wrap = lambda adapter: SaysNothing(adapter, manner)
    subject.adapter = subject.wrap(subject.adapter)
    try:
        checks: list[Check] = SCHEDULED + (OF_PLANS if manner == "no documents" else [])
        passed = [check.name for check in checks
                  if run_check(subject, check, subject.info.observes, ()).verdict == "pass"]
    finally:
        subject.close()
    assert len(checks) > 12 and not passed
