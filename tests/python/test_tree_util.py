"""Pytrees against JAX's: leaves, structures, key paths, registered types, errors, pickling."""

import collections
import copy
import dataclasses
import functools
import gc
import operator
import pickle
import subprocess
import sys
import threading
import weakref
from typing import Any, NamedTuple

import pytest

jax = pytest.importorskip("jax")
hypothesis = pytest.importorskip("hypothesis")

import jax.tree_util as jtu  # noqa: E402
from ferrax._core import default_registry, pytree  # noqa: E402
from hypothesis import (  # noqa: E402
    given,
    settings,
    strategies as st,  # noqa: E402
)
from jax._src import tree_util as jtu_src  # noqa: E402

import ferrax.tree as ftree  # noqa: E402
import ferrax.tree_util as ftu  # noqa: E402
from ferrax._src import tree_util as ftu_src  # noqa: E402


class Pair(NamedTuple):
    a: Any
    b: Any


class SubPair(Pair):
    pass


class TupleSubclass(tuple):
    pass


class ListSubclass(list):
    pass


class DictSubclass(dict):
    pass


class Node:
    """Registered with functions, no keys."""

    def __init__(self, *children, aux="aux"):
        self.children = children
        self.aux = aux

    def __eq__(self, other):
        return type(other) is Node and vars(self) == vars(other)

    __hash__ = None


class Keyed:
    def __init__(self, a, b):
        self.a = a
        self.b = b

    def __eq__(self, other):
        return type(other) is Keyed and vars(self) == vars(other)

    __hash__ = None


class ByMethods:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return type(other) is ByMethods and self.x == other.x

    __hash__ = None

    def tree_flatten(self):
        return (self.x,), "methods"

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


class KeyedByMethods(ByMethods):
    def __eq__(self, other):
        return type(other) is KeyedByMethods and self.x == other.x

    __hash__ = None

    def tree_flatten_with_keys(self):
        return ((("custom key", self.x),), "methods")


@dataclasses.dataclass
class Data:
    x: Any
    y: Any
    name: str = "data"


@dataclasses.dataclass
class Marked:
    x: Any
    tag: Any = dataclasses.field(default=7, metadata={"static": True})


@dataclasses.dataclass
class Dropping:
    x: Any
    cache: Any = None


@dataclasses.dataclass(frozen=True)
class Static:
    value: Any


for tu in (jtu, ftu):
    tu.register_pytree_node(
        Node, lambda n: (n.children, n.aux), lambda aux, children: Node(*children, aux=aux)
    )
    tu.register_pytree_with_keys(
        Keyed,
        lambda k, tu=tu: (((tu.GetAttrKey("a"), k.a), ("plain", k.b)), None),
        lambda _, children: Keyed(*children),
    )
    tu.register_pytree_node_class(ByMethods)
    tu.register_pytree_with_keys_class(KeyedByMethods)
    tu.register_dataclass(Data, data_fields=["x", "y"], meta_fields=["name"])
    tu.register_dataclass(Marked)
    tu.register_dataclass(Dropping, ["x"], [], drop_fields=["cache"])
    tu.register_static(Static)


TREES = {
    "leaf": 1,
    "string": "ab",
    "none": None,
    "empty tuple": (),
    "empty list": [],
    "empty dict": {},
    "tuple": (1, 2, 3),
    "one tuple": (1,),
    "long tuple": tuple(range(40)),
    "list": [1, [2, [3, None]], ()],
    "long list": list(range(40)),
    "dict": {"b": 1, "a": 2, "c": [None, {"z": 3, "y": (4,)}]},
    "dict of ints": {3: "x", 1: "y", -2: "z"},
    "dict of numbers": {2: 1, 1.5: 3, True: 4},
    "dict of tuples": {(1, "b"): 1, (1, "a"): 2},
    "dict of long strings": {"prefix__b": 1, "prefix__a": 2, "prefix_": 3, "prefix": 4, "p\0": 5},
    "dict of non-ascii": {"é": 1, "z": 2, "\U0001f600": 3, "\uffff": 4},
    "dict with a surrogate": {"\ud800": 1, "a": 2, "\ue000": 3},
    "namedtuple": Pair(1, [2]),
    "namedtuple subclass": SubPair(1, (2,)),
    "tuple subclass": TupleSubclass((1, 2)),
    "list subclass": ListSubclass([1]),
    "dict subclass": DictSubclass(a=1),
    "set": {1, 2},
    "deque": collections.deque([1]),
    "ordered dict": collections.OrderedDict([("b", 1), ("a", (2, 3))]),
    "default dict": collections.defaultdict(int, {"b": 1, "a": [2]}),
    "node": Node(1, [2, None], aux=("p", 3)),
    "keyed": {"k": Keyed(1, [2])},
    "methods": ByMethods((1, 2)),
    "keyed methods": [KeyedByMethods({"a": 1})],
    "dataclass": Data(1, (2, 3), "n"),
    "marked dataclass": Marked([1], "tag"),
    "dropping dataclass": Dropping((1, 2)),
    "static": (Static(3), 1),
    "nested": {"a": [Node(Pair(1, None)), Data({"k": 2}, None)], "b": (((),),)},
}


