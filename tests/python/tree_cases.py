"""Trees for the tests of pytrees: node types registered with both libraries, and a table of trees."""

import collections
import dataclasses
from typing import Any, NamedTuple

import jax.tree_util as jtu

import ferrax.tree_util as ftu


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


class Unhashable:
    __hash__ = None

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Unhashable) and self.value == other.value


class Failure(Exception):
    pass


def fail(*_):
    raise Failure
