"""What runs when: predicted from a document, drawn, and written as a trace."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, inspect, realize
from impl.collectives import Span


def document() -> dict[str, Any]:
    """Kernels 0, 3 and 4, and transfers 1 and 2; 3 waits for transfer 1."""
    rows = [(0, "kernel", None), (1, "copy", 3), (2, "copy", 4), (4, "kernel", None),
            (3, "kernel", None)]
    kernels = [{"id": number, "kind": kind, "name": f"<{number}>", "device": "mesh(CPU,CPU:1)",
                "reads": [], "writes": [], "bytes": 8, "label": "x.py:1",
                **({"until": until, "sent": 8, "transfer": "all-reduce"} if until else {})}
               for number, kind, until in rows]
    needs = [(0, 1), (0, 2), (1, 3)]
    return {"format": "tensor-schedule/1", "buffers": [], "kernels": kernels,
            "order": [number for number, *_ in rows], "boundaries": [], "outputs": [],
            "dependencies": [{"before": a, "after": b, "kind": "RAW", "buffer": 0, "version": 1}
                             for a, b in needs]}


@verifies("inspect.timeline.predicted+2")
def test_a_transfer_takes_time_that_others_use() -> None:
    found = {span.kernel: (span.lane, span.start, span.stop) for span in
             inspect.predicted_spans(document(), {0: 1.0, 1: 4.0, 2: 2.0, 3: 1.0, 4: 2.0})}
    assert found == {0: ("compute", 0, 1), 1: ("copy", 1, 5), 2: ("copy", 5, 7),
                     4: ("compute", 1, 3), 3: ("compute", 5, 6)}
    assert inspect.hidden(inspect.predicted_spans(document(), {
        0: 1.0, 1: 4.0, 2: 2.0, 3: 1.0, 4: 2.0})) == pytest.approx(3 / 6)
    assert inspect.hidden([]) == 0
    plain = document()
    for kernel in plain["kernels"]:  # without lanes, one after the other
        kernel.pop("until", None)
    spans = inspect.predicted_spans(plain, dict.fromkeys(range(5), 1.0))
    assert [(span.start, span.stop) for span in spans] == [(i, i + 1) for i in range(5)]
    assert inspect.hidden(spans) == 0


@verifies("inspect.timeline.predicted+2")
def test_without_times_a_machine_says_how_long() -> None:
    machine = inspect.Machine(bytes_per_second=8.0, operations_per_second=1.0, launch_seconds=1.0)
    spans = inspect.predicted_spans(document(), machine=machine)
    assert [span.stop - span.start for span in spans] == [2.0] * 5
    assert all(span.stop > span.start for span in inspect.predicted_spans(document()))


@verifies("inspect.trace.format")
def test_a_trace_has_what_perfetto_reads(tmp_path: Path) -> None:
    """Complete events with times in microseconds, and names for processes and threads."""
    spans = [Span(0, "CPU", "compute", 2.0, 2.5), Span(1, "CPU", "copy", 2.5, 2.75),
             Span(0, "CPU:1", "compute", 2.25, 2.5)]
    path = inspect.write_trace(spans, tmp_path / "deep" / "trace.json", document())
    found = json.loads(path.read_text(encoding="utf-8"))
    assert set(found) == {"traceEvents", "displayTimeUnit"}
    events = found["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} == {"M", "X"} and len(complete) == len(spans)
    for event, span in zip(complete, spans, strict=True):
        assert named[event["pid"], 0] == span.device
        assert named[event["pid"], event["tid"]] == span.lane == event["cat"]
        assert event["ts"] == 1e6 * (span.start - 2.0) >= 0
        assert event["dur"] == 1e6 * (span.stop - span.start) >= 0
        assert event["name"] == f"<{span.kernel}>" and event["args"]["kernel"] == span.kernel
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
    assert inspect.trace([])["traceEvents"] == []


@verifies("inspect.timeline.predicted+2")
def test_a_report_of_a_mesh_shows_both_timelines() -> None:
    with Context(DEVICE="REFERENCE", OVERLAP=2), realize.measured() as spans:
        x = Tensor(np.ones((8, 4), np.float32)).shard(("REFERENCE", "REFERENCE:1"), 0).realize()
        y = x.sum(0)
        shown = Tensor.schedule_document(y)
        y.realize()
    page = inspect.report_html(shown, spans=spans)
    assert "What runs when" in page and "Predicted" in page and "Measured" in page
    assert "REFERENCE:1 copy" in page and "each device copy" in page
    assert "What runs when" not in inspect.report_html(Tensor.schedule_document(Tensor([1]) + 1))
    drawn = inspect.timeline_chart(document(), inspect.predicted_spans(document()))
    assert drawn.count("<rect") == 5 and "&lt;0&gt;" in drawn and "<0>" not in drawn
