"""How a language model writes on from prompts: kept keys and values, drawn tokens, beams."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from impl import Tensor, TinyJit, Variable, dtypes, nn
from impl.errors import ArgumentError, ShapeError
from impl.host import np
from impl.torch import no_grad

__all__ = ["Kept", "LanguageModel", "Writer", "chosen", "positions", "visible", "with_kept"]


class Kept(NamedTuple):
    """What a model needs to write: how many tokens there are, and the sizes of what it keeps."""

    tokens: int
    blocks: int
    heads: int
    places: int
    width: int


class LanguageModel(nn.Module):
    """Called with (batch, places) of tokens it gives (batch, places, tokens) of scores of the next.

    It takes also caches, one for each block, and the place of the first token, a number or a bound
    `Variable`, see `with_kept`; and how many places at the left of each text are empty, see
    `visible`.
    """

    @property
    def kept(self) -> Kept:
        """The sizes of what it keeps."""
        raise NotImplementedError

    def cache_sizes(self, rows: int, places: int) -> tuple[int, ...]:
        """The sizes of what is kept for a block: two, then rows, and whatever a block needs."""
        return 2, rows, self.kept.heads, places, self.kept.width

    def check_places(self, tokens: Tensor, start: Any) -> None:
        """Refuse more tokens than there are places.

        Raises:
            ShapeError: there are more, or there is no axis of the batch.
        """
        if tokens.ndim != 2:
            raise ShapeError(type(self).__name__, f"tokens of shape {tokens.shape}",
                             "give (batch, places): tokens.reshape(1, -1) for one text")
        if isinstance(start, int) and start + tokens.shape[1] > self.kept.places:
            raise ShapeError(type(self).__name__, f"{start + tokens.shape[1]} tokens are more than "
                             f"its {self.kept.places} places", "give the last ones only")

    def loss(self, tokens: Tensor) -> Tensor:
        """The mean cross entropy of each token after the first, given those before it."""
        scores = self(tokens[:, :-1])
        return scores.flatten(0, 1).cross_entropy(tokens[:, 1:].flatten())

    def generate(self, prompt: Sequence[int] | Sequence[Sequence[int]], count: int,
                 temperature: float = 0.0, top_k: int | None = None, top_p: float | None = None,
                 seed: int | None = None, end: Sequence[int] = (),
                 beams: int = 1) -> list[Any]:
        """The tokens that follow a prompt, or each of several; see `Writer.write` and `beam`.

        Raises:
            ArgumentError: of what `Writer.write` says, or beams with a temperature.
        """
        several = bool(prompt) and not isinstance(prompt[0], (int, np.integer))
        prompts: list[Any] = list(prompt) if several else [prompt]
        if beams > 1:
            if temperature or top_k or top_p:
                raise ArgumentError("generate", f"{beams} beams and drawn tokens",
                                    "leave temperature, top_k and top_p out, or beams")
            writer = Writer(self, rows=beams)
            found = [writer.beam(one, count, end) for one in prompts]
        else:
            writer, found = Writer(self, rows=len(prompts)), [[] for _ in prompts]
            for tokens in writer.write_all(prompts, count, temperature, top_k, top_p, seed, end):
                for text, token in zip(found, tokens, strict=True):
                    text += [] if token is None else [token]
        return found if several else found[0]


def with_kept(cache: Tensor | None, key: Tensor, value: Tensor, start: Any) -> tuple[Any, ...]:
    """Keys and values of all places, of which those from `start` on are given.

    They are written to the cache, (2, batch, heads, places, width), and those before are read.
    Either all places are given at once, or one more: it sees all that there are.
    """
    if cache is None:
        return key, value
    end = start + key.shape[2]
    cache[:, :, :, start:end] = Tensor.stack(key, value)
    return cache[0, :, :, :end], cache[1, :, :, :end]


def positions(padding: Tensor, start: Any, length: int) -> Tensor:
    """(batch, length): the number of each place from `start` on, counted behind the padding."""
    places = Tensor.arange(length, device=padding.device, dtype=dtypes.int32) + start
    return places - padding.unsqueeze(1)


def visible(padding: Tensor | None, start: Any, length: int) -> Tensor | None:
    """(batch, 1, length, places): whether a place sees another: up to itself, behind the padding.

    Prompts of different lengths end at one place, so `padding` (batch,) places at the left of each
    are empty. Without it attention needs no mask.
    """
    if padding is None:
        return None
    own = positions(padding, start, length).unsqueeze(2)
    others = positions(padding, 0, start + length).unsqueeze(1)
    return ((others >= 0) & (others <= own)).unsqueeze(1)


class Writer:
    """Writes on from prompts: keys and values are kept, and a further token is one captured call.

    Args:
        places: how long a text may become; as long as the network allows if it is not given.
        rows: how many texts are written at once.
    """

    def __init__(self, model: LanguageModel, places: int | None = None, rows: int = 1) -> None:
        self.model, self.kept, table = model, model.kept, next(model.parameters())
        self.places = min(places or self.kept.places, self.kept.places)
        self.rows, self.device = rows, table.device
        sizes = model.cache_sizes(rows, self.places)
        with no_grad():
            self.caches = [Tensor.zeros(*sizes, dtype=table.dtype, device=table.device)
                           .contiguous().realize() for _ in range(self.kept.blocks)]
        self.at = Variable("at", 1, max(self.places - 1, 1))
        self.step, self.beam_step = TinyJit(self._next), TinyJit(self._next_of_beams)

    def write(self, prompt: Sequence[int], count: int, temperature: float = 0.0,
              top_k: int | None = None, top_p: float | None = None, seed: int | None = None,
              end: Sequence[int] = ()) -> Iterator[int]:
        """Up to `count` tokens that follow, each as soon as it is known, until no place is left.

        Args:
            temperature: 0 takes the most probable token; else the scores are divided by it, and
                one is drawn.
            top_k: draw from so many of the most probable tokens only.
            top_p: draw from the fewest of the most probable tokens whose shares reach this sum.
            seed: draws the same again; those of `Tensor.manual_seed` follow if it is not given.
            end: tokens behind which nothing follows; the one that came is the last.

        Raises:
            ArgumentError: the prompt is empty, or too long, or a token is none; or a setting has no
                meaning.
        """
        return (tokens[0] for tokens in self.write_all(
            [prompt], count, temperature, top_k, top_p, seed, end) if tokens[0] is not None)

    def write_all(self, prompts: Sequence[Sequence[int]], count: int, temperature: float = 0.0,
                  top_k: int | None = None, top_p: float | None = None, seed: int | None = None,
                  end: Sequence[int] = ()) -> Iterator[list[int | None]]:
        """As `write`, for several prompts of any lengths: a token of each, None behind its end.

        Raises:
            ArgumentError: there are more prompts than `rows`, or as in `write`.
        """
        if not 0 < len(prompts) <= self.rows:
            raise ArgumentError("write", f"{len(prompts)} prompts for {self.rows} rows",
                                f"make a Writer(model, rows={len(prompts)})")
        _check_draw(temperature, top_k, top_p)
        given, padding = self._together(prompts)
        draws = _random(seed) if temperature else None
        return self._written(given, padding, len(prompts), count, draws, set(end),
                             (temperature, top_k, top_p))

    def _written(self, given: list[list[int]], padding: Tensor | None, texts: int, count: int,
                 draws: np.random.Generator | None, end: set[int],
                 how: tuple[float, int | None, float | None]) -> Iterator[list[int | None]]:
        start, ended = 0, [False] * texts
        while count > 0 and start < self.places and not all(ended):
            tokens = Tensor(given, dtype=dtypes.int32, device=self.device).realize()
            chance = None if draws is None else Tensor(
                draws.random(self.rows, np.float32), device=self.device).realize()
            now = self.step(tokens, self.at.bind(start), padding, chance, *how) if start \
                else self._next(tokens, 0, padding, chance, *how)
            start, count, new = start + len(given[0]), count - 1, now.tolist()
            yield [None if over else token for over, token in zip(ended, new, strict=False)]
            ended = [over or token in end for over, token in zip(ended, new, strict=False)]
            given = [[token] for token in new]

    def _together(self, prompts: Sequence[Sequence[int]]) -> tuple[list[list[int]], Tensor | None]:
        """Prompts that end at one place, one for each row, and the empty places before them."""
        longest = max(map(len, prompts))
        for prompt in prompts:
            if not 0 < len(prompt) <= self.places:
                raise ArgumentError("write", f"a prompt of {len(prompt)} tokens for {self.places} "
                                    "places", "give one token at least, and the last ones only")
            wrong = [one for one in prompt if not 0 <= one < self.kept.tokens]
            if wrong:
                raise ArgumentError("write", f"{wrong[0]} is no token of {self.kept.tokens}",
                                    "use the model's own tokenizer")
        rows = [*prompts, *[prompts[0]] * (self.rows - len(prompts))]
        padding = [longest - len(row) for row in rows]
        given = [[0] * empty + list(row) for empty, row in zip(padding, rows, strict=True)]
        return given, None if self.rows == 1 else Tensor(
            padding, dtype=dtypes.int32, device=self.device).realize()

    def _next(self, tokens: Tensor, start: Any, padding: Tensor | None, chance: Tensor | None,
              temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
        with no_grad():
            scores = self.model(tokens, self.caches, start, padding)[:, -1]
            return chosen(scores, temperature, top_k, top_p, chance).realize(*self.caches)

    # Several texts beside each other, of which the best one wins

    def beam(self, prompt: Sequence[int], count: int, end: Sequence[int] = (),
             length_penalty: float = 1.0) -> list[int]:
        """The most probable text that is found if always the best `rows` beginnings are kept.

        Args:
            count: the most tokens that follow.
            end: tokens behind which nothing follows; the one that came is the last.
            length_penalty: logarithms of probabilities are divided by the length to this power.

        Raises:
            ArgumentError: the prompt is empty, or too long, or a token is none.
        """
        given, _ = self._together([prompt])
        texts: list[list[int]] = [[] for _ in given]
        totals = [0.0] + [-math.inf] * (self.rows - 1)
        parents, finished, start = list(range(self.rows)), _Finished(length_penalty), 0
        for _ in range(min(count, self.places - len(prompt) + 1)):
            tensors = [Tensor(one, dtype=dtype, device=self.device).realize() for one, dtype in (
                (given, dtypes.int32), (totals, dtypes.float32), (parents, dtypes.int32))]
            found = self.beam_step(tensors[0], self.at.bind(start), *tensors[1:]) if start \
                else self._next_of_beams(tensors[0], 0, *tensors[1:])
            start += len(given[0])
            texts, totals, parents = self._kept_beams(texts, found, set(end), finished)
            if finished.wins(totals, len(texts[0]), self.rows):
                break
            given = [text[-1:] for text in texts]
        for text, total in zip(texts, totals, strict=True):
            finished.add(text, total)
        return finished.best()

    def _next_of_beams(self, tokens: Tensor, start: Any, totals: Tensor,
                       parents: Tensor) -> tuple[Tensor, Tensor]:
        """The best texts that are one token longer: logarithms of probabilities, and places.

        Half of twice as many texts as rows may end here.
        """
        with no_grad():
            for cache in self.caches:
                cache.assign(cache[:, parents])
            scores = self.model(tokens, self.caches, start)[:, -1].log_softmax(-1)
            best = (scores + totals.unsqueeze(1)).flatten().topk(2 * self.rows)
            best.values.realize(best.indices, *self.caches)
            return best.values, best.indices

    def _kept_beams(self, texts: list[list[int]], found: tuple[Tensor, Tensor], end: set[int],
                    finished: _Finished) -> tuple[list[list[int]], list[float], list[int]]:
        """The best of what was found: those that end are finished, the others go on."""
        kept: list[tuple[list[int], float, int]] = []
        ranked = zip(found[0].tolist(), found[1].tolist(), strict=True)
        for rank, (total, place) in enumerate(ranked):
            parent, token = divmod(int(place), self.kept.tokens)
            text = [*texts[parent], token]
            if token not in end:
                kept.append((text, total, parent))
            elif rank < self.rows:
                finished.add(text, total)
        kept = kept[:self.rows]
        return [one[0] for one in kept], [one[1] for one in kept], [one[2] for one in kept]


class _Finished:
    """Texts that ended, with the mean logarithm of the probability of a token."""

    def __init__(self, length_penalty: float) -> None:
        self.power = length_penalty
        self.texts: list[tuple[float, list[int]]] = []

    def add(self, text: list[int], total: float) -> None:
        self.texts.append((total / max(len(text), 1) ** self.power, text))

    def wins(self, totals: Sequence[float], length: int, rows: int) -> bool:
        """Whether none of those that go on is better now than the best `rows` that ended."""
        ended = sorted((score for score, _ in self.texts), reverse=True)[:rows]
        return len(ended) == rows and ended[-1] >= max(totals) / length ** self.power

    def best(self) -> list[int]:
        return max(self.texts, key=lambda one: one[0])[1]


# One token


def _random(seed: int | None) -> np.random.Generator:
    """Numbers of the host decide: one seed writes one text, whatever else draws numbers."""
    if seed is None:
        seed = int(Tensor.randint(1, low=0, high=2 ** 31 - 1).item())
    return np.random.default_rng(seed)


def _check_draw(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if temperature < 0:
        raise ArgumentError("write", f"temperature={temperature}", "give 0 or more")
    if top_k is not None and top_k < 1:
        raise ArgumentError("write", f"top_k={top_k}", "give 1 or more, or leave it out")
    if top_p is not None and not 0 < top_p <= 1:
        raise ArgumentError("write", f"top_p={top_p}", "give a share above 0, and 1 at most")


def chosen(scores: Tensor, temperature: float = 0.0, top_k: int | None = None,
           top_p: float | None = None, chance: Tensor | None = None) -> Tensor:
    """Places of the last axis: of the greatest score, or drawn, see `Writer.write`.

    Args:
        scores: (..., tokens).
        chance: (...) of numbers from 0 to 1: which share of the sum is passed by; drawn if it is
            not given.
    """
    if temperature == 0:
        return scores.argmax(-1)
    ranked = None
    if top_k is not None or top_p is not None:
        most = scores.shape[-1]
        scores, ranked = scores.topk(min(top_k or most, most))
    share = (scores / temperature).softmax(-1)
    if top_p is not None:  # the first one stays: nothing is before it
        share = (share.cumsum(-1) - share < top_p).where(share, 0.0)
    if chance is None:
        chance = Tensor.rand(*scores.shape[:-1], device=scores.device)
    sums = share.cumsum(-1)
    passed = (sums <= chance.unsqueeze(-1) * sums[..., -1:]).sum(-1, keepdim=True)
    place = passed.minimum(scores.shape[-1] - 1)
    return (place if ranked is None else ranked.gather(-1, place)).squeeze(-1)
