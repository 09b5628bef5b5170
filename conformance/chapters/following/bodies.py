"""Bodies as users of PyTorch and tinygrad write them, and what is changed between their calls.

    python -m conformance.runner.captured --known

Each function here makes a `Body` anew: a step, the arguments of each call, changes of what the step
reads, and what can be seen afterwards. A body is run as it is and captured; both have to show the
same. `why` says, of those that are traced, which words the reason has.
"""
from __future__ import annotations

import contextlib
import enum
import functools
import math
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import impl.nn.functional as F  # noqa: N812  (as everybody writes it)
from conformance.runner.captured import shown
from impl import Tensor, dtypes, nn
from impl.nn.optim import clip_grad_norm_


@dataclass
class Body:
    """A step, the arguments of a call by its number, changes, and what can be seen besides."""

    step: Callable[..., Any]
    given: Callable[[int], tuple[Any, ...]]
    changes: list[Callable[[], Any]] = field(default_factory=list)
    seen: Callable[[], Any] = lambda: None
    why: str = ""
    training: bool = True


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers in memory, the same ones each time."""
    values = np.random.default_rng(seed + 31 * len(shape)).standard_normal(shape)
    return Tensor(values.astype(np.float32)).realize()


def classes(count: int, most: int, seed: int = 0) -> Tensor:
    """Random classes in memory."""
    return Tensor(np.random.default_rng(seed).integers(0, most, count).astype(np.int32)).realize()


def weights_of(model: Any) -> Callable[[], Any]:
    """A look at all tensors of a model."""
    return lambda: [each.numpy().tolist() for each in nn.state.get_parameters(model)]


def filled(model: Any, seed: int = 1) -> Any:
    """A model with weights that are the same each time."""
    for number, each in enumerate(nn.state.get_parameters(model)):
        if each.is_floating_point() and each.shape:
            each.assign(drawn(*each.shape, seed=seed + number) * 0.1 + 0.1).realize()
    return model


def pairs(*shape: int, most: int = 3) -> Callable[[int], tuple[Any, ...]]:
    """An input and the classes of its rows, by the number of the call."""
    return lambda call: (drawn(*shape, seed=call), classes(shape[0], most, seed=call))


BODIES: list[Callable[[], Body]] = []


def body(make: Callable[[], Body]) -> Callable[[], Body]:
    """Note a body."""
    BODIES.append(make)
    return make


def played(make: Callable[[], Body], captured: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """Call a new step four times, and twice after each change; what was seen, and the step."""
    Tensor.manual_seed(7)
    program, found = make(), list[Any]()
    step, calls = captured(program.step), 0
    with Tensor.train(program.training):
        for change in (None, *program.changes):
            if change is not None:
                change()
            for _ in range(4 if change is None else 2):
                found.append(shown(step(*program.given(calls))))
                found.append(shown(program.seen()))
                calls += 1
    return found, step


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 5), nn.Linear(5, 3)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.drop(F.relu(self.fc1(x))))


@body
def classifier() -> Body:
    model = filled(MLP())
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x: Tensor, y: Tensor) -> Tensor:
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def freeze() -> None:
        model.fc1.weight.requires_grad = False
    return Body(train_step, pairs(2, 4), [
        lambda: setattr(optimizer, "lr", 0.01), lambda: setattr(optimizer, "weight_decay", 0.1),
        freeze, lambda: setattr(model, "fc2", filled(nn.Linear(5, 3), 7))], weights_of(model))


@body
def evaluation() -> Body:
    model = filled(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5),
                                 nn.Linear(5, 3)))
    model.eval()

    def evaluate(x: Tensor, y: Tensor) -> Tensor:
        return (model(x).argmax(1) == y).float().mean()

    def deeper() -> None:
        model.append(filled(nn.Linear(3, 3), 5))
    return Body(evaluate, pairs(4, 4), [deeper, lambda: model[0].weight.assign(
        model[0].weight * 2).realize(), lambda: setattr(model, "0", filled(nn.Linear(4, 5), 3)),
        lambda: setattr(model[1], "eps", 0.1)], training=False)


@body
def layers_in_a_list() -> Body:
    class Net:
        def __init__(self) -> None:
            self.scale = 2.0
            self.layers: list[Any] = [nn.Linear(4, 4), Tensor.relu, nn.Linear(4, 4),
                                      lambda x: x * self.scale]

        def __call__(self, x: Tensor) -> Tensor:
            return x.sequential(self.layers)
    net = Net()
    filled(net.layers)

    def changed(x: Tensor) -> Tensor:
        return x.tanh()
    return Body(lambda x: net(x).sum(), lambda call: (drawn(2, 4, seed=call),), [
        lambda: setattr(net, "scale", 3.0), lambda: net.layers.__setitem__(1, Tensor.sigmoid),
        lambda: net.layers.append(changed), lambda: net.layers.pop(0)])


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.width = heads, width
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = 0.0

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, dim=-1))
        found = q.scaled_dot_product_attention(k, v, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x)).dropout(self.dropout)
        return x + self.down(self.up(self.norm2(x)).gelu()).dropout(self.dropout)


@dataclass
class GPTConfig:
    vocabulary: int = 7
    width: int = 4
    layers: int = 2
    heads: int = 2
    length: int = 3


class GPT(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.length, config.width)
        self.blocks = nn.ModuleList([Block(config.width, config.heads)
                                     for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Any:
        _, length = tokens.shape
        assert length <= self.config.length, f"at most {self.config.length}"
        x = self.wte(tokens) + self.wpe(Tensor.arange(length))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


@body
def gpt_training() -> Body:
    model = filled(GPT(GPTConfig()))
    optimizer = nn.optim.AdamW(model.parameters(), lr=0.01)

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        _, loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def given(call: int) -> tuple[Any, ...]:
        return classes(6, 7, call).reshape(2, 3).realize(), classes(6, 7, call + 9).reshape(2, 3)
    return Body(step, given, [lambda: setattr(optimizer, "lr", 0.1)], weights_of(model))


@body
def gpt_forward() -> Body:
    model = filled(GPT(GPTConfig()))
    model.eval()
    model.blocks[0].norm1.eps = 1e-5
    return Body(lambda tokens: model(tokens)[:, -1].argmax(-1),
                lambda call: (classes(3, 7, call).reshape(1, 3),), [
        lambda: setattr(model.blocks[0], "heads", 1), lambda: setattr(model.blocks[1], "heads", 4),
        lambda: setattr(model.norm, "eps", 0.5),
        lambda: model.blocks.insert(0, filled(Block(4, 2), 30))], training=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, width: int, stride: int = 1) -> None:
        self.conv1 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None if stride == 1 else nn.Sequential(
            nn.Conv2d(width, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        return F.relu(out + identity)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, padding=1)
        self.layer1 = nn.Sequential(*[BasicBlock(2) for _ in range(1)])
        self.layer2 = nn.Sequential(*[BasicBlock(2, stride=2) for _ in range(1)])
        self.fc = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in (self.layer1, self.layer2):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


@body
def resnet_training() -> Body:
    model = filled(ResNet())
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.01, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with Tensor.train():
            optimizer.zero_grad()
            out = model(x)
            loss = out.sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
            return loss, (out.argmax(1) == y).mean()
    return Body(step, pairs(2, 1, 4, 4), [
        lambda: setattr(model.layer1[0].bn1, "momentum", 0.9)],
        weights_of(model), training=False)


@body
def resnet_inference() -> Body:
    model = filled(ResNet()).eval()
    return Body(model, lambda call: (drawn(2, 1, 4, 4, seed=call),), [
        lambda: model.layer2[0].bn1.running_mean.assign(drawn(2, seed=3)).realize(),
        lambda: setattr(model.layer1[0].bn2, "eps", 0.1),
        lambda: model.train(), lambda: model.eval()], training=False)


@body
def gan() -> Body:
    generator = filled(nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(0.2), nn.Linear(4, 3)))
    critic = filled(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1)), 20)
    optims = {"g": nn.optim.Adam(generator.parameters(), lr=0.01),
              "d": nn.optim.Adam(critic.parameters(), lr=0.01)}
    criterion = nn.BCEWithLogitsLoss()

    def step(real: Tensor, noise: Tensor) -> dict[str, Tensor]:
        ones, zeros = Tensor.ones(real.shape[0], 1), Tensor.zeros(real.shape[0], 1)
        optims["d"].zero_grad()
        fake = generator(noise)
        d_loss = criterion(critic(real), ones) + criterion(critic(fake.detach()), zeros)
        d_loss.backward()
        optims["d"].step()
        optims["g"].zero_grad()
        g_loss = criterion(critic(fake), ones)
        g_loss.backward()
        optims["g"].step()
        return {"d": d_loss, "g": g_loss}
    return Body(step, lambda call: (drawn(2, 3, seed=call), drawn(2, 2, seed=call + 5)), [
        lambda: setattr(optims["g"], "lr", 0.1),
        lambda: setattr(generator[1], "negative_slope", 0.5)],
        lambda: (weights_of(generator)(), weights_of(critic)()))


@body
def scheduled() -> Body:
    model = filled(nn.Linear(4, 3))
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)
    scheduler = nn.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss
    return Body(step, pairs(2, 4), [], weights_of(model), why="optimizer.param_groups")


@body
def scheduled_outside() -> Body:
    model = filled(nn.Linear(4, 3))
    optimizer = nn.optim.Adam(model.parameters(), lr=0.1)
    scheduler = nn.lr_scheduler.OneCycleLR(optimizer, 0.1, 20)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return Body(step, pairs(2, 4), [scheduler.step, scheduler.step], weights_of(model))


@body
def average_of_weights() -> Body:
    model, average = filled(nn.Linear(4, 3)), filled(nn.Linear(4, 3))
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)
    settings = types.SimpleNamespace(decay=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
            ours.assign(settings.decay * ours.detach() + (1 - settings.decay) * theirs.detach())
        return loss
    return Body(step, pairs(2, 4), [lambda: setattr(settings, "decay", 0.5)],
                lambda: (weights_of(model)(), weights_of(average)()))


@body
def accumulation() -> Body:
    model = filled(MLP())
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)
    config = {"accumulate": 2}

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        total = Tensor(0.0)
        for part_x, part_y in zip(x.split(2), y.split(2), strict=True):
            loss = F.cross_entropy(model(part_x), part_y) / config["accumulate"]
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total
    return Body(step, pairs(4, 4), [lambda: config.update(accumulate=4)], weights_of(model))


@body
def accumulation_over_calls() -> Body:
    model = filled(nn.Linear(4, 3))
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

    def micro_step(x: Tensor, y: Tensor, last: bool) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        return loss
    return Body(micro_step, lambda call: (*pairs(2, 4)(call), call % 2 == 1), [],
                weights_of(model))


class Scaler:
    def __init__(self) -> None:
        self.scale_value = Tensor(4.0).realize()
        self.growth, self.backoff = 2.0, 0.5

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.scale_value

    def step(self, optimizer: Any) -> Tensor:
        found = Tensor(0.0)
        for p in optimizer.params:
            if p.grad is None:
                continue
            p.grad = p.grad / self.scale_value
            found = found + p.grad.isinf().sum() + p.grad.isnan().sum()
        fine = found == 0
        for p in optimizer.params:
            p.grad = fine.where(p.grad, 0.0)
        optimizer.step()
        self.scale_value.assign(fine.where(self.scale_value * self.growth,
                                           self.scale_value * self.backoff))
        return fine


@body
def mixed_precision() -> Body:
    model, scaler = filled(nn.Linear(4, 3)), Scaler()
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.half().float()), y)
        scaler.scale(loss).backward()
        return loss, scaler.step(optimizer)
    return Body(step, pairs(2, 4), [lambda: setattr(scaler, "growth", 3.0)],
                lambda: (weights_of(model)(), scaler.scale_value.item()))


@body
def policy_gradient() -> Body:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(4, 5), nn.Tanh())
            self.actor, self.critic = nn.Linear(5, 3), nn.Linear(5, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            features = self.trunk(x)
            return self.actor(features).log_softmax(-1), self.critic(features).squeeze(-1)
    agent = filled(Agent())
    optimizer = nn.optim.Adam(agent.parameters(), lr=0.01)
    coefficients = types.SimpleNamespace(entropy=0.01, value=0.5, clip=0.2)

    def update(states: Tensor, actions: Tensor, returns: Tensor, old: Tensor) -> Tensor:
        logits, values = agent(states)
        chosen = logits.gather(1, actions.unsqueeze(1)).squeeze(1)
        advantage = (returns - values).detach()
        ratio = (chosen - old).exp()
        surrogate = (ratio * advantage).minimum(
            ratio.clip(1 - coefficients.clip, 1 + coefficients.clip) * advantage)
        entropy = -(logits.exp() * logits).sum(-1).mean()
        loss = -surrogate.mean() + coefficients.value * F_mse(values, returns) \
            - coefficients.entropy * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return Body(update, lambda call: (drawn(3, 4, seed=call), classes(3, 3, call),
                                      drawn(3, seed=call), drawn(3, seed=call + 1)), [
        lambda: setattr(coefficients, "clip", 0.001), lambda: setattr(coefficients, "value", 0.0)],
        weights_of(agent))


def F_mse(a: Tensor, b: Tensor) -> Tensor:  # noqa: N802  (as in torch)
    return ((a - b) ** 2).mean()


@body
def q_learning() -> Body:
    online, target = filled(nn.Linear(4, 3)), filled(nn.Linear(4, 3), 9)
    optimizer = nn.optim.RMSprop(online.parameters(), lr=0.01)

    class Agent:
        gamma, tau, double = 0.9, 0.1, False

        def learn(self, state: Tensor, action: Tensor, reward: Tensor, after: Tensor) -> Tensor:
            q = online(state).gather(1, action.unsqueeze(-1)).squeeze(-1)
            with Tensor.train(False):
                if self.double:
                    best = online(after).argmax(1, keepdim=True)
                    future = target(after).gather(1, best).squeeze(-1)
                else:
                    future = target(after).max(1)
                expected = reward + self.gamma * future
            loss = (q - expected).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for mine, theirs in zip(target.parameters(), online.parameters(), strict=True):
                mine.assign(mine.detach() * (1 - self.tau) + theirs.detach() * self.tau)
            return loss
    agent = Agent()
    return Body(agent.learn, lambda call: (drawn(2, 4, seed=call), classes(2, 3, call),
                                           drawn(2, seed=call), drawn(2, 4, seed=call + 1)), [
        lambda: setattr(agent, "gamma", 0.5), lambda: setattr(Agent, "double", True),
        lambda: setattr(Agent, "tau", 0.9)], lambda: (weights_of(online)(), weights_of(target)()))


class Kind(enum.Enum):
    MEAN = "mean"
    SUM = "sum"


class Pooling(enum.IntFlag):
    FIRST = 1
    LAST = 2


@body
def enums() -> Body:
    holder = types.SimpleNamespace(kind=Kind.MEAN, flags=Pooling.FIRST)

    def pooled(x: Tensor) -> Tensor:
        if holder.flags & Pooling.FIRST:
            x = x[1:]
        if holder.kind is Kind.MEAN:
            return x.mean()
        if holder.kind == Kind("sum"):
            return x.sum()
        return getattr(x, Kind.SUM.value)() * 2
    return Body(pooled, lambda call: (drawn(4, seed=call),), [
        lambda: setattr(holder, "kind", Kind.SUM), lambda: setattr(holder, "flags", Pooling(3)),
        lambda: setattr(holder, "flags", Pooling.LAST)])


class Batch(NamedTuple):
    x: Tensor
    y: Tensor
    weight: float = 1.0


@body
def named_tuples() -> Body:
    model = filled(nn.Linear(4, 3))
    extra = types.SimpleNamespace(batch=Batch(drawn(2, 4), classes(2, 3), 0.5))

    def loss(batch: Batch) -> Tensor:
        both = batch._replace(weight=batch.weight * extra.batch.weight)
        out = F.cross_entropy(model(both.x), both.y) * both.weight
        return out + model(extra.batch.x).sum()
    return Body(loss, lambda call: (Batch(*pairs(2, 4)(call)),), [
        lambda: setattr(extra, "batch", extra.batch._replace(weight=3.0)),
        lambda: setattr(extra, "batch", Batch(drawn(2, 4, seed=5), classes(2, 3)))])


@dataclass(frozen=True)
class Hyper:
    alpha: float = 0.5
    norm: str = "l2"
    parts: tuple[int, ...] = (1, 2)


@dataclass
class Output:
    loss: Tensor
    parts: dict[str, Tensor]


@body
def data_classes() -> Body:
    state = types.SimpleNamespace(hyper=Hyper())

    def loss(x: Tensor) -> Output:
        hyper = state.hyper
        parts = {f"{hyper.norm}_{place}": x[place] * hyper.alpha for place in hyper.parts}
        total = sum(parts.values(), start=Tensor(0.0))
        return Output(total.abs() if hyper.norm == "l1" else total ** 2, parts)
    return Body(loss, lambda call: (drawn(4, seed=call),), [
        lambda: setattr(state, "hyper", Hyper(norm="l1")),
        lambda: setattr(state, "hyper", Hyper(parts=(0, 3)))])


@body
def texts_as_keys() -> Body:
    params = {f"layer{n}.weight": drawn(4, 4, seed=n) for n in range(3)}
    params |= {f"layer{n}.bias": drawn(4, seed=n) for n in range(3)}
    config: dict[str, Any] = {"depth": 2, "prefix": "layer"}

    def forward(x: Tensor) -> Tensor:
        for n in range(config["depth"]):
            name = f"{config['prefix']}{n}"
            x = (x @ params[f"{name}.weight"] + params[name + ".bias"]).relu()
        return x
    return Body(forward, lambda call: (drawn(2, 4, seed=call),), [
        lambda: config.update(depth=3), lambda: params.update({"layer1.bias": drawn(4, seed=8)}),
        lambda: params["layer0.weight"].assign(drawn(4, 4, seed=11)).realize()])


@body
def functions_of_python() -> Body:
    scales, flags, names = [1.0, 3.0, 2.0], [True, False], ["b", "a"]
    table = {"a": 2.0, "b": 5.0}

    def mixed(x: Tensor) -> Tensor:
        for place, scale in enumerate(reversed(scales)):
            x = x * scale + place
        for name, scale in zip(sorted(names), sorted(scales, reverse=True), strict=False):
            x = x + table[name] * scale
        if any(flags) and not all(flags):
            x = x * max(scales) - min(scales, default=0)
        if isinstance(scales[0], float):
            x = x + sum(map(abs, filter(None, scales)))
        return x + len(list(range(0, 10, len(scales)))) + round(scales[0]) + divmod(7, 2)[1]
    return Body(mixed, lambda call: (drawn(4, seed=call),), [
        lambda: scales.append(-4.0), lambda: flags.append(True), lambda: flags.clear(),
        lambda: table.update(a=7.0), lambda: names.reverse(), lambda: scales.__setitem__(0, 2)])


@body
def partials() -> Body:
    def layer(x: Tensor, weight: Tensor, act: Any = Tensor.relu, scale: float = 1.0) -> Tensor:
        return act(x @ weight) * scale
    holder = types.SimpleNamespace(
        first=functools.partial(layer, weight=drawn(4, 4), act=Tensor.tanh),
        second=functools.partial(layer, weight=drawn(4, 4, seed=2), scale=2.0))
    return Body(lambda x: holder.second(holder.first(x)), lambda call: (drawn(2, 4, seed=call),), [
        lambda: setattr(holder, "first", functools.partial(layer, weight=drawn(4, 4, seed=3))),
        lambda: holder.second.keywords.update(scale=3.0)])


@body
def tried_and_finished() -> Body:
    table: dict[str, float] = {}

    def step(x: Tensor) -> Tensor:
        try:
            y = x * table["scale"]
        except KeyError:
            y = x * 2
        else:
            y = y + 1
        finally:
            x = x - 1
        return y + x
    return Body(step, lambda call: (drawn(3, seed=call),), [
        lambda: table.update(scale=3.0), table.clear])


@body
def train_mode_inside() -> Body:
    model = filled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return loss
    return Body(step, pairs(3, 4), [lambda: setattr(model[1], "eps", 0.5)], weights_of(model),
                training=False)


@body
def eval_and_back() -> Body:
    model = filled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))

    def validate(x: Tensor, y: Tensor) -> Tensor:
        model.eval()
        with Tensor.train(False):
            loss = F.cross_entropy(model(x), y)
        model.train()
        return loss
    return Body(validate, pairs(3, 4), [lambda: setattr(model[1], "eps", 0.5)], weights_of(model))


@body
def autoencoder() -> Body:
    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(2, 4)
            self.beta = 1.0

        def encode(self, x: Tensor) -> tuple[Tensor, ...]:
            mean, spread = self.encoder(x).chunk(2, dim=1)
            return mean, spread

        def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean, spread = self.encode(x)
            return self.decoder(mean + noise * (spread / 2).exp()).sigmoid(), mean, spread
    vae = filled(VAE())
    optimizer = nn.optim.Adam(vae.parameters(), lr=0.01)

    def step(x: Tensor, noise: Tensor) -> dict[str, Tensor]:
        optimizer.zero_grad()
        again, mean, spread = vae(x, noise)
        rebuilt = ((again - x) ** 2).sum()
        divergence = -0.5 * (1 + spread - mean ** 2 - spread.exp()).sum()
        loss = rebuilt + vae.beta * divergence
        loss.backward()
        optimizer.step()
        return dict(loss=loss, rebuilt=rebuilt, divergence=divergence)
    return Body(step, lambda call: (drawn(3, 4, seed=call), drawn(3, 2, seed=call)), [
        lambda: setattr(vae, "beta", 4.0)], weights_of(vae))


@body
def diffusion() -> Body:
    model = filled(nn.Linear(5, 4))
    betas = np.linspace(0.1, 0.2, 4).astype(np.float32)

    def sample(x: Tensor, t: int) -> Tensor:
        alpha = float(np.cumprod(1 - betas)[t])
        noise = model(x.cat(Tensor.full((x.shape[0], 1), t / len(betas)), dim=1))
        return (x - math.sqrt(1 - alpha) * noise) / math.sqrt(alpha)

    def warmer() -> None:
        betas[0] = 0.5
    return Body(sample, lambda call: (drawn(2, 4, seed=call), 1), [warmer])


@body
def recurrent() -> Body:
    cell, head = filled(nn.LSTMCell(4, 3)), filled(nn.Linear(3, 2))

    def unrolled(xs: Tensor) -> list[Tensor]:
        h, c = Tensor.zeros(2, 3), Tensor.zeros(2, 3)
        outputs = []
        for t in range(xs.shape[0]):
            h, c = cell(xs[t], (h, c))
            outputs.append(head(h))
        return outputs
    return Body(unrolled, lambda call: (drawn(3, 2, 4, seed=call),), [
        lambda: head.bias.assign(drawn(2, seed=5)).realize(),
        lambda: setattr(head, "bias", None)])


@body
def carried_state() -> Body:
    cell = filled(nn.GRUCell(4, 3))
    return Body(lambda x, h: cell(x, h), lambda call: (drawn(2, 4, seed=call), drawn(2, 3)), [
        lambda: cell.weight_hh.assign(cell.weight_hh * 2).realize()])


@body
def cached_attention() -> Body:
    class Attention:
        def __init__(self) -> None:
            self.wq, self.wk, self.wv = (filled(nn.Linear(4, 4, bias=False), n) for n in range(3))
            self.cache_k, self.cache_v = Tensor.zeros(4, 4).contiguous().realize(), \
                Tensor.zeros(4, 4).contiguous().realize()
            self.scale = 0.5

        def __call__(self, x: Tensor, start: int) -> Tensor:
            self.cache_k[start:start + 1] = self.wk(x)
            self.cache_v[start:start + 1] = self.wv(x)
            scores = self.wq(x) @ self.cache_k[:start + 1].T * self.scale
            return scores.softmax(-1) @ self.cache_v[:start + 1]
    attention = Attention()
    return Body(attention, lambda call: (drawn(1, 4, seed=call), 1), [
        lambda: setattr(attention, "scale", 2.0)],
        lambda: (attention.cache_k.tolist(), attention.cache_v.tolist()))


@body
def losses_weighted() -> Body:
    heads = OrderedDict((name, filled(nn.Linear(4, 3), n)) for n, name in enumerate("ab"))
    losses: dict[str, Callable[..., Tensor]] = {
        "a": F.cross_entropy, "b": lambda out, y: (out.mean(1) - y) ** 2}
    share = defaultdict(lambda: 1.0, a=2.0)

    def total(x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        found = {name: losses[name](head(x), y).mean() for name, head in heads.items()}
        return sum((share[name] * each for name, each in found.items()), Tensor(0.0)), found
    return Body(total, pairs(3, 4), [
        lambda: share.update(a=5.0), lambda: share.update(b=0.0),
        lambda: heads.move_to_end("a"), lambda: losses.update(a=losses["b"])])


@body
def smoothed() -> Body:
    history: deque[float] = deque([1.0, 2.0, 3.0], maxlen=3)

    def scaled(x: Tensor) -> Tensor:
        return x * (sum(history) / len(history)) + history[-1]
    return Body(scaled, lambda call: (drawn(3, seed=call),), [
        lambda: history.append(9.0), lambda: history.popleft()])


@body
def registered() -> Body:
    layers: dict[str, Any] = {}

    def register(name: str) -> Callable[..., Any]:
        def note(make: Any) -> Any:
            layers[name] = make
            return make
        return note

    @register("double")
    def double(x: Tensor, by: float) -> Tensor:
        return x * by

    @register("shift")
    class Shift:
        amount = 1.0

        def __new__(cls, x: Tensor, by: float) -> Any:
            return x + by * cls.amount
    plan = [("double", 2.0), ("shift", 3.0)]

    def run(x: Tensor) -> Tensor:
        for name, by in plan:
            x = layers[name](x, by)
        return x
    return Body(run, lambda call: (drawn(3, seed=call),), [
        lambda: plan.append(("double", 5.0)), lambda: setattr(layers["shift"], "amount", 4.0),
        lambda: layers.update(double=lambda x, by: x - by)])


@body
def managed() -> Body:
    state = types.SimpleNamespace(depth=1.0)

    @contextlib.contextmanager
    def scale(by: float) -> Iterator[float]:
        yield by * state.depth

    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = by

        def __enter__(self) -> float:
            return self.by * state.depth

        def __exit__(self, *_: object) -> None:
            pass

    def step(x: Tensor) -> Tensor:
        with scale(2.0) as by, Scaled(3.0) as more:
            return x * by + more
    return Body(step, lambda call: (drawn(3, seed=call),), [
        lambda: setattr(state, "depth", 5.0)])


@body
def decorated() -> Body:
    settings = {"scale": 2.0}

    def scaled(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) * settings["scale"]
        return inner

    class Model:
        shift = 1.0

        @scaled
        def forward(self, x: Tensor, more: float = 0.0) -> Tensor:
            return x + self.shift + more

        @classmethod
        def twice(cls, x: Tensor) -> Tensor:
            return x * 2 + cls.shift

        @property
        def depth(self) -> float:
            return self.shift * 3
    model = Model()
    return Body(lambda x: Model.twice(model.forward(x, more=model.depth)),
                lambda call: (drawn(3, seed=call),), [
        lambda: settings.update(scale=5.0), lambda: setattr(model, "shift", 3.0),
        lambda: setattr(Model, "shift", 7.0)])


@body
def generators() -> Body:
    weights = [drawn(4, 4, seed=n) for n in range(3)]
    model = nn.ModuleDict({"a": filled(nn.Linear(4, 4), 4), "b": filled(nn.Linear(4, 4), 5)})

    def chain(x: Tensor) -> Iterator[Tensor]:
        for weight in weights:
            x = x @ weight
            yield x

    def total(x: Tensor) -> Tensor:
        out = sum((each.sum() for each in chain(x)), Tensor(0.0))
        for name, layer in model.items():
            out = out + layer(x).sum() * (2 if name == "a" else 3)
        return out
    return Body(total, lambda call: (drawn(2, 4, seed=call),), [
        lambda: weights.append(drawn(4, 4, seed=9)), lambda: weights.pop(0),
        lambda: setattr(model, "c", filled(nn.Linear(4, 4), 6)), lambda: delattr(model, "a")])


@body
def regularized() -> Body:
    model = filled(MLP())
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rule = types.SimpleNamespace(decay=0.1, skip=("bias",), frozen=set())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        for name, p in model.named_parameters():
            if not name.endswith(rule.skip) and name.split(".")[0] not in rule.frozen:
                loss = loss + rule.decay * (p ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss
    return Body(step, pairs(2, 4), [
        lambda: setattr(rule, "decay", 0.5), lambda: rule.frozen.add("fc1"),
        lambda: setattr(rule, "skip", ("weight", "bias"))], weights_of(model))


@body
def gradient_penalty() -> Body:
    critic = filled(nn.Linear(3, 1))
    settings = types.SimpleNamespace(weight=10.0)

    def penalty(real: Tensor, fake: Tensor) -> Tensor:
        between = ((real + fake) / 2).detach().requires_grad_()
        gradient, = critic(between).sum().gradient(between)
        return settings.weight * ((gradient ** 2).sum(1).sqrt() - 1).square().mean()
    return Body(penalty, lambda call: (drawn(2, 3, seed=call), drawn(2, 3, seed=call + 3)), [
        lambda: setattr(settings, "weight", 2.0)])


@body
def teacher() -> Body:
    student, master = filled(nn.Linear(4, 3)), filled(nn.Linear(4, 3), 9)
    optimizer = nn.optim.AdamW(student.parameters(), lr=0.01)
    temperature = [2.0]

    def step(x: Tensor) -> Tensor:
        with Tensor.train(False):
            goal = (master(x) / temperature[0]).softmax(1)
        optimizer.zero_grad()
        loss = -(goal * (student(x) / temperature[0]).log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        return loss
    return Body(step, lambda call: (drawn(2, 4, seed=call),), [
        lambda: temperature.__setitem__(0, 5.0)], weights_of(student))


@body
def with_transformer_layers() -> Body:
    encoder = filled(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True))
    encoder.eval()
    return Body(lambda x: encoder(x), lambda call: (drawn(1, 3, 4, seed=call),), [
        lambda: setattr(encoder.norm1, "eps", 0.5)], training=False)


@body
def printed_sometimes() -> Body:
    log: list[str] = []
    options = types.SimpleNamespace(verbose=False)

    def step(x: Tensor) -> Tensor:
        y = x * 2
        if options.verbose:
            print(f"x has shape {x.shape}")
            log.append("shown")
        return y
    return Body(step, lambda call: (drawn(2, seed=call),), [], lambda: len(log),
                why="outside")


@body
def noted_losses() -> Body:
    losses: list[Any] = []

    def step(x: Tensor) -> Tensor:
        loss = x.sum()
        losses.append(loss.item())
        return loss
    return Body(step, lambda call: (drawn(2, seed=call),), [], lambda: losses,
                why="changes losses")


@body
def counted() -> Body:
    class Trainer:
        def __init__(self) -> None:
            self.steps = 0

        def step(self, x: Tensor) -> Tensor:
            self.steps += 1
            return x * self.steps
    trainer = Trainer()
    return Body(trainer.step, lambda call: (drawn(2, seed=call),), [], lambda: trainer.steps,
                why="steps")


@body
def chosen_by_type() -> Body:
    stages: list[Any] = [2.0, drawn(3), "relu", [1.0, 3.0], None, np.float32(2.0)]

    def run(x: Tensor) -> Tensor:
        for stage in stages:
            if stage is None:
                continue
            if isinstance(stage, str):
                x = getattr(x, stage)()
            elif isinstance(stage, (list, tuple)):
                x = x + sum(stage)
            elif isinstance(stage, Tensor):
                x = x + stage
            elif callable(stage):
                x = stage(x)
            elif type(stage) in (int, float):
                x = x * stage
            else:
                x = x - float(stage)
        return x
    return Body(run, lambda call: (drawn(3, seed=call),), [
        lambda: stages.append(3), lambda: stages.__setitem__(2, "sigmoid"),
        lambda: stages[3].append(5.0), lambda: stages.append(Tensor.tanh),
        lambda: stages.reverse()])


@body
def matched() -> Body:
    state: Any = types.SimpleNamespace(action=("scale", 2.0))

    def run(x: Tensor) -> Tensor:
        match state.action:
            case ("scale", by):
                return x * by
            case {"shift": by, **rest} if not rest:
                return x + by
            case Hyper(alpha=a):
                return x - a
            case [*several]:
                return x + len(several)
            case _:
                return x
    return Body(run, lambda call: (drawn(3, seed=call),), [
        lambda: setattr(state, "action", {"shift": 3.0}),
        lambda: state.action.update(more=1), lambda: setattr(state, "action", Hyper(0.25)),
        lambda: setattr(state, "action", [1, 2, 3]), lambda: state.action.append(1)])


@body
def sparse_masks() -> Body:
    masks = {"causal": np.tril(np.ones((3, 3), np.float32)), "full": np.ones((3, 3), np.float32)}
    cfg = types.SimpleNamespace(mask="causal", dtype=dtypes.float32)

    def attend(q: Tensor) -> Tensor:
        mask = Tensor(masks[cfg.mask], dtype=cfg.dtype)
        scores = (q @ q.T).masked_fill(mask == 0, -math.inf)
        return scores.softmax(-1) @ q

    def corner() -> None:
        masks["causal"][0, 2] = 1
    return Body(attend, lambda call: (drawn(3, 4, seed=call),), [
        corner, lambda: setattr(cfg, "mask", "full"), lambda: masks.update(full=masks["causal"])])


@body
def flags() -> Body:
    class Parts(enum.IntFlag):
        SCALE = 1
        SHIFT = 2
    state = types.SimpleNamespace(parts=Parts.SCALE)

    def run(x: Tensor) -> Tensor:
        x = x * 2 if state.parts & Parts.SCALE else x
        return x + 1 if Parts.SHIFT in state.parts else x
    return Body(run, lambda call: (drawn(3, seed=call),), [
        lambda: setattr(state, "parts", Parts.SHIFT),
        lambda: setattr(state, "parts", Parts.SCALE | Parts.SHIFT)])


@body
def layers_made_inside() -> Body:
    width = types.SimpleNamespace(out=2)

    def run(x: Tensor) -> Tensor:
        made = nn.Sequential(nn.Conv2d(2, width.out, 1), nn.BatchNorm2d(width.out), nn.ReLU())
        return made(x).detach()  # else each result depends on parameters of its own
    return Body(run, lambda call: (drawn(2, 2, 2, 2, seed=call),),
                [lambda: setattr(width, "out", 3)])


@body
def collected() -> Body:
    class Factor:
        by = 2.0
    state = Factor()
    table = defaultdict(float, scale=1.5)

    def run(x: Tensor) -> Tensor:
        groups: dict[str, list[Any]] = defaultdict(list)
        groups["a"].append(state)
        return x * groups["a"][0].by + table["scale"]
    return Body(run, lambda call: (drawn(2, seed=call),), [
        lambda: setattr(state, "by", 3.0), lambda: table.update(scale=0.5)])


@body
def put_back() -> Body:
    """What is written for the time of a call decides what else is read."""
    state = types.SimpleNamespace(mode="a", seen=False)
    scales, shifts = {"a": 2.0, "b": 3.0}, {"a": 0.5, "b": 1.5}

    def run(x: Tensor) -> Tensor:
        state.mode, state.seen = "b", True
        x = x * scales[state.mode] + shifts[vars(state)["mode"]]
        state.mode = "a"
        return x
    return Body(run, lambda call: (drawn(2, seed=call),), [
        lambda: scales.update(b=5.0), lambda: shifts.update(b=2.5),
        lambda: setattr(state, "seen", False)],
        lambda: vars(state))


@body
def namespaces() -> Body:
    one, two = (types.SimpleNamespace(by=1.0, parts=[1.0]) for _ in range(2))

    def run(x: Tensor) -> Tensor:
        x = x * 2 if one == two else x * 3
        return x + len(f"{two}")
    return Body(run, lambda call: (drawn(2, seed=call),), [
        lambda: setattr(two, "by", 22.5), lambda: setattr(one, "by", 22.5),
        lambda: two.parts.append(1.0)])
