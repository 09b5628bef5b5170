"""A kernel's text, what names it, and one text for several kernels. Chapter: spec/render.md."""
from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class SourceText:
    """A kernel's text: `body` is the function without its name, `definitions` what it needs."""

    name: str
    body: str
    definitions: tuple[str, ...]
    signature: str
    threads: int = 1              # how many chunks run at the same time, or lanes in all groups
    lanes: int = 1                # lanes of a group
    parameters: tuple[int, ...] = ()  # the argument of each pointer, where they are parameters
    phases: tuple[bool, ...] = ()  # one after another; True: all chunks, False: one call
    scratch: int = 0              # bytes that the chunks of one run share
    own: int = 0                  # bytes that each thread needs for itself

    @property
    def prelude(self) -> str:
        """The definitions that the body refers to, each after those that it needs."""
        return "".join(definition + "\n" for definition in self.definitions)

    @property
    def text(self) -> str:
        """The complete text of a compilation unit with this kernel alone."""
        return f"{self.prelude}\n{self.signature.format(name=self.name)} {self.body}"


def digest(*parts: str) -> str:
    """A name for what some texts say."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def key_of(source: SourceText, *environment: str) -> str:
    """What names a kernel's text and all that its machine code depends on, but not its name."""
    # r[impl device.key.complete+2, cpu.compile.once, cpu.cache.key]
    return digest(*environment, source.prelude, source.signature, source.body)


def symbol(key: str) -> str:
    """How the function of a kernel is called."""
    return f"kernel_{key[:24]}"


def unit_text(unit: Iterable[tuple[str, SourceText]]) -> str:
    """One text: every definition once, then the kernels, each named by its key."""
    # r[impl cpu.compile.shared+2]
    pairs = list(unit)
    definitions = dict.fromkeys(each for _, source in pairs for each in source.definitions)
    kernels = [f"{each.signature.format(name=symbol(key))} {each.body}" for key, each in pairs]
    return "\n".join((*definitions, *kernels))


def names_of(sources: Iterable[SourceText]) -> str:
    """The first kernels of a unit, for an error."""
    return ", ".join([source.name for source in sources][:4])
