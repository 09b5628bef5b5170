"""Tests of this implementation. Chapter: spec/ir.md."""
