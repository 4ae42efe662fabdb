"""What is connected when ferrax is imported: the native core, and classes of lower layers with what
layers above write for them.

The methods of `Array` and of `Ref` that compute, and the views of functions with rules of their own
among the parameters of equations (`custom_views`), are written above these classes. They are given
to them here, so that no layer asks for one above it.
"""

from __future__ import annotations

import sys

from ferrax import _core
from ferrax._src import state
from ferrax._src.base import errors
from ferrax._src.core import (
    api_util,
    array,
    float0,
    runtime,  # noqa: F401  the settings, before anything is traced
    transfers,
)
from ferrax._src.numpy import array_methods, at, indexing, ref_ops
from ferrax._src.tracing import abstract_values, leaks
from ferrax._src.transforms import custom_views, primitive_rules, stats  # noqa: F401
from ferrax._src.tree import tree_util

array_methods.install(_core.Array)
indexing.install(_core.Array)
at.install(_core.Array)
array.install(_core.Array)
ref_ops.install(state.Ref)

# The modules that the native core asks for, under the names by which it does.
for _module in (
    abstract_values, api_util, errors, float0, leaks, primitive_rules, stats, transfers, tree_util,
):  # fmt: skip
    sys.modules.setdefault(f"ferrax._src.{_module.__name__.rpartition('.')[2]}", _module)
sys.modules.setdefault("ferrax._src.refs", state)
