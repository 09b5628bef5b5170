"""The lesson's checkpoint lets a right planner pass, and no wrong one."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WRONG = {
    "every temporary lies at offset 0": """
def plan(spans, reuse=True):
    high = max((span.nbytes for span in spans), default=0)
    bound = lower_bound(spans)
    return MemoryPlan({span.storage: 0 for span in spans}, list(spans), max(high, bound),
                      sum(span.nbytes for span in spans), bound)
""",
    "the last step of a life does not count": """
def meets(one, other):
    return one.first < other.last and other.first < one.last
Lifetime.meets = meets
""",
}


def check(mine: Path, text: str) -> subprocess.CompletedProcess[str]:
    mine.write_text("from impl.memory import *\n" + text, encoding="utf-8")
    return subprocess.run([sys.executable, "-m", "conformance.learn", "check", "memory", "--mine",
                           str(mine)], text=True, capture_output=True, check=False)


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_planner_does_not_pass(text: str, tmp_path: Path) -> None:
    found = check(tmp_path / "my_memory.py", text)
    assert found.returncode != 0 and "failed" in found.stdout


def test_our_planner_passes(tmp_path: Path) -> None:
    found = check(tmp_path / "my_memory.py", "")
    assert found.returncode == 0, found.stdout
