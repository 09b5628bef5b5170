"""Distributions to draw from and to weigh by, with the names of `torch.distributions`.

Each stands in `impl.nn.drawing` or in `impl.nn.families`; `constraints` say what they allow.
"""
from __future__ import annotations

from typing import NoReturn

from impl.nn import constraints, drawing, families
from impl.nn.drawing import *  # noqa: F403
from impl.nn.families import *  # noqa: F403
from impl.nn.names import missing, publish

__all__ = ["constraints", *drawing.__all__, *families.__all__]
publish("distributions", __all__)


def __getattr__(name: str) -> NoReturn:
    raise missing(name, (), "nn.distributions")  # r[impl errors.name.missing]
