"""Functions of flat arguments in the form that JAX's interpreters take, and their bookkeeping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrax._src.core import api_util
from ferrax._src.core.jaxpr import DebugInfo
from ferrax._src.tracing import linear_util as lu
from ferrax._src.tree import tree_util

__all__ = [
    "argnums_partial",
    "debug_info",
    "donation_vector",
    "flatten_axes",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "rebase_donate_argnums",
]


@lu.transformation_with_aux2
def flatten_fun(fun: Callable[..., Any], store: Any, in_tree: Any, *leaves: Any) -> Any:
    """A function of `(args, kwargs)` as one of their leaves: `(function, thunk of the tree of its
    output)`. `in_tree` is the tree of `(args, kwargs)`.

    Args: fun: a `WrappedFun`; in_tree: the tree. Calls of the function give store and leaves.

    Example:
        >>> from ferrax.api_util import flatten_fun
        >>> from ferrax.extend import linear_util
        >>> leaves, tree = ferrax.tree.flatten((({"a": 1.0},), {}))
        >>> flat, out_tree = flatten_fun(linear_util.wrap_init(lambda x: (x["a"], 2)), tree)
        >>> flat.call_wrapped(*leaves), out_tree()
        ([1.0, 2], PyTreeDef((*, *)))
    """
    args, kwargs = tree_util.tree_unflatten(in_tree, leaves)
    out, out_tree = tree_util.tree_flatten(fun(*args, **kwargs))
    store.store(out_tree)
    return out


@lu.transformation_with_aux2
def flatten_fun_nokwargs(fun: Callable[..., Any], store: Any, in_tree: Any, *leaves: Any) -> Any:
    """As `flatten_fun`, where `in_tree` is the tree of the positional arguments alone.

    Args: fun, store, in_tree, leaves: as for `flatten_fun`.

    >>> from ferrax.api_util import flatten_fun_nokwargs
    >>> tree = ferrax.tree.structure((0, [0]))
    >>> fun, out_tree = flatten_fun_nokwargs(
    ...     ferrax.extend.linear_util.wrap_init(lambda x, y: {"sum": x + y[0]}), tree)
    >>> fun.call_wrapped(1, 2), out_tree()
    ([3], PyTreeDef({'sum': *}))
    """
    out, out_tree = tree_util.tree_flatten(fun(*tree_util.tree_unflatten(in_tree, leaves)))
    store.store(out_tree)
    return out


class _Static:
    """A static argument; equal to those of the same type that are equal."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        if type(other) is not _Static:
            return False
        mine, theirs = self.value, other.value
        return type(mine) is type(theirs) and mine == theirs

    def __hash__(self):
        return hash(self.value)


class _Unhashable(_Static):
    """A static argument that functions cannot be remembered by."""

    __slots__ = ()
    __eq__ = object.__eq__

    def __hash__(self):
        raise TypeError(f"a static argument of type {type(self.value).__name__} is not hashable")


def _positions(argnums, count) -> tuple[int, ...]:
    positions = api_util.as_tuple_of_ints(argnums, "argnums")
    for position in positions:
        if not -count <= position < count:
            raise ValueError(
                f"static_argnums, donate_argnums: position {position} names none of {count} "
                f"positional arguments; expected {-count} to {count - 1}."
                if count
                else f"static_argnums, donate_argnums: got position {position}, but no positional "
                "arguments."
            )
    return tuple(position % count for position in positions)


def argnums_partial(
    fun: Callable[..., Any], dyn_argnums: Any, args: Any,
    require_static_args_hashable: bool = True,
) -> tuple[Any, tuple[Any, ...]]:
    """`(function of the arguments at dyn_argnums, these arguments)`; the others are fixed.

    Errors: ValueError for positions out of range, and for fixed arguments that cannot be hashed
    unless `require_static_args_hashable` is False.

    Args: fun: a `WrappedFun`; dyn_argnums: a position or several; args: all arguments.

    >>> fun = ferrax.extend.linear_util.wrap_init(lambda x, y: x - y)
    >>> partial, dynamic = ferrax.api_util.argnums_partial(fun, 1, (10, 3))
    >>> partial.call_wrapped(4), dynamic
    (6, (3,))
    """
    positions = _positions(dyn_argnums, len(args))
    fixed = []
    for position, arg in enumerate(args):
        if position in positions:
            continue
        if require_static_args_hashable and not _hashable(arg):
            raise ValueError(
                "Non-hashable static arguments are not supported. Static argument (index "
                f"{position}) of type {type(arg)} for function {fun.__name__} is non-hashable."
            )
        fixed.append((_Static if require_static_args_hashable else _Unhashable)(arg))
    return _partial(fun, positions, tuple(fixed)), tuple(args[i] for i in positions)


