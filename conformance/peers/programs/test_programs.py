"""Programs of PyTorch's users run with other imports; all of them by the command."""
from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout

import pytest

from conformance.peers.programs import CHANGED, PROGRAMS, differences, ported, printed
from impl.settings import Context


def test_every_line_that_changes_is_in_its_program() -> None:
    assert len(PROGRAMS) == 20 and set(CHANGED) <= set(PROGRAMS)
    for name in PROGRAMS:
        text = ported(name)
        compile(text, name, "exec")
        assert "impl.torch" in text and len(CHANGED.get(name, {})) <= 5
    assert sum(bool(printed(name)) for name in PROGRAMS) == 10


def test_numbers_are_compared_line_by_line() -> None:
    assert not differences("loss 1.23456 at 3\nx -2e-05", "loss 1.23457 at 3\ny -1e-05")
    assert len(differences("loss 1.2346\nx 2", "loss 1.2350\nx 2")) == 1
    assert differences("x", "x\ny") and differences("x 1", "x 1 2") and differences("nan", "1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graph_network", "principal_components"])
def test_a_program_of_torch_does_here_what_it_checks(name: str,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    said = io.StringIO()
    with Context(DEVICE="REFERENCE"), redirect_stdout(said):
        exec(compile(ported(name), name, "exec"), {"__name__": "__main__"})
    assert not printed(name) or not differences(said.getvalue(), printed(name))
