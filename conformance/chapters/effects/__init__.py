"""Tests of this implementation. Chapter: spec/effects.md."""
