"""The benchmark of writing: it reads a file, and says what it cannot."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.bench.__main__ import main
from conformance.chapters.models.test_llama import gguf_file, in_gguf


def test_a_file_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = gguf_file(tmp_path / "small.gguf", in_gguf())
    words = ["--threads", "1", "--prompt", "3", "--tokens", "2", "--repeats", "2"]
    assert main(["generation", str(file), "--against", "none", *words]) == 0
    said, = capsys.readouterr().out.splitlines()
    milliseconds = r"[\d.]+ ms \([\d.]+ to [\d.]+\)"
    form = rf"small\.gguf, 1 threads, ours: prompt {milliseconds}, token {milliseconds}, " \
        r"\d+% of memory"
    assert re.fullmatch(form, said), said


def test_a_library_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.gguf").write_bytes(b"GGUF" + bytes(40))
    assert main(["generation", str(tmp_path / "none.gguf"), "--threads", "1"]) == 1
    ours, theirs = capsys.readouterr().out.splitlines()
    assert "ours: " in ours and "Error" in ours
    assert "llama.cpp: " in theirs
