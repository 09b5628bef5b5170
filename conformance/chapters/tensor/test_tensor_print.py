"""What a tensor looks like when it is printed.  See spec/tensor.md."""
from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import GlobalCounters, Tensor, TinyJit, Variable, dtypes


def counts() -> tuple[int, ...]:
    return (GlobalCounters.kernels, GlobalCounters.plan_hits, GlobalCounters.plan_misses)


@verifies("tensor.print.nothing+3")
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "bfloat16", "float64"])
def test_elements_in_memory_are_printed(dtype: str) -> None:
    x = Tensor([[0, 1], [2, 3]]).cast(dtype).realize()
    words = "[[False,True],[True,True]]" if dtype == "bool" else \
        "[[0,1],[2,3]]" if "int" in dtype else "[[0.,1.],[2.,3.]]"
    assert "".join(repr(x).split()) == f"<Tensor{dtype}(2,2)on{x.device}:{words}>"
    assert repr(x) == str(x) == f"{x}"


@verifies("tensor.print.nothing+3")
@pytest.mark.parametrize("x, shown", [
    (Tensor.zeros(3), "float32 (3,) on @: [0., 0., 0.]"), (Tensor(2), "int32 () on @: 2"),
    (Tensor.full((1,), 0.5, dtype="bfloat16"), "bfloat16 (1,) on @: [0.5]"),
    (Tensor(np.zeros((0, 2), np.int32)), "int32 (0, 2) on @: []"),
    (Tensor(np.zeros(1001, bool)), "bool (1001,) on @"),
    (Tensor.ones(1001), "float32 (1001,) on @")])
def test_what_is_known_is_printed_if_it_is_short(x: Tensor, shown: str) -> None:
    assert repr(x) == f"<Tensor {shown.replace('@', x.device)}>"


@verifies("tensor.print.nothing+3")
def test_a_notebook_shows_a_table_and_a_histogram() -> None:
    few = Tensor([[1.0, -2.0], [float("nan"), 4.0]])._repr_html_()
    assert "float32 (2, 2) on" in few and few.count("<td>") == 4 and "<td>-2</td>" in few
    assert "-2 to 4, mean 1, 1 not finite" in few and few.count("<rect") == 24
    many = Tensor(np.arange(24.0 * 40 * 50).reshape(24, 40, 50))._repr_html_()
    assert many.count("<td>") == 49 and many.count("&hellip;") == 13 and "0 to 4.8e+04" in many
    for empty in (Tensor(np.zeros((0, 3))), Tensor([1.0]) + 1, Tensor([float("inf")])):
        before = counts()
        assert "<rect" not in empty._repr_html_() and counts() == before
    assert "&lt;" not in Tensor(True)._repr_html_() and "<td>1</td>" in Tensor(True)._repr_html_()


@verifies("tensor.print.nothing+3")
def test_printing_computes_nothing() -> None:
    x = Tensor([1.0, 2.0]).realize()
    lazy = [x + 1, x[0], Tensor.rand(2), Tensor.arange(3), Tensor.empty(2), x.to("REFERENCE") * 2]
    nodes, before = [each.uop for each in lazy], counts()
    for each in lazy:
        assert "[" not in str(each)
    assert sum(", lazy" in str(each) for each in lazy) == 5  # `empty` is memory
    assert [each.uop for each in lazy] == nodes and counts() == before
    x += 1  # written now, and in memory later
    assert "[" not in str(x) and "[2., 3.]" in str(x.realize())


@verifies("tensor.print.nothing+3")
def test_printing_in_a_capture_and_between_kernels_reads_nothing() -> None:
    seen: list[str] = []

    def double(x: Tensor) -> Tensor:
        seen.append(str(x))
        return x * 2

    captured: Any = TinyJit(double, trust=True)
    assert [captured(Tensor([number])).item() for number in range(3)] == [0, 2, 4]
    assert ["[" in text for text in seen] == [True, False]  # called as it is, and captured
    waiting = Tensor([1, 2]) + 3
    waiting.schedule()
    assert "[" not in str(waiting)
    assert waiting.tolist() == [4, 5]


@verifies("tensor.print.nothing+3")
def test_a_symbolic_tensor_prints_its_form() -> None:
    x = Tensor.arange(8)[:Variable("n", 1, 8).bind(3)]
    for each in (x, x.contiguous().realize(), Tensor.zeros(Variable("n", 1, 8).bind(3))):
        assert each.dtype is dtypes.int32 or each.dtype is dtypes.float32
        assert "[0" not in str(each)


@verifies("tensor.print.nothing+3")
def test_printing_in_another_thread_disturbs_no_capture() -> None:
    """A function that waits for a thread which writes a log is captured all the same."""
    weight, seen = Tensor([1.0]).realize(), list[str]()

    def body(x: Tensor) -> Tensor:
        log = threading.Thread(target=lambda: seen.append(str(weight)))
        log.start()
        log.join()
        return x + weight

    captured: Any = TinyJit(body, trust=True)
    assert [captured(Tensor([number])).item() for number in (1.0, 2.0, 3.0)] == [2, 3, 4]
    assert captured.replays == 1 and len(seen) == 2
    assert all(text.endswith(": [1.]>") for text in seen)
