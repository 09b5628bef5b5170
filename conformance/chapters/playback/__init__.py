"""Tests of this implementation. Chapter: spec/playback.md."""
