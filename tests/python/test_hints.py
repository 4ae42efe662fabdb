"""What programs say to the compiler: values and derivatives are those of the functions alone, and equations are JAX's."""

import jax
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental.control_deps import control_dep, schedule
from ferrax.experimental.fused import fused
from ferrax.experimental.scheduling_groups import scheduling_group, xla_metadata_call
from ferrax.experimental.shard_alike import shard_alike
from ferrax.experimental.xla_metadata import set_xla_metadata

X = jnp.linspace(0.1, 1.0, 4)


def _function(x, y=2.0):
    return {"a": jnp.sin(x) * y, "b": x + y}


WRAPPED = {
    "group": scheduling_group("first")(_function),
    "call": xla_metadata_call(inlineable="false", other="x")(_function),
    "closing over": lambda x, y=2.0: xla_metadata_call(lambda z: _function(z, y), a="b")(x),
    "jitted": xla_metadata_call(ferrax.jit(_function), a="b"),
    "value": lambda x, y=2.0: set_xla_metadata(_function(x, y), note=1),
    "context": set_xla_metadata(note=1)(_function),
    "context of jit": set_xla_metadata(note=1)(ferrax.jit(_function)),
    "alike": lambda x, y=2.0: dict(zip("ab", shard_alike(*_function(x, y).values()))),
    "fused": lambda x, y=2.0: fused(out_spaces=[ferrax.memory.Space.Device] * 2)(_function)(x, y),
    "scheduled": lambda x, y=2.0: (f := _function(x, y), schedule(list(f.values())))[0],
}


@pytest.mark.parametrize("name", WRAPPED)
def test_values_and_derivatives_are_those_of_the_function(name):
    f = WRAPPED[name]

    def loss(f):
        return lambda x, y: sum(v.sum() * k for k, v in enumerate(f(x, y=y).values(), 1))

    for transformed in (
        lambda f: f(X, y=3.0),
        lambda f: ferrax.jit(f)(X, y=3.0),
        lambda f: ferrax.vmap(lambda x: f(x, y=3.0))(X),
        lambda f: ferrax.vmap(lambda y: f(1.0, y=y), out_axes=-1)(X),
        lambda f: ferrax.grad(loss(f), argnums=(0, 1))(X, 3.0),
        lambda f: ferrax.jit(ferrax.grad(loss(f)))(X, 3.0),
        lambda f: ferrax.jvp(lambda x: f(x, y=3.0), (X,), (X,)),
        lambda f: ferrax.hessian(loss(f))(0.5, 3.0),
        lambda f: ferrax.grad(loss(ferrax.checkpoint(f)))(X, 3.0),
    ):
        ours, plain = transformed(f), transformed(_function)
        assert ferrax.tree.structure(ours) == ferrax.tree.structure(plain)
        for one, other in zip(ferrax.tree.leaves(ours), ferrax.tree.leaves(plain)):
            assert ferrax.typeof(one) == ferrax.typeof(other)
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_equations_are_those_of_jax():
    from jax.experimental import scheduling_groups, shard_alike as alike, xla_metadata  # the oracle

    def shown(module, shard_alike, call, metadata):
        def f(x, y):
            x, y = shard_alike(x, y)
            x = metadata(x, b=2, a="1")
            return call(lambda z: z * y, inlineable="false")(x)

        eqns = module.make_jaxpr(f)(1.0, 2.0).eqns
        return [(e.primitive.name, {k: v for k, v in e.params.items() if k != "jaxpr"}) for e in eqns]

    ours = shown(ferrax, shard_alike, xla_metadata_call, set_xla_metadata)
    theirs = shown(jax, alike.shard_alike, scheduling_groups.xla_metadata_call, xla_metadata.set_xla_metadata)
    assert ours == theirs


def test_contexts_are_in_the_names_of_scopes():
    def f(x):
        with set_xla_metadata(a=1, b=2):
            x = x + 1
            with set_xla_metadata(a=None, c=3):
                x = x * 2
        return x - 1

    names = [str(eqn.source_info.name_stack) for eqn in ferrax.make_jaxpr(f)(1.0).eqns]
    assert names == ["xla_metadata(a=1, b=2)", "xla_metadata(a=1, b=2)/xla_metadata(b=2, c=3)", ""]
    jitted = set_xla_metadata(a=1)(ferrax.jit(f))
    assert jitted.lower(1.0).compile()(1.0) == 3.0


def test_memories_of_fused_results():
    spaces = ferrax.memory.Space.Host, ferrax.memory.Space.Device
    host, device = fused(out_spaces=spaces)(lambda x: (x, x * 2))(X)
    assert (host.sharding.memory_kind, device.sharding.memory_kind) == ("pinned_host", "device")


def test_shardings_of_both():
    mesh = ferrax.make_mesh((1,), ("x",), axis_types=(ferrax.sharding.AxisType.Auto,))
    rows = ferrax.NamedSharding(mesh, ferrax.P("x"))
    x = ferrax.device_put(X, rows)
    for f in (shard_alike, ferrax.jit(shard_alike)):
        assert [v.sharding for v in f(x, jnp.arange(4))] == [rows, rows]


def test_what_is_refused():
    with pytest.raises(ValueError, match="structure"):
        shard_alike((X, X), X)
    with pytest.raises(ValueError, match="shape"):
        shard_alike(X, X[:2])
    with pytest.raises(NotImplementedError, match="strings"):
        xla_metadata_call(_function, number=3)
    with pytest.raises(TypeError, match="out_spaces"):
        fused(out_spaces=["host"])
    with pytest.raises(ValueError, match="2 arrays for 1"):
        fused(out_spaces=[ferrax.memory.Space.Host])(_function)(X)
    with pytest.raises(TypeError):
        control_dep("a", X)
    assert control_dep(X, 1.0) == ()
