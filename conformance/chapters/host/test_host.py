"""NumPy, imported when numbers are exchanged. Chapter: spec/host.md."""
from __future__ import annotations

import ast
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy
import pytest

from conformance.trace import ROOT, verifies
from impl import Context, Tensor, dtypes, host
from impl.dialects import CUDA, WGSL, C
from impl.errors import DTypeError, LibraryMissingError, ShapeError
from impl.export.javascript import LIMITS
from impl.ir import UOp
from impl.kernel import DeviceLimits
from impl.memory import greedy
from impl.memory.spans import Lifetime
from impl.realize import schedule_with_kernels
from impl.render import render
from impl.searching import optimize


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """NumPy is as if it were not installed."""
    held = dict(vars(host.np))
    monkeypatch.setitem(sys.modules, "numpy", None)
    for name in [each for each in held if not each.startswith("__")]:
        delattr(host.np, name)
    yield
    vars(host.np).update(held)


def softmax() -> list[Tensor]:
    return [Tensor.empty(8, 32).softmax(1)]


def training_step() -> list[Tensor]:
    x, labels = Tensor.empty(8, 16), Tensor.empty(8, dtype=dtypes.int32)
    weight = Tensor.empty(16, 10, requires_grad=True)
    loss = (x @ weight).relu().cross_entropy(labels)
    loss.backward()
    assert weight.grad is not None
    return [loss, weight.assign(weight.detach() - 0.1 * weight.grad)]


def in_place() -> list[Tensor]:
    x = Tensor.empty(4, 8)
    before = x.sum(1)
    x[0] = 1.0
    return [before, x]


def rounded() -> list[Tensor]:
    given = Tensor.empty(8, dtype=dtypes.float16)
    return [(given * 1.1 + float("inf")).cast(dtypes.bfloat16) * 3.3 + float("nan")]


def short() -> list[Tensor]:
    given = Tensor.empty(8, dtype=dtypes.float8_e4m3fn)
    pairs = Tensor([1, -2, 3], dtype=dtypes.int4)
    return [given * 0.3 + float("inf"), given.cast(dtypes.float8_e5m2) + 1e-7, pairs + 1]


def numbers() -> list[Tensor]:
    matrix = Tensor([[1.0, 2.0], [3.0, 4.0]])
    return [matrix @ Tensor([[1], [2]]), Tensor([]), Tensor([True, False])]


def drawn() -> list[Tensor]:
    return [Tensor.rand(8, 8) @ Tensor.arange(8).reshape(8, 1)]


def products() -> list[Tensor]:
    x = Tensor.empty(16, 16)
    for _ in range(6):
        x = (x @ x).softmax(1)
    return [x]


PROGRAMS = [softmax, training_step, in_place, rounded, short, numbers, drawn, products]


def texts(ast: UOp) -> list[str]:
    """A kernel in three languages."""
    groups = DeviceLimits(name="CUDA", lanes=256, lockstep=32, exchange=True, local_memory=16384)
    return [render(optimize(ast, limits), dialect).text for limits, dialect in (
        (DeviceLimits(), C()), (LIMITS, WGSL()), (groups, CUDA()))]


def planned(program: Callable[[], list[Tensor]]) -> Any:
    """What a program becomes, as data that are equal for equal schedules."""
    with Context(DEVICE="REFERENCE", SCACHE=0):
        Tensor.manual_seed(0)
        document, kernels = schedule_with_kernels(program())
    parts = ("buffers", "dependencies", "order", "boundaries", "fusions", "memory")
    return [{name: document[name] for name in parts}, [row["name"] for row in document["kernels"]],
            [texts(kernel) for kernel in kernels.values()]]


@verifies("host.numpy.late+2")
@verifies("host.numpy.without")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_schedules_are_the_same_without_it(program: Callable[[], list[Tensor]],
                                           request: pytest.FixtureRequest) -> None:
    there = planned(program)
    request.getfixturevalue("without")
    assert planned(program) == there


#: Neither NumPy nor a thread, a process or a library of C.
ALONE = """
import ctypes, subprocess, sys, threading

def refused(*given, **named):
    raise OSError("not here")

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "numpy":
            raise ModuleNotFoundError(f"{name} is imported", name=name)

sys.meta_path.insert(0, Absent())
subprocess.Popen.__init__ = threading.Thread.start = ctypes.CDLL.__init__ = refused
"""


