"""A function as a module of JavaScript, with WebGPU or without. Chapter: spec/export.md."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from impl import symbolic
from impl.dialects import WGSL, JavaScript
from impl.errors import ExportError
from impl.export.artefact import Artefact, KernelCall, Port
from impl.export.names import unique_name
from impl.export.texts import KernelTexts, expression
from impl.groups.shape import Shape
from impl.ir import UOp
from impl.kernel import DeviceLimits
from impl.render import SourceText, render
from impl.searching import optimize

_HERE = Path(__file__).parent


def _row(port: Port) -> dict[str, Any]:
    # r[impl export.page.checked]
    exact = not any(map(symbolic.is_symbolic, port.shape))
    return {"name": port.name, "dtype": port.dtype.name, "bytes": port.nbytes, "exact": exact,
            "shape": [int(size) for size in port.shape]}


#: The limits that every device of WebGPU has, and so a page may rely on.
LIMITS = DeviceLimits(name="WEBGPU", lanes=256, lockstep=32, local_memory=16384)
#: Of eight arrays one is a zero, and one may be the memory that phases share.
ARGUMENTS = 6


class JavaScriptText:
    """The text of an artefact as a module. Kernels are taken as they stand, without steps."""

    def __init__(self, artefact: Artefact) -> None:
        self.artefact, self.kernels, self.dialect = artefact, KernelTexts(), JavaScript()

    def source(self) -> str:
        """The module."""
        program = {**self.program(), "calls": [self.call(c) for c in self.artefact.calls]}
        names = ", ".join(self.kernels.named.values())
        return "\n".join([
            f"// {self.artefact.name}: made by Tensor Schedule. Needs nothing.",
            f"const program = {json.dumps(program)};", self.conditions(), self.kernels.text(),
            f"const kernels = {{{names}}};", script("plain"), script("checks")])

    def program(self) -> dict[str, Any]:
        """What the runner is told, but for the calls."""
        made = self.artefact
        return {"name": made.name, "inputs": [*map(_row, made.inputs)],
                "outputs": [*map(_row, made.outputs)], "states": [*map(_row, made.states)],
                "integers": [{"name": v.name, "least": v.least, "greatest": v.greatest}
                             for v in made.variables],
                "copies": [{"source": s, "target": t, "bytes": n} for s, t, n in made.copies],
                "arena": made.arena, "random": made.random, "random_used": made.random_used}

    def call(self, call: KernelCall) -> dict[str, Any]:
        """One call of a kernel, whose text is noted."""
        # r[impl export.js.values], r[impl export.page.watched]
        name = self.kernels.name(render(call.ast, self.dialect))
        return {"kernel": name, "memory": call.spots, "bytes": call.nbytes, "writes": call.writes,
                "values": call.values}

    def conditions(self) -> str:
        """A function that says whether integers are as they were where it matters."""
        # r[impl export.variable.checked+2]
        made, dialect = self.artefact, JavaScript()
        named = {v.node: v.name for v in made.variables}
        texts = [f"{'' if outcome else '!'}({expression(condition, dialect, named)})"
                 for condition, outcome in made.conditions]
        self.kernels.definitions.update(dict.fromkeys(dialect.definitions()))
        return (f"const conditions = ([{', '.join(v.name for v in made.variables)}]) => "
                f"{' && '.join(texts) or 'true'};")


class WebGPUText(JavaScriptText):
    """The same with kernels for WebGPU, in WGSL."""

    def __init__(self, artefact: Artefact) -> None:
        super().__init__(artefact)
        self.language = WGSL(wide=False)
        self.named: dict[str, str] = {}  # the names of shaders by their texts
        self.scratch = 0

    def source(self) -> str:
        """The module."""
        # r[impl export.gpu.values]
        calls = ",\n  ".join(map(self.call_text, self.artefact.calls))
        program = {**self.program(), "scratch": self.scratch}
        shaders = ",\n".join(f"{json.dumps(name)}: {json.dumps(text)}"
                             for text, name in self.named.items())
        conditions = self.conditions()
        self.kernels.definitions.update(dict.fromkeys(self.dialect.definitions()))
        return "\n".join([
            f"// {self.artefact.name}: made by Tensor Schedule. Needs WebGPU.",
            self.kernels.text(), f"const program = {json.dumps(program)};",
            f"program.calls = [\n  {calls}];", conditions, f"const shaders = {{{shaders}}};",
            script("gpu"), script("checks")])

    def call_text(self, call: KernelCall) -> str:
        """One call of a kernel, whose text is noted; its launches are a function of its values."""
        made = optimize(call.ast, LIMITS)
        text = render(made, self.language)
        self.scratch = max(self.scratch, text.scratch)
        if len(text.parameters) + bool(text.phases) > ARGUMENTS + 1:
            raise ExportError(  # r[impl export.refused.named]
                self.artefact.name, f"has a kernel, {text.name}, with {len(text.parameters)} "
                f"arguments, where a page is sure of {ARGUMENTS + 1 - bool(text.phases)}",
                "let a part of it be computed before (.contiguous())")
        shader = f"{text.prelude}\n{text.signature.format(name='main')} {text.body}"
        name = self.named.get(shader) or unique_name(text.name, self.named.values())
        self.named[shader] = name
        row = {"kernel": name, "memory": [call.spots[p] for p in text.parameters],
               "bytes": [call.nbytes[p] for p in text.parameters],
               "writes": [place for place, p in enumerate(text.parameters) if p in call.writes],
               "values": call.values,
               "phases": max(len(text.phases), 1)}
        return f"{json.dumps(row)[:-1]}, launches: (v) => {self.launches(made, text)}}}"

    def launches(self, ast: UOp, text: SourceText) -> str:
        """How many groups of how many lanes each launch has."""
        shape = Shape(ast, text.phases, text.threads, LIMITS.lanes)
        if not shape.variables:
            return json.dumps(shape.launches())
        if shape.phases:
            return json.dumps(shape.launches([v.arg[2] for v in shape.variables]))
        named = {variable: f"v[{place}]" for place, variable in enumerate(shape.variables)}
        whole, shared = ([f"Math.max({expression(extent, self.dialect, named)}, 0)"
                          for extent in extents] for extents in (shape.whole, shape.shared))
        counts = [*whole, *([f"Math.ceil({' * '.join(shared)} / {shape.lanes})"]
                            if shared else [])]
        return f"[[{' * '.join(counts) or '1'}, {shape.lanes}]]"


def page_modules(artefact: Artefact) -> dict[str, str]:
    """The modules of a page, by name: one with WebGPU, one without, and one that chooses."""
    # r[impl export.page.fallback]
    texts = {"webgpu": WebGPUText(artefact), "js": JavaScriptText(artefact)}
    named = {target: f"{artefact.name}_{target}" for target in texts}
    chosen = ", ".join(f'{target}: () => import("./{name}.mjs")' for target, name in named.items())
    return {artefact.name: "\n".join([
                f"// {artefact.name}: made by Tensor Schedule. WebGPU, or else plain JavaScript.",
                f"const modules = {{{chosen}}};", script("page")]),
            **{name: texts[target].source() for target, name in named.items()}}


def script(name: str) -> str:
    """A part of a runner."""
    return (_HERE / f"{name}.js").read_text(encoding="utf-8")
