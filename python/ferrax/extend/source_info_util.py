"""Where equations come from: the user's line, and names of scopes."""

# ruff: noqa: F401

from ferrax._src.base.source_info import (
    NameStack,
    SourceInfo,
    current,
    current_name_stack,
    extend_name_stack,
    new_name_stack,
    new_source_info,
    register_exclusion,
    reset_name_stack,
    set_name_stack,
    summarize,
    transform_name_stack,
    user_context,
)
