"""Tests of this implementation. Chapter: spec/caching.md."""
