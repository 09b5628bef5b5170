"""From a kernel's graph to nested loops: every value gets a place. Chapter: spec/lowering.md.

`lower` builds a tree of blocks. Then stages get phases where threads share them, and waits where
lanes do. No language is known here.
"""
from __future__ import annotations

from impl.lowering.lower import Lowered, lower

__all__ = ["Lowered", "lower"]
