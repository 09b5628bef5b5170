"""Random kernels under random lists of steps, against no steps. Chapter: spec/steps.md."""
from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels import step_kernels, step_lists
from conformance.kernels.kernel_programs import PROGRAMS
from conformance.kernels.step_lists import (
    Profile,
    WrongStep,
    cases,
    check,
    difference,
    legal,
    places,
)
from conformance.trace import verifies
from impl import Context, Tensor
from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.kernel import Analysis, buffer_key
from impl.steps import OF_LANES, STEPS, Own, Step, StepError, Upcast, step_parameters
from impl.steps.step import ASKED_FOR


@verifies("steps.value.equal")
@verifies("steps.loop.numbers")
@verifies("steps.name.parsed")
@verifies("steps.legal.refused")
def test_drawn_lists_keep_the_values_of_all_kinds_of_kernels() -> None:
    made, failed = check(range(70), devices=("REFERENCE",))
    assert not failed, "\n".join(map(str, failed))
    assert {trial.name for trial in made} >= {name for name, _ in PROGRAMS}


@verifies("steps.value.equal")
@verifies("kernel.order.stores")
def test_stages_that_overwrite_what_others_read_are_drawn() -> None:
    """Some store what a later stage reads, some what an earlier one has read, and some both."""
    seen = set[tuple[bool, bool]]()
    for seed in range(60):
        ast, arrays = step_kernels.overwriting(seed)
        reads = [{buffer_key(n.src[0].src[0]) for n in store.src[1].toposort()
                  if n.op is Ops.LOAD} for store in ast.src]
        stores = [buffer_key(store.src[0].src[0]) for store in ast.src]
        pairs = list(itertools.combinations(range(len(stores)), 2))
        seen.add((any(stores[i] in reads[j] for i, j in pairs),
                  any(stores[j] in reads[i] for i, j in pairs)))
        assert all(array.dtype == np.int32 for array in arrays)
    assert len(seen) == 4
    assert any(case.name == "overwriting" for seed in range(40) for case in cases(seed))


@pytest.mark.device("CPU")
@verifies("steps.value.equal")
@verifies("cpu.values.reference")
def test_drawn_lists_keep_the_values_of_compiled_kernels() -> None:
    made, failed = check(range(1000, 1008), lists=1, devices=("CPU",))
    assert not failed, "\n".join(map(str, failed))
    assert len(made) > 10


def owned(ast: UOp) -> UOp:
    """The kernel whose stages own all loops that they can."""
    while ast.arg.prefix and (made := legal(ast, Own(len(ast.arg.prefix) - 1))) is not None:
        ast = made
    return ast


@pytest.mark.slow
def test_every_kind_of_step_is_drawn_taken_and_refused() -> None:
    """A kind that no drawn list can take would be a kind that nothing here tries."""
    wanted = [name for name in STEPS if name not in (*OF_LANES, *ASKED_FOR)]  # elsewhere
    taken: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    draw, missing = random.Random(0), wanted
    for case in itertools.chain.from_iterable(map(cases, range(250))):
        count = len(Analysis(case.ast).ranges)
        tried = (legal(case.ast, Upcast(axis, draw.choice((2, 3, 4, 5))))
                 for axis in draw.sample(range(count), count))
        lanes = next((found for found in tried if found is not None), case.ast)
        # Some steps want a lane, some the loops of a stage.
        starts = (case.ast, lanes, owned(case.ast))
        for name, ast in itertools.product(missing * 40, starts):
            step = step_lists.drawn_step(Analysis(ast), draw, name)
            (refused if legal(ast, step) is None else taken)[name] += 1
        missing = [name for name in wanted if not taken[name] or not refused[name]]
        if not missing:
            break
    assert not missing, (taken, refused)


def test_what_a_kernel_overwrites_lies_as_it_did() -> None:
    """Memory that an argument shares with another one is shared in the trial too."""
    found = [case for seed in range(60) for case in cases(seed) if case.name == "in_place"]
    assert any((case.arguments[0].before != case.arguments[0].after).any() for case in found)
    with Context(DEVICE="REFERENCE"):
        memory = step_lists.ensure_memory(_buffer(Tensor(np.arange(64, dtype=np.int32)).realize()))
    parts = [memory.part(64, 64), memory.part(0, 32), memory.part(96, 32)]
    assert places(parts) == [(1, 0), (0, 0), (1, 32)]


