"""How language models write: prompts of different lengths, drawn tokens, beams."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from conformance.chapters.models import test_gpt2, test_llama
from impl import Context, Tensor
from impl.errors import ArgumentError
from impl.models.writing import LanguageModel, Writer, chosen

PROMPTS = [[3, 1, 4], [1, 5], [9], [2, 7, 1, 8]]


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


@pytest.fixture(params=["gpt2", "llama"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    with Context(DEVICE="REFERENCE"):
        return test_gpt2.writing(1) if request.param == "gpt2" else test_llama.model()


def follow(model: LanguageModel, text: list[int]) -> np.ndarray:
    """Logarithms of probabilities of what follows each token; a place sees none behind it."""
    return np.asarray(model(Tensor([text]))[0].log_softmax(-1).numpy())


def test_prompts_of_different_lengths_are_written_as_each_alone(model: LanguageModel) -> None:
    found = model.generate(PROMPTS, 5)
    for prompt, text in zip(PROMPTS, found, strict=True):
        wanted = follow(model, prompt + text).argmax(-1)[len(prompt) - 1:-1]
        assert text == wanted.tolist()
    assert len({tuple(text) for text in found}) > 2


def test_texts_end_where_they_say() -> None:
    writer = Writer(test_gpt2.writing(1), rows=3)
    whole = [list(column) for column in zip(*writer.write_all(PROMPTS[:2], 6), strict=True)]
    assert len(whole) == 2 and None not in whole[0] + whole[1]
    end = [whole[0][2], whole[1][4]]
    rows = list(writer.write_all(PROMPTS[:2], 6, end=end))
    for number, text in enumerate(whole):
        length = min(text.index(token) for token in end if token in text) + 1
        assert [row[number] for row in rows] == text[:length] + [None] * (len(rows) - length)
    assert None in rows[-1] or len(rows) < 6
    found = writer.model.generate(PROMPTS[0], 6, end=[whole[0][2]])
    assert found == whole[0][:whole[0].index(whole[0][2]) + 1]


def drawn(scores: np.ndarray, temperature: float, top_k: int | None, top_p: float | None,
          chance: float) -> int:
    """The token of a number from 0 to 1, by the definition: from the most probable one on."""
    share = np.exp(scores / temperature)
    share = share / share.sum()
    order = sorted(range(len(share)), key=lambda token: -share[token])
    if top_k is None and top_p is None:
        order = list(range(len(share)))
    order, kept, total = order[:top_k], [], 0.0
    whole = sum(share[token] for token in order)
    for token in order:
        if top_p is None or total < top_p * whole:
            kept.append(token)
            total += share[token]
    for token in kept:
        chance -= share[token] / total
        if chance < 0:
            return token
    return kept[-1]


@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (3, None), (None, 0.7), (4, 0.5),
                                              (50, 1.0), (1, 0.1)])
def test_tokens_are_drawn_by_their_shares(top_k: int | None, top_p: float | None) -> None:
    scores = np.random.default_rng(3).standard_normal(9).astype(np.float32) * 2
    chances = np.arange(0.013, 1, 0.04).astype(np.float32)
    found = chosen(Tensor(scores).expand(len(chances), 9), 1.5, top_k, top_p, Tensor(chances))
    assert found.tolist() == [drawn(scores, 1.5, top_k, top_p, float(chance))
                              for chance in chances]


def test_a_seed_draws_the_same_again() -> None:
    writer = Writer(test_gpt2.writing(1))

    def text(seed: int | None, top_p: float | None = None) -> list[int]:
        return list(writer.write([3, 1, 4], 6, 2.0, top_p=top_p, seed=seed))

    first = text(7)
    Tensor.manual_seed(3)
    unasked = text(None)
    assert text(7) == first != text(8)
    Tensor.manual_seed(3)
    assert text(None) == unasked
    assert text(7, top_p=1e-6) == list(writer.write([3, 1, 4], 6))  # the most probable ones


def searched(model: LanguageModel, prompt: list[int], count: int, beams: int,
             end: set[int]) -> list[int]:
    """The same search as lists, without kept keys."""
    going: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for _ in range(count):
        longer = [(total + score, [*text, token]) for total, text in going
                  for token, score in enumerate(follow(model, prompt + text)[-1])]
        best = sorted(longer, key=lambda one: -one[0])[:2 * beams]
        ended += [(total / len(text), text) for total, text in best[:beams] if text[-1] in end]
        going = [one for one in best if one[1][-1] not in end][:beams]
        worst = sorted((score for score, _ in ended), reverse=True)[:beams]
        if len(worst) == beams and worst[-1] >= going[0][0] / len(going[0][1]):
            break
    return max(ended + [(total / len(text), text) for total, text in going])[1]


def test_beams_find_what_lists_find() -> None:
    model = test_gpt2.writing(1)
    writer = Writer(model, rows=3)
    for end in ([], [13, 15]):
        assert writer.beam([9], 4, end) == searched(model, [9], 4, 3, set(end))
    found = model.generate([9], 4, beams=3)
    assert found == writer.beam([9], 4) != model.generate([9], 4)
    assert len(writer.beam([9], 1000)) == 12  # the last one needs no place


def test_what_has_no_meaning_is_refused() -> None:
    writer = Writer(test_gpt2.writing(1))
    for named, told in (({"temperature": -1.0}, "temperature=-1.0"), ({"top_k": 0}, "top_k=0"),
                        ({"top_p": 0.0}, "top_p=0.0"), ({"top_p": 1.5}, "top_p=1.5")):
        with pytest.raises(ArgumentError, match=told):
            writer.write([1], 2, **named)  # before anything is asked for
    with pytest.raises(ArgumentError, match="2 prompts for 1 rows"):
        writer.write_all([[1], [2]], 2)
    with pytest.raises(ArgumentError, match="2 beams and drawn tokens"):
        writer.model.generate([1], 2, temperature=1.0, beams=2)
