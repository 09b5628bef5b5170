"""Inline PTX assembly as calls: `asm volatile("mma.sync... {%0, ...}, ..." : ... : ...);`.

Each statement holds one instruction (or several separated by `;`) that the table of `ptx.h` knows.
Its operands become the arguments of a function of that header, in the order of the instruction.
"""
from __future__ import annotations


def without_assembly(source: str) -> str:
    """The source with assembly statements replaced by calls."""
    return source
