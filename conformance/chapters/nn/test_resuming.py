"""Training that is saved and goes on: optimisers, schedules, scales, means, random numbers."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from impl import Tensor, TinyJit, nn
from impl.errors import ArgumentError, DTypeError, ShapeError
from impl.nn import saving
from impl.nn.amp import GradScaler
from impl.nn.swa_utils import AveragedModel, get_ema_multi_avg_fn
from impl.settings import Context

random = np.random.default_rng(3)
VALUES = [random.standard_normal((2, 3)).astype("f"), random.standard_normal(3).astype("f")]
GRADIENTS = [[random.standard_normal(one.shape).astype("f") for one in VALUES] for _ in range(4)]


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def two(p: list[Any], **second: Any) -> list[dict[str, Any]]:
    return [{"params": p[:1]}, {"params": p[1], **second}]


#: How each is made, by the module that has it: this one, or PyTorch's.
OPTIMISERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "SGD": lambda m, p: m.SGD(two(p, lr=0.2, weight_decay=0.1), lr=0.1, momentum=0.9),
    "Adam": lambda m, p: m.Adam(two(p, betas=(0.8, 0.9)), lr=0.1, maximize=True),
    "amsgrad": lambda m, p: m.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda m, p: m.AdamW(two(p, weight_decay=0.0), lr=0.1),
    "RMSprop": lambda m, p: m.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "Adagrad": lambda m, p: m.Adagrad(p, lr=0.1, initial_accumulator_value=0.3, lr_decay=0.5),
    "dampening": lambda m, p: m.SGD(two(p, dampening=0.0), lr=0.1, momentum=0.9, dampening=0.4),
    "decoupled": lambda m, p: m.Adam(p, lr=0.1, weight_decay=0.3, decoupled_weight_decay=True),
    "Adadelta": lambda m, p: m.Adadelta(two(p, rho=0.8), lr=0.5, weight_decay=0.1),
    "Adamax": lambda m, p: m.Adamax(two(p, betas=(0.8, 0.9)), lr=0.1, weight_decay=0.1),
    "NAdam": lambda m, p: m.NAdam(two(p, momentum_decay=0.3), lr=0.1, weight_decay=0.2),
    "late": lambda m, p: m.NAdam(p, lr=0.1, weight_decay=0.2, decoupled_weight_decay=True),
    "RAdam": lambda m, p: m.RAdam(two(p, betas=(0.9, 0.9)), lr=0.1, weight_decay=0.2),
    "rectified": lambda m, p: m.RAdam(p, lr=0.1, betas=(0.7, 0.95), maximize=True),
    "Rprop": lambda m, p: m.Rprop(two(p, etas=(0.4, 1.3)), lr=0.1),
    "ASGD": lambda m, p: m.ASGD(two(p, t0=1.0), lr=0.1, lambd=0.2, weight_decay=0.1),
    "Adafactor": lambda m, p: m.Adafactor(two(p, eps=(1e-3, 0.1), d=0.5), weight_decay=0.1),
    "Lion": lambda m, p: m.Lion(p, lr=0.1), "LARS": lambda m, p: m.LARS(p, lr=0.1),
    "LAMB": lambda m, p: m.LAMB(p, lr=0.1), "Muon": lambda m, p: m.Muon(p, lr=0.1)}


def parameters() -> list[Tensor]:
    return [Tensor(one, requires_grad=True) for one in VALUES]


def steps(optimizer: Any, given: list[Any], gradients: list[list[np.ndarray]],
          made: Callable[[np.ndarray], Any] = Tensor) -> list[np.ndarray]:
    for each in gradients:
        for parameter, gradient in zip(given, each, strict=True):
            parameter.grad = made(gradient)
        optimizer.step()
    return [one.detach().numpy() for one in given]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    given, make = parameters(), OPTIMISERS[name]
    optimizer = make(nn.optim, given)
    half = steps(optimizer, given, GRADIENTS[:2])
    saving.save(optimizer.state_dict(), tmp_path / "state")
    wanted = steps(optimizer, given, GRADIENTS[2:])
    again = [Tensor(one, requires_grad=True) for one in half]
    other = make(nn.optim, again)
    other.param_groups[0]["lr"] = 7.0
    other.load_state_dict(saving.load(tmp_path / "state"))
    for one, two in zip(steps(other, again, GRADIENTS[2:]), wanted, strict=True):
        assert np.array_equal(one, two)


def test_a_group_takes_parameters_that_are_generated() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    optimizer = nn.optim.SGD([{"params": model[0].parameters(), "lr": 0.5},
                              {"params": iter([model[1].weight])}], lr=0.1)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 1]
    optimizer.add_param_group({"params": (one for one in [model[1].bias])})
    before = [one.numpy() for one in model.parameters()]
    model(Tensor.ones(4, 2)).sum().backward()
    optimizer.step()
    assert all((one.numpy() != old).any() for one, old in zip(
        model.parameters(), before, strict=True))


def test_steps_of_doubles_have_all_their_digits() -> None:
    for make, wanted in ((nn.optim.SGD, 1 - 0.1), (nn.optim.Adam, 1 - 0.1 / (1 + 1e-8))):
        weight = Tensor(np.ones(1), requires_grad=True)
        optimizer = make([weight], lr=0.1)
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert np.allclose(steps(optimizer, [weight], [[np.ones(1)]])[0], wanted, rtol=1e-15)


def test_curvature_is_followed_as_torch_does() -> None:
    """Rosenbrock's valley: the losses, and how often they are computed."""
    torch = pytest.importorskip("torch")

    def losses(library: Any, weight: Any, **options: Any) -> list[float]:
        optimizer, found = library.optim.LBFGS([weight], **options), list[float]()

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (1 - weight[0]) ** 2 + 100 * (weight[1] - weight[0] ** 2) ** 2
            loss.backward()
            found.append(loss.item())
            return loss

        for _ in range(2):
            optimizer.step(closure)
        return found

    start = np.array([-1.2, 1.0])
    for options in ({"lr": 0.1, "max_iter": 4}, {"lr": 0.5, "history_size": 2, "max_iter": 5},
                    {"line_search_fn": "strong_wolfe"},
                    {"lr": 0.3, "max_iter": 8, "line_search_fn": "strong_wolfe"}):
        wanted = losses(torch, torch.tensor(start, requires_grad=True), **options)
        found = losses(nn, Tensor(start, requires_grad=True), **options)
        assert len(found) == len(wanted) and np.allclose(found, wanted, rtol=1e-7)
    with pytest.raises(ArgumentError, match="there is no closure"):
        nn.optim.LBFGS([Tensor(start, requires_grad=True)]).step()


