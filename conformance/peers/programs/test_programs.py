"""Programs of PyTorch's users run with other imports; all of them by the command."""
from __future__ import annotations

import pytest

from conformance.peers.programs import CHANGED, PROGRAMS, ported
from impl.settings import Context


def test_every_line_that_changes_is_in_its_program() -> None:
    assert len(PROGRAMS) == 10 and set(CHANGED) <= set(PROGRAMS)
    for name in PROGRAMS:
        text = ported(name)
        compile(text, name, "exec")
        assert "import impl.torch" in text and len(CHANGED.get(name, {})) <= 5


@pytest.mark.parametrize("name", ["graph_network", "principal_components"])
def test_a_program_of_torch_does_here_what_it_checks(name: str) -> None:
    with Context(DEVICE="REFERENCE"):
        exec(compile(ported(name), name, "exec"), {"__name__": name})
