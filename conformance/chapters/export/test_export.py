"""Exported functions, run without Python. Chapter: spec/export.md."""
from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.chapters.export.programs import LENGTH, WORDS, Language, pictures
from conformance.oracle.checker import check
from conformance.trace import verifies
from impl import Context, Tensor, Variable, func, nn
from impl.__main__ import Trainer
from impl.cpu import compiler_problem
from impl.errors import ExportError
from impl.export import export
from impl.export.names import of_arguments, unique_name

needs_compiler = pytest.mark.skipif(bool(compiler_problem()), reason=compiler_problem() or "it is")


class CProgram:
    """An exported function, compiled as a shared object."""

    def __init__(self, folder: Path, name: str, *flags: str) -> None:
        self.name, self.folder, library = name, folder, folder / f"{name}.so"
        said = subprocess.run(["cc", "-std=c11", "-Wall", "-O1", *flags, "-shared", "-fPIC", "-o",
                               str(library), str(folder / f"{name}.c"), "-lm"],
                              capture_output=True, text=True, check=False)
        assert said.returncode == 0 and "warning" not in said.stderr, said.stderr
        self.library = ctypes.CDLL(str(library))

    def load(self, file: str = "") -> int:
        """Read the weights."""
        path = self.folder / (file or f"{self.name}.safetensors")
        return int(getattr(self.library, f"{self.name}_load")(str(path).encode()))

    def save(self, file: str) -> int:
        """Write the states."""
        return int(getattr(self.library, f"{self.name}_save")(str(self.folder / file).encode()))

    def code(self, *given: np.ndarray | int) -> int:
        """What a call returns."""
        return int(getattr(self.library, f"{self.name}_run")(*(
            ctypes.c_int64(each) if isinstance(each, int) else each.ctypes.data_as(ctypes.c_void_p)
            for each in given)))

    def __call__(self, *given: np.ndarray | int) -> None:
        assert self.code(*given) == 0


def c_program(folder: Path, function: Callable[..., Any], *args: Any, **more: Any) -> CProgram:
    """A function, exported and compiled for the processor that the CPU device compiles for."""
    export(function, args, folder, name="f", **more)
    return CProgram(folder, "f", "-march=native")


@needs_compiler
@verifies("export.values.equal")
@verifies("export.plan.kept+2")
@verifies("export.weights.named")
def test_training_goes_on_in_c_bit_for_bit(tmp_path: Path) -> None:
    with Context(DEVICE="CPU", NOOPT=1):
        demo, (x, y) = Trainer(None), pictures()
        demo.step(x, y)
        program = c_program(tmp_path, demo.step, x, y)
        assert program.load() == 0
        for _ in range(3):
            loss = np.zeros((), np.float32)
            program(x.numpy(), y.numpy(), loss)
            assert loss == demo.step(x, y).numpy()
        assert program.save("after.safetensors") == 0
        after = nn.state.safe_load(tmp_path / "after.safetensors")
        assert np.array_equal(after["model.hidden.weight"].numpy(),
                              demo.model.hidden.weight.numpy())
        assert {"model.scores.bias", "model.scores.weight"} < {*after}


@needs_compiler
@verifies("export.gradient.added")
def test_gradients_are_added_up_in_the_program(tmp_path: Path) -> None:
    with Context(DEVICE="CPU", NOOPT=1):
        weight: Any = Tensor([0.5, -2.0], requires_grad=True).realize()
        x = Tensor([1.0, 3.0]).realize()

        def added(x: Tensor) -> Any:
            (x * weight).sum().backward()
            return weight.grad * 2

        def anew(x: Tensor) -> Any:
            weight.grad = None
            return added(x)
        export(anew, (x,), tmp_path, name="anew", target="json")
        assert json.loads((tmp_path / "anew.json").read_text())["states"] == []
        program = c_program(tmp_path, added, x)
        assert weight.grad is None and program.load() == 0
        for factor in (-0.0, 2.0, 0.1):
            given, found = np.array([1, 3], np.float32) * np.float32(factor), np.zeros(2, "f")
            program(given, found)
            assert found.tobytes() == added(Tensor(given)).numpy().tobytes()


