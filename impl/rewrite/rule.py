"""A rule: a pattern, and what becomes of a node that it matches. Chapter: spec/rewrite.md.

The function gets the captured nodes by the names of its parameters and returns a node that means
the same, or None for "this does not apply".
"""
from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from impl.errors import GraphError
from impl.rewrite.patterns import UPat


class Rule:
    """A pattern with the function that rewrites what it finds, a name, and the reason for it.

    `function` takes the captures by name and, if it has a parameter `ctx`, the context. It returns
    None if the rule does not apply after all: other ways to match are tried then.
    """

    __slots__ = ("pattern", "function", "name", "reason", "parameters", "needs")

    def __init__(self, pattern: UPat, function: Callable[..., Any], name: str = "",
                 reason: str = "") -> None:
        self.pattern, self.function, self.reason = pattern, function, reason
        self.name = name or _function_name(function)
        self.parameters = tuple(inspect.signature(function).parameters)
        self.needs = pattern.needs()
        captured = pattern.captures()
        for name in self.parameters:
            if name != "ctx" and name not in captured:
                raise GraphError("Rule", f"{self.name} wants {name!r}, which the pattern does not "
                                 "capture", "name that part of the pattern")


def _function_name(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    if code is None:
        return name
    return f"{name.strip('<>')} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
