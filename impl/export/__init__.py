"""A plan that leaves Python: a function as C, or as a module of JavaScript.

Chapter: spec/export.md.

    names       what arguments, results and states are called
    artefact    ports, memory and kernels in order: what a call is, as data
    sizes       whether it is right for all values of variables
    texts       what all targets write alike
    javascript  a module
    c           a source file, a header, and a file of weights

Needs: a function, and arguments that stand for all others of their shapes. Guarantees: the artefact
gives what the function gives, call after call, with nothing but the compiler or the page it is for.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from impl.errors import ExportError, ReplayError
from impl.export import names
from impl.export.artefact import Artefact, ArtefactLayout
from impl.export.c import CText, weights_of
from impl.export.javascript import (
    ARGUMENTS,
    LIMITS,
    JavaScriptText,
    WebGPUText,
    page_modules,
)
from impl.export.sizes import other_values, with_values
from impl.realize import environment
from impl.replay import TinyJit
from impl.replay.once import Observation, observe
from impl.schedule import plan_for
from impl.tensor import Tensor

#: At multiples of how many bytes temporaries begin.
_ALIGNMENTS = {"c": 64, "js": 64, "webgpu": 256, "page": 256, "json": 64}


def export(function: Callable[..., Any], args: Sequence[Any], folder: str | os.PathLike[str],
           kwargs: Mapping[str, Any] | None = None, *, target: str = "c", name: str | None = None,
           weights: str = "file") -> list[Path]:
    """Write a function of tensors as a program that needs no Python.

    The function is called on copies of `args` and `kwargs`, and all that it changed is put back.
    What it reads besides its arguments are states of the program, with the values of now.

    Args:
        folder: where the files are written; it is made if it is not there.
        target: "c" for a source file and a header, "js" for a module of JavaScript that needs no
            GPU, "webgpu" for one that runs its kernels by WebGPU, "page" for one that does so where
            the browser has a device for it and else needs none, "json" for the document alone.
        name: what files and functions are called; else as the function.
        weights: "file" for a safetensors file that the program loads, "array" for states in the
            source.

    Returns:
        The files.

    Raises:
        ExportError: the function does what needs Python, or what the target does not have.
        DTypeError: a kernel has a type that the target does not have.
    """
    if target not in _ALIGNMENTS:
        raise ExportError("export", f"target={target!r}", f"use one of {', '.join(_ALIGNMENTS)}")
    if weights not in ("file", "array"):
        raise ExportError("export", f"weights={weights!r}", "use file or array")
    if not isinstance(args, (list, tuple)):
        raise ExportError("export", f"args is {args!r:.60}", "give a tuple of arguments: (x,)")
    jit = function if isinstance(function, TinyJit) else TinyJit(function)
    called = names.unique_name(jit._name if name is None else name)
    made = artefact_of(jit, args, dict(kwargs or {}), called, target)
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    files: dict[str, str | bytes] = {}
    if target == "c":
        text = CText(made, weights == "array")
        files[f"{called}.c"], files[f"{called}.h"] = text.source(), text.header()
    elif target in ("js", "webgpu"):
        module = JavaScriptText(made) if target == "js" else WebGPUText(made)
        files[f"{called}.mjs"] = module.source()
    elif target == "page":
        files.update({f"{each}.mjs": text for each, text in page_modules(made).items()})
    if made.states and weights == "file" and target != "json":
        files[f"{called}.safetensors"] = weights_of(made)
    files[f"{called}.json"] = json.dumps(made.described(), default=str, indent=1)
    return [_written(home / file, content) for file, content in files.items()]


def _written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def artefact_of(function: TinyJit[..., Any], args: Sequence[Any], kwargs: dict[str, Any], name: str,
                target: str) -> Artefact:
    """What a call of a function is without Python.

    Raises:
        ExportError: it needs Python.
    """
    def planner(effects: Any) -> Any:
        circumstances = environment(effects)
        if target in ("webgpu", "page"):  # r[impl export.gpu.values]: fewer arguments
            limits = circumstances.limits
            circumstances = replace(
                circumstances, device_key=f"{circumstances.device_key} for a page",
                limits=replace(limits, arguments=min(limits.arguments, ARGUMENTS),
                               local_bytes=min(limits.local_bytes, LIMITS.local_memory // 2)))
        plan, _, _ = plan_for(effects, circumstances)
        return plan

    found = _observed(function, name, args, kwargs, planner)
    without = _without_gradient(found)
    try:
        if without:  # r[impl export.gradient.added]
            for tensor in without:  # what is added to -0.0 stays as it is, bit for bit
                tensor.grad = Tensor.full(tensor.shape, -0.0, dtype=tensor.dtype,
                                          device=tensor.device).contiguous().realize()
            found = _observed(function, name, args, kwargs, planner)
        assert found.captured is not None
        binds = other_values(found.captured)
        if binds is not None:  # r[impl export.variable.checked+2]
            other_args, other_kwargs = with_values((tuple(args), kwargs), binds)
            other = _observed(function, name, other_args, other_kwargs, planner)
            if [plan.key for plan in other.planned] != [plan.key for plan in found.planned]:
                changing = ", ".join(bind.src[0].arg[0] for bind in binds)
                raise ExportError(name, f"has other kernels for other values of {changing}", "make "
                                  "no Python number of it (int, float, range): compute with it")
        return ArtefactLayout(name, function, (args, kwargs), found, _ALIGNMENTS[target]).run()
    finally:
        for tensor in without:
            tensor.grad = None


def _without_gradient(found: Observation) -> list[Tensor]:
    """The tensors that had no gradient before the call, and have one after it: the next call finds
    it there.
    """
    assert found.captured is not None
    holders = [change.holder() for change in found.captured.changes
               if change.gradient and not isinstance(change.holder, str)]
    return [each for each in holders if each is not None and id(each) not in found.gradients]


def _observed(function: TinyJit[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any],
              planner: Callable[[Any], Any]) -> Observation:
    """What a call does, if it can be done without Python.

    Raises:
        ExportError: it cannot.
    """
    try:
        found = observe(function, tuple(args), kwargs, planner)
    except ReplayError as error:
        raise ExportError(name, error.detail, error.remedy) from error
    for reason in found.reasons:  # r[impl export.refused.named]
        raise ExportError(name, reason.does, reason.remedy, reason.line)
    if found.captured is None:
        raise ExportError(name, "replaces a tensor that it reads by another one",
                          "use .assign, so that the tensor stays")
    return found


__all__ = ["export"]
