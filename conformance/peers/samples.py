"""Torch's samples of operator inputs, run by torch and by `impl`."""
from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.peers.names import APART, OURS, TIES
from conformance.peers.report import Report
from impl import Tensor, dtypes, nn

#: The dtypes whose samples are run, the first of them with gradients.
DTYPES = ("float32", "int64", "bool")


def operators(names: Sequence[str] = ()) -> Iterator[Any]:
    """Torch's operators, those of these names if there are any."""
    from torch.testing._internal.common_methods_invocations import op_db

    for operator in op_db:
        if not names or full_name(operator) in names or operator.name in names:
            yield operator


def full_name(operator: Any) -> str:
    """The name, with that of its variant."""
    return operator.name + (f".{operator.variant_test_name}" if operator.variant_test_name else "")


def method_of(name: str) -> Any:
    """Our function of the same meaning; None if there is none."""
    known = OURS.get(name)
    if known is not None:
        return known
    module, _, last = name.rpartition(".")
    if module == "nn.functional" and last in nn.functional.__all__:
        return getattr(nn.functional, last)
    target: Any = Tensor
    parts = [part for part in name.split(".") if part not in ("nn", "functional", "special")]
    for part in parts:
        if not hasattr(target, part):
            return None
        target = getattr(target, part)
    return target


def run(operator: Any, most: int, report: Report) -> None:
    """Run the samples of an operator in each dtype."""
    import torch

    name = full_name(operator)
    reason = next((why for key, why in APART.items() if key in (operator.name, name)
                   or key.endswith("*") and operator.name.startswith(key[:-1])), None)
    if reason:
        report.leaves_out(name, reason)
        return
    method = method_of(operator.name)
    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        if kind not in operator.dtypes:
            continue
        slopes = dtype == "float32" and operator.supports_autograd
        try:
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                samples = list(operator.sample_inputs("cpu", kind, requires_grad=slopes))[:most]
        except Exception as error:  # noqa: BLE001  # some need what is not built in
            report.leaves_out(name, f"torch cannot make samples: {error}"[:80])
            return
        for sample in samples:
            if method is None:
                report.fails(name, "there is no such method")
            else:
                _judge(operator, method, sample, slopes, name, report)


def _judge(operator: Any, method: Any, sample: Any, slopes: bool, name: str,
           report: Report) -> None:
    import torch

    given = (sample.input, *sample.args), sample.kwargs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = operator(*given[0], **given[1])
    except Exception:  # noqa: BLE001  # torch itself refuses it
        return
    if sample.kwargs.get("dropout_p") or sample.kwargs.get("out") is not None:
        return
    if any(isinstance(one, torch.Tensor) and (one.is_complex() or one.layout is not torch.strided)
           for one in leaves_of((given, wanted))):
        return
    leaves = [one for one in leaves_of(given) if isinstance(one, torch.Tensor)
              and one.requires_grad and one.is_leaf]
    ours: dict[int, Tensor] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with np.errstate(all="ignore"):
                found = method(*converted(given[0], ours), **converted(given[1], ours))
                _compare(found, wanted, operator.name in TIES)
                if slopes and leaves:
                    _compare_slopes(found, wanted, leaves, ours)
    except Exception as error:  # noqa: BLE001  # which is what is counted
        shapes = [tuple(one.shape) for one in leaves_of(given) if isinstance(one, torch.Tensor)]
        report.fails(name, f"{type(error).__name__}: {error}" + (
            f" ({shapes} {sample.args} {sample.kwargs})"[:300] if report.verbose else ""))
    else:
        report.passes(name)


def leaves_of(value: Any) -> Iterator[Any]:
    """All that is in lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from leaves_of(one)
    elif isinstance(value, dict):
        yield from leaves_of(list(value.values()))
    else:
        yield value


def converted(value: Any, ours: dict[int, Tensor]) -> Any:
    """Torch's arguments as ours."""
    import torch

    if isinstance(value, torch.Tensor):
        if id(value) not in ours:
            made = Tensor(value.detach().contiguous().numpy())
            ours[id(value)] = made.requires_grad_(True) if value.requires_grad else made
        return ours[id(value)]
    if isinstance(value, torch.dtype):
        return getattr(dtypes, str(value).removeprefix("torch."))
    if isinstance(value, torch.device) or value == "cpu":
        return None  # ours are on the device of the settings
    if isinstance(value, dict):
        return {key: converted(one, ours) for key, one in value.items() if key != "device"}
    if type(value) in (list, tuple):
        return type(value)(converted(one, ours) for one in value)
    return tuple(value) if isinstance(value, torch.Size) else value


def _compare(found: Any, wanted: Any, ties: bool) -> None:
    """Raise if a result is not torch's."""
    import torch

    if isinstance(wanted, torch.Tensor):
        if not isinstance(found, Tensor):
            raise AssertionError(f"{type(found).__name__} in place of a tensor")
        if found.shape != tuple(wanted.shape):
            raise AssertionError(f"shape {found.shape} in place of {tuple(wanted.shape)}")
        theirs = wanted.detach().numpy()
        kinds = found.dtype.kind.replace("u", "i"), theirs.dtype.kind.replace("u", "i")
        if kinds[0] != kinds[1]:
            raise AssertionError(f"dtype {found.dtype.name} in place of {theirs.dtype}")
        if not (ties and kinds[1] == "i"):  # places: any of those that are equal
            _close(found.numpy(), theirs, "values")
    elif isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            raise AssertionError(f"{type(found).__name__} in place of {len(wanted)} results")
        for one, two in zip(found, wanted, strict=True):
            _compare(one, two, ties)
    elif isinstance(wanted, (bool, int, float)) and found != wanted:
        raise AssertionError(f"{found!r} in place of {wanted!r}")


def _close(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    same = np.allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-4, atol=2e-4,
                       equal_nan=True)
    if not same:
        off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        raise AssertionError(f"{what} differ by {np.nanmax(off, initial=0):.3g} or in NaN")


def _compare_slopes(found: Any, wanted: Any, leaves: list[Any], ours: dict[int, Tensor]) -> None:
    """Raise if a gradient is not torch's: of a sum of all results, each with a weight."""
    import torch

    theirs = [one for one in leaves_of(wanted) if isinstance(one, torch.Tensor)
              and one.requires_grad]
    if not theirs:
        return
    mine = [two for one, two in zip(leaves_of(wanted), leaves_of(found), strict=True)
            if isinstance(one, torch.Tensor) and one.requires_grad]
    total: Any = torch.zeros(())
    our_total = Tensor(0.0)
    for one, two in zip(theirs, mine, strict=True):
        weight = torch.cos(torch.arange(one.numel(), dtype=one.dtype)).reshape(one.shape)
        total = total + (one * weight).sum()
        our_total = our_total + (two * Tensor(weight.numpy())).sum()
    slopes = torch.autograd.grad(total, leaves, allow_unused=True)
    known = [(leaf, slope) for leaf, slope in zip(leaves, slopes, strict=True)
             if slope is not None]
    found_slopes = our_total.gradient(*(ours[id(leaf)] for leaf, _ in known))
    for (_, slope), own in zip(known, found_slopes, strict=True):
        _close(own.numpy(), slope.numpy(), "gradients")
