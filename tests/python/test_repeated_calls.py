"""Calls that are like the last one take a short way: it must come to the same as the long one."""

import collections
import warnings

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp

Point = collections.namedtuple("Point", "x y")
Other = collections.namedtuple("Other", "x y")


def total(tree):
    """What tells leaves in different places apart."""
    return sum((10.0**place * leaf for place, leaf in enumerate(ferrax.tree.leaves(tree))), 0.0)


A, B = np.float32(1), np.float32(2)
KEY = "a long key that is not interned " * 2

# Pairs of calls, in turn; the second of each is close to the first.
TREES = {
    "insertion order": ({"a": A, "b": B}, {"b": B, "a": A}),
    "swapped values": ({"a": A, "b": B}, {"a": B, "b": A}),
    "equal keys that are other objects": ({KEY: A, "b": B}, {"".join(list(KEY)): A, "b": B}),
    "another key": ({"a": A, "b": B}, {"a": A, "c": B}),
    "a key more": ({"a": A}, {"a": A, "b": B}),
    "a key less": ({"a": A, "b": B}, {"b": A}),
    "integer keys": ({1: A, 2: B}, {2: A, 1: B}),
    "a leaf for a container": ({"a": A}, {"a": [A]}),
    "a container for a leaf": ([A, (B, A)], [A, B]),
    "list and tuple": ([A, B], (A, B)),
    "lengths": ([A, B], [A, B, A]),
    "None and leaf": ([None, A], [B, A]),
    "leaf and None": ([B, A], [B, None]),
    "namedtuples": (Point(A, B), Other(A, B)),
    "namedtuple and tuple": (Point(A, B), (A, B)),
    "nested": ({"p": Point(A, [B, {"q": A}])}, {"p": Point(B, [A, {"q": B}])}),
    "ordered and plain dict": (collections.OrderedDict(b=A, a=B), {"b": A, "a": B}),
    "dict subclass": (collections.defaultdict(int, a=A), {"a": A}),
    "types": ({"a": A, "b": B}, {"a": 1, "b": 2.5}),
    "shapes": ({"a": np.ones(2), "b": B}, {"a": np.ones(3), "b": B}),
}


@pytest.mark.parametrize("case", TREES)
def test_alternating_trees(case):
    first, second = TREES[case]
    traces = []

    def fun(tree, /, **kwargs):
        traces.append(ferrax.tree.structure((tree, kwargs)))
        return {"total": total(tree) + total(kwargs), "tree": tree}

    jitted = ferrax.jit(fun)
    for tree in (first, second, first, first, second, second, first):
        result = jitted(tree)
        assert ferrax.tree.structure(result["tree"]) == ferrax.tree.structure(tree)
        np.testing.assert_array_equal(result["total"], total(tree))
        result = jitted(tree, extra=tree)
        np.testing.assert_array_equal(result["total"], total(tree) + total(tree))
    kinds = {
        (ferrax.tree.structure(tree), str([jnp.asarray(x).aval for x in ferrax.tree.leaves(tree)]))
        for tree in (first, second)
    }
    assert len(traces) == 2 * len(kinds)


def test_registered_classes_are_taken_apart_once_a_call():
    class Box:
        def __init__(self, value):
            self.value = value

    taken = []

    def children(box):
        taken.append(box)
        return (box.value,), None

    ferrax.tree_util.register_pytree_node(Box, children, lambda _, values: Box(*values))
    jitted = ferrax.jit(lambda box: box.value + 1)
    jitted(Box(1.0))
    taken.clear()
    assert float(jitted(Box(2.0))) == 3.0
    assert len(taken) == 1


def test_kwargs_come_and_go():
    jitted = ferrax.jit(lambda x, **kwargs: x + total(kwargs))
    for kwargs in ({}, {"a": 1.0}, {"a": 2.0}, {}, {"b": 1.0}, {"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}):
        assert float(jitted(1.0, **kwargs)) == 1.0 + total(kwargs)


def test_settings_and_cleared_caches_are_seen():
    jitted = ferrax.jit(lambda x: x + 1)
    x = np.float64(1)
    for wide in (False, False, True, True, False):
        with ferrax.enable_x64(wide):
            assert jitted(x).dtype == (np.float64 if wide else np.float32)
            assert (jnp.ones(2, int) + 1.5).dtype == (np.float64 if wide else np.float32)
    jitted.clear_cache()
    assert jitted._cache_size() == 0
    assert float(jitted(x)) == 2.0
    assert jitted._cache_size() == 1


def test_literals_and_arrays_of_equal_type_are_told_apart():
    x = jnp.arange(3, dtype=np.float32)
    half = jnp.asarray(0.5)
    for _ in range(3):
        for value in (1, 2, 1.5, np.float32(2), half, True, jnp.int32(3), 1 + 2j):
            plain = value if not isinstance(value, ferrax.Array) else value.item()
            np.testing.assert_array_equal(x + value, np.arange(3, dtype=np.float32) + plain)
            np.testing.assert_array_equal(value * x, np.arange(3, dtype=np.float32) * plain)
        assert (half + 1).weak_type
        assert not (x + half).weak_type
        assert not (half < 1).weak_type
        assert (x + (1 + 2j)).dtype == np.complex64
        assert (jnp.arange(3) / 2).dtype == np.float32


def test_rank_promotion_warns_each_time():
    x, y = jnp.ones((2, 3)), jnp.ones(3)
    x + y
    with ferrax.numpy_rank_promotion("warn"):
        for _ in range(3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                np.testing.assert_array_equal(x + y, np.full((2, 3), 2.0))
            assert len(caught) == 1
    with ferrax.numpy_rank_promotion("raise"):
        for _ in range(2):
            with pytest.raises(ValueError, match="rank_promotion"):
                x + y


def test_deleted_operands_raise_each_time():
    x, y = jnp.ones(3), jnp.ones(3)
    x + y
    y.delete()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="deleted"):
            x + y
        with pytest.raises(RuntimeError, match="deleted"):
            ferrax.jit(lambda x: x)(y)


def test_recording_after_eager_calls():
    x = jnp.ones(3)
    for _ in range(2):
        assert "add" in str(ferrax.make_jaxpr(lambda: x + x)())
        np.testing.assert_array_equal(x + x, np.full(3, 2.0))
        assert float(ferrax.grad(lambda a: (a + a).sum())(x)[0]) == 2.0
