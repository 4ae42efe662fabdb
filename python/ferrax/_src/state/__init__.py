"""Mutable arrays: `Ref`, what traced functions do to them, and refs among arguments."""
