"""Capture once, replay many times: `TinyJit`. Chapter: spec/replay.md.

The first call of a captured function runs as it is, the second is recorded, and from the third on
the recorded kernels run again, on the buffers of the new arguments. What the function did to other
tensors (parameters, statistics, attributes) it does again at each replay, whether it returned them
or not. A replay is guarded: a call that no capture fits, because its arguments or something that
the function reads are not alike, is captured for itself, up to `JIT_ENTRIES` captures. `explain()`
says what each of them is guarded by.
"""
from impl.replay.arguments import Arguments, take_apart
from impl.replay.jit import TinyJit, captured_functions

__all__ = ["Arguments", "TinyJit", "captured_functions", "take_apart"]
