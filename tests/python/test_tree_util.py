"""Trees against JAX's: leaves, structures, key paths, maps, prefixes, errors, pickling."""

import collections
import copy
import operator
import pickle

import jax
import jax.tree_util as jtu
import pytest
from hypothesis import (
    given,
    settings,
    strategies as st,
)
from jax._src import tree_util as jtu_src
from tree_cases import (
    TREES,
    Data,
    Failure,
    Keyed,
    Node,
    Pair,
    Static,
    SubPair,
    Unhashable,
    fail,
)

import ferrax.tree as ftree
import ferrax.tree_util as ftu
from ferrax._core import default_registry
from ferrax._src.tree import tree_util as ftu_src


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


def test_transpose_of_a_container_that_knows_its_structure():
    def case(tu):
        @tu.register_pytree_node_class
        class Known:
            def __init__(self, content):
                self.content = content

            def tree_flatten(self):
                return tu.tree_flatten(self.content)

            @classmethod
            def tree_unflatten(cls, tree, leaves):
                return cls(tu.tree_unflatten(tree, leaves))

        outer, inner = tu.tree_structure(Known([1, 2])), tu.tree_structure((0, 0))
        return [x.content for x in tu.tree_transpose(outer, inner, Known([(1, 2), (3, 4)]))]

    assert case(ftu) == case(jtu) == [[1, 3], [2, 4]]


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


def test_surface():
    """Every public name of the three modules is there."""
    for ours, theirs in ((ftu, jtu), (ftree, jax.tree)):
        for name in vars(theirs):
            if not name.startswith("_") and name not in ("annotations",):
                assert hasattr(ours, name), name
