"""The last lesson lets right pipelines and steps pass, and no wrong one."""
from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import gpt, lesson_training
from conformance.learn.lesson import published
from conformance.learn.lesson_training import DERIVATIVE, GIVEN, PARTS, PURE, SUM, training
from conformance.learn.lessons import LESSONS
from impl import Context, Tensor

solution: Any = importlib.import_module("conformance.learn.solutions.training")


def said_of(**parts: Any) -> str:
    module: Any = SimpleNamespace(pipeline=parts.get("pipeline", solution.pipeline),
                                  step=parts.get("step", solution.step))
    return "\n".join(map(str, training(module)))


def taught(loss_of: Any = None, before: bool = True, sign: int = 1, one: bool = False,
           assign: bool = True, answer: Any = None, network: Any = None) -> Any:
    """The solution's step, with some parts of it in another way."""
    def step(weights: Any, x: Any, y: Any, rate: Any) -> Any:
        w1, b1, w2, b2 = weights
        scores = network(weights, x) if network else (x @ w1 + b1).relu() @ w2 + b2
        loss = loss_of(scores, y) if loss_of else scores.sparse_categorical_crossentropy(y)
        for weight in weights:
            weight.grad = None if before else weight.grad
        loss.backward()
        for weight in weights[:1] if one else weights:
            made = weight.detach() - sign * rate * weight.grad
            if assign:
                weight.assign(made)
        return loss if answer is None else answer(loss, network or scores)
    return step


# Right, in other ways than the solution ----------------------------------------------------


def by_counting(passes: Any, given: Any) -> Any:
    """For each pass how many names are missing."""
    writer = {name: each for each in passes for name in each.gives}
    if len(writer) != sum(len(each.gives) for each in passes):
        raise ValueError("a name is written twice")
    order: list[Any] = []

    def put(each: Any, open_passes: Any) -> None:
        if each in open_passes:
            raise ValueError("a circle")
        if each in order:
            return
        for name in each.needs:
            if name in writer:
                put(writer[name], (*open_passes, each))
            elif name not in given:
                raise ValueError(f"nobody writes {name}")
        order.append(each)

    for each in passes:
        put(each, ())
    return order


def by_hand(weights: Any, x: Any, y: Any, rate: Any) -> Any:
    """The gradients written out, without `backward`."""
    w1, b1, w2, b2 = (each.detach() for each in weights)
    hidden = (x @ w1 + b1).relu()
    scores = hidden @ w2 + b2
    shifted = scores - scores.max(1, keepdim=True)
    total = shifted.exp().sum(1, keepdim=True)
    right = (y.reshape(-1, 1) == Tensor.arange(w2.shape[1])).cast("float32")
    loss = -(right * (shifted - total.log())).sum(1).mean()
    slope = (shifted.exp() / total - right) / x.shape[0]
    below = slope @ w2.T * (hidden > 0)
    slopes = x.T @ below, below.sum(0), hidden.T @ slope, slope.sum(0)
    for weight, old, each in zip(weights, (w1, b1, w2, b2), slopes, strict=True):
        weight.assign(old - rate * each)
    return loss


