"""Tests of this implementation. Chapter: spec/export.md."""
