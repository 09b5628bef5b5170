"""Scheduling mistakes that really happened, elsewhere: a witness for each.  See docs/threats.md.

Every witness is a few lines that a user might write.  The table in docs/threats.md names what
happened and where, the rule that forbids it, the witness and a saboteur that makes the mistake;
here is checked that all of these exist, and that the witness finds the saboteur.
"""
from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from importlib import import_module

import numpy as np
import pytest

from conformance.saboteurs.impl_patches import ImplPatch
from conformance.trace import ROOT, files_of, split_revision, verifies
from conformance.trace.threats import TABLE, Threat, found, linked, threats
from impl import Context, Tensor, TinyJit, Variable
from impl.errors import TensorScheduleError
from impl.schedule import schedule_cache


@pytest.fixture(autouse=True)
def on_the_reference_device() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield
    gc.collect()


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def agree(*pairs: tuple[Tensor, object]) -> None:
    for tensor, wanted in pairs:
        np.testing.assert_array_equal(tensor.numpy(), np.asarray(wanted))


# Writes and readers


@verifies("effects.war.rescue")
def test_a_reader_before_a_view_write() -> None:
    x = numbers(1, 2, 3, 4)
    double = x * 2
    x[1:3] = 0
    x.realize()
    agree((double, [2, 4, 6, 8]), (x, [1, 0, 0, 4]))


@verifies("placement.cycle.copied")
def test_slices_change_places() -> None:
    x = numbers(1, 2, 3, 4)
    x[:2], x[2:] = x[2:], x[:2]
    agree((x, [3, 4, 1, 2]))


@verifies("effects.realize.order-independent+2")
def test_the_order_of_what_is_realized() -> None:
    for turned in (False, True):
        x = numbers(1, 2, 3)
        y = x + 1
        x.assign(x * 10)
        z = x + y
        Tensor.realize(*((z, x, y) if turned else (y, x, z)))
        agree((x, [10, 20, 30]), (y, [2, 3, 4]), (z, [12, 23, 34]))


@verifies("placement.version.one-successor")
def test_several_writers_after_a_read() -> None:
    x = numbers(1, 2, 3, 4)
    read = x + 0
    other = Tensor(x)
    x[0:2] = 0
    x[1:3] = 7
    other[3:] = 9
    Tensor.realize(other, x)
    agree((read, [1, 2, 3, 4]), (x, [0, 7, 7, 4]), (other, [1, 2, 3, 9]))


@verifies("placement.in-place.safe")
def test_flips_and_shifts_in_place() -> None:
    x = numbers(1, 2, 3, 4, 5)
    x[1:] = x[:-1]
    # A device that reads everything before it writes would not notice; the schedule says it.
    assert any(note.startswith("copy") for note in x.schedule_document()["notes"])
    agree((x, [1, 1, 2, 3, 4]))
    x[:-2] = x[2:]
    agree((x, [2, 3, 4, 3, 4]))
    x += x.flip(0)
    agree((x, [6, 6, 8, 6, 6]))


@verifies("placement.held.kept")
def test_two_results_do_not_share_memory() -> None:
    x = numbers(1, 2, 3)
    kept = Tensor(x)
    x.assign(x + 1)
    Tensor.realize(x, kept)
    agree((x, [2, 3, 4]), (kept, [1, 2, 3]))


@verifies("effects.version.overwritten")
def test_an_equal_expression_after_a_write() -> None:
    x = numbers(1, 2, 3)
    first = x * 2
    node = first.uop  # kept by nobody who could observe it
    first.realize()
    first += 1
    first.realize()
    assert node is (x * 2).uop
    agree((x * 2, [2, 4, 6]), (first, [3, 5, 7]))


@verifies("effects.view-write.expanded")
def test_a_write_to_repeated_elements() -> None:
    x = numbers(1, 2, 3)
    with pytest.raises(TensorScheduleError, match="Remedy"):
        x.reshape(1, 3).expand(2, 3)[0] = 5
    agree((x, [1, 2, 3]))


@verifies("tensor.assign.view+3")
def test_a_write_to_bits() -> None:
    x = numbers(1, 2, 3)
    x.bitcast("int32")[1:] = 0
    agree((x, [1, 0, 0]))


@verifies("tensor.create.copy")
def test_an_array_that_is_changed_later() -> None:
    array = np.array([1, 2, 3], np.float32)
    x = Tensor(array)
    array[:] = 0
    agree((x, [1, 2, 3]))


