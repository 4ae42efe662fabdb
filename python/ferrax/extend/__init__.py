"""Modules for libraries that extend the system with primitives and interpreters of their own."""