@needs_compiler
@verifies("export.variable.checked+2")
@verifies("export.plan.kept+2")
def test_a_language_model_writes_without_python(tmp_path: Path) -> None:
    with Context(DEVICE="CPU", NOOPT=1):
        model, place = Language(), Variable("position", 0, LENGTH - 1)
        first = Tensor(np.array([1], np.int32)).realize()
        program = c_program(tmp_path, model.next_word, first, place.bind(3))
        assert program.load() == 0
        word, scores = np.array([1], np.int32), np.zeros(WORDS, np.float32)
        for position in range(LENGTH):
            program(word, position, scores)
            mine = model.next_word(Tensor(word.copy()), place.bind(position)).numpy()
            assert np.array_equal(scores, mine)
            word[0] = scores.argmax()
        assert [program.code(word, wrong, scores) for wrong in (-1, LENGTH)] == [2, 2]


@needs_compiler
@verifies("export.weights.named")
@verifies("export.c.header")
def test_weights_in_the_source_and_codes(tmp_path: Path) -> None:
    with Context(DEVICE="CPU"):
        weight = Tensor([1.0, 2.0]).realize()
        program = c_program(tmp_path, lambda x: x * weight, weight + 1)
        found = np.zeros(2, np.float32)
        assert program.code(found, found) == 1  # nothing is loaded
        assert [program.load("none"), program.load("f.c"), program.load()] == [4, 5, 0]
        program(np.array([3, 4], np.float32), found)
        assert found.tolist() == [3, 8]
        (tmp_path / "array").mkdir()
        program = c_program(tmp_path / "array", lambda x: x * weight, weight + 1, weights="array")
        program(np.array([3, 4], np.float32), found)
        assert found.tolist() == [3, 8]
    plus = tmp_path / "f.cpp"
    plus.write_text('#include "f.h"\nint main() { return f_load("x") != F_NO_FILE; }\n')
    if shutil.which("c++"):
        subprocess.run(["c++", "-Wall", "-Werror", "-fsyntax-only", str(plus)], check=True)


@needs_compiler
@needs_compiler
@verifies("export.values.equal")
def test_a_product_of_several_threads(tmp_path: Path) -> None:
    """Its kernel has phases and is told where scratch memory is, though it needs none."""
    with Context(CPU_COUNT=2):
        export(lambda x: x @ x, (Tensor.ones(128, 128).realize(),), tmp_path, name="product")
    subprocess.run(["cc", "-std=c11", "-O0", "-march=native", "-c", "product.c"], cwd=tmp_path,
                   check=True)


@verifies("export.random.kept")
def test_random_numbers_go_on(tmp_path: Path) -> None:
    with Context(DEVICE="CPU"):
        Tensor.manual_seed(7)
        program = c_program(tmp_path, lambda x: x + Tensor.rand(3), Tensor.zeros(3).contiguous())
        assert program.load() == 0
        for _ in range(2):
            found = np.zeros(3, np.float32)
            program(np.zeros(3, np.float32), found)
            assert np.array_equal(found, Tensor.rand(3).numpy())


@needs_compiler
@verifies("export.plan.kept+2")
def test_states_that_are_replaced_and_returned(tmp_path: Path) -> None:
    with Context(DEVICE="CPU"):
        first, second, third = (Tensor([each]).realize() for each in (1.0, 2.0, 3.0))

        def turn(x: Tensor) -> list[Tensor]:
            one, two, three = Tensor(first.uop), Tensor(second.uop), third * x
            first.replace(two)
            second.replace(one)
            third.replace(three)
            return [one, third, x]

        program = c_program(tmp_path, turn, Tensor([2.0]).realize())
        assert program.load() == 0
        for _ in range(3):
            found = [np.zeros(1, np.float32) for _ in range(3)]
            program(np.array([2.0], np.float32), *found)
            assert [each.tolist() for each in found] == \
                [each.tolist() for each in turn(Tensor([2.0]))]


@pytest.fixture
def interpreted() -> Any:
    """Values of these tests need no compiler."""
    with Context(DEVICE="REFERENCE"):
        yield


