"""Answers for `jax._src.tree_util`."""

# ruff: noqa: F401

from ferrax._src.tree.tree_paths import prefix_errors as prefix_errors
from ferrax._src.tree.tree_util import (
    _registry,
    flatten_one_level as flatten_one_level,
    tree_leaves as tree_leaves,
    tree_map as tree_map,
    tree_unflatten as tree_unflatten,
)
