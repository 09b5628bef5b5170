"""The main job runs as a newcomer runs it, with and without a compiler."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from impl.__main__ import main


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_the_main_job_learns_and_explains(device: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    words = ["--epochs", "9"] if device == "REFERENCE" else []  # which interprets each kernel
    found = subprocess.run([sys.executable, "-m", "impl", *words, "--report", str(report)],
                           text=True, capture_output=True, check=False,
                           env={**os.environ, "DEVICE": device})
    assert found.returncode == 0, found.stderr
    accuracy = re.search(r"accuracy +([\d.]+)", found.stdout)
    assert accuracy is not None and float(accuracy[1]) >= (0.96 if words else 0.97)
    assert found.stdout.rstrip().endswith(str(report))
    text = report.read_text(encoding="utf-8")
    assert "<svg" in text and "http" not in re.sub(r"http://www.w3.org/\S+", "", text)


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if k not in ("DEVICE", "CC")}
    found = subprocess.run([sys.executable, "-c", "from impl import Tensor; "
                            "print((Tensor([1.0, 2.0]) + Tensor([1.0, 1.0])).tolist())"],
                           text=True, capture_output=True, check=False,
                           env={**clean, "PATH": str(tmp_path)})
    assert found.stdout == "[2.0, 3.0]\n", found.stderr
    assert len(found.stderr.splitlines()) == 1 and "REFERENCE" in found.stderr


@pytest.mark.parametrize("setting", ["--devices", "--epochs"])
@pytest.mark.parametrize("word", ["0", "-1", "x", "1.5", ""])
def test_a_number_that_is_none_is_refused_with_a_remedy(
        setting: str, word: str, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is loaded or trained."""
    monkeypatch.setattr(sys, "argv", ["impl", f"{setting}={word}"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out
    assert f"{setting}: {word!r} is no whole number of 1 or more. Remedy: " in said.err