def text(treedef):
    return str(treedef)


def same_keys(ours, theirs):
    return [(str(k), type(k).__name__) for k in ours] == [
        (str(k), type(k).__name__) for k in theirs
    ]


def check_tree(tree):
    leaves, treedef = ftu.tree_flatten(tree)
    expected_leaves, expected = jtu.tree_flatten(tree)
    assert len(leaves) == len(expected_leaves)
    assert all(map(operator.is_, leaves, expected_leaves))
    assert text(treedef) == text(expected)
    assert (treedef.num_leaves, treedef.num_nodes) == (expected.num_leaves, expected.num_nodes)
    assert treedef.node_data() == expected.node_data()
    assert list(map(text, treedef.children())) == list(map(text, expected.children()))
    again = ftu.tree_structure(tree)
    assert again == treedef
    assert hash(again) == hash(treedef)
    rebuilt = ftu.tree_unflatten(treedef, leaves)
    assert type(rebuilt) is type(tree)
    assert rebuilt == jtu.tree_unflatten(expected, leaves)
    assert ftu.tree_structure(rebuilt) == treedef
    paths, by_path = ftu.tree_flatten_with_path(tree)
    expected_paths, _ = jtu.tree_flatten_with_path(tree)
    assert by_path == treedef
    assert all(same_keys(a[0], b[0]) for a, b in zip(paths, expected_paths, strict=True))
    assert all(map(operator.is_, [leaf for _, leaf in paths], leaves))
    for (a, _), (b, _) in zip(paths, expected_paths, strict=True):
        assert ftu.keystr(a) == jtu.keystr(b)
        assert ftu.keystr(a, simple=True, separator="/") == jtu.keystr(
            b, simple=True, separator="/"
        )


@pytest.mark.parametrize("name", TREES)
def test_table(name):
    check_tree(TREES[name])


def test_equality_of_all_pairs():
    ours = [ftu.tree_structure(tree) for tree in TREES.values()]
    theirs = [jtu.tree_structure(tree) for tree in TREES.values()]
    for a, a_jax in zip(ours, theirs):
        for b, b_jax in zip(ours, theirs):
            assert (a == b) == (a_jax == b_jax)
            assert (a != b) == (a_jax != b_jax)
            if a == b:
                assert hash(a) == hash(b)


keys = st.text(max_size=4)
trees = st.recursive(
    st.one_of(st.none(), st.integers(), st.just("leaf"), st.builds(Static, st.integers(0, 2))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=14).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.integers(-5, 5), inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(keys, inner, max_size=3).map(lambda d: collections.defaultdict(list, d)),
        st.builds(Pair, inner, inner),
        st.builds(Node, inner, inner, aux=st.sampled_from(["p", "q"])),
        st.builds(Keyed, inner, inner),
        st.builds(Data, inner, inner, st.sampled_from(["p", "q"])),
    ),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_generated(tree):
    check_tree(tree)


@settings(max_examples=150, deadline=None)
@given(trees, trees)
def test_generated_prefix(prefix, full):
    """Both libraries agree on what is a prefix of what, and what it broadcasts to."""
    try:
        expected = jtu_src.broadcast_prefix(prefix, full)
    except ValueError as error:
        with pytest.raises(ValueError, match="pytree structure error") as caught:
            ftu_src.broadcast_prefix(prefix, full)
        assert caught.value.args[0].split("\n")[0] == error.args[0].split("\n")[0]
        with pytest.raises(ValueError):
            ftu.tree_map(lambda *x: x, prefix, full)
    else:
        assert ftu_src.broadcast_prefix(prefix, full) == expected
        assert ftu.tree_map(lambda a, b: (a, b), prefix, full) == jtu.tree_map(
            lambda a, b: (a, b), prefix, full
        )
    ours = [(ftu.keystr(p), *rest) for p, *rest in ftu_src.equality_errors(prefix, full)]
    theirs = [(jtu.keystr(p), *rest) for p, *rest in jtu_src.equality_errors(prefix, full)]
    reasons = [[error[3].partition(",")[0] for error in errors] for errors in (ours, theirs)]
    assert reasons[0] == reasons[1]
    # JAX 0.10.2 names every field of a namedtuple by the first one here (see test_one_level).
    assert [o[0].replace(".b", ".a") for o in ours] == [t[0].replace(".b", ".a") for t in theirs]


