"""One HTML file that shows a schedule: nothing to install, nothing loaded from elsewhere."""
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from impl.collectives import Span
from impl.inspect.compact import as_script, compact
from impl.inspect.compare import difference_tables
from impl.inspect.drawing import MOST_DRAWN, kernel_hint, memory_chart, schedule_graph, tag
from impl.inspect.page import (
    FIND,
    INTRODUCTION,
    LEGEND,
    ROWS,
    SCRIPT,
    STYLE,
    TRACK,
    ZOOM,
    highlighted,
    viewer_script,
)
from impl.inspect.repeats import collapsed, repeats
from impl.inspect.rules import linked, stated
from impl.inspect.text import (
    Document,
    Machine,
    Row,
    Timings,
    buffer_names,
    buffer_sizes,
    bytes_text,
    checked,
    count_text,
    ordered_kernels,
    plural,
    shortened,
    summary,
    time_text,
    touched,
)
from impl.inspect.timeline import hidden, predicted_spans, timeline_chart

#: Further numbers for the top of the page: {"replays": 12, "cache hits": 3}.
Counters = Mapping[str, int]
#: Another schedule, and what it is.
Beside = tuple[str, Document]


def html_report(document: Document, path: str | os.PathLike[str], timings: Timings | None = None,
                machine: Machine | None = None, counters: Counters | None = None,
                spans: Sequence[Span] = (), beside: Beside | None = None) -> Path:
    """Write a page that shows a schedule: graph, reasons, memory, source.

    Args:
        document: what `Tensor.schedule_document` returns.
        path: the file to write; folders above it are made.
        timings: seconds per kernel id, if they were measured.
        machine: limits of the device, to compare times with.
        counters: further numbers to show, such as cache hits and replays.
        spans: what each device did, and when, as `realize.measured` notes it.
        beside: another schedule to compare with, and what it is: ("without fusion", document).

    Returns:
        The path.

    Raises:
        GraphError: the document has another format (r[inspect.format.refused]).
    """
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(report_html(document, timings, machine, counters, spans, beside),
                    encoding="utf-8")
    return file


def report_html(document: Document, timings: Timings | None = None,
                machine: Machine | None = None, counters: Counters | None = None,
                spans: Sequence[Span] = (), beside: Beside | None = None) -> str:
    """The text of the page that `html_report` writes."""
    checked(document)
    sections = [
        _header(document, timings, counters),
        _section("read", "How to read this", linked(INTRODUCTION)),
        *([_section("order", "What runs, in order", _order(document))] if document["kernels"]
          else []),
        _section("graph", "The schedule", _graph(document, timings, machine)),
        _section("kernels", "Kernels", FIND + (ROWS if _is_large(document) else _kernels(
            document, timings, machine))),
        _section("reasons", "Why it was cut and joined like this", _reasons(document)),
        *([_section("timeline", "What runs when", _timeline(document, timings, machine, spans))]
          if any("sent" in kernel for kernel in document["kernels"]) else []),
        *([_section("beside", beside[0].capitalize(), difference_tables(
            document, beside[1], ("this schedule", beside[0])))] if beside else []),
        _section("memory", "Memory of temporaries", _memory(document)),
        *([] if _is_large(document) else [_section("source", "Source", _sources(document))]),
        *([_section("rewrites", "From the line to the text", _rewrites(document))]
          if document.get("rewrites") is not None else []),
        _section("rules", "The rules that are named here", stated()),
        _footer(document)]
    # r[impl inspect.report.whole]
    return ("<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>Schedule: {escape(plural(len(document['kernels']), 'kernel'))}</title>"
            f"<style>{STYLE}</style></head><body><main>{''.join(sections)}</main>"
            f"<div id='hint' role='status'></div><script type='application/json' id='data'>"
            f"{as_script(compact(document, timings, machine, spans))}</script>"
            f"<script>{viewer_script()}{SCRIPT}</script></body></html>\n")


def _is_large(document: Document) -> bool:
    """Whether a script lists the kernels, of which only those in view are there."""
    return len(document["kernels"]) > MOST_DRAWN


def _section(name: str, title: str, content: str) -> str:
    return tag("section", tag("h2", escape(title)) + content, id=name)