def test_an_optimiser_goes_on_where_that_of_torch_was() -> None:
    # What torch.optim.Adam(...).state_dict() gives: its names, lists of numbers, arrays.
    first, second = np.array([1, -2], np.float32), np.array([4, 9], np.float32)
    state = {"step": np.float32(3), "exp_avg": first, "exp_avg_sq": second}
    gradient = np.array([2, 3], np.float32)
    weight = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = nn.optim.Adam([weight], lr=7.0)
    optimizer.load_state_dict({"state": {0: state}, "param_groups": [
        {"lr": 0.1, "betas": [0.9, 0.99], "eps": 0.5, "weight_decay": 0, "amsgrad": False,
         "maximize": False, "foreach": None, "capturable": False, "fused": None, "params": [0]}]})
    found = steps(optimizer, [weight], [[gradient]])[0]
    mean = (0.9 * first + 0.1 * gradient) / (1 - 0.9 ** 4)
    size = np.sqrt((0.99 * second + 0.01 * gradient ** 2) / (1 - 0.99 ** 4)) + 0.5
    assert np.allclose(found, [1, 2] - 0.1 * mean / size, atol=1e-6)
    assert optimizer.param_groups[0]["lr"] == 0.1 and optimizer.state[weight]["step"].item() == 4
    group = {**optimizer.state_dict()["param_groups"][0], "amsgrad": True}
    optimizer.load_state_dict({"state": {}, "param_groups": [group]})
    assert optimizer.state[weight]["max_exp_avg_sq"].tolist() == [0, 0]
    assert optimizer.state[weight]["exp_avg"].tolist() == [0, 0]


