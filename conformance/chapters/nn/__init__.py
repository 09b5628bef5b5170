"""Tests of the layers and optimisers, which are written with the public names only."""
