"""`python -m conformance.peers.slopes`: first and second derivatives, beside torch and differences.

For each operator of torch that has second derivatives, and that `impl` has, samples in float64:

    first    how a weighted sum of the results changes along a direction
    second   how that change itself changes along another direction

Torch says both, and so do central differences: of the sum for the first, of our first derivative
for the second. A sample fails if one of ours is neither torch's nor that of the differences; where
a function has a corner, or a tie, differences have no say and torch does. Where torch says NaN,
there is no derivative.
"""
from __future__ import annotations

import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.peers.names import APART
from conformance.peers.samples import converted, full_name, leaves_of, method_of, operators
from impl import Context, Tensor

_STEP = 1e-5
#: Samples with more numbers to differentiate for are left out: the rest shows the same.
_MOST = 500
#: What has no rows, and why.
_NONE = {"special.i1e": "has no second derivative at 0, which is among the samples",
         "linalg.pinv.hermitian": "is asked of matrices that are not symmetric",
         "linalg.vander": "is asked of numbers", "to": "is about devices",
         "half": "rounds its gradient to half the digits",
         "nn.functional.pad.replicate_negative": "cuts off, which `pad` does in one mode only"}
#: Vectors of which only the direction is known: the signs are no part of the answer.
_DIRECTIONS = ("linalg.eigh", "linalg.svd", "svd")


@dataclass
class Row:
    """What came of the samples of an operator: by order, how many are as torch and as differences
    say.
    """

    samples: int = 0
    torch: list[int] = field(default_factory=lambda: [0, 0])
    differences: list[int] = field(default_factory=lambda: [0, 0])
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.samples:7} {self.torch[0]:7} {self.differences[0]:7} {self.torch[1]:7} " \
            f"{self.differences[1]:7}  {self.failed[0][:110] if self.failed else ''}"


