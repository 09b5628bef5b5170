"""What tests of a user ask, with the names of `torch.testing` and `torch.autograd.gradcheck`."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from impl.dtypes import dtypes
from impl.host import np
from impl.tensor import Tensor
from impl.tensor.autograd import GradientMode

__all__ = ["assert_close", "gradcheck"]

#: How far two tensors may be apart: by their size, and beside that. PyTorch's numbers.
_TOLERANCES = {dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5),
               dtypes.float32: (1.3e-6, 1e-5), dtypes.float64: (1e-7, 1e-7)}


def assert_close(actual: Any, expected: Any, *, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_dtype: bool = True,
                 msg: str | None = None, **_: Any) -> None:
    """Hold that tensors, numbers, or sequences and mappings of them, are nearly equal.

    The tolerances are those of the dtype, of two the wider; integers have to be equal.

    Raises:
        AssertionError: shapes, dtypes or values differ.
    """
    named: Any = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_dtype": check_dtype,
                  "msg": msg}
    if isinstance(expected, Mapping):
        _hold(isinstance(actual, Mapping) and actual.keys() == expected.keys(),
              f"the keys differ: {list(actual)} and {list(expected)}", msg)
        actual, expected = [actual[key] for key in expected], list(expected.values())
    if isinstance(expected, (list, tuple)):
        _hold(len(actual) == len(expected),
              f"the lengths differ: {len(actual)} and {len(expected)}", msg)
        for one, two in zip(actual, expected, strict=True):
            assert_close(one, two, **named)
        return
    one, two = (each if isinstance(each, Tensor) else Tensor(each) for each in (actual, expected))
    _hold(one.shape == two.shape, f"the shapes differ: {one.shape} and {two.shape}", msg)
    _hold(not check_dtype or one.dtype == two.dtype,
          f"the dtypes differ: {one.dtype.name} and {two.dtype.name}", msg)
    near = [_TOLERANCES.get(each.dtype, (0.0, 0.0)) for each in (one, two)]
    relative = max(near)[0] if rtol is None else rtol
    absolute = max(each[1] for each in near) if atol is None else atol
    left, right = (np.asarray(each.detach().cast(dtypes.float64) if each.is_floating_point()
                              else each.detach().numpy()) for each in (one, two))
    wrong = ~np.isclose(left, right, relative, absolute, equal_nan)
    if wrong.any():
        away = float(np.abs(left[wrong].astype(float) - right[wrong].astype(float)).max())
        _hold(False, f"{wrong.sum()} of {wrong.size} elements differ, by {away:g} at most "
              f"(allowed: {absolute:g} and {relative:g} of the size)", msg)


def _hold(true: bool, what: str, msg: str | None) -> None:
    if not true:
        raise AssertionError(msg or f"assert_close: {what}")


def gradcheck(func: Callable[..., Any], inputs: Any, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, raise_exception: bool = True, **_: Any) -> bool:
    """Whether the gradients of a function are what small steps of its inputs say.

    Take float64: a step of `eps` is lost in the digits of float32.

    Raises:
        AssertionError: they are not, unless `raise_exception` is False.
    """
    given = tuple(one.detach().clone().requires_grad_(one.requires_grad)  # no input of another
                  if isinstance(one, Tensor) and one.is_floating_point() else one
                  for one in ((inputs,) if isinstance(inputs, Tensor) else inputs))
    asked = [place for place, one in enumerate(given)
             if isinstance(one, Tensor) and one.requires_grad]

    def outputs(*values: Any) -> list[Tensor]:
        found = func(*values)
        return [found] if isinstance(found, Tensor) else list(found)

    for number, out in enumerate(outputs(*given)):
        lines = [each.gradient(*(given[place] for place in asked))
                 for each in out.reshape(-1).unbind(0)]
        for column, place in enumerate(asked):
            found = np.array([line[column].numpy().reshape(-1) for line in lines])
            wanted = _by_steps(lambda *v: outputs(*v)[number], given, place, eps)  # noqa: B023
            if not np.allclose(found, wanted, rtol, atol):
                if not raise_exception:
                    return False
                away = np.abs(found - wanted).max()
                raise AssertionError(f"gradcheck: the gradient of output {number} by input "
                                     f"{place} is {away:g} away from what steps of {eps} say")
    return True


def _by_steps(func: Callable[..., Tensor], given: tuple[Any, ...], place: int,
              eps: float) -> np.ndarray:
    """The derivatives of each element of the output, by each element of one input."""
    start, columns = given[place].detach().numpy(), []
    for index in np.ndindex(*start.shape):
        ends = []
        for step in (eps, -eps):
            moved = start.copy()
            moved[index] += step
            with GradientMode.off():
                found = func(*given[:place], Tensor(moved), *given[place + 1:])
            ends.append(found.numpy().reshape(-1))
        columns.append((ends[0] - ends[1]) / (2 * eps))
    return np.array(columns).T
