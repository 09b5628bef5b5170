"""Tests of this implementation. Chapter: spec/cpu.md."""
