"""How a language model writes on from a prompt: kept keys and values, drawn tokens."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from impl import Tensor, TinyJit, Variable, dtypes, nn
from impl.errors import ArgumentError, ShapeError
from impl.torch import no_grad


class Kept(NamedTuple):
    """What a model needs to write: how many tokens there are, and the sizes of what it keeps."""

    tokens: int
    blocks: int
    heads: int
    places: int
    width: int


class LanguageModel(nn.Module):
    """Called with (batch, places) of tokens it gives (batch, places, tokens) of scores of the next.

    It takes also caches, one for each block, and the place of the first token; see `with_kept`.
    """

    @property
    def kept(self) -> Kept:
        """The sizes of what it keeps."""
        raise NotImplementedError

    def check_places(self, tokens: Tensor, start: Any) -> None:
        """Refuse more tokens than there are places.

        Raises:
            ShapeError: there are more.
        """
        if isinstance(start, int) and start + tokens.shape[1] > self.kept.places:
            raise ShapeError(type(self).__name__, f"{start + tokens.shape[1]} tokens are more than "
                             f"its {self.kept.places} places", "give the last ones only")

    def loss(self, tokens: Tensor) -> Tensor:
        """The mean cross entropy of each token after the first, given those before it."""
        scores = self(tokens[:, :-1])
        return scores.flatten(0, 1).cross_entropy(tokens[:, 1:].flatten())

    def generate(self, prompt: Sequence[int], count: int, temperature: float = 0.0,
                 top_k: int | None = None) -> list[int]:
        """The tokens that follow a prompt, see `Writer.write`."""
        return list(Writer(self).write(prompt, count, temperature, top_k))


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


class Writer:
    """Writes on from prompts: keys and values are kept, and a further token is one captured call.

    Args:
        places: how long a text may become; as long as the network allows if it is not given.
    """

    def __init__(self, model: LanguageModel, places: int | None = None) -> None:
        self.model, self.kept, table = model, model.kept, next(model.parameters())
        self.places = min(places or self.kept.places, self.kept.places)
        self.device = table.device
        sizes = (2, 1, self.kept.heads, self.places, self.kept.width)
        with no_grad():
            self.caches = [Tensor.zeros(*sizes, dtype=table.dtype, device=table.device)
                           .contiguous().realize() for _ in range(self.kept.blocks)]
        self.at = Variable("at", 1, max(self.places - 1, 1))
        self.step = TinyJit(self._next)

    def write(self, prompt: Sequence[int], count: int, temperature: float = 0.0,
              top_k: int | None = None) -> Iterator[int]:
        """Up to `count` tokens that follow, each as soon as it is known, until no place is left.

        Args:
            temperature: 0 takes the most probable token; else the scores are divided by it, and
                one is drawn.
            top_k: draw from so many of the most probable tokens only.

        Raises:
            ArgumentError: the prompt is empty, or too long, or a token is none.
        """
        prompt = list(prompt)
        if not 0 < len(prompt) <= self.places:
            raise ArgumentError("write", f"a prompt of {len(prompt)} tokens for {self.places} "
                                "places", "give one token at least, and the last ones only")
        wrong = [one for one in prompt if not 0 <= one < self.kept.tokens]
        if wrong:
            raise ArgumentError("write", f"{wrong[0]} is no token of {self.kept.tokens}",
                                "use the model's own tokenizer")
        given, start = prompt, 0
        while count > 0 and start < self.places:
            tokens = Tensor([given], dtype=dtypes.int32, device=self.device).realize()
            now = self.step(tokens, self.at.bind(start), temperature, top_k) if start \
                else self._next(tokens, 0, temperature, top_k)
            start, count, given = start + len(given), count - 1, [int(now.item())]
            yield given[0]

    def _next(self, tokens: Tensor, start: Any, temperature: float, top_k: int | None) -> Tensor:
        with no_grad():
            return chosen(self.model(tokens, self.caches, start)[0, -1], temperature,
                          top_k).realize(*self.caches)


def chosen(scores: Tensor, temperature: float = 0.0, top_k: int | None = None) -> Tensor:
    """A place of the last axis: of the greatest score, or drawn, see `Writer.write`."""
    if temperature == 0:
        return scores.argmax(-1)
    if top_k is not None:
        least = scores.topk(min(top_k, scores.shape[-1]))[0][..., -1:]
        scores = (scores < least).where(float("-inf"), scores)
    return (scores / temperature).softmax(-1).multinomial()
