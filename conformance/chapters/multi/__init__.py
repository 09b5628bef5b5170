"""Tests of this implementation. Chapter: spec/multi.md."""
