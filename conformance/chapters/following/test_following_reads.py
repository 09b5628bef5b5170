"""What a captured function reads besides its arguments, and what nobody can follow."""
from __future__ import annotations

import collections
import copy
import functools
import pickle
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from conformance.chapters.following import bodies, loops
from conformance.runner import captured, changed
from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, Variable, nn
from impl.errors import ReplayError
from impl.nn import functional
from impl.tensor.autograd import GradientMode
from impl.torch import manual_seed


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


@verifies("replay.guard.complete", observe="replay")
@verifies("following.reads.places", observe="replay")
def test_random_functions_show_what_their_bodies_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample; the whole is `python -m conformance.runner.captured`."""
    monkeypatch.setattr(captured.gc, "freeze", lambda: None)
    with Context(DEVICE="REFERENCE"):
        tally = captured.tried(range(50_000, 50_012))
    assert not tally.wrong, tally.wrong[0]
    assert tally.share > 0.7 and tally.replayed > 30, tally.line()


@pytest.mark.slow
@pytest.mark.parametrize("program", [each for each in changed.PROGRAMS if any(
    word in each.name for word in ("replaced", "adds", "carries", "generator", "import inside",
                                   "partial", "told", "of an error", "__getattr__",
                                   "environment"))], ids=str)
@verifies("replay.guard.complete", observe="replay")
@verifies("following.reads.places", observe="replay")
def test_hidden_changes_are_seen(program: changed.Changed) -> None:
    """A sample; the whole is `python -m conformance.runner.captured --known`."""
    with Context(DEVICE="REFERENCE"):
        wanted, _ = changed.played(program, lambda function: function)
        assert changed.played(program, TinyJit)[0] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["texts_as_keys", "named_tuples", "partials", "carried_state",
                                  "decorated", "flags", "managed", "smoothed", "collected",
                                  "layers_made_inside", "eval_and_back", "put_back", "namespaces",
                                  "clusters"])
@verifies("replay.guard.complete", observe="replay")
@verifies("following.reads.places", observe="replay")
def test_bodies_of_users_are_replayed(name: str) -> None:
    """A sample; the whole is `python -m conformance.runner.captured --known`."""
    make = getattr(bodies, name, None) or getattr(loops, name)
    with Context(DEVICE="REFERENCE"):
        wanted, _ = bodies.played(make, lambda function: function)
        found, step = bodies.played(make, TinyJit)
    changes = len(make().changes) - (name == "put_back")  # one of them the body undoes
    assert found == wanted and step.replays >= 2 + changes, step.explain()


@verifies("following.reads.places")
def test_a_number_of_a_class_is_compared_as_a_number() -> None:
    class Rates:
        first = 1.0

        def __init__(self) -> None:
            self.seen = 0

    class More(Rates):
        names = ("a", "b")
    with Context(DEVICE="REFERENCE"):
        more, x = More(), numbers(1.0, 2.0)
        step = TinyJit(lambda x: x * Rates.first + more.first * len(More.names))
        for turn in range(12):
            Rates.first = float(1 + turn // 4)
            More.names = tuple("abc"[:2 + turn // 8])  # type: ignore[assignment]
            wanted = [each * Rates.first + Rates.first * len(More.names) for each in (1.0, 2.0)]
            assert step(x).tolist() == wanted
        assert step.replays == 8, step.explain()


@verifies("following.reads.places")
@pytest.mark.parametrize("body", [
    lambda x, o: x + dir(o).count("extra"), lambda x, o: x + ("extra" in dir(o)),
    lambda x, o: x + len([name for name in dir(o) if not name.startswith("_")]),
    lambda x, o: x + len(sorted(dir(o)))])
def test_the_names_that_an_object_has_are_read(body: Any) -> None:
    class Known:
        def __init__(self) -> None:
            self.first = 1.0
    with Context(DEVICE="REFERENCE"):
        known = Known()
        step = TinyJit(lambda x: body(x, known))
        for turn in range(9):
            if turn == 4:
                known.extra = 2.0  # type: ignore[attr-defined]
            if turn == 6:
                Known.more = 3.0  # type: ignore[attr-defined]
            assert step(numbers(1.0)).tolist() == body(numbers(1.0), known).tolist()
        assert step.replays >= 4


@verifies("following.reads.places")
def test_a_class_of_python_whose_text_names_itself_is_followed() -> None:
    rates = {"a": 1.0}
    chain = collections.ChainMap({"b": 1.0}, rates)
    with Context(DEVICE="REFERENCE"):
        step = TinyJit(lambda x: x * chain["a"] + len(repr(chain)))
        for turn in range(9):
            rates["a"] = float(1 + turn // 3)
            assert step(numbers(1.0)).tolist() == [rates["a"] + len(repr(chain))]


@verifies("following.traced.reason", observe="replay")
def test_what_a_library_does_is_named_with_the_line_of_the_user() -> None:
    weight = numbers(1.0, 2.0).requires_grad_()
    optimizer = nn.optim.SGD([weight], lr=0.5)
    scheduler = nn.lr_scheduler.StepLR(optimizer, 2)

    def scheduled(x: Tensor) -> Tensor:
        (x * weight).sum().backward()
        optimizer.step()
        scheduler.step()
        return x

    def replaced(x: Tensor) -> Tensor:
        return x + int(copy.copy(weight).ndim)

    for body, line, said in ((scheduled, 3, "call scheduler.step() after the captured function"),
                             (replaced, 1, "instead:")):
        step = TinyJit(body)
        for _ in range(3):
            step(numbers(1, 1))
        assert f"{__file__}:{body.__code__.co_firstlineno + line} " in step.explain()
        assert said in step.explain() and (step.replays, step.traces) == (0, 2)


@dataclass
class Settings:
    rate: float = 1.0
    parts: list[float] = field(default_factory=lambda: [1.0])


@verifies("replay.guard.complete", observe="replay")
@verifies("following.reads.places", observe="replay")
def test_the_text_of_a_data_class_reads_its_fields() -> None:
    settings = Settings()

    def lengthened(x: Tensor) -> Tensor:
        if x.ndim > 9:
            raise ValueError(f"too many axes for {settings}")
        return x * len(f"{settings}")
    step = TinyJit(lengthened)
    changes: list[Callable[[], Any]] = [
        lambda: None, lambda: setattr(settings, "rate", 2.125), lambda: settings.parts.append(3.0)]
    for change in changes:
        change()
        assert [step(numbers(1)).item() for _ in range(4)] == [len(repr(settings))] * 4
    assert step.replays == 2 + 3 + 3, step.explain()


class Stages:
    def __init__(self, count: int) -> None:
        self.count, self.mode, self.last = count, "up", None
        for number in range(count):
            setattr(self, f"layer{number}", functools.partial(Tensor.mul, 2.0 + number))

    def go_up(self, x: Tensor) -> Tensor:
        return x * 10

    def go_down(self, x: Tensor) -> Tensor:
        return x / 10

    def __call__(self, x: Tensor) -> Tensor:
        for number in range(self.count):
            x = getattr(self, f"layer{number}")(x)
        return getattr(getattr(self, "go_" + self.mode)(x), "".join(["re", "lu"]))()


@verifies("replay.guard.complete", observe="replay")
@verifies("following.reads.places", observe="replay")
def test_names_that_are_computed_are_followed_by_how_they_begin() -> None:
    stages = Stages(2)
    step = TinyJit(stages)
    assert [step(numbers(1)).item() for _ in range(4)] == [60] * 4 and step.replays == 2
    stages.mode = "down"
    assert round(step(numbers(1)).item(), 3) == 0.6
    stages.layer1 = lambda x: x - 9  # type: ignore[attr-defined]
    assert [step(numbers(1)).item() for _ in range(3)] == [0] * 3 and step.replays == 4
    Stages.go_down = lambda self, x: x * x  # type: ignore[method-assign]
    assert step(numbers(1)).item() == 49
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tensor, "relu", lambda x: x + 1)
        assert step(numbers(1)).item() == 50


@verifies("replay.guard.complete", observe="replay")
@verifies("following.traced.reason", observe="replay")
def test_what_is_left_outside_is_the_argument() -> None:
    """Also in a call that is captured, whose body works on stand-ins."""
    outside = types.SimpleNamespace(last=None, parts=None)

    def body(x: Tensor) -> Tensor:
        outside.last = x
        outside.parts = x.split(1)
        return x + 1

    step = TinyJit(body)
    for _ in range(6):
        outside.last = outside.parts = None
        x = numbers(1, 2)
        assert step(x).tolist() == [2, 3] and outside.last is x
        outside.parts[1].assign(numbers(7))
        assert x.tolist() == [1, 7]
    assert step.replays == 0 and "outside" in step.explain()


class Holder:
    scale, table = 2.0, {"a": 1.0}

    def __init__(self) -> None:
        self.k = 1.0

    @property
    def twice(self) -> float:
        return self.k * 2

    @staticmethod
    @TinyJit
    def still(x: Tensor) -> Tensor:
        return x * Holder.scale

    @TinyJit
    def method(self, x: Tensor) -> Tensor:
        return x * self.twice + self.scale


def default(x: Tensor, by: float = 2.0, *, more: float = 1.0) -> Tensor:
    return x * by + more


@verifies("replay.guard.complete", observe="replay")
@verifies("following.reads.places", observe="replay")
def test_methods_partials_defaults_and_closures() -> None:
    holder = Holder()
    assert [holder.method(numbers(1)).item() for _ in range(4)] == [4] * 4
    holder.k = 3.0
    assert [holder.method(numbers(1)).item() for _ in range(3)] == [8] * 3
    assert [holder.still(numbers(1)).item() for _ in range(4)] == [2] * 4
    Holder.scale = 5.0
    try:
        assert holder.still(numbers(1)).item() == 5 and holder.method(numbers(1)).item() == 11
    finally:
        Holder.scale = 2.0
    part = TinyJit(functools.partial(default, more=3.0))
    assert [part(numbers(1)).item() for _ in range(4)] == [5] * 4 and part.replays == 2
    default.__defaults__ = (4.0,)
    try:
        assert part(numbers(1)).item() == 7
    finally:
        default.__defaults__ = (2.0,)


@verifies("replay.guard.complete", observe="replay")
def test_training_optimisers_and_gradients() -> None:
    layer = nn.Linear(2, 2)
    x = numbers(1, 2).reshape(1, 2)
    drop = TinyJit(lambda x: layer(x).dropout(0.999999))
    with Tensor.train():
        assert not any(drop(x).numpy().any() for _ in range(4))
    assert drop(x).numpy().any()
    results = []
    for captured_one in (False, True):
        weight = numbers(1.0, 2.0)
        weight.requires_grad = True
        optimizer: Any = nn.optim.SGD([weight], lr=0.5)

        def step(x: Tensor, weight: Tensor = weight, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = (weight * x).sum()
            loss.backward()
            optimizer.step()
            return loss
        call: Callable[..., Any] = TinyJit(step) if captured_one else step
        with Tensor.train():
            for turn in range(8):
                if turn == 4:
                    optimizer.lr = 0.25
                if turn == 6:
                    optimizer.weight_decay = 0.5
                call(numbers(1, 1))
        results.append(weight.tolist())
    assert results[0] == results[1]


@verifies("following.traced.reason", observe="replay")
def test_what_cannot_be_followed_is_named_with_its_line() -> None:
    table, which, holder = {"a": 1.0}, numbers(1), types.SimpleNamespace(k=1.0, k2=2.0)

    def clock(x: Tensor) -> Tensor:
        return x + time.time() * 0

    def writes(x: Tensor) -> Tensor:
        table["a"] = 2.0
        return x

    def computed(x: Tensor) -> Tensor:
        name = "".join(["k", "2"][: x.ndim])
        found: Tensor = x * getattr(holder, name)
        return found

    large = np.zeros(1 << 16, np.float32)
    for body, said in ((clock, "time.time"), (writes, "an item of table"),
                       (computed, "whose name is computed"),
                       (lambda x: x + Tensor(large).sum(), "an array of")):
        step = TinyJit(body)
        for _ in range(4):
            step(which)
        assert (step.replays, step.traces) == (0, 3)
        assert f"{__file__}:" in step.explain() and said in step.explain(), step.explain()
        assert "instead:" in step.explain()


@verifies("following.traced.reason", observe="replay")
def test_what_holds_another_value_after_each_call_is_named() -> None:
    counter = types.SimpleNamespace(steps=0, mode="a")

    def counts(x: Tensor) -> Tensor:
        counter.mode = "b"
        counter.steps += 1
        counter.mode = "a"
        return x * counter.steps
    step = TinyJit(counts)
    assert [step(numbers(1)).item() for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert step.replays == 0 and counter.steps == 6
    assert "changes counter.steps" in step.explain() and "counter.mode" not in step.explain()


@verifies("replay.refused.kind", observe="replay")
def test_generators_and_coroutines_are_refused() -> None:
    def generator(x: Tensor) -> Iterator[Tensor]:
        yield x

    async def coroutine(x: Tensor) -> Tensor:
        return x

    for function in (generator, functools.partial(generator), coroutine, staticmethod(default)):
        with pytest.raises(ReplayError) as caught:
            TinyJit(function)
        assert caught.value.remedy


@TinyJit
def named(x: Tensor) -> Tensor:
    return x * 2


@verifies("replay.pickle.again", observe="replay")
def test_captured_functions_are_pickled_and_copied() -> None:
    for _ in range(3):
        named(numbers(1))
    assert pickle.loads(pickle.dumps(named)) is named is copy.deepcopy(named)
    other = pickle.loads(pickle.dumps(TinyJit(default, trust=True)))
    assert other.trust and [other(numbers(1)).item() for _ in range(3)] == [3] * 3
    holder = Holder()
    holder.method(numbers(1))
    twin = copy.deepcopy(holder)
    twin.k = 5.0
    assert [twin.method(numbers(1)).item() for _ in range(3)] == [12] * 3
    assert holder.method(numbers(1)).item() == 4


@verifies("following.reads.places", observe="replay")
@pytest.mark.parametrize("body", [
    lambda x: functional.softmax(x, 0), lambda x: functional.mse_loss(x, x * 2),
    lambda x: functional.softplus(x) if x.shape[0] < 9 else functional.normalize(x)])
def test_functions_that_are_methods_are_replayed(body: Callable[[Tensor], Tensor]) -> None:
    step = TinyJit(body)
    for turn in range(4):
        assert step(numbers(turn, 1)).tolist() == body(numbers(turn, 1)).tolist()
    assert step.replays == 2


@verifies("replay.guard.complete", observe="replay")
def test_a_method_that_is_given_another_function() -> None:
    """A new captured function may lie where one lay that is gone."""
    holder, kind = Holder(), type("Kind", (Holder,), {})
    holder.__class__ = kind
    kind.method = TinyJit(lambda self, x: x * 2)  # type: ignore[attr-defined]
    assert holder.method(numbers(1)).item() == 2
    gone, = (vars(holder)[name] for name in vars(holder) if "captured" in name)
    kind.method = TinyJit(lambda self, x: x * 3)  # type: ignore[attr-defined]
    holder.method(numbers(1))
    for name in [name for name in vars(holder) if "captured" in name]:
        setattr(holder, name, gone)
    assert [holder.method(numbers(1)).item() for _ in range(3)] == [3] * 3


@verifies("replay.guard.complete", observe="replay")
def test_two_threads_with_values_of_their_own() -> None:
    state = {"k": 1.0}
    step = TinyJit(lambda x: x * state["k"])
    for _ in range(3):
        step(numbers(1))
    wrong: list[Any] = []

    def call() -> None:
        for turn in range(60):
            found = step(numbers(turn)).item()
            if found not in (turn, 2.0 * turn):
                wrong.append((turn, found))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(30):
        state["k"] = 1.0 + turn % 2
    for thread in threads:
        thread.join()
    assert not wrong


@verifies("replay.guard.complete", observe="replay")
def test_results_that_are_new_objects_or_none() -> None:
    nothing = TinyJit(lambda x: None)
    assert [nothing(numbers(1)) for _ in range(4)] == [None] * 4 and nothing.replays == 2
    fresh = TinyJit(lambda x: {1, 2})
    found = [fresh(numbers(1)) for _ in range(4)]
    found[3].add(3)
    assert fresh(numbers(1)) == {1, 2} and fresh.replays == 0


@verifies("symbolic.bound.number")
@verifies("replay.sizes.same", observe="replay")
def test_bound_variables_are_numbers() -> None:
    n = Variable("n", 1, 9)
    data, rows = np.arange(12, dtype=np.float32), np.arange(100, dtype=np.float32).reshape(10, 10)
    t, m = (Tensor(each, device="REFERENCE").realize() for each in (data, rows))
    cases: list[tuple[Any, Any]] = [
        (lambda k: t[k - 1:k + 1] * 2, lambda k: data[k - 1:k + 1] * 2),
        (lambda k: m @ m[:, :k], lambda k: rows @ rows[:, :k]),
        (lambda k: (m[:k] > 5).where(m[:k], 0.0), lambda k: np.where(rows[:k] > 5, rows[:k], 0)),
        (lambda k: m.pad(((1, 1), (0, 0))).reshape(12, 10, 1).expand(12, 10, 2)[k] + 1,
         lambda k: np.pad(rows, ((1, 1), (0, 0)))[k][:, None].repeat(2, 1) + 1),
        (lambda k: t * 2 if k > 3 else t + 1, lambda k: data * 2 if k > 3 else data + 1),
        (lambda k: t * 2 if k == 3 else t + 1, lambda k: data * 2 if k == 3 else data + 1),
        (lambda k: t + k, lambda k: data + k), (lambda k: t / k, lambda k: data / k),
        (lambda k: sum((t[j] for j in range(k)), t[0] * 0), lambda k: data[:k].sum()),
        (lambda k: t * float(k) * int(k) * 2 ** k, lambda k: data * k * k * 2 ** k),
        (lambda k: [t, t * 2, t * 3, t * 4, t, t, t * 7][k],
         lambda k: data * [1, 2, 3, 4, 1, 1, 7][k])]
    for body, wanted in cases:
        step = TinyJit(body)
        for value in (1, 1, 1, 6, 3, 6):
            np.testing.assert_allclose(step(n.bind(value)).numpy(), wanted(value), 1e-5)
        assert step.replays
    with pytest.raises(TypeError):
        assert n.uop < 3  # type: ignore[operator]


#: A body, what it reads, and what is then done to that.
_STATES = [
    # containers are searched
    ("x * 2 if 'b' in L else x", "L = ['a']", "L.append('b')"),
    ("x * 2 if [3] in L else x", "a = [1]; L = (a,)", "a[0] = 3"),
    ("x * 2 if 5 in k else x", "d = {1: 1}; k = d.keys()", "d[5] = 1"),
    ("x * max(map(d.get, ['a']))", "d = {'a': 1}", "d['a'] = 5"),
    # super
    ("x * C().g()", "class B:\n  def g(s): return 1\nclass C(B):\n  def g(s): return super().g()",
     "B.g = lambda s: 7"),
    ("x * C.g()", "class B:\n  @classmethod\n  def g(c): return 1\n"
     "class C(B):\n  @classmethod\n  def g(c): return super().g()",
     "B.g = classmethod(lambda c: 7)"),
    # the class of an object, and the classes of a class
    *((body, "class P:\n  v = 1\n  def m(s): return 1\n  def __call__(s): return 1\n"
       "class Q(P):\n  v = 2\n  def m(s): return 2\n  def __call__(s): return 2\nq = P()",
       "q.__class__ = Q") for body in (
           "x * q.v", "x * q.m()", "x * q()", "x * type(q).v", "x * q.__class__.v",
           "x * 2 if isinstance(q, Q) else x", "x * 2 if type(q) is Q else x")),
    *((body, "class B: v = 1\nclass E: v = 2\nclass P(B): pass", "P.__bases__ = (E,)") for body in (
        "x * 2 if issubclass(P, B) else x", "x * P.v", "x * P().v", "x * (P.__mro__[1] is B)")),
    ("x * 2 if isinstance(q, A) else x", "import abc\nclass A(abc.ABC): pass\n"
     "class P: pass\nq = P()", "A.register(P)"),
    ("x * 2 if isinstance(q, A) else x", "class M(type):\n"
     "  def __instancecheck__(c, o): return V[0]\nclass A(metaclass=M): pass\nq = []; V = [True]",
     "V[0] = False"),
    ("x * len(P.__name__)", "class P: pass", "P.__name__ = 'abc'"),
    # an operator that a class had not
    ("x * 2 if q else x", "class P: pass\nq = P()", "P.__bool__ = lambda s: False"),
    ("x * 2 if q == 1 else x", "class P: pass\nq = P()", "P.__eq__ = lambda s, o: True"),
    ("x * 2 if callable(q) else x", "class P: pass\nq = P()", "P.__call__ = lambda s: 1"),
    # a metaclass
    *((body, "class M(type):\n  k = property(lambda c: c._k)\n  def __len__(c): return c._k\n"
       "  def __getattr__(c, name): return c._k\n  def __getitem__(c, i): return c._k\n"
       "class P(metaclass=M): _k = 1", "P._k = 5") for body in (
           "x * P.k", "x * P.other", "x * len(P)", "x * P[0]")),
    # memory
    *((body, "b = bytearray([1]); m = memoryview(b)", "b[0] = 5") for body in (
        "x * b[0]", "x * m[0]", "x * sum(b)", "x * 2 if 5 in b else x", "x * bytes(m)[0]")),
    ("x * float(a.sum())", "class S(np.ndarray): pass\na = np.ones(2).view(S)", "a[0] = 5"),
    *(("x * float(a.sum())", f"import tempfile\na = {made}", "a[...] = 5") for made in (
        "np.ma.array([1.0])", "np.ones((1, 1)).view(np.matrix)",
        "np.rec.array(np.ones(1))",
        "np.memmap(tempfile.TemporaryFile(), np.float32, 'w+', shape=(2,))")),
    ("x * float(v['f'])", "a = np.ones(2, [('f', 'f4')]); v = a[0]", "v['f'] = 5"),
    ("x * 2 if a.flags.writeable else x", "a = np.ones(2)", "a.flags.writeable = False"),
    ("x * E.A.value", "import enum\nclass E(enum.Enum): A = 1", "E.A._value_ = 5"),
    *(("x * d.k", f"class D({kind}): pass\nd = D(3); d.k = 1", "d.k = 5")
      for kind in ("int", "float", "str", "complex")),
    # texts
    *((body, "class Q:\n  n = '1'\n  def __str__(s): return s.n\nq = Q(); t = '{.n}'",
       "q.n = '222'") for body in (
           "x * len('{}'.format(q))", "x * len('%s' % q)", "x * len(t.format(q))")),
    ("x * len(str(a))", "a = np.array([1 / 3])", "np.set_printoptions(precision=4)"),
    # what calls for others
    ("x * list(map(q, [1]))[0]", "class Q:\n  n = 1\n  def __call__(s, v): return s.n\nq = Q()",
     "q.n = 5"),
    *((body, "class Q:\n  n = 1\n  def __str__(s): return s.n * 'a'\n"
       "  def sum(s, **k): return s.n\nq = Q()", "q.n = 5") for body in (
           "x * [*map(getattr, [q], ['n'])][0]", "x * len([*map(str, [q])][0])",
           "x * float(np.sum(q))")),
    ("x * pick()", "class Q:\n  n = k = 1\n  def __lt__(s, o): return s.n < o.n\n"
     "q = Q(); p = Q(); p.n = 2; p.k = 9\n"
     "def pick():\n  parts = [q, p]; parts.sort()\n  return parts[0].k", "q.n = 5"),
    ("x * operator.attrgetter('a')(q)", "import operator\nclass Q: a = 1\nq = Q()", "q.a = 5"),
    ("x * float(u(1))", "V = [1]; u = np.frompyfunc(lambda a: V[0], 1, 1)", "V[0] = 5"),
    ("x * m.a", "import types\nm = types.ModuleType('m'); V = [1]\ndef ask(name): return V[0]\n"
     "m.__getattr__ = ask", "V[0] = 5"),
    ("x * len({q, p})", "class Q:\n  n = 1\n  def __hash__(s): return 1\n"
     "  def __eq__(s, o): return s.n == o.n\nq = Q(); p = Q()", "q.n = 2"),
    ("x * object.__getattribute__(q, 'a')", "class Q: pass\nq = Q(); q.a = 1", "q.a = 5"),
    ("x * q.d", "class D:\n  k = 1\n  def __get__(s, o, t): return o.n\n"
     "class Q: d = D(); n = 1\nq = Q()", "q.n = 5")]


@pytest.mark.slow
@verifies("replay.guard.complete", observe="replay")
@verifies("following.reads.places", observe="replay")
def test_what_python_can_read_and_change() -> None:
    replayed = 0
    with Context(DEVICE="REFERENCE"), np.printoptions():
        x = numbers(1.0, 2.0)
        for body, state, change in _STATES:
            space: dict[str, Any] = {"np": np, "__name__": "states"}
            exec(f"{state}\ndef body(x): return {body}", space)
            plain: Callable[..., Any] = space["body"]
            step = TinyJit(plain)
            before = [step(x).tolist() for _ in range(3)]
            replayed += step.replays
            exec(change, space)
            after = [step(x).tolist() for _ in range(3)]
            assert after == [plain(x).tolist()] * 3 != before, (body, state, change)
    assert replayed > 40


@verifies("following.reads.places", observe="replay")
@pytest.mark.parametrize("seed", [Tensor.manual_seed, lambda n: manual_seed(n)],
                         ids=["itself", "by another name"])
def test_random_numbers_that_begin_again_are_not_replayed(seed: Callable[[int], None]) -> None:
    def body(x: Tensor) -> Tensor:
        seed(7)
        return x + Tensor.randn(2)

    with Context(DEVICE="REFERENCE"):
        x, drawn = numbers(0.0, 0.0), TinyJit(body)
        first = body(x).tolist()
        for _ in range(4):
            Tensor.randn(1)
            assert drawn(x).tolist() == first
        assert "seed outside of the function" in drawn.explain()


@verifies("replay.guard.complete", observe="replay")
def test_whether_gradients_pass_is_compared() -> None:
    with Context(DEVICE="REFERENCE"):
        w = Tensor([1.0, 2.0], requires_grad=True)
        x = numbers(3.0, 4.0)
        slope = TinyJit(lambda x: (x * w).sum().gradient(w)[0].realize())
        assert [slope(x).tolist() for _ in range(3)] == [[3.0, 4.0]] * 3 and slope.replays
        with GradientMode.off():
            assert [slope(x).tolist() for _ in range(3)] == [[0.0, 0.0]] * 3
        assert slope(x).tolist() == [3.0, 4.0]


@verifies("following.reads.places")
def test_a_model_of_layers_is_replayed_until_a_layer_is_another_one() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    captured = TinyJit(lambda x: model(x))
    x = Tensor.ones(1, 2)
    for turn in range(8):
        if turn == 5:
            model[1] = nn.Tanh()
        assert captured(x).item() == model(x).item()
    told = captured.explain()
    assert "not replayed" not in told and "used 3 times" in told


@verifies("following.reads.places", observe="replay")
def test_a_buffer_that_is_added_to_is_assigned_to() -> None:
    """`model.steps += 1` puts the same tensor where it was."""
    class Counting(nn.Module):
        def __init__(self) -> None:
            self.steps, self.other = numbers(0), numbers(7)
            self.total, self.swapped = numbers(0), False

        def __call__(self, x: Tensor) -> Tensor:
            self.steps += 1
            self.total *= 2
            self.total += x
            return x * self.steps

    model = Counting()
    step = TinyJit(lambda x: model(x))
    total = 0.0
    for turn in range(1, 7):
        total = total * 2 + turn
        assert step(numbers(turn)).item() == turn * turn and model.total.item() == total
    assert step.replays == 4
    model.steps = model.other  # another tensor: another capture
    assert step(numbers(1)).item() == 8 and model.other.item() == 8

    def swaps(x: Tensor) -> Tensor:
        model.total = model.other
        return x + model.total
    traced = TinyJit(swaps)
    assert [traced(numbers(turn)).item() for turn in range(4)] == [8, 9, 10, 11]
    for _ in range(3):
        model.total = numbers(3)  # what is put there is not what was there
        assert traced(numbers(1)).item() == 9 and model.total is model.other


@verifies("following.reads.places", observe="replay")
def test_guards_and_reasons_have_one_order() -> None:
    """Wherever in memory lies what is found: so another process tells the same."""
    first, second, third = (types.SimpleNamespace(scale=n, shift=n) for n in range(3))

    def shifted(x: Tensor, owner: Any) -> Any:
        return x + owner.shift

    def body(x: Tensor, number: int) -> Any:
        owner = first if number else second if number > 2 else third
        ways: dict[str, Any] = {"a": shifted, "b": lambda x, owner: x * owner.scale}
        chosen = ways["a" if number else "b"]
        return chosen(x, owner) if number < 9 else [time.time, time.monotonic][number]()

    orders, kept = set(), list[object]()
    for _ in range(8):
        kept += [object() for _ in range(len(kept) * 3 + 1)]  # what is made next lies elsewhere
        reads = TinyJit(body)._reads((Tensor([1.0]), 1), {})
        orders.add((*(place.path for place in reads.places.values()), *map(str, reads.reasons)))
    assert len(orders) == 1 and len(orders.pop()) > 9
