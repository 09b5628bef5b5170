"""Tests of this implementation. Chapter: spec/kernel.md."""
