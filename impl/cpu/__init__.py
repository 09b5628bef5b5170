"""The CPU device: kernels compiled by the machine's C compiler. Chapter: spec/cpu.md.

All kernels that are not known yet go to the compiler in one compilation unit (or a few, in
parallel). What it makes is kept on disk, in a folder that only its owner can write, and is checked
before it is loaded. Kernels are called through one table that C runs in one call.
"""
from impl.cpu.backend import CPU
from impl.cpu.compiler import FLAGS, compiler_problem, find_compiler
from impl.cpu.machine import processors
from impl.cpu.programs import CPUProgram, CPUTable
from impl.device import Device

Device.register(CPU, compiler_problem)

__all__ = ["CPU", "FLAGS", "CPUProgram", "CPUTable", "compiler_problem", "find_compiler",
           "processors"]
