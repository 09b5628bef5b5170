"""Kernels of one's own: nodes whose kernel the user has written. Chapter: spec/custom.md.

A CUSTOM is a node like any other. Its sources are the tensors that the kernel is given, its value
is one of those that the kernel stores, and its argument, a `CustomKernel`, has the kernel.

    notation   how a kernel is written: memory, numbers, loops
    texts      kernels that are source text in the language of a device
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from impl.custom.notation import KernelMemory, KernelStore, KernelStores, Number, local, loop
from impl.custom.texts import KernelText, WrittenText, written_text
from impl.dtypes import DType
from impl.ir import Shape, UOp

__all__ = ["CustomKernel", "KernelStores", "KernelMemory", "KernelText", "Number", "KernelStore",
           "WrittenText", "local", "loop", "written_text"]


@dataclass(frozen=True)
class CustomKernel:
    """A kernel, and what its arguments are.

    `arguments` are the shape and dtype behind each PARAM of the SINK `ast`. The kernel loads from
    some and stores into the others, `stored`: what it loads is what stood there before it ran.
    `sources` says which source of the node an argument is; of one that is stored, what stands there
    besides what is stored, None if nothing does. The value of the node is what the kernel leaves in
    argument `position`.
    """

    ast: UOp
    arguments: tuple[tuple[Shape, DType], ...]
    sources: tuple[int | None, ...]
    stored: tuple[int, ...]
    position: int

    @property
    def name(self) -> str:
        """What a profile shows."""
        return str(self.ast.arg.name)

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return self.arguments[self.position][0]

    def result(self, node: UOp, position: int) -> UOp:
        """The node of another value that the kernel of a node stores."""
        return node.replace(dtype=self.arguments[position][1], arg=replace(self, position=position))
