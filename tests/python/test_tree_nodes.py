"""Node types of pytrees against JAX's: registration, dataclasses, `Partial`; depth, threads, lifetimes."""

import collections
import dataclasses
import functools
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from typing import Any

import jax.tree_util as jtu
import pytest
from jax._src import tree_util as jtu_src
from tree_cases import (
    Data,
    Dropping,
    Failure,
    Node,
    Pair,
    Static,
    TupleSubclass,
    Unhashable,
    fail,
)

import ferrax.tree as ftree
import ferrax.tree_util as ftu
from ferrax._core import default_registry, pytree
from ferrax._src.tree import tree_util as ftu_src


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
    "kind, data, meta, drop, error, message",
    [
        (Unregistered, ["a"], None, (), TypeError, "pass both of data_fields and meta_fields, or neither; got ['a'] and None"),
        (Node, None, None, (), TypeError, "fields of a class that is no dataclass have to be named"),
        (Unregistered, ["a"], [], (), ValueError, "Missing fields: {'b'}"),
        (Unregistered, ["a", "b"], ["b"], (), ValueError, "a field is either data or meta, but both name {'b'}"),
        (Unregistered, ["a", "b", "c"], [], (), ValueError, "Unexpected fields: {'c'}"),
        (Data, ["x", "y"], ["name"], (), ValueError, "Duplicate custom dataclass PyTreeDef type registration"),
    ],
)
def test_register_dataclass_errors(kind, data, meta, drop, error, message):
    with pytest.raises(error):
        jtu.register_dataclass(kind, data, meta, drop)
    with pytest.raises(error) as caught:
        ftu.register_dataclass(kind, data, meta, drop)
    assert message in str(caught.value)


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


def add(*args, **kw):
    return sum(args) + sum(kw.values())


def test_partial():
    partial = ftu.Partial(add, 1, k=2)
    assert partial(3) == 6
    assert isinstance(partial, functools.partial)
    # Python's repr of a partial has the module's name since 3.13.
    assert repr(partial).replace("ferrax.", "jax.", 1) == repr(jtu.Partial(add, 1, k=2))
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
