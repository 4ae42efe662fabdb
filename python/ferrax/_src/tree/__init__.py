"""Pytrees: registration, mapping, key paths."""
