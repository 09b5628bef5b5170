"""Tests of this implementation. Chapter: spec/rewrite.md."""
