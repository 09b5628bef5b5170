"""Small tensor programs of every kind of kernel, drawn by chance, for those who try kernels.

Each takes a random generator and returns tensors to schedule together. Numbers lie on a coarse
grid, so that sums are exact whatever their order; where a function rounds, nothing that jumps reads
it.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from impl import Tensor, Variable
from impl.dtypes import DType, dtypes

FLOATS = (dtypes.float32, dtypes.float32, dtypes.float32, dtypes.float64, dtypes.float16,
          dtypes.bfloat16)
TYPES = (*FLOATS, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.bool,
         dtypes.uint16)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 48, 64)


def numbers(draw: random.Random, *shape: int, dtype: DType = dtypes.float32) -> Tensor:
    """A tensor in memory; sometimes it is a view: transposed, flipped, or a part."""
    generator = np.random.default_rng(draw.getrandbits(32))
    least = -2 if dtype.kind != "u" else 0
    pick = draw.random()
    asked = list(shape)
    if pick < 0.15 and len(shape) > 1:
        asked[-1], asked[-2] = asked[-2], asked[-1]
    elif pick < 0.3 and shape:
        asked[-1] += 3
    values: np.ndarray = generator.integers(least, 3, asked)
    if dtype.kind == "f" and draw.random() < 0.5:
        values = values / 2
    if dtype is dtypes.bfloat16:
        made = Tensor(values.astype(np.float32)).cast(dtype).realize()
    else:
        made = Tensor(values.astype(dtype.numpy)).realize()
    if pick < 0.15 and len(shape) > 1:
        return made.transpose(-1, -2)
    if pick < 0.3 and shape:
        return made[..., 1:1 + shape[-1]]
    return made.flip(0) if pick < 0.35 and shape else made


def size(draw: random.Random, most: int = 64) -> int:
    """An extent: small, odd, a power of two, a prime."""
    return draw.choice([each for each in SIZES if each <= most])


def elementwise(draw: random.Random) -> list[Tensor]:
    """A chain of exact operations over inputs of shapes that spread to one shape."""
    dtype = draw.choice(TYPES)
    shape = [size(draw, 33) for _ in range(draw.randint(1, 3))]
    value = numbers(draw, *shape, dtype=dtype)
    for _ in range(draw.randint(1, 5)):
        other = numbers(draw, *(s if draw.random() < 0.7 else 1 for s in shape), dtype=dtype)
        pick = draw.randrange(7)
        if pick < 3:
            value = (value + other, value * other, value.maximum(other))[pick]
        elif pick == 3:
            value = (value < other).where(value, other)
        elif pick == 4:
            value = value.cast(draw.choice(TYPES)).cast(dtype)
        elif pick == 5:
            value = value.pad([(draw.randint(0, 2), draw.randint(0, 2)) for _ in shape])
            value = value[tuple(slice(0, s) for s in shape)]
        else:
            value = value.flip(draw.randrange(len(shape)))
    return [value, value + numbers(draw, *shape, dtype=dtype)][:draw.randint(1, 2)]


def functions(draw: random.Random) -> list[Tensor]:
    """Functions that round."""
    shape = [size(draw) for _ in range(draw.randint(1, 2))]
    value = numbers(draw, *shape, dtype=draw.choice(FLOATS))
    for _ in range(draw.randint(1, 3)):
        name = draw.choice(("exp", "sigmoid", "tanh", "sin", "cos", "erf", "relu", "gelu", "silu",
                            "softplus", "exp2", "square"))
        value = getattr(value.clamp(-3, 3), name)()
    return [value + (value.abs() + 1).log() * (value.abs() + 1).sqrt()]


def reductions(draw: random.Random) -> list[Tensor]:
    """One or several reductions of every kind, over any axes, of one value."""
    dtype = draw.choice(TYPES)
    shape = [size(draw, 33) for _ in range(draw.randint(1, 3))]
    value = numbers(draw, *shape, dtype=dtype)
    if draw.random() < 0.5:
        value = value + numbers(draw, *shape, dtype=dtype)
    axes = draw.sample(range(len(shape)), draw.randint(1, len(shape)))
    names = draw.sample(("sum", "max", "min", "mean", "any", "argmax", "argmin", "prod"),
                        draw.randint(1, 3))
    found = []
    for name in names:
        if name == "prod":
            found.append(value.shrink([(0, min(3, s)) for s in shape]).prod(axes[0]))
        elif name.startswith("arg"):
            found.append(getattr(value, name)(axes[0]))
        elif name != "mean" or dtype.kind == "f":
            found.append(getattr(value, name)(tuple(axes)))
    return found or [value.sum()]


def rows(draw: random.Random) -> list[Tensor]:
    """Kernels with several stages a row."""
    shape = [*(size(draw, 9) for _ in range(draw.randint(0, 2))), size(draw)]
    value = numbers(draw, *shape, dtype=draw.choice(FLOATS))
    name = draw.choice(("softmax", "log_softmax", "layernorm", "rms_norm", "logsumexp", "centred",
                        "var", "ratio"))
    if name == "centred":
        return [value - value.max(-1, keepdim=True), value - value.sum(-1, keepdim=True)]
    if name == "ratio":
        return [value / (value.abs().sum(-1, keepdim=True) + 1)]
    return [getattr(value, name)(-1)]


def products(draw: random.Random) -> list[Tensor]:
    """A product of any layout, with what may stand before and after it."""
    dtype = draw.choice((*FLOATS, dtypes.int32, dtypes.int8, dtypes.int8))
    batch = [size(draw, 4)] if draw.random() < 0.3 else []
    m, n, k = size(draw), size(draw), size(draw)
    one = numbers(draw, *batch, m, k, dtype=dtype)
    two = numbers(draw, *batch, k, n, dtype=dtype)
    if draw.random() < 0.3:
        two = numbers(draw, *batch, n, k, dtype=dtype).transpose(-1, -2)
    if draw.random() < 0.2:
        one = numbers(draw, *batch, k, m, dtype=dtype).transpose(-1, -2)
    if draw.random() < 0.2:
        one = one.maximum(0)
    value = one.matmul(two, dtype=dtypes.int32) if dtype is dtypes.int8 else one @ two
    if draw.random() < 0.4:
        value = (value + numbers(draw, n, dtype=dtype)).maximum(0)
    if draw.random() < 0.15:
        value = value.sum(-1)
    return [value]


def convolutions(draw: random.Random) -> list[Tensor]:
    """A convolution or a pooling with any stride, padding, dilation and groups."""
    groups = draw.choice((1, 1, 2, 4))
    channels, out = groups * draw.choice((1, 2, 3)), groups * draw.choice((1, 2, 4))
    x = numbers(draw, draw.randint(1, 2), channels, draw.randint(5, 12), draw.randint(5, 12),
                dtype=draw.choice(FLOATS))
    if draw.random() < 0.2:
        return [x.max_pool2d(draw.randint(2, 3)), x.relu().avg_pool2d(2)]
    kernel = draw.choice((1, 2, 3))
    weight = numbers(draw, out, channels // groups, kernel, kernel, dtype=x.dtype)
    bias = numbers(draw, out, dtype=x.dtype) if draw.random() < 0.5 else None
    return [x.conv2d(weight, bias, groups=groups, stride=draw.randint(1, 2),
                     dilation=draw.randint(1, 2), padding=draw.randint(0, 2))]


def attention(draw: random.Random) -> list[Tensor]:
    """Queries, keys and values, with or without a mask."""
    batch, heads, queries, keys, depth = (draw.randint(1, 2), draw.randint(1, 2), size(draw, 17),
                                          size(draw, 17), draw.choice((1, 4, 5, 8)))
    dtype = draw.choice((dtypes.float32, dtypes.float32, dtypes.float16))
    causal = draw.random() < 0.4
    query = numbers(draw, batch, heads, keys if causal else queries, depth, dtype=dtype)
    key, value = (numbers(draw, batch, heads, keys, depth, dtype=dtype) for _ in range(2))
    return [query.scaled_dot_product_attention(key, value, is_causal=causal)]


def positions(draw: random.Random) -> list[Tensor]:
    """Elements that an index chooses, running sums, orders."""
    dtype = draw.choice((dtypes.float32, dtypes.int32, dtypes.float16))
    count, width = size(draw, 33), size(draw, 17)
    table = numbers(draw, count, width, dtype=dtype)
    chosen = np.random.default_rng(draw.getrandbits(32)).integers(0, count, size(draw, 17))
    index = Tensor(chosen.astype(np.int32)).realize()
    pick = draw.randrange(5)
    if pick == 0:
        return [table[index]]
    if pick == 1:
        return [table.cumsum(draw.randrange(2))]
    if pick == 2:
        return [index.one_hot(count)]
    if pick == 3:
        return [table[:8].sort(0)[0]]
    return [table.gather(0, index.reshape(-1, 1).expand(len(chosen), width))]


def in_order(draw: random.Random) -> list[Tensor]:
    """Running results, along the last axis and across it, and rows that are written by index."""
    dtype = draw.choice((dtypes.float32, dtypes.int32, dtypes.float16))
    count, width = size(draw, 33), size(draw, 17)
    table = numbers(draw, count, width, dtype=dtype)
    make = draw.choice((Tensor.cumsum, Tensor.cummax, Tensor.cummin))
    chosen = np.random.default_rng(draw.getrandbits(32)).integers(0, count, (count, width))
    return [make(table + 1, draw.randrange(2)), (table - 1).flatten().cumsum(),
            table.scatter_add(0, Tensor(chosen).realize(), table * 2)]


def in_place(draw: random.Random) -> list[Tensor]:
    """A tensor that is overwritten, whole or in part, by what is computed from it."""
    dtype = draw.choice((dtypes.float32, dtypes.int32, dtypes.float16))
    count, width = size(draw), size(draw, 17)
    state = Tensor(np.random.default_rng(draw.getrandbits(32)).integers(
        -2, 3, (count, width)).astype(dtype.numpy)).realize()
    pick = draw.randrange(4)
    if pick == 0:
        state.assign(state * 2 + numbers(draw, count, width, dtype=dtype))
    elif pick == 1:
        state.assign(state + state.sum(0))
    elif pick == 2 and count > 1:
        state[1:] = state[:-1] + 1
    else:
        state[:, :1] = numbers(draw, count, 1, dtype=dtype)
    return [state, state + 1][:draw.randint(1, 2)]


def symbolic(draw: random.Random) -> list[Tensor]:
    """Loops whose extent is known at run time only."""
    most = size(draw, 33)
    count = Variable("n", 1, most).bind(draw.randint(1, most))
    value = numbers(draw, most, size(draw, 17), dtype=draw.choice(FLOATS))[:count]
    pick = draw.randrange(4)
    if pick == 0:
        return [value.sum(0)]
    if pick == 1:
        return [(value * 2 + 1).sum()]
    if pick == 2:
        return [value.max(1).sum()]
    return [(value.transpose(0, 1) @ value)]


def training(draw: random.Random) -> list[Tensor]:
    """A loss, the gradients, and a step against them, in place."""
    inside, out = size(draw, 17), size(draw, 9)
    x = numbers(draw, size(draw, 17), inside)
    weight = numbers(draw, inside, out).contiguous().realize()
    weight.requires_grad_()
    hidden = (x @ weight).relu()
    loss = hidden.square().mean() if draw.random() < 0.5 else hidden.log_softmax().mean()
    loss.backward()
    assert weight.grad is not None
    weight.assign(weight.detach() - 0.5 * weight.grad)
    return [loss, weight]


PROGRAMS: Sequence[tuple[str, Callable[[random.Random], list[Tensor]]]] = tuple(
    (program.__name__, program) for program in (
        elementwise, functions, reductions, rows, products, products, convolutions, attention,
        positions, in_order, in_place, symbolic, training))