@pytest.mark.parametrize("name", [name for name in OPTIMISERS if name not in (
    "Lion", "LARS", "LAMB", "Muon")])
def test_an_optimiser_steps_and_goes_on_as_that_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = [torch.nn.Parameter(torch.tensor(one)) for one in VALUES]
    other, ours = OPTIMISERS[name](torch.optim, theirs), parameters()
    optimizer = OPTIMISERS[name](nn.optim, ours)

    def same(gradients: list[list[np.ndarray]]) -> None:
        wanted = steps(other, theirs, gradients, torch.tensor)
        for one, two in zip(steps(optimizer, ours, gradients), wanted, strict=True):
            assert np.allclose(one, two, atol=1e-5)

    same(GRADIENTS[:2])
    ours = [Tensor(one.detach().numpy(), requires_grad=True) for one in theirs]
    kind = type(optimizer)
    optimizer = kind(two(ours) if len(other.param_groups) > 1 else ours)  # no option of the other
    optimizer.load_state_dict(other.state_dict())
    same(GRADIENTS[2:])


def test_options_that_are_not_known_are_refused_and_change_nothing() -> None:
    weight = Tensor([1.0], requires_grad=True)
    sgd, adam = nn.optim.SGD([weight], lr=0.1, momentum=0.9), nn.optim.Adam([weight], lr=0.2)
    steps(adam, [weight], [[np.ones(1, np.float32)]])
    with pytest.raises(ArgumentError, match="parameter 0 has exp_avg there|has amsgrad|has betas"):
        sgd.load_state_dict(adam.state_dict())
    with pytest.raises(ArgumentError, match="a group has no amsgrad there|momentum = 0.9"):
        adam.load_state_dict(sgd.state_dict())
    saved = sgd.state_dict()
    saved["param_groups"][0] |= {"lr": 0.5, "foreach": True, "centred": False}
    sgd.load_state_dict(saved)
    assert sgd.param_groups[0]["lr"] == 0.5 and "centred" not in sgd.param_groups[0]
    saved["param_groups"][0] |= {"lr": 0.7, "centred": True}
    with pytest.raises(ArgumentError, match="a group has centred = True there"):
        sgd.load_state_dict(saved)
    assert sgd.param_groups[0]["lr"] == 0.5
    del saved["param_groups"][0]["momentum"], saved["param_groups"][0]["centred"]
    with pytest.raises(ArgumentError, match="a group has no momentum there"):
        sgd.load_state_dict(saved)
    with pytest.raises(DTypeError, match=__file__):  # the user's line, and not one of Python's
        sgd.param_groups[0].update({"lr": "fast"})


