"""Every saboteur of the suite is killed by a check that cites the rule it breaks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conformance.runner.checks import Check, collect
from conformance.saboteurs import Saboteur, all_saboteurs
from conformance.saboteurs.__main__ import killers


@pytest.fixture(scope="module")
def checks() -> Sequence[Check]:
    return collect()


@pytest.mark.slow
@pytest.mark.parametrize("saboteur", all_saboteurs(), ids=lambda each: type(each).__name__)
def test_a_check_of_its_rule_kills_it(saboteur: Saboteur, checks: Sequence[Check]) -> None:
    assert saboteur.description
    assert killers(saboteur, checks), f"nothing finds out that {saboteur.description}"
