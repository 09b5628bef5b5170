"""Tests of this implementation. Chapter: spec/webgpu.md."""
