"""Tests of this implementation. Chapter: spec/lowering.md."""