def _header(document: Document, timings: Timings | None, counters: Counters | None) -> str:
    links = [("read", "How to read this"), *([("order", "Order")] if document["kernels"] else []),
             ("graph", "Schedule"), ("kernels", "Kernels"), ("reasons", "Reasons"),
             ("memory", "Memory"), *([] if _is_large(document) else [("source", "Source")])]
    nav = "".join(tag("a", title, href=f"#{name}") for name, title in links)
    tiles = "".join(tag("div", tag("b", escape(value)) + tag("span", escape(name)), class_="tile")
                    for name, value in _facts(document, timings, counters))
    title = tag("div", tag("h1", "Schedule report")
                + tag("p", escape(summary(document, timings)) + ".", class_="soft"))
    return (tag("header", title + tag("button", "Light / dark", id="theme", type="button"))
            + tag("nav", nav) + tag("div", tiles, class_="tiles"))


def _facts(document: Document, timings: Timings | None,
           counters: Counters | None) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    kernels = document["kernels"]
    copies = sum(kernel["kind"] == "copy" for kernel in kernels)
    facts = [_counted(len(kernels) - copies, "kernel")]
    if copies:
        facts.append(_counted(copies, "copy"))
    if timings:
        facts.append(("measured, all kernels", time_text(sum(timings.values()))))
    facts.append(("read or written", bytes_text(sum(k.get("bytes", 0) for k in kernels))))
    operations = sum(kernel.get("operations", 0) for kernel in kernels)
    if operations:
        facts.append(("operations", count_text(operations)))
    memory = document.get("memory")
    if memory and memory["placements"]:
        facts.append(("for temporaries", bytes_text(memory["planned"])))
    if "cache" in document:
        facts.append(("plan cache", "hit" if document["cache"]["hit"] else "miss"))
    return facts + [(name, f"{count:,}") for name, count in (counters or {}).items()]


def _counted(count: int, noun: str) -> tuple[str, str]:
    return plural(count, noun).split(" ", 1)[1], f"{count:,}"


def _order(document: Document) -> str:
    """The place of the drawing that the script makes, and what it says without one."""
    found = repeats(document)
    said = "".join(tag("li", f"positions {one.start} to {one.stop - 1}: "
                       f"{plural(one.length, 'kernel')}, {one.times} times") for one in found[:20])
    if found:
        said = tag("details", tag("summary", "Parts that are repeated")
                   + tag("ul", said, class_="reasons"))
    return TRACK + said


def _graph(document: Document, timings: Timings | None, machine: Machine | None) -> str:
    if not document["kernels"]:
        return tag("p", "Nothing has to run: every value is in memory already.", class_="soft")
    text = tag("p", "Each box is a kernel; the bar in it is its share of "
               + ("the time." if timings else "the bytes moved.")
               + " Point at a box or a line for details. A click leads to the source.",
               class_="soft")
    drawn, found = document, repeats(document)
    if _is_large(document) and found:
        drawn = collapsed(document)
        text += tag("p", "Of a part that is repeated one is drawn, and its boxes say how often.")
    if len(drawn["kernels"]) > MOST_DRAWN:
        text += tag("p", f"Drawn are the first {MOST_DRAWN} of {len(drawn['kernels'])} kernels; "
                    "the list below has all of them.")
    return ZOOM + text + linked(LEGEND) + tag("div", schedule_graph(drawn, timings, machine),
                                      class_="scroll", tabindex=0, role="region",
                                      aria_label="graph of kernels")


