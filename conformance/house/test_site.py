"""All pages of a built site, and reports, in Chromium: no serious fault for anybody.

Slow, so only where it is asked for: SITE is the folder that `mkdocs build` wrote, AXE the file
axe.min.js (`npm install axe-core` in a folder of its own).
"""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.chapters.export.browser import CHROMIUM
from conformance.chapters.export.devtools import Browser, opened, served
from conformance.chapters.inspect.test_inspect import chain, training_step
from conformance.chapters.inspect.test_viewer import network
from impl import inspect

SITE, AXE = os.environ.get("SITE", ""), os.environ.get("AXE", "")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium"),
    pytest.mark.skipif(not Path(AXE).is_file(), reason="AXE is not the file axe.min.js")]


#: The faults that axe finds on a page, those that matter.
_FAULTS = (f"axe.run(document, {{preload: false, runOnly: {TAGS}, resultTypes: ['violations']}})"
           ".then((found) => found.violations.filter(({impact}) => ['serious', 'critical']"
           ".includes(impact)).map(({id, nodes}) => [id, nodes.length, "
           "nodes[0].html.slice(0, 200)]))")


def looked_at(browser: Browser, address: str, width: int, dark: bool) -> list[object]:
    """What is wrong with a page."""
    browser.errors.clear()
    browser.addresses.clear()
    browser.open(address, width, dark=dark)
    # The site remembers the colours that a visitor had before.
    scheme = "slate" if dark else "default"
    browser.value(f"document.body.setAttribute('data-md-color-scheme', '{scheme}')")
    browser.value(f"{Path(AXE).read_text(encoding='utf-8')}; 0")
    wide = browser.value("document.documentElement.scrollWidth - innerWidth")
    home = address[:address.index("/", 8)]
    return [*browser.value(_FAULTS), *browser.errors, *([f"{wide} too wide"] if wide > 0 else []),
            *(each for each in browser.addresses
              if not each.startswith((home, "data:", "blob:")))]


def test_reports_have_no_serious_fault(tmp_path: Path) -> None:
    documents = {"small": training_step(), "large": network(60)}
    with opened() as browser:
        for name, document in documents.items():
            path = inspect.html_report(document, tmp_path / f"{name}.html",
                                       spans=inspect.predicted_spans(document),
                                       beside=("as before", chain(8)))
            for width, dark in ((1280, False), (400, True)):
                assert looked_at(browser, path.as_uri(), width, dark) == [], (name, width)


@pytest.mark.skipif(not Path(SITE, "index.html").is_file(), reason="SITE is no built site")
def test_pages_have_no_serious_fault() -> None:
    pages = sorted(Path(SITE).rglob("index.html"))
    wrong: dict[str, list[object]] = {}
    with served(Path(SITE)) as address, opened() as browser:
        for page in pages:
            name = page.relative_to(SITE).as_posix().removesuffix("index.html")
            for width, dark in ((1280, False), (400, True)):
                found = looked_at(browser, f"{address}/{name}", width, dark)
                if found:
                    wrong[f"{name} {width}"] = found
    assert len(pages) > 100 and not wrong, wrong
