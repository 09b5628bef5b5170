"""Tests of this implementation. Chapter: spec/loops.md."""
