"""Tests of this implementation. Chapter: spec/cuda.md."""
