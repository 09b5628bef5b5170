"""Tests of the layers and optimisers, which stand on top of all chapters."""
