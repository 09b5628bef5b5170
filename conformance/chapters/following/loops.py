"""Training loops as users of PyTorch write them: the step of each is captured as it stands.

    python -m conformance.runner.captured --known

As in `bodies`: each function makes a `Body` anew. Only the import of torch is another one.
"""
# Attributes are found by name at run time, as in torch.
# mypy: disable-error-code="attr-defined,no-untyped-call,arg-type,operator"
from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import impl.torch.nn.functional as F  # noqa: N812  (as everybody writes it)
import numpy as np

import impl.torch as torch
from conformance.chapters.following.bodies import Body, classes, drawn, filled, weights_of
from impl.torch import Tensor, nn, optim

LOOPS: list[Callable[[], Body]] = []


def body(make: Callable[[], Body]) -> Callable[[], Body]:
    """Note a body."""
    LOOPS.append(make)
    return make


@dataclass
class LanguageConfig:
    vocabulary: int = 5
    width: int = 4
    heads: int = 2
    layers: int = 1
    length: int = 3
    dropout: float = 0.0
    tied: bool = True


class CausalAttention(nn.Module):
    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        assert config.width % config.heads == 0
        self.attend = nn.Linear(config.width, 3 * config.width, bias=False)
        self.project = nn.Linear(config.width, config.width, bias=False)
        self.heads, self.width = config.heads, config.width
        self.register_buffer("mask", torch.tril(torch.ones(config.length, config.length)))

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()  # noqa: N806
        q, k, v = self.attend(x).split(self.width, dim=2)
        q, k, v = (each.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for each in (q, k, v))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        weights = weights.masked_fill(self.mask[:T, :T] == 0, float("-inf"))
        found = F.softmax(weights, dim=-1) @ v
        return self.project(found.transpose(1, 2).contiguous().view(B, T, C))


class LanguageBlock(nn.Module):
    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attention = CausalAttention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = nn.ModuleDict(dict(
            up=nn.Linear(config.width, 2 * config.width), act=nn.GELU(),
            down=nn.Linear(2 * config.width, config.width), drop=nn.Dropout(config.dropout)))
        m = self.mlp
        self.feed = lambda x: m.drop(m.down(m.act(m.up(x))))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln_1(x))
        return x + self.feed(self.ln_2(x))


class LanguageModel(nn.Module):
    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocabulary, config.width),
            wpe=nn.Embedding(config.length, config.width),
            h=nn.ModuleList([LanguageBlock(config) for _ in range(config.layers)]),
            ln_f=nn.LayerNorm(config.width)))
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Any]:
        b, t = idx.size()
        assert t <= self.config.length, f"Cannot forward sequence of length {t}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1),
                                   ignore_index=-1)
        return logits, loss


@body
def language_model() -> Body:
    """Clipping, groups with and without decay, and a schedule that is stepped inside."""
    return _language_model(True)


@body
def language_model_and_schedule() -> Body:
    """The same with the schedule outside."""
    return _language_model(False)


def _language_model(inside: bool) -> Body:
    model = filled(LanguageModel(LanguageConfig()))
    matrices = [p for name, p in model.named_parameters() if p.dim() >= 2]
    rest = [p for name, p in model.named_parameters() if p.dim() < 2]
    optimizer = optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                             {"params": rest, "weight_decay": 0.0}], lr=0.01, betas=(0.9, 0.95))
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    grad_clip = 1.0

    def finish() -> None:
        scheduler.step()
    if not inside:
        def finish() -> None:
            pass

    def train_step(xb: Tensor, yb: Tensor) -> float:
        optimizer.zero_grad(set_to_none=True)
        logits, loss = model(xb, yb)
        loss.backward()
        if grad_clip != 0.0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        finish()
        return loss

    def given(call: int) -> tuple[Any, ...]:
        return classes(6, 5, call).reshape(2, 3), classes(6, 5, call + 9).reshape(2, 3)

    def colder() -> None:
        nonlocal grad_clip
        grad_clip = 0.1
    return Body(train_step, given, [
        colder, *([] if inside else [scheduler.step]),
        lambda: optimizer.param_groups[0].update(weight_decay=0.5),
        lambda: setattr(model.transformer.h[0].ln_1, "eps", 0.1), lambda: model.eval()],
        weights_of(model), why="call scheduler.step() after the captured" if inside else "")


