"""Tests of this implementation. Chapter: spec/choosing.md."""
