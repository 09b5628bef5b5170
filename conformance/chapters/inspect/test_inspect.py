"""Tables, sentences and reports from a schedule document. See spec/inspect.md."""
from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.chapters.export.browser import CHROMIUM, in_chromium
from conformance.oracle.checker import check
from conformance.trace import read_rules, verifies
from impl import Context, GlobalCounters, Tensor, inspect, run_schedule
from impl.errors import GraphError
from impl.inspect import text
from impl.inspect.drawing import MOST_DRAWN, memory_chart, needed, schedule_graph
from impl.inspect.layout import layered, layers_of

Document = dict[str, Any]
Wanted = list[tuple[int, int]]  # (buffer, version)

BUFFERS = [("x", "input", 401408), ("w1", "state", 1605632), ("w2", "state", 20480),
           ("labels", "temporary", 1024), ("hidden", "temporary", 262144),
           ("logits", "temporary", 5120), ("loss", "output", 4), ("g_logits", "temporary", 5120),
           ("g_hidden", "temporary", 262144), ("g_w1", "temporary", 1605632),
           ("labels on disk", "input", 1024)]
SOURCE = '/* relu */\nfloat relu(float x) { return x < 1e-3f ? 0 : x; }  // "<b>" & more\n'


def access(buffer: int, version: int) -> dict[str, int]:
    return {"buffer": buffer, "version": version, "start": 0, "stop": BUFFERS[buffer][2]}


def kernel(number: int, name: str, label: str, reads: Wanted, writes: Wanted,
           operations: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "kind": "kernel", "device": "CPU", "label": label,
            "reads": [access(*r) for r in reads], "writes": [access(*w) for w in writes],
            "bytes": sum(BUFFERS[b][2] for b, _ in reads + writes), "operations": operations,
            "stages": 1, **more}


