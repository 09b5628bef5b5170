"""Tests of this implementation. Chapter: spec/blocking.md."""
