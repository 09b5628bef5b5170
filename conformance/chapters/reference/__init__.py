"""Tests of this implementation. Chapter: spec/reference.md."""