@verifies("export.state.kept")
def test_exporting_changes_nothing(tmp_path: Path, interpreted: None) -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    weight.realize()
    counter = Tensor([0]).realize()
    traced: list[Any] = []  # what has no value is nobody's state
    func.vmap(lambda x: x * len(traced.__iadd__([x])))(Tensor([1.0, 2.0]))

    def step(x: Tensor) -> Tensor:
        (weight * x).sum().backward()
        counter.assign(counter + 1)
        weight.assign(weight - 1)
        return weight + Tensor.rand(2)

    Tensor.manual_seed(1)
    expected = Tensor.rand(2).tolist()
    Tensor.manual_seed(1)
    made = export(step, (Tensor([1.0, 1.0]),), tmp_path, target="json")
    assert weight.tolist() == [1, 2] and weight.grad is None and counter.tolist() == [0]
    assert Tensor.rand(2).tolist() == expected
    told = json.loads(made[-1].read_text())
    assert {row["name"] for row in told["states"]} == {
        "weight", "weight.grad", "counter", "random"}


@verifies("export.document.whole")
def test_the_document_has_ports_calls_and_schedules(tmp_path: Path, interpreted: None) -> None:
    size = Variable("n", 1, 8).bind(3)
    x = Tensor(np.ones((8, 2), np.float32))[:size].contiguous().realize()
    weight = Tensor([1.0, 2.0]).realize()
    files = export(lambda x, y: {"sum": x.sum(0) * weight, "other": y}, (x,), tmp_path,
                   {"y": weight + 1}, name="for", target="json")
    assert [each.name for each in files] == ["for_.json"]
    told = json.loads(files[0].read_text())
    assert [(p["name"], p["shape"], p["bytes"]) for p in told["inputs"]] == [
        ("x", ["n", 2], 64), ("y", [2], 8)]
    assert [p["name"] for p in told["outputs"]] == ["sum", "other"]
    assert told["integers"] == [{"name": "n", "least": 1, "greatest": 8}]
    assert len(told["calls"]) == sum(len(s["order"]) for s in told["schedules"])
    assert all(not check(schedule) for schedule in told["schedules"])


@verifies("export.variable.checked+2")
def test_a_python_number_made_of_a_size_is_found(tmp_path: Path, interpreted: None) -> None:
    size = Variable("n", 1, 8).bind(3)
    x = Tensor(np.ones(8, np.float32))[:size].contiguous().realize()
    with pytest.raises(ExportError, match="other kernels for other values of n"):
        export(lambda x: x * (1.0 / x.shape[0]), (x,), tmp_path, target="json")


def _assigns(x: Tensor) -> Tensor:
    x.assign(x + 1)
    return x


#: What cannot be exported, and what the error has to say.
REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a value is read": (lambda x: x * x.sum().item(), "reads a value"),
    "an argument is assigned to": (_assigns, "assigns to argument x"),
    "there are two devices": (lambda x: x.to("REFERENCE:1") + 1, "copies between devices"),
    "the host runs a loop": (lambda x: func.scan(lambda c, i: (c + x, c), x, length=3)[1],
                             "has a loop"),
    "an array is computed with": (lambda x: np.ones(2) * 2, "returns a ndarray.*Tensor.array"),
    "Python does something": (lambda x: print("seen") or x, "calls print"),
}


@pytest.mark.parametrize("what", REFUSED)
@verifies("export.refused.named")
def test_what_needs_python_is_refused(what: str, tmp_path: Path, interpreted: None) -> None:
    function, said = REFUSED[what]
    with pytest.raises(ExportError, match=said) as caught:
        export(function, (Tensor([1.0, 2.0]).realize(),), tmp_path, target="json")
    assert __file__ in caught.value.line and caught.value.remedy


@verifies("export.refused.named")
def test_settings_that_nobody_has_are_refused(tmp_path: Path) -> None:
    wrongs: list[dict[str, Any]] = [{"target": "fortran"}, {"weights": "none"}]
    for wrong in wrongs:
        with pytest.raises(ExportError, match="use|one of"):
            export(lambda x: x, (Tensor([1.0]),), tmp_path, **wrong)
    twice = Tensor([1.0]).realize()
    with Context(DEVICE="REFERENCE"), pytest.raises(ExportError, match="also another argument"):
        export(lambda x, y: x + y, (twice, twice), tmp_path, target="json")


@verifies("export.name.legal")
def test_names_are_legal_and_differ() -> None:
    assert [unique_name("blocks.0.weight"), unique_name("float"), unique_name("0"),
            unique_name("<lambda>"), unique_name("x", ["x", "x_2"]), unique_name("NULL")] == [
        "blocks_0_weight", "float_", "x0", "lambda", "x_3", "NULL_"]
    assert of_arguments(lambda output: output, ["[0][0]"]) == {"[0][0]": "output_"}
