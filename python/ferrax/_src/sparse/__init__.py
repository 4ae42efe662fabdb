"""Sparse arrays, and functions of dense ones that take them."""
