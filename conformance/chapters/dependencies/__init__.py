"""Tests of this implementation. Chapter: spec/dependencies.md."""
