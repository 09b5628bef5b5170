"""Tests of this implementation. Chapter: spec/searching.md."""
