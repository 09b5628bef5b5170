"""The site: figures are used in Chromium, at two widths, with keys alone; links lead somewhere."""
from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conformance.chapters.export.browser import CHROMIUM, in_chromium
from conformance.chapters.export.devtools import Browser, opened, served
from conformance.trace import ROOT
from impl import Context

HOOKS, ASSETS = ROOT / "docs" / "hooks", ROOT / "docs" / "assets"
pytestmark = pytest.mark.skipif(not HOOKS.is_dir(), reason="needs a source checkout")

#: A link or a picture that lies in the repository; and what is code, and has no links.
LINK = re.compile(r"(?:\]\(|src=\")(?![a-z]+:|#)([^()\s#\"]+)(?=[#)\"])")
CODE = re.compile(r"^ *(```+).*?^ *\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)

#: The page on which a figure stands, in a frame of some width.
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>%(name)s</title>
<link rel="stylesheet" href="assets/site.css">
<body class="md-typeset" data-md-color-scheme="default"><script>
const wrong = []; addEventListener("error", (event) => wrong.push(event.message));
addEventListener("unhandledrejection", (event) => wrong.push(`${event.reason}`));</script>
%(figure)s</body></html>"""

#: Opens each figure at two widths; says what is wrong, where it goes beyond its frame, which files
#: came from elsewhere, what has no name, and what `use` finds after some keys.
_LOOK = """
const uses = {%s}, found = {};
for (const name of Object.keys(uses)) for (const width of [1280, 400]) {
  const frame = document.createElement("iframe");
  Object.assign(frame, {src: `${name}.html`, width, height: 900});
  const opened = new Promise((resolve) => { frame.onload = resolve; });
  document.body.append(frame);
  await opened;
  const page = frame.contentDocument, view = frame.contentWindow;
  const until = async (met) => {
    for (let i = 0; i < 400 && !met(); i++) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  await until(() => page.querySelector("[data-ready]"));
  const key = (owner, key) => { owner.focus(); owner.dispatchEvent(
    new view.KeyboardEvent("keydown", {key, bubbles: true, cancelable: true})); };
  const said = await uses[name]({page, view, until, key});
  const nameless = [...page.querySelectorAll("button, [tabindex], [role=img], input, select")]
    .filter((each) => !(each.ariaLabel || each.getAttribute("aria-labelledby") ||
                        each.labels?.length || each.textContent.trim()));
  found[`${name} ${width}`] = {said, wrong: view.eval("wrong"),
    wide: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    elsewhere: view.performance.getEntriesByType("resource").map((each) => each.name)
      .filter((each) => !each.startsWith(location.origin)),
    nameless: nameless.map((each) => each.outerHTML.slice(0, 80))};
  frame.remove();
}
return found;
"""

#: What is done with each figure, and what it says then.
USES: dict[str, tuple[str, Any]] = {
    "digits": ("""async ({page, until, key}) => {
        const told = page.querySelector(".live-said"), pad = page.querySelector("canvas");
        await until(() => page.querySelector(".live-kernels li"));
        const first = page.querySelector("output").textContent;
        key(pad, "Escape");  // a seven: right, down
        for (let i = 0; i < 4; i++) { key(pad, "ArrowUp"); key(pad, "ArrowLeft"); }
        key(pad, " ");
        for (let i = 0; i < 8; i++) key(pad, "ArrowRight");
        for (let i = 0; i < 12; i++) {
          key(pad, "ArrowDown");
          if (i % 2) key(pad, "ArrowLeft"); }
        await until(() => page.querySelector("output").textContent.startsWith("7"));
        return [told.dataset.target, first.slice(0, 1), told.textContent.includes("no WebGPU"),
                page.querySelector("output").textContent.slice(0, 1),
                page.querySelectorAll(".live-kernels > li").length]; }""",
               ["js", "6", True, "7", 3]),
    "fusion": ("""async ({page, key}) => {
        const gaps = [...page.querySelectorAll(".live-gap")], found = [];
        const say = () => found.push(page.querySelector(".live-said").textContent);
        say();
        gaps[1].click(); say();                       // e and s are one kernel
        key(gaps[2], "ArrowUp"); say();               // their next boundary goes up, they are two
        page.querySelectorAll(".live-buttons button")[1].click(); say();
        return [...found, gaps.filter((gap) => gap.textContent.includes("still")).length,
                page.activeElement === gaps[1],
                [...page.querySelectorAll("li b")].some(
                  (b) => b.textContent.endsWith("not one kernel"))]; }""",
               ["6 kernels, 1.13 MiB moved.", "5 kernels, 1.005 MiB moved.",
                "5 kernels, 1.004 MiB moved.", "2 kernels, 512 KiB moved.", 1, True, True]),
    "order": ("""async ({page, key}) => {
        const said = page.querySelector(".live-said"), found = [said.textContent.slice(0, 19)];
        const first = page.querySelector("[data-kernel]").dataset.kernel;
        for (let i = 0; i < 4; i++)
          key(page.querySelector(`[data-kernel="${first}"]`), "ArrowDown");
        found.push(said.textContent.slice(0, 23), page.querySelector("li b").textContent,
                   page.activeElement.dataset.kernel === first);
        page.querySelectorAll(".live-buttons button")[1].click();
        return [...found, said.textContent.endsWith("that the scheduler chose.")]; }""",
              ["This order is right", "This order gives wrong ", "RAW", True, True]),
    "memory": ("""async ({page, key}) => {
        const said = page.querySelector(".live-said"), found = [said.textContent.slice(0, 8)];
        const block = page.querySelectorAll("[role=slider]")[1];
        key(block, "Home");
        found.push(block.getAttribute("aria-valuetext"), said.textContent);
        page.querySelectorAll(".live-buttons button")[1].click();
        return [...found, said.textContent.slice(0, 7)]; }""",
               ["7.5 KiB.", "bytes 0 to 1279, over b1",
                "b1 and b2 are alive together and overlap.", "4.5 KiB"]),
    "ring": ("""async ({page}) => {
        const said = page.querySelector(".live-said"), found = [];
        const buttons = [...page.querySelectorAll("button")];
        for (const algorithm of buttons.slice(0, 4)) {
          algorithm.click();
          for (let i = 0; i < 9; i++) buttons.at(-1).click();
          found.push(`${algorithm.textContent}: ${said.textContent}`);
        }
        return found; }""",
             [f"{name}: Round {rounds} of {rounds}: {parts} parts sent so far, {most} by the "
              "busiest device. All devices have all sums."
              for name, rounds, parts, most in (("naive", 4, 24, 12), ("ring", 6, 24, 6),
                                                ("tree", 4, 24, 8), ("all-to-all", 4, 24, 6))]),
    "cache": ("""async ({page, view, key}) => {
        const said = page.querySelector(".live-said"), found = [];
        const tile = page.querySelector(".live-cache [role=button]");
        key(tile, "ArrowRight"); key(tile, "ArrowDown");
        found.push(tile.getAttribute("aria-label"), said.textContent.split(".")[0]);
        const [run] = page.querySelectorAll("button"), selects = page.querySelectorAll("select");
        const sums = JSON.parse(page.querySelector("script[type='application/json']").textContent);
        for (const size of [1, 4, 8, 16]) {
          for (const select of selects) {
            select.value = size;
            select.dispatchEvent(new view.Event("change")); }
          run.click();
          found.push(said.textContent.includes(`: ${sums.fetched[`${size} ${size}`]} lines`)); }
        return found; }""",
              ["Tile at row 4, column 4. Arrow keys move it.",
               "This tile: 31 lines fetched, for 192 accesses", True, True, True, True]),
    "playground": ("""async ({page, view}) => {
        const text = page.querySelector("textarea"), choice = page.querySelector("select");
        const first = text.value.includes("softmax");
        choice.value = 3;
        choice.dispatchEvent(new view.Event("change"));
        [...page.querySelectorAll("button")].find(
          (each) => each.textContent.startsWith("Link")).click();
        const kept = new view.URLSearchParams(view.location.hash.slice(1)).get("program");
        text.value = "";
        view.dispatchEvent(new view.HashChangeEvent("hashchange"));
        return [first, kept.includes("x[0] = 1.0"), text.value === kept,
                view.performance.getEntriesByType("resource").filter(
                  ({name}) => /worker|pyodide|zip/.test(name)).length]; }""",
                   [True, True, True, 0]),
    "rewrite": ("""async ({page}) => {
        const next = [...page.querySelectorAll("button")].at(-1), names = [];
        const say = () => names.push(page.querySelector(".live-said b").textContent);
        say(); next.click(); say();
        const marked = [...page.querySelectorAll("mark")].map((each) => each.textContent).join("");
        for (let i = 0; i < 20; i++) next.click();
        return [names.map((name) => name.split(". ")[1]), marked,
                page.querySelector(".live-text").textContent.includes("for (long i0")]; }""",
                [["a part, as it was written", "x / 2**k"], "*0.125", True]),
}


@pytest.fixture(scope="module")
def live() -> Iterator[Any]:
    """The module that makes the figures."""
    sys.path.insert(0, str(HOOKS))
    try:
        yield __import__("live")
    finally:
        sys.path.remove(str(HOOKS))


def test_each_figure_is_used(live: Any) -> None:
    assert live.FIGURES.keys() == USES.keys()
    asked = {name for path in ROOT.glob("docs/**/*.md")
             for name in re.findall(r"<!-- figure: ([\w-]+) -->", path.read_text())}
    assert live.FIGURES.keys() <= asked


def test_no_item_of_a_list_begins_with_another_number() -> None:
    """Markdown makes a list within the list of it, and the reader does not see the number."""
    texts = [*ROOT.glob("spec/*.md"), *ROOT.glob("docs/**/*.md")]
    lost = [f"{path.relative_to(ROOT)}: {line}" for path in texts for line in
            re.findall(r"^ *(?:\d+\.|-) +\d+\. .*", path.read_text(encoding="utf-8"), re.M)]
    assert len(texts) > 100 and not lost, lost


def test_links_of_texts_lead_to_files() -> None:
    texts = [ROOT / "README.md", ROOT / "conformance" / "README.md",
             *ROOT.glob("spec/*.md"), *ROOT.glob("docs/**/*.md")]
    made = ("assets/digits/",)  # by the build
    lost = [f"{path.relative_to(ROOT)}: {target}" for path in texts
            for target in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8")))
            if not (target.startswith(made) or (path.parent / target).exists())]
    assert len(texts) > 100 and not lost, lost


def test_the_doors_have_their_pictures(live: Any) -> None:
    doors = __import__("doors")
    drawn = {path.stem for path in doors.FOLDER.glob("*.svg")}
    assert drawn == doors.DOORS.keys(), "python docs/hooks/doors.py"
    refused = doors.DOORS["suite"]()
    assert "memory.reuse.disjoint" in refused and "alive together" in refused
    for page in ("README.md", "docs/index.md"):
        assert {*re.findall(r"assets/doors/(\w+)\.svg", (ROOT / page).read_text())} == drawn


class _Addresses(HTMLParser):
    """What a text of HTML loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.found += [value for key, value in attrs if key in ("src", "href") and value]


def test_scripts_load_what_lies_beside_them(live: Any) -> None:
    with Context(DEVICE="REFERENCE"):
        texts = {name: make() for name, make in live.FIGURES.items()}
    for text in texts.values():
        for address in _Addresses(text).found:
            assert (ASSETS / address.removeprefix("asset:")).exists(), address
    for script in ASSETS.rglob("*.js"):
        said = script.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/)", said), script
        for address in re.findall(r'from "([^"]+)"', said):
            assert (script.parent / address).exists(), (script, address)


def written(live: Any, folder: Path) -> None:
    """The figures, each on a page of its own, with what they load."""
    shutil.copytree(ASSETS, folder / "assets")
    (folder / "assets" / "digits").mkdir()
    with Context(DEVICE="REFERENCE"):
        for name, content in live.digits.module_files().items():
            (folder / "assets" / "digits" / name).write_bytes(content)
        for name, make in live.FIGURES.items():
            page = _PAGE % {"name": name, "figure": make().replace("asset:", "assets/")}
            (folder / f"{name}.html").write_text(page)


def dragged_fusion(browser: Browser) -> list[Any]:
    """Its second boundary goes to the place of the third, where one is; then to a free one."""
    browser.click(".live-gap", 2)  # no boundary there any more
    browser.drag([browser.place(".live-gap", 1), browser.place(".live-gap", 2)])
    return [browser.value(f"document.querySelectorAll('.live-gap')[{place}].ariaPressed")
            for place in range(5)]


def dragged_order(browser: Browser) -> list[Any]:
    """The first kernel goes to the end."""
    first = browser.value("document.querySelector('[data-kernel]').dataset.kernel")
    rows = browser.value("document.querySelectorAll('[data-kernel]').length")
    end = browser.place("[data-kernel]", rows - 1)
    browser.drag([browser.place("[data-kernel]", 0), end], 2 * rows)
    last = browser.value("[...document.querySelectorAll('[data-kernel]')].at(-1).dataset.kernel")
    return [last == first, browser.value("document.querySelector('.live-said').textContent")[:23]]


def dragged_memory(browser: Browser) -> list[Any]:
    """The last block goes to the floor."""
    blocks = browser.value("document.querySelectorAll('[role=slider]').length")
    x, y = browser.place("[role=slider]", blocks - 1)
    browser.drag([(x, y), (x, y + 600)])
    return [browser.value(f"document.querySelectorAll('[role=slider]')[{blocks - 1}].ariaValueNow")]


def dragged_cache(browser: Browser) -> list[Any]:
    """The tile goes to the last corner of the product."""
    box = browser.value("(() => { const box = document.querySelector('.live-cache')"
                        ".getBoundingClientRect(); return [box.left, box.top, box.width, "
                        "box.height]; })()")
    left, top, width, height = box
    browser.drag([(left + 0.6 * width, top + 0.6 * height), (left + width - 3, top + height - 3)])
    return [browser.value("document.querySelector('.live-cache [role=button]').ariaLabel")[:28]]


def dragged_digits(browser: Browser) -> list[Any]:
    """A seven is drawn."""
    browser.until("document.querySelector('.live-kernels li')")
    x, y = browser.place("canvas")
    browser.value("document.querySelector('canvas').focus()")
    browser.key("Escape")
    browser.drag([(x - 50, y - 60), (x + 50, y - 60), (x - 15, y + 75)], 14)
    browser.until("document.querySelector('output').textContent.startsWith('7')")
    return [browser.value("document.querySelector('output').textContent")[:1]]


#: What a mouse does with a figure, and what is so afterwards.
DRAGS: dict[str, tuple[Callable[[Browser], list[Any]], list[Any]]] = {
    "fusion": (dragged_fusion, ["true", "false", "true", "true", "true"]),
    "order": (dragged_order, [True, "This order gives wrong "]),
    "memory": (dragged_memory, ["0"]),
    "cache": (dragged_cache, ["Tile at row 12, column 12. A"]),
    "digits": (dragged_digits, ["7"])}


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
def test_figures_are_dragged_with_a_mouse(live: Any, tmp_path: Path) -> None:
    written(live, tmp_path)
    with served(tmp_path) as address, opened() as browser:
        for name, (drag, wanted) in DRAGS.items():
            for width in (1280, 400):
                browser.open(f"{address}/{name}.html", width)
                browser.until("document.querySelector('[data-ready]')")
                assert drag(browser) == wanted, (name, width)
                assert browser.value("wrong") == [] and browser.errors == [], (name, width)


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
def test_figures_are_used_with_keys_at_two_widths(live: Any, tmp_path: Path) -> None:
    written(live, tmp_path)
    said = in_chromium(tmp_path, _LOOK % ",\n".join(
        f"{name!r}: {use}" for name, (use, _) in USES.items()), gpu=False)
    if not said:
        pytest.skip("chromium does not start")
    assert len(said) == 2 and "error" not in said[1], said
    for name, (_, wanted) in USES.items():
        for width in (1280, 400):
            found = said[1][f"{name} {width}"]
            assert found == {"said": wanted, "wrong": [], "wide": 0, "elsewhere": [],
                             "nameless": []}, (name, width)
