"""Steps that make stages of stages: copies, chunks, windows, blocks. Chapter: spec/blocking.md.

`pack`, `windows` and `chunk` are for products, `dots` for products of bytes, `tiles` for units that
compute products, `chain` for running results, `hidden` and `online` for attention.
"""
from __future__ import annotations

from impl.blocking.chain import Chain
from impl.blocking.chunk import Chunk
from impl.blocking.dots import Dot
from impl.blocking.hidden import Hide
from impl.blocking.online import Online
from impl.blocking.pack import Aside, Pack
from impl.blocking.tiles import Tiles
from impl.blocking.windows import Window

__all__ = ["Aside", "Chain", "Chunk", "Dot", "Hide", "Online", "Pack", "Tiles", "Window"]
