"""Tests of this implementation. Chapter: spec/functions.md."""
