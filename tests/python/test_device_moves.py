"""`device_put` of values that transformations trace: where results, tangents and cotangents are then."""

import numpy as np
from oracle import same

import ferrax
import ferrax.numpy as jnp


def where(x):
    devices = sorted(device.id for device in x.devices())
    return devices if len(devices) == 1 else str(x.sharding.spec)


def put(S, number):
    return lambda x: S.jax.device_put(x, S.jax.devices()[number])


def arguments(S):
    """Arrays on the first device and another, by request, and on the default one."""
    x = np.arange(1, 4, dtype=np.float32)
    return [put(S, 0)(x), put(S, 2)(x), S.jnp.asarray(x)]


def functions(S):
    return [
        put(S, 1),
        lambda x: put(S, 1)(3 * x) ** 2,
        lambda x: put(S, 3)(put(S, 1)(x) ** 2) * put(S, 3)(x),
        lambda x: S.jax.jit(lambda y: put(S, 3)(y) * 2)(put(S, 1)(x)),
    ]


@same
def test_reverse_derivatives(S):
    """A cotangent goes back to where the value came from."""
    made = []
    for x in arguments(S):
        for f in functions(S):
            y, pull = S.jax.vjp(f, x)
            (slope,) = pull(S.jnp.ones_like(y))
            made.append((where(y), where(slope), slope.committed, np.asarray(slope)))
            value, slope = S.jax.value_and_grad(lambda x, f=f: f(x).sum())(x)
            made.append((where(value), value.committed, where(slope), slope.committed))
    return made


@same
def test_forward_derivatives_and_batches(S):
    made = []
    for x in arguments(S):
        for f in functions(S):
            made += S.jax.jvp(f, (x,), (x,))
            made.append(S.jax.linearize(f, x)[1](x))
            made.append(S.jax.vmap(f)(S.jnp.stack([x, 2 * x])))
            made.append(S.jax.jvp(S.jax.grad(lambda x, f=f: (f(x) ** 3).sum()), (x,), (x,))[1])
    return [(where(x), np.asarray(x)) for x in made]


@same
def test_compiled_functions_run_where_their_arguments_are(S):
    made = []
    for x in arguments(S):
        for f in functions(S):
            made += [S.jax.jit(f)(x), S.jax.jit(S.jax.grad(lambda x, f=f: (f(x) ** 2).sum()))(x)]
    return [(where(x), np.asarray(x)) for x in made]


@same
def test_meshes(S):
    mesh = S.jax.make_mesh((4,), ("x",), axis_types=(S.jax.sharding.AxisType.Auto,))
    cut, whole = (S.jax.NamedSharding(mesh, S.jax.P(*spec)) for spec in (("x",), ()))
    made = []
    for x in (S.jax.device_put(np.arange(8, dtype=np.float32), cut), S.jnp.arange(8.0)):
        for place in (whole, cut):

            def f(x, place=place):
                return (S.jax.device_put(2 * x, place) ** 2).sum()

            made.append(S.jax.grad(f)(x))
            made.append(S.jax.linear_transpose(lambda x, place=place: S.jax.device_put(2 * x, place), x)(x)[0])
    return [np.asarray(x) for x in made], [where(x) for x in made[:4:2]]


def test_a_batch_of_arrays_over_a_mesh():
    """Elements are divided as each was to be, and all devices have their part of each."""
    mesh = ferrax.make_mesh((4,), ("x",), axis_types=(ferrax.sharding.AxisType.Auto,))
    cut = ferrax.NamedSharding(mesh, ferrax.P("x"))
    for axis, spec in ((0, (None, "x")), (1, ("x",))):
        batch = ferrax.vmap(lambda x: ferrax.device_put(2 * x, cut), axis, axis)(jnp.ones((8, 8)))
        assert batch.sharding.is_equivalent_to(ferrax.NamedSharding(mesh, ferrax.P(*spec)), 2)


def layers(x, weights, devices):
    for weight, device in zip(weights, devices, strict=True):
        x = ferrax.jit(lambda w, x: jnp.tanh(x @ w))(weight, ferrax.device_put(x, device))
    return (x**2).sum()


def test_layers_on_devices_of_their_own():
    """Each layer's parameters stay on its device, and so do their gradients, also in a batch of them."""
    devices = ferrax.devices()[1:4]
    x = jnp.arange(6.0).reshape(2, 3) / 6
    weights = [jnp.cos(jnp.arange(9.0) + n).reshape(3, 3) for n in range(3)]
    there = [ferrax.device_put(weight, device) for weight, device in zip(weights, devices)]
    wanted = ferrax.grad(layers, argnums=(0, 1))(x, weights, [None] * 3)

    def slopes(x):
        return ferrax.grad(lambda x, weights: layers(x, weights, devices), argnums=(0, 1))(x, there)

    of_x, of_weights = slopes(x)
    assert of_x.devices() == {ferrax.devices()[0]}
    assert [slope.devices() for slope in of_weights] == [{device} for device in devices]
    for got, want in zip([of_x, *of_weights], [wanted[0], *wanted[1]]):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)
    batch = ferrax.vmap(slopes)(jnp.stack([x, x]))
    assert [slope.devices() for slope in batch[1]] == [{device} for device in devices]
    np.testing.assert_allclose(np.asarray(batch[0][1]), np.asarray(wanted[0]), rtol=1e-5)


def test_it_is_an_equation():
    """Of a jaxpr, by the primitive's name; compiled it is nothing."""
    jaxpr = ferrax.make_jaxpr(put_second)(1.0)
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == ["device_put"]
    assert ferrax.lax.device_put_p is jaxpr.eqns[0].primitive
    (found,) = ferrax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, jnp.float32(2))
    assert found == 2


def put_second(x):
    return ferrax.device_put(x, ferrax.devices()[1])
