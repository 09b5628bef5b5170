"""From a text of CUDA to machine code: NVRTC, and what it made before. Chapter: spec/cuda.md."""
from __future__ import annotations

import functools
import hashlib
from typing import Any

from impl.caching.disk import store
from impl.cuda.driver import bindings
from impl.device import GlobalCounters
from impl.errors import CompileError

_FORMAT = "tensor-schedule-cubin/1"
# --8<-- [start:options]
#: No option changes what an operation means: r[impl cuda.compile.meaning]. Products are contracted
#: only where the renderer says, and division, roots and subnormal numbers are those of IEEE 754.
OPTIONS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17")
# --8<-- [end:options]


@functools.cache
def version() -> str:
    """The compiler's version; machine code of another one is not ours."""
    error, major, minor = bindings("nvrtc").nvrtcVersion()
    return f"NVRTC {major}.{minor}"


# --8<-- [start:image]
def image(text: str, architecture: int) -> bytes:
    """The machine code of a text for one architecture (90 is sm_90), from the disk if it is there.

    Raises:
        CompileError: NVRTC refuses the text.
    """
    # r[impl cuda.compile.kept]
    key = "\0".join((_FORMAT, version(), str(architecture), *OPTIONS, text))
    name = hashlib.sha256(key.encode()).hexdigest()
    found = store().get("cubin", name)
    if found is not None:
        GlobalCounters.disk_hits += 1
        GlobalCounters.cache_hits += 1
        return found
    made = compile_text(text, architecture)
    GlobalCounters.compiled += 1
    store().put("cubin", name, made)
    return made
# --8<-- [end:image]


# --8<-- [start:compile]
def compile_text(text: str, architecture: int, extra: tuple[str, ...] = ()) -> bytes:
    """What NVRTC makes of a text. `sm_` and not `compute_`: machine code, checked as such.

    Raises:
        CompileError: NVRTC refuses the text.
    """
    nvrtc = bindings("nvrtc")
    words = [each.encode() for each in (f"--gpu-architecture=sm_{architecture}", *OPTIONS, *extra)]
    error, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    if error:
        raise CompileError("compile", f"NVRTC takes no program: {error.name}",
                           "report this with DEBUG=4's text")
    try:
        error = nvrtc.nvrtcCompileProgram(program, len(words), words)[0]
        if error:  # r[impl cuda.compile.refused]
            raise CompileError("compile", f"{version()} for sm_{architecture}: "
                               f"{_log(nvrtc, program) or error.name}", _remedy(error.name))
        made = b" " * int(nvrtc.nvrtcGetCUBINSize(program)[1])
        nvrtc.nvrtcGetCUBIN(program, made)
        return made
    finally:
        nvrtc.nvrtcDestroyProgram(program)
# --8<-- [end:compile]


def _log(nvrtc: Any, program: Any) -> str:
    log = b" " * int(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0 \n").decode(errors="replace")


def _remedy(name: str) -> str:
    if "INVALID_OPTION" in name:
        return "install an NVRTC that knows this GPU (pip install -U nvidia-cuda-nvrtc)"
    return "report this with DEBUG=4's text; NOOPT=1 or DEVICE=CPU does without"
