"""Lists of steps that kernels ask for, and reasons. Chapter: spec/searching.md."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.trace import verifies
from impl import Context
from impl.choosing import hand_steps
from impl.device import Device
from impl.kernel import DeviceLimits
from impl.searching import optimize, with_steps
from impl.steps import (
    OF_GROUPS,
    STEPS,
    Split,
    Step,
    StepError,
)


@verifies("searching.asked.steps+2")
def test_steps_of_work_groups_are_refused_with_what_to_do_instead() -> None:
    for text in ("NOLOCALS", "nolocals()"):
        with pytest.raises(StepError, match="no step") as caught:
            Step.parse(text)
        assert text in str(caught.value) and "Remedy: use " in str(caught.value)
    for text in ("LOCAL(0,16)", "GRID(2,8)"):
        with pytest.raises(StepError, match="work-groups") as caught:
            Device["CPU"].optimized(with_steps(kb.matmul(16, 16, 16), [text]))
        assert text in str(caught.value) and "Remedy: use THREAD" in str(caught.value).replace(
            "UPCAST for lanes, ", "")
    with pytest.raises(StepError, match=r"work-groups.*Remedy: use UPCAST both loops"):
        Device["CPU"].optimized(with_steps(kb.matmul(16, 16, 16), ["TC(2,0,16,1,1)"]))
    assert not set(OF_GROUPS) & set(STEPS)
    assert {*OF_GROUPS, *STEPS} >= {"UNROLL", "UPCAST", "LOCAL", "GROUP", "TC", "SWAP", "PADTO",
                                    "NOLOCALS"}


@verifies("searching.asked.steps+2")
def test_a_kernel_gets_the_steps_that_it_asks_for() -> None:
    product = kb.matmul(16, 32, 8)
    a, b = np.ones((16, 8), np.float32), np.ones((8, 32), np.float32)
    lists: list[list[str | Step]] = [[], ["PADTO(2,5)"], ["SWAP(0,1)", Split(2, 2), "UPCAST(0,4)"]]
    for asked in lists:
        ast = with_steps(product, asked)
        wanted = tuple(step if isinstance(step, str) else step.name for step in asked)
        assert optimize(ast).arg.steps == wanted
        program, out = Device["CPU"].compile([ast])[0], np.zeros((16, 32), np.float32)
        kb.launch(program, out, a, b)
        assert program.steps == wanted and (out == 8).all()
    assert optimize(product).arg.steps not in ((), wanted)
    for bad, match in (("UPCAST(2,2)", "REDUCE"), ("OWN()", "numbers"), ("THIS(1)", "not a step")):
        with pytest.raises(StepError, match=match):
            Device["CPU"].compile([with_steps(product, ["SWAP(0,1)", bad])])


@verifies("searching.reason.given")
def test_every_step_has_a_reason() -> None:
    limits = DeviceLimits(vector_bytes=64, vector_registers=32)
    for ast in (kb.matmul(64, 64, 64), kb.softmax(8, 64), kb.matmul(17, 33, 65, True)):
        found = optimize(ast, limits).arg
        assert found.steps and len(found.reasons) == len(found.steps) and all(found.reasons)
        assert found.reasons == tuple(reason for _, reason in hand_steps(ast, limits))
    assert optimize(with_steps(kb.matmul(4, 4, 4), ["UPCAST(0,2)"])).arg.reasons == ("asked for",)


@verifies("searching.noopt.plain")
def test_noopt_leaves_kernels_as_they_are() -> None:
    for ast in (kb.matmul(32, 32, 32), kb.softmax(8, 64)):
        with Context(NOOPT=1):
            plain = Device["CPU"].compile([ast])[0]
        assert plain.optimized is ast and plain.steps == ()
        assert Device["CPU"].compile([ast])[0].steps != ()
