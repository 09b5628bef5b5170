"""Tests of the models: each against the same architecture written in torch."""