@settings(max_examples=60, deadline=None)
@given(trees)
def test_generated_pickle_and_compose(tree):
    treedef = ftu.tree_structure(tree)
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef) == treedef
    inner = ftu.tree_structure((0, [0]))
    composed = treedef.compose(inner)
    assert text(composed) == text(jtu.tree_structure(tree).compose(jtu.tree_structure((0, [0]))))
    assert composed == ftu.tree_structure(ftu.tree_map(lambda _: (0, [0]), tree))
    data = treedef.node_data()
    rebuilt = ftu.PyTreeDef.from_node_data_and_children(default_registry, data, treedef.children())
    assert rebuilt == treedef
    counts = treedef.walk(lambda children, _: sum(children), lambda _: 1, range(treedef.num_leaves))
    assert counts == treedef.num_leaves


def is_none(x):
    return x is None


@pytest.mark.parametrize(
    "predicate", [is_none, lambda x: isinstance(x, tuple), lambda x: True, lambda x: x == [2]]
)
def test_is_leaf(predicate):
    tree = {"a": (1, [2]), "b": None, "c": Node([2], None)}
    leaves, treedef = ftu.tree_flatten(tree, predicate)
    expected_leaves, expected = jtu.tree_flatten(tree, predicate)
    assert leaves == expected_leaves
    assert text(treedef) == text(expected)
    assert ftu.tree_leaves(tree, is_leaf=predicate) == expected_leaves
    assert text(ftu.tree_structure(tree, is_leaf=predicate)) == text(expected)
    assert ftu.all_leaves([tree], predicate) == jtu.all_leaves([tree], predicate)


def test_is_leaf_takes_path():
    def predicate(path, x):
        return len(path) == 1

    tree = {"a": (1, [2]), "b": None}
    ours = ftu.tree_leaves_with_path(tree, is_leaf=predicate, is_leaf_takes_path=True)
    assert [(ftu.keystr(p), x) for p, x in ours] == [("['a']", (1, [2])), ("['b']", None)]
    result = ftu.tree_map_with_path(
        lambda p, x, y: (ftu.keystr(p), x, y),
        {"a": (1,)},
        {"a": 5},
        is_leaf=predicate,
        is_leaf_takes_path=True,
    )
    assert result == {"a": ("['a']", (1,), 5)}


def test_is_leaf_must_return_bool():
    with pytest.raises(ValueError, match="non-boolean value \\[\\]"):
        ftu.tree_flatten((1, 2), lambda x: [])


class Failure(Exception):
    pass


def fail(*_):
    raise Failure


def test_exceptions_pass_through():
    with pytest.raises(Failure):
        ftu.tree_flatten((1, 2), fail)
    with pytest.raises(Failure):
        ftu.tree_map(fail, [1])
    with pytest.raises(Failure):
        ftu.tree_map(fail, [1], [2])
    bad = type("Bad", (), {})
    ftu.register_pytree_node(bad, fail, fail)
    with pytest.raises(Failure):
        ftu.tree_flatten([bad()])


def test_tree_map():
    tree = {"b": 1, "a": (2, None), "c": Data(3, [4])}
    other = {"a": ([20], None), "c": Data({"x": 30}, [40]), "b": 10}
    assert ftu.tree_map(lambda x: x + 1, tree) == jtu.tree_map(lambda x: x + 1, tree)
    assert ftu.tree_map(lambda x, y: (x, y), tree, other) == jtu.tree_map(
        lambda x, y: (x, y), tree, other
    )
    assert ftree.map(lambda *x: x, (1, 2), (3, 4), (5, 6)) == ((1, 3, 5), (2, 4, 6))
    assert list(ftu.tree_map(lambda x: x, {"b": 1, "a": 2})) == ["a", "b"]
    assert ftu.tree_map(lambda x, y: x, (None, 1), (None, 2), is_leaf=is_none) == (None, 1)
    assert ftu.tree_map(lambda x: 0, (None, 1), is_leaf=is_none) == (0, 0)
    assert type(ftree.map(lambda x: x, collections.OrderedDict(a=1))) is collections.OrderedDict
    result = ftu.tree_map(lambda x: x, collections.defaultdict(list, a=1))
    assert result.default_factory is list


