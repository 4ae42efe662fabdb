"""Registries of rules for primitives that are defined in Python."""
