"""One solution for each lesson whose answer is no part of `impl` as it stands there."""
