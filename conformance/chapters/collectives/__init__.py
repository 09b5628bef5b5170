"""Tests of this implementation. Chapter: spec/collectives.md."""
