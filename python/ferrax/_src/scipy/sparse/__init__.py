"""Iterative solvers of linear systems."""
