"""Every saboteur is killed by a check that cites the rule it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conformance.runner import Check, collect
from conformance.saboteurs import Saboteur, all_saboteurs
from conformance.saboteurs.__main__ import killers
from conformance.saboteurs.impl_patches import ImplPatch, all_patches, killer


@pytest.fixture(scope="module")
def checks() -> Sequence[Check]:
    return collect()


@pytest.mark.parametrize("saboteur", all_saboteurs(), ids=lambda each: type(each).__name__)
def test_a_check_of_its_rule_kills_it(saboteur: Saboteur, checks: Sequence[Check]) -> None:
    assert saboteur.description
    assert killers(saboteur, checks), f"nothing finds out that {saboteur.description}"


@pytest.mark.device("CPU")
@pytest.mark.parametrize("saboteur", [each for chapter in ("render", "cpu", "inspect", "errors")
                                      for each in all_patches(chapter)],
                         ids=lambda each: type(each).__name__)
def test_a_white_box_test_of_its_rule_kills_it(saboteur: ImplPatch) -> None:
    """Those of chapters whose own tests do not ask for it."""
    assert saboteur.description
    assert killer(saboteur), f"nothing finds out that {saboteur.description}"


class _Misfit(ImplPatch):
    rule = "ordering.peak.not-worse"
    target = "impl.ordering:linearize"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda: original


def test_a_saboteur_that_does_not_fit_the_code_has_not_been_found() -> None:
    """Else any test would do, and nobody would see that none looks for the mistake any more."""
    with pytest.raises(TypeError):
        killer(_Misfit())
