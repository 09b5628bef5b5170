"""Tests of this implementation. Chapter: spec/following.md."""
