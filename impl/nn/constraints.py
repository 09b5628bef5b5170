"""What the parameters and values of distributions are held to: `torch.distributions.constraints`.

`positive.check(x)` says of each element, or of each vector or matrix, whether it is allowed.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Constraint", "boolean", "greater_than", "greater_than_eq", "integer_interval",
           "interval", "lower_cholesky", "nonnegative", "nonnegative_integer",
           "one_hot", "positive", "positive_definite", "positive_integer", "real", "real_vector",
           "simplex", "unit_interval"]


@dataclass(frozen=True)
class Constraint:
    """What is allowed, in words, and the question whether something is."""

    name: str
    check: Callable[[Any], Any]


def greater_than(lower_bound: Any) -> Constraint:
    """Above a bound."""
    return Constraint(f"greater than {lower_bound}", lambda value: value > lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """A bound, or above it."""
    return Constraint(f"{lower_bound} or greater", lambda value: value >= lower_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """From one bound to another; both are allowed."""
    return Constraint(f"from {lower_bound} to {upper_bound}",
                      lambda value: (value >= lower_bound) & (value <= upper_bound))


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers from one bound to another; both are allowed."""
    return Constraint(f"whole, from {lower_bound} to {upper_bound}", lambda value: (
        value % 1 == 0) & (value >= lower_bound) & (value <= upper_bound))


def _adds_up(value: Any) -> Any:
    return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


def _is_one_hot(value: Any) -> Any:
    return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


def _is_lower(value: Any) -> Any:
    return (value.tril() == value).all((-2, -1)) & (value.diagonal(0, -2, -1) > 0).all(-1)


def _is_definite(value: Any) -> Any:
    near = (value - value.mT).abs() <= 1e-6
    return near.all((-2, -1)) & (value.eigvalsh() > 0).all(-1)


real = Constraint("a number", lambda value: value == value)
real_vector = Constraint("a vector of numbers", lambda value: (value == value).all(-1))
positive = Constraint("greater than 0", lambda value: value > 0)
nonnegative = Constraint("0 or greater", lambda value: value >= 0)
unit_interval = interval(0, 1)
boolean = Constraint("0 or 1", lambda value: (value == 0) | (value == 1))
nonnegative_integer = Constraint("whole, 0 or greater",
                                 lambda value: (value % 1 == 0) & (value >= 0))
positive_integer = Constraint("whole, 1 or greater",
                              lambda value: (value % 1 == 0) & (value >= 1))
simplex = Constraint("shares that add up to 1", _adds_up)
one_hot = Constraint("a vector with one 1, and 0 elsewhere", _is_one_hot)
lower_cholesky = Constraint("a lower triangle with a positive diagonal", _is_lower)
positive_definite = Constraint("symmetric and positive definite", _is_definite)
