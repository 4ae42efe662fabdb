"""Key paths as text, and explanations of how two trees differ in structure.

Invariant: a difference is reported at the topmost place where it shows; nothing below it is
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ferrax._core import pytree

DictKey = pytree.DictKey
SequenceKey = pytree.SequenceKey
GetAttrKey = pytree.GetAttrKey
FlattenedIndexKey = pytree.FlattenedIndexKey
PyTreeDef = pytree.PyTreeDef
KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]
KeyLeafPair = tuple[KeyEntry, Any]


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A key path as text.

    Args:
      keys: a tuple of keys.
      simple: print the bare keys, without brackets and dots.
      separator: printed between keys.

    >>> (path, leaf), = ferrax.tree_util.tree_leaves_with_path({"a": [1]})
    >>> ferrax.tree_util.keystr(path), ferrax.tree_util.keystr(path, simple=True, separator="/")
    ("['a'][0]", 'a/0')
    """
    text = _simple_key if simple else str
    return separator.join(text(key) for key in keys)


def _simple_key(key: KeyEntry) -> str:
    if isinstance(key, (DictKey, FlattenedIndexKey)):
        return str(key.key)
    if isinstance(key, SequenceKey):
        return str(key.idx)
    if isinstance(key, GetAttrKey):
        return key.name
    return str(key)


def equality_errors(
    tree1: Any, tree2: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Iterable[tuple[KeyPath, str, str, str]]:
    """The places where two trees differ in structure.

    Yields `(path, first, second, explanation)`: what each tree has at the path, and how they
    differ. Nothing below such a place is compared.
    """
    yield from _equality_errors((), tree1, tree2, is_leaf)


def equality_errors_pytreedef(
    tree1: PyTreeDef, tree2: PyTreeDef
) -> Iterable[tuple[KeyPath, str, str, str]]:
    """`equality_errors` of two definitions; leaves read "pytree leaf"."""
    leaf = _AnyLeaf()
    yield from _equality_errors(
        (),
        tree1.unflatten([leaf] * tree1.num_leaves),
        tree2.unflatten([leaf] * tree2.num_leaves),
        None,
    )


class _AnyLeaf:
    def __repr__(self) -> str:
        return "pytree leaf"


def _describe(tree: Any) -> str:
    return repr(tree) if isinstance(tree, _AnyLeaf) else str(type(tree))


def _one_level(tree: Any, is_leaf) -> tuple[tuple[KeyLeafPair, ...], Any] | None:
    """`((key, child), ...), data` or None for leaves."""
    if is_leaf is not None and is_leaf(tree):
        return None
    return pytree.default_registry.flatten_one_level_with_keys(tree)


def _count(number: int) -> str:
    return f"{number} child" if number == 1 else f"{number} children"


def _bare_keys(pairs: Iterable[KeyLeafPair]) -> list[Any]:
    names = {DictKey: "key", FlattenedIndexKey: "key", SequenceKey: "idx", GetAttrKey: "name"}
    return [getattr(key, names[type(key)]) if type(key) in names else key for key, _ in pairs]


def _key_difference(keys1: list[Any], keys2: list[Any]) -> list[Any]:
    return [k for k in keys1 if k not in keys2] + [k for k in keys2 if k not in keys1]


def _equality_errors(path: KeyPath, tree1: Any, tree2: Any, is_leaf):
    level1, level2 = _one_level(tree1, is_leaf), _one_level(tree2, is_leaf)
    if level1 is None and level2 is None:
        return
    if type(tree1) is not type(tree2):
        yield path, _describe(tree1), _describe(tree2), "their Python types differ"
        return
    if level1 is None or level2 is None:
        return
    (pairs1, data1), (pairs2, data2) = level1, level2
    name = _describe(tree1)
    if len(pairs1) != len(pairs2):
        if isinstance(tree1, (list, tuple)):
            kind = type(tree1).__name__
            first, second = (f"{kind} of length {len(p)}" for p in (pairs1, pairs2))
            yield path, first, second, "the lengths do not match"
            return
        difference = _key_difference(_bare_keys(pairs1), _bare_keys(pairs2))
        explanation = "the numbers of children do not match"
        if difference:
            shown = ", ".join(map(repr, difference))
            explanation += f", with the symmetric difference of key sets: {{{shown}}}"
        first, second = (f"{name} with {_count(len(p))}" for p in (pairs1, pairs2))
        yield path, first, second, explanation
        return
    if data1 is not data2 and data1 != data2:
        first, second = (f"{name} with pytree metadata {data}" for data in (data1, data2))
        yield path, first, second, "the pytree node metadata does not match"
        return
    for (key, child1), (_, child2) in zip(pairs1, pairs2):
        yield from _equality_errors((*path, key), child1, child2, is_leaf)


def prefix_errors(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[Callable[[str], ValueError]]:
    """The reasons why one tree is no prefix of another.

    Returns functions that take a name for the prefix tree and make an exception to raise.
    """
    return list(_prefix_errors((), prefix_tree, full_tree, is_leaf))


def _prefix_errors(path: KeyPath, prefix: Any, full: Any, is_leaf):
    level = _one_level(prefix, is_leaf)
    if level is None:
        return

    def error(what: str, details: str) -> Callable[[str], ValueError]:
        def make(name: str) -> ValueError:
            return ValueError(
                f"pytree structure error: different {what} at key path\n    {name}{keystr(path)}\n"
                f"Got {details}"
            )

        return make

    kind = type(prefix)
    if kind is not type(full):
        yield error(
            "types",
            f"{kind} in the prefix, {type(full)} in the full tree.",
        )
        return
    full_level = _one_level(full, None)
    if full_level is None:
        return
    (pairs, data), (full_pairs, full_data) = level, full_level
    if len(pairs) != len(full_pairs):
        if isinstance(prefix, (list, tuple)):
            yield error(
                f"lengths of {kind.__name__}",
                f"length {len(pairs)} in the prefix, {len(full_pairs)} in the full tree.",
            )
            return
        keys, full_keys = _bare_keys(pairs), _bare_keys(full_pairs)
        difference = _key_difference(keys, full_keys)
        tail = (
            f"\nOne of them only has\n    {_join(difference)}"
            if difference
            else ""
        )
        yield error(
            "numbers of pytree children",
            f"{kind} of {len(keys)} keys in the prefix\n    {_join(keys)}\n"
            f"of {len(full_keys)} in the full tree\n    {_join(full_keys)}{tail}",
        )
        return
    if data is not full_data and data != full_data:
        yield error(
            "pytree metadata",
            f"{kind} with metadata\n    {data}\nin the prefix, and in the full tree with\n    {full_data}\n"
            "The difference:\n"
            f"{_metadata_difference(str(data), str(full_data))}",
        )
        return
    for (key, child), (_, full_child) in zip(pairs, full_pairs):
        yield from _prefix_errors((*path, key), child, full_child, is_leaf)


def _join(keys: Iterable[Any]) -> str:
    return " ".join(map(str, keys))


def _metadata_difference(first: str, second: str) -> str:
    import difflib  # slow to import, and only messages need it

    lines = difflib.ndiff(first.splitlines(), second.splitlines())
    return "\n".join(f"    {line}".rstrip("\n") for line in lines)
