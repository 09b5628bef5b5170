"""A few of torch's samples, and what the command says of them."""
from __future__ import annotations

import io

import pytest

from conformance.peers.report import Report
from impl import Context, Tensor

pytest.importorskip("torch")
pytest.importorskip("expecttest")


def test_samples_of_some_operators_give_what_torch_gives() -> None:
    from conformance.peers.samples import operators, run

    names = ["add", "nn.functional.glu", "linalg.inv", "median", "view_as_real", "isin"]
    report = Report()
    with Context(DEVICE="REFERENCE"):
        for operator in operators(names):
            run(operator, 3, report)
    shown = io.StringIO()
    report.show(shown)
    assert report.share() == 1 and report.totals()[0] >= 20, shown.getvalue()
    assert "apart  view_as_real" in shown.getvalue()
    assert "5 operators apply, 1 do not" in shown.getvalue()


def test_a_method_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.peers.samples import operators, run

    report = Report()
    # the values are right, and the gradient is not
    monkeypatch.setattr(Tensor, "sinh", lambda x: x.detach().exp() / 2 - (-x).exp() / 2)
    with Context(DEVICE="REFERENCE"):
        for operator in operators(["sinh"]):
            run(operator, 3, report)
    assert report.share() < 1 and "gradients differ" in str(report.failed["sinh"])


def test_second_derivatives_of_some_operators_are_those_of_torch(
        monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.peers.samples import operators
    from conformance.peers.slopes import judge

    rows = {operator.name: judge(operator, 1) for operator in operators(
        ["sinh", "nn.functional.glu", "linalg.qr", "cumprod"])}
    assert len(rows) == 4
    for row in rows.values():
        assert row is not None and row.samples == 1 and not row.failed, str(row)
        assert row.torch == row.differences == [1, 1]
    # the first derivative is right, and has none itself
    monkeypatch.setattr(Tensor, "sinh", lambda x: (
        x.cosh().detach() * (x - x.detach()) + x.detach().exp() / 2 - (-x).detach().exp() / 2))
    operator, = operators(["sinh"])
    row = judge(operator, 1)
    assert row is not None and row.torch == [1, 0] and "order 2" in row.failed[0]
