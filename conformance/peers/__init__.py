"""What other libraries ask of themselves, asked of `impl`."""
