"""Kernels that watch their memory: what they would find is found, and nothing is found."""
from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.kernels import sanitized, sanitized_programs
from conformance.runner.command import main
from conformance.trace import ROOT, verifies

pytestmark = [pytest.mark.device("CPU"),
              pytest.mark.skipif(not sanitized.library(), reason="gcc has no sanitizers here")]

#: Stores out[i] = in[i * stride + shift] for i below 16; with steps, as they would be tried.
PROGRAM = """
import numpy as np
from conformance.kernels import kernel_builder as kb, sanitized
from impl.ir import RangeKind, new_range
from impl.searching import with_steps
assert sanitized.guard()
i = new_range(16, RangeKind.GLOBAL)
read = kb.load(kb.param(1), kb.flat((i, {stride}), ({shift}, 1)))
ast = with_steps(kb.kernel(kb.store(kb.param(0), kb.flat((i, 1), ({store}, 1)), read),
                           prefix=(i,)), {steps})
given, out = np.arange(16 * {stride}, dtype=np.float32), np.zeros(16, np.float32)
kb.run(ast, out, given)
print(out.sum())
"""


def watched(shift: int = 0, store: int = 0, steps: str = "[]", stride: int = 1,
            **settings: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(shift=shift, store=store, steps=steps, stride=stride)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                          check=False, env={**sanitized.environment(), **settings})


def test_what_stays_inside_runs() -> None:
    done = watched()
    assert (done.returncode, done.stdout.strip()) == (0, "120.0"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "store", "steps"), [
    (1, 0, "[]"), (0, -1, "[]"), (0, 1, "['UPCAST(0,16)']")])
def test_one_element_outside_is_found(shift: int, store: int, steps: str) -> None:
    done = watched(shift, store, steps)
    assert done.returncode and "AddressSanitizer" in done.stderr
    assert ("READ" if shift else "WRITE") in done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of targets are those of x86")
def test_a_gather_outside_is_found_in_portable_text() -> None:
    """No sanitizer sees inside of the instruction that a wide processor has for it."""
    portable = {"CPU_TARGET": "x86-64", "VECTOR_BYTES": "64"}
    inside = watched(2, 0, "['UPCAST(0,16)']", 3, **portable)
    assert not inside.returncode, inside.stderr
    outside = watched(3, 0, "['UPCAST(0,16)']", 3, **portable)
    assert outside.returncode and "AddressSanitizer" in outside.stderr


#: The rows of a stage stand between zeros: vectors of them begin before the stage's array.
PADDED = """
import numpy as np
from conformance.kernels import sanitized
from impl import Tensor
assert sanitized.guard()
given = Tensor(np.arange(24, dtype=np.int32).reshape(2, 3, 4)).realize()
rows = given.permute(2, 1, 0).contiguous()
found = rows.pad(((0, 0), (0, 0), (2, 1)))
Tensor.realize(rows, found)
print(found.sum().item())
"""


@verifies("kernel.access.gated")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of targets are those of x86")
def test_no_pointer_stands_before_an_array() -> None:
    done = subprocess.run([sys.executable, "-c", PADDED], capture_output=True, text=True, cwd=ROOT,
                          check=False, env={**sanitized.environment(), "CPU_TARGET": "x86-64",
                                            "VECTOR_BYTES": "64"})
    assert (done.returncode, done.stdout.strip()) == (0, "276"), done.stderr


def test_parts_that_were_right_are_not_run_again(tmp_path: Path) -> None:
    """What is wrong is reported, and tried again; the others stay as they are."""
    path = tmp_path / "report.json"
    right, wrong = (sanitized_programs.Part(name, ("-c", code)) for name, code in (
        ("right", "print('so')"), ("wrong", "raise SystemExit('x: runtime error: oh')")))
    first = sanitized_programs.Run(path, planned=2)
    assert not first.all([right, wrong])
    known = json.loads(path.read_text())
    assert known["complete"] and "runtime error: oh" in known["parts"]["wrong"]["wrong"]
    again = sanitized_programs.Run(path, planned=2)
    again.resume()
    assert list(again.found) == ["right"]
    assert again.all([right, sanitized_programs.Part("wrong", ("-c", ""))])


def test_all_kinds_of_parts_are_planned() -> None:
    parts = list(sanitized_programs.parts(100))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    for way in ("machine", "portable", "scalar"):
        assert f"{way} checks tensor" in names and f"{way} programs 50 to 99" in names
    assert any(name.startswith("portable workloads") and "conv2d_strided" in name
               and "attention_odd" in name or "matmul_prime" in name for name in names)


@verifies("cpu.values.reference")
@verifies("kernel.access.gated")
def test_kernels_with_steps_touch_no_memory_but_their_own(request: pytest.FixtureRequest) -> None:
    """Of four programs; of a hundred with --profile long."""
    last = 140 if request.config.option.profile == "long" else 44
    command = [sys.executable, "-m", "conformance.kernels.step_lists", "40", str(last), "1",
               "100000"]
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
