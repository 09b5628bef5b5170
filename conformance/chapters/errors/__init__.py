"""Tests of this implementation. Chapter: spec/errors.md."""
