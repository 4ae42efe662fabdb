"""Haiku: a convolutional network with batch norm and dropout trained by Optax, a recurrent one, and
attention."""

import haiku as hk
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from report import done, report


class Block(hk.Module):
    def __call__(self, x, is_training):
        # A bias before batch norm has a gradient of zero but for rounding, of which Adam makes a step.
        x = hk.Conv2D(6, 3, stride=2, with_bias=False)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, is_training)
        return jax.nn.relu(x)


def network(x, is_training):
    x = Block()(x, is_training)
    x = hk.MaxPool(2, 1, "SAME")(x)
    x = hk.Flatten()(x)
    x = hk.dropout(hk.next_rng_key(), 0.2, x) if is_training else x
    return hk.nets.MLP([16, 3])(x)


rng = np.random.default_rng(0)
images = jnp.asarray(rng.normal(size=(12, 8, 8, 2)), jnp.float32)
labels = jnp.asarray(rng.integers(0, 3, 12))
model = hk.transform_with_state(network)
params, state = model.init(jax.random.PRNGKey(0), images, True)
report(
    "names", sorted(f"{module}/{name}" for module, name, _ in hk.data_structures.traverse(params))
)
optimizer = optax.adam(3e-3)
opt_state = optimizer.init(params)


@jax.jit
def step(params, state, opt_state, key):
    def loss(params):
        logits, new = model.apply(params, state, key, images, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

    (value, state), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), state, opt_state, value


losses = []
keys = hk.PRNGSequence(1)
for _ in range(12):
    params, state, opt_state, value = step(params, state, opt_state, next(keys))
    losses.append(value)
report("convolutional", losses)
assert losses[-1] < losses[0]
report("evaluation", model.apply(params, state, None, images, False)[0], atol=1e-5)


def recurrent(sequence):
    core = hk.DeepRNN([hk.Linear(4), hk.LSTM(5), jnp.tanh, hk.GRU(3)])
    outputs, _ = hk.dynamic_unroll(core, sequence, core.initial_state(2))
    return hk.LayerNorm(-1, True, True)(outputs)


sequence = jnp.asarray(rng.normal(size=(7, 2, 4)), jnp.float32)
recurrence = hk.without_apply_rng(hk.transform(recurrent))
params = recurrence.init(jax.random.PRNGKey(2), sequence)
report("recurrent", jax.jit(recurrence.apply)(params, sequence), atol=1e-5)
gradient = jax.grad(lambda p: jnp.sum(recurrence.apply(p, sequence) ** 3))(params)
# Sums of terms up to 200, which cancel.
report("gradient", jax.flatten_util.ravel_pytree(gradient)[0], atol=2e-3)


def attention(x):
    mask = jnp.tril(jnp.ones((1, 1, 7, 7)))
    attend = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(1.0))
    return hk.vmap(lambda x: attend(x, x, x, mask=mask[0]), split_rng=False)(x)


attend = hk.without_apply_rng(hk.transform(attention))
batch = jnp.swapaxes(sequence, 0, 1)
report(
    "attention",
    attend.apply(attend.init(jax.random.PRNGKey(3), batch), batch),
    atol=1e-5,
)
done()
