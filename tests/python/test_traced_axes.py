"""Axes and sizes that are traced arrays: errors of JAX's classes, which say what to do."""

import pytest
from oracle import FERRAX, attempt, same

CASES = {
    "flip": lambda S, x, a: S.jnp.flip(x, a),
    "concatenate": lambda S, x, a: S.jnp.concatenate([x, x], axis=a),
    "concat": lambda S, x, a: S.jnp.concat([x, x], axis=a),
    "stack": lambda S, x, a: S.jnp.stack([x, x], axis=a),
    "size": lambda S, x, a: S.jnp.size(x, a),
    "nanargmax": lambda S, x, a: S.jnp.nanargmax(x, a),
    "nanargmin": lambda S, x, a: S.jnp.nanargmin(x, a),
    "argmax": lambda S, x, a: S.jnp.argmax(x, a),
    "sum": lambda S, x, a: S.jnp.sum(x, a),
    "cumsum": lambda S, x, a: S.jnp.cumsum(x, a),
    "insert": lambda S, x, a: S.jnp.insert(x, 0, 1.0, axis=a),
    "delete": lambda S, x, a: S.jnp.delete(x, 0, axis=a),
    "take": lambda S, x, a: S.jnp.take(x, 0, axis=a),
    "take_along_axis": lambda S, x, a: S.jnp.take_along_axis(x, S.jnp.zeros((2, 3), int), a),
    "moveaxis": lambda S, x, a: S.jnp.moveaxis(x, a, 0),
    "swapaxes": lambda S, x, a: S.jnp.swapaxes(x, a, 0),
    "expand_dims": lambda S, x, a: S.jnp.expand_dims(x, a),
    "squeeze": lambda S, x, a: S.jnp.squeeze(x, a),
    "repeat": lambda S, x, a: S.jnp.repeat(x, 2, axis=a),
    "roll": lambda S, x, a: S.jnp.roll(x, 1, axis=a),
    "split": lambda S, x, a: S.jnp.split(x, 1, axis=a),
    "tril_indices": lambda S, x, a: S.jnp.tril_indices(a),
    "tril_indices k": lambda S, x, a: S.jnp.tril_indices(3, a),
    "triu_indices": lambda S, x, a: S.jnp.triu_indices(a),
    "triu_indices_from k": lambda S, x, a: S.jnp.triu_indices_from(x, a),
    "lax.cumsum": lambda S, x, a: S.lax.cumsum(x, a),
    "lax.cumprod": lambda S, x, a: S.lax.cumprod(x, a),
    "lax.cummax": lambda S, x, a: S.lax.cummax(x, a),
    "lax.cummin": lambda S, x, a: S.lax.cummin(x, a),
    "lax.cumlogsumexp": lambda S, x, a: S.lax.cumlogsumexp(x, a),
    "lax.broadcasted_iota": lambda S, x, a: S.lax.broadcasted_iota("int32", (2, 3), a),
    "lax.dynamic_slice_in_dim": lambda S, x, a: S.lax.dynamic_slice_in_dim(x, 0, 1, a),
    "lax.dynamic_index_in_dim": lambda S, x, a: S.lax.dynamic_index_in_dim(x, 0, a),
    "lax.dynamic_update_slice_in_dim": lambda S, x, a: S.lax.dynamic_update_slice_in_dim(x, x, 0, a),
    "lax.dynamic_update_index_in_dim": lambda S, x, a: S.lax.dynamic_update_index_in_dim(x, x, 0, a),
    "softmax": lambda S, x, a: S.jax.nn.softmax(x, a),
    "log_softmax": lambda S, x, a: S.jax.nn.log_softmax(x, a),
    "standardize": lambda S, x, a: S.jax.nn.standardize(x, a),
    "glu": lambda S, x, a: S.jax.nn.glu(x, a),
}


@pytest.mark.raises("ConcretizationTypeError", "TracerIntegerConversionError", "ValueError")
@pytest.mark.parametrize("name", CASES)
@same
def test_class(S, name):
    x = S.jnp.arange(6.0).reshape(2, 3)
    return S.jax.jit(lambda a: CASES[name](S, x, a))(1)


@pytest.mark.parametrize("name", ["flip", "lax.cumsum", "lax.dynamic_index_in_dim", "softmax", "tril_indices"])
def test_message_names_what_is_wrong(name):
    x = FERRAX.jnp.arange(6.0).reshape(2, 3)
    message = str(attempt(lambda S: S.jax.jit(lambda a: CASES[name](S, x, a))(1), FERRAX).error)
    assert name.removeprefix("lax.") in message
    assert "static" in message or "known while tracing" in message


def test_values_that_are_known_are_axes():
    jnp = FERRAX.jnp
    x, axis = jnp.arange(6.0).reshape(2, 3), jnp.int32(1)
    for name in ("flip", "lax.cumsum", "lax.dynamic_slice_in_dim", "insert", "softmax"):
        expected = CASES[name](FERRAX, x, 1)
        assert (CASES[name](FERRAX, x, axis) == expected).all(), name
