"""Machine code in a report: that of the kernel, as it is loaded. See spec/inspect.md."""
from __future__ import annotations

import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from conformance.trace import verifies
from impl import Context, Tensor
from impl.cpu import compiler_problem, disassembly

pytestmark = pytest.mark.skipif(bool(compiler_problem()), reason="there is no C compiler")
needs_tool = pytest.mark.skipif(not any(map(shutil.which, disassembly._TOOLS)),
                                reason="objdump is not installed")
CODE = re.compile(r"<summary>Machine code</summary><pre[^>]*>(.*?)</pre>", re.DOTALL)


def shown(path: Path, machine: bool = True) -> list[str]:
    """The machine code in the report of two kernels: roots, and sums of integers."""
    with Context(DEVICE="CPU"):
        roots = (Tensor([1.0, 4.0, 9.0]).realize().sqrt()).contiguous()
        totals = Tensor([[1, 2], [3, 4]]).realize().sum(1)
        page = roots.report(path, totals, machine=machine).read_text(encoding="utf-8")
    return [unescape(code) for code in CODE.findall(page)]


@needs_tool
@verifies("inspect.machine.loaded")
def test_each_kernel_shows_its_own_machine_code(tmp_path: Path) -> None:
    codes = shown(tmp_path / "report.html")
    assert len(codes) == 2 and all(len(code.splitlines()) > 3 for code in codes)
    assert sorted("sqrt" in code for code in codes) == [False, True]
    assert all(code.count(">:\n") == 1 for code in codes)  # and no function beside it


@verifies("inspect.machine.loaded")
def test_without_objdump_a_report_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "_TOOLS", ("no-such-objdump",))
    codes = shown(tmp_path / "report.html")
    assert len(codes) == 2 and all("objdump is not installed" in code for code in codes)


@needs_tool
@verifies("inspect.machine.loaded")
def test_a_function_of_no_object_on_disk_is_said_to_be_so() -> None:
    assert "the compiled object is not on disk" in disassembly.machine_code(1)


def test_machine_code_is_there_on_request_alone(tmp_path: Path) -> None:
    assert shown(tmp_path / "report.html", machine=False) == []