def test_a_state_of_another_optimiser_is_refused_and_changes_nothing() -> None:
    given = parameters()
    optimizer = nn.optim.Adam(given, lr=0.1)
    saved = optimizer.state_dict()
    with pytest.raises(DTypeError, match="it has no state and param_groups"):
        optimizer.load_state_dict({"a": Tensor([1.0])})
    with pytest.raises(ShapeError, match=r"its groups have \[1\] parameters, those here \[2\]"):
        optimizer.load_state_dict(nn.optim.Adam(parameters()[:1]).state_dict())
    saved["param_groups"][0] |= {"lr": 0.3, "params": [1, 0]}
    with pytest.raises(ShapeError, match=r"exp_avg of parameter 0 has shape \(3,\) there"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_what_an_optimiser_remembers_is_found_and_can_be_spread() -> None:
    pair = ("REFERENCE", "REFERENCE:1")
    layer, x = nn.Linear(2, 2), Tensor.ones(2, 2)
    optimizer = nn.optim.Adam(layer.parameters(), lr=0.1)
    names = nn.state.get_state_dict(optimizer)
    assert {name.rpartition(".")[2] for name in names} >= {"exp_avg", "exp_avg_sq", "step"}
    for tensor in nn.state.get_parameters([layer, optimizer]):
        tensor.shard_(pair)
    with Tensor.train():
        layer(x.shard(pair, axis=0)).sum().backward()
        optimizer.step()
    device: Any = layer.weight.device
    assert device == pair


def test_groups_are_dicts_and_more_of_them_can_come() -> None:
    first, second = parameters()
    optimizer = nn.optim.SGD([first], lr=0.5)
    optimizer.add_param_group({"params": [second], "lr": 0.25})
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.25]
    assert optimizer.param_groups[1]["params"] == [second] and len(optimizer.params) == 2
    for group in optimizer.param_groups:
        group["lr"] *= 2
    found = steps(optimizer, [first, second], GRADIENTS[:1])
    assert np.allclose(found[0], VALUES[0] - GRADIENTS[0][0])
    assert np.allclose(found[1], VALUES[1] - 0.5 * GRADIENTS[0][1])
    optimizer.lr.assign(0.125)
    assert optimizer.param_groups[0]["lr"] == 0.125
    with pytest.raises(ArgumentError, match="a parameter is in two groups"):
        optimizer.add_param_group({"params": [second]})
    with pytest.raises(ArgumentError, match="a group has no option momentums"):
        optimizer.add_param_group({"params": [Tensor([1.0])], "momentums": 1})
    optimizer.zero_grad(set_to_none=False)
    assert first.grad is not None and not first.grad.numpy().any()
    optimizer.zero_grad()
    assert first.grad is None


def test_a_captured_step_sees_the_rate_of_its_group() -> None:
    weight = Tensor([4.0], requires_grad=True)
    optimizer = nn.optim.SGD([weight], lr=0.5)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()
        return (weight * 1).detach()

    for rate in (0.5, 0.5, 0.5, 0.25, 0.0):
        optimizer.param_groups[0]["lr"] = rate
        last = step(Tensor([1.0]))
    assert last.tolist() == [2.25] and step.explain().startswith("step: 5 calls, 3 replayed")


SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "StepLR": lambda s, o: s.StepLR(o, 2), "PolynomialLR": lambda s, o: s.PolynomialLR(o, 4, 2.0),
    "LambdaLR": lambda s, o: s.LambdaLR(o, [lambda n: 0.5 ** n, lambda n: 1.0]),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.5, 3),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, [0.5, 1.0], 12),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 3), s.ExponentialLR(o, 0.9)], [3])}
#: What the rates of the second group, which begins at 0.2, are there after 0 to 7 steps.
RATES = {
    "StepLR": [.2, .2, .02, .02, .002, .002, .0002, .0002],
    "PolynomialLR": [.2, .1125, .05, .0125, 0, 0, 0, 0], "LambdaLR": [.2] * 8,
    "ConstantLR": [.1, .1, .1, .2, .2, .2, .2, .2],
    "SequentialLR": [.02, .08, .14, .2, .18, .162, .1458, .13122]}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        groups: list[dict[str, Any]] = [{"params": [Tensor([1.0])], "lr": 0.4},
                                        {"params": [Tensor([2.0])]}]
        optimizer = nn.optim.SGD(groups, lr=0.2)
        return optimizer, SCHEDULES[name](nn.lr_scheduler, optimizer)

    optimizer, schedule = made()
    found = [optimizer.param_groups[1]["lr"]]
    for number in range(7):
        if number == 4:
            saving.save(schedule.state_dict(), tmp_path / "state")
            optimizer, schedule = made()
            schedule.load_state_dict(saving.load(tmp_path / "state"))
            assert optimizer.param_groups[1]["lr"] == found[-1]
        schedule.step()
        found.append(optimizer.param_groups[1]["lr"])
        assert schedule.get_last_lr()[1] == found[-1]
    if name in RATES:
        assert np.allclose(found, RATES[name])
    if name == "CosineAnnealingWarmRestarts":
        assert found[0] == found[3] and np.isclose(found[1], 0.01 + 0.19 * (1 + 0.5) / 2)


