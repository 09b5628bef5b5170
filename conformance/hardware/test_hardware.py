"""The script for a machine with a GPU, dry: over the mock driver. Chapter: spec/cuda.md."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.chapters.cuda.test_cuda import ROOT, needs_mock
from conformance.emulation import driver


@needs_mock
@pytest.mark.slow
def test_the_hardware_script_runs_dry(emulation_folder: Path, tmp_path: Path) -> None:
    environment = driver.environment() | {"CACHE_FOLDER": str(tmp_path / "kept")}
    words = [sys.executable, "-m", "conformance.hardware", "--dry-run", "--out", str(tmp_path),
             "--skip-suite", "--only", "matmul 16,MLP step"]
    done = subprocess.run(words, cwd=ROOT, env=environment, text=True, capture_output=True)
    result = json.loads((tmp_path / "hardware.json").read_text())
    page = (tmp_path / "hardware.md").read_text()
    assert [(row["name"], row["dtype"]) for row in result["rows"]] == [
        (name, dtype) for name in ("matmul 16", "MLP step")
        for dtype in ("float32", "float16", "bfloat16")], done.stderr
    for row in result["rows"]:
        assert row["times"]["impl"].get("median", 0) > 0, row["times"]["impl"]
    assert result["limits"]["copy"] > 0 and result["replay"]["kernels"] == 20
    ways = {job["way"]: job for job in result["collectives"]}
    assert "rows" in ways["one process"], ways
    for job in ways.values():
        assert "rows" in job or job["missing"] == "there is no mpiexec", job
        assert all(None not in row.values() for row in job.get("rows", [])), job
    assert page.startswith("# A dry run: nothing of it is a GPU") and "## bfloat16" in page


def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "conformance.hardware", "--out", str(tmp_path)],
                          cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 2:
        pytest.skip("there is a driver")
    assert done.stdout.startswith("nothing was run: ") and not list(tmp_path.iterdir())
