"""`symbolic_args_specs`: the types of a function's arguments, with symbolic shapes, from an example of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ferrax._src import core
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.dims import SymbolicScope, symbolic_shape
from ferrax._src.tree import tree_util
from ferrax._src.tree.tree_paths import prefix_errors


def symbolic_args_specs(
    args: Any,
    shapes_specs: Any,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
) -> Any:
    """Types of arguments with symbolic shapes, to export a function for.

    Args:
        args: a pytree of arrays of any shapes and dtypes, or of what has those, such as
            `ShapeDtypeStruct`. Their shapes stand for `_` and `...` in `shapes_specs`.
        shapes_specs: a text for each argument, as for `symbolic_shape`, or None for its own shape: a
            pytree that is a prefix of `args`, where one text counts for all arguments below it.
        constraints: what is known of the sizes, as for `symbolic_shape`.
        scope: the scope of the variables. A new one unless it is given.

    Returns: a pytree like `args`, of `ShapeDtypeStruct`s.

    Errors: ValueError for texts that are no shapes, if `shapes_specs` is no prefix of `args`, and for
        constraints beside a scope.

    Example:
        >>> args = jnp.ones((2, 3)), jnp.ones(3)
        >>> ferrax.export.symbolic_args_specs(args, ("batch, ...", None))
        (ShapeDtypeStruct(shape=(batch, 3), dtype=float32), ShapeDtypeStruct(shape=(3,), dtype=float32))
    """
    leaves, tree = tree_util.tree_flatten(args)
    if isinstance(args, tuple) and isinstance(shapes_specs, list):
        shapes_specs = tuple(shapes_specs)
    try:
        texts = tree_util.broadcast_prefix(shapes_specs, args, is_leaf=_is_none)
    except ValueError:
        for error in prefix_errors(shapes_specs, args, is_leaf=_is_none):
            raise error("export.symbolic_args_specs shapes_specs") from None
        raise
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError("Cannot use both `scope` and `constraints`: a scope has its own.")
    types = [leaf if isinstance(leaf, ShapeDtypeStruct) else core.typeof(leaf) for leaf in leaves]
    specs = [
        ShapeDtypeStruct(symbolic_shape(text, like=kind.shape, scope=scope), kind.dtype)
        for kind, text in zip(types, texts)
    ]
    return tree.unflatten(specs)


def _is_none(x: Any) -> bool:
    return x is None
