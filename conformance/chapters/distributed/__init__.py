"""Tests of this implementation. Chapter: spec/linear.md."""
