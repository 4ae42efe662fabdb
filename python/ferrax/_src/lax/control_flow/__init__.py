"""Branches, loops and scans of ``ferrax.lax``: one module for each family of functions."""