@body
def adversaries() -> Body:
    """DCGAN: two networks, two optimisers, labels filled in place, detached results."""
    nz = 2
    netG = nn.Sequential(  # noqa: N806
        nn.ConvTranspose2d(nz, 3, 2, 1, 0, bias=False), nn.BatchNorm2d(3), nn.ReLU(True),
        nn.ConvTranspose2d(3, 1, 2, 2, 0, bias=False), nn.Tanh())
    netD = nn.Sequential(  # noqa: N806
        nn.Conv2d(1, 2, 2, 2, 0, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2, 1, 2, 1, 0, bias=False), nn.Sigmoid())
    filled(netG), filled(netD, 40)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=0.01, betas=(0.5, 0.999))  # noqa: N806
    optimizerG = optim.Adam(netG.parameters(), lr=0.01, betas=(0.5, 0.999))  # noqa: N806
    real_label, fake_label = 1.0, 0.0

    def train_step(real: Tensor) -> tuple[Tensor, ...]:
        netD.zero_grad()
        b_size = real.size(0)
        label = torch.full((b_size,), real_label, dtype=torch.float)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)  # noqa: N806
        errD_real.backward()
        D_x = output.mean()  # noqa: N806
        noise = torch.randn(b_size, nz, 1, 1)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)  # noqa: N806
        errD_fake.backward()
        errD = errD_real + errD_fake  # noqa: N806
        optimizerD.step()
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)  # noqa: N806
        errG.backward()
        optimizerG.step()
        return errD, errG, D_x

    def smoothed() -> None:
        nonlocal real_label
        real_label = 0.9
    return Body(train_step, lambda call: (drawn(2, 1, 4, 4, seed=call),), [
        smoothed, lambda: optimizerD.param_groups[0].update(lr=0.1),
        lambda: netD.requires_grad_(True), lambda: netG[1].eval()],
        lambda: (weights_of(netG)(), weights_of(netD)()))


class Schedule(Enum):
    LINEAR = "linear"
    COSINE = "cosine"


@body
def denoising() -> Body:
    """DDPM: random timesteps and noise, coefficients of a buffer by extract()."""
    class Diffusion(nn.Module):
        def __init__(self, timesteps: int, schedule: Schedule) -> None:
            super().__init__()
            self.timesteps, self.schedule = timesteps, schedule
            betas = torch.linspace(0.1, 0.3, timesteps)
            alphas = 1.0 - betas
            cumulative = torch.cumprod(alphas, dim=0)
            self.register_buffer("sqrt_cumulative", torch.sqrt(cumulative))
            self.register_buffer("sqrt_rest", torch.sqrt(1.0 - cumulative))
            self.time = nn.Embedding(timesteps, 4)
            self.net = nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 4))
            self.loss_type = "l2"

        @staticmethod
        def extract(a: Tensor, t: Tensor, x_shape: tuple[int, ...]) -> Tensor:
            b, *_ = t.shape
            return a.gather(-1, t).reshape(b, *((1,) * (len(x_shape) - 1)))

        def q_sample(self, x_start: Tensor, t: Tensor, noise: Tensor) -> Tensor:
            return (self.extract(self.sqrt_cumulative, t, x_start.shape) * x_start
                    + self.extract(self.sqrt_rest, t, x_start.shape) * noise)

        def forward(self, x: Tensor) -> Tensor:
            t = torch.randint(0, self.timesteps, (x.shape[0],)).long()
            noise = torch.randn_like(x)
            predicted = self.net(self.q_sample(x, t, noise) + self.time(t))
            if self.loss_type == "l1":
                return F.l1_loss(predicted, noise)
            elif self.loss_type == "l2":
                return F.mse_loss(predicted, noise)
            raise NotImplementedError(self.loss_type)
    model = filled(Diffusion(4, Schedule.LINEAR))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    ema = {name: p.detach().clone() for name, p in model.named_parameters()}
    decay = 0.9

    def train_step(batch: Tensor) -> dict[str, Tensor]:
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for name, param in model.named_parameters():
                ema[name].mul_(decay).add_(param.data, alpha=1 - decay)
        return {"loss": loss.detach()}

    def slower() -> None:
        nonlocal decay
        decay = 0.5
    return Body(train_step, lambda call: (drawn(3, 4, seed=call),), [
        lambda: setattr(model, "loss_type", "l1"), slower,
        lambda: setattr(model, "timesteps", 2)],
        lambda: (weights_of(model)(), [each.tolist() for each in ema.values()]))


