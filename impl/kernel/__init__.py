"""One kernel: what its graph means, and what it costs. Chapter: spec/kernel.md.

`analysis` answers questions about a kernel, `fragments` says what the lanes of a warp hold of a
matrix, `tiles` which products a processor's unit computes, `private` which memory lanes share, and
`poison` shows who reads what was never stored.
"""
from __future__ import annotations

from impl.kernel.analysis import (
    LANES,
    REDUCERS,
    Analysis,
    DeviceLimits,
    Early,
    Estimate,
    Growth,
    Way,
    Work,
    accessed,
    buffer_key,
    estimate,
    exchanged,
    growth,
    next_loads,
    shared_loops,
    verify_kernel,
)

__all__ = ["LANES", "REDUCERS", "Analysis", "DeviceLimits", "Early", "Estimate", "Growth", "Way",
           "Work", "accessed", "buffer_key", "estimate", "exchanged", "growth", "next_loads",
           "shared_loops", "verify_kernel"]
