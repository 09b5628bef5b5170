"""Tests of this implementation. Chapter: spec/groups.md."""
