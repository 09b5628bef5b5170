"""The command line that writes on from a prompt."""
from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest

from conformance.chapters.models import test_llama
from impl import Context
from impl.models import command, llama, tokens

LETTERS = [*tokens.byte_letters()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of GGUF with 19 tokens, which are letters, but for one that ends a text."""
    texts = [LETTERS[ord(one)] for one in "abcdefghijklmnop ,"] + ["<end>"]
    with Context(DEVICE="REFERENCE"):
        return test_llama.gguf_file(tmp_path / "model.gguf", test_llama.in_gguf(), **{
            "tokenizer__ggml__model": "gpt2", "tokenizer__ggml__tokens": texts,
            "tokenizer__ggml__token_type": [1] * 18 + [3], "tokenizer__ggml__eos_token_id": 18})


def run(*given: str) -> None:
    with Context(DEVICE="REFERENCE"):
        command.write_on("impl.models.llama", llama.load, True, given)


def test_a_prompt_is_written_on(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = tokens.load(file).encode("dab, ")
    with Context(DEVICE="REFERENCE"):
        model = llama.load(file)
        drawn = model.generate(prompt, 5, 0.9, 12, 0.95, seed=4, end=[18])
        beams = model.generate(prompt, 3, beams=2, end=[18])
    for given, found in ((("--count", "5", "--temperature", "0.9", "--top-k", "12", "--top-p",
                           "0.95", "--seed", "4"), drawn),
                         (("--count", "3", "--beams", "2"), beams)):
        run("--gguf", str(file), "--prompt", "dab, ", *given)
        said = capsys.readouterr()
        assert said.out == tokens.load(file).decode(prompt + found) + "\n"
        assert said.err.startswith(f"{len(found)} tokens in ")


def test_what_cannot_be_done_is_said(file: Path, tmp_path: Path) -> None:
    for given, told in ((("--gguf", str(tmp_path / "none"), "--prompt", "a"), "there is no file"),
                        (("--folder", str(tmp_path), "--prompt", "a"), "has no tokenizer.json"),
                        (("--gguf", str(file), "--prompt", "xyz"), "is no token"),
                        (("--gguf", str(file), "--prompt", ""), "a prompt of 0 tokens"),
                        (("--gguf", str(file), "--prompt", "abcabcabcabca", "--count", "5"),
                         "of 13 tokens for 12 places"),
                        (("--gguf", str(file), "--prompt", "a", "--top-p", "2"), "top_p=2.0")):
        with pytest.raises(SystemExit, match=told):
            run(*given)
    for wrong in ([], ["--prompt", "a"], ["--gguf", "a", "--folder", "b", "--prompt", "c"]):
        with pytest.raises(SystemExit):
            run(*wrong)


def test_modules_are_commands(file: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({}))
    for name, path in (("llama", ("--gguf", str(file))), ("gpt2", ("--folder", str(tmp_path)))):
        with mock.patch.object(sys, "argv", [name, *path, "--prompt", "?"]), \
                mock.patch.dict(sys.modules), \
                pytest.raises(SystemExit, match="is no token|is damaged"):
            sys.modules.pop(f"impl.models.{name}", None)
            runpy.run_module(f"impl.models.{name}", run_name="__main__", alter_sys=False)
