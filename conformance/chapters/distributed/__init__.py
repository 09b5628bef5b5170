"""Tests of this implementation. Chapter: spec/distributed.md."""
