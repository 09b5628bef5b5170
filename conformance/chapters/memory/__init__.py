"""Tests of this implementation. Chapter: spec/memory.md."""