@verifies("effects.variable.isolated")
def test_a_list_of_history() -> None:
    x, history = numbers(0, 0), []
    for step in range(4):
        history.append(Tensor(x))
        x[step % 2:step % 2 + 1] += step + 1
    agree(*zip(history, [[0, 0], [1, 0], [1, 2], [4, 2]], strict=True), (x, [4, 6]))


# Memory and order


@verifies("memory.off.equal")
def test_what_a_gradient_still_needs() -> None:
    found = []
    for planner in (0, 1):
        with Context(NO_MEMORY_PLANNER=planner, FUSE=0, POISON=1 - planner):
            weight = Tensor(np.linspace(-1, 1, 64).astype(np.float32)).requires_grad_()
            hidden = (weight * 3).tanh()
            for _ in range(3):
                hidden = (hidden * weight).exp().contiguous()
            hidden.sum().backward()
            assert weight.grad is not None
            found.append(weight.grad.numpy())
    np.testing.assert_array_equal(found[0], found[1])


@verifies("ordering.any-legal.equal", observe="order")
def test_any_order_of_writes_and_reads() -> None:
    for seed in range(12):
        with Context(ORDER_SEED=seed, FUSE=0):
            x = numbers(1, 2, 3, 4)
            total, double = x.sum(), x * 2
            x[:2] = double[2:]
            last = x + total
            x[2:] = last[:2]
            Tensor.realize(last, x, double, total)
            agree((last, [16, 18, 13, 14]), (x, [6, 8, 16, 18]), (double, [2, 4, 6, 8]))


@verifies("memory.lifetime.covers+2")
def test_views_keep_what_they_look_at_alive() -> None:
    with Context(FUSE=0, POISON=1):
        start = Tensor(np.arange(64, dtype=np.float32))
        base = (start + 1).contiguous()
        view = base.reshape(8, 8).permute(1, 0)[2:4]
        total = (start * 3).contiguous().sum() + (start * 5).contiguous().sum()
        agree((view + total, np.arange(1, 65).reshape(8, 8).T[2:4] + 8 * 2016))


# Caches


@verifies("caching.key.program", observe="cache")
def test_kernels_that_differ_in_a_constant() -> None:
    x = numbers(1, 2, 3)
    agree((x * 2, [2, 4, 6]), (x * 3, [3, 6, 9]))


@verifies("caching.key.settings", observe="cache")
def test_a_setting_between_two_runs() -> None:
    x = numbers(1, 2, 3)
    counts = []
    for fuse in (1, 0, 1):
        with Context(FUSE=fuse):
            counts.append(len(((x + 1) * 2 - 3).sum().schedule()))
    assert counts[0] == counts[2] < counts[1]


@verifies("caching.key.alias", observe="cache")
def test_one_argument_twice() -> None:
    x, y = numbers(1, 2, 3, 4), Tensor(np.full((2, 2), 9, np.float32)).realize()
    same = Tensor(x.uop).reshape(2, 2).realize()  # another view of the memory of x
    agree((x.reshape(2, 2) - y.flip(0), [[-8, -7], [-6, -5]]),
          (x.reshape(2, 2) - same.flip(0), [[-2, -2], [2, 2]]),
          (y - y.flip(0), [[0, 0], [0, 0]]), (x + x.flip(0), [5, 5, 5, 5]))


@verifies("caching.values.each")
def test_values_of_several_variables() -> None:
    first, second = Variable("first", 0, 9), Variable("second", 0, 9)
    x = numbers(1, 1)
    for a, b in ((1, 2), (2, 1), (5, 7)):
        agree((x * first.bind(a) * 10 + x * second.bind(b), [a * 10 + b] * 2))


@verifies("symbolic.variable.refused")
def test_a_value_beyond_the_bounds() -> None:
    size = Variable("size", 1, 8)
    for value in (0, 9):
        with pytest.raises(TensorScheduleError, match="size"):
            size.bind(value)


@verifies("caching.result.independent")
def test_the_result_of_an_earlier_run() -> None:
    """One operation that was seen before is launched at once, several have a plan that is run."""
    first = (numbers(1, 2, 3) + 1).realize()
    second = (numbers(4, 5, 6) + 1).realize()
    third, fourth = ((numbers(*each) * 2 - 1).realize() for each in ((1, 2, 3), (4, 5, 6)))
    agree((first, [2, 3, 4]), (second, [5, 6, 7]), (third, [1, 3, 5]), (fourth, [7, 9, 11]))


# Replay


@verifies("replay.effects.all", observe="replay")
def test_a_state_that_nobody_returns() -> None:
    state = numbers(0, 0)

    def body(x: Tensor) -> None:
        state.assign(state + x)

    step = TinyJit(body)
    for _ in range(5):
        step(numbers(1, 2))
    agree((state, [5, 10]))