class Sample:
    """A sample of an operator, as a function of numbers along directions."""

    def __init__(self, operator: Any, method: Any, sample: Any) -> None:
        self.operator, self.method = operator, method
        self.linear = 0.0 if operator.name in _DIRECTIONS else 1.0
        self.args, self.kwargs = (sample.input, *sample.args), sample.kwargs
        self.leaves = [one for one in leaves_of((self.args, self.kwargs)) if _is_float(one)
                       and one.requires_grad]
        numbers = np.random.default_rng(0)
        self.ways = [[numbers.standard_normal(tuple(one.shape)) for one in self.leaves]
                     for _ in range(2)]

    def of_torch(self) -> tuple[float, float]:
        """Both derivatives, by torch."""
        import torch

        total = _weighted(self.operator(*self.args, **self.kwargs), self.linear)
        slopes = torch.autograd.grad(total, self.leaves, create_graph=True, allow_unused=True)
        first = _along_of_torch(slopes, self.ways[0])
        if not first.requires_grad:
            return first.item(), 0.0
        again = torch.autograd.grad(first, self.leaves, allow_unused=True)
        return first.item(), _along_of_torch(again, self.ways[1]).item()

    def of_impl(self, way: int = 0, step: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
        """The sum and both derivatives, by `impl`, at a place so far along a direction."""
        ours: dict[int, Tensor] = {}
        for leaf, along in zip(self.leaves, self.ways[way], strict=True):
            ours[id(leaf)] = Tensor(leaf.detach().numpy() + step * along).requires_grad_()
        found = self.method(*converted(self.args, ours), **converted(self.kwargs, ours))
        total = _weighted_of_impl(found, self.linear)
        targets = [ours[id(leaf)] for leaf in self.leaves]
        first = _along(total.gradient(*targets), self.ways[0])
        return total, first, _along(first.gradient(*targets), self.ways[1])

    def differences(self) -> tuple[float, float]:
        """Both derivatives, by differences of what `impl` computes."""
        found = [[self.of_impl(way, step)[way].item() for step in (_STEP, -_STEP)]
                 for way in (0, 1)]
        first, second = ((there - back) / (2 * _STEP) for there, back in found)
        return first, second


def _is_float(one: Any) -> bool:
    import torch
    return isinstance(one, torch.Tensor) and one.is_floating_point()


def _weights(shape: Sequence[int]) -> np.ndarray:
    return np.asarray(np.cos(np.arange(int(np.prod(shape)), dtype=np.float64)).reshape(shape))


def _weighted(value: Any, linear: float) -> Any:
    """One number of torch's results; their squares too, so that a sum has second derivatives."""
    import torch

    parts = [one for one in leaves_of(value) if _is_float(one) and one.requires_grad]
    return sum(((linear * one + one * one / 4) * torch.tensor(_weights(one.shape))).sum()
               for one in parts)


def _weighted_of_impl(value: Any, linear: float) -> Any:
    parts = [one for one in leaves_of(value) if isinstance(one, Tensor) and one.dtype.kind == "f"]
    return sum(((linear * one + one * one / 4) * Tensor(_weights(one.shape))).sum()
               for one in parts)


def _along_of_torch(slopes: Sequence[Any], way: Sequence[np.ndarray]) -> Any:
    import torch

    parts = [(slope * torch.tensor(along)).sum() for slope, along in zip(slopes, way, strict=True)
             if slope is not None]
    return sum(parts, torch.zeros((), dtype=torch.float64))


def _along(slopes: Sequence[Tensor], way: Sequence[np.ndarray]) -> Tensor:
    return sum(((slope * Tensor(along)).sum() for slope, along in zip(slopes, way, strict=True)),
               Tensor(0.0, dtype="float64"))


def _near(one: float, other: float, tolerance: float) -> bool:
    return bool(np.isclose(one, other, tolerance, tolerance, equal_nan=True))


def judge(operator: Any, most: int) -> Row | None:
    """The row of an operator; None if torch has no second derivative of it, or `impl` not it."""
    import torch

    name, row = full_name(operator), Row()
    method = method_of(operator.name)
    apart = any(key in (operator.name, name) or key.endswith("*")
                and operator.name.startswith(key[:-1]) for key in APART)
    if apart or name in _NONE or method is None or not operator.supports_gradgrad \
            or torch.float64 not in operator.dtypes:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in operator.sample_inputs("cpu", torch.float64, requires_grad=True):
            sample = Sample(operator, method, given)
            if row.samples == most:
                break
            try:
                wanted = sample.of_torch()
            except Exception:  # noqa: BLE001, S112  # torch itself refuses it
                continue
            if 0 < sum(leaf.numel() for leaf in sample.leaves) <= _MOST:
                _count(sample, wanted, row)
    return row if row.samples else None


def _count(sample: Sample, wanted: tuple[float, float], row: Row) -> None:
    row.samples += 1
    try:
        with np.errstate(all="ignore"):
            _, *found = (part.item() for part in sample.of_impl())
            other = sample.differences()
    except Exception as error:  # noqa: BLE001  # which is what is counted
        row.failed.append(f"{type(error).__name__}: {error}")
        return
    for order in range(2):
        as_torch = _near(found[order], wanted[order], 1e-6)
        as_differences = _near(found[order], other[order], 1e-4)
        row.torch[order] += as_torch
        row.differences[order] += as_differences
        if not (as_torch or as_differences or np.isnan(wanted[order])):
            row.failed.append(f"order {order + 1}: {found[order]:.6g} instead of "
                              f"{wanted[order]:.6g} by torch, {other[order]:.6g} by differences")
            return


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each operator, and the sums."""
    parser = ArgumentParser(prog="python -m conformance.peers.slopes")
    parser.add_argument("names", nargs="*", help="only operators with these names")
    parser.add_argument("--samples", type=int, default=4, help="the most samples of an operator")
    options = parser.parse_args(arguments)
    rows: dict[str, Row] = {}
    print(f"{'':34} samples   first: torch, diff. second: torch, diff.")
    with Context(DEVICE="REFERENCE"):
        for operator in operators(options.names):
            row = judge(operator, options.samples)
            if row is not None:
                rows[full_name(operator)] = row
                print(f"{full_name(operator):34}{row}", flush=True)
    failed = sum(bool(row.failed) for row in rows.values())
    print(f"{len(rows)} operators, {sum(row.samples for row in rows.values())} samples; "
          f"{failed} operators fail")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