def _kernels(document: Document, timings: Timings | None, machine: Machine | None) -> str:
    """The table, in the order in which the kernels run."""
    kernels, names = ordered_kernels(document), buffer_names(document)
    heads = ["position", "kernel", "computes", "reads", "writes", "bytes"]
    heads += ["operations"] if any("operations" in k for k in kernels) else []
    heads += (["time"] if timings else []) + (["predicted"] if machine else [])
    right = {"position", "bytes", "operations", "time", "predicted"}
    most = max((k.get("bytes", 0) for k in kernels), default=0)
    rows = []
    for position, kernel in enumerate(kernels):
        share = kernel.get("bytes", 0) / most if most else 0
        link = tag("a", escape(f"{kernel['id']} {kernel.get('name') or kernel['kind']}"),
                   href=f"#kernel-{kernel['id']}")
        cells = {"position": str(position), "kernel": link,
                 "computes": escape(kernel.get("label", "")),
                 "reads": escape(shortened(touched(kernel["reads"], names), 40)),
                 "writes": escape(shortened(touched(kernel["writes"], names), 40)),
                 "bytes": (tag("span", escape(bytes_text(kernel.get("bytes", 0)))
                               + f"<i style='width:{100 * share:.0f}%'></i>")),
                 "operations": escape(count_text(kernel.get("operations", 0))),
                 "time": escape(time_text((timings or {}).get(kernel["id"]))),
                 "predicted": escape(time_text(machine.predict(kernel) if machine else None))}
        rows.append(tag("tr", "".join(_cell(head, cells[head], right) for head in heads),
                        data_kernel=kernel["id"], data_find=_find_words(kernel, names)))
    head = "".join(tag("th", name, class_="right" if name in right else None) for name in heads)
    body = tag("thead", tag("tr", head)) + tag("tbody", "".join(rows))
    return tag("div", tag("table", body, class_="cards"), class_="wide")


def _find_words(kernel: Row, names: Mapping[int, str]) -> str:
    """What a kernel is found by: its name, what it computes and where, all of its buffers."""
    # r[impl inspect.report.found]
    return " ".join([str(kernel["id"]), kernel.get("name") or kernel["kind"],
                     kernel.get("label", ""), kernel["device"],
                     *touched([*kernel["reads"], *kernel["writes"]], names)]).lower()


def _cell(head: str, content: str, right: set[str]) -> str:
    css = "right" if head in right else "name" if head == "kernel" else None
    return tag("td", content, class_=css, data_head=head)


def _reasons(document: Document) -> str:
    """Boundaries, fusions and notes; of a large schedule each reason once."""
    if _is_large(document):
        return _reasons_counted(document)
    names, sizes = buffer_names(document), buffer_sizes(document)
    apart = []
    for row in document.get("boundaries", []):
        who = f"kernel {row['before']} → kernel {row['after']}"
        if row.get("buffer") is not None:
            who += f", {names[row['buffer']]}, {bytes_text(sizes[row['buffer']])}"
        apart.append((who, row["reason"] or "no reason was given"))
    together = [(f"kernel {row['kernel']}", row["reason"].removeprefix("fused: "))
                for row in document.get("fusions", [])]
    notes = [("", note) for note in document.get("notes", [])]
    parts = [_reason_list("Values that go through memory from one kernel to another "
                          "(r[fusion.boundary.reason]):", apart),
             _reason_list("Operations that share a kernel (r[fusion.group.legal]):", together),
             _reason_list("Notes:", notes)]
    return "".join(parts) or tag("p", "There was nothing to decide.", class_="soft")


def _reasons_counted(document: Document) -> str:
    """Each reason, how often it is given, and how many bytes go through memory for it."""
    sizes, parts = buffer_sizes(document), []
    apart: dict[str, list[int]] = {}
    for row in document.get("boundaries", []):
        apart.setdefault(row["reason"] or "no reason was given", []).append(
            sizes.get(row.get("buffer"), 0))
    together = Counter(row["reason"].removeprefix("fused: ")
                       for row in document.get("fusions", []))
    rows = [(f"{len(found):,} times, {bytes_text(sum(found))}", reason) for reason, found in
            sorted(apart.items(), key=lambda item: (-sum(item[1]), item[0]))]
    parts.append(_reason_list("Values that go through memory from one kernel to another "
                              "(r[fusion.boundary.reason]):", rows[:MOST_DRAWN]))
    parts.append(_reason_list("Operations that share a kernel (r[fusion.group.legal]):", [
        (f"{count:,} times", reason) for reason, count in together.most_common(MOST_DRAWN)]))
    parts.append(_reason_list("Notes:", [("", note) for note in document.get("notes", [])]))
    return "".join(parts)


def _reason_list(title: str, rows: Sequence[tuple[str, str]]) -> str:
    if not rows:
        return ""
    items = [tag("li", (tag("b", escape(who)) + ": " if who else "") + escape(why))
             for who, why in rows]
    return tag("p", linked(title), class_="soft") + tag("ul", "".join(items), class_="reasons")


