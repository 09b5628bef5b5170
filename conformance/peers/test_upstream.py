"""Reports for other projects: each is the witness that it is about, and the table counts them."""
from __future__ import annotations

from pathlib import Path

import pytest

from conformance.peers import upstream

PAGES = sorted(each for each in upstream.REPORTS.glob("*.md") if each.stem != "index")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_report_is_the_witness_that_it_is_about(page: Path) -> None:
    sections = page.read_text(encoding="utf-8").split("\n## ")[1:]
    witnesses = sorted((upstream.WITNESSES / page.stem).glob("*.py"))
    assert len(sections) == len(witnesses) > 0
    for witness, section in zip(witnesses, sections, strict=True):
        printed = section.rsplit("```text\n", 1)[1].removesuffix("\n```\n").strip("`\n")
        assert printed.startswith("expected "), witness
        assert f"## {section}".strip() == upstream.section(witness, printed).strip()


def test_the_table_counts_the_reports() -> None:
    assert (upstream.REPORTS / "index.md").read_text(encoding="utf-8") == upstream.index()
