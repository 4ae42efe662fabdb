"""Pytrees: registration, mapping and folding.

The work on trees is done by `ferrax._core.pytree`; this file adds what needs no speed, and
`tree_paths` explains differences. Invariants: `_registry` has one entry for every type that is a
container in `default_registry`, apart from namedtuples; every type is registered in all of
`_all_registries`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from ferrax._core import pytree
from ferrax._src.tree import tree_paths

PyTreeDef = pytree.PyTreeDef
PyTreeRegistry = pytree.PyTreeRegistry
DictKey = pytree.DictKey
SequenceKey = pytree.SequenceKey
GetAttrKey = pytree.GetAttrKey
FlattenedIndexKey = pytree.FlattenedIndexKey

tree_flatten = pytree.tree_flatten
tree_leaves = pytree.tree_leaves
tree_structure = pytree.tree_structure
tree_unflatten = pytree.tree_unflatten
tree_map = pytree.tree_map
treedef_tuple = pytree.treedef_tuple
treedef_children = pytree.treedef_children
treedef_is_leaf = pytree.treedef_is_leaf
treedef_is_strict_leaf = pytree.treedef_is_strict_leaf

keystr = tree_paths.keystr
equality_errors = tree_paths.equality_errors
equality_errors_pytreedef = tree_paths.equality_errors_pytreedef
prefix_errors = tree_paths.prefix_errors

for _function in (
    tree_flatten,
    tree_leaves,
    tree_structure,
    tree_unflatten,
    tree_map,
    treedef_tuple,
    treedef_children,
    treedef_is_leaf,
    treedef_is_strict_leaf,
):
    _function.__module__ = "ferrax.tree_util"
del _function

T = TypeVar("T")
Typ = TypeVar("Typ", bound=type)
H = TypeVar("H", bound=Hashable)
Leaf = Any
PyTree = Any
KeyEntry = TypeVar("KeyEntry", bound=Any)
KeyLeafPair = tuple[KeyEntry, Any]
KeyLeafPairs = Iterable[KeyLeafPair]
KeyPath = tuple[KeyEntry, ...]

default_registry = pytree.default_registry
# The same containers, but None is a leaf.
none_leaf_registry = PyTreeRegistry(enable_none=False)
_all_registries = (default_registry, none_leaf_registry)


class _RegistryEntry(NamedTuple):
    """How a type is flattened, `to_iter(x) -> (children, aux)`, and rebuilt."""

    to_iter: Callable[[Any], Any]
    from_iter: Callable[[Any, Iterable[Any]], Any]


_registry: dict[type, _RegistryEntry] = {
    tuple: _RegistryEntry(lambda x: (x, None), lambda _, children: tuple(children)),
    list: _RegistryEntry(lambda x: (x, None), lambda _, children: list(children)),
    dict: _RegistryEntry(
        lambda x: default_registry.flatten_one_level(x),
        lambda keys, children: dict(zip(keys, children)),
    ),
    type(None): _RegistryEntry(lambda x: ((), None), lambda _, children: None),
}


class Unspecified:
    """The default of arguments for which None is a meaningful value."""

    def __repr__(self) -> str:
        return "<unspecified>"


_unspecified = Unspecified()


def tree_leaves_checked(treedef_expected: PyTreeDef, tree: Any) -> list[Leaf]:
    """The leaves of a tree whose structure must be the given one (else AssertionError)."""
    leaves, treedef = tree_flatten(tree)
    if treedef != treedef_expected:
        raise AssertionError(f"pytree structure {treedef} differs from {treedef_expected}")
    return leaves


def all_leaves(iterable: Iterable[Any], is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every item of an iterable is a leaf.

    Args:
      iterable: any objects.
      is_leaf: as in `tree_flatten`.

    >>> ferrax.tree_util.all_leaves([1, 2]), ferrax.tree_util.all_leaves([1, (2,)])
    (True, False)
    """
    items = list(iterable)
    leaves = tree_leaves(items, is_leaf)
    return len(items) == len(leaves) and all(map(operator.is_, items, leaves))


