"""Nothing is said against other ways to be right; what is not done cannot be verified."""
from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from conformance import protocol
from conformance.protocol import Array, Info, Statement
from conformance.runner.checks import collect, run_check
from conformance.runner.report import BAD, Result
from conformance.runner.subject import Subject
from conformance.saboteurs import right
from conformance.saboteurs.right import RIGHT, Adapter
from conformance.trace import verifies

#: Whose checks see decisions of a scheduler, and whose see what numbers are.
SCHEDULING = ("effects", "fusion", "placement", "dependencies", "ordering", "memory", "caching",
              "schedule", "realize", "replay")
NUMBERS = ("conventions", "statements", "digits", "sizes", "dtypes", "tensor")
#: Those that decide otherwise about schedules; the others compute otherwise.
SCHEDULERS = (right.Eager, right.FusesAll, right.FusesNothing, right.Recomputes,
              right.NeverInPlace)


def results(which: type[Adapter], chapters: tuple[str, ...], name: str = "") -> list[Result]:
    subject = Subject(which(), "", [], "smoke")
    subject.shrinks = False
    return [run_check(subject, check, subject.info.observes, ()) for check in collect(chapters)
            if name in check.name and "process" not in check.name]


@pytest.mark.slow
@pytest.mark.parametrize("which", RIGHT[1:], ids=lambda each: each.__name__)
def test_nothing_is_said_against_other_ways_to_be_right(which: type[Adapter]) -> None:
    found = results(which, SCHEDULING if which in SCHEDULERS else NUMBERS)
    assert not [each for each in found if each.verdict in BAD]
    verdicts = {each.verdict for each in found}
    assert "pass" in verdicts and ("inconclusive" in verdicts) <= (which in SCHEDULERS)
    assert sum(each.examples for each in found) > 50


def given(name: str, elements: Array) -> Statement:
    return {"do": "input", "to": name, "dtype": elements.dtype.name,
            "shape": list(elements.shape), "data": protocol.encode(elements)}


def shown(which: type[Adapter]) -> str:
    """What it says of itself, and shows of a program in which much is left open."""
    random = np.random.default_rng(0)
    floats = {"x": [1e10, -1e10, np.nan, 0.0, 2.5, -0.0], "zero": [0.0] * 6, "tiny": [1e-40] * 6,
              "long": random.standard_normal(3000), "other": random.standard_normal(3000)}
    statements = [
        *(given(name, np.array(each, np.float32)) for name, each in floats.items()),
        given("at", np.array([0, -2], np.int32)),
        {"do": "cast", "to": "whole", "from": ["x"], "dtype": "int8"},
        {"do": "div", "to": "quotient", "from": ["x", "zero"]},
        {"do": "add", "to": "double", "from": ["tiny", "tiny"]},
        {"do": "gather", "to": "rows", "from": ["x", "at"]},
        {"do": "sum", "to": "total", "from": ["long"], "axes": [0], "keepdims": False},
        {"do": "mul", "to": "product", "from": ["long", "other"]},
        {"do": "add", "to": "once", "from": ["product", "long"]},
        {"do": "sum", "to": "again", "from": ["product"], "axes": [0], "keepdims": False},
        {"do": "drop", "names": ["product"]}, {"do": "store", "target": "x", "from": ["zero"]},
        {"do": "observe", "names": ["whole", "quotient", "double", "rows", "total", "once",
                                    "again", "x"]}]
    runtime = which()
    if which in (right.OnlySingles, right.FewStatements):
        return str(runtime.info())
    seen = runtime.run(protocol.program(statements), runtime.info().observes)
    return str(runtime.info()) + json.dumps(seen.to_json())


def test_they_are_different() -> None:
    assert len({shown(each) for each in RIGHT}) == len(RIGHT)


@verifies("conventions.subnormal.kept+2")
def test_who_takes_subnormals_for_zero_says_so() -> None:
    class InSilence(right.Flushes):
        def info(self) -> Info:
            return replace(super().info(), choices={})

    silent, said = (results(each, ("conventions", "digits"), "subnormal")
                    for each in (InSilence, right.Flushes))
    assert [each.verdict for each in silent] == ["fail"] * 4
    assert [each.verdict for each in said] == ["unsupported", *["pass"] * 3]