@pytest.mark.parametrize("parts", [
    {}, {"pipeline": by_counting}, {"step": by_hand}, {"step": taught()},
    {"step": taught(lambda scores, y: scores.log_softmax(1).gather(
        1, y.reshape(-1, 1)).mean().neg())}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert said_of(**parts) == ""


# Wrong, as one writes them -----------------------------------------------------------------


def one_sweep(passes: Any, given: Any) -> Any:
    """Each pass before the first one that needs what it gives, as far as one has come."""
    found: list[Any] = []
    for each in passes:
        places = [at for at, other in enumerate(found) if set(other.needs) & set(each.gives)]
        found.insert(min(places, default=len(found)), each)
    return found


def by_number_of_needs(passes: Any, given: Any) -> Any:
    return sorted(passes, key=lambda each: len(each.needs))


def never_refuses(passes: Any, given: Any) -> Any:
    left, there, found = list(passes), set(given), []
    while left:
        ready = next((each for each in left if there.issuperset(each.needs)), left[0])
        left.remove(ready)
        there.update(ready.gives)
        found.append(ready)
    return found


def again(passes: Any, given: Any) -> Any:
    """A pass runs whenever something that it needs has come."""
    there, found = set(given), []
    for _ in passes:
        for each in passes:
            if there.issuperset(each.needs):
                found.append(each)
                there.update(each.gives)
    return found


def overflows(scores: Any, y: Any) -> Any:
    right = y.reshape(-1, 1) == Tensor.arange(scores.shape[1])
    return -(right * (scores.exp() / scores.exp().sum(1, keepdim=True)).log()).sum(1).mean()


def summed(scores: Any, y: Any) -> Any:
    return scores.sparse_categorical_crossentropy(y) * scores.shape[0]


def new_tensors(weights: Any, x: Any, y: Any, rate: Any) -> Any:
    loss = taught(assign=False)(weights, x, y, rate)
    weights[:] = [each.detach() - rate * each.grad for each in weights]
    return loss


def one_after_the_other(weights: Any, x: Any, y: Any, rate: Any) -> Any:
    """The second layer first; the slope of the first one is taken through the new weights."""
    w1, b1, w2, b2 = (each.detach() for each in weights)
    hidden = (x @ w1 + b1).relu()
    scores = hidden @ w2 + b2
    right = (y.reshape(-1, 1) == Tensor.arange(w2.shape[1])).cast("float32")
    slope = (scores.softmax(1) - right) / x.shape[0]
    loss = scores.sparse_categorical_crossentropy(y)
    new = w2 - rate * (hidden.T @ slope)
    below = slope @ new.T * (hidden > 0)
    made = w1 - rate * (x.T @ below), b1 - rate * below.sum(0), new, b2 - rate * slope.sum(0)
    for weight, each in zip(weights, made, strict=True):
        weight.assign(each)
    return loss


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"pipeline": lambda passes, given: passes},
     f"{PURE}: fuse runs before place, which writes `placed`; it needs that"),
    ({"pipeline": one_sweep}, f"{PURE}: "),
    ({"pipeline": by_number_of_needs}, f"{PURE}: "),
    ({"pipeline": never_refuses}, f"{PURE}: nobody writes x, so there is no order"),
    ({"pipeline": again}, f"{PURE}: place runs 2 times"),
    ({"pipeline": lambda passes, given: [each.name for each in passes]},
     "raised: pipeline answers ['a'], and not a list of passes"),
    ({"step": taught(sign=-1)}, f"{DERIVATIVE}: w1["),
    ({"step": taught(one=True)}, f"{DERIVATIVE}: b1[0] was "),
    ({"step": taught(before=False)}, f"{SUM}: the loss is "),
    ({"step": taught(assign=False)}, "(it has not changed), and should be "),
    ({"step": taught(overflows)}, f"{DERIVATIVE}: the loss is nan, and should be "),
    ({"step": taught(summed)}, f"{DERIVATIVE}: the loss is "),
    ({"step": taught(network=lambda weights, x: (x @ weights[0] + weights[1]) @ weights[2]
                     + weights[3])}, f"{DERIVATIVE}: the loss is "),
    ({"step": taught(network=lambda weights, x: (x @ weights[0] + weights[1]).relu()
                     @ weights[2] + 0 * weights[3])}, f"{DERIVATIVE}: the loss is "),
    ({"step": taught(answer=lambda loss, scores: scores)}, "raised: step answers "),
    ({"step": taught(answer=lambda loss, scores: None)}, "raised: step answers None"),
    ({"step": one_after_the_other}, f"{DERIVATIVE}: w1["),
    ({"step": new_tensors}, "raised: your code raised DTypeError: backward: the result depends"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in said_of(**parts)


def test_what_a_pass_needs_and_gives_is_what_it_reads_and_writes() -> None:
    """The table of the lesson, against the drafts of the runtime."""
    draft: Any = importlib.import_module("impl.schedule.draft")
    passes: Any = importlib.import_module("impl.schedule.passes")
    pipeline: Any = importlib.import_module("impl.schedule.pipeline")
    caching: Any = importlib.import_module("impl.caching")
    realize: Any = importlib.import_module("impl.realize")
    fields = {name for each in PARTS for name in (*each.needs, *each.gives)}
    touched: list[tuple[str, str]] = []

    class Watched(draft.Draft):
        def __getattribute__(self, name: str) -> Any:
            if name in fields:
                touched.append(("reads", name))
            return super().__getattribute__(name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in fields:
                touched.append(("writes", name))
            super().__setattr__(name, value)

    with Context(DEVICE="REFERENCE"):
        x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
        effects = caching.walk([((x @ x).softmax(1).sum(0) + x[0]).uop])
        environment = realize.environment(effects)
        one = Watched(effects, caching.canonicalize(effects, environment.device_key), environment)
        for part, run in zip(PARTS, passes.PASSES, strict=True):
            touched.clear()
            one = run(one)
            assert part.name == run.__name__
            assert {name for way, name in touched if way == "writes"} == {*part.gives}
            read = {name for way, name in touched if way == "reads"} - {*part.gives, *GIVEN}
            assert read <= {*part.needs}, part
        assert pipeline.finished(one).order


def test_the_runtime_runs_its_passes_in_the_readers_order() -> None:
    module = published(importlib.import_module("impl.schedule.pipeline"))
    known: Any = module
    before = known.PASSES
    known.pipeline = solution.pipeline
    lesson_training.install(module)
    with Context(DEVICE="REFERENCE"):
        caching: Any = importlib.import_module("impl.caching")
        realize: Any = importlib.import_module("impl.realize")
        x = Tensor([1.0, 2.0]).realize()
        effects = caching.walk([(x + 1).uop])
        plan, _, _ = known.plan_for(effects, realize.environment(effects), False)
    assert len(plan.kernels) == 1 and set(known.PASSES) == set(before)


def test_the_small_gpt_learns(capsys: pytest.CaptureFixture[str]) -> None:
    """One step of it: what the page shows begins like this."""
    page = (learn.ROOT / "docs" / "course" / "training.md").read_text(encoding="utf-8")
    x, y = gpt.examples()
    assert x.shape == (*y.shape, len(gpt.LETTERS)) and (x.argmax(-1)[:, 1:] == y[:, :-1]).all()
    for said in (said_of(pipeline=lambda passes, given: passes), said_of(step=taught(one=True))):
        assert "\n".join(map(str.rstrip, said.strip().splitlines())) in page
    assert len(LESSONS["training"].hints) == 6 and "the next of six hints" in page
    module: Any = SimpleNamespace(step=solution.step)
    assert "\n".join(lesson_training.score(module)) in page
