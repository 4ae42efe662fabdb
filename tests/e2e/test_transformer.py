"""A transformer block (Vaswani et al., 2017; layer norm first): causal attention over heads by
`vmap`, gelu, residuals; its gradient, jitted and over a batch, beside JAX's.
"""

import jax
import numpy as np
import pytest

import ferrax
from ferrax import export

BATCH, LENGTH, WIDTH, HEADS = 3, 7, 16, 4


def arrays():
    """Inputs f32[BATCH, LENGTH, WIDTH] and the block's parameters, the same for both libraries."""
    rng = np.random.default_rng(5)

    def draw(*shape, scale=0.3):
        return (scale * rng.normal(size=shape)).astype(np.float32)

    parameters = {
        "attention": {
            **{name: draw(HEADS, WIDTH, WIDTH // HEADS) for name in ("query", "key", "value")},
            "out": draw(HEADS, WIDTH // HEADS, WIDTH),
        },
        "feed_forward": [
            {"weights": draw(WIDTH, 4 * WIDTH), "bias": draw(4 * WIDTH)},
            {"weights": draw(4 * WIDTH, WIDTH), "bias": draw(WIDTH)},
        ],
        "norms": [(1 + draw(WIDTH), draw(WIDTH)), (1 + draw(WIDTH), draw(WIDTH))],
    }
    return parameters, draw(BATCH, LENGTH, WIDTH, scale=1.0)


def program(jax):
    """`(block, loss)` on one library; `block` takes one sequence."""
    jnp = jax.numpy

    def layer_norm(x, gain, offset):
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * gain + offset

    def head(x, query, key, value, out):
        scores = jnp.einsum("qd,kd->qk", x @ query, x @ key) / np.sqrt(WIDTH // HEADS)
        mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
        return weights @ (x @ value) @ out

    def block(parameters, x):
        attention = parameters["attention"]
        heads = jax.vmap(head, in_axes=(None, 0, 0, 0, 0))(
            layer_norm(x, *parameters["norms"][0]),
            *(attention[name] for name in ("query", "key", "value", "out")),
        )
        x = x + heads.sum(axis=0)
        first, second = parameters["feed_forward"]
        hidden = jax.nn.gelu(
            layer_norm(x, *parameters["norms"][1]) @ first["weights"] + first["bias"]
        )
        return x + hidden @ second["weights"] + second["bias"]

    def loss(parameters, batch):
        return jnp.mean(jnp.square(jax.vmap(block, in_axes=(None, 0))(parameters, batch)))

    return block, loss


def leaves(library, tree):
    return [np.asarray(leaf) for leaf in library.tree.leaves(tree)]


def close(ours, theirs, tolerance=2e-5):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_the_block_is_jaxs(jitted):
    def outputs(library):
        block, _ = program(library)
        batched = library.vmap(block, in_axes=(None, 0))
        return leaves(library, (library.jit(batched) if jitted else batched)(*arrays()))

    close(outputs(ferrax), outputs(jax))


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_the_gradients_are_jaxs(jitted):
    def gradients(library):
        derivative = library.value_and_grad(program(library)[1], argnums=(0, 1))
        return leaves(library, (library.jit(derivative) if jitted else derivative)(*arrays()))

    close(gradients(ferrax), gradients(jax))


def test_gradients_of_each_sequence():
    """vmap of grad gives what a loop over the batch gives; their mean is the batch's gradient."""
    parameters, batch = arrays()
    block, loss = program(ferrax)

    def single(parameters, x):
        return ferrax.numpy.mean(ferrax.numpy.square(block(parameters, x)))

    each = ferrax.jit(ferrax.vmap(ferrax.grad(single), in_axes=(None, 0)))(parameters, batch)
    loop = [leaves(ferrax, ferrax.grad(single)(parameters, x)) for x in batch]
    close(leaves(ferrax, each), [np.stack(rows) for rows in zip(*loop)])
    whole = leaves(ferrax, ferrax.grad(loss)(parameters, batch))
    close([leaf.mean(axis=0) for leaf in leaves(ferrax, each)], whole)


def test_no_position_sees_a_later_one():
    """The Jacobian of the outputs in the inputs is lower triangular in the positions."""
    parameters, batch = arrays()
    block, _ = program(ferrax)
    jacobian = np.asarray(ferrax.jit(ferrax.jacrev(block, argnums=1))(parameters, batch[0]))
    influence = np.abs(jacobian).max(axis=(1, 3))
    assert np.all(influence[np.triu_indices(LENGTH, 1)] == 0)
    assert np.all(influence[np.tril_indices(LENGTH)] > 0)


def test_forward_and_gradient_are_saved(tmp_path):
    block, loss = program(ferrax)
    forward = ferrax.jit(ferrax.vmap(block, in_axes=(None, 0)))
    gradient = ferrax.jit(ferrax.value_and_grad(loss))
    for name, function in (("forward", forward), ("gradient", gradient)):
        path = tmp_path / f"{name}.ferrax"
        export.save(path, export.export(function)(*arrays()))
        found, expected = export.load(path).call(*arrays()), function(*arrays())
        assert ferrax.tree.structure(found) == ferrax.tree.structure(expected)
        close(leaves(ferrax, found), leaves(ferrax, expected), tolerance=0)
