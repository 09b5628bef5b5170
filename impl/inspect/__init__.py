"""What a person sees of a schedule. Chapter: spec/inspect.md.

Everything here reads a schedule document, which is plain data, and nothing else. So it also shows
the schedules of other implementations, and those of yesterday.
"""
from impl.inspect.compare import compared, difference, difference_html
from impl.inspect.report import html_report, report_html
from impl.inspect.text import (
    Machine,
    boundary_table,
    bytes_text,
    explain,
    kernel_table,
    memory_summary,
    time_text,
)
from impl.inspect.timeline import hidden, predicted_spans, timeline_chart, trace, write_trace

__all__ = ["Machine", "boundary_table", "bytes_text", "compared", "difference",
           "difference_html", "explain", "hidden", "html_report",
           "kernel_table", "memory_summary", "predicted_spans", "report_html", "time_text",
           "timeline_chart", "trace", "write_trace"]