def groups(m: Any, tensors: list[Any]) -> Any:
    return m.SGD([{"params": tensors[:1]}, {"params": tensors[1:], "lr": 0.05}], lr=0.2,
                 momentum=0.9)


#: Schedules by the module that has them; and those that set the rate whatever it was.
OF_TORCH: dict[str, Callable[[Any, Any], Any]] = {
    "StepLR": lambda s, o: s.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 5, 5], 0.3),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.25, 4),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.2, 0.9, 5),
    "LinearLR of none": lambda s, o: s.LinearLR(o, 0.2, 0.9, 0),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 6, 2.0),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 5, 0.01),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.02),
    "LambdaLR": lambda s, o: s.LambdaLR(o, [lambda n: 0.9 ** n, lambda n: 1 / (n + 1)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda n: 0.95 if n % 2 else 0.5),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 3), s.CosineAnnealingLR(o, 4), s.ExponentialLR(o, 0.5)],
        [3, 7]),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9), s.StepLR(o, 2)])}
CYCLES: dict[str, Callable[[Any, Any], Any]] = {
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.5, 10),
    "three phases": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.3], 10, three_phase=True, anneal_strategy="linear", base_momentum=[0.7, 0.8]),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 3, 2, mode="triangular2"),
    "exp_range": lambda s, o: s.CyclicLR(o, [0.01, 0.02], 0.1, 3, mode="exp_range", gamma=0.9),
    "scale_fn": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 2, scale_fn=lambda x: 1 / x)}


def in_force(optimizer: Any) -> list[float]:
    return [group[name] for group in optimizer.param_groups for name in ("lr", "momentum")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", [(name,) for name in (*OF_TORCH, *CYCLES)] + [
    ("LinearLR", "CosineAnnealingLR"), ("ConstantLR", "SequentialLR"), ("StepLR", "MultiStepLR"),
    ("PolynomialLR", "ExponentialLR"), ("ChainedScheduler", "MultiplicativeLR")], ids=" ".join)
def test_rates_are_those_of_torch(names: tuple[str, ...]) -> None:
    """Of one schedule or of two, at once and one after the other, and with a rate set by hand."""
    torch = pytest.importorskip("torch")
    every = {**OF_TORCH, **CYCLES}

    def found(optimizer: Any, modules: Any) -> Iterator[list[float]]:
        running = [every[name](modules, optimizer) for name in names]
        for number in range(9):
            optimizer.step()
            for one in running:
                one.step()
            yield in_force(optimizer)
            if number == 3 and names[0] not in CYCLES:
                for group in optimizer.param_groups:
                    group["lr"] *= 0.37
        late = every[names[0]](modules, optimizer)
        for _ in range(4):
            late.step()
            yield [*in_force(optimizer), *late.get_last_lr()]

    theirs = groups(torch.optim, [torch.nn.Parameter(torch.ones(1)) for _ in range(2)])
    ours = groups(nn.optim, [Tensor([1.0]), Tensor([2.0])])
    for one, other in zip(found(ours, nn.lr_scheduler), found(theirs, torch.optim.lr_scheduler),
                          strict=True):
        assert np.allclose(one, other, rtol=1e-6, atol=1e-9)


def test_schedules_go_on_from_the_rate_in_force() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    first = nn.lr_scheduler.StepLR(optimizer, 1, 0.5)
    first.step()
    first.step()
    second = nn.lr_scheduler.ExponentialLR(optimizer, 0.1)
    second.step()
    assert np.isclose(optimizer.param_groups[0]["lr"], 0.025)
    optimizer.param_groups[0]["lr"] = 8.0
    first.step()
    second.step()
    assert np.isclose(optimizer.param_groups[0]["lr"], 0.4) and second.get_last_lr() == [0.4]
    cycle = nn.lr_scheduler.OneCycleLR(nn.optim.Adam([Tensor([1.0])]), 1.0, 4)
    betas = []
    for _ in range(3):
        cycle.step()
        betas.append(cycle.optimizer.param_groups[0]["betas"][0])
    assert np.allclose(betas, [0.868826, 0.921694, 0.95], atol=1e-4)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
