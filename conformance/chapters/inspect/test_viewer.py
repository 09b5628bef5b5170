"""Schedules of any size, beside each other, and given to browsers. See spec/inspect.md."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.chapters.export.browser import CHROMIUM
from conformance.chapters.export.devtools import Browser, opened
from conformance.chapters.inspect.test_inspect import Page, chain, training_step
from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, Variable, inspect, nn, realize
from impl.errors import NaNError
from impl.inspect.__main__ import main
from impl.inspect.compact import compact
from impl.inspect.drawing import MOST_DRAWN
from impl.inspect.repeats import Repeat, collapsed, repeats
from impl.inspect.serving import SeenCall, Viewer

Document = dict[str, Any]


def network(layers: int, length: int = 7) -> Document:
    """Kernels of a beginning, of so many equal layers, and of an end; each reads the one before."""
    document = chain(3 + layers * length + 2)
    for place, kernel in enumerate(document["kernels"]):
        inner = 3 <= place < 3 + layers * length
        name = f"part_{(place - 3) % length}" if inner else f"alone_{place}"
        kernel.update(name=name, label=f"{name} (model.py:{place % length})", bytes=128)
    return document


def several() -> Tensor:
    """A value of several kernels, with a state and a reduction."""
    x = Tensor.arange(24).float().reshape(4, 6).contiguous().realize()
    return (x.softmax() @ x.T).contiguous().sum(0) + x.max()


@verifies("inspect.repeats.whole")
@pytest.mark.parametrize("layers", [2, 12])
def test_layers_are_found(layers: int) -> None:
    document = network(layers)
    assert repeats(document) == [Repeat(3, 7, layers)]
    drawn = collapsed(document)
    assert [kernel["id"] for kernel in drawn["kernels"]] == [*range(10), *drawn["order"][-2:]]
    assert {kernel["times"] for kernel in drawn["kernels"][3:10]} == {layers}
    # The last layer hands on what the first end reads, which the one that is left does for it.
    last = 3 + 7 * layers
    assert (9, last) in {(row["before"], row["after"]) for row in drawn["dependencies"]}
    assert not repeats(chain(1)) and not repeats({**chain(2), "kernels": [], "order": []})


@verifies("inspect.repeats.whole")
def test_a_layer_that_differs_is_not_of_the_repeat() -> None:
    document = network(6)
    document["kernels"][3 + 7 * 3 + 2]["bytes"] = 256
    found = repeats(document)
    assert all(not one.start <= 3 + 7 * 3 + 2 < one.stop for one in found)
    assert Repeat(3, 7, 3) in found


@verifies("inspect.report.large")
def test_the_columns_say_what_the_document_says() -> None:
    document = training_step()
    data = compact(document, {1: 1e-3})
    words, kernels = data["words"], data["kernels"]
    assert [words[each] for each in kernels["name"]] == [k["name"] for k in document["kernels"]]
    assert [words[data["buffers"][each][0]] for each in kernels["reads"][3]] == ["logits", "labels"]
    assert {(before, after, words[kind], buffer) for before, after, kind, buffer in data["waits"]} \
        == {(row["before"], row["after"], row["kind"], row["buffer"])
            for row in document["dependencies"]}
    assert [(b, a, buffer, words[why]) for b, a, buffer, why in data["boundaries"]][0] \
        == (1, 2, 4, "reduce: needs a whole row of 512")
    assert words[kernels["fused"][3]] == "all stages run over the same rows"
    assert max(data["alive"]) == document["memory"]["lower_bound"]
    in_order, predicted = data["scales"]
    assert [row["name"] for row in in_order["rows"]] == ["CPU copies", "CPU"]
    assert predicted["length"] >= 1e3 and kernels["seconds"][1] == 1e-3
    assert len(set(words)) == len(words)


@verifies("inspect.report.large")
def test_a_large_report_has_each_reason_once() -> None:
    document = network(100)
    document["boundaries"] = [{"before": i, "after": i + 1, "buffer": i,
                               "reason": "odd" if i % 2 else "even"} for i in range(700)]
    assert len(document["kernels"]) > MOST_DRAWN
    page = Page(inspect.report_html(document))
    said = " ".join(page.words)
    assert said.count("350 times, 21.9 KiB") == 2 and "7 kernels, 100 times" in said
    assert "positions 3 to 702" in said
    assert len(page.of_class("kernel")) == 12 and said.count("100 times") >= 7
    assert not any(name == "tr" and "data-kernel" in a for name, a in page.elements)


def drag(browser: Browser, start: float, end: float) -> None:
    """Press on the track at an x, in its first row of kernels, and let go at another."""
    browser.place("#track")
    top = browser.value("document.getElementById('track').getBoundingClientRect().top")
    browser.drag([(start, top + 120), (end, top + 120)])


def pressed(browser: Browser, x: float) -> str:
    """What is told of the kernel at an x of the track, once it was pressed."""
    told = "document.querySelector('#picked h3').textContent"
    before = browser.value(told)
    drag(browser, x, x)
    browser.until(f"{told} !== {before!r}")
    return str(browser.value(told))


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
@verifies("inspect.report.large")
def test_ten_thousand_kernels_are_looked_at(tmp_path: Path) -> None:
    document = network(1428)
    count = len(document["kernels"])
    path = inspect.html_report(document, tmp_path / "report.html")
    with opened() as browser:
        browser.open(path.as_uri(), 400)
        moving = "getComputedStyle(document.documentElement).scrollBehavior"
        assert browser.value(moving) == "auto"  # who wants less motion gets none
        rows = "document.querySelectorAll('#rows [role=option]').length"
        told = "document.querySelector('#picked h3').textContent"
        assert 0 < browser.value(rows) < 60
        browser.value("document.getElementById('track').focus()")
        browser.key("End")
        assert browser.value(told) == f"Kernel {count - 1} alone_{count - 1}"
        assert 0 < browser.value(rows) < 60
        assert browser.value("document.querySelector('[aria-selected=true]').id") \
            == f"row-{count - 1}"
        browser.value("document.querySelector('#picked button').click()")
        assert browser.value(told) == f"Kernel {count - 2} alone_{count - 2}"
        # What is pressed after zooming in is the kernel that lies there; then it is dragged.
        browser.key("Home")
        for _ in range(8):
            browser.key("+")
        one = pressed(browser, 60)
        drag(browser, 300, 120)
        other = pressed(browser, 60)
        assert int(other.split()[1]) > int(one.split()[1]) > 0
        browser.value("""(() => { const find = document.getElementById('find');
            find.value = 'part_3'; find.dispatchEvent(new Event('input')); })()""")
        assert browser.value("document.getElementById('found').textContent") \
            == f"1,428 of {count:,} kernels"
        assert browser.value("document.documentElement.scrollWidth - innerWidth") <= 0
        assert browser.errors == []
        assert all(each.startswith("file:") for each in browser.addresses)


@verifies("inspect.diff.lines+2")
def test_schedules_are_compared_by_lines() -> None:
    first, second = training_step(), training_step()
    assert "the same kernels for each line" in inspect.difference(first, second)
    found = inspect.compared(first, second)
    assert not found.lines and not found.reasons and not any(
        fact.cells[3] for fact in found.facts)
    second["kernels"][1]["source"] = "another"
    second["kernels"][2]["bytes"] *= 2
    second["boundaries"].pop()
    found = inspect.compared(first, second)
    assert [line.name for line in found.lines] == ["train.py:12", "train.py:13"]
    assert found.reasons == [("no reason was given", 1, 0)]
    text = inspect.difference(first, second)
    assert "train.py:13: 1 kernel, 281 KiB -> 1 kernel, 562 KiB" in text
    assert "read or written" in text and "+281 KiB" in text
    # What only one of them says is no difference.
    for kernel in second["kernels"]:
        kernel.pop("source", None)
    assert [line.name for line in inspect.compared(first, second).lines] == ["train.py:13"]


@verifies("inspect.diff.lines+2")
def test_schedules_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{name}.json" for name in "ab"]
    for path, fuse in zip(paths, (1, 0), strict=True):
        with Context(FUSE=fuse):
            path.write_text(json.dumps(Tensor.schedule_document(several())))
    one, two = map(str, paths)
    assert main(["diff", one, one]) == 0
    assert main(["diff", one, two, "--html", str(tmp_path / "d.html")]) == 1
    assert "FUSE=0: every operation" in capsys.readouterr().out
    assert "FUSE=0: every operation" in " ".join(Page((tmp_path / "d.html").read_text()).words)
    for command in (["show", one], ["report", one, str(tmp_path / "r.html")],
                    ["trace", one, str(tmp_path / "t.json")]):
        assert main(command) == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    (tmp_path / "c.json").write_text("[]")
    assert main(["show", str(tmp_path / "c.json")]) == 2
    assert "no schedule document" in capsys.readouterr().err


@verifies("inspect.diff.lines+2")
def test_what_differs_beside_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ended(document: Document) -> int:
        paths = [tmp_path / f"{name}.json" for name in ("first", "other")]
        for path, each in zip(paths, (training_step(), document), strict=True):
            path.write_text(json.dumps(each))
        return main(["diff", *map(str, paths)])

    assert ended(training_step()) == 0
    assert "another order" not in capsys.readouterr().out
    turned = training_step()
    turned["order"].reverse()
    assert ended(turned) == 1 and "run in another order" in capsys.readouterr().out
    alone = training_step()
    alone["dependencies"].pop()
    assert ended(alone) == 1 and "wait for each other" in capsys.readouterr().out
    moved = training_step()
    moved["memory"]["placements"][0]["offset"] += 64
    assert ended(moved) == 1 and "lie elsewhere" in capsys.readouterr().out
    larger = training_step()
    larger["memory"]["planned"] += 64
    assert ended(larger) == 1
    assert inspect.compared(training_step(), larger).apart == []
    assert "lie elsewhere" in inspect.difference_html(training_step(), moved, ("a", "b"))


def asked(address: str, host: str = "") -> tuple[int, str]:
    """The status and the text of an answer."""
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@verifies("inspect.viewer.served+2")
def test_schedules_are_served_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = Viewer()
    monkeypatch.setattr(realize.session, "viewers", [viewer.see])
    monkeypatch.setattr("atexit.register", lambda function: None)
    double = TinyJit(lambda t: (t * 2).realize())
    with Context(VIZ=1, DEVICE="CPU"):
        for number in range(3):
            several().realize()
            double(Tensor([float(number)]))
    assert viewer.server is not None
    try:
        assert viewer.server.server_address[0] == "127.0.0.1"
        status, text = asked(viewer.address)
        assert status == 200 and "&lt;lambda&gt;: 3 calls, 1 replayed" in text
        page = Page(text)
        numbers = [a["href"] for name, a in page.elements if name == "a"]
        assert "schedule/0" in numbers and "compare/0/1" in numbers
        largest = max(range(len(viewer.kept)),
                      key=lambda n: len(list(viewer.kept.values())[n].document["kernels"]))
        status, text = asked(f"{viewer.address}schedule/{largest}")
        page = Page(text)
        assert status == 200 and "measured, all kernels" in page.words
        assert "times planned" in page.words and any("void" in words for words in page.words)
        document = json.loads(asked(f"{viewer.address}document/{largest}")[1])
        assert document["kernels"][0]["source"]
        events = json.loads(asked(f"{viewer.address}trace/{largest}")[1])["traceEvents"]
        assert {e["args"]["kernel"] for e in events if e["ph"] == "X"} \
            == {kernel["id"] for kernel in document["kernels"]}
        assert asked(f"{viewer.address}compare/0/1")[0] == 200
        assert asked(f"{viewer.address}schedule/99")[0] == 404
        assert asked(viewer.address, "example.org:80")[0] == 404
        assert asked(viewer.address, "[::1")[0] == 404
    finally:
        closed(viewer)


def closed(viewer: Viewer) -> None:
    """Give no more pages."""
    assert viewer.server is not None
    realize.session.spans = None
    viewer.server.shutdown()
    viewer.server.server_close()


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Viewer]:
    """A viewer of what runs meanwhile."""
    viewer = Viewer()
    monkeypatch.setattr(realize.session, "viewers", [viewer.see])
    monkeypatch.setattr("atexit.register", lambda function: None)
    viewer.start(0)
    with Context(VIZ=1, DEVICE="REFERENCE"):
        yield viewer
    closed(viewer)


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
@verifies("inspect.viewer.served+2")
def test_the_list_of_schedules_fits_a_narrow_page(watching: Viewer) -> None:
    for number in range(2):
        (Tensor([1.0, 2.0]).sum() + number).realize()
    with opened() as browser:
        browser.open(watching.address, 400)
        assert browser.value("document.links.length") > 4
        for sides in browser.value("[...document.querySelectorAll('html, .wide')]"
                                   ".map(each => [each.scrollWidth, each.clientWidth])"):
            assert sides[0] <= sides[1]


@pytest.mark.slow
@verifies("inspect.viewer.served+2")
def test_pages_are_given_while_a_program_schedules(watching: Viewer) -> None:
    over, statuses, kept = threading.Event(), list[int](), list[Any]()
    failures: list[Exception] = []

    def ask() -> None:
        while not over.is_set() and not failures:
            try:
                for path in ("", "document/0", "trace/0"):
                    statuses.append(asked(f"{watching.address}{path}")[0])
            except Exception as error:  # told by the test, and not by a thread
                failures.append(error)

    several().realize()
    askers, interval = [threading.Thread(target=ask) for _ in range(2)], sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        for asker in askers:
            asker.start()
        for number in range(32):
            x = Tensor.empty(4)
            for bit in range(5):  # each time another program
                x = x.exp() if number >> bit & 1 else -x + 1
            x.realize()
            kept += [TinyJit(lambda t: t) for _ in range(30)]
            if failures:
                break
    finally:
        sys.setswitchinterval(interval)
        over.set()
        for asker in askers:
            asker.join()
    assert not failures and len(watching.kept) >= 30
    assert len(statuses) >= 6 and set(statuses) == {200}


@verifies("inspect.viewer.served+2")
def test_a_schedule_is_shown_as_one_call(watching: Viewer) -> None:
    size = Variable("n", 1, 64)
    rows = Tensor.arange(64).float().contiguous().realize()
    shown: list[tuple[Document, dict[int, float]]] = []
    for count in (3, 50):
        (rows[:size.bind(count)] * 2).sum().realize()
        document = json.loads(asked(f"{watching.address}document/{len(watching.kept) - 1}")[1])
        shown.append((document, list(watching.kept.values())[-1].timings))
    (few, first), (many, second) = shown
    assert few["cache"]["key"] == many["cache"]["key"] and first != second
    costs = [sum(k["bytes"] for k in each["kernels"]) for each in (few, many)]
    assert costs[1] - costs[0] >= 47 * 4
    # A run of which not all kernels are measured leaves what is shown as it was.
    last = list(watching.kept.values())[-1]
    last.again(SeenCall(json.loads(json.dumps(few)), lambda: None))
    last.measure([])
    assert last.timings == second and last.times == 3


@verifies("inspect.names.user")
def test_a_plan_that_was_known_has_names_too(watching: Viewer) -> None:
    picture = Tensor.arange(5).float().contiguous().realize()
    with Context(VIZ=0):
        (picture * 3 + 1).realize()
    for _ in range(2):
        (picture * 3 + 1).realize()
    document = list(watching.kept.values())[-1].document
    assert document["cache"]["hit"]
    assert "picture" in [buffer.get("name") for buffer in document["buffers"]]


@verifies("inspect.viewer.served+2")
def test_pages_are_written_where_nobody_looks(tmp_path: Path) -> None:
    script = "from impl import Tensor\nrows = Tensor([1.0, 2.0])\n(rows + 1).realize()\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          check=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, "VIZ": "1", "TMPDIR": str(tmp_path)})
    index = Path(done.stderr.split()[-1])
    assert index.parent.parent == tmp_path
    for name, attributes in Page(index.read_text()).elements:
        if name == "a":
            assert "</html>" in (index.parent / str(attributes["href"])).read_text()


class Network:
    """Two layers."""

    def __init__(self) -> None:
        self.hidden, self.out = nn.Linear(4, 3), nn.Linear(3, 2)

    def __call__(self, x: Tensor) -> Tensor:
        """The scores."""
        return self.out(self.hidden(x).relu())


@verifies("inspect.names.user")
def test_buffers_are_called_as_the_user_calls_them(tmp_path: Path) -> None:
    model, pictures = Network(), Tensor.ones(5, 4).contiguous().realize()
    Tensor.realize(*nn.state.get_parameters(model))
    scores = model(pictures)
    text = scores.report(tmp_path / "report.html").read_text()
    for name in ("model.hidden.weight", "model.out.bias", "pictures", "scores"):
        assert name in text
    assert any("every operation has a kernel of its own" in words for words in Page(text).words)


@verifies("inspect.nan.first")
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_the_first_nan_is_named(device: str) -> None:
    with Context(CHECK_NAN=1, DEVICE=device, FUSE=0):
        a = Tensor([4.0, 1.0, -2.0, -3.0]).realize()
        logarithms = a.log().contiguous()
        assert (a[:2].log2() * 2).tolist() == [4.0, 0.0]
        for _ in range(2):  # what the first time left in memory hides nothing
            with pytest.raises(NaNError, match=r"\(log\) makes NaN: 2 of 4 elements of b\d+, the "
                               r"first of them element 2; it reads b\d+ \(-3 to 4\); at log "
                               r"\(.*test_viewer.py") as found:
                (logarithms.sum() + 1).realize()
            logarithms = a.log().contiguous()
        assert "CHECK_NAN=0" in found.value.remedy
        assert (a / 0).tolist()[0] == float("inf")
        # A captured function is looked at, too.
        roots = TinyJit(lambda t: t.sqrt().realize())
        assert [roots(Tensor([value])).item() for value in (4.0, 9.0, 16.0)] == [2.0, 3.0, 4.0]
        with pytest.raises(NaNError, match="makes NaN: 1 of 1"):
            roots(Tensor([-1.0]))
        old = Tensor([float("nan"), 1.0]).realize()  # given, and not made by a kernel
        old[1:] = old[1:] * 5
        assert old.tolist()[1] == 5.0
        old.assign(-old)  # another NaN than before, by its sign
        with pytest.raises(NaNError, match=r"\(neg\) has NaN, and was given some: 1 of 2"):
            old.realize()
        with pytest.raises(NaNError, match="has NaN, and was given some: 1 of 2"):
            Tensor.cat(Tensor([float("nan")]), Tensor([1.0])).realize()
        a.assign(a.sqrt())
        with pytest.raises(NaNError, match=r"makes NaN.*it reads b\d+ \(-3 to 4\)"):
            a.realize()
    with Context(CHECK_NAN=2, DEVICE=device), pytest.raises(NaNError, match="makes infinity"):
        (Tensor([1.0]).realize() / 0).realize()