@verifies("replay.outputs.distinct", observe="replay")
def test_results_of_two_replays() -> None:
    step = TinyJit(lambda x: x + 1)
    results = [step(numbers(value, 0)) for value in range(5)]
    agree(*((result, [value + 1, 1]) for value, result in enumerate(results)))


@verifies("replay.arguments.form", observe="replay")
def test_numbers_in_containers_of_arguments() -> None:
    step = TinyJit(lambda x, settings: x * settings["scale"][0])
    for _ in range(3):
        agree((step(numbers(1, 2), {"scale": [3]}), [3, 6]))
    agree((step(numbers(1, 2), {"scale": [4]}), [4, 8]))


@verifies("replay.nested.inlined+2", observe="replay")
def test_a_captured_function_that_calls_another() -> None:
    inner = TinyJit(lambda x: x * 2)
    outer = TinyJit(lambda x: inner(x) + 1)
    for value in range(5):
        agree((outer(numbers(value, 1)), [2 * value + 1, 3]))
        agree((inner(numbers(value, 1)), [2 * value, 2]))


@verifies("replay.readers.kept", observe="replay")
def test_a_reader_from_before_a_replay() -> None:
    state = numbers(1, 2)

    def body() -> None:
        state.assign(state * 2)

    step, readers = TinyJit(body), []
    for _ in range(5):
        readers.append(state + 0.5)
        step()
    agree(*((reader, [2 ** n + 0.5, 2 ** (n + 1) + 0.5]) for n, reader in enumerate(readers)))


# Values


@verifies("tensor.pad.zeros")
def test_padding_under_functions() -> None:
    x = numbers(1, 2)
    padded = (x + 1).pad(((0, 2),))
    agree((padded, [2, 3, 0, 0]), (padded.sum(), 5), ((padded - 3).max(), 0),
          (x.pad(((0, 2),)).exp().prod().log(), 3), (x.exp().pad(((0, 2),)).prod(), 0),
          ((x + 1).pad(((1, 0),)).min(), 0))


@verifies("tensor.nan.maximum")
def test_nan_at_every_place() -> None:
    for place in range(4):
        array = np.array([1, -2, 3, 0], np.float32)
        array[place] = np.nan
        x = Tensor(array).realize()
        agree((x.max(), np.nan), (x.maximum(0), np.maximum(array, 0)),
              (x.relu(), np.maximum(array, 0)))


@verifies("dtypes.half.accumulate")
def test_a_sum_of_many_halves() -> None:
    agree((Tensor(np.ones(5000, np.float16)).sum(), 5000),
          (Tensor(np.full(600, 200, np.float16)).mean(), 200))


