"""Tests of this implementation. Chapter: spec/ranges.md."""
