"""Tests of this implementation. Chapter: spec/fusion.md."""
