"""Tests of this implementation. Chapter: spec/transforms.md."""
