"""Source text: a lowered kernel, printed in a language. Chapter: spec/render.md.

A `Dialect` says how a language writes operations, types and loops; `render` prints a kernel with
it. The text depends on the kernel alone.
"""
from __future__ import annotations

from impl.render.dialect import Dialect
from impl.render.printer import render
from impl.render.source import SourceText, digest, key_of, names_of, symbol, unit_text

__all__ = ["Dialect", "SourceText", "digest", "key_of", "names_of", "render", "symbol", "unit_text"]