def is_tree_node(typ: type) -> bool:
    """Whether values of exactly this type are containers.

    Args: typ: a type.

    >>> ferrax.tree_util.is_tree_node(list), ferrax.tree_util.is_tree_node(int)
    (True, False)
    """
    return default_registry.is_node(typ)


# ---- registration ----


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], Any],
    flatten_with_keys_func: Callable[[Any], tuple[KeyLeafPairs, Any]] | None = None,
) -> None:
    """Makes a type a container.

    Args:
      nodetype: the type; its subclasses are not affected.
      flatten_func: maps an object to `(children, aux_data)`. The aux data become part of the tree's
        structure: they should be hashable and comparable with `==`.
      unflatten_func: maps `(aux_data, children)` to an object. Children may be any objects.
      flatten_with_keys_func: maps an object to `(((key, child), ...), aux_data)`, for key paths.

    Raises ValueError if the type is registered already.

    >>> class Point:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> ferrax.tree_util.register_pytree_node(
    ...     Point, lambda p: ((p.x, p.y), None), lambda _, children: Point(*children))
    >>> ferrax.tree_util.tree_map(lambda x: 2 * x, Point(1, 2)).y
    4
    """
    for registry in _all_registries:
        registry.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)
    _registry[nodetype] = _RegistryEntry(flatten_func, unflatten_func)


def register_pytree_node_class(cls: Typ) -> Typ:
    """Class decorator: a container by its methods.

    Args:
      cls: has a method `tree_flatten(self) -> (children, aux_data)` and a class method
        `tree_unflatten(cls, aux_data, children)`.

    Returns the class.

    >>> @ferrax.tree_util.register_pytree_node_class
    ... class Box:
    ...     def __init__(self, content):
    ...         self.content = content
    ...     def tree_flatten(self):
    ...         return (self.content,), "lid"
    ...     @classmethod
    ...     def tree_unflatten(cls, lid, contents):
    ...         return cls(contents[0])
    >>> ferrax.tree_util.tree_leaves(Box([1, 2]))
    [1, 2]
    """
    rebuild: Any = cls.tree_unflatten  # type: ignore[attr-defined]  # a class that has it
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), rebuild)
    return cls


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[KeyLeafPair], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], Any],
    flatten_func: None | Callable[[Any], tuple[Iterable[Any], Any]] = None,
) -> None:
    """Makes a type a container whose children have keys of their own in key paths.

    Args:
      nodetype: the type.
      flatten_with_keys: maps an object to `(((key, child), ...), aux_data)`.
      unflatten_func: maps `(aux_data, children)` to an object.
      flatten_func: as in `register_pytree_node`; made from `flatten_with_keys` if not given.

    >>> from ferrax.tree_util import GetAttrKey, register_pytree_with_keys
    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> register_pytree_with_keys(
    ...     Pair, lambda p: (((GetAttrKey("x"), p.x), (GetAttrKey("y"), p.y)), None),
    ...     lambda _, children: Pair(*children))
    >>> [ferrax.tree_util.keystr(path) for path, _ in ferrax.tree.leaves_with_path(Pair(1, 2))]
    ['.x', '.y']
    """
    flatten = flatten_func or _without_keys(flatten_with_keys)
    register_pytree_node(nodetype, flatten, unflatten_func, flatten_with_keys)


def _without_keys(flatten_with_keys):
    """The flattening that gives the children alone."""

    def flatten(tree):
        children, aux = flatten_with_keys(tree)
        return [child for _, child in children], aux

    return flatten


