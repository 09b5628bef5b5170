"""A small GPT, and the ways to spread it: where its parameters lie, and what has to be sent."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from impl import Mesh, Tensor

Parameters = dict[str, Tensor]
#: Which axis of a value each axis of the mesh cuts; the others have copies.
Cut = dict[str, int]
#: Parameters whose columns are spread in tensor parallelism, and those whose rows are.
COLUMNS, ROWS = ("q", "k", "v", "up"), ("out", "down")


@dataclass(frozen=True)
class Size:
    """Of the model, and of the batch."""

    batch: int
    tokens: int
    width: int
    heads: int
    words: int

    @property
    def activations(self) -> int:
        """Bytes of what one layer hands to the next."""
        return 4 * self.batch * self.tokens * self.width

    def parameters(self, layers: int) -> dict[str, tuple[int, ...]]:
        """The shape of each. Those of layers lie one behind the other, along the first axis."""
        w = self.width
        return {"words": (self.words, w), "head": (w, self.words), "up": (layers, w, 4 * w),
                "down": (layers, 4 * w, w), **{name: (layers, w, w)
                                               for name in ("q", "k", "v", "out")}}

    def nbytes(self, *names: str, layers: int = 1) -> int:
        """Bytes of some parameters; of all, if none is named."""
        return sum(4 * int(np.prod(shape)) for name, shape in self.parameters(layers).items()
                   if name in names or not names)


#: In the tiny one parameters are larger than activations: to spread them does not pay there.
SIZES = {"tiny": Size(2, 4, 8, 2, 12), "small": Size(64, 4, 8, 2, 12),
         "large": Size(64, 32, 64, 4, 128)}


def parameters(size: Size, layers: int) -> Parameters:
    """The parameters of a model, drawn anew."""
    random = np.random.default_rng(0)
    return {name: Tensor((random.standard_normal(shape) / shape[-2] ** 0.5).astype(np.float32))
            for name, shape in size.parameters(layers).items()}


def drawn(size: Size) -> list[Tensor]:
    """A batch: words, and those that follow them."""
    random = np.random.default_rng(1)
    return [Tensor(random.integers(0, size.words, (size.batch, size.tokens)).astype(np.int32))
            for _ in range(2)]


# ---------------------------------------------------------------- the model

def ring_attention(q: Tensor, k: Tensor, v: Tensor, count: int) -> Tensor:
    """Causal attention (batch, heads, tokens, width), tokens in `count` blocks.

    The blocks of keys and values go round; no device ever has more than one of them.
    """
    batch, heads, tokens, width = q.shape
    length = tokens // count
    q, k, v = (x.reshape(batch, heads, count, length, width) for x in (q, k, v))
    rows = np.arange(tokens).reshape(count, length, 1)
    most = total = mixed = Tensor([0.0])
    for turn in range(count):
        columns = np.roll(np.arange(tokens).reshape(count, 1, length), turn, 0)
        seen = Tensor(rows >= columns).shard_like(q[0, 0, :, :, :1])
        scores = seen.where(q @ k.transpose(-1, -2) / width ** 0.5, -float("inf"))
        top = scores.max(-1, keepdim=True).detach()
        now = top if turn == 0 else most.maximum(top)
        share = (scores - now).exp()
        kept = 0.0 if turn == 0 else (most - now).exp()
        total = share.sum(-1, keepdim=True) + (total * kept if turn else 0.0)
        mixed = share @ v + (mixed * kept if turn else 0.0)
        most = now
        if turn + 1 < count:
            k, v = k.roll(1, 2), v.roll(1, 2)
    return (mixed / total).reshape(batch, heads, tokens, width)


def block(p: Parameters, hidden: Tensor, heads: int, ring: int = 0) -> Tensor:
    """A layer on (layers, batch, tokens, width): of each its own, or of the only one."""
    layers, batch, tokens, width = hidden.shape
    w = {name: value.unsqueeze(1) for name, value in p.items() if value.ndim == 3}
    normed = hidden.layernorm()
    q, k, v = ((normed @ w[name]).reshape(layers * batch, tokens, heads, width // heads)
               .transpose(1, 2) for name in "qkv")
    mixed = ring_attention(q, k, v, ring) if ring else \
        q.scaled_dot_product_attention(k, v, is_causal=True)
    hidden = hidden + mixed.transpose(1, 2).reshape(hidden.shape) @ w["out"]
    return hidden + (hidden.layernorm() @ w["up"]).gelu() @ w["down"]


def loss_of(p: Parameters, hidden: Tensor, targets: Tensor) -> Tensor:
    """The losses of (batch, tokens, width), one for each token."""
    found = (hidden.layernorm() @ p["head"]).log_softmax(-1)
    return -(found * targets.one_hot(p["head"].shape[1])).sum(-1)


def one_after_the_other(p: Parameters, words: Tensor, targets: Tensor, heads: int,
                        ring: int = 0) -> Tensor:
    """All layers on the whole batch."""
    layers = p["q"].shape[0]
    hidden = p["words"][words].unsqueeze(0)
    for layer in range(layers):
        own = p if layers == 1 else \
            {name: value[layer:layer + 1] for name, value in p.items() if value.ndim == 3}
        hidden = block(own, hidden, heads, ring)
    return loss_of(p, hidden.squeeze(0), targets).mean()


def pipelined(p: Parameters, words: Tensor, targets: Tensor, heads: int) -> Tensor:
    """A layer on each device; microbatches go from device to device, one step a turn.

    What enters on the first device, and leaves on the last, is masked on all others. So what each
    has of the gradients of `words` and `head` is combined once, after all turns.
    """
    (stages, width, _), micro = p["q"].shape, microbatch(words.shape[0])
    place = Tensor(np.arange(stages).reshape(stages, 1, 1)).shard_like(p["q"])
    own = (place == 0).where(p["words"], 0.0)  # of each device
    entering = words.one_hot(own.shape[1]).float().flatten(0, 1) @ own
    entering = entering.reshape(stages, *words.shape, width)
    hidden, left, count = Tensor([0.0]), [], words.shape[0] // micro
    for turn in range(count + stages - 1):
        start = min(turn, count - 1) * micro
        new = entering[:, start:start + micro]
        hidden = new if turn == 0 else \
            (place.unsqueeze(3) == 0).where(new, hidden.roll(1, 0))
        hidden = block(p, hidden, heads)
        if turn >= stages - 1:
            left.append(hidden)
    losses = loss_of(p, Tensor.cat(*left, dim=1), targets.unsqueeze(0).expand(stages, -1, -1))
    return (place == stages - 1).where(losses, 0.0).sum() / (words.shape[0] * words.shape[1])


def microbatch(batch: int) -> int:
    """How many samples each of eight microbatches has; of fewer samples each is one."""
    return max(1, batch // 8)


# ---------------------------------------------------------------- the ways

Loss = Callable[[Parameters, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Way:
    """How a step is spread: the mesh, where parameters and inputs lie, and how the loss is made.

    `sends` are the bytes that each device has to send in a step of data of some size.
    """

    name: str
    axes: dict[str, int]
    parameter: Callable[[str], Cut]
    inputs: Cut
    sends: Callable[[Size], int]
    loss: Loss = one_after_the_other
    layers: int = 1

    def placed(self, p: Parameters, mesh: Mesh) -> None:
        """Lay the parameters on the mesh."""
        for name, value in p.items():
            value.shard_(mesh, **self.parameter(name))


def _copies(name: str) -> Cut:
    return {}


def _spread(name: str) -> Cut:
    return {"data": 0 if name in ("words", "head") else 1}


def _columns_and_rows(name: str) -> Cut:
    return {"model": 2} if name in COLUMNS else {"model": 1} if name in ROWS else {}


def _layers(name: str) -> Cut:
    return {} if name in ("words", "head") else {"data": 0}


def _combined(nbytes: int, count: int) -> int:
    """An all-reduce: each device sends what it has of all other parts, and then its own sum."""
    return nbytes * 2 * (count - 1) // count


def ways(count: int) -> dict[str, Way]:
    """The usual ways on an even number of devices; both axes of a mesh need four at least."""
    def in_a_ring(p: Parameters, words: Tensor, targets: Tensor, heads: int) -> Tensor:
        return one_after_the_other(p, words, targets, heads, count)

    def gradients(size: Size) -> int:
        return _combined(size.nbytes(), count)

    def activations(size: Size) -> int:
        """Four all-reduces among two, of what one layer hands to the next."""
        return 4 * _combined(size.activations, 2)

    def both(size: Size) -> int:
        """Activations of a part of the batch, and then the gradients of what each has."""
        cut, among = size.nbytes(*COLUMNS, *ROWS), count // 2
        return activations(size) // among + _combined(size.nbytes() - cut + cut // 2, among)

    def around(size: Size) -> int:
        """Keys and values of all others, and their gradients; then those of parameters."""
        return 4 * (count - 1) * size.activations // count + gradients(size)

    def handed_on(size: Size) -> int:
        """A microbatch and its gradient in each turn but one; the gradients of the two ends."""
        micro = microbatch(size.batch)
        turns = size.batch // micro + count - 1
        return 2 * (turns - 1) * size.activations * micro // size.batch + \
            _combined(size.nbytes("words", "head"), count)

    line, grid = {"data": count}, {"data": count // 2, "model": 2}
    found = [
        Way("data parallel", line, _copies, {"data": 0}, gradients),
        # Each parameter is gathered, and each gradient sent to where it is kept.
        Way("spread parameters", line, _spread, {"data": 0}, gradients),
        Way("tensor parallel", grid, _columns_and_rows, {}, activations),
        Way("data and tensor", grid, _columns_and_rows, {"data": 0}, both),
        Way("ring attention", line, _copies, {"data": 1}, around, in_a_ring),
        Way("pipeline", line, _layers, {}, handed_on, pipelined, count),
    ]
    return {way.name: way for way in found if count > 2 or way.name != "data and tensor"}
