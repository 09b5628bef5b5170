"""Tests of this implementation. Chapter: spec/ordering.md."""