def _timeline(document: Document, timings: Timings | None, machine: Machine | None,
              spans: Sequence[Span]) -> str:
    """The lanes of the devices, predicted and measured."""
    parts = []
    for title, found in (("Predicted", predicted_spans(document, timings, machine)),
                         ("Measured", spans)):
        if found:
            share = f"{100 * hidden(found):.0f} % of the time of transfers, devices compute"
            parts += [tag("p", escape(f"{title}: during {share}."), class_="soft"),
                      tag("div", timeline_chart(document, found), class_="wide")]
    return "".join(parts)


def _memory(document: Document) -> str:
    memory = document.get("memory")
    if not memory or not memory["placements"]:
        return tag("p", "This schedule has no temporaries.", class_="soft")
    most = max(memory["unplanned"], memory["planned"], 1)
    bars = "".join(_bar(name, memory[key], most, css) for name, key, css in (
        ("each in memory of its own", "unplanned", "alone"),
        ("as planned", "planned", "planned"),
        ("lower bound", "lower_bound", "least")))
    if _is_large(document):
        return bars + tag("p", "Each block in the drawing of the order is a temporary: as wide as "
                          "its life, as high as its size, at its address.", class_="soft")
    text = tag("p", linked(
        "Each block is a temporary: as wide as its life, as high as its size, at its address. Two "
        "that are needed together do not overlap (r[memory.reuse.disjoint]). The dashed line is "
        "the lower bound."), class_="soft")
    return (bars + text
            + tag("div", memory_chart(document), class_="wide"))


def _bar(name: str, count: int, most: int, css: str) -> str:
    line = f"<i class='{css}' style='width:{100 * count / most:.1f}%'></i>"
    return tag("div", tag("span", name) + line + tag("span", bytes_text(count)), class_="bar")


def _sources(document: Document) -> str:
    """What each kernel runs, folded; a kernel with no source has its facts."""
    names, parts = buffer_names(document), []
    for kernel in ordered_kernels(document):
        because = iter(kernel.get("because", []))
        steps = "".join(tag("span", escape(step), class_="chip", title=next(because, None))
                        for step in kernel.get("optimizations", []))
        title = tag("b", escape(f"kernel {kernel['id']}: {kernel.get('name') or kernel['kind']}"))
        if kernel.get("label"):
            title += f" <span class='soft'>{escape(kernel['label'])}</span>"
        body = tag("p", steps) if steps else ""
        facts = "; ".join(kernel_hint(names, kernel).split("\n")[1:]) + "."
        body += tag("p", escape(facts), class_="soft")
        for place, row in enumerate(kernel.get("journey", ())):
            said = f"{row['step']}: {row['why']}" if row["why"] else row["step"]
            body += tag("p", escape(f"{place}. {said}"), class_="soft") \
                + tag("pre", escape(row["kernel"]))
        if kernel.get("source"):
            body += tag("pre", highlighted(kernel["source"]))
        if kernel.get("machine"):
            body += tag("details", tag("summary", "Machine code")
                        + tag("pre", escape(kernel["machine"])), class_="machine")
        parts.append(tag("details", tag("summary", title) + body, id=f"kernel-{kernel['id']}"))
    return "".join(parts) or tag("p", "There are no kernels.", class_="soft")


def _rewrites(document: Document) -> str:
    """What each rule did, in order; how it goes on stands with each kernel's source."""
    # r[impl inspect.journey.complete]
    head = "".join(tag("th", name) for name in ("rule", "line", "before", "after"))
    rows = "".join(tag("tr", "".join(
        tag("td", escape(row["rule"]) if key == "rule" else tag("code", escape(row[key])))
        for key in ("rule", "line", "before", "after"))) for row in document["rewrites"])
    if not rows:
        return tag("p", "No rule applied.", class_="soft")
    return tag("div", tag("table", tag("thead", tag("tr", head)) + tag("tbody", rows)),
               class_="wide")


def _footer(document: Document) -> str:
    words = [document["format"], document.get("implementation", "")]
    if document.get("cache"):
        words.append(f"plan {document['cache']['key']}")
    return tag("footer", escape(" · ".join(word for word in words if word)))
