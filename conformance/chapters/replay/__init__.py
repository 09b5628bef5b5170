"""Tests of this implementation. Chapter: spec/replay.md."""
