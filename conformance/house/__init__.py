"""Tests of the whole repository: where a file may stand, examples in the texts, the main job."""
