"""What devices with work-groups have in common: from a kernel to a text, a key and launches.

Chapter: spec/device.md.
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from impl import settings
from impl.device import DeviceBackend, Memory, Program, kept
from impl.device.kept import KeptProgram
from impl.dialects.gpu import Gpu
from impl.groups.shape import Shape
from impl.ir import UOp
from impl.kernel import DeviceLimits
from impl.render import SourceText, key_of, render
from impl.searching import optimize, with_steps


@dataclass
class KnownShape:
    """The launches of a kernel without variables: as many groups and lanes each time."""

    each: list[tuple[int, int]]

    def launches(self, values: Sequence[int] = ()) -> list[tuple[int, int]]:
        """How many groups of how many lanes each launch has."""
        return self.each


class GroupProgram(KeptProgram):
    """A kernel for work-groups: its text, what names that, and the shape of its launches.

    What has been kept has a text without words: the parameters and the phases are known.
    """

    text: SourceText
    shape: Shape | KnownShape
    function: Any = None

    def scratch(self) -> Memory | None:
        """Memory that the phases of one run share; to be kept until the last one is launched."""
        return self.device.allocate(max(self.text.scratch, 1)) if self.text.phases else None

    def facts(self) -> dict[str, Any]:
        """What is kept of a program besides its object."""
        text = self.text
        return {**super().facts(), "parameters": text.parameters, "phases": text.phases,
                "scratch": text.scratch, "threads": text.threads,
                "launches": None if self.variables else self.shape.launches()}

    @classmethod
    def of_facts(cls, device: DeviceBackend, ast: UOp, facts: dict[str, Any]) -> GroupProgram:
        """The program of which these facts were kept; its function is not loaded."""
        found = super().of_facts(device, ast, facts)
        phases, threads = tuple(map(bool, facts["phases"])), int(facts["threads"])
        found.text = SourceText(found.name, "", (), "", threads, 1,
                                tuple(map(int, facts["parameters"])), phases, int(facts["scratch"]))
        found.shape = Shape(found.optimized, phases, threads, device.limits.lanes) \
            if found.variables else KnownShape([(int(g), int(n)) for g, n in facts["launches"]])
        return found


class GroupDevice(DeviceBackend):
    """A device that runs kernels for work-groups. `functions` are the loaded ones, by key."""

    program: type[GroupProgram]
    functions: dict[str, Any]

    @property
    def limits(self) -> DeviceLimits:
        """What the device has for a group of lanes."""
        raise NotImplementedError

    def dialect(self) -> Gpu:
        """The language of its kernels."""
        raise NotImplementedError

    def environment(self) -> Sequence[str]:
        """What machine code depends on, besides the text."""
        return ()

    def find(self, key: str) -> bool:
        """Load a kernel from disk into `functions`; False if it is not there."""
        return False

    def build(self, sources: dict[str, SourceText]) -> None:
        """Compile kernels into `functions`.

        Raises:
            CompileError: the compiler refused a text.
        """
        raise NotImplementedError

    def link(self, program: GroupProgram) -> None:
        """Give a program its function."""
        program.function = self.functions[program.key]

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """Optimise, render, and compile what is not compiled yet."""
        # r[impl cuda.values.reference, metal.values.reference, opencl.values.reference]
        # r[impl webgpu.values.reference]
        circumstances = (self.kind, *self.environment())
        known = [kept.known(self, ast, circumstances, self.program, self._rendered)
                 for ast in asts]
        sources = {program.key: source for program, source in known}
        wanted = kept.missing_entries(sources, self.functions, self.find)
        new = {key: sources[key]() for key in wanted}
        if new:
            self.build(new)
        for program, _ in known:
            self.link(program)
        return [program for program, _ in known]

    def optimized(self, ast: UOp, search: bool = True) -> UOp:
        """The kernel after its steps; with BEAM, and unless `search` is false, they are tried."""
        if settings.get("NOOPT"):  # r[impl searching.noopt.plain]
            return ast
        return optimize(ast, self.limits, self, search)

    def rendered(self, ast: UOp) -> GroupProgram:
        """A program that is optimised and has its text, and is not compiled."""
        made = self.program(self, ast, self.optimized(ast))
        text = made.text = render(made.optimized, self.dialect())
        made.shape = Shape(made.optimized, text.phases, text.threads, self.limits.lanes)
        made.key, made.source = key_of(text, *self.environment()), text.text
        return made

    def _rendered(self, ast: UOp) -> tuple[GroupProgram, SourceText]:
        made = self.rendered(ast)
        return made, made.text

    def source(self, ast: UOp) -> str | None:
        """The text of a kernel."""
        return self.rendered(ast).source

    def attempt(self, program: GroupProgram) -> None:
        """Compile a program by itself, give it its function, and keep nothing of it.

        Raises:
            CompileError: the compiler refused the text.
        """
        raise NotImplementedError

    def forget(self, program: GroupProgram) -> None:
        """Give back what `attempt` took; the program does not run any more."""
        program.function = None

    def code_version(self) -> str:
        """Everything about the device and its compiler on which times depend."""
        return repr((self.kind, *self.environment()))

    def trial(self, asts: Sequence[UOp], seconds: float) -> list[GroupProgram | None]:
        """Programs for kernels as they stand, to be tried: nothing is kept of them.

        None for one that cannot be printed, that the compiler refuses, or for which it takes longer
        than `seconds`: it is a part of this process, so it cannot be ended.
        """
        # r[impl device.trial.released+2]
        def attempted(ast: UOp) -> GroupProgram | None:
            start = time.perf_counter()
            try:
                program = self.rendered(with_steps(ast, ()))
                self.attempt(program)
            except Exception:  # a fault of ours; the program can do without this list
                return None
            if time.perf_counter() - start > seconds:
                self.forget(program)
                return None
            return program

        with ThreadPoolExecutor(settings.workers()) as pool:
            return list(pool.map(attempted, asts))

    def release(self, programs: Sequence[GroupProgram]) -> None:
        """Forget programs that were tried."""
        self.synchronize()
        for program in programs:
            self.forget(program)