@verifies("dtypes.wraparound.integer")
def test_small_integers_wrap_around() -> None:
    a = np.array([0, 1, 127, 128, 255], np.uint8)
    x = Tensor(a).realize()
    agree((x + 1, a + np.uint8(1)), (x * 2, a * np.uint8(2)), (-x, -a),
          ((x + 1) // 2, (a + np.uint8(1)) // 2))


@verifies("tensor.reduce.empty")
def test_reductions_of_nothing() -> None:
    x = Tensor(np.zeros((0, 3), np.float32))
    agree((x.sum(0), [0, 0, 0]), (x.mean(0), [np.nan] * 3), (x.sum(1), []), (x.prod(), 1))


@verifies("symbolic.floor.exact")
def test_indices_of_flipped_reshapes() -> None:
    a = np.arange(24, dtype=np.int32)
    x = Tensor(a).realize()
    agree((x.reshape(4, 6).flip(0).reshape(3, 8).permute(1, 0).flip(1).reshape(24)[::-5],
           a.reshape(4, 6)[::-1].reshape(3, 8).T[:, ::-1].reshape(24)[::-5]),
          (x // -5, a // -5), (x % -5, a % -5))


@verifies("ranges.access.inside")
def test_places_beyond_32_bits() -> None:
    far = 1 << 34
    agree((numbers(5).pad(((far, 3),))[far - 1:far + 2], [0, 5, 0]),
          (numbers(5, 6).pad(((0, far),)).flip(0)[:3], [0, 0, 0]))


@verifies("fusion.value.equal")
def test_fused_and_unfused() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for fuse in (0, 1):
        with Context(FUSE=fuse):
            x = Tensor(array).realize()
            low = x - x.max(1, keepdim=True)
            x[:, 1:] = low[:, :-1] + x.sum()
            wanted = array.copy()
            wanted[:, 1:] = (array - array.max(1, keepdims=True))[:, :-1] + 66
            agree((x, wanted), (low, array - array.max(1, keepdims=True)))


@verifies("symbolic.depth.iterative")
def test_thousands_of_operands() -> None:
    x = numbers(1)
    agree((Tensor.stack(*[x + n for n in range(1500)]).sum(), sum(range(1, 1501))))
    state = numbers(0)
    for _ in range(3000):
        x = x + 1
    state.assign(x)
    agree((state, [3001]), (x, [3001]))


@verifies("realize.failure.left+2")
def test_an_update_that_is_cut_off(monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    from impl.reference import ReferenceProgram
    run, begun = ReferenceProgram.run, [0]
    x = numbers(1, 2, 3)

    def counted(self: ReferenceProgram, *arguments: object) -> None:
        begun[0] += 1
        if begun[0] == 3:
            raise KeyboardInterrupt
        run(self, *arguments)  # type: ignore[arg-type]

    with Context(FUSE=0):
        x.assign(x + 1)
        x.assign(x * 2)
        ReferenceProgram.run = counted  # type: ignore[method-assign, assignment]
        try:
            with pytest.raises(KeyboardInterrupt):
                Tensor.realize(x, (x + 5).contiguous())
        finally:
            ReferenceProgram.run = run  # type: ignore[method-assign]
    try:
        agree((x, [4, 6, 8]))
    except TensorScheduleError as error:
        assert "interrupted" in str(error)


# The table ---------------------------------------------------------------------------------


def witness(name: str) -> Callable[[], None]:
    """A witness by its name, of this file or, with a module before it, of another."""
    module, _, function = name.rpartition(".")
    file = files_of(module or "test_threats")[0].relative_to(ROOT).with_suffix("")
    found: Callable[[], None] = getattr(import_module(".".join(file.parts)), function)
    return found


def saboteur(name: str) -> ImplPatch:
    """A saboteur by its class, wherever it is."""
    module, _, function = name.rpartition(".")
    found: ImplPatch = getattr(
        import_module(f"conformance.saboteurs.{module or 'threats'}"), function)()
    return found


def test_the_table_has_rows_of_everything() -> None:
    table = threats()
    assert len(table) >= 30 and len({row.witness for row in table}) == len(table)
    written = {row.witness for row in table}
    here = {name for name, value in globals().items()
            if name.startswith("test_") and getattr(value, "__rules__", None)}
    assert here <= written, here - written
    rules = set(re.findall(r"^r\[(?:note )?([^+]*?)(?:\+\d+)?\]$", "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "spec").glob("*.md")), re.M))
    for row in table:
        assert row.rule in rules, row
        cited = {split_revision(rule)[0] for rule in witness(row.witness).__dict__["__rules__"]}
        assert row.rule in cited, row
        assert saboteur(row.saboteur).description, row


@pytest.mark.parametrize("row", threats() if TABLE.exists() else [], ids=lambda row: row.witness)
def test_the_witness_finds_the_saboteur(row: Threat) -> None:
    test = witness(row.witness)
    schedule_cache.clear()
    test()
    with saboteur(row.saboteur).installed():
        try:
            test()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:  # any: a crash finds it too, and pytest's own are no Exception
            return
    raise AssertionError(f"{row.witness} does not find that "
                         f"{saboteur(row.saboteur).description}")


# What the suite finds of them elsewhere -----------------------------------------------------


def test_threats_are_found_in_a_released_library_by_small_programs() -> None:
    """As the committed reports say; the plain code is run by whoever looks into one."""
    seen = {each.issue: each for each in found() if each.library.startswith("tinygrad ")}
    assert len(seen) >= 8
    for each in seen.values():
        assert each.statements <= 6, each
        assert each.issue in each.threat.seen
        assert each.issue.partition("#")[2] in (ROOT / each.code).read_text(encoding="utf-8"), each


def test_the_page_links_issues_and_rules() -> None:
    page = linked(TABLE.read_text(encoding="utf-8"))
    rows = [line for line in page.splitlines() if line.startswith("|") and "`test_" in line]
    assert rows and all(" r[" in row for row in rows)
    assert "[tg#570](https://github.com/tinygrad/tinygrad/issues/570)" in page
    assert "[pt#96296](https://github.com/pytorch/pytorch/issues/96296), [tvm#18663](" in page
    assert not any(re.search(r"(?<!\[)(tg|pt|jax|xla|tvm)#", row) for row in rows)
