"""What a model of conversations is given to read: messages, written as the checkpoint wants them.

The form is a template of Jinja, in the metadata of a file of GGUF or beside the tokenizer of a
folder. The package `jinja2` writes it, in its sandbox: a template reaches the messages and no more.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from impl.errors import ArgumentError, DTypeError

__all__ = ["Template", "encoded", "message_template", "written"]

#: Tokens that templates name, and how GGUF has their numbers.
_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")
#: A text of messages is shorter than so many letters, or something is wrong with its template.
_LONGEST = 1 << 24


class Template(NamedTuple):
    """A template, and the texts of the special tokens that it names."""

    text: str
    tokens: dict[str, str]


def message_template(path: str | os.PathLike[str]) -> Template:
    """The template of a folder of Hugging Face, or of a file of GGUF.

    Raises:
        ArgumentError: there is none.
        DTypeError: the file is damaged.
    """
    path = Path(path)
    found, tokens = _of_folder(path) if path.is_dir() else _of_gguf(path)
    if isinstance(found, list):  # several, for several purposes
        found = next((one.get("template") for one in found if isinstance(one, Mapping)
                      and one.get("name") == "default"), None)
    if not isinstance(found, str):
        raise ArgumentError("chat", f"{path} has no template of messages",
                            "leave --chat out: the model writes on from a text")
    return Template(found, tokens)


def _of_gguf(path: Path) -> tuple[Any, dict[str, str]]:
    from impl.nn.gguf import gguf_metadata
    said = gguf_metadata(path)
    texts = said.get("tokenizer.ggml.tokens")
    numbers = {name: said.get(f"tokenizer.ggml.{name}_id") for name in _NAMED}
    tokens = {name: texts[number] for name, number in numbers.items() if isinstance(texts, list)
              and isinstance(number, int) and 0 <= number < len(texts)}
    return said.get("tokenizer.chat_template"), tokens


def _of_folder(folder: Path) -> tuple[Any, dict[str, str]]:
    file, alone = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    try:
        said = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if not isinstance(said, dict):
            raise ValueError("no object")
        found = alone.read_text(encoding="utf-8") if alone.is_file() else said.get("chat_template")
    except ValueError as error:
        raise DTypeError("chat", f"{folder} is damaged ({error})",
                         "give a folder with a whole tokenizer_config.json") from None
    tokens = {}
    for name in _NAMED:
        value = said.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    return found, tokens


def written(template: Template, messages: Sequence[Mapping[str, Any]],
            answer: bool = True) -> str:
    """Messages as one text.

    Args:
        messages: each with a "role" ("system", "user", "assistant") and a "content".
        answer: whether the text ends where the model's answer begins.

    Raises:
        ArgumentError: `jinja2` is not installed, or the template refuses these messages.
    """
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ArgumentError("chat", "the form of messages is a template of Jinja",
                            "pip install jinja2") from None

    def refuse(problem: str) -> None:
        raise jinja2.TemplateError(problem)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _json
    environment.globals.update(raise_exception=refuse, strftime_now=_now)
    parts, length = list[str](), 0
    try:
        for part in environment.from_string(template.text).generate(
                messages=[dict(one) for one in messages], add_generation_prompt=answer,
                tools=None, documents=None, **template.tokens):
            parts.append(part)
            length += len(part)
            if length > _LONGEST:
                raise jinja2.TemplateError(f"it writes more than {_LONGEST} letters")
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError,
            RecursionError) as error:
        raise ArgumentError("chat", f"the checkpoint's template refuses the messages ({error})",
                            "give them as the model wants them: user and assistant in turns, "
                            "perhaps without a system message") from None
    return "".join(parts)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def encoded(tokenizer: Any, text: str) -> list[int]:
    """The tokens of messages that are written. The token that begins a text stands there once,
    whether the template or the tokenizer puts it there; and none that ends one.
    """
    found: list[int] = tokenizer.encode(text)
    before, after = (list(getattr(tokenizer, name, ())) for name in ("before", "after"))
    if after and found[-len(after):] == after:
        found = found[:-len(after)]
    twice = before and found[:2 * len(before)] == 2 * before
    return found[len(before):] if twice else found