@pytest.mark.parametrize("cycle", [lambda o: nn.lr_scheduler.OneCycleLR(o, 0.1, 8),
                                   lambda o: nn.lr_scheduler.CyclicLR(o, 0.01, 0.1, 3)])
def test_a_captured_step_sees_the_momentum_of_a_schedule(cycle: Any, kind: str) -> None:
    found = []
    for captured in (True, False):
        weight = Tensor([[1.0, -2.0], [3.0, 0.5]], requires_grad=True)
        more = {} if kind == "Adam" else {"momentum": 0.9}
        optimizer = getattr(nn.optim, kind)([weight], lr=0.1, **more)
        schedule = cycle(optimizer)

        def descend(x: Tensor, weight: Tensor = weight, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            (x @ weight).square().sum().backward()
            optimizer.step()
        step: Any = TinyJit(descend) if captured else descend
        for turn in range(6):
            step(Tensor([[1.0, turn]]).realize())
            schedule.step()
            found.append(weight.tolist())
        if captured:
            assert step.replays == 4
        group = optimizer.param_groups[0]
        assert isinstance(group["betas"][0] if kind == "Adam" else group["momentum"], float)
    assert np.allclose(found[:6], found[6:], rtol=1e-5)


@pytest.mark.parametrize(("make", "words"), [
    (lambda s, o: s.StepLR(o, 0), "step_size is 0"),
    (lambda s, o: s.CosineAnnealingLR(o, 0), "T_max is 0"),
    (lambda s, o: s.CosineAnnealingWarmRestarts(o, 0), "T_0 is 0"),
    (lambda s, o: s.LambdaLR(o, [abs, abs, abs]), "3 of lr_lambda for 1 groups"),
    (lambda s, o: s.MultiplicativeLR(o, 0.5), "lr_lambda is 0.5"),
    (lambda s, o: s.ConstantLR(o, 2.0), "factor is 2.0"),
    (lambda s, o: s.LinearLR(o, 0.0), "start_factor is 0.0"),
    (lambda s, o: s.OneCycleLR(o, 1.0), "the number of steps is not known"),
    (lambda s, o: s.OneCycleLR(o, [1.0, 2.0], 3), "2 of max_lr for 1 groups"),
    (lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1.0, 2.0]), "2 of min_lr for 1 groups"),
    (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]), "1 schedules have 1 milestones"),
    (lambda s, o: s.ChainedScheduler([]), "there are no schedules"),
    (lambda s, o: s.StepLR([o], 1), "list is no optimizer"),
    (lambda s, o: s.StepLR(o, 1, last_epoch=3), "a group has no initial_lr")])
def test_schedules_that_cannot_be_are_refused(make: Callable[[Any, Any], Any],
                                              words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make(nn.lr_scheduler, nn.optim.SGD([Tensor([1.0])], lr=1.0))


def test_a_rate_falls_where_nothing_becomes_better() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])], lr=1.0)
    schedule = nn.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, cooldown=1, factor=0.5)
    found = []
    for measure in (3, 2, 2, 2, 2, 1.99999, 2, 1, 5):
        schedule.step(Tensor(float(measure)))
        found.append(optimizer.param_groups[0]["lr"])
    assert found == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25]
    with pytest.raises(ArgumentError, match="no measure is given"):
        schedule.step()
    again = nn.lr_scheduler.ReduceLROnPlateau(nn.optim.SGD([Tensor([1.0])], lr=1.0))
    again.load_state_dict(schedule.state_dict())
    assert again.best == 1 and again.optimizer.param_groups[0]["lr"] == 0.25


