"""From a kernel's graph to source text. Chapter: spec/render.md.

`lower` places every value in a loop nest; a `Dialect` says how a language writes operations, types
and loops; `render` prints the one with the other. The text depends on the kernel alone.
"""
from __future__ import annotations

from impl.render.c import C
from impl.render.cuda import CUDA
from impl.render.dialect import Dialect
from impl.render.gpu import Gpu
from impl.render.lower import Lowered, lower
from impl.render.metal import Metal
from impl.render.opencl import OpenCL
from impl.render.printer import render
from impl.render.source import Source, digest, key_of, names_of, symbol, unit_text
from impl.render.wgsl import WGSL

__all__ = ["C", "CUDA", "Dialect", "Gpu", "Lowered", "Metal", "OpenCL", "Source", "WGSL", "digest",
           "key_of", "lower", "names_of", "render", "symbol", "unit_text"]
