"""Links of a built site: each leads to a page that is there, and to a place on it.

`mkdocs build --strict` looks at links between texts only; tables, figures and scripts have more.
Only where it is asked for: SITE is the folder that `mkdocs build` wrote.
"""
from __future__ import annotations

import os
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(os.environ.get("SITE", ""))
#: What is told of a page in code or data is no link of it.
_ASIDE = re.compile(r"<(script|style)\b[^>]*(?<!/)>.*?</\1>|<!--.*?-->", re.DOTALL)
_ATTRIBUTE = re.compile(r"""<[a-z][^<>]*?\s(?:href|src)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""",
                        re.IGNORECASE)
_PLACE = re.compile(r"""\s(?:id|name)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
_SCRIPT = re.compile(r"""<script[^>]*\ssrc=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
#: Every page leads to itself, and to its top.
_TOP = {"", "__top"}

needs_site = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="SITE is no built site")


def links(page: str) -> set[str]:
    """What a page links to, or loads."""
    found = [*_ATTRIBUTE.findall(_ASIDE.sub("", page)), *_SCRIPT.findall(page)]
    return {unescape("".join(each)) for each in found}


def places(page: str) -> set[str]:
    """The places on a page that a link can name."""
    return {unescape("".join(each)) for each in _PLACE.findall(_ASIDE.sub("", page))} | _TOP


def broken(site: Path) -> list[str]:
    """The links between the pages of a site that lead nowhere, each with its page."""
    texts = {path.resolve(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    known = {path: places(text) for path, text in texts.items()}
    wrong = []
    for path, text in sorted(texts.items()):
        if path.name == "404.html":  # its links begin at the root of the server
            continue
        for link in sorted(links(text)):
            target = urlsplit(link)
            if target.scheme or target.netloc:
                continue
            led = (path.parent / unquote(target.path)).resolve() if target.path else path
            led = led / "index.html" if led.is_dir() else led
            missing = not led.is_file() or (
                led in known and unquote(target.fragment) not in known[led])
            if missing:
                wrong.append(f"{path.relative_to(site.resolve())}: {link}")
    return wrong


@needs_site
def test_each_link_leads_somewhere() -> None:
    assert not broken(SITE)


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    Path(tmp_path, "b").mkdir()
    Path(tmp_path, "index.html").write_text(
        '<a href="b/#here">a</a><a href=b/#gone>b</a><a href="c/">c</a><a href="#">d</a>'
        "<script>const text = '<a href=\"e/\">'</script><img src='f.svg'><a href='https://x/'>")
    Path(tmp_path, "b", "index.html").write_text("<p id='here'><a href='../#there'>")
    assert broken(tmp_path) == ["b/index.html: ../#there", "index.html: b/#gone", "index.html: c/",
                                "index.html: f.svg"]
