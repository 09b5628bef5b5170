"""The main job runs as a newcomer runs it, with and without a compiler."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.house.printed import PAGE, WIDTH, blocks, cells
from impl.__main__ import main


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_the_main_job_learns_and_explains(device: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    words = ["--epochs", "9"] if device == "REFERENCE" else []  # which interprets each kernel
    found = subprocess.run([sys.executable, "-m", "impl", *words, "--report", str(report)],
                           text=True, capture_output=True, check=False,
                           env={**os.environ, "DEVICE": device, "COLUMNS": str(WIDTH)})
    assert found.returncode == 0, found.stderr
    accuracy = re.search(r"accuracy +([\d.]+)", found.stdout)
    assert accuracy is not None and float(accuracy[1]) >= (0.96 if words else 0.97)
    assert found.stdout.rstrip().endswith(str(report))
    text = report.read_text(encoding="utf-8")
    assert "<svg" in text and "http" not in re.sub(r"http://www.w3.org/\S+", "", text)
    if device == "CPU" and PAGE.exists():
        its_page_shows_what_is_printed(found.stdout)


def its_page_shows_what_is_printed(printed: str) -> None:
    """`docs/demo.md` shows every line, and what it says about them is so."""
    shown, said = blocks(), PAGE.read_text(encoding="utf-8")
    assert [line for block in shown for line in cells(block)] == cells(printed), \
        "python -m conformance.house.printed renew, and read what the page says about these lines"
    _, kernels, boundaries, memory, apart, counters = shown
    assert len(cells(kernels)) - 2 == 11 and "eleven kernels" in said and "are eleven" in said
    assert 180 <= int(re.findall(r"\d+", apart)[1]) < 190 and "nearly 190" in said
    planned, unplanned = map(float, re.findall(r"([\d.]+) MiB", apart))
    assert planned < unplanned / 2 and "less than half" in said
    assert len(cells(memory)) == 2 + 2 + 8 and "Eight values live only" in said
    assert "replays: 218," in counters and "the other 218 are" in said
    reasons = {line.rpartition("): ")[2] for line in boundaries.splitlines()}
    told = set(re.findall(r"^- `(.*?)`\. ", said, re.MULTILINE))
    assert told <= reasons and {each.partition(":")[0] for each in reasons} \
        == {each.partition(":")[0] for each in told} and "seven reasons" in said and len(told) == 7
    named = re.findall(r"`(b\d+|map_\S+|reduce_\S+)`", said)
    assert named and all(re.search(rf"\b{name}\b", printed) or name == "b10" for name in named)


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if k not in ("DEVICE", "CC")}
    code = ("import sys; sys.modules['ziglang'] = None\nfrom impl import Tensor\n"
            "print((Tensor([1.0, 2.0]) + Tensor([1.0, 1.0])).tolist())")
    found = subprocess.run([sys.executable, "-c", code],
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
