"""What runs when: predicted from a document, or measured; as a picture, and as a trace."""
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from impl.collectives import Span
from impl.inspect.drawing import CHART_LEFT, TONES, tag, text_label
from impl.inspect.text import Document, Machine, Row, Timings, ordered_kernels, time_text
from impl.multi import LATENCY, PER_BYTE, PER_OPERATION

#: What a machine does that nobody has described: for each byte and operation.
_PLAIN = Machine(1 / PER_BYTE, 1 / PER_OPERATION, LATENCY)
LANE, WIDTH = 20.0, 900.0


def predicted_spans(document: Document, timings: Timings | None = None,
                    machine: Machine | None = None) -> list[Span]:
    """When each kernel and transfer of a schedule is predicted to run, from 0 on, in seconds.

    The devices of a mesh do the same, and have one row. A transfer with a position `until` is in
    the lane "copy": it begins when what was computed before it is done, and meanwhile kernels go on
    that do not wait for it. Anything else waits for all before it.

    Args:
        document: what `Tensor.schedule_document` returns.
        timings: seconds per kernel id, if they were measured.
        machine: limits of the device, for kernels that were not; links are as fast as its memory.
    """
    machine = machine or _PLAIN
    awaited: dict[int, list[int]] = {}
    for row in document["dependencies"]:
        awaited.setdefault(row["after"], []).append(row["before"])
    computed = sent = 0.0
    done: dict[int, float] = {}
    spans = []
    for kernel in ordered_kernels(document):
        number, beside = kernel["id"], "until" in kernel
        took = (timings or {}).get(number)
        if took is None:
            took = machine.launch_seconds + kernel["sent"] / machine.bytes_per_second \
                if "sent" in kernel else machine.predict(kernel)
        # r[impl inspect.timeline.predicted+2]
        if beside:
            start = max(computed, sent)
        elif kernel["kind"] == "copy":
            start = max([computed, *done.values()])
        else:
            start = max([computed, *(done[before] for before in awaited.get(number, ()))])
        done[number] = start + took
        if beside:
            sent = done[number]
        else:
            computed = done[number]
        spans.append(Span(number, str(kernel["device"]), "copy" if kernel["kind"] == "copy"
                          else "compute", start, done[number]))
    return spans


def hidden(spans: Sequence[Span]) -> float:
    """The share of the time of transfers in which their device computes, from 0 to 1."""
    total = beside = 0.0
    computing: dict[str, list[Span]] = {}
    for span in spans:
        if span.lane == "compute":
            computing.setdefault(span.device, []).append(span)
    for span in spans:
        if span.lane == "copy":
            total += span.stop - span.start
            beside += sum(max(0.0, min(span.stop, other.stop) - max(span.start, other.start))
                          for other in computing.get(span.device, ()))
    return beside / total if total else 0.0


def trace(spans: Sequence[Span], document: Document | None = None) -> dict[str, Any]:
    """The spans as a trace in the format of Chrome, which Perfetto opens: microseconds, a process
    for each device, a thread for each lane. Names are those of the document's kernels.
    """
    kernels: dict[int, Row] = {k["id"]: k for k in document["kernels"]} if document else {}
    devices = {device: i for i, device in enumerate(dict.fromkeys(s.device for s in spans), 1)}
    lanes = {"compute": 1, "copy": 2}
    events: list[dict[str, Any]] = []
    for device, process in devices.items():
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0,
                       "args": {"name": device}})
        events += [{"ph": "M", "name": "thread_name", "pid": process, "tid": thread,
                    "args": {"name": lane}} for lane, thread in lanes.items()]
    first = min((span.start for span in spans), default=0.0)
    for span in spans:
        # r[impl inspect.trace.format]
        kernel = kernels.get(span.kernel, {})
        told = {key: kernel[key] for key in ("label", "transfer", "bytes", "operations")
                if key in kernel}
        events.append({"ph": "X", "name": kernel.get("name") or f"kernel {span.kernel}",
                       "cat": span.lane, "pid": devices[span.device], "tid": lanes[span.lane],
                       "ts": 1e6 * (span.start - first), "dur": 1e6 * (span.stop - span.start),
                       "args": {"kernel": span.kernel, **told}})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(spans: Sequence[Span], path: str | Path,
                document: Document | None = None) -> Path:
    """Write the trace of spans to a file, to be opened with Perfetto or chrome://tracing."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(trace(spans, document)), encoding="utf-8")
    return file


def timeline_chart(document: Document, spans: Sequence[Span]) -> str:
    """Spans as bars: a row for each lane of each device, time to the right."""
    names = {k["id"]: k.get("name") or k["kind"] for k in document["kernels"]}
    rows = list(dict.fromkeys((span.device, span.lane) for span in
                              sorted(spans, key=lambda span: (span.device, span.lane))))
    first = min((span.start for span in spans), default=0.0)
    length = max((span.stop for span in spans), default=1.0) - first or 1.0
    left, scale = CHART_LEFT + 60, (WIDTH - CHART_LEFT - 80) / length
    parts = []
    for number, (device, lane) in enumerate(rows):
        told = device if len(device) < 12 else "each device"
        parts.append(text_label(left - 8, number * LANE + 14, f"{told} {lane}", "axis", "end"))
    for span in spans:
        hint = (f"kernel {span.kernel}: {names.get(span.kernel, '?')}\n{span.lane} on "
                f"{span.device}\n{time_text(span.stop - span.start)} from "
                f"{time_text(span.start - first)} on")
        bar = tag("rect", x=left + (span.start - first) * scale,
                  y=rows.index((span.device, span.lane)) * LANE + 2,
                  width=max(1.0, (span.stop - span.start) * scale), height=LANE - 4, rx=2.0)
        parts.append(tag("g", bar, class_=f"tone-{span.kernel % TONES}", role="img", data_tip=hint,
                         aria_label=hint))
    height = len(rows) * LANE + 24
    parts.append(text_label(left, height - 8, "0", "axis"))
    parts.append(text_label(WIDTH - 20, height - 8, time_text(length), "axis", "end"))
    return tag("svg", "".join(parts), class_="memory", width=WIDTH, height=height,
               viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="group", aria_label="timeline")
