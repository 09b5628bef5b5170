"""Tests of this implementation. Chapter: spec/placement.md."""
