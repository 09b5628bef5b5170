"""Texts as tokens: the vocabularies that are published beside checkpoints, and those of GGUF.

Two kinds are read here: BPE on bytes (GPT-2, Llama 3) and SentencePiece (Llama 2). Both begin with
letters and join neighbours, the best pair first. Other kinds are left to the package `tokenizers`.
"""
from __future__ import annotations

import codecs
import heapq
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from impl.errors import ArgumentError, DTypeError

__all__ = ["ByteTokenizer", "SentenceTokenizer", "Tokenizer", "ends", "load",
           "of_gguf"]


class Tokenizer:
    """Texts to numbers of tokens, and back.

    Args:
        texts: each token by its number.
        special: tokens that are written whole in a text, and are not shown when it is decoded.
        added: tokens that are written whole, and shown.
        before: tokens that stand before each text.
        after: tokens that stand behind each text.
    """

    def __init__(self, texts: Mapping[int, str], special: Iterable[str] = (),
                 added: Iterable[str] = (), before: Sequence[int] = (),
                 after: Sequence[int] = ()) -> None:
        self.texts, self.numbers = dict(texts), {text: one for one, text in texts.items()}
        self.special = set(special)
        self.whole = self.special | set(added)
        self.before, self.after = list(before), list(after)
        longest = sorted(filter(None, self.whole), key=lambda one: (-len(one), one))
        self._whole = re.compile(f"({'|'.join(map(re.escape, longest))})" if longest else "(?!)()")

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        found = list(self.before)
        for place, part in enumerate(self._whole.split(text)):
            found += [self.numbers[part]] if part in self.whole else self.plain(part, place == 0)
        return found + self.after

    def plain(self, text: str, first: bool) -> list[int]:
        """The tokens of a text without special ones; the first part of a text, or a later one."""
        raise NotImplementedError

    def content(self, token: int) -> bytes:
        """What a token that is not written whole stands for, as UTF-8, perhaps part of a letter."""
        raise NotImplementedError

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        """A text as it grows: what each token adds, letters only when they are complete."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            text = self.texts.get(int(token))
            if text is None:
                raise ArgumentError("decode", f"{token} is no token", "use the model's own tokens")
            yield "" if text in self.special else decoder.decode(
                text.encode() if text in self.whole else self.content(int(token)))
        yield from filter(None, [decoder.decode(b"", final=True)])

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens.

        Raises:
            ArgumentError: a number is no token.
        """
        return "".join(self.pieces(tokens))


