"""What methods say about arguments that they cannot work with: never a raw error of Python's."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor
from impl.errors import ArgumentError, TensorScheduleError
from impl.tensor import names

WRONG: list[Callable[[], Any]] = [
    lambda: 0, lambda: -1, lambda: 1.5, lambda: None, lambda: "x", lambda: np.ones(3),
    lambda: [1, "a"], lambda: slice(None), object, lambda: (0, 0), lambda: Tensor([1.0, 2.0]),
    lambda: Tensor([[1, 2], [3, 4]]), lambda: True, dict, lambda: float("nan"), lambda: 10**30]
SUBJECTS: dict[str, Callable[[], Tensor]] = {
    "a matrix": lambda: Tensor([[1.0, 2.0], [3.0, 4.0]]), "integers": lambda: Tensor([3, 1, 2]),
    "a number": lambda: Tensor(1.0)}
#: They call what they are given, or make an object of any kind.
OTHERS = ("sequential", "runtime", "training")
NAMES = [name for name in dir(Tensor) if not name.startswith("_") and not name.endswith("_")
         and name not in OTHERS and callable(getattr(Tensor, name))]


def raw_error(name: str, subject: str, arguments: tuple[Any, ...]) -> str:
    """What is wrong with the error that a call raises, if it raises one."""
    try:
        getattr(SUBJECTS[subject](), name)(*arguments)
    except TensorScheduleError as error:
        return "" if error.remedy and error.line != "<unknown>" else f"no remedy or line: {error}"
    except Exception as error:  # noqa: BLE001  # which is what is looked for
        return f"{name} of {subject} with {arguments!r:.60}: {type(error).__name__}: {error}"
    return ""


@verifies("errors.argument.raw")
def test_wrong_arguments_give_errors_of_our_own() -> None:
    """Each method gets some of the mistakes; which ones differs from method to method."""
    found = []
    for place, name in enumerate(NAMES):
        for turn, subject in enumerate(SUBJECTS):
            wrong = WRONG[(place + 5 * turn) % len(WRONG)]
            found += [raw_error(name, subject, (wrong(),) * (1 + (place + turn) % 2))]
    assert not any(found), "\n".join(each for each in found if each)


@verifies("errors.argument.raw")
def test_the_error_names_the_method_the_arguments_and_what_is_meant() -> None:
    with pytest.raises(ArgumentError, match=re.escape(
            "Tensor.hstack: (0) cannot be worked with: ")) as found:
        Tensor.hstack(0)
    assert found.value.remedy == "give what is meant by (*given)" and found.value.__cause__
    with pytest.raises(ArgumentError, match="layer_norm") as found:
        Tensor([1.0]).layer_norm(slice(None))
    assert "weight: Tensor | None = None" in found.value.remedy


@verifies("errors.argument.raw")
def test_an_error_of_a_function_that_was_given_is_left_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        Tensor([1.0]).sequential([lambda x: x / (1 // 0)])


@verifies("errors.name.missing")
@pytest.mark.parametrize("library, most", [("torch", 145), ("tinygrad", 32)])
def test_what_others_have_is_here_or_has_a_remedy(library: str, most: int) -> None:
    theirs = pytest.importorskip(library).Tensor
    missing = [name for name in dir(theirs) if not name.startswith("_")
               and not hasattr(Tensor, name)]
    without = [name for name in missing if name not in names._MEANT and name[:-1] not in NAMES]
    assert len(missing) <= most and not without, (len(missing), without)