class ReplayBuffer:
    def __init__(self, size: int) -> None:
        self.states = np.zeros((size, 4), np.float32)
        self.actions = np.zeros((size,), np.int64)
        self.rewards = np.zeros((size,), np.float32)
        self.place = 0

    def add(self, state: np.ndarray, action: int, reward: float) -> None:
        place = self.place % len(self.states)
        self.states[place], self.actions[place], self.rewards[place] = state, action, reward
        self.place += 1

    def sample(self, at: list[int]) -> tuple[Tensor, ...]:
        return (torch.from_numpy(self.states[at]), torch.from_numpy(self.actions[at]),
                torch.from_numpy(self.rewards[at]))


@body
def reinforcement() -> Body:
    """DQN: a buffer of arrays, a target network that follows, Huber loss, clipped values."""
    policy_net, target_net = (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
                              for _ in range(2))
    filled(policy_net)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=False)
    memory = ReplayBuffer(6)
    for n in range(6):
        memory.add(np.full(4, n / 5, np.float32), n % 3, float(n % 2))
    GAMMA, TAU = 0.99, 0.05  # noqa: N806

    def optimize_model(at: list[int]) -> Tensor:
        states, actions, rewards = memory.sample(at)
        state_action_values = policy_net(states).gather(1, actions.unsqueeze(1))
        with torch.no_grad():
            next_state_values = torch.max(target_net(states + 0.5), 1)[0]
        expected = (next_state_values * GAMMA) + rewards
        loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        mine, theirs = target_net.state_dict(), policy_net.state_dict()
        for key in theirs:
            mine[key] = theirs[key] * TAU + mine[key] * (1 - TAU)
        target_net.load_state_dict(mine)
        return loss

    def impatient() -> None:
        nonlocal GAMMA
        GAMMA = 0.5
    return Body(optimize_model, lambda call: ([2, 1],), [
        lambda: memory.add(np.ones(4, np.float32), 2, 3.0), impatient,
        lambda: memory.rewards.__setitem__(1, 9.0)],
        lambda: (weights_of(policy_net)(), weights_of(target_net)()))


@body
def clusters() -> Body:
    """k-means: distances, one-hot sums, centres that are written in place."""
    @dataclass
    class KMeans:
        centres: Tensor
        momentum: float = 0.5
        metric: str = "euclidean"
        history: deque[float] = field(default_factory=lambda: deque(maxlen=3))

        def distances(self, x: Tensor) -> Tensor:
            if self.metric == "cosine":
                return 1 - F.normalize(x, dim=1) @ F.normalize(self.centres, dim=1).T
            return torch.cdist(x, self.centres)

        def step(self, x: Tensor) -> tuple[Tensor, Tensor]:
            nearest = self.distances(x).argmin(dim=1)
            chosen = F.one_hot(nearest, num_classes=self.centres.shape[0]).float()
            counts = chosen.sum(0).unsqueeze(1)
            means = (chosen.T @ x) / counts.clamp(min=1)
            updated = torch.where(counts > 0, means, self.centres)
            self.centres.copy_(self.centres * self.momentum + updated * (1 - self.momentum))
            return nearest, (x - self.centres[nearest]).pow(2).sum()
    means = KMeans(drawn(2, 3))
    return Body(means.step, lambda call: (drawn(5, 3, seed=call),), [
        lambda: setattr(means, "momentum", 0.0), lambda: setattr(means, "metric", "cosine"),
        lambda: setattr(means, "centres", drawn(3, 3, seed=8))], lambda: means.centres.tolist())


class Encoder(nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(
            layer for left, right in zip(sizes, sizes[1:], strict=False)
            for layer in (nn.Linear(left, right), nn.ReLU())))
        self.mean, self.log_var = nn.Linear(sizes[-1], 2), nn.Linear(sizes[-1], 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.layers(x)
        return self.mean(h), self.log_var(h)


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder([4, 5])
        self.decoder = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 4), nn.Sigmoid())

    def reparameterize(self, mu: Tensor, logvar: Tensor) -> Tensor:
        if not self.training:
            return mu
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = self.encoder(x.view(-1, 4))
        z = self.reparameterize(mu, logvar)
        return self.decoder(z), mu, logvar