@pytest.mark.parametrize(
    "prefix, full",
    [
        ((1, 2), (1,)),
        ([1, 2], (1, 2)),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        (None, 1),
        ((1, None), (1, (2, 3))),
        (Pair(1, 2), (1, 2)),
        ((1, 2), Pair(1, 2)),
        (Pair(1, 2), SubPair(1, 2)),
        (Data(1, 2, "p"), Data(1, 2, "q")),
        (Data(1, 2), 3),
        (Node(1, 2), Node(1)),
        (Node(1, aux=1), Node(1, aux=2)),
        (Node(1), Keyed(1, 2)),
        (Static(1), Static(2)),
        ([{"a": (1, [1, {"k": 2}])}], [{"a": (1, [1, {"l": 2}])}]),
        (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=1, a=2)),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(int, a=1), collections.defaultdict(float, a=1)),
    ],
)
def test_mismatch_messages(prefix, full):
    with pytest.raises(ValueError) as expected:
        jtu.tree_map(lambda *x: x, prefix, full)
    with pytest.raises(ValueError) as ours:
        ftu.tree_map(lambda *x: x, prefix, full)
    # Same place, same reason.
    assert str(ours.value).split("\n")[:2] == str(expected.value).split("\n")[:2]
    with pytest.raises(ValueError) as expected:
        jtu.tree_structure(prefix).flatten_up_to(full)
    with pytest.raises(ValueError) as ours:
        ftu.tree_structure(prefix).flatten_up_to(full)
    assert str(ours.value).split()[:2] == str(expected.value).split()[:2]
    with pytest.raises(ValueError, match="tree_map_with_path tree"):
        ftu.tree_map_with_path(lambda *x: x, prefix, full)
    ours = [e("in_axes").args[0] for e in ftu_src.prefix_errors(prefix, full)]
    theirs = [e("in_axes").args[0] for e in jtu_src.prefix_errors(prefix, full)]
    assert [t.split("\n")[:2] for t in ours] == [t.split("\n")[:2] for t in theirs]
    ours = ftu_src.equality_errors_pytreedef(ftu.tree_structure(prefix), ftu.tree_structure(full))
    theirs = jtu_src.equality_errors_pytreedef(jtu.tree_structure(prefix), jtu.tree_structure(full))
    assert [(ftu.keystr(p), *r) for p, *r in ours] == [(jtu.keystr(p), *r) for p, *r in theirs]


def test_flatten_up_to():
    treedef = ftu.tree_structure({"b": 1, "a": [2, (3, None)], "c": Node(4)})
    full = {"a": [{"x": 1}, ((), None)], "b": None, "c": Node([5])}
    assert treedef.flatten_up_to(full) == [{"x": 1}, (), None, [5]]


def test_unflatten_counts():
    treedef = ftu.tree_structure((1, [2]))
    assert treedef.unflatten(iter([5, 6])) == (5, [6])
    assert treedef.unflatten((5, 6)) == (5, [6])
    with pytest.raises(ValueError, match="Too few leaves for PyTreeDef; expected 2, got 1"):
        treedef.unflatten([1])
    with pytest.raises(ValueError, match="Too few leaves for PyTreeDef; expected 2, got 1"):
        treedef.unflatten(iter([1]))
    with pytest.raises(ValueError, match="Too many leaves for PyTreeDef; expected 2"):
        treedef.unflatten([1, 2, 3])
    with pytest.raises(TypeError):
        treedef.unflatten(3)
    with pytest.raises(Failure):
        treedef.unflatten(fail() for _ in range(2))


def test_unsortable_keys():
    for tu in (jtu, ftu):
        with pytest.raises(ValueError, match="Comparator raised exception while sorting"):
            tu.tree_flatten({"a": 1, 2: 3})
    with pytest.raises(ValueError) as caught:
        ftu.tree_flatten({"a": 1, 2: 3})
    assert isinstance(caught.value.__cause__, TypeError)


def test_dict_order_does_not_matter():
    a, b = ftu.tree_structure({"x": 1, "y": 2}), ftu.tree_structure({"y": 1, "x": 2})
    assert a == b
    assert hash(a) == hash(b)
    ordered = collections.OrderedDict
    assert ftu.tree_structure(ordered(x=1, y=2)) != ftu.tree_structure(ordered(y=1, x=2))
    assert ftu.tree_structure({1: 0}) == ftu.tree_structure({1.0: 0})
    assert hash(ftu.tree_structure({1: 0})) == hash(ftu.tree_structure({1.0: 0}))


def test_treedef_comparisons():
    treedef = ftu.tree_structure(1)
    assert treedef != 1
    assert (treedef == None) is False  # noqa: E711
    with pytest.raises(TypeError):
        treedef < treedef  # noqa: B015


class Unhashable:
    __hash__ = None

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Unhashable) and self.value == other.value


