"""Node tests of ONNX of some operators, and what the command says of them."""
from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("onnx")

from conformance.peers import onnx_nodes  # noqa: E402
from impl import Context  # noqa: E402

#: Modules of the package that are read: a few operators of each kind.
MODULES = ("softmax", "gemm", "lstm", "loop", "if_", "layernormalization", "conv",
           "resize", "quantizelinear", "scan", "slice", "scatternd", "gridsample", "reducemax",
           "rotaryembedding", "center_crop_pad", "nonmaxsuppression", "stringnormalizer")


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    found = onnx_nodes.cases(modules=MODULES)
    assert len(found) > 120
    return found


def test_tests_of_some_operators_pass(cases: list[Any]) -> None:
    with Context(DEVICE="REFERENCE"):
        told = {case.name: onnx_nodes.judge(case, onnx_nodes.RUNTIMES["impl"]) for case in cases
                if onnx_nodes.apart(case) is None and "expanded" not in case.name}
    assert {name: why for name, why in told.items() if why} == {} and len(told) > 100


def test_wrong_answers_are_told(cases: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases if case.name == "test_softmax_axis_1")

    def wrong(change: Any) -> str:
        with Context(DEVICE="REFERENCE"):
            return onnx_nodes.judge(case, lambda content: lambda given: [change(
                each) for each in onnx_nodes._of_impl(content)(given)])

    assert wrong(lambda x: x) == ""
    assert "Not equal" in wrong(lambda x: x + 1e-2)
    assert "in place of (3, 4, 5)" in wrong(lambda x: x.reshape(-1))
    assert "float64 in place of float32" in wrong(lambda x: x.astype("float64"))
    wanted = case.data_sets[0][1][0]
    monkeypatch.setattr(case, "data_sets", [(case.data_sets[0][0], [wanted * 2])])
    assert "Not equal" in wrong(lambda x: x)


def test_what_does_not_apply_never_passes(cases: list[Any]) -> None:
    texts = [case for case in cases if case.name.startswith("test_strnormalizer")]
    assert texts and {onnx_nodes.apart(case) for case in texts} == {"texts"}
    answers = {"impl": {"test_a": "", "test_b": "AssertionError: no; at x.py:1. Remedy: y"}}
    report = onnx_nodes.report_of(answers, {"test_c": "texts"})
    assert report["apply"] == 2 and report["passed"] == {"impl": 1}
    assert report["apart"] == {"texts": 1}
    assert report["failed"]["impl"] == {"test_b": "AssertionError: no"}


def test_the_committed_report_gives_a_reason_for_each_test_that_fails() -> None:
    report = json.loads(onnx_nodes.REPORT.read_text(encoding="utf-8"))
    assert set(report["failed"]["impl"]) == set(report["known"]) == set(onnx_nodes.KNOWN)
    for name, passed in report["passed"].items():
        assert passed + len(report["failed"][name]) == report["apply"]
    assert report["passed"]["impl"] >= 0.98 * report["apply"]
