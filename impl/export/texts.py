"""What all targets write alike: index arithmetic, and a name for each text of a kernel."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from impl.dtypes import DType, Scalar
from impl.export.names import unique_name
from impl.ir import Ops, UOp, toposort
from impl.render import SourceText


class Arithmetic(Protocol):
    """What a dialect says of numbers."""

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number."""

    def operation(self, node: UOp, given: list[str], plain: bool) -> str:
        """An operation."""


def expression(node: UOp, dialect: Arithmetic, names: Mapping[UOp, str]) -> str:
    """An index as text; `names` are its variables, bound or not."""
    # r[impl export.variable.checked+2]
    done: dict[UOp, str] = {}
    for part in toposort((node,), lambda u: u not in names and u.op is not Ops.BIND):
        if part in names:
            done[part] = names[part]
        elif part.op is Ops.BIND:
            done[part] = dialect.literal(part.src[1].arg, part.dtype)
        elif part.op is Ops.CONST:
            done[part] = dialect.literal(part.arg, part.dtype)
        else:
            done[part] = dialect.operation(part, [done[s] for s in part.src], False)
    return done[node]


class KernelTexts:
    """The texts of kernels, each once, with a name of its own."""

    def __init__(self, before: str = "") -> None:
        self.before = before  # a word before each
        self.named: dict[tuple[str, str], str] = {}
        self.definitions: dict[str, None] = {}
        self.texts: list[str] = []

    def name(self, source: SourceText) -> str:
        """The name of a kernel's function; its text is added when it is new."""
        key = source.signature, source.body
        if key not in self.named:
            name = self.named[key] = unique_name(source.name, self.named.values())
            self.definitions.update(dict.fromkeys(source.definitions))
            self.texts.append(f"{self.before}{source.signature.format(name=name)} {source.body}")
        return self.named[key]

    def text(self) -> str:
        """All definitions, then all kernels."""
        return "\n".join([*self.definitions, *self.texts])
