"""VIZ=1: the schedules of a program as pages, given to the browsers of this machine alone."""
from __future__ import annotations

import atexit
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from impl import realize, settings
from impl.collectives import Span
from impl.inspect.compare import difference_html, plain_page
from impl.inspect.drawing import tag
from impl.inspect.report import report_html
from impl.inspect.text import Document, bytes_text, ordered_kernels
from impl.inspect.timeline import predicted_spans, trace
from impl.replay import captured_functions

#: So many schedules are kept, the first ones that differ.
MOST_KEPT = 500


@dataclass
class SeenCall:
    """One call of a schedule. `compiled` adds what is known of its kernels once they are compiled.
    """

    document: Document
    compiled: Callable[[], None]
    spans: list[Span] = field(default_factory=list)

    def measured(self) -> list[Span]:
        """The spans of one whole run, or none: those of a run within another one are not its own.
        """
        known = {kernel["id"] for kernel in self.document["kernels"]}
        return self.spans if {span.kernel for span in self.spans} == known else []


@dataclass
class Shown:
    """A schedule, how often it was asked for, and the call of it that is shown.

    That is the last one of which all kernels were measured, or else the first: variables may have
    other values in each. The names of buffers are those of the first.
    """

    shown: SeenCall
    latest: SeenCall
    times: int = 1

    @property
    def document(self) -> Document:
        """The document of the call that is shown."""
        return self.shown.document

    def again(self, call: SeenCall) -> None:
        """The schedule is about to run once more."""
        for old, new in zip(self.document["buffers"], call.document["buffers"], strict=False):
            new.update({"name": old["name"]} if "name" in old else {})
        self.latest, self.times = call, self.times + 1

    def measure(self, spans: list[Span]) -> None:
        """What was measured while the latest call ran."""
        self.latest.spans = spans
        if self.latest.measured():
            self.shown = self.latest  # r[impl inspect.viewer.served+2]

    def whole(self) -> Document:
        """The document with source, steps and costs, as far as its kernels are compiled."""
        self.shown.compiled()
        return self.document

    def measured(self) -> list[Span]:
        """The spans of the call that is shown."""
        return self.shown.measured()

    @property
    def timings(self) -> dict[int, float]:
        """The seconds of each kernel, if they were measured."""
        return {span.kernel: span.stop - span.start for span in self.measured()}


