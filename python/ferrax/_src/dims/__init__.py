"""Symbolic dimensions: sizes that are not known while a function is traced.

    terms        factors and terms, the parts of expressions, and their order
    expressions  `_DimExpr`: arithmetic, comparisons, printing
    intervals    arithmetic of intervals
    linear       linear inequalities: the best bound that follows from facts
    facts        what holds of terms whatever the sizes are
    decisions    bounds and signs of expressions, from constraints
    parsing      the text of shapes
    scope        `SymbolicScope`, `symbolic_shape`
    sizes        arithmetic of sizes, for code over shapes
    solving      values of variables, from the sizes of a call

Sizes of shapes are ints and `_DimExpr`s; an expression that is constant is always an int. Nothing
here needs arrays: what makes one of a dimension is set with `set_as_value`.
"""

from ferrax._src.dims.decisions import known_ge as known_ge
from ferrax._src.dims.expressions import (
    DimExpr as DimExpr,
    as_value as as_value,
    is_symbolic_dim as is_symbolic_dim,
    set_as_value as set_as_value,
)
from ferrax._src.dims.scope import SymbolicScope as SymbolicScope, symbolic_shape as symbolic_shape
