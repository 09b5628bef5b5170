"""What devices with work-groups have in common: from a kernel to a text, a key and launches.

Chapter: spec/device.md.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from impl import settings
from impl.device import DeviceBackend, Memory, Program
from impl.ir import UOp
from impl.kernel import Limits, optimize
from impl.kernel.shape import Shape
from impl.render.gpu import Gpu
from impl.render.printer import Source, render


# --8<-- [start:names]
def key_of(source: Source, *environment: str) -> str:
    """What names a kernel's text and all that its machine code depends on, but not its name."""
    # r[impl device.key.complete]
    parts = (*environment, source.prelude, source.signature, source.body)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def symbol(key: str) -> str:
    """How the function of a kernel is called."""
    return f"kernel_{key[:24]}"


def unit_text(unit: Iterable[tuple[str, Source]]) -> str:
    """One text: every definition once, then the kernels, each named by its key."""
    pairs = list(unit)
    definitions = dict.fromkeys(each for _, source in pairs for each in source.definitions)
    kernels = [f"{each.signature.format(name=symbol(key))} {each.body}" for key, each in pairs]
    return "\n".join((*definitions, *kernels))


def names_of(sources: Iterable[Source]) -> str:
    """The first kernels of a unit, for an error."""
    return ", ".join([source.name for source in sources][:4])
# --8<-- [end:names]


# --8<-- [start:program]
class GroupProgram(Program):
    """A kernel for work-groups: its text, what names that, and the shape of its launches."""

    text: Source
    shape: Shape
    key = ""

    def scratch(self) -> Memory | None:
        """Memory that the phases of one run share; to be kept until the last one is launched."""
        return self.device.allocate(max(self.text.scratch, 1)) if self.text.phases else None


class GroupDevice(DeviceBackend):
    """A device that runs kernels for work-groups."""

    program: type[GroupProgram]

    @property
    def limits(self) -> Limits:
        """What the device has for a group of lanes."""
        raise NotImplementedError

    def dialect(self) -> Gpu:
        """The language of its kernels."""
        raise NotImplementedError

    def environment(self) -> Sequence[str]:
        """What machine code depends on, besides the text."""
        return ()

    def optimized(self, ast: UOp, search: bool = True) -> UOp:
        """The kernel after its steps."""
        if settings.get("NOOPT"):  # r[impl kernel.noopt.plain]
            return ast
        return optimize(ast, self.limits)

    def rendered(self, ast: UOp) -> GroupProgram:
        """A program that is optimised and has its text, and is not compiled."""
        made = self.program(self, ast, self.optimized(ast))
        text = made.text = render(made.optimized, self.dialect())
        made.shape = Shape(made.optimized, text.phases, text.threads, self.limits.lanes)
        made.key, made.source = key_of(text, *self.environment()), text.text
        return made

    def source(self, ast: UOp) -> str | None:
        """The text of a kernel."""
        return self.rendered(ast).source
# --8<-- [end:program]