def alone(code: str) -> list[str]:
    """What a program prints that runs there."""
    ran = subprocess.run([sys.executable, "-c", ALONE + code], cwd=ROOT, text=True,
                         capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@verifies("host.numpy.late+2")
def test_a_process_without_it_schedules_and_prints() -> None:
    said = alone("""
from impl import Context, Tensor, inspect
from impl.dialects import C
from impl.realize import schedule_with_kernels
from impl.render import render
from impl.searching import optimize
with Context(DEVICE="REFERENCE"):
    document, kernels = schedule_with_kernels([Tensor.empty(64, 128).softmax(1)])
print(*[kernel["name"] for kernel in document["kernels"]])
print("for (long" in render(optimize(kernels[0]), C()).text)
print(len(inspect.report_html(document)) > 1000, "numpy" in sys.modules)
print(Tensor.empty(2), Tensor.ones(3))
""")
    assert said[:3] == ["reduce_64_128_128", "True", "True False"]
    assert said[3].startswith("<Tensor float32 (2,)")


@verifies("host.numpy.late+2")
def test_where_it_is_nothing_imports_it_but_numbers() -> None:
    said = alone("""
sys.meta_path.pop(0)
from impl import Tensor
x = Tensor.empty(4, device="REFERENCE")
print((x + 1).schedule_document()["order"], "numpy" in sys.modules)
Tensor([1.0])
print("numpy" in sys.modules)
""")
    assert said == ["[0] False", "True"]


#: Two layers, backward and an update; first with sizes for which a quick plan is best.
STEPS = """
import sys
from impl import Context, Tensor

def layer(x, weights):
    q, k, v, o, up, down = weights
    x = x + ((x @ q) @ (x @ k).transpose(0, 1) * 0.25).softmax(1) @ (x @ v) @ o
    return x + (x @ up).relu() @ down

def step(rows, width, hidden):
    sizes = [(width, width)] * 4 + [(width, hidden), (hidden, width)]
    layers = [[Tensor.empty(*each, requires_grad=True) for each in sizes] for _ in range(2)]
    x = Tensor.empty(rows, width)
    for weights in layers:
        x = layer(x, weights)
    loss = (x * x).mean()
    loss.backward()
    return Tensor.schedule_document(loss, *(
        each.assign(each.detach() - 0.1 * each.grad) for weights in layers for each in weights))

with Context(DEVICE="REFERENCE"):
    for sizes in ((8, 16, 64), (8, 32, 128)):
        memory = step(*sizes)["memory"]
        print(memory["planned"], memory["placements"], "numpy" in sys.modules, sep="|")
"""


@verifies("host.numpy.late+2")
def test_training_steps_import_it_where_memory_is_searched() -> None:
    small, large = (each.split("|") for each in alone("sys.meta_path.pop(0)" + STEPS))
    assert small[2] == "False" and large[2] == "True"
    # What was imported before is in no plan.
    again = alone("sys.meta_path.pop(0)\nimport numpy" + STEPS)
    assert [each.split("|")[:2] for each in again] == [small[:2], large[:2]]
    # Where it cannot be imported, what is planned quickly is the same, and no more than that.
    plans = [each.split("|") for each in alone(STEPS)]
    assert plans[0] == small and int(plans[1][0]) >= int(large[0])


@pytest.mark.slow
@verifies("host.numpy.late+2")
def test_one_module_imports_it() -> None:
    paths = sorted((ROOT / "impl").rglob("*.py"))
    found = {path.relative_to(ROOT).as_posix() for path in paths
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             for name in ([each.name for each in node.names] if isinstance(node, ast.Import) else
                          [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
             if name.partition(".")[0] == "numpy"}
    assert len(paths) > 100
    assert found == {"impl/host.py", "impl/memory/search.py"}, "from impl.host import np"


@verifies("host.numpy.missing")
@pytest.mark.parametrize("exchange", [
    lambda: Tensor.empty(2).tolist(), lambda: (Tensor([1.0]) + 1).realize(),
    lambda: Tensor.empty(3)[[0, 2]]])
def test_numbers_are_not_exchanged_without_it(exchange: Callable[[], Any], without: None) -> None:
    with Context(DEVICE="REFERENCE"), pytest.raises(LibraryMissingError, match="pip install"):
        exchange()


@verifies("host.numpy.missing")
def test_errors_are_the_same_without_it(without: None) -> None:
    given: Any = Tensor
    with pytest.raises(ShapeError, match=r"\(4, 3\) and \(4, 5\) do not fit"):
        Tensor.empty(4, 3) @ Tensor.empty(4, 5)
    for ragged in ([[1], [2, 3]], [[1], 2]):
        with pytest.raises(ShapeError, match="ragged"):
            given(ragged)
    with pytest.raises(DTypeError, match="no numbers"):
        given(["a"])
    with pytest.raises(DTypeError, match="holds tensors"):
        given([Tensor(1)])
    with pytest.raises(DTypeError, match="did you mean float32"):
        Tensor.empty(2, dtype="float33")


@verifies("host.numpy.without")
@pytest.mark.parametrize(("data", "dtype"), [
    ([1, -300, 1 << 40], None), ([[1.5, 2]], None), ([[True], [False]], None), ([[], []], None),
    ([300.7, -1.2, float("nan")], dtypes.int16), ([30, -1], dtypes.uint8),
    ([1.1, 1e30, float("-inf")], dtypes.bfloat16), ([70000.0, 1.1, 6e-8], dtypes.float16),
    ([500.0, 1.1, -1e-3, float("nan")], dtypes.float8_e4m3fn), ([1e9, 3], dtypes.float8_e5m2),
    ([[[1]], [[2]]], dtypes.float64)])
def test_lists_are_what_they_are_with_it(data: Any, dtype: Any) -> None:
    from impl.tensor.host import Listed
    listed, given = Listed(data, dtype), Tensor(data, dtype=dtype)
    assert listed.dtype is given.dtype and listed.shape == given.shape
    array, wanted = numpy.asarray(listed), given.uop.arg[0].host
    assert array.dtype == wanted.dtype and array.tobytes() == wanted.tobytes()


@verifies("host.numpy.without")
@pytest.mark.parametrize("data", [
    [2**64 - 1, -1], [2**64 - 1, 1.5], [2**64 - 1], [2**100, 1.0], [2**100], [-2**63 - 1], [-2**63],
    [10**400], [10**400, float("nan")], [2**53 + 1, 1.5], [300, -1, 1.5], [1e30, -1e30, 7],
    [float("inf"), 2**63, -1], [range(3)], [[1, 2], range(2)], [True, 2], [True, 1.5], [None]],
    ids=lambda each: f"{each!r:.24}")
def test_odd_lists_are_what_they_are_with_it(data: Any) -> None:
    from impl.tensor.host import Listed

    def outcome(given: Callable[[], Any]) -> Any:
        try:
            made = given()
            array = numpy.asarray(made if isinstance(made, Listed) else made.uop.arg[0].host)
        except DTypeError as error:
            return any(one in str(error) for one in ("bits", "no numbers", "does not fit"))
        return array.dtype, array.shape, array.tobytes()

    for dtype in (None, dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.uint8,
                  dtypes.uint64, dtypes.bool):
        one = outcome(partial(Listed, data, dtype))
        assert one == outcome(partial(Tensor, data, dtype=dtype)), dtype
        assert one


@verifies("host.numpy.without")
def test_both_ways_of_placing_choose_the_same() -> None:
    random.seed(7)
    for count in (1, 5, 40, 90):
        spans = []
        for storage in range(count):
            first = random.randrange(30)
            spans.append(Lifetime(storage, 64 * random.randrange(1, 9), first,
                                  first + random.randrange(8)))
        few, many = (getattr(greedy, f"_lowest_first_{way}")(spans) for way in ("few", "many"))
        assert few == many and list(few) == list(many)


@verifies("host.numpy.late+2")
def test_names_are_taken_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture asks modules for names such as `__wrapped__`; for each, all were copied again."""
    assert host.np.zeros is numpy.zeros
    monkeypatch.setattr(host.np, "zeros", None)
    assert not hasattr(host.np, "__wrapped__")
    assert host.np.zeros is None
