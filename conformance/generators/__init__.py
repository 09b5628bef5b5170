"""Programs to test with: random ones of several kinds, and those that bugs were seen with."""