def _buffer(tensor: Tensor) -> step_lists.Any:
    return tensor.uop.arg[0]


def test_a_difference_is_told_apart_from_rounding() -> None:
    one = np.array([1000, 1, np.nan, np.inf], np.float32)
    assert not difference(one, one + np.float32(1e-3), dtypes.float32)
    for place, value in ((0, 1001), (1, 0), (2, 0), (3, -np.inf), (3, np.nan), (0, np.nan)):
        other = one.copy()
        other[place] = value
        assert difference(one, other, dtypes.float32).startswith("1 of 4")
    assert difference(np.array([1, 2], np.int8), np.array([1, 3], np.int8), dtypes.int8)
    assert difference(np.array([True]), np.array([False]), dtypes.bool)



@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "unrecorded", "unnamed", "no kernel", "other values"])
def test_a_step_that_goes_wrong_is_found(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Upcast.apply

    def apply(self: Upcast, known: Analysis) -> UOp:
        if how == "raises":
            raise ValueError("oh")
        if how == "unnamed":
            raise StepError("SOMETHING", "is wrong", "do otherwise")
        ast = plain(self, known)
        if how == "unrecorded":
            return UOp(ast.op, ast.dtype, ast.src, known.info)
        if how == "no kernel":
            return UOp(ast.op, ast.dtype, tuple(store.replace(src=store.src[:2])
                                                for store in ast.src), ast.arg)
        return UOp(ast.op, ast.dtype, ast.src[:-1], ast.arg)

    monkeypatch.setattr(Upcast, "apply", apply)
    _, failed = check(range(40), devices=("REFERENCE",))
    assert failed and all(trial.problem for trial in failed)
    if how == "other values":
        assert any(len(trial.steps) == 1 for trial in failed)
    else:
        with pytest.raises(WrongStep):
            legal(kb.matmul(8, 8, 8), Upcast(1, 4))


@pytest.mark.device("CPU")
@verifies("steps.value.equal")
def test_a_run_writes_what_it_tried(request: pytest.FixtureRequest, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lists or more; ten thousand with --profile long."""
    report, long = tmp_path / "steps.json", request.config.option.profile == "long"
    if not long:
        monkeypatch.setattr(step_lists, "SEEDS_OF_A_PROCESS", 2)
    count = 10_000 if long else 2
    run = Profile(seed=request.config.option.seed + 7, count=count, report=report,
                  lists=2 if long else 1, processes=2)
    assert run.run(), run.failures
    found = json.loads(report.read_text())
    assert found["complete"] and found["lists"] == count and found["steps"]
    assert not found["failures"]


@pytest.mark.device("CPU")
def test_a_process_that_dies_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "steps.json"
    monkeypatch.setattr(step_lists, "SECONDS_OF_A_PROCESS", 0.01)
    assert not Profile(seed=7, count=1, report=report).run()
    assert "the process died" in json.loads(report.read_text())["failures"][0]


@verifies("steps.name.parsed")
def test_numbers_have_names_that_say_what_to_draw() -> None:
    for name in STEPS:
        assert all(parameter.isidentifier() for parameter in step_parameters(name))


@pytest.mark.device("CPU")
@verifies("steps.value.equal")
@pytest.mark.parametrize("name", ["UNROLL(0,4)", "GROUP(0,4)"])
def test_elements_of_a_vector_of_bools_are_taken_one_by_one(name: str) -> None:
    """A vector of bools is no vector in C: a reduction over its lanes could not find it."""
    k = kb.new_range(16, kb.REDUCE)
    value = kb.apply(kb.Ops.CAST, kb.load(kb.param(1), k), dtype=dtypes.bool)
    ast = kb.kernel(kb.store(kb.param(0, dtypes.bool), 0, kb.reduce(kb.Ops.MAXIMUM, value, k)))
    for last in (0, 1):
        given, out = np.array([0] * 15 + [last], np.float32), np.array([last == 0])
        with Context(NOOPT=1):
            kb.run(step_lists.apply_steps(ast, [Step.parse(name)]), out, given)
        assert out[0] == bool(last)
