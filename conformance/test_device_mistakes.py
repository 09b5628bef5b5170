"""Mistakes made in the runtime of devices are found by the tests that cite their rules."""
from __future__ import annotations

import pytest

from conformance import emulation
from conformance.saboteurs.impl_patches import ImplPatch, all_patches, killer
from conformance.test_cuda import MISSING
from impl.opencl import opencl_problem

#: Why the tests of a chapter cannot run here.
_WITHOUT = {"cuda": MISSING or emulation.unavailable(), "metal": emulation.unavailable(),
            "opencl": opencl_problem(), "device": opencl_problem()}


@pytest.mark.slow
@pytest.mark.parametrize("saboteur", [
    each for each in all_patches() if type(each).__module__.endswith("impl_devices")],
    ids=lambda each: type(each).__name__)
def test_each_mistake_is_found(saboteur: ImplPatch) -> None:
    if reason := _WITHOUT[saboteur.rule.split(".")[0]]:
        pytest.skip(reason)
    assert killer(saboteur), f"nobody finds out that {saboteur.description}"
