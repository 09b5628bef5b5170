"""Kernels that watch their memory: what they would find is found, and nothing is found."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conformance import sanitized
from conformance.__main__ import main
from conformance.trace import ROOT, verifies

pytestmark = [pytest.mark.device("CPU"),
              pytest.mark.skipif(not sanitized.library(), reason="gcc has no sanitizers here")]

#: Stores out[i] = in[i + shift] for i below 16; with steps, as they would be tried.
PROGRAM = """
import numpy as np
from conformance import kernel_builder as kb, sanitized
from impl.ir import RangeKind, new_range
from impl.kernel import with_steps
assert sanitized.guard()
i = new_range(16, RangeKind.GLOBAL)
read = kb.load(kb.param(1), kb.flat((i, 1), ({shift}, 1)))
ast = with_steps(kb.kernel(kb.store(kb.param(0), kb.flat((i, 1), ({store}, 1)), read),
                           prefix=(i,)), {steps})
given, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
kb.run(ast, out, given)
print(out.sum())
"""


def watched(shift: int = 0, store: int = 0, steps: str = "[]") -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(shift=shift, store=store, steps=steps)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                          check=False, env=sanitized.environment())


def test_what_stays_inside_runs() -> None:
    done = watched()
    assert (done.returncode, done.stdout.strip()) == (0, "120.0"), done.stderr


@pytest.mark.parametrize(("shift", "store", "steps"), [
    (1, 0, "[]"), (0, -1, "[]"), (0, 1, "['UPCAST(0,16)']")])
def test_one_element_outside_is_found(shift: int, store: int, steps: str) -> None:
    done = watched(shift, store, steps)
    assert done.returncode and "AddressSanitizer" in done.stderr
    assert ("READ" if shift else "WRITE") in done.stderr


@verifies("cpu.values.reference")
@verifies("kernel.load.gated")
@verifies("kernel.store.gated")
def test_kernels_with_steps_touch_no_memory_but_their_own(request: pytest.FixtureRequest) -> None:
    """Of four programs; of a hundred with --profile long."""
    last = 140 if request.config.option.profile == "long" else 44
    command = [sys.executable, "-m", "conformance.step_lists", "40", str(last), "1", "100000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False,
                          env=sanitized.environment())
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["tried"] and not found["failures"]


@verifies("cpu.values.reference")
def test_programs_touch_no_memory_but_their_own(request: pytest.FixtureRequest,
                                                capfd: pytest.CaptureFixture[str]) -> None:
    """Six programs; a thousand with --profile long."""
    count = "1000" if request.config.option.profile == "long" else "6"
    status = main(["sanitize", "fuzz", "--count", count, "--seed", "40", "--chunk", "25",
                   "--settings", "NO_MEMORY_PLANNER=1"])
    assert status == 0, capfd.readouterr().out