def merge_pairs(parts: list[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Neighbours made one, those of the least rank first, until no pair has a rank."""
    alive: list[str | None] = list(parts)
    before, after = list(range(-1, len(parts) - 1)), list(range(1, len(parts) + 1))
    waiting: list[tuple[float, int, str, str]] = []

    def offer(place: int) -> None:
        if 0 <= place and after[place] < len(alive):
            left, right = alive[place], alive[after[place]]
            assert left is not None and right is not None
            found = rank(left, right)
            if found is not None:
                heapq.heappush(waiting, (found, place, left, right))

    for place in range(len(parts) - 1):
        offer(place)
    while waiting:
        _, place, left, right = heapq.heappop(waiting)
        other = after[place]
        if alive[place] != left or other == len(alive) or alive[other] != right:
            continue  # one of them is part of another by now
        alive[place], alive[other], after[place] = left + right, None, after[other]
        if after[place] < len(alive):
            before[after[place]] = place
        offer(before[place])
        offer(place)
    return [part for part in alive if part is not None]


# BPE on bytes


@cache
def byte_letters() -> list[str]:
    """The letter that stands for each byte in vocabularies: itself if one can see it, as GPT-2 has
    it, and else one behind the first 256.
    """
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1),
            *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


class ByteTokenizer(Tokenizer):
    """BPE on bytes: a text is cut to words, each of which begins as bytes.

    Args:
        merges: pairs that are joined, the first one first.
        patterns: what a word is; each pattern cuts what the one before it left whole.
        words: a word that is a token needs no pairs.
        form: a normal form of Unicode that texts are brought to, as "NFC".
    """

    def __init__(self, texts: Mapping[int, str], merges: Iterable[tuple[str, str]],
                 patterns: Sequence[str], words: bool = False, form: Any = None,
                 **others: Any) -> None:
        super().__init__(texts, **others)
        self.ranks = {pair: place for place, pair in reversed(list(enumerate(merges)))}
        self.patterns = [word_pattern(pattern) for pattern in patterns]
        self.words, self.form = words, form
        self.bytes = {letter: byte for byte, letter in enumerate(byte_letters())}
        self.known: dict[str, list[int]] = {}

    def plain(self, text: str, first: bool) -> list[int]:
        words = [unicodedata.normalize(self.form, text) if self.form else text]
        for pattern in self.patterns:
            words = [piece for word in words for piece in _cut(pattern, word)]
        return [token for word in words for token in self._word(word)]

    def _word(self, word: str) -> list[int]:
        if word not in self.known:
            letters = [byte_letters()[byte] for byte in word.encode()]
            parts = ["".join(letters)] if self.words and "".join(letters) in self.numbers \
                else merge_pairs(letters, lambda left, right: self.ranks.get((left, right)))
            missing = [part for part in parts if part not in self.numbers]
            if missing:
                raise ArgumentError("encode", f"{missing[0]!r} of {word!r:.40} is no token",
                                    "use a vocabulary with all bytes")
            self.known[word] = [self.numbers[part] for part in parts]
        return self.known[word]

    def content(self, token: int) -> bytes:
        return bytes(map(self.bytes.__getitem__, self.texts[token]))


def _cut(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """A text in pieces: what the pattern finds, and what is between."""
    end = 0
    for found in pattern.finditer(text):
        yield from filter(None, (text[end:found.start()], found[0]))
        end = found.end()
    if end < len(text):
        yield text[end:]


@cache
def letters_of(kind: str) -> str:
    """All letters whose category of Unicode begins so, as ranges of a class of `re`."""
    ranges, first = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(kind)
        if inside and first is None:
            first = code
        elif not inside and first is not None:
            ranges.append(f"\\U{first:08x}-\\U{code - 1:08x}")
            first = None
    return "".join(ranges)


#: White space as Unicode has it; that of `re` has four more.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@cache
def word_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern with categories, which `re` does not know: as \\p{L}, in brackets or outside.

    Raises:
        ArgumentError: `re` does not know it.
    """
    pieces, inside = [], False
    for piece in re.findall(r"\\[pP]\{\w+\}|\\.|.", pattern, re.DOTALL):
        if piece in ("[", "]"):
            inside = piece == "["
        elif piece.startswith((r"\p{", r"\s")):
            ranges = _SPACE if piece == r"\s" else letters_of(piece[3:-1])
            piece = ranges if inside else f"[{ranges}]"
        elif piece == r"\S" and not inside:
            piece = f"[^{_SPACE}]"
        pieces.append(piece)
    try:
        return re.compile("".join(pieces))
    except re.error as error:
        raise ArgumentError("tokens.load", f"the pattern {pattern!r} of words is not known "
                            f"({error})", "install the package tokenizers") from None


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
#: What a word is, by the name that files of GGUF have for it.
_WORDS = {"gpt-2": (_GPT2,), "llama-bpe": (_LLAMA3,), "smollm": (r"\p{N}", _GPT2),
          "qwen2": (_LLAMA3.replace("{1,3}", ""),)}


# SentencePiece


class SentenceTokenizer(Tokenizer):
    """SentencePiece: spaces are letters, and what is no token is written in bytes.

    Args:
        scores: of each token; a pair is joined if it is a token, that of the greatest score first.
        space: whether a space stands before each text.
    """

    def __init__(self, texts: Mapping[int, str], scores: Mapping[int, float], space: bool = True,
                 **others: Any) -> None:
        super().__init__(texts, **others)
        self.space, self.scores = space, scores
        self.bytes = {number: bytes([int(text[3:5], 16)]) for number, text in self.texts.items()
                      if re.fullmatch("<0x[0-9A-Fa-f]{2}>", text)}

    def plain(self, text: str, first: bool) -> list[int]:
        text = (" " * (self.space and first) + text if text else text).replace(" ", "▁")
        parts = merge_pairs(list(text), self._rank)
        return [token for part in parts for token in self._tokens(part)]

    def _rank(self, left: str, right: str) -> float | None:
        number = self.numbers.get(left + right)
        return None if number is None else -self.scores[number]

    def _tokens(self, part: str) -> list[int]:
        if part in self.numbers:
            return [self.numbers[part]]
        names = [f"<0x{byte:02X}>" for byte in part.encode()]
        if not self.numbers.keys() >= set(names):
            raise ArgumentError("encode", f"{part!r} is no token, and bytes are none",
                                "use a vocabulary with all bytes")
        return [self.numbers[name] for name in names]

    def content(self, token: int) -> bytes:
        return self.bytes.get(token) or self.texts[token].replace("▁", " ").encode()

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without the space that stands before each."""
        text = super().decode(tokens)
        return text.removeprefix(" ") if self.space else text


# Files


def load(path: str | os.PathLike[str]) -> Any:
    """The tokenizer of a checkpoint: its folder, a `tokenizer.json`, or a file of GGUF.

    A folder has `tokenizer.json`, or `vocab.json` and `merges.txt`. Kinds that are not read here
    come from the package `tokenizers`, with the methods `encode`, `decode` and `pieces`.

    Raises:
        ArgumentError: there is none, or it is of a kind that is not known.
        DTypeError: it is damaged.
    """
    file = Path(path)
    if file.is_dir():
        named = [file / name for name in ("tokenizer.json", "vocab.json")]
        found = [one for one in named if one.is_file()]
        if not found:
            raise ArgumentError("tokens.load", f"{file} has no tokenizer.json",
                                "give a folder with it, or with vocab.json and merges.txt")
        file = found[0]
    if file.suffix != ".json":
        from impl.nn.gguf import gguf_metadata
        return of_gguf(gguf_metadata(file))
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        return _of_pairs(said, file.with_name("merges.txt")) if file.name == "vocab.json" \
            else _of_json(said) or _of_package(file)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, (ArgumentError, DTypeError)):
            raise
        raise _damaged(file, error) from None


def _damaged(file: Path | str, error: Exception) -> DTypeError:
    return DTypeError("tokens.load", f"{file} is damaged or no vocabulary "
                      f"({type(error).__name__}: {error})", "give a whole tokenizer.json, "
                      "or a vocab.json with its merges.txt, or a file of GGUF")


def _of_pairs(numbers: Mapping[str, int], merges: Path) -> ByteTokenizer:
    """GPT-2's two files."""
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [_pair(line) for line in lines if line and not line.startswith("#version")]
    return ByteTokenizer({number: text for text, number in numbers.items()}, pairs, _WORDS["gpt-2"],
                         special={"<|endoftext|>"} & numbers.keys())


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


#: What a model of BPE may say without being another kind.
_PLAIN = (None, False, "")


def _of_json(said: dict[str, Any]) -> ByteTokenizer | None:
    """BPE on bytes of a `tokenizer.json`; None if it is another kind."""
    model, patterns = said["model"], _patterns(said.get("pre_tokenizer"))
    normal = said.get("normalizer") or {"type": None}
    others = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    added = said.get("added_tokens", [])
    if model.get("type", "BPE") != "BPE" or patterns is None or \
            normal["type"] not in (None, "NFC", "NFD", "NFKC", "NFKD") or \
            any(model.get(name) not in _PLAIN for name in others) or \
            any(one.get(side) for one in added for side in ("lstrip", "rstrip", "single_word")):
        return None
    texts = {number: text for text, number in model["vocab"].items()}
    texts |= {one["id"]: one["content"] for one in added}
    before, after = _around(said.get("post_processor"), texts)
    return ByteTokenizer(texts, map(_pair, model["merges"]), patterns,
                         bool(model.get("ignore_merges")), normal["type"],
                         special=[one["content"] for one in added if one.get("special")],
                         added=[one["content"] for one in added], before=before, after=after)


def _patterns(said: Any) -> list[str] | None:
    """What a word is; None if it is said in another way than with patterns."""
    steps = said["pretokenizers"] if said and said["type"] == "Sequence" else [said]
    found = []
    for step in steps:
        kind = step and step["type"]
        if kind == "Split" and step["behavior"] == "Isolated" and not step.get("invert") \
                and "Regex" in step["pattern"]:
            found.append(step["pattern"]["Regex"])
        elif kind == "Digits":
            found.append(r"\p{N}" if step.get("individual_digits") else r"\p{N}+")
        elif kind == "ByteLevel" and not step.get("add_prefix_space") and step is steps[-1]:
            return found + ([_GPT2] if step.get("use_regex", True) else [])
        else:
            break
    return None


def _around(said: Any, texts: Mapping[int, str]) -> tuple[list[int], list[int]]:
    """The tokens before and behind each text."""
    numbers = {text: number for number, text in texts.items()}
    before: list[int] = []
    after: list[int] = []
    for step in said["processors"] if said and said["type"] == "Sequence" else [said or {}]:
        side = before
        for one in step["single"] if step.get("type") == "TemplateProcessing" else ():
            side = after if "Sequence" in one else side
            if "SpecialToken" in one:
                side.append(numbers[one["SpecialToken"]["id"]])
    return before, after


class _Packaged:
    """A tokenizer of the package `tokenizers`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str) -> list[int]:
        return list(self.inner.encode(text).ids)

    def decode(self, tokens: Iterable[int]) -> str:
        return str(self.inner.decode([int(token) for token in tokens]))

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        shown, all_of_them = "", []
        for token in tokens:
            all_of_them.append(token)
            text = self.decode(all_of_them)
            if not text.endswith("\ufffd"):  # a letter is not complete
                yield text.removeprefix(shown)
                shown = text
        yield self.decode(all_of_them).removeprefix(shown)


def _of_package(file: Path) -> _Packaged:
    try:
        import tokenizers
    except ImportError:
        raise ArgumentError("tokens.load", f"{file} is not BPE on bytes",
                            "pip install tokenizers, which reads all kinds") from None
    try:
        return _Packaged(tokenizers.Tokenizer.from_file(str(file)))
    except Exception as error:  # the package has no class of its own for it
        raise _damaged(file, error) from None


#: Kinds of tokens in GGUF that are not text: control, and those that users added.
_CONTROL, _ADDED = 3, 4


def of_gguf(said: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in the metadata of a file of GGUF.

    Raises:
        ArgumentError: there is none, or it is of a kind that is not known.
        DTypeError: its lists do not fit each other.
    """
    def of(name: str, other: Any = None) -> Any:
        return said.get(f"tokenizer.ggml.{name}", other)

    kind, texts = of("model"), of("tokens")
    if not isinstance(texts, list) or kind not in ("gpt2", "llama"):
        raise ArgumentError("tokens.load", f"the file has a vocabulary of kind {kind!r}",
                            'give one of "gpt2" or "llama", or a tokenizer.json')
    kinds, scores = of("token_type", [1] * len(texts)), of("scores", [0.0] * len(texts))
    try:
        whole = {wanted: [text for text, one in zip(texts, kinds, strict=True) if one == wanted]
                 for wanted in (_CONTROL, _ADDED)}
        before, after = ([of(f"{name}_token_id")] if of(f"add_{name}_token", other) and of(
            f"{name}_token_id") is not None else []
            for name, other in (("bos", kind == "llama"), ("eos", False)))
        numbered = dict(enumerate(texts))
        others: dict[str, Any] = {
            "special": whole[_CONTROL], "added": whole[_ADDED], "before": before, "after": after}
        if kind == "llama":
            return SentenceTokenizer(numbered, dict(zip(range(len(texts)), scores, strict=True)),
                                     bool(of("add_space_prefix", True)), **others)
        words = of("pre", "gpt-2")
        if words not in _WORDS:
            raise ArgumentError("tokens.load", f"the file cuts words as {words!r}",
                                f"give one that cuts as {', '.join(_WORDS)}")
        return ByteTokenizer(numbered, map(_pair, of("merges", [])), _WORDS[words],
                             words == "llama-bpe", **others)
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise _damaged("the file of GGUF", error) from None


def ends(path: str | os.PathLike[str]) -> list[int]:
    """The tokens behind which nothing follows: those a folder or a file of GGUF names.

    Raises:
        DTypeError: the file is damaged.
    """
    path = Path(path)
    if path.is_dir():
        named = [path / name for name in ("generation_config.json", "config.json")]
        for file in (one for one in named if one.is_file()):
            try:
                found = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
            except (ValueError, AttributeError) as error:
                raise _damaged(file, error) from None
            if found is not None:
                return list(found) if isinstance(found, list) else [found]
        return []
    from impl.nn.gguf import gguf_metadata
    said = gguf_metadata(path)
    return [said[name] for name in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
            if name in said]
