"""A small GPT that learns a sentence by heart: something to run with one's own scheduler.

    python -m conformance.learn run -- python -m conformance.learn.gpt

It is two blocks of attention over 24 characters, with 32 numbers for each, and Adam. Every tenth
loss is printed; the same numbers have to come out whoever schedules it.
"""
from __future__ import annotations

import argparse

import numpy as np

from impl import Tensor, TinyJit, nn

TEXT = "the scheduler decides which operations share a kernel and in which order kernels run. "
LENGTH, WIDTH, HEADS = 24, 32, 2
LETTERS = sorted(set(TEXT))


class Block:
    """Attention to all characters before, and two layers."""

    def __init__(self) -> None:
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        mixed = self.mixed(self.first(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = (mixed[:, :, part].transpose(1, 2) for part in range(3))
        scores = query @ key.transpose(2, 3) * (WIDTH // HEADS) ** -0.5
        later = Tensor.arange(length).reshape(-1, 1) < Tensor.arange(length)
        seen = later.where(-1e9, scores).softmax(-1) @ value
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(self.wide(self.second(x)).relu())


class Network:
    """From characters to scores of the next character."""

    def __init__(self) -> None:
        self.letters = nn.Linear(len(LETTERS), WIDTH)
        self.places = nn.Linear(LENGTH, WIDTH)
        self.blocks = [Block(), Block()]
        self.scores = nn.Linear(WIDTH, len(LETTERS))

    def __call__(self, x: Tensor) -> Tensor:
        hidden = self.letters(x) + self.places(Tensor.eye(LENGTH))
        for block in self.blocks:
            hidden = block(hidden)
        return self.scores(hidden)


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Some parts of the text, a character as a row with a single one, and what comes next."""
    numbers = np.array([LETTERS.index(letter) for letter in TEXT], np.int32)
    starts = range(0, len(numbers) - LENGTH, 8)
    x = np.stack([np.eye(len(LETTERS), dtype=np.float32)[numbers[s:s + LENGTH]] for s in starts])
    return x, np.stack([numbers[s + 1:s + LENGTH + 1] for s in starts])


def main(words: list[str] | None = None) -> None:
    """Teach it, and print every tenth loss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args(words).steps
    Tensor.manual_seed(5)
    network = Network()
    optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=0.005)
    x, y = (Tensor(each) for each in examples())

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = network(x).sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
            return loss.realize()

    for number in range(steps):
        loss = step(x, y).item()
        if number % 10 == 0 or number == steps - 1:
            print(f"step {number:>3}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
