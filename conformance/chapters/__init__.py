"""The tests of this implementation, a folder for each chapter of the specification."""
