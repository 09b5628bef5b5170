"""Tests of this implementation. Chapter: spec/render.md."""
