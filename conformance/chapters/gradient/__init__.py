"""Tests of this implementation. Chapter: spec/gradient.md."""
