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
from impl.inspect.text import Document, bytes_text, ordered_kernels, plural
from impl.inspect.timeline import predicted_spans, trace
from impl.replay import captured_functions

#: So many schedules are kept, the first ones that differ.
MOST_KEPT = 500


@dataclass
class Shown:
    """A schedule, how often it was asked for, and what was measured at the last time.

    `compiled` adds what is known of its kernels once they are compiled.
    """

    document: Document
    compiled: Callable[[], None]
    times: int = 1
    spans: list[Span] = field(default_factory=list)

    def whole(self) -> Document:
        """The document with source, steps and costs, as far as its kernels are compiled."""
        self.compiled()
        return self.document

    def measured(self) -> list[Span]:
        """The spans of one whole run, or none: those of a run within another one are not its own.
        """
        known = {kernel["id"] for kernel in self.document["kernels"]}
        return self.spans if {span.kernel for span in self.spans} == known else []

    @property
    def timings(self) -> dict[int, float]:
        """The seconds of each kernel, if they were measured."""
        return {span.kernel: span.stop - span.start for span in self.measured()}


class Viewer:
    """All schedules of this process, and the pages that show them."""

    def __init__(self) -> None:
        self.kept: dict[str, Shown] = {}
        self.left_out = 0
        self.last: Shown | None = None
        self.server: ThreadingHTTPServer | None = None

    def see(self, document: Document, compiled: Callable[[], None]) -> None:
        """A schedule is about to run."""
        self._note_spans()
        if self.server is None:
            self.start(settings.get("VIZ_PORT"))
        key = document["cache"]["key"]
        self.last = self.kept.get(key)
        if self.last is not None:
            self.last.times += 1
        elif len(self.kept) < MOST_KEPT:
            self.last = self.kept[key] = Shown(document, compiled)
        else:
            self.left_out += 1

    def _note_spans(self) -> None:
        """What was measured since the last schedule was that one; from now on all is measured."""
        spans = realize.session.spans
        if spans and self.last is not None:
            self.last.spans = list(spans)
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
        kept = list(self.kept.values())
        match path.split("/"):
            case [""]:
                self._note_latest()
                return self.index(lambda number: f"schedule/{number}", True)
            case ["schedule", number]:
                self._note_latest()
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
            self.last.spans = list(realize.session.spans)

    def index(self, address: Callable[[int], str], served: bool) -> str:
        """The list of schedules and of captured functions."""
        rows = []
        for number, shown in enumerate(self.kept.values()):
            document = shown.document
            first = next(iter(ordered_kernels(document)), {})
            cells = [tag("a", f"schedule {number}", href=address(number)),
                     escape(first.get("label", "nothing to run")),
                     plural(len(document["kernels"]), "kernel"),
                     bytes_text(sum(k.get("bytes", 0) for k in document["kernels"])),
                     str(shown.times)]
            if served:
                cells.append(tag("a", "document", href=f"document/{number}") + " "
                             + tag("a", "trace", href=f"trace/{number}"))
                cells.append(tag("a", f"{number - 1} and {number}",
                                 href=f"compare/{number - 1}/{number}") if number else "")
            rows.append(tag("tr", "".join(tag("td", cell) for cell in cells)))
        heads = ["", "begins with", "kernels", "read or written", "times"]
        heads += ["as data", "beside each other"] if served else []
        head = tag("tr", "".join(tag("th", each, scope="col") for each in heads))
        body = tag("section", tag("h2", "Schedules") + tag("div", tag(
            "table", tag("thead", head) + tag("tbody", "".join(rows))), class_="wide")
            + (tag("p", f"{self.left_out} later schedules were not kept.") if self.left_out else "")
            + (tag("p", "Two others: compare/0/2 at the end of the address.", class_="soft")
               if served and len(self.kept) > 2 else ""))
        captured = "".join(tag("pre", escape(each.explain()), tabindex=0)
                           for each in captured_functions())
        if captured:  # r[impl inspect.viewer.served]
            body += tag("section", tag("h2", "Captured functions") + captured)
        return plain_page("Schedules of this program", body)


class _Pages(BaseHTTPRequestHandler):
    """Answers to browsers on this machine that ask for this machine by its number or name."""

    viewer: Viewer

    def do_GET(self) -> None:
        """Give a page."""
        host = urlsplit(f"//{self.headers.get('Host')}").hostname
        kind, status = "text/html; charset=utf-8", 200
        try:
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