def test_a_step_with_gradients_that_are_not_finite_is_left_out() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = nn.optim.SGD([weight], lr=0.5)
    scaler = GradScaler(init_scale=8.0, growth_interval=2)
    found = []
    for x in (1.0, 1.0, math.inf, 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append((weight.tolist()[0], scaler.get_scale()))
    assert found == [(0.5, 8), (0, 16), (0, 8), (-0.5, 8)]
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(ArgumentError, match="the gradients are divided already"):
        scaler.unscale_(optimizer)
    again = GradScaler()
    again.load_state_dict(scaler.state_dict())
    assert again.state_dict() == scaler.state_dict() and again.get_scale() == 8


def test_means_of_weights() -> None:
    model = nn.Linear(2, 1, bias=False)
    moving, equal = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5)), \
        AveragedModel(model)
    for value in (2.0, 4.0, 9.0):
        model.weight.assign(value)
        moving.update_parameters(model)
        equal.update_parameters(model)
    assert moving.module.weight.tolist() == [[6.0, 6.0]]
    assert equal(Tensor([[1.0, 1.0]])).tolist() == [[10.0]]
    assert not equal.module.weight.requires_grad and equal.n_averaged.item() == 3
    again = AveragedModel(nn.Linear(2, 1, bias=False))
    again.load_state_dict(equal.state_dict())
    model.weight.assign(13.0)
    again.update_parameters(model)
    assert again.module.weight.tolist() == [[7.0, 7.0]]


def test_random_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    Tensor.manual_seed(2 ** 40 + 5)
    Tensor.rand(3)
    saving.save({"random": Tensor.get_rng_state()}, tmp_path / "state")
    wanted = Tensor.rand(4).tolist()
    Tensor.manual_seed(1)
    Tensor.set_rng_state(saving.load(tmp_path / "state")["random"])
    assert Tensor.rand(4).tolist() == wanted
    with pytest.raises(DTypeError, match=r"set_rng_state: .* is no state of random numbers"):
        Tensor.set_rng_state([1, 2])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "all"
    given: dict[Any, Any] = {
        "a": [Tensor([1.0, 2.0]), (1, 2.5, None, True, "text", -math.inf)], 3: {}, None: [],
        "b": {"a": np.arange(3, dtype=np.int16)}, "c": np.float32(0.5)}
    saving.save(given, path)
    found = saving.load(path, map_location="REFERENCE")
    assert found["a"][0].tolist() == [1, 2] and found["a"][1] == given["a"][1]
    assert found["b"]["a"].tolist() == [0, 1, 2] and (found[3], found[None]) == ({}, [])
    assert found["c"] == 0.5
    assert list(nn.state.safe_load(path)) == ["a.0", "b.a"]
    saving.save(Tensor([1, 2]), path)
    assert saving.load(path).tolist() == [1, 2]
    alike = {"a": {"b": Tensor([1])}, "a.b": Tensor([2]), 1: Tensor([3]), "1": Tensor([4])}
    saving.save(alike, path)  # paths that are the same as texts
    found = saving.load(path)
    assert found["a"]["b"].item() == 1
    assert [found[key].item() for key in ("a.b", 1, "1")] == [2, 3, 4]
    with pytest.raises(DTypeError, match="save: model is a Linear"):
        saving.save({"model": nn.Linear(2, 3)}, path)
    with pytest.raises(ArgumentError, match="map_location is <function"):
        saving.load(path, map_location=lambda storage, place: storage)
    nn.state.safe_save({"tensor": Tensor([1])}, path, {
        "format": "tensor-schedule/tree/1", "tree": '{"keys": ["a"], "values": [{"tuple": 3}]}'})
    with pytest.raises(DTypeError, match="load: .* is damaged"):
        saving.load(path)


def test_files_of_numpy_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, a=np.arange(3), b=np.ones((2, 2), np.float16))
    found = saving.load(path)
    assert found["a"].tolist() == [0, 1, 2] and found["b"].dtype.name == "float16"
    np.save(tmp_path / "one.npy", np.arange(4.0))
    assert saving.load(tmp_path / "one.npy").tolist() == [0, 1, 2, 3]
    np.savez(path, a=np.array([{}], object))
    with pytest.raises(DTypeError, match="load: .* has other things than arrays of numbers"):
        saving.load(path)
    whole = (tmp_path / "one.npy").read_bytes()
    for damaged in (whole[:20], whole[:-3], whole.replace(b"(4,)", b"(9,)")):
        path.write_bytes(damaged)
        with pytest.raises(DTypeError, match="is damaged"):
            saving.load(path)
