"""The command line of a language model: it writes on from a prompt, each piece as it comes."""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from impl.errors import ArgumentError, FileMissingError, TensorScheduleError
from impl.models import chat, tokens
from impl.models.writing import LanguageModel, Writer

__all__ = ["write_on"]

#: From a path, and the most places that are needed.
_Load = Callable[[Path, int], LanguageModel]


def write_on(name: str, load: _Load, gguf: bool, given: Sequence[str] | None = None) -> None:
    """Write on from the prompt of a command line.

    Args:
        gguf: whether files of GGUF can be loaded, too.

    Raises:
        SystemExit: a file, the prompt or a setting is refused; the message says why.
    """
    said = _parser(name, gguf).parse_args(given)
    path = Path(said.folder or said.gguf)
    try:
        if said.folder and not path.exists():
            raise FileMissingError("--folder", f"there is no {path}", "give the folder of a "
                                   "checkpoint, with model.safetensors and its tokenizer")
        tokenizer = tokens.load(path)
        prompt = _read(said, tokenizer, path)
        model = load(path, len(prompt) + said.count)
        writer = Writer(model, len(prompt) + said.count, said.beams or 1)
        _write(said, tokenizer, writer, prompt, tokens.ends(path))
    except (TensorScheduleError, OSError) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        print()


def _read(said: argparse.Namespace, tokenizer: tokens.Tokenizer, path: Path) -> list[int]:
    """The tokens of the prompt, with --chat as a message of a user."""
    if said.system is not None and not said.chat:
        raise ArgumentError("--system", "there is no conversation", "say --chat, too")
    if not said.chat:
        return tokenizer.encode(said.prompt)
    messages = [{"role": "system", "content": said.system}] if said.system is not None else []
    messages.append({"role": "user", "content": said.prompt})
    return chat.encoded(tokenizer, chat.written(chat.message_template(path), messages))


def _write(said: argparse.Namespace, tokenizer: tokens.Tokenizer, writer: Writer,
           prompt: list[int], ends: list[int]) -> None:
    """The prompt and what follows, of a conversation only the answer, on standard output; how long
    it took, on the other one.
    """
    began, shown = time.perf_counter(), [] if said.chat else prompt
    if said.beams:
        found = writer.beam(prompt, said.count, ends)
        print(tokenizer.decode([*shown, *found]))
    else:
        found = []
        drawn = writer.write(prompt, said.count, said.temperature, said.top_k, said.top_p,
                             said.seed, ends)

        def all_of_them() -> Iterator[int]:
            yield from shown
            for token in drawn:
                found.append(token)
                yield token

        for text in tokenizer.pieces(all_of_them()):
            print(text, end="", flush=True)
        print()
    took = time.perf_counter() - began
    print(f"{len(found)} tokens in {took:.1f} s", file=sys.stderr)


def _parser(name: str, gguf: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=__doc__)
    files = parser.add_mutually_exclusive_group(required=True)
    files.add_argument("--folder", help="a checkpoint of Hugging Face, with its tokenizer")
    if gguf:
        files.add_argument("--gguf", help="a file of GGUF")
    else:
        parser.set_defaults(gguf=None)
    parser.add_argument("--prompt", required=True, help="the text to write on from")
    parser.add_argument("--chat", action="store_true",
                        help="the prompt is a message: write it as the checkpoint has it for "
                        "conversations, and print the answer (pip install jinja2)")
    parser.add_argument("--system", help="with --chat: what is said to the model before")
    parser.add_argument("--count", type=int, default=100, help="the most tokens to write (100)")
    parser.add_argument("--temperature", type=float, default=0.8,
                        help="0 takes the most probable token (0.8)")
    parser.add_argument("--top-k", type=int, help="draw from so many tokens only")
    parser.add_argument("--top-p", type=float, help="draw from this share of probability only")
    parser.add_argument("--seed", type=int, help="draw the same again")
    parser.add_argument("--beams", type=int, help="keep so many beginnings, and draw nothing")
    return parser
