"""Tests of this implementation. Chapter: spec/device.md."""
