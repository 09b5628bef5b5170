"""Tests of this implementation. Chapter: spec/opencl.md."""