def register_pytree_with_keys_class(cls: Typ) -> Typ:
    """Class decorator: a container with keys by its methods.

    Args:
      cls: has `tree_flatten_with_keys(self) -> (((key, child), ...), aux_data)`, a class method
        `tree_unflatten(cls, aux_data, children)`, and optionally `tree_flatten(self)`.

    Returns the class.

    >>> @ferrax.tree_util.register_pytree_with_keys_class
    ... class Crate:
    ...     def __init__(self, content):
    ...         self.content = content
    ...     def tree_flatten_with_keys(self):
    ...         return ((ferrax.tree_util.GetAttrKey("content"), self.content),), "lid"
    ...     @classmethod
    ...     def tree_unflatten(cls, lid, contents):
    ...         return cls(contents[0])
    >>> [ferrax.tree_util.keystr(path) for path, _ in ferrax.tree.leaves_with_path(Crate([1]))]
    ['.content[0]']
    """
    rebuild: Any = cls.tree_unflatten  # type: ignore[attr-defined]  # a class that has it
    functions = [operator.methodcaller("tree_flatten_with_keys"), rebuild]
    if hasattr(cls, "tree_flatten"):
        functions.append(operator.methodcaller("tree_flatten"))
    register_pytree_with_keys(cls, *functions)
    return cls


