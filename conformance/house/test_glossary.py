"""The glossary has each term once, in order, and the chapter that it names uses the term."""
from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from conformance.trace import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| ([a-z -]+) \| (.+) \| \[(\w+)\]\(\.\./(spec/\w+\.md)\) \|$", re.M)

pytestmark = pytest.mark.skipif(not GLOSSARY.exists(), reason="needs a source checkout")


def rows() -> Iterator[tuple[str, str, str, str]]:
    yield from ROW.findall(GLOSSARY.read_text(encoding="utf-8"))


def test_each_term_stands_once_and_in_order() -> None:
    terms = [term for term, *_ in rows()]
    assert len(terms) > 50
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(("term", "meaning", "chapter", "file"), [
    pytest.param(*row, id=row[0]) for row in (rows() if GLOSSARY.exists() else ())])
def test_a_chapter_uses_its_terms(term: str, meaning: str, chapter: str, file: str) -> None:
    text = " ".join((ROOT / file).read_text(encoding="utf-8").lower().split())
    assert file == f"spec/{chapter}.md"
    assert meaning
    stem = term.removesuffix("ing over").removesuffix("e").removesuffix("y")
    assert re.search(rf"\b{re.escape(stem)}", text), f"{file} never speaks of {term}"
