"""Tests of this implementation. Chapter: spec/steps.md."""
