"""Matrices: special ones, decompositions under SciPy's names, functions of matrices."""
