"""Tests of this implementation. Chapter: spec/symbolic.md."""
