"""Tests of this implementation. Chapter: spec/metal.md."""
