"""From the user's line to the text of a kernel: every rewrite and step. See spec/inspect.md."""
from __future__ import annotations

import inspect as python

import numpy as np

from conformance.trace import verifies
from impl import Context, Tensor, inspect
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.rewrite.written import written_tree


def line() -> int:
    frame = python.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


@verifies("inspect.journey.complete")
def test_every_step_from_the_line_to_the_text() -> None:
    x = Tensor(np.arange(4096, dtype=np.float32).reshape(64, 64)).realize()
    with Context(TRACK_MATCH_STATS=2, DEVICE="CPU"):
        y = x.neg()
        here = line() + 1
        z = (y.neg() / 8).sum(1)
        document = Tensor.runtime.document([z], programs=True)
        again = Tensor.runtime.document([z], programs=True)
    rules = [(row["rule"], row["before"], row["after"]) for row in document["rewrites"]]
    assert [(rule, before == f"--{after}" if rule == "- -x" else after.endswith(" * 0.125"))
            for rule, before, after in rules] == [("- -x", True), ("x / 2**k", True)]
    assert any(row["line"].endswith(f"test_journey.py:{here})") for row in document["rewrites"])
    assert again["rewrites"] == document["rewrites"]  # a plan that is known is followed, too
    kernel, = document["kernels"]
    steps = [row["step"] for row in kernel["journey"]]
    assert steps == ["as planned", *kernel["optimizations"]] and len(steps) > 1
    texts = [row["kernel"] for row in kernel["journey"]]
    assert all(before != after for before, after in zip(texts, texts[1:], strict=False))
    page = inspect.report_html(document)
    assert "From the line to the text" in page and "x / 2**k" in page and "as planned" in page
    assert "rewrites" not in Tensor.runtime.document([z], programs=True)


@verifies("inspect.journey.complete")
def test_what_a_language_lacks_is_followed() -> None:
    with Context(DEVICE="CPU"):
        x = Tensor([1.0, 2.0, 3.0]).cast("float16").realize()
    for _ in range(2):  # a text that is known is followed, too
        with Context(TRACK_MATCH_STATS=2, DEVICE="CPU"):
            found = Tensor.runtime.document([x * x], programs=True)["rewrites"]
        last = {(row["rule"], row["pass"], row["before"]) for row in found}
        assert ("h + h", "legalize", "p0[r0] * p0[r0]") in last
        assert len([row for row in found if row["pass"] == "legalize"]) == len(found)


@verifies("inspect.journey.complete")
def test_how_nodes_are_written() -> None:
    loop = new_range(8, RangeKind.LOOP, 3)
    value = (UOp(Ops.CAST, dtypes.int32, (loop,)) + 2) * 3
    assert written_tree(value) == "(int32(r3) + 2) * 3"
    total = UOp(Ops.REDUCE, dtypes.int32, (value, loop), Ops.ADD)
    assert written_tree(total) == "sum((int32(r3) + 2) * 3 for r3 < 8)"
    assert written_tree(UOp(Ops.EXP, dtypes.int32, (value,))) == "exp((int32(r3) + 2) * 3)"
    deep = value
    for _ in range(10_000):
        deep = deep + value
    assert len(written_tree(deep)) <= 500
