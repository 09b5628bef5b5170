"""Calls that are like the one before them, and calls that only seem so. See spec/replay.md."""
from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor, TinyJit, Variable, dtypes, run_schedule
from impl.collectives.lanes import Sent, Stretch
from impl.cpu.programs import CPUTable
from impl.device import Device, Memory
from impl.effects import lock
from impl.errors import DeviceError, GraphError
from impl.multi import Mesh
from impl.places import Place
from impl.realize.prepared import Segments
from impl.replay.recording import Recording
from impl.tensor.parameters import dependent_bits

TURNS = 6


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def shortcuts(step: TinyJit[..., Any]) -> int:
    """How many shortcuts a function has taken."""
    return sum(entry.shortcuts for entry in step.entries)


def without_shortcuts(step: TinyJit[..., Any]) -> None:
    """Let the next call look at everything."""
    for entry in step.entries:
        entry.shortcut = None


def warm(function: Callable[..., Any], *arguments: Any) -> TinyJit[..., Any]:
    """A captured function whose calls with such arguments take shortcuts."""
    captured = TinyJit(function)
    for _ in range(4):
        captured(*arguments)
    before = shortcuts(captured)
    captured(*arguments)
    assert shortcuts(captured) == before + 1
    return captured


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "detach": lambda state: state.detach(), "reshape": lambda state: state.reshape(2, 2),
    "contiguous": lambda state: state.contiguous(),
    "assign": lambda state: (state + 9).assign(state),
    "both": lambda state: state.detach().reshape(2, 2), "copy": lambda state: state.clone()}


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.outputs.distinct", observe="replay")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_what_a_state_was_is_returned(way: str, dtype: Any) -> None:
    """By another name of its memory, before it gets another value: in each call, and afterwards."""
    state = Tensor(np.zeros(4, dtype)).realize()

    def count() -> Tensor:
        before = WAYS[way](state)
        state.assign(state + 1)
        return before

    for read in (True, False):
        step, held, start = TinyJit(count), list[Tensor](), int(state[0].item())
        for turn in range(TURNS):
            held.append(step())
            assert not read or (held[-1].numpy() == start + turn).all()
        assert [float(one.numpy().max()) for one in held] == [*range(start, start + TURNS)]
        assert (state.numpy() == start + TURNS).all()


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.outputs.distinct", observe="replay")
@verifies("replay.output.fresh", observe="replay")
def test_values_results_and_counts() -> None:
    w = numbers(2, 3)
    step = warm(lambda x, n: {"all": [x * w, (x + n).sum()], "n": n}, numbers(1, 1), 3)
    held = []
    GlobalCounters.reset()
    for turn in range(TURNS):
        held.append(step(numbers(turn, 1), 3))
    assert GlobalCounters.kernels == TURNS * (GlobalCounters.kernels // TURNS) > 0
    one, more = GlobalCounters.kernels // TURNS, GlobalCounters.bytes // TURNS
    GlobalCounters.reset()
    without_shortcuts(step)
    step(numbers(0, 1), 3)  # in full
    assert (GlobalCounters.kernels, GlobalCounters.bytes) == (one, more)
    assert step.calls == step.replays + 2 == 5 + TURNS + 1
    for turn, found in enumerate(held):
        assert found["all"][0].tolist() == [2 * turn, 3]
        assert found["all"][1].item() == turn + 1 + 6 and found["n"] == 3


@verifies("replay.output.again+3")
@pytest.mark.parametrize("size", [3, 1 << 16])
@pytest.mark.parametrize("short", [True, False])
def test_an_output_has_the_memory_of_the_one_before(short: bool, size: int) -> None:
    def memory(tensor: Tensor) -> int:
        found = tensor.uop.arg[0].memory
        assert found is not None
        return found.address

    x = Tensor(np.arange(size, dtype=np.float32)).realize()
    step = warm(lambda x: x * 2, x)
    seen = set()
    for _ in range(TURNS):
        if not short:
            without_shortcuts(step)
        seen.add(memory(step(x)))
    assert len(seen) == 1
    one, two = step(x), step(x)  # and another one while it is held
    assert memory(one) != memory(two) and one.tolist() == two.tolist()


@verifies("replay.outputs.distinct", observe="replay")
@pytest.mark.parametrize("hold", [
    lambda result: result, lambda result: result[1:].realize(), lambda result: result.numpy(),
    np.from_dlpack, lambda result: result.detach(), lambda result: result.uop,
    lambda result: result.data, lambda result: result + 0])
@pytest.mark.parametrize("short", [True, False])
def test_what_is_held_in_any_way_stays(hold: Callable[[Tensor], Any], short: bool) -> None:
    def content(held: Any) -> Any:
        held = Tensor(held) if type(held).__name__ == "UOp" else held
        return held.tolist()

    step = warm(lambda x: x * 2, numbers(0, 0, 0))
    held = []
    for turn in range(TURNS):
        if not short:
            without_shortcuts(step)
        held.append(hold(step(numbers(turn, turn, turn))))
    for turn, each in enumerate(held):
        assert {*content(each)} == {2 * turn}


def _times_a_parameter(result: Tensor) -> Callable[[], None]:
    """A gradient that asks for the result when nobody holds it any more."""
    weight = Tensor([1.0, 1.0, 1.0], requires_grad=True).realize()
    captured = TinyJit(lambda x, w: x * w)
    found = [captured(result, weight) for _ in range(4)][-1]
    value = result.tolist()

    def ask() -> None:
        try:
            found.sum().backward()
        except GraphError:
            return
        assert weight.grad is not None and weight.grad.tolist() == value
    return ask


@pytest.mark.slow
@verifies("replay.output.alone")
@pytest.mark.parametrize("size", [3, 4096])
@pytest.mark.parametrize("leave", [
    lambda result: result.requires_grad_(), lambda result: (result.requires_grad_(), None)[1],
    lambda result: (result.assign(result * 5).realize(), None)[1],
    lambda result: result.reshape(-1, 1).contiguous().realize(), lambda result: result + 1,
    lambda result: weakref.ref(result.uop), lambda result: [result.uop.arg],
    lambda result: result.requires_grad_().retain_grad(),
    lambda result: _times_a_parameter(result) if result.shape == (3,) else None])
def test_what_somebody_has_left_in_a_result_is_in_no_other(
        leave: Callable[[Tensor], Any], size: int) -> None:
    x = Tensor([1.0] * size).realize()
    step = warm(lambda x: x * 2, x)
    for turn in range(TURNS):
        x = Tensor([float(turn)] * size).realize()
        result = step(x)
        assert {*result.tolist()} == {2 * turn}
        assert not result.requires_grad and not (result * 3).requires_grad
        left = leave(result) if turn % 3 else None
        del result
        again = step(Tensor([turn + 7.0] * size).realize())
        assert {*again.tolist()} == {2 * turn + 14}
        assert not again.requires_grad and not (again * 3).requires_grad
        if callable(left) and not isinstance(left, (Tensor, weakref.ref)):
            left()
        elif isinstance(left, list):
            assert left[0][0] is not again.uop.arg[0]
        elif isinstance(left, Tensor) and left.uop.op.name == "ADD":
            assert {*left.tolist()} == {2 * turn + 1}
    assert shortcuts(step) > TURNS


@verifies("realize.failure.next+2")
@pytest.mark.parametrize("put", [True, False])
def test_an_interrupt_while_memory_is_put_in_its_place(
        put: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next calls are right, with the same argument, and with the one before it."""
    set_memory = CPUTable.set_memory

    def interrupted(table: CPUTable, launch: int, argument: int, memory: Memory) -> None:
        if put:
            set_memory(table, launch, argument, memory)
        raise KeyboardInterrupt

    first, other = numbers(1, 2), numbers(5, 6)
    step = warm(lambda x: (x.sum() * 2).contiguous() + x, first)
    held = step(first)
    for again, shown in [(other, [27, 28]), (first, [7, 8])]:
        assert step(first).tolist() == [7, 8]
        with monkeypatch.context() as patched:
            patched.setattr(CPUTable, "set_memory", interrupted)
            with pytest.raises(KeyboardInterrupt):
                step(other)
        assert step(again).tolist() == shown
    assert held.tolist() == [7, 8]


@verifies("realize.failure.next+2")
def test_an_interrupt_while_a_transfer_gets_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is given again by the next call, and what was prepared is gone by then."""
    entry, stretch, renewed = object.__new__(Sent), object.__new__(Stretch), list[Any]()
    entry.nbytes, stretch.entries = [4], [entry]

    def interrupted(stretch: Stretch, entry: Sent) -> None:
        renewed.append(entry)
        if len(renewed) == 1:
            raise KeyboardInterrupt
    monkeypatch.setattr(Stretch, "_renew", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stretch.set_size(0, [8])
    stretch.set_size(0, [8])
    assert len(renewed) == 2 and entry.nbytes == [8]


@verifies("replay.shortcut.same+3", observe="replay")
def test_a_result_that_is_handed_out_again_is_new() -> None:
    """What was computed between two calls does not depend on the second one's result."""
    whole = Tensor([1, 2, 3]).realize()
    step, other = warm(lambda x: x.float(), whole), Tensor([5.0, 6.0, 7.0]).realize()
    for _ in range(3):
        between = (other * 2).realize()
        result = step(whole)
        assert between.sum().gradient(result)[0].tolist() == [0, 0, 0]
        del result


@verifies("replay.call.interrupted")
def test_a_signal_as_the_lock_is_taken_leaves_it_free(monkeypatch: pytest.MonkeyPatch) -> None:
    step, x, real = warm(lambda x: x * 2, numbers(1, 2)), numbers(3, 4), lock.mutex

    class Interrupted:
        """A lock that was taken when the signal comes."""

        release, _is_owned = real.release, real._is_owned  # type: ignore[attr-defined]

        def acquire(self, *given: Any) -> bool:
            real.acquire(*given)
            raise KeyboardInterrupt
    monkeypatch.setattr(lock, "mutex", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        step(x)
    monkeypatch.undo()
    assert not real._is_owned() and not lock.launching  # type: ignore[attr-defined]
    assert step(x).tolist() == [6, 8]


@verifies("replay.output.again+3")
@pytest.mark.parametrize("place", ["CPU", Mesh(("CPU:0", "CPU:1"))])
def test_memory_of_which_a_part_is_held_is_not_unused(place: Place) -> None:
    memory: Memory | None = Device[place].allocate(64)
    assert memory is not None
    launch = Segments([], [[]], {})
    launch.put(0, memory)
    held: Any = memory
    assert launch.unused(0, 64) is None
    held = memory.members[-1].part(0, 4)
    memory = None
    assert launch.unused(0, 64) is None and launch.placed[0] is None or place == "CPU"
    del held
    assert (launch.unused(0, 64) is not None) is (place == "CPU")


@verifies("replay.shortcut.same+3", observe="replay")
def test_one_tensor_returned_twice() -> None:
    def both(x: Tensor) -> dict[str, Any]:
        total = x + 1
        return {"one": total, "more": [total, total * 2]}

    step = warm(both, numbers(1, 2))
    for turn in range(TURNS):
        found = step(numbers(turn, -1))
        assert found["one"] is found["more"][0] is not found["more"][1]
        assert found["one"].tolist() == [turn + 1, 0]
        assert found["more"][1].tolist() == [2 * turn + 2, 0]


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.arguments.call", observe="replay")
@pytest.mark.parametrize("given", [
    (numbers(1, 2, 3), 1), (numbers(1, 2).reshape(1, 2).contiguous().realize(), 1),
    (Tensor([1, 2]).realize(), 1), (numbers(1, 2), 2), (numbers(1, 2), True), (numbers(1, 2), 1.0),
    (numbers(1, 2),), (numbers(1, 2), 1, 1), (numbers(1, 2), numbers(1))])
def test_other_arguments(given: tuple[Any, ...]) -> None:
    x = numbers(1, 2)
    step = warm(lambda *both: both[0] * both[1] + 2, x, 1)
    try:
        wanted: Any = (given[0] * given[1] + 2).tolist()
    except Exception as error:
        with pytest.raises(type(error)):
            step(*given)
    else:
        found = step(*given)
        assert (found.tolist() if isinstance(found, Tensor) else found) == wanted
    assert step(x, 1).tolist() == [3, 4]


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.arguments.form", observe="replay")
def test_arguments_that_become_one() -> None:
    a, b = numbers(1, 2), numbers(3, 4)
    step = warm(lambda x, y: x - y, a, b)
    for pair in ((a, a), (b, b), (a, Tensor(a.uop))):
        assert step(*pair).tolist() == [0, 0]
    assert step(b, a).tolist() == [2, 2]


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.state.eager", observe="replay")
def test_states_that_are_written_moved_and_gone() -> None:
    w, x = numbers(1, 2), numbers(10, 10)
    step = warm(lambda x: x + w, x)
    w.assign(w * 3)  # in place, and not computed yet
    assert step(x).tolist() == [13, 16]
    w.assign(w + 1).realize()
    assert step(x).tolist() == [14, 17] == step(x).tolist()
    w.replace(numbers(5, 5))  # in other memory
    assert step(x).tolist() == [15, 15] == step(x).tolist()
    before = shortcuts(step)
    step(x)
    assert shortcuts(step) == before + 1
    w.replace(numbers(6, 6))
    assert [step(x).tolist() for _ in range(2)] == [[16, 16]] * 2


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.guard.complete", observe="replay")
def test_a_name_that_is_given_another_tensor() -> None:
    model = {"w": numbers(1)}
    step = warm(lambda x: x + model["w"], numbers(1))
    kept, model["w"] = model["w"], numbers(7)
    calls = step.calls
    assert step(numbers(1)).tolist() == [8]
    assert step.calls == calls + 1
    model["w"] = kept
    assert step(numbers(1)).tolist() == [2]
    del kept
    model.clear()
    with pytest.raises(KeyError):
        step(numbers(1))


@verifies("replay.shortcut.same+3", observe="replay")
def test_arguments_that_are_not_computed_or_views() -> None:
    x = numbers(1, 2, 3, 4)
    step = warm(lambda x: x * 2, x)
    assert step(x + 1).tolist() == [4, 6, 8, 10]
    assert step(x.flip(0)).tolist() == [8, 6, 4, 2]
    x[1:3] = 9
    assert step(x).tolist() == [2, 18, 18, 8]
    late = x + 5
    items = late.schedule()
    assert step(late).tolist() == [12, 28, 28, 18]
    run_schedule(items)
    assert step(x).tolist() == [2, 18, 18, 8]


@verifies("replay.shortcut.same+3", observe="replay")
def test_settings_between_the_calls() -> None:
    x = numbers(1, 2)
    step = warm(lambda x: x * 2, x)
    calls = step.calls
    with Context(JIT=0):
        assert step(x).tolist() == [2, 4] and step.calls == calls
    before = shortcuts(step)
    with Context(POISON=1):
        step(x)
    assert shortcuts(step) == before
    assert step(x).tolist() == [2, 4]
    outer = TinyJit(lambda x: step(x) + 1)
    assert [outer(x).tolist() for _ in range(4)] == [[3, 5]] * 4


@verifies("replay.shortcut.same+3", observe="replay")
def test_what_takes_no_shortcut() -> None:
    """What has sizes, or names its arguments."""
    x = numbers(1)
    naming = TinyJit(lambda x: x + 1)
    size = Variable("shortcut", 1, 4)
    sized = TinyJit(lambda x: x.sum())
    ramp = Tensor.arange(4).float().realize()

    def all_of_them() -> None:
        for turn in range(TURNS):
            assert naming(x=x).tolist() == [2]
            sized(ramp[: size.bind(1 + turn % 4)])
    all_of_them()
    assert not any(map(shortcuts, (naming, sized)))


@verifies("replay.shortcut.same+3", observe="replay")
def test_what_writes_draws_or_returns_an_argument() -> None:
    """The guards of the arguments are one function; states are looked at in each call."""
    w, x = numbers(0, 0), numbers(1, 2)

    def writing(x: Tensor) -> Tensor:
        w.assign(w * 2 + x)
        return w + x

    eager = np.zeros(2)
    step, drawing, argument = warm(writing, x), TinyJit(lambda x: x + Tensor.rand(2)), \
        TinyJit(lambda x: (x, x + 1))
    for _ in range(5):
        eager = eager * 2 + [1, 2]
    for turn in range(12):
        before = shortcuts(step)
        value, given, short = x, np.array([1.0, 2.0]), True
        if turn == 1:
            w.assign(w + 1)  # by others, and pending
            eager += 1
        elif turn == 3:
            w.replace(numbers(5, 6))  # in other memory
            eager = np.array([5.0, 6.0])
        elif turn == 5:
            value, given, short = x * 3, given * 3, False  # to be computed
        elif turn == 7:
            value, given, short = w, eager, False  # the state itself
        elif turn == 9:
            held = w + 0  # means the value of now
        elif turn == 11:
            value, short = numbers(1, 2, 3)[:2], False
        found = step(value).numpy()
        eager = eager * 2 + given
        assert np.array_equal(found, eager + (eager if turn == 7 else given)), turn
        assert np.array_equal(w.numpy(), eager), turn
        assert (shortcuts(step) > before) is short, turn
        if turn == 9:
            assert np.array_equal(held.numpy(), (eager - given) / 2)
        Tensor.manual_seed(turn)
        random = drawing(x).numpy()
        Tensor.manual_seed(turn)
        assert np.array_equal(random, (x + Tensor.rand(2)).numpy())
        same, more = argument(x)
        assert same is x and more.tolist() == [2, 3]
    assert shortcuts(drawing) and shortcuts(argument)


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.thread.isolated+2", observe="replay")
def test_shortcuts_in_several_threads() -> None:
    step = warm(lambda x, y: (x * y).sum(), numbers(1, 2), numbers(3, 4))
    wrong: list[Any] = []

    def call(start: int) -> None:
        held = []
        for turn in range(200):
            x, y = numbers(start, turn), numbers(2, 1)
            held.append((step(x, y), 2 * start + turn))
        wrong.extend(1 for found, right in held if found.item() != right)

    threads = [threading.Thread(target=call, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@verifies("replay.shortcut.same+3", observe="replay")
@verifies("effects.version.overwritten", observe="replay")
def test_memory_that_was_overwritten() -> None:
    """A replay that writes gives its tensors new versions; readers by shortcut see them."""
    w, x = numbers(1), numbers(1)
    grow = TinyJit(lambda x: w.assign(w + x))
    look = TinyJit(lambda x: x + w)
    for turn in range(1, TURNS + 1):
        grow(x)
        assert look(x).tolist() == [2 + turn]
    assert w.dtype is dtypes.float32


class Twins:
    """The same states twice: those of a captured function, and those of its body."""

    def __init__(self, place: Callable[[Tensor], Tensor]) -> None:
        self.place = place
        self.a, self.b, self.c = (place(numbers(*pair)) for pair in ((1, 2), (3, 4), (5, 6)))
        self.last, self.count = place(numbers(0, 0)), place(Tensor([1, 2]).realize())

    def step(self, x: Tensor) -> Tensor:
        self.a.assign(self.a * 0.5 + x)         # in place
        b = self.b + self.c
        self.c.replace((self.b * 0.5).realize())  # each call lies elsewhere
        self.b.assign(b)
        self.last.assign(x * 2)                 # and is not read
        self.count.assign(self.count + 1)       # of which nobody asks for a gradient
        return self.a * 2 + self.b + self.place(Tensor.rand(2))


#: What others do between two calls; what it returns is held, and may be one that has a value.
DISTURBED: list[Callable[[Twins], Any]] = [
    lambda twins: None, lambda twins: twins.a * 1, lambda twins: Tensor(twins.a.uop),
    lambda twins: twins.count.reshape(2, 1).realize(),
    lambda twins: twins.a.detach().realize(), lambda twins: (twins.b + 1, twins.a[1:]),
    lambda twins: twins.a.assign(twins.a + 1),
    lambda twins: twins.b.replace(twins.place(numbers(7, 8))),
    lambda twins: twins.a.assign(twins.c).realize(), lambda twins: twins.c,
    lambda twins: twins.last.replace(twins.place(numbers(1, 1))), lambda twins: twins.a.uop,
    lambda twins: twins.c.replace(twins.place(numbers(9, 9)))]


def _values(held: Any) -> list[Any]:
    parts = held if isinstance(held, tuple) else (held,)
    return [part.numpy().tolist() for part in parts if isinstance(part, Tensor)]


@pytest.mark.slow
@verifies("replay.shortcut.same+3", observe="replay")
@verifies("replay.readers.kept", observe="replay")
@verifies("replay.guard.state", observe="replay")
@verifies("replay.state.eager", observe="replay")
@pytest.mark.parametrize("disturb", range(2 * len(DISTURBED)))
def test_states_that_lie_where_they_lay(disturb: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undisturbed they are not looked for; whatever others do with them, it is as in the body."""
    looked, located = list[int](), Recording.located

    def note(*given: Any) -> Any:
        looked.append(1)
        return located(*given)

    monkeypatch.setattr(Recording, "located", note)
    where, number = divmod(disturb, len(DISTURBED))
    disturb_them = DISTURBED[number]

    def placed(tensor: Tensor) -> Tensor:
        """Half of them lie on two devices, as copies."""
        return tensor.shard(("CPU", "CPU:1")).realize() if where else tensor

    twins, eager, x = Twins(placed), Twins(placed), placed(numbers(1, -1))
    step = TinyJit(twins.step)
    counts, kept = [], list[tuple[Any, Any]]()
    for turn in range(12):
        mine = theirs = None
        if turn == 8:
            mine, theirs = disturb_them(twins), disturb_them(eager)
            kept.append((mine, theirs))
        before, given = len(looked), (x, x)
        if turn > 9:  # arguments that are states, too
            given = (twins.a, eager.a) if turn == 10 else (twins.last, eager.last)
        Tensor.manual_seed(turn)
        found = step(given[0]).numpy()
        counts.append(len(looked) - before)
        Tensor.manual_seed(turn)
        assert np.array_equal(found, eager.step(given[1]).numpy()), turn
        for name in ("a", "b", "c", "last", "count"):
            assert np.array_equal(getattr(twins, name).numpy(), getattr(eager, name).numpy()), turn
        del mine, theirs
        for mine, theirs in kept:
            assert _values(mine) == _values(theirs)
    # Whoever reads a state of a mesh looks at how it lies there, which holds it for a while.
    assert where or counts[5:8] == [0, 0, 0] and step.replays >= 8


@verifies("replay.guard.state", observe="replay")
def test_a_state_that_nobody_could_follow_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a function is trusted, it may find tensors in ways that are not looked at."""
    def program(function: Callable[..., Any]) -> list[Any]:
        hidden: Any = ModuleType("hidden_states")
        monkeypatch.setitem(sys.modules, "hidden_states", hidden)
        hidden.s, x = Tensor([1.0, 2.0]).realize(), Tensor([1.0, 1.0]).realize()

        def body(t: Tensor) -> Tensor:
            s = import_module("hidden_states").s
            s.assign(s * 2 + t.flip(0))
            return s * 1
        step = function(body)
        return [step(hidden.s if turn > 7 else x).tolist() for turn in range(12)]

    captured = program(lambda body: TinyJit(body, trust=True))
    assert captured == program(lambda body: body)


@verifies("replay.shortcut.same+3", observe="replay")
@pytest.mark.parametrize("axis", [None, 0])
def test_states_on_a_mesh_lie_where_they_lay(axis: int | None,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    looked, located = list[int](), Recording.located

    def note(*given: Any) -> Any:
        looked.append(1)
        return located(*given)

    def placed(tensor: Tensor) -> Tensor:
        return tensor.shard(("CPU", "CPU:1"), axis).realize()

    monkeypatch.setattr(Recording, "located", note)
    twins, eager, x = Twins(placed), Twins(placed), placed(numbers(1, -1))
    step, found = TinyJit(twins.step), []
    for turn in range(8):
        before = len(looked)
        Tensor.manual_seed(turn)
        found.append(step(x).numpy())
        assert turn < 5 or len(looked) == before
    # What lies in another way is another argument.
    plain = warm(lambda x: (x + 1).realize(), x)
    other = x.shard(("CPU", "CPU:1"), None if axis == 0 else 0)
    assert np.array_equal(plain(other.realize()).numpy(), x.numpy() + 1)
    assert plain(other).sharding == other.sharding and plain(x).sharding == x.sharding
    for turn in range(8):
        Tensor.manual_seed(turn)
        assert np.array_equal(found[turn], eager.step(x).numpy()), turn
    for name in ("a", "b", "c", "last", "count"):
        assert np.array_equal(getattr(twins, name).numpy(), getattr(eager, name).numpy())


@verifies("realize.failure.left+2")
def test_a_call_on_settled_states_that_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x, launch = numbers(1, 2), numbers(1, 1), CPUTable.replay
    step = warm(lambda x: w.assign(w + x), x)

    def ends(table: Any) -> None:
        launch(table)
        raise KeyboardInterrupt

    monkeypatch.setattr(CPUTable, "replay", ends)
    with pytest.raises(KeyboardInterrupt):
        step(x)
    monkeypatch.setattr(CPUTable, "replay", launch)
    with pytest.raises(GraphError):
        w.tolist()
    w.replace(numbers(5, 5))
    assert [step(x).tolist() for _ in range(3)] == [[6, 6], [7, 7], [8, 8]]


@verifies("replay.output.again+3")
def test_a_capture_gives_its_memory_back_at_once() -> None:
    """Also one whose calls are one function."""
    step = TinyJit(lambda x: (x @ x).softmax())
    x = Tensor.ones(100, 100).realize()
    gc.collect()
    gc.disable()
    try:
        before = GlobalCounters.allocated
        for _ in range(5):
            step(x)
        assert shortcuts(step) and GlobalCounters.allocated > before
        step.reset()
        assert GlobalCounters.allocated == before
    finally:
        gc.enable()


@verifies("errors.message.later")
def test_a_shortcut_whose_kernel_fails_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = sys._getframe().f_lineno + 1
    step = warm(lambda x: x * 2 + 1, numbers(1, 2))
    replay = CPUTable.replay

    def fail(table: CPUTable) -> None:
        raise DeviceError("launch", "the device is lost", "restart it")
    monkeypatch.setattr(CPUTable, "replay", fail)
    with pytest.raises(DeviceError) as caught:
        step(numbers(1, 2))
    assert caught.value.line == f"add ({__file__}:{line})"
    monkeypatch.setattr(CPUTable, "replay", replay)
    before = shortcuts(step)
    assert step(numbers(1, 2)).tolist() == [3, 5] and shortcuts(step) == before + 1


@verifies("replay.arguments.depending")
def test_what_a_shortcut_returns_depends_on_the_parameters_that_it_reads() -> None:
    weight = Tensor([2.0, 3.0], requires_grad=True)
    step = warm(lambda x: x * weight, numbers(1, 2))
    x, before = numbers(5, 7), shortcuts(step)
    every, dependent_bits[0] = dependent_bits[0], weight.uop.reads  # nothing else depends on any
    kept = step(x)
    assert kept.uop.reads & dependent_bits[0] and shortcuts(step) == before + 1
    dependent_bits[0] |= every
    (kept * 2).realize().sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [10, 14]
