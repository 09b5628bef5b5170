"""Tests of this implementation. Chapter: spec/dialects.md."""
