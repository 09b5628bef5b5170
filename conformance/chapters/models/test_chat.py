"""Messages as a checkpoint wants them, by the template that is in it."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.chapters.models import test_llama
from conformance.chapters.models.test_command import LETTERS, run
from impl import Context
from impl.errors import ArgumentError, DTypeError
from impl.models import chat, llama, tokens

#: As in models of the kind of Qwen, and in Llama 3.
CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA = """
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('no system, please') }}{% endif -%}
{{ bos_token }}
{%- for message in messages %}
    {%- if loop.index0 % 2 and message.role != 'assistant' -%}
        {{ raise_exception('roles must alternate') }}
    {%- endif -%}
    {{ '<' + message.role + '>' + message.content + '<end>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""
ASKED = [{"role": "user", "content": " hello "}]


def of(text: str, **named: str) -> chat.Template:
    return chat.Template(text, named)


def test_templates_write_messages() -> None:
    pytest.importorskip("jinja2")
    said = [{"role": "system", "content": "Be kind."}, *ASKED]
    assert chat.written(of(CHATML), said) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\n")
    assert chat.written(of(CHATML), ASKED, answer=False) == "<|im_start|>user\nhello<|im_end|>\n"
    template = of(LLAMA, bos_token="<begin>")
    assert chat.written(template, ASKED) == "<begin><user> hello <end><assistant>"
    assert chat.written(of("{{ messages[0] | tojson }}{{ strftime_now('%%') }}"), ASKED) == \
        '{"role": "user", "content": " hello "}%'
    for messages, told in ((said, "no system, please"), (ASKED * 2, "roles must alternate")):
        with pytest.raises(ArgumentError, match=f"refuses the messages .{told}"):
            chat.written(template, messages)


@pytest.mark.parametrize("text", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{% for i in range(10 ** 9) %}{% endfor %}",
    "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}", "{{ messages.append(1) }}",
    "{% if %}", "{{ 1 / 0 }}", "{% include 'x' %}", "{{ messages[0].content + 1 }}"])
def test_a_template_does_nothing_else(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setattr(chat, "_LONGEST", 1 << 20)
    with pytest.raises(ArgumentError, match="template refuses"):
        chat.written(of(text), ASKED)


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ArgumentError, match="pip install jinja2"):
        chat.written(of(CHATML), ASKED)


def test_folders_have_templates(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has no template of messages"):
        chat.message_template(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({"chat_template": "a", "bos_token": {"content": "<s>"},
                                "eos_token": "</s>"}))
    assert chat.message_template(tmp_path) == of("a", bos_token="<s>", eos_token="</s>")
    file.write_text(json.dumps({"chat_template": [
        {"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]}))
    assert chat.message_template(tmp_path).text == "d"
    (tmp_path / "chat_template.jinja").write_text("alone")
    assert chat.message_template(tmp_path).text == "alone"
    for wrong in ("[]", "{"):
        file.write_text(wrong)
        with pytest.raises(DTypeError, match="is damaged"):
            chat.message_template(tmp_path)


class Stub:
    before, after = [1], [2]

    def encode(self, text: str) -> list[int]:
        return [1, *map(int, text), 2]


def test_what_begins_a_text_stands_there_once() -> None:
    assert chat.encoded(Stub(), "134") == [1, 3, 4] == chat.encoded(Stub(), "34")
    assert chat.encoded(Stub(), "1134") == [1, 1, 3, 4]


@pytest.mark.slow
def test_an_answer_is_printed_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    texts = [LETTERS[ord(one)] for one in "abcdefghijklmnop ,"] + ["<end>"]
    said: dict[str, Any] = {
        "tokenizer__ggml__model": "gpt2", "tokenizer__ggml__tokens": texts,
        "tokenizer__ggml__token_type": [1] * 18 + [3], "tokenizer__ggml__eos_token_id": 18,
        "tokenizer__chat_template": "{% for one in messages %}{{ one.content }},{% endfor %}"
                                    "{{ eos_token }}"}
    with Context(DEVICE="REFERENCE"):
        file = test_llama.gguf_file(tmp_path / "model.gguf", test_llama.in_gguf(), **said)
        tokenizer = tokens.load(file)
        prompt = tokenizer.encode("ab,dab,<end>")
        found = llama.load(file).generate(prompt, 4, end=[18])
    run("--gguf", str(file), "--prompt", "dab", "--chat", "--system", "ab", "--count", "4",
        "--temperature", "0")
    assert capsys.readouterr().out == tokenizer.decode(found) + "\n"
    with pytest.raises(SystemExit, match="say --chat, too"):
        run("--gguf", str(file), "--prompt", "a", "--system", "b")