def training_step() -> Document:
    """A step of a small classifier: two layers, a loss, and updates in place."""
    kernels = [
        kernel(0, "copy_labels", "labels to CPU (train.py:31)", [(10, 0)], [(3, 1)], 0,
               kind="copy"),
        kernel(1, "matmul_relu", "matmul, relu (train.py:12)", [(0, 0), (1, 0)], [(4, 1)],
               102760448, source=SOURCE, optimizations=["UPCAST(1,16)"]),
        kernel(2, "matmul_10", "matmul (train.py:13)", [(4, 1), (2, 0)], [(5, 1)], 1310720),
        kernel(3, "cross_entropy", "log-softmax, gather, mean (train.py:14)", [(5, 1), (3, 1)],
               [(6, 1), (7, 1)], 26000, stages=4),
        kernel(4, "grad_hidden", "matmul, relu", [(7, 1), (2, 0), (4, 1)], [(8, 1)], 1376256),
        kernel(5, "sgd_w2", "w2 - 0.1 * gradient", [(4, 1), (7, 1), (2, 0)], [(2, 1)], 1320960),
        kernel(6, "grad_w1", "matmul", [(0, 0), (8, 1)], [(9, 1)], 102760448),
        kernel(7, "sgd_w1", "w1 - 0.1 * gradient", [(9, 1), (1, 0)], [(1, 1)], 802816)]
    waits = [(1, 2, "RAW", 4), (2, 3, "RAW", 5), (0, 3, "RAW", 3), (3, 4, "RAW", 7),
             (1, 4, "RAW", 4), (1, 5, "RAW", 4), (3, 5, "RAW", 7), (2, 5, "WAR", 2),
             (4, 5, "WAR", 2), (4, 6, "RAW", 8), (6, 7, "RAW", 9), (1, 7, "WAR", 1)]
    places = [(3, 262144 + 5120, 1024, 0, 3), (4, 0, 262144, 1, 5), (5, 262144, 5120, 2, 3),
              (7, 262144 + 5120 + 1024, 5120, 3, 5), (8, 1605632, 262144, 4, 6),
              (9, 0, 1605632, 6, 7)]
    return {
        "format": "tensor-schedule/1", "implementation": "sample",
        "buffers": [{"id": i, "name": name, "kind": kind, "dtype": "float32",
                     "shape": [size // 4], "bytes": size, "device": "CPU"}
                    for i, (name, kind, size) in enumerate(BUFFERS)],
        "kernels": kernels,
        "dependencies": [{"before": b, "after": a, "kind": kind, "buffer": buffer, "version": 1}
                         for b, a, kind, buffer in waits],
        "order": list(range(8)),
        "boundaries": [
            {"before": 1, "after": 2, "buffer": 4, "reason": "reduce: needs a whole row of 512"},
            {"before": 6, "after": 7, "buffer": 9, "reason": "recompute too dear"},
            {"before": 2, "after": 3, "buffer": 5, "reason": ""}],
        "fusions": [{"kernel": 3, "reason": "all stages run over the same rows"}],
        "notes": ["w1 is written in place"],
        "memory": {
            "alignment": 64, "arenas": [{"id": 0, "device": "CPU", "bytes": 1867776}],
            "placements": [{"buffer": b, "arena": 0, "offset": offset, "bytes": size,
                            "first": first, "last": last, "in_place_of": None}
                           for b, offset, size, first, last in places],
            "planned": 1867776, "unplanned": 2141184, "lower_bound": 1867776},
        "outputs": [6], "cache": {"hit": True, "key": "3f9ac01d77be"}}


def chain(count: int) -> Document:
    """Kernels that each read what the one before wrote."""
    document = training_step()
    document.update(
        buffers=[{"id": i, "kind": "temporary", "dtype": "int8", "shape": [64], "bytes": 64,
                  "device": "CPU"} for i in range(count)],
        kernels=[{"id": i, "kind": "kernel", "device": "CPU",
                  "reads": [{"buffer": i - 1, "version": 1, "start": 0, "stop": 64}] if i else [],
                  "writes": [{"buffer": i, "version": 1, "start": 0, "stop": 64}]}
                 for i in range(count)],
        dependencies=[{"before": i, "after": i + 1, "kind": "RAW", "buffer": i, "version": 1}
                      for i in range(count - 1)],
        order=list(range(count)), boundaries=[], fusions=[], notes=[], outputs=[])
    del document["memory"], document["cache"]
    return document


class Page(HTMLParser):
    """Checks that every element is closed, and collects what the tests ask for."""

    VOID = {"meta", "br"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name not in self.VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def of_class(self, css: str) -> list[dict[str, str | None]]:
        return [a for _, a in self.elements if css in (a.get("class") or "").split()]


@verifies("inspect.format.refused")
def test_other_formats_are_refused() -> None:
    wrong = {**training_step(), "format": "tensor-schedule/9"}
    for show in (inspect.kernel_table, inspect.boundary_table, inspect.memory_summary,
                 inspect.explain, inspect.report_html):
        with pytest.raises(GraphError, match="'tensor-schedule/9', not 'tensor-schedule/1'"):
            show(wrong)


@verifies("inspect.table.lines")
def test_kernel_table() -> None:
    document = training_step()
    document["order"] = [1, 0, 2, 3, 4, 5, 6, 7]
    timings = {number: 1e-6 * (number + 1) for number in range(8)}
    machine = inspect.Machine(40e9, 100e9)
    lines = inspect.kernel_table(document, timings, machine, 300).splitlines()
    assert lines[0].split() == ["id", "kernel", "what", "reads", "writes", "bytes", "operations",
                                "time", "predicted", "steps"]
    assert [line.split()[0] for line in lines[2:]] == ["1", "0", "2", "3", "4", "5", "6", "7"]
    for part in ("matmul_relu", "x, w1", "hidden", "2.16 MiB", "103 M", "2 us", "1.03 ms"):
        assert part in lines[2]
    assert len({len(line[:135].rstrip()) for line in lines}) <= 2  # the last column is ragged
    bare = inspect.kernel_table(chain(3))
    assert bare.splitlines()[0].split() == ["id", "kernel", "reads", "writes"]


@verifies("inspect.table.lines")
def test_a_kernel_table_fits_the_page() -> None:
    document = training_step()
    for kernel in document["kernels"]:
        kernel.update(label="a label that goes on for longer than anybody would read " * 2,
                      optimizations=[f"UPCAST({number},16)" for number in range(9)],
                      reads=[{"buffer": each["id"], "version": 0, "start": 0, "stop": 1}
                             for each in document["buffers"]])
    timings = dict.fromkeys(range(8), 1e-6)
    for width in (400, 180, 120):
        lines = inspect.kernel_table(document, timings, width=width).splitlines()
        assert max(map(len, lines)) <= width, width
        assert [line.split()[0] for line in lines[2:]] == list("01234567")
        steps = "9 steps" if width == 120 else "UPCAST(0,16)"
        assert all(steps in line and "a label" in line for line in lines[2:])
    assert max(map(len, inspect.kernel_table(document, timings).splitlines())) <= 120
    narrowest = inspect.kernel_table(document, timings, width=10)
    assert narrowest.splitlines()[2].split()[0] == "0" and "more" in narrowest


@verifies("inspect.table.lines")
def test_words_of_a_kernel_table_are_whole() -> None:
    assert [text.shortened(["first", "second", "third"], width) for width in (20, 19, 17, 16, 5)] \
        == ["first, second, third", "first and 2 more", "first and 2 more", "first and 2 more",
            "3 buffers"]
    document = training_step()
    words = {f"STEP({n},{n})" for n in range(5)} | {b["name"] for b in document["buffers"]}
    for kernel in document["kernels"]:
        kernel.update(optimizations=[f"STEP({n},{n})" for n in range(5)], name="kernel_of_a_name",
                      label="conv2d, add (/somewhere/else/model.py:3)")
    for width in (300, 130, 100, 80):
        for line in inspect.kernel_table(document, width=width).splitlines()[2:]:
            assert "kernel_of_a_name" in line and "somewhere" not in line
            assert all(word in words for word in re.findall(r"[A-Z]+\([\d,]*\)?", line)), line
            assert "…" not in line
            assert "STEP(0,0)" in line or "5 steps" in line


@verifies("inspect.explain.complete")
def test_boundaries_and_sentences() -> None:
    document = training_step()
    assert inspect.boundary_table(document).splitlines() == [
        "kernel 1 -> kernel 2, hidden (256 KiB): reduce: needs a whole row of 512",
        "kernel 6 -> kernel 7, g_w1 (1.53 MiB): recompute too dear",
        "kernel 2 -> kernel 3, logits (5 KiB): no reason was given"]
    text = inspect.explain(document, {number: 1e-3 for number in range(8)})
    for part in ("7 kernels, 1 copy", "8 ms", "came from the cache",
                 "waits for  kernel 2: overwrites what it read (WAR: w2 version 1)",
                 "apart from kernel 1 through hidden: reduce", "fused      all stages",
                 "note: w1 is written in place", "steps      UPCAST(1,16)"):
        assert part in text
    assert "no value crosses" in inspect.boundary_table(chain(2))


@verifies("inspect.explain.complete")
def test_steps_have_reasons() -> None:
    document = training_step()
    document["kernels"][6].update(optimizations=["UPCAST(1,16)", "GROUP(2,4)", "SWAP(0,1)"],
                                  because=["along memory", "hides latency"])
    told = next(part for part in inspect.explain(document).split("\n\n") if "kernel 6," in part)
    lines = [line.strip() for line in told.splitlines()[-3:]]
    assert lines == ["steps      UPCAST(1,16): along memory", "GROUP(2,4): hides latency",
                     "SWAP(0,1)"]
    assert "UPCAST(1,16), GROUP(2,4), SWAP(0,1)" in inspect.kernel_table(document, width=300)


@pytest.mark.device("CPU")
@verifies("inspect.explain.complete")
def test_steps_are_told_before_anything_is_compiled() -> None:
    def product() -> Tensor:
        a = Tensor(np.ones((32, 48), np.float32)).realize()
        return a @ a.T

    with Context(DEVICE="CPU"):
        (Tensor([1.0]) + 1).realize()  # and with it whatever an earlier test has left scheduled
        GlobalCounters.reset()
        told = product().explain()
        assert GlobalCounters.compiled == GlobalCounters.kernels == 0
        with contextlib.redirect_stdout(io.StringIO()) as text, Context(DEBUG=3):
            product().realize()
        ran = [line.partition(": ")[2] for line in text.getvalue().splitlines()
               if line.startswith("steps of kernel 0: ")]
        assert ran and all(f"{line}\n" in told for line in ran)
        (line,) = [line for line in text.getvalue().splitlines() if line.startswith("***")]
        assert line.endswith(" ".join(step.partition(": ")[0] for step in ran))
        with Context(NOOPT=1):
            assert "steps  " not in product().explain()


def with_two_reasons() -> Document:
    """The sample, in which a kernel waits for another one twice over."""
    document = training_step()
    document["dependencies"] += [
        {"before": 1, "after": 2, "kind": kind, "buffer": 2, "version": 1}
        for kind in ("WAR", "WAW")]
    return document


@verifies("inspect.explain.complete")
def test_hazards_have_buffers_and_versions() -> None:
    """Every dependency of the document is told, at the kernel that waits."""
    document = with_two_reasons()
    parts = inspect.explain(document).split("\n\n")
    told = {int(part.split("kernel ")[1].split(",")[0]): part for part in parts
            if part.startswith("position ")}
    for row in document["dependencies"]:
        (line,) = [line for line in told[row["after"]].splitlines()
                   if f"waits for  kernel {row['before']}:" in line]
        name = BUFFERS[row["buffer"]][0]
        assert re.search(rf"\({row['kind']}: [^)]*{name} version {row['version']}", line), line
    assert re.search(r"g_hidden +0 +1605632 +256 KiB", inspect.explain(document))


def decided(work: Callable[[], object]) -> list[str]:
    """The lines about decisions that DEBUG=3 prints."""
    with contextlib.redirect_stdout(io.StringIO()) as text, Context(DEBUG=3, SCACHE=0):
        work()
    return [line.strip() for line in text.getvalue().splitlines() if line.startswith("  ")]


def several_kernels() -> list[Tensor]:
    """A write in place after a reader, a boundary that was asked for, a temporary."""
    x = Tensor(np.arange(4096, dtype=np.float32).reshape(64, 64)).realize()
    late = x * 2
    x.assign(x + 1)
    total = (x @ x).contiguous().max(1) + (x * 3 + late).sum(0)
    return [x, late, total]


@verifies("inspect.debug.lines+2")
def test_every_decision_has_a_line() -> None:
    tensors = several_kernels()
    document = Tensor.schedule_document(*tensors)
    lines = decided(lambda: Tensor.realize(*tensors))
    kinds = {buffer["id"]: buffer["kind"] for buffer in document["buffers"]}
    for kernel in document["kernels"]:
        assert any(re.match(rf"kernel {kernel['id']}: (fused|alone): ", line) for line in lines)
        for written in kernel["writes"]:
            (place,) = [line for line in lines if line.startswith(f"alloc b{written['buffer']}: ")]
            kind = kinds[written["buffer"]]
            assert {"state": "in place", "output": "of its own"}.get(kind, "arena") in place
    for row in document["boundaries"]:
        assert f"kernel {row['before']} -> kernel {row['after']}: not fused: " \
               f"b{row['buffer']}: {row['reason']}" in lines
    for row in document["dependencies"]:
        assert f"{row['kind']}: kernel {row['before']} before kernel {row['after']} " \
               f"(b{row['buffer']} version {row['version']})" in lines
    for row in document["memory"]["placements"]:
        assert any(line.startswith(f"alloc b{row['buffer']}: ") and f"+ {row['offset']}," in line
                   for line in lines)
    assert len(document["kernels"]) > 1 and document["dependencies"]
    assert len({line for line in lines if "fused" in line}) >= 2


@verifies("inspect.debug.lines+2")
def test_a_schedule_has_its_decisions() -> None:
    tensors = several_kernels()
    lines = decided(lambda: Tensor.schedule_document(*tensors))
    items = tensors[0].schedule(*tensors[1:])
    assert not lines and len(items) > 1
    for item in items:
        number = item.metadata["kernel"]
        assert any(line.startswith(f"kernel {number}: ") for line in item.metadata["decisions"])
        assert any("alloc" in line for line in item.metadata["decisions"])
        assert all(f"kernel {number}" in line or "alloc" in line
                   for line in item.metadata["decisions"])
    run_schedule(items)


@verifies("inspect.debug.lines+2")
def test_one_operation_is_alone_and_several_are_fused() -> None:
    x = Tensor(np.arange(4, dtype=np.float32)).realize()
    assert any(line.startswith("kernel 0: alone: 1 operation") for line in
               decided(lambda: (x + 1).realize()))
    assert any(line.startswith("kernel 0: fused: 3 operations") for line in
               decided(lambda: ((x + 1) * x).sum().realize()))


@verifies("inspect.report.whole")
def test_memory_summary() -> None:
    text = inspect.memory_summary(training_step())
    assert "6 temporaries in 1.78 MiB" in text
    assert "would take 2.04 MiB" in text
    assert "less than 1.78 MiB: the plan is at 1.00" in text
    assert re.search(r"g_hidden +0 +1605632 +256 KiB +4 to 6", text)
    assert "no temporaries" in inspect.memory_summary(chain(2))
    document = training_step()
    document["memory"]["lower_bound"] = 1 << 20
    assert "less than 1 MiB: the plan is at 1.78" in inspect.memory_summary(document)
    document = training_step()
    document["memory"]["unplanned"] = document["memory"]["planned"]
    assert "would take as much" in inspect.memory_summary(document)


@verifies("inspect.report.whole")
def test_report_is_one_file(tmp_path: Path) -> None:
    path = inspect.html_report(training_step(), tmp_path / "deep" / "report.html",
                               {1: 1e-3}, inspect.Machine(40e9, 1e11), {"replays": 1234})
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?:|@import|url\((?!#)", text)
    for _, attributes in page.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    names = {a["id"] for _, a in page.elements if "id" in a}
    links = {a["href"] for name, a in page.elements if name == "a"}
    assert {link[1:] for link in links if link} <= names
    assert "1,234" in page.words and "replays" in page.words
    again = inspect.report_html(training_step(), {1: 1e-3}, inspect.Machine(40e9, 1e11),
                                {"replays": 1234})
    assert again == text


@verifies("inspect.report.found")
def test_kernels_are_found_by_all_their_buffers() -> None:
    found = {a["data-kernel"]: a["data-find"] for name, a in Page(
        inspect.report_html(training_step())).elements if "data-find" in a}
    assert found["3"] == "3 cross_entropy log-softmax, gather, mean (train.py:14) cpu logits " \
        "labels loss g_logits"


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
@verifies("inspect.report.found")
def test_a_report_is_narrowed(tmp_path: Path) -> None:
    count = MOST_DRAWN
    (tmp_path / "report.html").write_text(inspect.report_html(chain(count)))
    said = in_chromium(tmp_path, """
const frame = document.createElement("iframe");
const opened = new Promise((resolve) => { frame.onload = resolve; });
Object.assign(frame, {src: "report.html", width: 800, height: 600});
document.body.append(frame);
await opened;
const page = frame.contentDocument, find = page.getElementById("find"), seen = [];
for (const words of ["", "12 CPU", "nobody"]) {
  find.value = words;
  find.dispatchEvent(new Event("input"));
  const rows = [...page.querySelectorAll("tr[data-kernel]")].filter((row) => row.offsetHeight);
  const sources = [...page.querySelectorAll("details[id^=kernel]")].filter(
    (each) => each.offsetHeight);
  seen.push([rows.length, sources.length, page.getElementById("found").textContent]);
}
return seen;
""", gpu=False)
    if not said:
        pytest.skip("chromium does not start")
    met = sum("12" in words for name, a in Page(inspect.report_html(chain(count))).elements
              if (words := a.get("data-find")))
    assert said[1] == [[count, count, ""], [met, met, f"{met} of {count} kernels"],
                       [0, 0, f"0 of {count} kernels"]]


@verifies("inspect.report.whole")
def test_graph_shows_kernels_and_dependencies() -> None:
    document = with_two_reasons()
    page = Page(schedule_graph(document))
    assert [a["data-kernel"] for a in page.of_class("kernel")] == [str(n) for n in range(8)]
    for kind in ("RAW", "WAR", "WAW"):
        drawn = [(a["data-before"], a["data-after"]) for a in page.of_class("edge")
                 if kind in (a["class"] or "").split()]
        wanted = [(str(d["before"]), str(d["after"])) for d in document["dependencies"]
                  if d["kind"] == kind]
        assert sorted(drawn) == sorted(wanted)


@verifies("inspect.report.whole")
def test_long_schedules_say_what_is_missing() -> None:
    count = MOST_DRAWN + 50
    document = chain(count)
    for kernel in document["kernels"]:
        kernel["name"] = f"kernel_{kernel['id']}"
    page = Page(inspect.report_html(document))
    assert len(page.of_class("kernel")) == MOST_DRAWN
    assert any(f"first {MOST_DRAWN} of {count} kernels" in words for words in page.words)
    assert "Nothing has to run" in inspect.report_html(chain(0))


@verifies("inspect.report.whole")
def test_boxes_do_not_overlap() -> None:
    nodes = list(range(40))
    edges = [(a, b) for a in nodes for b in nodes if a < b and (7 * a + 3 * b) % 11 == 0]
    layers = layers_of(nodes, edges)
    assert all(layers[a] < layers[b] for a, b in edges)
    layout = layered(layers, {n: 100.0 for n in nodes}, edges, 20.0, 90.0)
    rows: dict[float, list[float]] = {}
    for x, y in (layout.places[node] for node in nodes):
        rows.setdefault(y, []).append(x)
        assert 50 <= x <= layout.width - 50 + 1e-6 and 0 <= y <= layout.height
    for row in rows.values():
        assert all(b - a >= 120 - 1e-6 for a, b in pairwise(sorted(row)))


def crossing(kernels: int) -> Document:
    """Each kernel reads what the two before it wrote, and writes over it: three reasons each."""
    document = chain(kernels)
    document["dependencies"] = [
        {"before": before, "after": after, "kind": kind, "buffer": before, "version": 1}
        for after in range(kernels) for before in range(max(after - 2, 0), after)
        for kind in ("RAW", "WAR", "WAW")]
    return document


@verifies("inspect.report.whole")
@pytest.mark.parametrize("document", [crossing(6), with_two_reasons(), training_step()])
def test_words_of_lines_do_not_cover_each_other(document: Document) -> None:
    words = [(float(x), float(y), len(text)) for x, y, text in re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)" class="edge-label [^>]*>([^<]*)<',
        schedule_graph(document))]
    assert len(words) > 6
    assert not [pair for pair in combinations(words, 2) if abs(pair[0][1] - pair[1][1]) < 12
                and abs(pair[0][0] - pair[1][0]) < 6 * (pair[0][2] + pair[1][2]) / 2]


@verifies("inspect.report.whole")
def test_the_memory_chart_has_room_for_its_words() -> None:
    """Also of a plan with two kernels, on a device with a long name."""
    document = training_step()
    document["order"] = document["order"][:2]
    document["memory"]["placements"] = [
        {**place, "first": 0, "last": 1} for place in document["memory"]["placements"][:1]]
    document["memory"]["arenas"][0]["device"] = "REFERENCE:11"
    text = memory_chart(document)
    wide = float(re.search(r'<svg[^>]* width="([\d.]+)"', text)[1])  # type: ignore[index]
    titles = re.findall(r'<text x="([\d.]+)"[^>]*>(arena [^<]*)<', text)
    assert titles and all(float(x) + 7 * len(words) < wide for x, words in titles)


@verifies("inspect.report.whole")
def test_memory_chart() -> None:
    document = training_step()
    page = Page(memory_chart(document))
    hints = [a["data-tip"] or "" for name, a in page.elements if name == "g" and "data-tip" in a]
    for place in document["memory"]["placements"]:
        name = BUFFERS[place["buffer"]][0]
        assert any(hint.startswith(f"{name}: ") and f"at offset {place['offset']}\n" in hint
                   and hint.endswith(f"from position {place['first']} to position {place['last']}")
                   for hint in hints)
    alive = needed(document["memory"]["placements"], 8)
    assert max(alive) == document["memory"]["lower_bound"]
    assert alive[0] == 1024 and alive[7] == 1605632
    assert any((a.get("data-tip") or "").startswith("lower bound: 1.78 MiB")
               for a in page.of_class("bound"))


@verifies("inspect.report.whole")
def test_the_memory_chart_is_drawn_to_scale() -> None:
    document = training_step()
    document["memory"]["arenas"][0]["bytes"] *= 2  # so that the lower bound is below its end
    placements = sorted(document["memory"]["placements"], key=lambda p: (p["first"], p["offset"]))
    text = memory_chart(document)
    rectangle = r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"'
    boxes = [tuple(map(float, found))
             for found in re.findall(r'<g class="tone[^>]*>' + rectangle, text)]
    assert len(boxes) == len(placements)
    ends = [(p["offset"], y + height) for p, (_, y, _, height) in zip(
        placements, boxes, strict=True)]
    (low, bottom), (high, top) = min(ends), max(ends)
    scale = (bottom - top) / (high - low)
    assert scale > 0
    assert all(abs(bottom - (offset - low) * scale - end) < 0.5 for offset, end in ends)
    step = (boxes[-1][0] - boxes[0][0]) / (placements[-1]["first"] - placements[0]["first"])
    for place, (x, _, width, _) in zip(placements, boxes, strict=True):
        assert abs(x - boxes[0][0] - (place["first"] - placements[0]["first"]) * step) < 0.5
        assert abs(width - (place["last"] - place["first"] + 1) * step) < 2
    (line,) = re.findall(r'd="M76.0 ([0-9.]+)H[^"]*" class="bound"', text)
    least = document["memory"]["lower_bound"]
    assert abs(float(line) - (bottom - (least - low) * scale)) < 1.5


@verifies("inspect.report.whole")
def test_text_from_programs_stays_text() -> None:
    evil = "<script>alert('&\"')</script>"
    document = training_step()
    document["buffers"][4]["name"] = document["notes"][0] = evil
    document["implementation"] = document["boundaries"][0]["reason"] = evil
    document["fusions"][0]["reason"] = document["cache"]["key"] = evil
    document["kernels"][1].update(name=evil, label=evil, source=evil + SOURCE,
                                  optimizations=[evil], device=evil)
    text = inspect.report_html(document, counters={evil: 3})
    page = Page(text)
    assert [name for name, _ in page.elements].count("script") == 2  # data, and what draws them
    assert "alert('" not in text.replace("&#x27;", "'").split("<script>")[0].split("&lt;")[0]
    assert any("<b>" in words for words in page.words)  # from the source, as text
    hints = [attributes.get("data-tip") or "" for _, attributes in page.elements]
    assert any(hint.startswith(f"kernel 1: {evil}\n{evil}\n") for hint in hints)


@verifies("inspect.table.lines")
def test_the_sample_is_a_legal_schedule() -> None:
    """But for reasons: the tests above want to see one that is missing."""
    assert {found.rule for found in check(training_step())} <= {"fusion.boundary.reason"}


@verifies("inspect.table.lines")
@pytest.mark.parametrize("count, text", [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"),
                                         (1536, "1.5 KiB"), (1 << 20, "1 MiB"),
                                         (1047552, "1023 KiB"), (5 << 30, "5 GiB")])
def test_bytes(count: int, text: str) -> None:
    assert inspect.bytes_text(count) == text


@verifies("inspect.table.lines")
def test_times() -> None:
    assert [inspect.time_text(t) for t in (None, 2.5, 1.5e-3, 2e-6, 3e-9)] == [
        "-", "2.5 s", "1.5 ms", "2 us", "3 ns"]


@verifies("inspect.report.rules")
def test_a_rule_that_is_named_leads_to_its_text(tmp_path: Path) -> None:
    stated = {rule.id: rule.text.replace("*", "") for rule in read_rules().rules}
    for number, document in enumerate((training_step(), chain(MOST_DRAWN + 1))):
        page = inspect.html_report(document, tmp_path / f"{number}.html").read_text("utf-8")
        page = page.partition("</style>")[2].partition("<script")[0]
        body, _, texts = page.partition('<section id="rules"')
        named = re.findall(r'<a href="#rule-([^"]+)"><code>r\[([^]]+)\]</code></a>', body)
        assert len(named) >= 5 and all(led == name for led, name in named)
        assert "r[" not in re.sub(r"<a [^>]*><code>r\[[^]]+\]</code></a>", "", body)
        told = dict(re.findall(r'<p id="rule-([^"]+)"><code>[^<]*</code><br>(.*?)</p>', texts))
        assert {name for name, _ in named} <= told.keys()
        for name, words in told.items():
            assert unescape(re.sub("</?em>", "", words)) == stated[name]
