"""Tests of the Array API namespace."""
