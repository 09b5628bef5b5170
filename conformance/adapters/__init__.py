"""Real implementations as the suite drives them, one file each.

`library` walks over the statements of a program; an adapter says what they are in its library.
What a library lacks is not declared, and so `unsupported`: nothing is made up for it.  Nothing in
this package imports `impl`.
"""
