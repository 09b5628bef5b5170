"""Tests of this implementation. Chapter: spec/settings.md."""
