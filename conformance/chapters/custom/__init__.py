"""Tests of this implementation. Chapter: spec/custom.md."""
