"""Answers for `jax._src.interpreters.pxla`."""

from __future__ import annotations

from collections.abc import Callable

# How results of a type become arrays, by the class of the type. Results are arrays of the native core
# already; the rules of dtypes that libraries define (`ExtendedDType`) read this.
global_result_handlers: dict[type, Callable] = {}