@lu.transformation2
def _partial(fun, positions, fixed, *dynamic, **kwargs):
    given, rest = dict(zip(positions, dynamic)), iter(fixed)
    count = len(positions) + len(fixed)
    args = [given[i] if i in given else next(rest).value for i in range(count)]
    return fun(*args, **kwargs)


def _hashable(value) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def donation_vector(
    donate_argnums: Any, donate_argnames: Any, in_tree: Any, kws: bool = True,
) -> tuple[bool, ...]:
    """Whether each leaf of `(args, kwargs)` is donated; of `args` alone unless `kws`.

    Args: donate_argnums, donate_argnames: positions and names; in_tree: the tree of `(args,
    kwargs)`; kws: whether it has keywords.

    Example:
        >>> from ferrax.api_util import donation_vector
        >>> tree = tree_util.tree_structure(((1, (2, 3)), {}))
        >>> donation_vector((1,), (), tree)
        (False, True, True)
    """
    args_tree, *kwargs_tree = in_tree.children() if kws else (in_tree,)
    flags = []
    for number, arg in enumerate(args_tree.children()):
        flags += [number in donate_argnums] * arg.num_leaves
    for tree in kwargs_tree:
        if not tree.num_leaves:
            continue
        for key, value in zip(tree.node_data()[1], tree.children()):
            flags += [key in donate_argnames] * value.num_leaves
    return tuple(flags)


def rebase_donate_argnums(donate_argnums: Any, static_argnums: Any) -> tuple[int, ...]:
    """The positions of donated arguments once the static ones are left out.

    Errors: ValueError if an argument is in both.
    Args: donate_argnums, static_argnums: positions.

    Example:
        >>> from ferrax.api_util import rebase_donate_argnums
        >>> rebase_donate_argnums((3, 4), (0, 1))
        (1, 2)
    """
    donated, static = sorted(set(donate_argnums)), set(static_argnums)
    if static.intersection(donated):
        raise ValueError(
            f"`static_argnums` {sorted(static)} and `donate_argnums` {donated} cannot intersect: "
            "a static argument has no buffer"
        )
    return tuple(i - sum(position < i for position in static) for i in donated)


def flatten_axes(
    name: Any, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False,
) -> list[Any]:
    """The axes of a tree prefix, one for each leaf of a tree; None counts as an axis.

    Errors: ValueError that names `name`, where the trees do not fit.
    Args: name: what errors call it; treedef: the tree; axis_tree: the prefix; kws, tupled_args:
    hints for the text of errors.

    Example:
        >>> from ferrax.api_util import flatten_axes
        >>> flatten_axes("in_axes", tree_util.tree_structure((1, (2, 3))), (0, None))
        [0, None, None]
    """
    dummy = tree_util.with_placeholders(treedef)
    try:
        return tree_util.broadcast_prefix(axis_tree, dummy, is_leaf=lambda x: x is None)
    except ValueError as error:
        hint = (
            f" If {name} describes one argument that is a container, put it into a tuple of one "
            "element."
            if tupled_args
            else ""
        )
        raise ValueError(
            f"{name}: expected a tree prefix of {treedef}, got {axis_tree}: {error}{hint}"
        ) from None


def debug_info(
    traced_for: Any, fun: Callable[..., Any], args: Any, kwargs: Any, *, static_argnums: Any = (),
    static_argnames: Any = (), result_paths_thunk: Any = None, sourceinfo: Any = None,
    signature: str | None = None,
) -> DebugInfo:
    """What messages say of a function: its name and place, and its arguments' names.

    Args: traced_for: the transformation's name; fun, args, kwargs: the call; static_argnums,
    static_argnames: arguments to leave out; result_paths_thunk, sourceinfo: what is known already;
    signature: accepted, without effect.

    >>> ferrax.api_util.debug_info("jit", lambda x, y: x, (1.0,), {"y": 2.0}).arg_names
    ('x', 'y')
    """
    args = [arg for number, arg in enumerate(args) if number not in tuple(static_argnums)]
    kwargs = {key: value for key, value in kwargs.items() if key not in tuple(static_argnames)}
    names = None if static_argnums else tuple(api_util.argument_names(fun, args, kwargs))
    place = api_util.fun_place(fun) if sourceinfo is None else sourceinfo
    paths = result_paths_thunk() if callable(result_paths_thunk) else result_paths_thunk
    return DebugInfo(traced_for, place, names, paths)
