"""Functions that the tests export: a small language model, and data for the demo's network."""
from __future__ import annotations

from typing import Any

import numpy as np

from impl import Tensor, nn

WIDTH, HEADS, LENGTH, WORDS = 16, 2, 8, 12


class Block:
    """Attention over all words so far, which are kept, and two layers."""

    def __init__(self) -> None:
        self.norm, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.cache = Tensor.zeros(2, LENGTH, HEADS, WIDTH // HEADS).contiguous().realize()

    def __call__(self, x: Tensor, position: Any) -> Tensor:
        each = WIDTH // HEADS
        query, key, value = self.mixed(self.norm(x)).reshape(3, 1, HEADS, each).split(1)
        self.cache[:, position:position + 1] = key.cat(value)
        keys, values = self.cache[0, :position + 1], self.cache[1, :position + 1]
        scores = (query[0].permute(1, 0, 2) @ keys.permute(1, 2, 0)) * each ** -0.5
        found = (scores.softmax(-1) @ values.permute(1, 0, 2)).permute(1, 0, 2)
        x = x + self.out(found.reshape(1, WIDTH))
        return x + self.down(self.up(self.second(x)).gelu())


class Language:
    """A GPT: the scores of the next word, given a word and its position."""

    def __init__(self, blocks: int = 1) -> None:
        Tensor.manual_seed(1)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(blocks)]
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)
        Tensor.realize(*nn.state.get_parameters(self))

    def next_word(self, word: Tensor, position: Any) -> Tensor:
        """The scores of the word after this one."""
        x = self.words(word) + self.places.weight[position:position + 1]
        for block in self.blocks:
            x = block(x, position)
        return self.head(self.norm(x))[0]


def pictures(count: int = 4) -> tuple[Tensor, Tensor]:
    """Some pictures, and what they are said to show."""
    chance = np.random.default_rng(0)
    return (Tensor(chance.random((count, 64)).astype(np.float32)).realize(),
            Tensor(chance.integers(0, 10, count).astype(np.int32)).realize())