class Viewer:
    """All schedules of this process, and the pages that show them.

    The program adds schedules while the threads of the server read them: one at a time.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a handler of a signal may run tensors, too
        self.kept: dict[str, Shown] = {}
        self.left_out = 0
        self.last: Shown | None = None
        self.server: ThreadingHTTPServer | None = None

    def see(self, document: Document, compiled: Callable[[], None],
            name: Callable[[], None]) -> None:
        """A schedule is about to run. `name` adds the user's names to its document."""
        with self.lock:
            self._note_spans()
            if self.server is None:
                self.start(settings.get("VIZ_PORT"))
            call, key = SeenCall(document, compiled), document["cache"]["key"]
            self.last = self.kept.get(key)
            if self.last is not None:
                self.last.again(call)
            elif len(self.kept) < MOST_KEPT:
                name()  # also of a plan that was known before anybody looked
                self.last = self.kept[key] = Shown(call, call)
            else:
                self.left_out += 1

    def _note_spans(self) -> None:
        """What was measured since the last schedule was that one; from now on all is measured."""
        self._note_latest()
        realize.session.spans = []

    def start(self, port: int) -> str:
        """Begin to give pages, and say where."""
        handler = type("Pages", (_Pages,), {"viewer": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        atexit.register(self.end)
        print(f"VIZ: schedules are shown at {self.address}", file=sys.stderr)
        return self.address

    @property
    def address(self) -> str:
        """Where the pages are."""
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def end(self) -> None:
        """The program is over: wait for who looks at its pages, or write them if nobody can."""
        assert self.server is not None
        self._note_spans()
        if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
            print(f"VIZ: {self.address} is there until Ctrl-C", file=sys.stderr)
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                return
        folder = Path(tempfile.mkdtemp(prefix="tensor-schedule-"))
        print(f"VIZ: {self.write(folder)}", file=sys.stderr)

    def write(self, folder: Path) -> Path:
        """Write the list and all reports into a folder; the path of the list."""
        for number in range(len(self.kept)):
            path = folder / f"schedule-{number}.html"
            path.write_text(self.page(f"schedule/{number}"), encoding="utf-8")
        index = folder / "index.html"
        index.write_text(self.index(lambda number: f"schedule-{number}.html", False),
                         encoding="utf-8")
        return index

    def page(self, path: str) -> str:
        """A page, or data for other programs.

        Raises:
            LookupError, ValueError: there is no such page.
        """
        if not path:
            return self.index(lambda number: f"schedule/{number}", True)
        with self.lock:  # r[impl inspect.viewer.served+2]
            self._note_latest()
            return self._page(list(self.kept.values()), path)

    def _page(self, kept: list[Shown], path: str) -> str:
        match path.split("/"):
            case ["schedule", number]:
                shown = kept[int(number)]
                return report_html(shown.whole(), shown.timings, spans=shown.measured(),
                                   counters={"times planned": shown.times})
            case ["document", number]:
                return json.dumps(kept[int(number)].whole())
            case ["trace", number]:
                shown = kept[int(number)]
                spans = shown.measured() or predicted_spans(shown.document)
                return json.dumps(trace(spans, shown.document))
            case ["compare", one, two]:
                return difference_html(kept[int(one)].whole(), kept[int(two)].whole(),
                                       (f"schedule {int(one)}", f"schedule {int(two)}"))
        raise LookupError(path)

    def _note_latest(self) -> None:
        """What was measured so far is of the schedule that came last, also while it runs."""
        if realize.session.spans and self.last is not None:
            self.last.measure(list(realize.session.spans))

    def index(self, address: Callable[[int], str], served: bool) -> str:
        """The list of schedules and of captured functions."""
        with self.lock:
            self._note_latest()
            body = self._table(address, served)
        captured = "".join(tag("pre", escape(each.explain()), tabindex=0)
                           for each in captured_functions())
        if captured:  # r[impl inspect.viewer.served+2]
            body += tag("section", tag("h2", "Captured functions") + captured)
        return plain_page("Schedules of this program", body)

    def _table(self, address: Callable[[int], str], served: bool) -> str:
        rows = []
        heads = ["schedule", "begins with", "kernels", "read or written", "times"]
        heads += ["as data", "beside each other"] if served else []
        for number, shown in enumerate(self.kept.values()):
            document = shown.document
            first = next(iter(ordered_kernels(document)), {})
            cells = [tag("a", str(number), href=address(number)),
                     escape(first.get("label", "nothing to run")),
                     str(len(document["kernels"])),
                     bytes_text(sum(k.get("bytes", 0) for k in document["kernels"])),
                     str(shown.times)]
            if served:
                cells.append(tag("span", tag("a", "document", href=f"document/{number}") + " "
                                 + tag("a", "trace", href=f"trace/{number}")))
                cells.append(tag("a", f"{number - 1} and {number}",
                                 href=f"compare/{number - 1}/{number}") if number else "")
            rows.append(tag("tr", "".join(tag("td", cell, data_head=head)
                                          for head, cell in zip(heads, cells, strict=True))))
        head = tag("tr", "".join(tag("th", each, scope="col") for each in heads))
        return tag("section", tag("h2", "Schedules") + tag("div", tag(
            "table", tag("thead", head) + tag("tbody", "".join(rows)), class_="cards"),
            class_="wide")
            + (tag("p", f"{self.left_out} later schedules were not kept.") if self.left_out else "")
            + (tag("p", "Two others: compare/0/2 at the end of the address.", class_="soft")
               if served and len(self.kept) > 2 else ""))


class _Pages(BaseHTTPRequestHandler):
    """Answers to browsers on this machine that ask for this machine by its number or name."""

    viewer: Viewer

    def do_GET(self) -> None:
        """Give a page."""
        kind, status = "text/html; charset=utf-8", 200
        try:
            host = urlsplit(f"//{self.headers.get('Host')}").hostname
            if host not in ("127.0.0.1", "localhost"):  # a page of others asks by its own name
                raise LookupError(host)
            path = self.path.partition("?")[0].strip("/")
            text = self.viewer.page(path)
            if path.startswith(("document/", "trace/")):
                kind = "application/json"
        except (LookupError, ValueError):
            status, text = 404, plain_page("There is no such page", tag("p", "See the list."))
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


viewer = Viewer()
