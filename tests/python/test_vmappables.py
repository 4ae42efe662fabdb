"""Types of a library's own that `vmap` maps over, beside JAX."""

import dataclasses
import importlib

import numpy as np
import pytest
from oracle import FERRAX, same

import ferrax


@dataclasses.dataclass
class Named:
    names: list
    data: object


@dataclasses.dataclass(frozen=True)
class Spec:
    name: str
    axis: int | None


def to_elt(cont, _, value, spec):
    names = [name for name in value.names if name != spec.name]
    return Named(names, cont(value.data, spec.axis))


def from_elt(cont, size, element, spec):
    data = cont(size, element.data, spec.axis)
    names = list(element.names)
    if spec.axis is not None:
        names.insert(spec.axis, spec.name)
    return Named(names, data)


@dataclasses.dataclass
class Counted:
    """An element knows its number."""

    data: object
    number: object = None


@dataclasses.dataclass(frozen=True)
class Counting:
    pass


def batching(S):
    return importlib.import_module(f"{S.name}.interpreters.batching")


def register(S):
    batching(S).register_vmappable(Named, Spec, int, to_elt, from_elt, None)
    batching(S).register_vmappable(
        Counted,
        Counting,
        int,
        lambda cont, get_idx, x, spec: Counted(cont(x.data, 0), get_idx()),
        lambda cont, size, x, spec: Counted(cont(size, x.data, 0)),
        None,
    )


@pytest.fixture(autouse=True)
def forget():
    yield
    batching(FERRAX).unregister_vmappable(Named)
    batching(FERRAX).unregister_vmappable(Counted)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
CASES = {
    "identity": lambda S, x: S.jax.vmap(
        lambda v: v, in_axes=Spec("i", 0), out_axes=Spec("j", 1), axis_size=2
    )(Named(["i", "k"], x)),
    "mapped with an array": lambda S, x: S.jax.vmap(
        lambda v, y: (Named(v.names, v.data * y), v.data.sum() + y),
        in_axes=(Spec("k", 1), 0),
        out_axes=(Spec("new", 0), 0),
        axis_size=3,
    )(Named(["i", "k"], x), x[0]),
    "out of an array": lambda S, x: S.jax.vmap(
        lambda y: Named(["k"], y * 2), out_axes=Spec("i", 0), axis_size=2
    )(x),
    "into an array": lambda S, x: S.jax.vmap(
        lambda v: v.data @ v.data, in_axes=Spec("i", 0), axis_size=2
    )(Named(["i", "k"], x)),
    "within jit": lambda S, x: S.jax.jit(
        lambda x: S.jax.vmap(
            lambda v: Named(v.names, S.jnp.sin(v.data)),
            in_axes=Spec("i", 0), out_axes=Spec("i", 0), axis_size=2,
        )(Named(["i", "k"], x)).data
    )(x),
    "numbers": lambda S, x: S.jax.vmap(
        lambda v: Counted(v.data * v.number), in_axes=Counting(), out_axes=Counting(), axis_size=2
    )(Counted(x)),
}  # fmt: skip


def shown(S, value):
    if isinstance(value, tuple):
        return tuple(shown(S, item) for item in value)
    if isinstance(value, Named):
        return value.names, value.data
    return value.data if isinstance(value, Counted) else value


@pytest.mark.parametrize("name", CASES)
@same
def test_mapping_over_types_of_ones_own(S, name):
    register(S)
    return shown(S, CASES[name](S, S.jnp.asarray(X)))


def test_other_values_are_mapped_as_ever():
    register(FERRAX)
    x = ferrax.numpy.asarray(X)
    np.testing.assert_array_equal(ferrax.vmap(lambda a, b: a + b, (0, None))(x, 1.0), X + 1)
    with pytest.raises(ValueError, match="at least one non-None"):
        ferrax.vmap(lambda v: v.data, in_axes=Spec("i", None))(Named([], x))
    batching(FERRAX).unregister_vmappable(Named)
    with pytest.raises(TypeError, match="must be an int, None"):
        ferrax.vmap(lambda v: v, in_axes=Spec("i", 0))
