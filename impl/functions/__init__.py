"""Functions that kernels call, types and numbers, as text. Chapter: spec/functions.md."""
