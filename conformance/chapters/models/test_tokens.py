"""Tokenizers: what they make of texts, and which files they read."""
from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from impl.errors import ArgumentError, DTypeError
from impl.models import tokens

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "r l", "Ġwo rl", "Ġworl d", "1 2", "Ã ©",
          "Ġ Ġ"]
LETTERS = "  helo wrd12'tABé\n½日\U0001f600\u00a0,;\x1c"


def vocabulary() -> dict[str, int]:
    """All bytes, and what the pairs make."""
    texts = [*tokens.byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]
    return {text: number for number, text in enumerate(texts)}


def document(**others: Any) -> dict[str, Any]:
    """A `tokenizer.json` of BPE on bytes."""
    return {"model": {"type": "BPE", "vocab": vocabulary(), "merges": MERGES},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "added_tokens": [
                {"id": 268, "content": "<|end|>", "special": True},
                {"id": 269, "content": "<tool>", "special": False}], **others}


def written(folder: Path, said: dict[str, Any]) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    return folder


def texts(count: int) -> list[str]:
    draw = random.Random(0)
    return ["hello world", "hello<|end|>  hell", "", "<tool>é12 12\n\n x", *(
        "".join(draw.choices(LETTERS, k=draw.randint(0, 20))) for _ in range(count))]


def slowly(parts: list[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """Pairs joined by the definition: the best one of all, again and again."""
    while True:
        pairs = [(ranks[pair], place) for place, pair in
                 enumerate(zip(parts, parts[1:], strict=False)) if pair in ranks]
        if not pairs:
            return parts
        _, place = min(pairs)
        parts = [*parts[:place], parts[place] + parts[place + 1], *parts[place + 2:]]


def rank_of(ranks: dict[tuple[str, str], int], left: str, right: str) -> int | None:
    return ranks.get((left, right))


def test_pairs_are_joined_the_best_one_first() -> None:
    draw = random.Random(1)
    for _ in range(60):
        ranks: dict[tuple[str, str], int] = {}
        known = list("abc")
        for rank in draw.sample(range(40), 12):
            pair = draw.choice(known), draw.choice(known)
            ranks.setdefault(pair, rank)
            known.append("".join(pair))
        parts = draw.choices("abc", k=draw.randint(0, 25))
        assert tokens.merge_pairs(parts, functools.partial(rank_of, ranks)) == slowly(parts, ranks)
    assert len(tokens.merge_pairs(["a"] * 30000, lambda left, right: len(left + right))) < 30000


def test_bytes_come_back_as_text(tmp_path: Path) -> None:
    found = tokens.load(written(tmp_path, document()))
    numbers = vocabulary()
    assert found.encode("hello world 12") == [
        numbers["hello"], numbers["Ġworld"], numbers["Ġ"], numbers["12"]]
    assert found.encode("he<|end|>") == [numbers["he"], 268]
    for text in texts(100):
        assert found.decode(found.encode(text)) == text.replace("<|end|>", "")
    # A letter of four bytes comes when it is whole; one that is broken is shown as such.
    pieces = list(found.pieces(found.encode("o\U0001f600!")))
    assert pieces == ["o", "", "", "", "\U0001f600", "!"]
    assert found.decode(found.encode("\U0001f600")[:2]) == "\ufffd"
    with pytest.raises(ArgumentError, match="999 is no token"):
        found.decode([999])


@pytest.mark.parametrize(("kind", "wanted"), [
    ("gpt-2", ["I", "'ll", " pay", " $", "1234", "  ", " or", " ½½", "\n", "\n", "don", "'", "T"]),
    ("llama-bpe", ["I", "'ll", " pay", " $", "123", "4", "  ", " or", " ", "½½", "\n\n",
                   "don", "'T"]),
    ("qwen2", ["I", "'ll", " pay", " $", "1", "2", "3", "4", "  ", " or", " ", "½", "½", "\n\n",
               "don", "'T"])])
def test_words_are_cut_as_the_models_have_it(kind: str, wanted: list[str]) -> None:
    words = ["I'll pay $1234   or ½½\n\ndon'T"]
    for pattern in map(tokens.word_pattern, tokens._WORDS[kind]):
        words = [piece for word in words for piece in tokens._cut(pattern, word)]
    assert words == wanted


def test_categories_are_those_of_unicode() -> None:
    pattern = tokens.word_pattern(r"[^\s\p{L}\p{N}]+|\p{L}+|\p{N}+|\s+|\S")
    assert pattern.findall("aé日 ½²٣\x1c\u2028_!") == ["aé日", " ", "½²٣", "\x1c", "\u2028", "_!"]
    with pytest.raises(ArgumentError, match="pattern '[(]' of words is not known"):
        tokens.word_pattern("(")


def test_files_say_how(tmp_path: Path) -> None:
    numbers = vocabulary()
    split = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|\p{L}+"}, "behavior": "Isolated"}
    found = tokens.load(written(tmp_path, document(
        normalizer={"type": "NFC"},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [
            split, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
        post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
            "type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}},
                {"SpecialToken": {"id": "<tool>"}}]}]})))
    assert found.encode("12e\u0301") == [268, numbers["12"], numbers["Ã©"], 269]
    said = document()
    said["model"]["ignore_merges"], said["model"]["vocab"]["wor"] = True, 290
    found = tokens.load(written(tmp_path, said))
    assert found.encode("wor") == [290] and len(found.encode("word")) == 4
    (tmp_path / "tokenizer.json").unlink()  # GPT-2's two files
    (tmp_path / "vocab.json").write_text(json.dumps(numbers | {"<|endoftext|>": 268}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n",
                                         encoding="utf-8")
    found = tokens.load(tmp_path)
    assert found.encode("hello<|endoftext|>") == [numbers["hello"], 268]


def test_the_package_says_the_same(tmp_path: Path) -> None:
    package = pytest.importorskip("tokenizers")
    for said in (document(), document(normalizer={"type": "NFC"})):
        said |= {"version": "1.0", "truncation": None, "padding": None, "decoder": {
            "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
        said["pre_tokenizer"]["trim_offsets"] = True
        for one in said["added_tokens"]:
            one |= {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        theirs = package.Tokenizer.from_file(str(written(tmp_path, said) / "tokenizer.json"))
        ours = tokens.load(tmp_path)
        for text in texts(300):
            assert ours.encode(text) == theirs.encode(text).ids
            assert ours.decode(ours.encode(text)) == theirs.decode(ours.encode(text))


def of_gguf(kind: str, texts: list[Any], **others: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value
            for name, value in {"model": kind, "tokens": texts, **others}.items()}


def test_vocabularies_of_gguf() -> None:
    texts = [*vocabulary(), "<|begin|>", "<user>"]
    said = of_gguf("gpt2", texts, merges=MERGES, pre="llama-bpe", bos_token_id=len(texts) - 2,
                   add_bos_token=True, token_type=[1] * (len(texts) - 2) + [3, 4])
    found = tokens.of_gguf(said)
    assert found.encode("hello<user>") == [len(texts) - 2, texts.index("hello"), len(texts) - 1]
    assert found.decode(found.encode("hello<user>")) == "hello<user>"
    pieces = {"<s>": 0.0, "▁": -9.0, "a": -1.0, "b": -2.0, "ab": -3.0, "ba": -4.0, "▁ab": -2.5,
              **{f"<0x{byte:02X}>": 0.0 for byte in range(256)}}
    said = of_gguf("llama", list(pieces), scores=list(pieces.values()), bos_token_id=0,
                   token_type=[3] + [1] * 6 + [6] * 256)
    found = tokens.of_gguf(said)
    shown = [list(pieces)[token] for token in found.encode("abab é")]
    assert shown == ["<s>", "▁ab", "ab", "▁", "<0xC3>", "<0xA9>"]
    assert found.decode(found.encode("abab é")) == "abab é"
    assert list(found.pieces(found.encode("aé"))) == ["", " ", "a", "", "é"]


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has no tokenizer.json"):
        tokens.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DTypeError, match="is damaged or no vocabulary"):
        tokens.load(tmp_path)
    wrong = document()
    wrong["model"]["merges"] = ["a b c"]
    damaged: list[dict[str, Any]] = [
        {}, {"model": []}, {"model": {"type": "BPE", "vocab": 3}}, wrong]
    for said in damaged:
        with pytest.raises((DTypeError, ArgumentError)):
            tokens.load(written(tmp_path, said))
    unknown: list[tuple[dict[str, Any], str]] = [
        (of_gguf("bert", ["a"]), "of kind 'bert'"), ({}, "of kind None"),
        (of_gguf("gpt2", ["a"], pre="other"), "cuts words as 'other'")]
    for said, told in unknown:
        with pytest.raises(ArgumentError, match=told):
            tokens.of_gguf(said)
    lists: list[dict[str, Any]] = [
        of_gguf("gpt2", ["a"], token_type=[1, 1]), of_gguf("gpt2", ["a"], merges=["a"]),
        of_gguf("llama", ["a"], scores=[]), of_gguf("gpt2", [1], token_type=[3])]
    for said in lists:
        with pytest.raises(DTypeError, match="is damaged"):
            tokens.of_gguf(said)


def test_another_kind_needs_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "model": {
            "type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"?": 0, "he": 1, "##llo": 2, "wo": 3}}}
    written(tmp_path, said)
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "tokenizers", None)
        with pytest.raises(ArgumentError, match="pip install tokenizers"):
            tokens.load(tmp_path)
    pytest.importorskip("tokenizers")
    found = tokens.load(tmp_path)
    assert found.encode("hello wo x") == [1, 2, 3, 0]
    assert "".join(found.pieces([1, 2, 3])) == found.decode([1, 2, 3]) == "hello wo"


def test_ends_are_named_by_the_files(tmp_path: Path) -> None:
    assert tokens.ends(tmp_path) == []
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    assert tokens.ends(tmp_path) == [7]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert tokens.ends(tmp_path) == [7, 8]
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(DTypeError, match="is damaged"):
        tokens.ends(tmp_path)