def _dataclass_fields(
    nodetype: type,
    data_fields: Sequence[str] | None,
    meta_fields: Sequence[str] | None,
    drop_fields: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    is_dataclass = dataclasses.is_dataclass(nodetype)
    if (data_fields is None) != (meta_fields is None):
        raise TypeError(
            "register_dataclass: pass both of data_fields and meta_fields, or neither; got "
            f"{data_fields!r} and {meta_fields!r}."
        )
    if data_fields is None or meta_fields is None:
        if not is_dataclass:
            raise TypeError(
                "register_dataclass: the fields of a class that is no dataclass have to be named "
                "in "
                f"data_fields and meta_fields; got {nodetype!r}."
            )
        fields = [f for f in dataclasses.fields(nodetype) if f.init and f.name not in drop_fields]
        data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
    data, meta = set(data_fields), set(meta_fields)
    if data & meta:
        raise ValueError(
            "register_dataclass: a field is either data or meta, but both name "
            f"{_name_set(data & meta)}."
        )
    if is_dataclass:
        wanted = {f.name for f in dataclasses.fields(nodetype) if f.init}
        rule = (
            "register_dataclass: data_fields and meta_fields have to name the fields with "
            "init=True, each once."
        )
        missing = wanted - data - meta - set(drop_fields)
        if missing:
            raise ValueError(
                f"{rule} Missing fields: {_name_set(missing)}. Name them in drop_fields if they are to "
                "be left out."
            )
        unexpected = (data | meta) - wanted
        if unexpected:
            raise ValueError(f"{rule} Unexpected fields: {_name_set(unexpected)}.")
    return tuple(data_fields), tuple(meta_fields)


def _name_set(names: set[str]) -> str:
    return "{" + ", ".join(map(repr, sorted(names))) + "}"


def register_dataclass(
    nodetype: Typ,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Typ:
    """Makes a dataclass (or a class with the given attributes) a container.

    Args:
      nodetype: the class; its constructor takes the fields as keywords.
      data_fields: names of the attributes that are children.
      meta_fields: names of the attributes that are part of the structure; hashable, with `==`.
        By default both come from the dataclass: fields marked `metadata={'static': True}` (see
        `tree.static`) are meta fields, the others are data.
      drop_fields: names of fields to leave out; rebuilt objects get their defaults.

    Returns the class. Raises TypeError if only one of data_fields and meta_fields is given, and
    ValueError if they overlap, do not fit the dataclass, or the class is registered already.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class State:
    ...     params: list
    ...     name: str
    >>> _ = ferrax.tree_util.register_dataclass(State, data_fields=["params"], meta_fields=["name"])
    >>> ferrax.tree.map(lambda x: x + 1, State([1, 2], "first"))
    State(params=[2, 3], name='first')
    """
    data, meta = _dataclass_fields(nodetype, data_fields, meta_fields, drop_fields)
    for registry in _all_registries:
        registry.register_dataclass_node(nodetype, data, meta)

    def to_iter(x):
        return tuple(getattr(x, name) for name in data), tuple(getattr(x, name) for name in meta)

    def from_iter(aux, children):
        return nodetype(**dict(zip(meta, aux)), **dict(zip(data, children)))

    _registry[nodetype] = _RegistryEntry(to_iter, from_iter)
    return nodetype


def register_static(cls: type[H]) -> type[H]:
    """Class decorator: objects without leaves, that are part of the tree's structure.

    Args:
      cls: a class whose objects are hashable and compare with `==`.

    Returns the class. Under `jit` such objects are static.

    >>> @ferrax.tree_util.register_static
    ... class Mode(str):
    ...     pass
    >>> ferrax.tree.leaves([1, Mode("fast")])
    [1]
    """
    register_pytree_node(cls, lambda x: ((), x), lambda x, _: x, lambda x: ((), x))
    return cls


# ---- mapping and folding ----


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """`tree_flatten` with the key path of each leaf.

    Args:
      tree: any object.
      is_leaf: as in `tree_flatten`.
      is_leaf_takes_path: call `is_leaf(path, subtree)` instead of `is_leaf(subtree)`.

    Returns `([(path, leaf), ...], treedef)`; a path is a tuple of keys.

    >>> ferrax.tree_util.tree_flatten_with_path({"a": [1]})[0]
    [((DictKey(key='a'), SequenceKey(idx=0)), 1)]
    """
    return default_registry.flatten_with_path(tree, is_leaf, is_leaf_takes_path)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The list of `(path, leaf)` of a tree.

    Args: tree, is_leaf, is_leaf_takes_path: as for `tree_flatten_with_path`.

    >>> ferrax.tree_util.tree_leaves_with_path({"a": [1]})
    [((DictKey(key='a'), SequenceKey(idx=0)), 1)]
    """
    return default_registry.flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


generate_key_paths = tree_leaves_with_path


def _flatten_up_to(name: str, treedef: PyTreeDef, tree: Any, other: Any, is_leaf) -> list[Any]:
    try:
        return treedef.flatten_up_to(other)
    except ValueError:
        raise_prefix_error(name, tree, other, is_leaf)
        raise


def raise_prefix_error(name: str, prefix_tree: Any, full_tree: Any, is_leaf=None) -> None:
    """Raises ValueError for the first place where prefix_tree is no prefix of full_tree, if any."""
    for error in prefix_errors(prefix_tree, full_tree, is_leaf):
        raise error(name) from None


def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """`tree_map` with a function of the key path too.

    Args:
      f: called with the path, the leaf of `tree`, and the subtrees of `rest`.
      tree, rest: as in `tree_map`.
      is_leaf, is_leaf_takes_path: as in `tree_flatten_with_path`.

    >>> ferrax.tree_util.tree_map_with_path(lambda path, x: ferrax.tree_util.keystr(path), {"a": 1})
    {'a': "['a']"}
    """
    pairs, treedef = default_registry.flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [[path for path, _ in pairs], [leaf for _, leaf in pairs]]
    if is_leaf_takes_path:
        # Differences are explained without the predicate, which needs paths.
        is_leaf = None
    for other in rest:
        columns.append(_flatten_up_to("tree_map_with_path tree", treedef, tree, other, is_leaf))
    return treedef.unflatten(f(*arguments) for arguments in zip(*columns))


def tree_transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Turns an outer tree of inner trees into an inner tree of outer trees.

    Args:
      outer_treedef: the structure to move inwards.
      inner_treedef: the structure of each subtree; None takes it from the first one.
      pytree_to_transpose: a tree of structure `outer_treedef.compose(inner_treedef)`; what containers
        hold beside their children may differ.

    Raises TypeError if the tree has another number of leaves.

    >>> outer = ferrax.tree_util.tree_structure([0, 0])
    >>> ferrax.tree_util.tree_transpose(outer, None, [(1, 2), (3, 4)])
    ([1, 3], [2, 4])
    """
    leaves, treedef = tree_flatten(pytree_to_transpose)
    if inner_treedef is None:
        subtrees = outer_treedef.flatten_up_to(pytree_to_transpose)
        if not subtrees:
            raise IndexError(
                f"cannot infer inner_treedef: the outer structure {outer_treedef} has no leaves"
            )
        inner_treedef = tree_structure(subtrees[0])
    size = inner_treedef.num_leaves
    if len(leaves) != outer_treedef.num_leaves * size:
        raise TypeError(
            f"Mismatch\n{treedef}\n != \n{outer_treedef.compose(inner_treedef)}\nThe tree to transpose "
            "must have the structure of the outer tree with the inner structure at each leaf."
        )
    columns = [leaves[i::size] for i in range(size)]
    return inner_treedef.unflatten(map(outer_treedef.unflatten, columns))


def tree_reduce(
    function: Callable[[T, Any], T],
    tree: Any,
    initializer: T | Unspecified = _unspecified,
    is_leaf: Callable[[Any], bool] | None = None,
) -> T:
    """Folds the leaves of a tree from the left, as `functools.reduce`.

    Args:
      function: maps the value so far and a leaf to the next value.
      tree: any object.
      initializer: the first value; by default the first leaf.
      is_leaf: as in `tree_flatten`.

    Raises TypeError if there are neither leaves nor an initializer.

    >>> ferrax.tree_util.tree_reduce(lambda total, x: total + x, [1, (2, 3)])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    if isinstance(initializer, Unspecified):
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_reduce_associative(
    operation: Callable[[T, T], T],
    tree: Any,
    *,
    identity: T | Unspecified = _unspecified,
    is_leaf: Callable[[Any], bool] | None = None,
) -> T:
    """Reduces the leaves of a tree in a balanced order, so that the depth is logarithmic.

    Args:
      operation: an associative function of two values.
      tree: any object.
      identity: the result if there are no leaves.
      is_leaf: as in `tree_flatten`.

    Raises TypeError if there are neither leaves nor an identity.

    >>> ferrax.tree_util.tree_reduce_associative(lambda x, y: x + y, [1, (2, 3)])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    if not leaves:
        if isinstance(identity, Unspecified):
            raise TypeError("tree_reduce_associative: a tree without leaves needs an identity")
        return identity

    def reduce(start: int, stop: int):
        if stop - start == 1:
            return leaves[start]
        middle = start + (stop - start) // 2
        return operation(reduce(start, middle), reduce(middle, stop))

    return reduce(0, len(leaves))


def tree_all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether all leaves of a tree are true; `is_leaf` as in `tree_flatten`.

    Args: tree: any object.

    >>> ferrax.tree_util.tree_all((True, [False])), ferrax.tree_util.tree_all(None)
    (False, True)
    """
    return all(tree_leaves(tree, is_leaf))


def tree_broadcast(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Repeats the leaves of a prefix tree to the structure of a full tree.

    Args:
      prefix_tree: a tree whose structure is a prefix of that of `full_tree`.
      full_tree: gives the result's structure.
      is_leaf: as in `tree_flatten`, for `prefix_tree`.

    Raises ValueError, naming the place, if `prefix_tree` is no prefix.

    >>> ferrax.tree_util.tree_broadcast((1, 2), (0, [0, 0]))
    (1, [2, 2])
    """
    leaves = broadcast_prefix(prefix_tree, full_tree, is_leaf)
    return tree_structure(full_tree).unflatten(leaves)


def broadcast_prefix(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any]:
    """The leaves of `tree_broadcast`: each prefix leaf once for every leaf below it."""
    leaves, treedef = tree_flatten(prefix_tree, is_leaf)
    subtrees = _flatten_up_to(
        "broadcast_prefix prefix_tree", treedef, prefix_tree, full_tree, is_leaf
    )
    result = []
    for leaf, subtree in zip(leaves, subtrees):
        result.extend([leaf] * tree_structure(subtree).num_leaves)
    return result


def with_placeholders(treedef: PyTreeDef) -> Any:
    """A tree of this structure to be looked at. Its leaves are plain objects, as in JAX: classes that tell arrays from
    other data when they are flattened take these for arrays."""
    return treedef.unflatten([object() for _ in range(treedef.num_leaves)])


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """`(children, data)` of a container; the children are not flattened further.

    Raises ValueError for leaves.
    Args: tree: a container.

    >>> ferrax.tree_util.flatten_one_level({"a": [1]})
    (([1],), ('a',))
    """
    result = default_registry.flatten_one_level(tree)
    if result is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    return result


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[KeyLeafPair], Hashable]:
    """`(((key, child), ...), data)` of a container. Raises ValueError for leaves.

    Args: tree: a container.

    >>> ferrax.tree_util.flatten_one_level_with_keys({"a": [1]})
    (((DictKey(key='a'), [1]),), ('a',))
    """
    result = default_registry.flatten_one_level_with_keys(tree)
    if result is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    return result


# ---- standard containers beyond the built-in ones ----


class _CallableShim:
    """A callable that `functools.partial` does not merge with, equal to others by its function."""

    __slots__ = ("fun",)

    def __init__(self, fun: Callable[..., Any]):
        self.fun = fun

    def __call__(self, *args, **kw):
        return self.fun(*args, **kw)

    def __hash__(self) -> int:
        return hash(self.fun)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _CallableShim):
            return self.fun == other.fun
        return NotImplemented

    def __repr__(self) -> str:
        return f"_CallableShim({self.fun!r})"


