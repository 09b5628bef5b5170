"""All pages of a built site in Chromium: no serious fault for who cannot see or use a mouse.

Slow, so only where it is asked for: SITE is the folder that `mkdocs build` wrote, AXE the file
axe.min.js (`npm install axe-core` in a folder of its own).
"""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.chapters.export.browser import CHROMIUM
from conformance.chapters.export.devtools import opened, served

SITE, AXE = os.environ.get("SITE", ""), os.environ.get("AXE", "")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium"),
    pytest.mark.skipif(not Path(SITE, "index.html").is_file(), reason="SITE is no built site"),
    pytest.mark.skipif(not Path(AXE).is_file(), reason="AXE is not the file axe.min.js")]


def test_pages_have_no_serious_fault() -> None:
    axe = Path(AXE).read_text(encoding="utf-8")
    pages = sorted(Path(SITE).rglob("index.html"))
    wrong: dict[str, list[object]] = {}
    with served(Path(SITE)) as address, opened() as browser:
        for page in pages:
            name = page.relative_to(SITE).as_posix().removesuffix("index.html")
            for width, scheme in ((1280, "default"), (400, "slate")):
                browser.errors.clear()
                browser.addresses.clear()
                browser.open(f"{address}/{name}", width)
                browser.value(f"document.body.setAttribute('data-md-color-scheme', '{scheme}')")
                browser.value(f"{axe}; 0")
                faults = browser.value(
                    f"axe.run(document, {{preload: false, runOnly: {TAGS}, resultTypes: "
                    "['violations']}).then((found) => found.violations.filter(({impact}) => "
                    "['serious', 'critical'].includes(impact)).map(({id, nodes}) => "
                    "[id, nodes.length, nodes[0].html.slice(0, 200)]))")
                wide = browser.value("document.documentElement.scrollWidth - innerWidth")
                elsewhere = [each for each in browser.addresses
                             if not each.startswith((address, "data:", "blob:"))]
                found = [*faults, *browser.errors, *elsewhere, *([wide] if wide > 0 else [])]
                if found:
                    wrong[f"{name} {width} {scheme}"] = found
    assert len(pages) > 100 and not wrong, wrong
