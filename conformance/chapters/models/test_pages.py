"""The pages on models: their examples run."""
from __future__ import annotations

import pytest

from conformance.house.test_examples import run_text
from conformance.trace import ROOT
from impl import Context


@pytest.mark.slow
@pytest.mark.parametrize(("name", "blocks"), [
    ("api/models.md", 2), ("gpt2.md", 5), ("writing.md", 7), ("language-models.md", 5),
    ("sentences.md", 3), ("pictures.md", 3), ("speech.md", 3), ("diffusion.md", 3)])
def test_the_examples_of_the_pages_run(name: str, blocks: int) -> None:
    page = ROOT / "docs" / name
    if page.exists():
        with Context(DEVICE="REFERENCE"):
            assert run_text(page.read_text(encoding="utf-8"), str(page)) == blocks
