"""What the real CUDA compiler says to a source, for each kind of GPU. It needs no GPU itself."""
from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from conformance.emulation.errors import CompileError, Unavailable

ARCHITECTURES = (75, 80, 90, 100)


def check(source: str, architectures: Sequence[int] = ARCHITECTURES,
          options: Sequence[str] = ()) -> dict[int, bytes]:
    """Compile a CUDA source to machine code for each architecture; the images by architecture.

    Raises `CompileError` with the compiler's log and the architecture, `Unavailable` where there is
    no NVRTC.
    """
    return {each: _compile(source, each, options) for each in architectures}


def _nvrtc() -> Any:
    try:
        nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
        nvrtc.nvrtcVersion()
    except Exception as error:
        raise Unavailable("no NVRTC: pip install cuda-bindings nvidia-cuda-nvrtc "
                          f"({error})") from error
    return nvrtc


def _compile(source: str, architecture: int, options: Sequence[str]) -> bytes:
    nvrtc = _nvrtc()
    # sm_ and not compute_: only then is machine code made, and its limits checked.
    words = [f"--gpu-architecture=sm_{architecture}".encode(), *(each.encode() for each in options)]
    error, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    if int(error):
        raise CompileError(f"NVRTC takes no program: {error}")
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
        if int(error):
            raise CompileError(f"sm_{architecture}: {_log(nvrtc, program)}")
        image = b" " * int(nvrtc.nvrtcGetCUBINSize(program)[1])
        nvrtc.nvrtcGetCUBIN(program, image)
        return image
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    log = b" " * int(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0").decode().strip()
