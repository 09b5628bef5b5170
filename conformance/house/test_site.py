"""Pages of a built site, and reports, in Chromium: no serious fault for anybody.

Slow, so only where it is asked for: SITE is the folder that `mkdocs build` wrote, AXE the file
axe.min.js (`npm install axe-core` in a folder of its own); without it that of an installed
`axe-playwright-python` is taken. `-k each_kind` looks at one page of each kind, in two looks.
"""
from __future__ import annotations

import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.chapters.export.browser import CHROMIUM
from conformance.chapters.export.devtools import Browser, opened, served
from conformance.chapters.inspect.test_inspect import chain, training_step
from conformance.chapters.inspect.test_viewer import network
from impl import inspect


def axe_script() -> Path:
    """The file with axe-core."""
    package = importlib.util.find_spec("axe_playwright_python")
    within = [Path(each, "axe.min.js") for each in package.submodule_search_locations or ()] \
        if package else []
    return next((path for path in within if path.is_file()), Path(os.environ.get("AXE", "")))


SITE, AXE = Path(os.environ.get("SITE", "")), axe_script()
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
#: Width, and whether it is dark.
LOOKS = ((1280, False), (1280, True), (400, False), (400, True))
FEW_LOOKS = (LOOKS[0], LOOKS[-1])
#: A page of each kind, and a short one: where it lies in the site.
KINDS = ("", "playground/", "course/online/", "spec/host/", "api/ordering/",
         "conformance/promises/")

needs_site = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="SITE is no built site")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="AXE is not the file axe.min.js")


#: The faults that axe finds on a page, those that matter.
_FAULTS = (f"axe.run(document, {{preload: false, runOnly: {TAGS}, resultTypes: ['violations']}})"
           ".then((found) => found.violations.filter(({impact}) => ['serious', 'critical']"
           ".includes(impact)).map(({id, nodes}) => [id, nodes.length, "
           "nodes[0].html.slice(0, 200)]))")
#: The colours of a page of the site; a report has none of their names.
_SCHEME = "document.querySelector('.md-container') && document.body.dataset.mdColorScheme"
#: Colours are what they will be, at once.
_STILL = ("document.head.insertAdjacentHTML('beforeend', "
          "'<style>* { transition: none !important; animation: none !important }</style>'); 0")


def looked_at(browser: Browser, address: str, looks: Sequence[tuple[int, bool]]) -> list[object]:
    """What is wrong with a page: by look, and in all."""
    browser.errors.clear()
    browser.addresses.clear()
    browser.open(address, *looks[0][:1], dark=looks[0][1])
    browser.value(f"{_STILL}; {AXE.read_text(encoding='utf-8')}; 0")
    wrong: list[object] = []
    for width, dark in looks:
        browser.resize(width, dark=dark)
        browser.frames()
        # The site remembers the colours that a visitor had before, and takes them once more when
        # the wish changes.
        scheme = "slate" if dark else "default"
        browser.value(f"document.body.setAttribute('data-md-color-scheme', '{scheme}')")
        browser.frames()
        wide = browser.value("document.documentElement.scrollWidth - innerWidth")
        found = [*([] if browser.value(_SCHEME) in (scheme, None) else [f"not {scheme}"]),
                 *browser.value(_FAULTS), *([f"{wide} too wide"] if wide > 0 else [])]
        wrong += [(width, scheme, each) for each in found]
    home = address[:address.index("/", 8)]
    return [*wrong, *browser.errors, *(each for each in browser.addresses
                                       if not each.startswith((home, "data:", "blob:")))]


@needs_chromium
@needs_axe
def test_reports_have_no_serious_fault(tmp_path: Path) -> None:
    documents = {"small": training_step(), "large": network(60)}
    with opened() as browser:
        for name, document in documents.items():
            path = inspect.html_report(document, tmp_path / f"{name}.html",
                                       spans=inspect.predicted_spans(document),
                                       beside=("as before", chain(8)))
            assert looked_at(browser, path.as_uri(), LOOKS) == [], name


