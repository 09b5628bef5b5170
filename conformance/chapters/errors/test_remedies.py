"""Names and arguments of others: what they mean here, or what to write instead."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import impl
from conformance.trace import verifies
from impl import GlobalCounters, Tensor, TinyJit, dtypes, func, nn, torch
from impl.errors import NameMissingError, TensorScheduleError
from impl.export import export
from impl.models.command import write_on
from impl.models.gpt2 import GPT2, GPT2Config

X = Tensor([[1.0, 2.0], [3.0, 4.0]])

REMEDIES: dict[str, tuple[Any, str, str]] = {
    "impl.grad": (impl, "impl", "use func.grad: from impl import func"),
    "impl.hessian": (impl, "impl", "use func.hessian: from impl import func"),
    "impl.jit": (impl, "impl", r"use TinyJit\(function\)"),
    "impl.Tenser": (impl, "impl", "did you mean Tensor?"),
    "torch.jacrev": (torch, "torch", "use func.jacrev: from impl import func"),
    "x.float16": (X, "Tensor", r"use x\.half\(\)"), "x.int64": (X, "Tensor", r"use x\.long\(\)"),
    "x.rint": (X, "Tensor", r"use x\.round\(\)"),
    "GlobalCounters.kernel": (GlobalCounters, "GlobalCounters", r"did you mean .*\.kernels\?")}


@verifies("errors.name.missing")
@pytest.mark.parametrize("name", REMEDIES)
def test_the_remedy_is_what_was_meant(name: str) -> None:
    place, said, remedy = REMEDIES[name]
    with pytest.raises(NameMissingError, match=f"{said}: there is no .*Remedy: {remedy}"):
        getattr(place, name.rpartition(".")[2])


@pytest.mark.parametrize(("name", "kind", "index"), [
    ("CPU", "cpu", None), ("cpu:1", "cpu", 1), ("REFERENCE", "reference", None)])
def test_a_device_has_a_kind_and_an_index(name: str, kind: str, index: int | None) -> None:
    found: Any = Tensor([1.0], device=name).device
    assert (found.type, found.index) == (kind, index)
    assert (torch.device(name).type, torch.device(name).index) == (kind, index)


def test_several_devices_have_the_kind_of_the_first() -> None:
    spread: Any = Tensor([1.0, 2.0]).shard(("REFERENCE:0", "REFERENCE:1"), 0).device
    assert (spread.type, spread.index) == ("reference", None)
    assert (torch.device("cuda:1").type, torch.device("cuda:1").index) == ("cuda", 1)
    assert (torch.device("mps").type, torch.device("cuda").index) == ("mps", 0)


def test_a_captured_function_may_ask_for_the_kind_of_device() -> None:
    def body(x: Any) -> Any:
        return x * 2 if x.device.type == "reference" else x * 3

    captured: Callable[[Tensor], Tensor] = TinyJit(body)
    for number in range(4):
        assert captured(Tensor([float(number)], device="REFERENCE")).item() == 2 * number
        assert captured(Tensor([float(number)], device="CPU")).item() == 3 * number


def test_names_of_others_have_their_meaning() -> None:
    assert nn.lr_scheduler._LRScheduler is nn.lr_scheduler.LRScheduler
    assert torch.FloatTensor([1, 2]).dtype is dtypes.float32
    kinds = (dtypes.is_float, dtypes.is_int, dtypes.is_unsigned, dtypes.is_bool)
    for dtype, wanted in (("bfloat16", 0b1000), ("int8", 0b100), ("uint8", 0b110), ("bool", 1)):
        assert [ask(dtype) for ask in kinds] == [wanted >> bit & 1 for bit in (3, 2, 1, 0)]
    GlobalCounters.reset()
    (Tensor.ones(4).contiguous() + 1).realize()
    others: Any = GlobalCounters
    assert others.kernel_count == GlobalCounters.kernels > 0
    assert others.global_ops == GlobalCounters.operations > 0
    layer = nn.Linear(2, 2)
    saved = nn.state.get_state_dict(layer)
    assert nn.state.load_state_dict(layer, saved, verbose=False) == ([], [])


def _set_data() -> None:
    x: Any = Tensor([1.0])
    x.data = 3


_LAYER, _GIVEN = nn.Linear(3, 2), Tensor([1.0])
#: What no checker of types would let pass.
_P: Any = _GIVEN
_NUMBER: Any = 3
_GPT = GPT2Config(8, 4, 4, 1, 1)
WRONG: dict[str, tuple[Callable[[], Any], str, str]] = {
    "nn.Linear": (lambda: _LAYER(np.ones((2, 3))), "is a ndarray, and no tensor", "Tensor"),
    "nn.Conv2d": (lambda: nn.Conv2d(1, 1, 3)([[1.0]]), "is a list, and no tensor", "Tensor"),
    "nn.Conv1d": (lambda: nn.Conv1d(1, 1, 3, padding="sme"), "padding='sme'", '"same"'),
    "nn.Sequential": (lambda: nn.Sequential([_LAYER]), "0 is a list", "Sequential(*layers)"),
    "nn.BatchNorm2d": (lambda: nn.BatchNorm2d(2)(Tensor.ones(4, 2)), "(4, 2)", "4 axes"),
    "nn.BatchNorm1d": (lambda: nn.BatchNorm1d(2)(Tensor.ones(1, 2, 1, 1)), "", "2 or 3 axes"),
    "data": (_set_data, "3 is no tensor", "x.data = Tensor"),
    "optim": (lambda: nn.optim.SGD([_NUMBER], lr=0.1), "3 is no tensor", "model.parameters()"),
    "Tensor": (lambda: Tensor([1.0], dtyp="float32"), "no argument dtyp", "did you mean dtype?"),
    "GPT2": (lambda: GPT2(_GPT)(Tensor([1, 2])), "shape (2,)", "tokens.reshape(1, -1)"),
    "export": (lambda: export(lambda x: x, _P, ""), "args is", "(x,)"),
    "TinyJit": (lambda: TinyJit(_NUMBER), "3 is no function", "TinyJit(f)"),
    "grad": (lambda: func.grad(_P), "is no function", "grad(f)(x)"),
    "vmap": (lambda: func.vmap(_P), "is no function", "vmap(f)(x)"),
    "jacrev": (lambda: func.jacrev(_P), "is no function", "jacrev(f)(x)"),
    "jacfwd": (lambda: func.jacfwd(_P), "is no function", "jacfwd(f)(x)")}


@verifies("errors.argument.refused")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_given_in_the_wrong_place_is_named(name: str) -> None:
    call, fault, remedy = WRONG[name]
    with pytest.raises(TensorScheduleError) as raised:
        call()
    assert raised.value.operation == name
    assert fault in raised.value.detail and remedy in raised.value.remedy


def test_a_command_names_the_folder_that_is_missing() -> None:
    with pytest.raises(SystemExit, match="--folder: there is no nowhere.*model.safetensors"):
        write_on("gpt2", lambda path, places: GPT2(_GPT), False,
                 ["--folder", "nowhere", "--prompt", "a"])
