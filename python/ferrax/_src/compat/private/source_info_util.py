"""Answers for `jax._src.source_info_util`."""

# ruff: noqa: F401

from ferrax._src.base.source_info import (
    NameStack as NameStack,
    SourceInfo as SourceInfo,
    current as current,
    register_exclusion as register_exclusion,
)
