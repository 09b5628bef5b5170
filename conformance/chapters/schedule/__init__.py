"""Tests of this implementation. Chapter: spec/schedule.md."""