def test_aux_data_need_not_be_hashable():
    a, b = (ftu.tree_structure(Node(1, aux=Unhashable(3))) for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
    assert a != ftu.tree_structure(Node(1, aux=Unhashable(4)))


def test_aux_data_comparison_errors_surface():
    class Raises:
        def __eq__(self, other):
            raise Failure

        __hash__ = None

    a, b = (ftu.tree_structure(Node(1, aux=Raises())) for _ in range(2))
    with pytest.raises(Failure):
        a == b  # noqa: B015
    assert a == a  # noqa: PLR0124


def test_reductions():
    tree = [1, (2, {"a": 3}), None, 4, 5, 6, 7]
    for tu in (jtu, ftu):
        assert tu.tree_reduce(operator.add, tree) == 28
        assert tu.tree_reduce(lambda a, b: [a, b], (1, 2), []) == [[[], 1], 2]
        assert tu.tree_reduce(operator.add, (), 5) == 5
        assert tu.tree_reduce(lambda a, b: [a, b], (None, 1), is_leaf=is_none) == [None, 1]
        assert tu.tree_reduce(lambda a, b: [a, b], (), None) is None
        with pytest.raises(TypeError):
            tu.tree_reduce(operator.add, ())
        assert tu.tree_reduce_associative(lambda a, b: (a, b), tree) == (
            (1, (2, 3)),
            ((4, 5), (6, 7)),
        )
        assert tu.tree_reduce_associative(operator.add, (), identity=7) == 7
        assert tu.tree_reduce_associative(operator.add, (3,), identity=7) == 3
        with pytest.raises(TypeError, match="identity"):
            tu.tree_reduce_associative(operator.add, ())
        assert tu.tree_all((1, [True])) is True
        assert tu.tree_all((1, [0])) is False
        assert tu.tree_all(None) is True
        assert tu.tree_all((1, None), is_leaf=is_none) is False


def test_transpose():
    s = ftu.tree_structure
    tree = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    expected = {"a": [1, 3], "b": [2, 4]}
    assert ftu.tree_transpose(s([0, 0]), s({"a": 0, "b": 0}), tree) == expected
    assert ftree.transpose(s([0, 0]), None, tree) == expected
    assert ftu.tree_transpose(s([0, None]), None, [(1, 2), None]) == ([1, None], [2, None])
    with pytest.raises(TypeError, match="Mismatch"):
        ftu.tree_transpose(s([0, 0]), s({"a": 0}), tree)
    with pytest.raises(TypeError, match="Mismatch"):
        ftu.tree_transpose(s([0, 0]), None, [1, (2, 3)])
    with pytest.raises(IndexError):
        ftu.tree_transpose(s([]), None, [])


@pytest.mark.parametrize(
    "prefix, full, is_leaf",
    [
        ((1, 2), ((3, 4), [5, {"a": 6}]), None),
        (1, {"a": [2, None]}, None),
        ((1, None), ((3, 4), None), None),
        ((1, (7, 8)), ((3, 4), [5, {"a": 6}]), lambda x: x == (7, 8)),
        ((1, None), (1, (2, 3)), is_none),
        (Data(1, (2, 3)), Data([1, 2], (3, [4])), None),
    ],
)
def test_broadcast(prefix, full, is_leaf):
    expected = jtu.tree_broadcast(prefix, full, is_leaf=is_leaf)
    assert ftu.tree_broadcast(prefix, full, is_leaf=is_leaf) == expected
    assert ftree.broadcast(prefix, full, is_leaf) == expected


@pytest.mark.parametrize("name", TREES)
def test_one_level(name):
    tree = TREES[name]
    if not ftu.is_tree_node(type(tree)):
        with pytest.raises(ValueError, match="can't tree-flatten type"):
            ftu.flatten_one_level(tree)
        with pytest.raises(ValueError, match="can't tree-flatten type"):
            ftu.flatten_one_level_with_keys(tree)
        assert default_registry.flatten_one_level(tree) is None
        return
    children, data = ftu.flatten_one_level(tree)
    expected_children, expected_data = jtu.flatten_one_level(tree)
    assert list(children) == list(expected_children)
    assert data == expected_data
    pairs, keyed_data = ftu.flatten_one_level_with_keys(tree)
    expected_pairs, _ = jtu.flatten_one_level_with_keys(tree)
    assert keyed_data == expected_data
    assert [child for _, child in pairs] == [child for _, child in expected_pairs]
    if isinstance(tree, Pair):
        # JAX 0.10.2 gives all children the key of the first field here, unlike its key paths.
        assert [str(key) for key, _ in pairs] == [".a", ".b"]
    else:
        assert [str(key) for key, _ in pairs] == [str(key) for key, _ in expected_pairs]


def test_registry():
    kinds = (int, list, Pair, type(None), dict, Data, Node, tuple, TupleSubclass, str, Static)
    for kind in (*kinds, ftu.Partial, collections.OrderedDict, collections.deque):
        theirs = jtu.Partial if kind is ftu.Partial else kind
        assert ftu.is_tree_node(kind) == jtu.is_tree_node(theirs)
        assert (kind in default_registry) == ftu.is_tree_node(kind)
        if kind is not Pair:
            assert (kind in ftu_src._registry) == (theirs in jtu_src._registry)
    assert Node in list(default_registry)
    assert len(default_registry) == len(list(default_registry))
    entry = ftu_src._registry[Data]
    assert entry.to_iter(Data(1, 2, "n")) == ((1, 2), ("n",))
    assert entry.from_iter(("n",), (1, 2)) == Data(1, 2, "n")
    assert ftu_src._registry[dict].to_iter({"b": 1, "a": 2}) == ((2, 1), ("a", "b"))
    assert pickle.loads(pickle.dumps(default_registry)) is default_registry


def test_none_leaf_registry():
    registry = ftu_src.none_leaf_registry
    leaves, treedef = registry.flatten((1, None, Node(None)))
    assert leaves == [1, None, None]
    assert str(treedef) == "PyTreeDef((*, *, CustomNode(Node[aux], [*])))"


def test_private_registry():
    registry = pytree.PyTreeRegistry(enable_list=False, enable_dict=False)
    assert registry.flatten(([1], {"a": 1}, (2,)))[0] == [[1], {"a": 1}, 2]
    registry.register_node(Unhashable, lambda x: ((x.value,), None), lambda _, c: Unhashable(*c))
    treedef = registry.flatten(Unhashable(1))[1]
    assert str(treedef) == "PyTreeDef(CustomNode(Unhashable[None], [*]))"
    assert not ftu.is_tree_node(Unhashable)
    with pytest.raises(ValueError, match="not registered in the default registry"):
        pickle.dumps(treedef)


def test_many_registrations():
    kinds = [type(f"Kind{i}", (), {"i": i}) for i in range(500)]
    for kind in kinds:
        ftu.register_pytree_node(kind, lambda x: ((x.i,), type(x)), lambda aux, _: aux())
    leaves, treedef = ftu.tree_flatten([kind() for kind in kinds])
    assert leaves == list(range(500))
    assert [type(x) for x in treedef.unflatten(leaves)] == kinds


@pytest.mark.parametrize("kind", [Node, Data, list, tuple, dict, type(None), ftu.Partial])
def test_duplicate_registration(kind):
    with pytest.raises(ValueError, match="Duplicate custom"):
        ftu.register_pytree_node(kind, lambda x: ((), None), lambda aux, children: None)


def test_register_type_errors():
    with pytest.raises(TypeError):
        ftu.register_pytree_node(3, lambda x: ((), None), lambda aux, children: None)
    fresh = type("Fresh", (), {})
    with pytest.raises(TypeError):
        ftu.register_pytree_node(fresh, None, None)
    assert not ftu.is_tree_node(fresh)


@dataclasses.dataclass
class Unregistered:
    a: Any
    b: Any = 1


@pytest.mark.parametrize(
    "kind, data, meta, drop, error",
    [
        (Unregistered, ["a"], None, (), TypeError),
        (Node, None, None, (), TypeError),
        (Unregistered, ["a"], [], (), ValueError),
        (Unregistered, ["a", "b"], ["b"], (), ValueError),
        (Unregistered, ["a", "b", "c"], [], (), ValueError),
        (Data, ["x", "y"], ["name"], (), ValueError),
    ],
)
def test_register_dataclass_errors(kind, data, meta, drop, error):
    messages = []
    for tu in (jtu, ftu):
        with pytest.raises(error) as caught:
            tu.register_dataclass(kind, data, meta, drop)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_register_dataclass():
    @ftu.register_dataclass
    @dataclasses.dataclass
    class Here:
        x: Any
        note: str = ftree.static(default="n")
        derived: Any = dataclasses.field(default=0, init=False)

    leaves, treedef = ftu.tree_flatten(Here([1, 2], "m"))
    assert leaves == [1, 2]
    assert treedef.node_data() == (Here, ("m",))
    assert treedef != ftu.tree_structure(Here([1, 2], "n"))
    assert treedef.unflatten([3, 4]) == Here([3, 4], "m")
    with pytest.raises(AttributeError):
        ftu.tree_flatten(object.__new__(Here))
    assert ftu.tree_map(lambda x: x, Dropping(1, cache="c")) == Dropping(1)


@pytest.mark.parametrize(
    "output, message",
    [
        (3, "should return a \\(children, aux_data\\) tuple, got 3"),
        ((1, 2, 3), "should return a \\(children, aux_data\\) tuple, got \\(1, 2, 3\\)"),
        ((1, 2), "where 'children' is iterable"),
    ],
)
def test_bad_flatten_functions(output, message):
    kind = type("Bad", (), {})
    ftu.register_pytree_node(kind, lambda x: output, lambda aux, children: None)
    with pytest.raises(ValueError, match=message):
        ftu.tree_flatten(kind())


def test_bad_flatten_with_keys():
    kind = type("Bad", (), {})
    ftu.register_pytree_with_keys(kind, lambda x: ((1, 2), None), lambda aux, c: None)
    with pytest.raises(ValueError, match="to_iterable_with_keys"):
        ftu.tree_flatten_with_path(kind())


def test_keys():
    for tu in (jtu, ftu):
        made = [tu.DictKey("a"), tu.SequenceKey(1), tu.GetAttrKey("x"), tu.FlattenedIndexKey(1)]
        assert list(map(repr, made)) == [
            "DictKey(key='a')",
            "SequenceKey(idx=1)",
            "GetAttrKey(name='x')",
            "FlattenedIndexKey(key=1)",
        ]
        assert list(map(str, made)) == ["['a']", "[1]", ".x", "[<flat index 1>]"]
        assert made[1] != made[3]
        assert made[0] != "a"
        assert made[0] == tu.DictKey(key="a")
        assert len({*made, tu.SequenceKey(idx=1), tu.GetAttrKey(name="x")}) == 4
        assert [pickle.loads(pickle.dumps(key)) for key in made] == made
        assert (made[0].key, made[1].idx, made[2].name, made[3].key) == ("a", 1, "x", 1)
        with pytest.raises(TypeError):
            tu.SequenceKey("a")
        with pytest.raises(TypeError):
            tu.GetAttrKey(3)
        with pytest.raises(AttributeError):
            made[0].key = "b"
        match made[0]:
            case tu.DictKey(key):
                assert key == "a"
            case _:
                pytest.fail("DictKey does not match itself")


def test_key_with_unhashable_content():
    with pytest.raises(TypeError):
        hash(ftu.DictKey([]))


def test_treedef_functions():
    s = ftu.tree_structure
    assert ftu.treedef_tuple([s(1), s([2])]) == s((1, [2]))
    assert ftu.treedef_tuple(()) == s(())
    assert ftu.treedef_children(s((1, [2]))) == [s(1), s([2])]
    assert ftu.treedef_is_leaf(s(1))
    assert ftu.treedef_is_leaf(s(None))
    assert not ftu.treedef_is_leaf(s([1]))
    assert not ftu_src.treedef_is_strict_leaf(s(None))
    make = ftu.PyTreeDef.make_from_node_data_and_children
    assert make(default_registry, None, []) == s(1)
    assert make(default_registry, (dict, ["a", "b"]), [s(1), s([1])]) == s({"a": 1, "b": [1]})
    assert make(default_registry, (Pair, None), [s(1), s(1)]) == s(Pair(1, 1))
    with pytest.raises(RuntimeError, match="Could not find type"):
        make(default_registry, (int, None), [s(1)])
    with pytest.raises(ValueError):
        make(default_registry, (dict, ["a"]), [])
    with pytest.raises(TypeError):
        ftu.tree_unflatten(3, [1])


def test_walk():
    tree = {"b": Node(1), "a": None, "c": Pair(2, 3)}
    ours = ftu.tree_structure(tree).walk(lambda *a: a, lambda x: -x, [1, 2, 3])
    assert ours == jtu.tree_structure(tree).walk(lambda *a: a, lambda x: -x, [1, 2, 3])
    assert ftu.tree_structure((1, 2)).walk(lambda c, _: c, None, [5, 6]) == (5, 6)
    with pytest.raises(ValueError, match="Too many leaves"):
        ftu.tree_structure((1,)).walk(lambda *a: a, None, [1, 2])
    with pytest.raises(ValueError, match="Too few leaves"):
        ftu.tree_structure((1,)).walk(lambda *a: a, None, [])


def test_from_iterable_tree():
    treedef = ftu.tree_structure((1, {"a": 2, "b": None}))
    assert treedef.from_iterable_tree([5, iter([6, None])]) == (5, {"a": 6, "b": None})
    with pytest.raises(ValueError, match="arity mismatch"):
        treedef.from_iterable_tree((5,))


def add(*args, **kw):
    return sum(args) + sum(kw.values())


def test_partial():
    partial = ftu.Partial(add, 1, k=2)
    assert partial(3) == 6
    assert isinstance(partial, functools.partial)
    assert repr(partial) == repr(jtu.Partial(add, 1, k=2))
    leaves, treedef = ftu.tree_flatten(partial)
    assert leaves == [1, 2]
    assert str(treedef) == str(jtu.tree_structure(jtu.Partial(add, 1, k=2)))
    doubled = ftu.tree_map(lambda x: 2 * x, partial)
    assert type(doubled) is ftu.Partial
    assert doubled(0) == 6
    assert treedef == ftu.tree_structure(ftu.Partial(add, 5, k=6))
    assert treedef != ftu.tree_structure(ftu.Partial(max, 5, k=6))


def test_partial_of_partial():
    inner = functools.partial(add, 1)
    outer = ftu.Partial(inner, 2)
    assert outer(3) == 6
    assert outer.args == (2,)
    assert ftu.tree_structure(outer) == ftu.tree_structure(ftu.Partial(inner, 5))
    assert hash(outer.func) == hash(inner)
    assert ftu.Partial(ftu.Partial(add, 1), 2)(3) == 6
    with pytest.raises(TypeError):
        ftu.Partial(3)


def deep(levels, make=lambda x: [x]):
    tree = 1
    for _ in range(levels):
        tree = make(tree)
    return tree


@pytest.mark.parametrize("make", [lambda x: [x], lambda x: (x,), lambda x: {"k": x}, Node])
def test_depth(make):
    treedef = ftu.tree_structure(deep(300, make))
    assert treedef.num_nodes == 301
    assert ftu.tree_structure(treedef.unflatten([0])) == treedef
    with pytest.raises(RecursionError):
        ftu.tree_structure(deep(100_000, make))
    with pytest.raises(RecursionError):
        ftu.tree_leaves_with_path(deep(100_000, make))


def test_cycles():
    cycle: list = []
    cycle.append(cycle)
    mapping: dict = {}
    mapping["a"] = (mapping,)
    for tree in (cycle, mapping):
        with pytest.raises(RecursionError):
            ftu.tree_flatten(tree)
        with pytest.raises(RecursionError):
            ftu.tree_flatten_with_path(tree)
        with pytest.raises(RecursionError):
            ftu.tree_map(lambda x: x, tree)


DEEP_PROGRAM = """
import sys, threading
import ferrax.tree_util as tu
sys.setrecursionlimit(10**7)
def run():
    for make in (lambda x: [x], lambda x: {0: x}, lambda x: tu.Partial(print, x)):
        tree = 1
        for _ in range(10**5):
            tree = make(tree)
        for function in (tu.tree_flatten, tu.tree_leaves_with_path):
            try:
                function(tree)
            except RecursionError:
                print("refused")
run()
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_depth_without_recursion_limit():
    """Even where Python's own limit is lifted, depth raises and does not overflow the stack."""
    result = subprocess.run(
        [sys.executable, "-c", DEEP_PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["refused"] * 12


def test_list_that_changes_while_flattened():
    items: list = []

    def to_iter(_):
        items.clear()
        return (1,), None

    kind = type("Clears", (), {})
    ftu.register_pytree_node(kind, to_iter, lambda aux, children: kind())
    items.extend([kind(), 2, 3])
    leaves, treedef = ftu.tree_flatten(items)
    assert leaves == [1]
    assert treedef.num_leaves == 1


def test_threads():
    tree = {"a": [1, (2, None)], "b": Node(Data(3, 4)), "c": {str(i): i for i in range(20)}}
    expected = ftu.tree_flatten(tree)
    wrong = []

    def work(seed):
        for i in range(200):
            kind = type(f"Thread{seed}_{i}", (), {})
            ftu.register_pytree_node(kind, lambda x: ((7,), None), lambda aux, c, kind=kind: kind())
            leaves, treedef = ftu.tree_flatten((tree, kind()))
            if leaves != [*expected[0], 7] or treedef.children()[0] != expected[1]:
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_treedef_in_a_cycle_is_collected():
    class Holder:
        pass

    holder = Holder()
    holder.treedef = ftu.tree_structure(Node(1, aux=holder))
    alive = weakref.ref(holder)
    del holder
    gc.collect()
    assert alive() is None


def test_leaves_are_released():
    class Leaf:
        pass

    leaf = Leaf()
    alive = weakref.ref(leaf)
    ftu.tree_map(lambda x: x, {"a": [leaf, (leaf,)], "b": Node(leaf)})
    with pytest.raises(Failure):
        ftu.tree_map(fail, [leaf, leaf])
    with pytest.raises(ValueError):
        ftu.tree_map(lambda *x: x, ([leaf], 1), ([leaf],))
    del leaf
    gc.collect()
    assert alive() is None


def test_surface():
    """Every public name of the three modules is there."""
    for ours, theirs in ((ftu, jtu), (ftree, jax.tree)):
        for name in vars(theirs):
            if not name.startswith("_") and name not in ("annotations",):
                assert hasattr(ours, name), name
