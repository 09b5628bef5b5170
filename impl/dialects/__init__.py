"""The languages that kernels are printed in. Chapter: spec/dialects.md.

`C` is for compilers of processors. `Gpu` is what the languages for work-groups share; OpenCL, CUDA,
Metal and WGSL say the rest. `JavaScript` is for pages that have no GPU.
"""
from __future__ import annotations

from impl.dialects.c import C
from impl.dialects.cuda import CUDA
from impl.dialects.gpu import Gpu
from impl.dialects.javascript import JavaScript
from impl.dialects.metal import Metal
from impl.dialects.opencl import OpenCL
from impl.dialects.wgsl import WGSL

__all__ = ["C", "CUDA", "Gpu", "JavaScript", "Metal", "OpenCL", "WGSL"]