@body
def variational() -> Body:
    model = filled(Variational())
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    warmup = {"beta": 0.1}

    def loss_function(recon_x: Tensor, x: Tensor, mu: Tensor, logvar: Tensor) -> Tensor:
        BCE = F.binary_cross_entropy(recon_x, x.view(-1, 4), reduction="sum")  # noqa: N806
        KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # noqa: N806
        return BCE + warmup["beta"] * KLD

    def train(data: Tensor) -> Tensor:
        model.train()
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        return loss / len(data)
    return Body(train, lambda call: (drawn(2, 2, 2, seed=call).sigmoid(),), [
        lambda: warmup.update(beta=1.0), lambda: optimizer.param_groups[0].update(lr=0.1),
        lambda: setattr(model, "decoder", nn.Sequential(model.decoder[0], nn.ReLU(),
                                                        model.decoder[2], nn.Sigmoid()))],
        weights_of(model))


@body
def contrastive() -> Body:
    """SimCLR and CLIP: normalised features, a learned temperature, labels on the diagonal."""
    class Projector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image, self.text = nn.Linear(4, 3), nn.Linear(4, 3)
            self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

        def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
            features = [F.normalize(layer(x), dim=-1)
                        for layer, x in ((self.image, image), (self.text, text))]
            logits = self.logit_scale.exp() * features[0] @ features[1].t()
            return logits, logits.t()
    model = filled(Projector())
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    noise = {"scale": 0.1}

    def augment(x: Tensor, *, flip: bool = False, **options: Any) -> Tensor:
        x = x + torch.rand_like(x) * options.get("scale", 0.0)
        return x.flip(-1) if flip else x

    def step(image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        per_image, per_text = model(augment(image, **noise), augment(text, flip=True, **noise))
        labels = torch.arange(image.shape[0])
        loss = (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        accuracy = (per_image.argmax(dim=1) == labels).float().mean()
        return loss.detach(), accuracy
    return Body(step, lambda call: (drawn(3, 4, seed=call), drawn(3, 4, seed=call + 7)), [
        lambda: noise.update(scale=0.5), lambda: optimizer.param_groups[0].update(momentum=0.5),
        lambda: model.text.requires_grad_(False)], weights_of(model))


@body
def averaged() -> Body:
    """EMA by a class with shadow weights, as timm has it; BatchNorm's buffers are copied."""
    class ModelEma(nn.Module):
        def __init__(self, model: nn.Module, decay: float = 0.9) -> None:
            super().__init__()
            self.module, self.decay = model, decay

        def _update(self, model: nn.Module, update_fn: Any) -> None:
            with torch.no_grad():
                for ema_v, model_v in zip(self.module.state_dict().values(),
                                          model.state_dict().values(), strict=True):
                    ema_v.copy_(update_fn(ema_v, model_v))

        def update(self, model: nn.Module) -> None:
            self._update(model, lambda e, m: self.decay * e + (1.0 - self.decay) * m)
    model, twin = (filled(nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU(),
                                        nn.Flatten(), nn.Linear(8, 3))) for _ in range(2))
    ema = ModelEma(twin)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def train_step(images: Tensor, target: Tensor) -> Tensor:
        output = model(images)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        return loss
    return Body(train_step, lambda call: (drawn(2, 1, 3, 3, seed=call), classes(2, 3, call)), [
        lambda: setattr(ema, "decay", 0.1), lambda: setattr(criterion, "label_smoothing", 0.0),
        lambda: model.eval()], lambda: (weights_of(model)(), weights_of(twin)()))


@body
def half_precision() -> Body:
    """Mixed precision with a GradScaler inside: whether a step is made depends on values."""
    model = filled(nn.Linear(4, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.half().float()), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss
    return Body(step, lambda call: (drawn(2, 4, seed=call), classes(2, 3, call)), [
        lambda: setattr(scaler, "growth_factor", 4.0)],
        lambda: (weights_of(model)(), scaler.get_scale()), why="call scaler.step(optimizer)")


@body
def accumulated() -> Body:
    """Gradients of micro-batches, then clipping, as one step; a meter of plain numbers outside."""
    class Trainer:
        accumulation_steps = 2

        def __init__(self, model: nn.Module, max_norm: float | None = 1.0) -> None:
            self.model, self.max_norm = model, max_norm
            self.optimizer = optim.RMSprop(model.parameters(), lr=0.01, momentum=0.1)
            self.criterion = nn.CrossEntropyLoss()

        def micro_batches(self, x: Tensor, y: Tensor) -> Any:
            yield from zip(torch.chunk(x, self.accumulation_steps),
                           torch.chunk(y, self.accumulation_steps), strict=True)

        def __call__(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            self.model.train()
            total, correct = torch.zeros(()), torch.zeros(())
            for i, (inputs, targets) in enumerate(self.micro_batches(x, y)):
                outputs = self.model(inputs)
                loss = self.criterion(outputs, targets) / self.accumulation_steps
                loss.backward()
                total += loss.detach()
                correct += (outputs.argmax(1) == targets).sum()
                if (i + 1) % self.accumulation_steps == 0:
                    if self.max_norm is not None:
                        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            return {"loss": total, "accuracy": correct / x.size(0), "norm": norm}
    trainer = Trainer(filled(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))))
    return Body(trainer, lambda call: (drawn(4, 4, seed=call), classes(4, 3, call)), [
        lambda: setattr(trainer, "max_norm", 0.1),
        lambda: setattr(trainer, "accumulation_steps", 4),
        lambda: trainer.optimizer.param_groups[0].update(lr=0.1)], weights_of(trainer.model))


@body
def convolutional() -> Body:
    """The CNN of the tutorial: torch.flatten, functions of F, running sums outside."""
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.pool = nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, 2)
            self.fc1, self.fc2 = nn.Linear(8, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.pool(F.relu(self.conv1(x)))
            x = torch.flatten(x, 1)
            x = F.relu(self.fc1(x))
            return F.log_softmax(self.fc2(x), dim=1)
    net = filled(Net())
    device = next(net.parameters()).device
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, labels = data
        inputs, labels = inputs.to(device, non_blocking=True), labels.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = F.nll_loss(outputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=2.0, norm_type=2)
        optimizer.step()
        _, predicted = torch.max(outputs.data, 1)
        return loss, (predicted == labels).sum()
    return Body(step, lambda call: ((drawn(2, 1, 6, 6, seed=call), classes(2, 3, call)),), [
        lambda: optimizer.param_groups[0].update(lr=0.01), lambda: net.conv1.requires_grad_(False),
        lambda: setattr(net, "pool", nn.AvgPool2d(2))], weights_of(net))


@body
def einsums() -> Body:
    """Attention by einsum, with its gradient; the pattern is made of names."""
    weights = {name: drawn(4, 2, 3, seed=n).requires_grad_() for n, name in enumerate("qkv")}
    pattern = "b i d, d h e -> b h i e"

    def rearranged(text: str) -> str:
        left, right = text.split("->")
        one, two = (part.replace(" ", "") for part in left.split(","))
        return f"{one},{two}->{right.replace(' ', '')}"

    def step(x: Tensor) -> list[Tensor]:
        for each in weights.values():
            each.grad = None
        q, k, v = [torch.einsum(rearranged(pattern), x, w) for w in weights.values()]
        scores = torch.einsum("bhid,bhjd->bhij", q, k).softmax(dim=-1)
        out = torch.einsum("bhij,bhjd->bhid", [scores, v])
        out.pow(2).mean().backward()
        with torch.no_grad():
            for _, w in sorted(weights.items(), key=lambda pair: pair[0]):
                w -= 0.1 * w.grad
        return [out, *(w.grad for w in weights.values())]

    def others() -> None:
        nonlocal pattern
        pattern = "b i d, d e h -> b e i h"
    return Body(step, lambda call: (drawn(1, 2, 4, seed=call),), [
        lambda: weights.update(q=drawn(4, 2, 3, seed=9).requires_grad_()), others],
        lambda: [w.tolist() for w in weights.values()])


@body
def timed() -> Body:
    """A clock around the step is read at each call: it stays traced."""
    model = filled(nn.Linear(4, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        begun = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss + 0 * (time.perf_counter() - begun)
    return Body(step, lambda call: (drawn(2, 4, seed=call), classes(2, 3, call)), [],
                weights_of(model), why="time.perf_counter")
