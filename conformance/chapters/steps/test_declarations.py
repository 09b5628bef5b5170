"""What steps declare is what they check, and what the chapter's table says. Chapter: spec/steps.md.

Each trace of a step is made in a kernel by that step itself.
"""
from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.step_kernels import product
from conformance.trace import ROOT, verifies
from impl.dtypes import dtypes
from impl.groups import TC, Inner, Local, Pipeline, Warp
from impl.ir import RangeKind, UOp
from impl.kernel import Analysis
from impl.steps import (
    DECLARED,
    OF_LANES,
    STEPS,
    Step,
    StepError,
    Thread,
    apply_steps,
    step_parameters,
)
from impl.steps.declaration import Declaration, Trace
from impl.steps.step import ASKED_FOR
from impl.steps.table import renewed, table


def with_unit(*more: Step) -> UOp:
    """A product by a unit of a GPU, in several parts."""
    return apply_steps(product(dtypes.float16, 1, 32, 32, 64),
                       [Inner(2, 32), Inner(1, 32), TC(3, 0, 16, 1, 1), *more])


def block_loop(ast: UOp) -> int:
    kinds = [loop.arg[1] for loop in Analysis(ast).ranges]
    return kinds.index(RangeKind.BLOCK)


#: A kernel with each trace.
WITH: dict[Trace, Callable[[], UOp]] = {
    Trace.UNIT: with_unit,
    Trace.EXCHANGE: lambda: apply_steps(kb.matmul(4, 4, 128), [Warp(2, 32, 32)]),
    Trace.LANES: lambda: apply_steps(kb.matmul(8, 8, 64), [Local(2, 8)]),
    Trace.THREADS: lambda: apply_steps(kb.matmul(8, 8, 64), [Thread(0, 2)]),
    Trace.EARLY: lambda: with_unit(Pipeline(block_loop(with_unit()), 2))}


def loop_of(ast: UOp, declared: Declaration, legal: bool = True) -> int | None:
    """The first loop of a kind that a step takes, or of one that it does not."""
    return next((place for place, loop in enumerate(Analysis(ast).ranges)
                 if (loop.arg[1] in declared.loops) is legal), None)


def numbers(name: str) -> list[int]:
    """Numbers of which none is wrong by itself."""
    return [{"amount": 2, "other": 1}.get(each, 1) for each in step_parameters(name)[1:]]


@verifies("steps.declaration.single")
@pytest.mark.parametrize("trace", Trace, ids=lambda trace: trace.name)
def test_a_step_does_not_follow_what_it_declares(trace: Trace) -> None:
    ast = WITH[trace]()
    known = Analysis(ast)
    assert trace.is_in(known)
    assert not trace.is_in(Analysis(kb.matmul(8, 8, 64)))
    names = [name for name, declared in DECLARED.items() if trace in declared.not_after]
    assert names
    tried = 0
    for name in names:
        axis = loop_of(ast, DECLARED[name])
        if axis is None or DECLARED[name].not_after[0] is not trace:
            continue
        tried += 1
        with pytest.raises(StepError) as error:
            STEPS[name](axis, *numbers(name)).apply(known)
        assert trace.detail in str(error.value)
        assert f"before {trace.left_by}" in str(error.value)
    assert tried or trace is Trace.UNIT  # whoever could follow a unit has no loop there


@verifies("steps.declaration.single")
@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_takes_loops_of_the_kinds_that_it_declares(name: str) -> None:
    refused = 0
    for ast in (kb.matmul(8, 8, 64), kb.softmax(8, 64), with_unit()):
        axis = loop_of(ast, DECLARED[name], legal=False)
        if axis is not None:
            refused += 1
            kind = Analysis(ast).ranges[axis].arg[1].name
            with pytest.raises(StepError, match=f"is a {kind} loop"):
                STEPS[name](axis, *numbers(name)).apply(Analysis(ast))
    assert refused


@verifies("steps.declaration.single")
@pytest.mark.parametrize("name", sorted(n for n, declared in DECLARED.items() if declared.amount))
def test_an_amount_is_what_a_step_declares(name: str) -> None:
    amount = DECLARED[name].amount
    assert amount is not None
    if RangeKind.BLOCK in DECLARED[name].loops:
        return  # no such loop has another extent than its step gave it
    ast = kb.matmul(6, 6, 6)
    axis = loop_of(ast, DECLARED[name])
    assert axis is not None
    wrong = [amount.least - 1, 7, *([6] if amount.below else []), *([4] if amount.divides else [])]
    for number in wrong:
        with pytest.raises(StepError, match="the loop has 6 iterations"):
            STEPS[name](axis, number).apply(Analysis(ast))


@verifies("steps.declaration.single")
def test_lists_of_steps_are_what_they_declare() -> None:
    assert set(DECLARED) == set(STEPS)
    assert set(OF_LANES) == {name for name, each in DECLARED.items() if each.instead}
    assert set(ASKED_FOR) == {name for name, each in DECLARED.items() if each.asked}
    assert "ONLINE" in ASKED_FOR
    for name, declared in DECLARED.items():
        assert declared.does and declared.why and declared.loops, name
        assert not set(declared.loops) & {RangeKind.LANE, RangeKind.THREAD}
        assert "amount" in step_parameters(name) or declared.amount is None


@verifies("steps.declaration.single")
def test_the_table_of_the_chapter_is_what_the_steps_declare() -> None:
    text = (ROOT / "spec" / "steps.md").read_text(encoding="utf-8")
    assert table() in text, "run `python -m impl.steps.table renew`"
    assert renewed(text) == text == renewed(re.sub(r"^\| `UPCAST.*\n", "", text, flags=re.M))
    assert sum(line.count("(axis") for line in table().splitlines()) >= len(STEPS)
    printed = subprocess.run([sys.executable, "-m", "impl.steps.table"], cwd=ROOT, text=True,
                             capture_output=True, check=True).stdout
    assert printed.strip() == table().strip()  # a process that has imported nothing else