class Partial(functools.partial):
    """A `functools.partial` that is a container: its arguments are children.

    Args:
      func: the function; part of the tree's structure, so it should be hashable.
      args, kw: leading positional and keyword arguments; trees.

    Compiled functions that take it are compiled once for all values of its arguments.

    >>> add_one = ferrax.tree_util.Partial(jnp.add, 1)
    >>> ferrax.jit(lambda f, x: f(x))(add_one, 2), ferrax.tree.leaves(add_one)
    (Array(3, dtype=int32, weak_type=True), [1])
    """

    def __new__(klass, func: Callable[..., Any], *args: Any, **kw: Any) -> Partial:
        # A partial of a partial would be merged into one, and the inner arguments would become
        # leaves although the inner object is meant to be a plain function.
        whole = _CallableShim(func) if isinstance(func, functools.partial) else func
        return super().__new__(klass, whole, *args, **kw)


Partial.__module__ = "ferrax.tree_util"


def _rebuild_partial(func: Callable[..., Any], children: Iterable[Any]) -> Partial:
    args, keywords = children
    return Partial(func, *args, **keywords)


register_pytree_node(Partial, lambda p: ((p.args, p.keywords), p.func), _rebuild_partial)


def _flatten_ordered_dict(d: collections.OrderedDict) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(d.values()), tuple(d)


register_pytree_node(
    collections.OrderedDict,
    _flatten_ordered_dict,
    lambda keys, values: collections.OrderedDict(zip(keys, values)),
    lambda d: (tuple((DictKey(key), value) for key, value in d.items()), tuple(d)),
)


def _flatten_default_dict(d: collections.defaultdict):
    keys = tuple(sorted(d))
    return tuple(d[key] for key in keys), (d.default_factory, keys)


def _flatten_default_dict_with_keys(d: collections.defaultdict):
    values, (factory, keys) = _flatten_default_dict(d)
    return tuple(zip(map(DictKey, keys), values)), (factory, keys)


register_pytree_node(
    collections.defaultdict,
    _flatten_default_dict,
    lambda aux, values: collections.defaultdict(aux[0], zip(aux[1], values)),
    _flatten_default_dict_with_keys,
)
