"""Tests of this implementation. Chapter: spec/inspect.md."""
