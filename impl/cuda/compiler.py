"""From texts of CUDA to functions of a GPU: NVRTC, and what it made before. Chapter: spec/cuda.md.

All kernels that are not known yet go to NVRTC in a few programs, in parallel. What it makes is
machine code for one architecture; it is kept on disk and checked before it is loaded.
"""
from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from impl import settings
from impl.caching.disk import store
from impl.cuda.driver import DriverContext, bindings
from impl.device import GlobalCounters
from impl.device.kept import entry
from impl.errors import CompileError, user_line
from impl.render import SourceText, symbol, unit_text

_FORMAT = "tensor-schedule-cubin/1"
#: No option changes what an operation means: r[impl cuda.compile.meaning]. Products are contracted
#: only where the renderer says, and division, roots and subnormal numbers are those of IEEE 754.
OPTIONS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17")
#: Kernels in one program of NVRTC, at most, when there are several.
_UNIT = 24
Unit = list[tuple[str, SourceText]]


@functools.cache
def version() -> str:
    """The compiler's version; machine code of another one is not ours."""
    error, major, minor = bindings("nvrtc").nvrtcVersion()
    return f"NVRTC {major}.{minor}"


def compiler_environment(architecture: int) -> tuple[str, ...]:
    """All that machine code depends on, besides the text."""
    # r[impl cuda.compile.kept]
    return (_FORMAT, version(), target(architecture), *OPTIONS)


def target(architecture: int) -> str:
    """What NVRTC compiles for: machine code, checked as such; with CUDA_PTX=1 the driver's text."""
    # r[impl cuda.compile.ptx]
    return f"{'compute' if settings.get('CUDA_PTX') else 'sm'}_{architecture}"


def compile_text(text: str, target: str, line: str | None = None) -> bytes:
    """What NVRTC makes of a text for a target: of `sm_80` machine code, of `compute_80` PTX.

    Raises:
        CompileError: NVRTC refuses the text.
    """
    nvrtc = bindings("nvrtc")
    words = _words(target)
    error, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    if error:
        raise CompileError("compile", f"NVRTC takes no program: {error.name}",
                           "report this with the text that DEBUG=4 prints", line)
    try:
        error = nvrtc.nvrtcCompileProgram(program, len(words), words)[0]
        if error:  # r[impl cuda.error.told]
            said = _log(nvrtc, program) or error.name
            raise CompileError("compile", f"{version()} for {target}: {said}",
                               _remedy(error.name), line)
        kind = "PTX" if target.startswith("compute") else "CUBIN"
        made = b" " * int(getattr(nvrtc, f"nvrtcGet{kind}Size")(program)[1])
        getattr(nvrtc, f"nvrtcGet{kind}")(program, made)
        return made
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _words(target: str) -> list[bytes]:
    return [each.encode() for each in (f"--gpu-architecture={target}", *OPTIONS)]


def _log(nvrtc: Any, program: Any) -> str:
    log = b" " * int(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0 \n").decode(errors="replace")


def _remedy(name: str) -> str:
    if "INVALID_OPTION" in name:
        return "install an NVRTC that knows this GPU (pip install -U nvidia-cuda-nvrtc)"
    return "report this with the text that DEBUG=4 prints; NOOPT=1 or DEVICE=CPU does without"


class Modules:
    """The kernels that are loaded on one GPU, by key, and the modules that hold them."""

    def __init__(self, context: DriverContext, architecture: int) -> None:
        self.context, self.architecture = context, architecture
        self.functions: dict[str, Any] = {}
        self.loaded: dict[str, Any] = {}

    def find(self, key: str) -> bool:
        """Load a kernel from disk: its entry names an object."""
        kept = store()
        name = entry(kept, "cubin", key).get("object", "")
        if name not in self.loaded:
            path = kept.find_object(name) if name else None
            if path is None:
                return False
            self._load(name, path.read_bytes())
        self.functions[key] = self._function(name, key)
        return True

    def build(self, sources: dict[str, SourceText]) -> None:
        """Compile kernels, keep what the compiler makes, and load it."""
        kept, pairs = store(), list(sources.items())
        line, workers = user_line(), max(1, min(settings.workers(), len(pairs)))
        size = min(_UNIT, -(-len(pairs) // workers))
        units = [pairs[start:start + size] for start in range(0, len(pairs), size)]

        wanted = target(self.architecture)  # the setting is this thread's

        def compiled(unit: Unit) -> bytes:
            return compile_text(unit_text(unit), wanted, line)
        with ThreadPoolExecutor(workers) as pool:
            made = list(pool.map(compiled, units))
        GlobalCounters.compiled += len(pairs)
        for unit, content in zip(units, made, strict=True):
            name = kept.put_object(content, "cubin")
            self._load(name, content)
            for key, _ in unit:
                self.functions[key] = self._function(name, key)
                kept.put("cubin", key, json.dumps({"object": name}).encode())

    def alone(self, key: str, source: SourceText) -> tuple[Any, Any]:
        """A module with one kernel, and the kernel; nothing is kept of them."""
        content = compile_text(unit_text([(key, source)]), f"sm_{self.architecture}")
        module = self.context.call("cuModuleLoadData", content)
        return module, self.context.call("cuModuleGetFunction", module, symbol(key).encode())

    def _load(self, name: str, content: bytes) -> None:
        self.loaded[name] = self.context.call("cuModuleLoadData", content)

    def _function(self, name: str, key: str) -> Any:
        return self.context.call("cuModuleGetFunction", self.loaded[name], symbol(key).encode())
