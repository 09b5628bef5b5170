"""Tests of this implementation. Chapter: spec/realize.md."""