@contextmanager
def without_search() -> Iterator[str]:
    """The address of the site with hardly anything to search: each page reads all of it anew."""
    index = json.loads((SITE / "search" / "search_index.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for path in SITE.iterdir():
            if path.name != "search":
                Path(folder, path.name).symlink_to(path.resolve())
        (search := Path(folder, "search")).mkdir()
        (search / "search_index.json").write_text(
            json.dumps({**index, "docs": index["docs"][:1]}), encoding="utf-8")
        with served(Path(folder)) as address:
            yield address


def faults(pages: Sequence[str], looks: Sequence[tuple[int, bool]]) -> dict[str, list[object]]:
    """The pages of the site that have something wrong."""
    with without_search() as address, opened() as browser:
        found = {page: looked_at(browser, f"{address}/{page}", looks) for page in pages}
    return {page: wrong for page, wrong in found.items() if wrong}


@needs_site
@needs_chromium
@needs_axe
def test_a_page_of_each_kind_has_no_serious_fault() -> None:
    assert not faults(KINDS, FEW_LOOKS)


def parts() -> dict[str, list[str]]:
    """The pages of the site, by the folder that they lie in."""
    found: dict[str, list[str]] = {}
    for path in sorted(SITE.rglob("index.html")) if SITE.name else ():
        page = path.parent.relative_to(SITE).as_posix()
        found.setdefault(page.partition("/")[0] if "/" in page else "top", []).append(
            "" if page == "." else f"{page}/")
    return found


@needs_site
@needs_chromium
@needs_axe
@pytest.mark.parametrize("part", parts())
def test_no_page_has_a_serious_fault(part: str) -> None:
    assert not faults(parts()[part], LOOKS)


@needs_site
def test_all_pages_are_looked_at() -> None:
    found = [page for pages in parts().values() for page in pages]
    assert {*KINDS} <= {*found} and len(found) > 100


#: What a reader must not see, by what it would be: each is a text of the page, or its markup.
_ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
_UNSEEN = {
    "a fence that is not closed": re.compile(r"```[^\n]{0,60}"),
    "a rule without its sentence": re.compile(r'<div class="rule [^>]*>(?:(?!</div>).)*<p></p>'),
    "a list in one paragraph": re.compile(r"<p>[\w`]+ {2,}[^<]*\n\w+ {2,}\w[^<\n]*"),
    "code in one paragraph": re.compile(r"<p>\w+ = \w+\([^<]*\n[^<\n]*"),
    "a rule in brackets": re.compile(r"<code>r\[[a-z.-]+\]</code></a>"),
    "powers that became bold": re.compile(r"\d<strong>\d.*?</strong>\d"),
}
_HEADING = re.compile(r'<h2 id="([^"]+)" class="doc doc-heading">(.*?)</h2>', re.DOTALL)


def unrendered(page: str) -> list[str]:
    """What a page shows as it was written, and classes and functions that it has twice."""
    article = found[0] if (found := _ARTICLE.search(page)) else ""
    wrong = [f"{what}: {seen[0]!r}" for what, form in _UNSEEN.items()
             for seen in form.finditer(article)]
    named: dict[str, str] = {}
    for place, _ in _HEADING.findall(article):
        name = place.rsplit(".", 1)[-1]
        if name[:1].isupper() and name in named and "Base" not in name:
            wrong.append(f"twice: {named[name]} and {place}")
        named[name] = place
    return wrong


def test_what_is_not_rendered_is_seen() -> None:
    """A text of each kind, so that none of the forms above has lost its meaning."""
    bad = ("```Small integers", '<div class="rule law" id="r"><a>x</a><p></p></div>',
           "<p>steps    the algorithms\nrunning  the steps</p>", "<p>run = Log(1)\nrun.page()</p>",
           "of 2<strong>30 and 2</strong>30", "<a><code>r[a.b.c]</code></a>",
           *([''.join(f'<h2 id="impl.{of}.CPU" class="doc doc-heading">CPU</h2>' for of in "ab")]))
    assert [len(unrendered(f"<article>{each}</article>")) for each in bad] == [1] * len(bad)
    good = ("<p>two  blanks in a sentence\nof two lines</p>", "<strong>12</strong>3",
            '<div class="rule law" id="r"><a>x</a><p>It MUST.</p></div>')
    assert not any(unrendered(f"<article>{each}</article>") for each in good)


@needs_site
def test_no_page_shows_its_markup() -> None:
    found = {path.parent.relative_to(SITE).as_posix(): wrong
             for path in sorted(SITE.rglob("index.html"))
             if (wrong := unrendered(path.read_text(encoding="utf-8")))}
    assert not found
