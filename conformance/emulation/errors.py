"""What can go wrong in emulation. Each message says which kernel, which line, and what happened."""
from __future__ import annotations


class EmulationError(Exception):
    """A launch that stopped: lanes at different barriers, a failed assertion, bad sizes."""


class CompileError(EmulationError):
    """A source that is not what its language allows, or that the emulator does not know."""


class MemoryOverrun(EmulationError):
    """AddressSanitizer found memory read or written that does not belong to the kernel."""


class OrderDependence(EmulationError):
    """The result changed with the order in which lanes ran: a barrier is missing."""


class Unavailable(EmulationError):
    """The machine lacks what is needed: a compiler, a library, a system."""
