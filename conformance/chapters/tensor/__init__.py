"""Tests of this implementation. Chapter: spec/tensor.md."""
