"""The tests of process replay find the mistakes that were made for them."""
from __future__ import annotations

import pytest

from conformance.saboteurs.impl_patches import ImplPatch, all_patches, killer


@pytest.mark.parametrize("saboteur", all_patches("playback"), ids=lambda s: type(s).__name__)
def test_a_mistake_is_found(saboteur: ImplPatch) -> None:
    assert killer(saboteur), saboteur.description
