"""Common networks, as people write them first: one text for `impl.torch` and for PyTorch.

Each function gets the module, `impl.torch` or `torch`, and answers a network: its layers, and a
function of no arguments that gives the loss. Sizes are small, and often odd: 7, 14, 28, 33.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Network(NamedTuple):
    """Layers, which know their parameters, and the loss of one forward pass."""

    model: Any
    loss: Callable[[], Any]


#: Every network by its name.
ARCHITECTURES: dict[str, Callable[[Any], Network]] = {}


def _network(make: Callable[[Any], Network]) -> Callable[[Any], Network]:
    ARCHITECTURES[make.__name__.strip("_")] = make
    return make


def _classes(torch: Any, model: Any, *shape: int, count: int = 10) -> Network:
    """A model that tells classes apart."""
    x, y = torch.randn(*shape), torch.randint(0, count, shape[:1])
    return Network(model, lambda: torch.nn.functional.cross_entropy(model(x), y))


def _values(torch: Any, model: Any, shape: tuple[int, ...], target: tuple[int, ...]) -> Network:
    """A model whose output is compared with values."""
    x, y = torch.randn(*shape), torch.randn(*target)
    return Network(model, lambda: ((model(x) - y) ** 2).mean())


# ---------------------------------------------------------------- layers

@_network
def mlp(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(),
        nn.Dropout(0.2), nn.Linear(512, 10)), 128, 784)


@_network
def residual_mlp(torch: Any) -> Network:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.wide = nn.LayerNorm(width), nn.Linear(width, 4 * width)
            self.narrow, self.dropout = nn.Linear(4 * width, width), nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            hidden = torch.nn.functional.gelu(self.wide(self.norm(x)))
            return x + self.dropout(self.narrow(hidden))

    return _classes(torch, nn.Sequential(*(Block(256) for _ in range(3)), nn.Linear(256, 10)),
                    256, 256)


@_network
def autoencoder(torch: Any) -> Network:
    nn = torch.nn
    return _values(torch, nn.Sequential(
        nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 33), nn.ReLU(), nn.Linear(33, 128),
        nn.ReLU(), nn.Linear(128, 784), nn.Sigmoid()), (128, 784), (128, 784))


@_network
def variational(torch: Any) -> Network:
    nn = torch.nn

    class Variational(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(784, 400)
            self.mean, self.spread = nn.Linear(400, 20), nn.Linear(400, 20)
            self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

        def forward(self, x: Any) -> Any:
            hidden = self.encoder(x).relu()
            mean, spread = self.mean(hidden), self.spread(hidden)
            code = mean + torch.randn(*mean.shape) * (spread * 0.5).exp()
            off = torch.nn.functional.binary_cross_entropy_with_logits(
                self.decoder(code), x.sigmoid())
            return off - 0.5 * (1 + spread - mean * mean - spread.exp()).mean()

    model, x = Variational(), torch.randn(128, 784)
    return Network(model, lambda: model(x))


@_network
def recommender(torch: Any) -> Network:
    nn = torch.nn

    class Recommender(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(5000, 32), nn.Embedding(2000, 32)
            self.mixed = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, user: Any, item: Any) -> Any:
            return self.mixed(torch.cat([self.users(user), self.items(item)], -1)).squeeze(-1)

    model = Recommender()
    user, item = torch.randint(0, 5000, (512,)), torch.randint(0, 2000, (512,))
    rating = torch.randn(512)
    return Network(model, lambda: ((model(user, item) - rating) ** 2).mean())


# ---------------------------------------------------------------- images

@_network
def small_cnn(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32),
        nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 10)), 64, 1, 28, 28)


@_network
def lenet(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84),
        nn.Tanh(), nn.Linear(84, 10)), 64, 1, 28, 28)


@_network
def vgg(torch: Any) -> Network:
    nn, layers, before = torch.nn, [], 3
    for width in (32, 64, 128):
        for _ in range(2):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width
        layers.append(nn.MaxPool2d(2))
    return _classes(torch, nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(128 * 9, 256), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(256, 10)), 16, 3, 28, 28)


def _residual(torch: Any, before: int, width: int, stride: int) -> Any:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Conv2d(before, width, 3, stride, 1, bias=False)
            self.two = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            self.short = nn.Sequential() if stride == 1 and before == width else nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x: Any) -> Any:
            hidden = self.norm_two(self.two(self.norm_one(self.one(x)).relu()))
            return (hidden + self.short(x)).relu()

    return Block()


@_network
def resnet(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), _residual(torch, 32, 32, 1), _residual(torch, 32, 64, 2),
        _residual(torch, 64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
        16, 3, 56, 56)


@_network
def resnet_odd(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Conv2d(3, 33, 3, 1, 1, bias=False), nn.BatchNorm2d(33), nn.ReLU(),
        _residual(torch, 33, 33, 1), _residual(torch, 33, 66, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(66, 10)), 7, 3, 33, 33)


@_network
def mobilenet(torch: Any) -> Network:
    nn, layers, before = torch.nn, [], 24
    for width, stride in ((48, 1), (96, 2), (96, 1)):
        layers += [nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False),
                   nn.BatchNorm2d(before), nn.ReLU6(), nn.Conv2d(before, width, 1, bias=False),
                   nn.BatchNorm2d(width), nn.ReLU6()]
        before = width
    return _classes(torch, nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(), *layers,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10)), 16, 3, 56, 56)


@_network
def squeeze_excite(torch: Any) -> Network:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.wide = nn.Conv2d(width, 4 * width, 1)
            self.each = nn.Conv2d(4 * width, 4 * width, 5, padding=2, groups=4 * width)
            self.less, self.more = nn.Linear(4 * width, width), nn.Linear(width, 4 * width)
            self.narrow = nn.Conv2d(4 * width, width, 1)

        def forward(self, x: Any) -> Any:
            hidden = torch.nn.functional.silu(self.each(torch.nn.functional.silu(self.wide(x))))
            gate = self.more(self.less(hidden.mean((2, 3))).relu()).sigmoid()
            return x + self.narrow(hidden * gate.unsqueeze(-1).unsqueeze(-1))

    return _classes(torch, nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1), Block(24), Block(24), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(24, 10)), 16, 3, 28, 28)


@_network
def grouped(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1, groups=8),
        nn.ReLU(), nn.Conv2d(64, 64, 3, 2, padding=1, groups=8), nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=2, dilation=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10)), 16, 3, 28, 28)


@_network
def densenet(torch: Any) -> Network:
    nn = torch.nn

    class Dense(nn.Module):  # type: ignore[name-defined]
        def __init__(self, before: int) -> None:
            super().__init__()
            self.norm, self.layer = nn.BatchNorm2d(before), nn.Conv2d(before, 16, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return torch.cat([x, self.layer(self.norm(x).relu())], 1)

    return _classes(torch, nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), Dense(32), Dense(48), nn.Conv2d(64, 32, 1),
        nn.AvgPool2d(2), Dense(32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)),
        16, 3, 28, 28)


@_network
def convnext(torch: Any) -> Network:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.each = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm, self.wide = nn.LayerNorm(width), nn.Linear(width, 4 * width)
            self.narrow = nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            hidden = self.norm(self.each(x).permute(0, 2, 3, 1))
            hidden = self.narrow(torch.nn.functional.gelu(self.wide(hidden)))
            return x + hidden.permute(0, 3, 1, 2)

    return _classes(torch, nn.Sequential(
        nn.Conv2d(3, 48, 4, 4), Block(48), Block(48), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(48, 10)), 16, 3, 56, 56)


@_network
def unet(torch: Any) -> Network:
    nn = torch.nn

    def double(before: int, width: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU())

    class Unet(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down, self.middle, self.low = double(3, 32), double(32, 64), double(64, 128)
            self.up_low = nn.ConvTranspose2d(128, 64, 2, 2)
            self.up = nn.ConvTranspose2d(64, 32, 2, 2)
            self.join_low, self.join = double(128, 64), double(64, 32)
            self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(32, 3, 1)

        def forward(self, x: Any) -> Any:
            high = self.down(x)
            middle = self.middle(self.pool(high))
            low = self.up_low(self.low(self.pool(middle)))
            back = self.up(self.join_low(torch.cat([low, middle], 1)))
            return self.last(self.join(torch.cat([back, high], 1)))

    return _values(torch, Unet(), (4, 3, 32, 32), (4, 3, 32, 32))


@_network
def diffusion(torch: Any) -> Network:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self, before: int, width: int) -> None:
            super().__init__()
            self.norm, self.one = nn.GroupNorm(8, before), nn.Conv2d(before, width, 3, padding=1)
            self.when, self.two = nn.Linear(64, width), nn.Conv2d(width, width, 3, padding=1)
            self.short, self.after = nn.Conv2d(before, width, 1), nn.GroupNorm(8, width)

        def forward(self, x: Any, when: Any) -> Any:
            hidden = self.one(torch.nn.functional.silu(self.norm(x)))
            hidden = hidden + self.when(when).unsqueeze(-1).unsqueeze(-1)
            return self.short(x) + self.two(torch.nn.functional.silu(self.after(hidden)))

    class Diffusion(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
            self.down, self.narrow = Block(32, 32), nn.Conv2d(32, 64, 3, 2, 1)
            self.middle, self.up = Block(64, 64), nn.ConvTranspose2d(64, 32, 4, 2, 1)
            self.back, self.when = Block(64, 32), nn.Linear(64, 64)

        def forward(self, x: Any, when: Any) -> Any:
            when = torch.nn.functional.silu(self.when(when))
            high = self.down(self.first(x), when)
            low = self.up(self.middle(self.narrow(high), when))
            return self.last(self.back(torch.cat([high, low], 1), when))

    model, x, when = Diffusion(), torch.randn(4, 3, 28, 28), torch.randn(4, 64)
    noise = torch.randn(4, 3, 28, 28)
    return Network(model, lambda: ((model(x + 0.5 * noise, when) - noise) ** 2).mean())


@_network
def gan(torch: Any) -> Network:
    nn = torch.nn
    maker = nn.Sequential(
        nn.ConvTranspose2d(64, 64, 7, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh())
    judge = nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1, bias=False),
        nn.BatchNorm2d(64), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 49, 1))
    both = nn.ModuleList([maker, judge])
    code = torch.randn(32, 64, 1, 1)
    return Network(both, lambda: torch.nn.functional.softplus(-judge(maker(code))).mean())


@_network
def conv_autoencoder(torch: Any) -> Network:
    nn = torch.nn
    return _values(torch, nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 3, 2, 1, 1)), (32, 1, 28, 28), (32, 1, 28, 28))


@_network
def super_resolution(torch: Any) -> Network:
    nn = torch.nn
    return _values(torch, nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2)), (4, 3, 33, 33), (4, 3, 66, 66))


@_network
def volumes(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(32, 10)), 4, 1, 14, 14, 14)


# ---------------------------------------------------------------- sounds and sequences

@_network
def audio(torch: Any) -> Network:
    nn = torch.nn
    return _classes(torch, nn.Sequential(
        nn.Conv1d(1, 32, 80, 16), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(4),
        nn.Conv1d(32, 64, 3, padding=1), nn.BatchNorm1d(64), nn.ReLU(), nn.MaxPool1d(4),
        nn.Conv1d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(64, 10)), 8, 1, 8000)


@_network
def wavenet(torch: Any) -> Network:
    nn = torch.nn

    class Gated(nn.Module):  # type: ignore[name-defined]
        def __init__(self, gap: int) -> None:
            super().__init__()
            self.filter = nn.Conv1d(32, 32, 2, dilation=gap, padding=gap)
            self.gate, self.mix = nn.Conv1d(32, 32, 2, dilation=gap, padding=gap), \
                nn.Conv1d(32, 32, 1)

        def forward(self, x: Any) -> Any:
            seen = self.filter(x).tanh() * self.gate(x).sigmoid()
            return x + self.mix(seen)[:, :, :x.shape[2]]

    return _values(torch, nn.Sequential(
        nn.Conv1d(1, 32, 1), Gated(1), Gated(2), Gated(4), nn.Conv1d(32, 1, 1)),
        (4, 1, 1000), (4, 1, 1000))


def _recurrent(torch: Any, kind: Any, **named: Any) -> Network:
    nn = torch.nn

    class Tagger(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.cells = nn.Embedding(500, 64), kind(64, 64, batch_first=True, **named)
            self.tags = nn.Linear(128 if named.get("bidirectional") else 64, 17)

        def forward(self, words: Any) -> Any:
            return self.tags(self.cells(self.words(words))[0])

    model, words = Tagger(), torch.randint(0, 500, (16, 14))
    tags = torch.randint(0, 17, (16 * 14,))
    return Network(model, lambda: torch.nn.functional.cross_entropy(
        model(words).reshape(16 * 14, 17), tags))


@_network
def lstm(torch: Any) -> Network:
    return _recurrent(torch, torch.nn.LSTM)


@_network
def gru(torch: Any) -> Network:
    return _recurrent(torch, torch.nn.GRU)


# ---------------------------------------------------------------- attention

def _block(torch: Any, width: int, heads: int, causal: bool, dropout: float,
           context: bool = False, before: bool = True) -> Any:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.dropout = nn.Dropout(dropout)
            if context:
                self.other, self.query = nn.LayerNorm(width), nn.Linear(width, width)
                self.memory, self.back = nn.Linear(width, 2 * width), nn.Linear(width, width)

        def attend(self, q: Any, k: Any, v: Any, hide: bool) -> Any:
            batch, places = q.shape[:2]
            split = [t.reshape(batch, t.shape[1], heads, width // heads).transpose(1, 2)
                     for t in (q, k, v)]
            seen = torch.nn.functional.scaled_dot_product_attention(*split, is_causal=hide)
            return seen.transpose(1, 2).reshape(batch, places, width)

        def forward(self, x: Any, seen: Any = None) -> Any:
            near = self.one(x) if before else x
            q, k, v = self.mixed(near).split(width, -1)
            x = x + self.dropout(self.out(self.attend(q, k, v, causal)))
            x = x if before else self.one(x)
            if context:
                keys, values = self.memory(seen).split(width, -1)
                x = x + self.back(self.attend(self.query(self.other(x)), keys, values, False))
            near = self.two(x) if before else x
            x = x + self.dropout(self.narrow(torch.nn.functional.gelu(self.wide(near))))
            return x if before else self.two(x)

    return Block()


def _language(torch: Any, blocks: list[Any], vocabulary: int, width: int, batch: int,
              places: int) -> Network:
    nn = torch.nn

    class Language(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(places, width)
            self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)
            self.head, self.dropout = nn.Linear(width, vocabulary, bias=False), nn.Dropout(0.1)

        def forward(self, words: Any) -> Any:
            x = self.words(words) + self.places(torch.arange(places))
            return self.head(self.norm(self.blocks(self.dropout(x))))

    model, words = Language(), torch.randint(0, vocabulary, (batch, places))
    after = torch.randint(0, vocabulary, (batch * places,))
    return Network(model, lambda: torch.nn.functional.cross_entropy(
        model(words).reshape(batch * places, vocabulary), after))


@_network
def gpt(torch: Any) -> Network:
    return _language(torch, [_block(torch, 128, 4, True, 0.0) for _ in range(2)], 256, 128, 8, 64)


@_network
def gpt_dropout(torch: Any) -> Network:
    return _language(torch, [_block(torch, 128, 4, True, 0.1) for _ in range(2)], 256, 128, 8, 64)


@_network
def bert(torch: Any) -> Network:
    return _language(torch, [_block(torch, 128, 4, False, 0.1, before=False) for _ in range(2)],
                     500, 128, 4, 33)


@_network
def vit(torch: Any) -> Network:
    nn = torch.nn

    class Patches(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.places = nn.Conv2d(3, 96, 4, 4), nn.Embedding(50, 96)
            self.first, self.blocks = nn.Embedding(1, 96), nn.Sequential(
                *(_block(torch, 96, 3, False, 0.1) for _ in range(2)))
            self.norm, self.head = nn.LayerNorm(96), nn.Linear(96, 10)

        def forward(self, x: Any) -> Any:
            seen = self.patch(x).flatten(2).transpose(1, 2)
            first = self.first(torch.arange(1)).expand(x.shape[0], 1, 96)
            seen = torch.cat([first, seen], 1) + self.places(torch.arange(50))
            return self.head(self.norm(self.blocks(seen))[:, 0])

    return _classes(torch, Patches(), 8, 3, 28, 28)


@_network
def encoder_decoder(torch: Any) -> Network:
    nn = torch.nn

    class Both(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(300, 96), nn.Linear(96, 300)
            self.encoder = _block(torch, 96, 3, False, 0.1)
            self.decoder = _block(torch, 96, 3, True, 0.1, context=True)

        def forward(self, said: Any, wanted: Any) -> Any:
            return self.head(self.decoder(self.words(wanted), self.encoder(self.words(said))))

    model = Both()
    said, wanted = torch.randint(0, 300, (8, 33)), torch.randint(0, 300, (8, 28))
    after = torch.randint(0, 300, (8 * 28,))
    return Network(model, lambda: torch.nn.functional.cross_entropy(
        model(said, wanted).reshape(8 * 28, 300), after))


@_network
def llama(torch: Any) -> Network:
    nn, width, heads, pairs, places, batch = torch.nn, 128, 4, 2, 64, 4
    size = width // heads

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        one, two = x.chunk(2, -1)
        return x * cos + torch.cat([-two, one], -1) * sin

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
            self.k, self.v = (nn.Linear(width, pairs * size, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(width, 344, bias=False) for _ in range(2))
            self.down = nn.Linear(344, width, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            near = self.one(x)
            q, k, v = (layer(near).reshape(batch, places, -1, size).transpose(1, 2)
                       for layer in (self.q, self.k, self.v))
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            k, v = (t.repeat_interleave(heads // pairs, 1) for t in (k, v))
            seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(seen.transpose(1, 2).reshape(batch, places, width))
            near = self.two(x)
            return x + self.down(torch.nn.functional.silu(self.gate(near)) * self.up(near))

    class Llama(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.blocks = nn.Embedding(500, width), nn.ModuleList(
                [Block(), Block()])
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 500, bias=False)

        def forward(self, words: Any) -> Any:
            angle = torch.arange(places).reshape(-1, 1) * (
                10000.0 ** (torch.arange(size // 2) * (-2.0 / size))).reshape(1, -1)
            angle = torch.cat([angle, angle], -1)
            cos, sin, x = angle.cos(), angle.sin(), self.words(words)
            for block in self.blocks:
                x = block(x, cos, sin)
            return self.head(self.norm(x))

    model, words = Llama(), torch.randint(0, 500, (batch, places))
    after = torch.randint(0, 500, (batch * places,))
    return Network(model, lambda: torch.nn.functional.cross_entropy(
        model(words).reshape(batch * places, 500), after))


@_network
def experts(torch: Any) -> Network:
    nn = torch.nn

    class Experts(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(64, 4)
            self.each = nn.ModuleList([nn.Sequential(nn.Linear(64, 128), nn.GELU(),
                                                     nn.Linear(128, 64)) for _ in range(4)])
            self.head = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            best, which = self.gate(x).topk(2, -1)
            weights = best.softmax(-1)
            total = x
            for number, expert in enumerate(self.each):
                share = (weights * (which == number)).sum(-1, keepdim=True)
                total = total + share * expert(x)
            return self.head(total)

    return _classes(torch, Experts(), 256, 64)


@_network
def graph_network(torch: Any) -> Network:
    nn = torch.nn

    class Messages(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 7)

        def forward(self, x: Any, source: Any, target: Any) -> Any:
            for layer in (self.one, self.two):
                sent = layer(x)
                index = target.unsqueeze(-1).expand(target.shape[0], sent.shape[1])
                x = torch.zeros(500, sent.shape[1]).scatter_add(0, index, sent[source]).relu()
            return x

    model, x = Messages(), torch.randn(500, 64)
    source, target = torch.randint(0, 500, (3000,)), torch.randint(0, 500, (3000,))
    y = torch.randint(0, 7, (500,))
    return Network(model, lambda: torch.nn.functional.cross_entropy(model(x, source, target), y))


@_network
def graph_dense(torch: Any) -> Network:
    nn = torch.nn

    class Dense(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.dropout = nn.Linear(100, 33), nn.Linear(33, 7), nn.Dropout(0.5)

        def forward(self, x: Any, near: Any) -> Any:
            return near @ self.two(self.dropout((near @ self.one(x)).relu()))

    model, x, near = Dense(), torch.randn(400, 100), torch.randn(400, 400).softmax(-1)
    y = torch.randint(0, 7, (400,))
    return Network(model, lambda: torch.nn.functional.cross_entropy(model(x, near), y))


@_network
def siamese(torch: Any) -> Network:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.InstanceNorm2d(32), nn.ELU(), nn.AvgPool2d(2),
        nn.Conv2d(32, 32, 3, 2), nn.ELU(), nn.Flatten(), nn.Linear(1152, 33))
    one, two = torch.randn(28, 1, 28, 28), torch.randn(28, 1, 28, 28)
    return Network(model, lambda: ((model(one) - model(two)) ** 2).sum(-1).sqrt().mean())
