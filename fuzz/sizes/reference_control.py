"""Loops, branches, batches and random numbers over bounded values."""

import math
from types import SimpleNamespace

import numpy as np

from .bounds import Bounded, Setting, rounded
from .reference_elementwise import less
from .reference_moves import joined


def leaves(tree):
    return [leaf for branch in tree for leaf in leaves(branch)] if isinstance(tree, (tuple, list)) else [tree]


def mapped(function, tree):
    if isinstance(tree, (tuple, list)):
        return tuple(mapped(function, branch) for branch in tree)
    return function(tree)


def stacked(trees):
    """Trees of the same form as one of arrays with an axis more."""
    if isinstance(trees[0], (tuple, list)):
        return tuple(stacked([tree[place] for tree in trees]) for place in range(len(trees[0])))
    if trees[0] is None:
        return None
    return joined(np.stack)([one if isinstance(one, Bounded) else Bounded(one, 0.0, "int32") for one in trees], 0)


def counter(number):
    return Bounded(np.int32(number), 0.0, "int32")


def fori_loop(first, end, body, carry):
    for i in range(int(first), int(end)):
        carry = body(counter(i), carry)
    return carry


def while_loop(condition, body, carry):
    carry = mapped(lambda leaf: leaf if isinstance(leaf, Bounded) else counter(leaf), carry)
    while condition(carry):
        carry = body(carry)
    return carry


def scan(body, carry, xs, reverse=False, unroll=1):
    steps = range(leaves(xs)[0].shape[0])
    results = []
    for i in reversed(steps) if reverse else steps:
        carry, result = body(carry, mapped(lambda leaf, i=i: leaf[i], xs))
        results.append(result)
    return carry, stacked(results[::-1] if reverse else results)


def map_(function, xs):
    return stacked([function(mapped(lambda leaf, i=i: leaf[i], xs)) for i in range(leaves(xs)[0].shape[0])])


def vmap(function):
    return lambda *xs: stacked([function(*(x[i] for x in xs)) for i in range(xs[0].shape[0])])


def cond(predicate, true, false, *operands):
    return (true if predicate else false)(*operands)


def switch(index, branches, *operands):
    return branches[min(max(int(index), 0), len(branches) - 1)](*operands)


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def bits(key: int, shape) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 of each element's position: two words.

    J. K. Salmon and others, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
    """
    position = np.arange(math.prod(shape), dtype=np.uint64)
    keys = [np.uint32(0), np.uint32(key), np.uint32(0x1BD11BDA ^ key)]
    with np.errstate(over="ignore"):
        a, b = (position >> np.uint64(32)).astype(np.uint32) + keys[0], position.astype(np.uint32) + keys[1]
        for group in range(5):
            for turn in ROTATIONS[group % 2]:
                a = a + b
                b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
            a, b = a + keys[(group + 1) % 3], b + keys[(group + 2) % 3] + np.uint32(group + 1)
    return a.reshape(shape), b.reshape(shape)


def uniform(key, shape, dtype):
    """The first bits are those of a number from 1 to 2: 23 of both words folded into one in 32 bits, 52 in 64."""
    high, low = bits(key, shape)
    if dtype == "float64":
        words = (high.astype(np.uint64) << np.uint64(32) | low) >> np.uint64(12) | np.uint64(0x3FF << 52)
        return Bounded(words.view(np.float64) - 1, 0.0, dtype)
    words = (high ^ low) >> np.uint32(9) | np.uint32(0x3F800000)
    return Bounded((words.view(np.float32) - np.float32(1)).astype(float), 0.0, dtype)


def bernoulli(key, p, shape):
    dtype = "float64" if Setting.x64 else "float32"
    return less(uniform(key, shape, dtype), rounded(np.float64(np.dtype(dtype).type(p)), 0.0, dtype, 0.0))


RANDOM = SimpleNamespace(key=lambda seed: seed, uniform=uniform, bernoulli=bernoulli)
LAX = {"fori_loop": fori_loop, "while_loop": while_loop, "scan": scan, "map": map_, "cond": cond, "switch": switch}
JAX = {"vmap": vmap, "jit": lambda function: function, "checkpoint": lambda function: function, "random": RANDOM}
