"""The playground: its half in Python, and all of it in Chromium with Pyodide from npm."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.chapters.export.browser import CHROMIUM, in_chromium
from conformance.house.test_figures import _PAGE, ASSETS, HOOKS
from conformance.trace import ROOT

pytestmark = pytest.mark.skipif(not HOOKS.is_dir(), reason="needs a source checkout")


@pytest.fixture(scope="module")
def playground() -> Iterator[Any]:
    """The module that makes the archive."""
    sys.path.insert(0, str(HOOKS))
    try:
        yield __import__("playground")
    finally:
        sys.path.remove(str(HOOKS))


#: Run with the archive's folder as the only place of our code, where NumPy is not.
_HALF = """
import json, sys
sys.modules["numpy"] = None
import playground_page as page
found = {}
for name, program in json.loads(sys.stdin.read()).items():
    made = json.loads(page.made(program))
    reports = {} if "refused" in made else {each: page.report(each) for each in page.LANGUAGES}
    found[name] = [made.get("refused"), made.get("kernels"), made.get("graph"), reports]
found["values"] = json.loads(page.values("Tensor([1.0]) + 1"))
print(json.dumps(found))
"""
#: What is refused, and the words for it.
_REFUSED = {
    "": "There is no program", "x = 3": "in it is int", "import os": "it is import os",
    "Tensor.empty(3": "'(' was never closed; at program:1",
    "a = 1\nfoo": "NameError: name 'foo' is not defined; at program:2",
    "[]": "an empty list", "Tensor.empty(2).softmaks()": "Remedy: did you mean softmax?"}


def test_every_example_is_scheduled_from_the_archive_without_numpy(
        playground: Any, tmp_path: Path) -> None:
    (tmp_path / "made.zip").write_bytes(playground.archive())
    with zipfile.ZipFile(tmp_path / "made.zip") as archive:
        archive.extractall(tmp_path)
    programs = {**playground.EXAMPLES, **{each: each for each in _REFUSED}}
    ran = subprocess.run([sys.executable, "-c", _HALF], cwd=tmp_path, text=True, check=False,
                         input=json.dumps(programs), capture_output=True,
                         env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    for program, words in _REFUSED.items():
        assert words in found[program][0]
    assert "pip install numpy" in found["values"]["refused"]
    assert "shapes (4, 3) and (4, 5) do not fit; at program:2. Remedy" in found["An error"][0]
    for name in playground.EXAMPLES.keys() - {"An error"}:
        refused, kernels, graph, reports = found[name]
        assert refused is None and kernels >= 1, (name, refused)
        assert any(row["result"] for row in graph)
        assert "**args" in reports["C"] and "@compute" in reports["WGSL"], name
        assert "__global__" in reports["CUDA"], name
    assert found["Softmax"][1] == 1 and found["Too large for one kernel"][1] == 2


def pyodide(version: str) -> Path:
    """The folder of npm's package, which is installed once.

    Skips the test where that is not possible.
    """
    folder = Path(tempfile.gettempdir(), f"tensor-schedule-pyodide-{version}")
    found = folder / "node_modules" / "pyodide"
    npm = shutil.which("npm")
    if not (found / "pyodide.asm.wasm").exists():
        if npm is None:
            pytest.skip("there is no npm, which installs pyodide")
        made = subprocess.run([npm, "install", "--no-save", "--prefix", str(folder),
                               f"pyodide@{version}"], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"npm cannot install pyodide: {made.stderr.strip()[-200:]}")
    return found


#: Presses, looks, and asks for another language; then writes what is wrong, and what never ends.
_USE = """
const frame = document.createElement("iframe");
Object.assign(frame, {src: "playground.html", width: 400, height: 900});
const opened = new Promise((resolve) => { frame.onload = resolve; });
document.body.append(frame);
await opened;
const page = frame.contentDocument, view = frame.contentWindow;
const until = async (met) => {
  while (!met()) await new Promise((resolve) => setTimeout(resolve, 50));
};
const asked = () => view.performance.getEntriesByType("resource").map(({name}) => name);
await until(() => page.querySelector("[data-ready]"));
const text = page.querySelector("textarea"), refused = page.querySelector("[role=alert]");
const named = (words) => [...page.querySelectorAll("button")].find(
  (each) => each.textContent.startsWith(words));
const found = {before: asked().filter((each) => /pyodide|zip/.test(each)).length};
const shown = () => page.querySelector("iframe").contentDocument;
const done = () => !named("Schedule").disabled;

text.focus();
text.dispatchEvent(new view.KeyboardEvent("keydown", {key: "Enter", ctrlKey: true, bubbles: true}));
await until(done);
await until(() => shown()?.getElementById("kernels") || !refused.hidden);
found.refused = refused.textContent;
found.said = page.querySelector(".live-said").textContent;
found.graph = page.querySelectorAll(".play-graph li.result").length;
found.sections = ["graph", "kernels", "reasons", "memory", "source", "rewrites"].filter(
  (each) => shown().getElementById(each)).length;
found.c = shown().body.textContent.includes("for (long");
page.querySelector("input[value=WGSL]").click();
await until(done);
await until(() => shown()?.body?.textContent.includes("@compute"));
found.wide = page.documentElement.scrollWidth - page.documentElement.clientWidth;

text.value = "Tensor.empty(4, 3) @ Tensor.empty(4, 5)";
named("Schedule").click();
await until(done);
found.mistake = refused.textContent;
text.value = "while True: pass\\nTensor.empty(2)";
named("Schedule").click();
await new Promise((resolve) => setTimeout(resolve, 200));
named("Stop").click();
await until(done);
found.stopped = refused.textContent;
found.wrong = view.eval("wrong");
found.elsewhere = asked().filter((each) => !each.startsWith(location.origin) &&
                                          !each.startsWith("blob:"));
return found;
"""


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
def test_a_program_is_scheduled_in_the_page(playground: Any, tmp_path: Path) -> None:
    live = __import__("live")
    shutil.copytree(ASSETS, tmp_path / "assets")
    (tmp_path / "pyodide").symlink_to(pyodide(playground.PYODIDE), target_is_directory=True)
    for name, content in playground.files().items():
        (tmp_path / "assets" / "playground" / name).write_bytes(content)
    figure = live.playground_figure("pyodide/").replace("asset:", "assets/")
    (tmp_path / "playground.html").write_text(_PAGE % {"name": "playground", "figure": figure})
    said = in_chromium(tmp_path, _USE, seconds=300, gpu=False)
    if not said:
        pytest.skip("chromium does not start")
    assert len(said) == 2 and "error" not in said[1], said
    found = said[1]
    assert "do not fit; at program:1. Remedy: " in found.pop("mistake")
    assert found.pop("said").startswith("1 kernel. ")
    assert found == {"before": 0, "refused": "", "graph": 1, "sections": 6, "c": True, "wide": 0,
                     "stopped": "Stopped. The next press loads Python again.", "wrong": [],
                     "elsewhere": []}


def test_the_page_says_where_python_comes_from(playground: Any) -> None:
    assert playground.data()["host"] == playground.HOST and playground.PYODIDE in playground.HOST
    page = (ROOT / "docs" / "playground.md").read_text(encoding="utf-8")
    assert "<!-- figure: playground -->" in page and "only after a press" in page
