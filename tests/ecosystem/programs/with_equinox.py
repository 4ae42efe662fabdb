"""Equinox: a model with dropout and batch norm trained by filtered transformations, derivative rules by its
decorators, and its loops with checkpoints around a differential equation."""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from report import done, report

rng = np.random.default_rng(0)
images = jnp.asarray(rng.normal(size=(12, 2, 8, 8)), jnp.float32)
labels = jnp.asarray(rng.integers(0, 3, 12))


class Network(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    out: eqx.nn.MLP

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(2, 6, 3, stride=2, key=first)
        self.norm = eqx.nn.BatchNorm(6, axis_name="batch", mode="batch")
        self.dropout = eqx.nn.Dropout(0.2)
        self.out = eqx.nn.MLP(54, 3, 8, 1, key=second)

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.conv(x), state)
        return self.out(self.dropout(jnp.ravel(jax.nn.relu(x)), key=key)), state


network, state = eqx.nn.make_with_state(Network)(jax.random.key(0))
optimizer = optax.sgd(0.05, momentum=0.9)
opt_state = optimizer.init(eqx.filter(network, eqx.is_inexact_array))


@eqx.filter_jit
def step(network, state, opt_state, key):
    @eqx.filter_value_and_grad(has_aux=True)
    def loss(network):
        run = jax.vmap(network, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
        logits, new = run(images, state, jax.random.split(key, len(images)))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

    (value, new), gradient = loss(network)
    updates, opt_state = optimizer.update(gradient, opt_state)
    return eqx.apply_updates(network, updates), new, opt_state, value


losses = []
for number in range(8):
    network, state, opt_state, value = step(network, state, opt_state, jax.random.key(number))
    losses.append(value)
report("training", losses)
assert losses[-1] < losses[0]
inference = eqx.nn.inference_mode(network)
evaluate = jax.vmap(inference, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
report("evaluation", eqx.filter_jit(evaluate)(images, state)[0], rtol=1e-4, atol=1e-5)

doubled = eqx.tree_at(lambda n: n.conv.weight, network, replace_fn=lambda w: 2 * w)
report("model", eqx.tree_pformat(doubled.conv))
report("structure", sorted(map(str, [leaf.shape for leaf in jax.tree.leaves(network.out) if eqx.is_array(leaf)])))


@eqx.filter_custom_vjp
def clipped(x, *, limit):
    return x["value"] * 2


@clipped.def_fwd
def forward(perturbed, x, *, limit):
    return clipped(x, limit=limit), None


@clipped.def_bwd
def backward(residuals, cotangent, perturbed, x, *, limit):
    return {"value": jnp.clip(2 * cotangent, -limit, limit), "unit": None}


points = jnp.asarray(rng.normal(size=4), jnp.float32)
rule = jax.grad(lambda x: jnp.sum(clipped({"value": x, "unit": "m"}, limit=3.0) * points))
report("own rule", rule(points))


def decay(rate, start):
    """y' = -rate y³ by steps of the midpoint rule that grow and shrink with the error."""

    def step(carry):
        t, y, h = carry
        slope = -rate * y**3
        middle = -rate * (y + 0.5 * h * slope) ** 3
        size = jnp.where(jnp.max(jnp.abs(h * (middle - slope))) < 1e-2, 1.25, 0.5) * h
        return t + h, y + h * middle, jnp.minimum(size, jnp.maximum(1 - t - h, 1e-6))

    begin = jnp.zeros(()), start, jnp.full((), 0.1)
    _, end, _ = eqxi.while_loop(
        lambda carry: carry[0] < 1, step, begin, max_steps=128, kind="checkpointed"
    )
    return jnp.sum(end**2)


starts = jnp.abs(points) + 0.5
value, gradient = eqx.filter_jit(jax.value_and_grad(decay, (0, 1)))(2.0, starts)
report("decay", value)
report("decay gradient", jnp.concatenate([gradient[0][None], gradient[1]]))
report("decay lanes", jax.vmap(jax.grad(decay), (0, None))(jnp.array([0.5, 2.0]), starts))


@eqx.filter_jit
def positive(x):
    return jnp.sqrt(eqx.error_if(x, jnp.any(x < 0), "x is negative"))


report("checked", positive(starts))
try:
    positive(-starts)
except Exception as error:
    report("error", [type(error).__name__, str("x is negative" in str(error))])
report("noinline", jax.jit(jax.grad(lambda x: jnp.sum(eqxi.noinline(jnp.sin)(x))))(points))
done()
