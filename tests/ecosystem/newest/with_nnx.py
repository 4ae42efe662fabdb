"""Flax NNX: attention with a cache, scanned blocks, a training step with metrics, control flow over modules, a rule of
one's own, bridges to linen, and variables that are values of hijax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import errors, nnx
from report import done, report

rng = np.random.default_rng(0)
tokens = jnp.asarray(rng.integers(0, 11, (4, 6)))
vector = jnp.asarray([1.0, -2.0, 0.5])
LOOSE = {"rtol": 5e-4, "atol": 2e-4}


class Block(nnx.Module):
    def __init__(self, width, *, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.dense = nnx.Linear(width, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x), mask=nnx.make_causal_mask(x[..., 0]), decode=False)
        return x + self.dropout(nnx.gelu(self.dense(x)))


class Count(nnx.Variable):
    pass


class Model(nnx.Module):
    """Three blocks that are scanned over, each made again for the derivative."""

    def __init__(self, *, rngs):
        self.embed = nnx.Embed(11, 8, rngs=rngs)

        @nnx.split_rngs(splits=3)
        @nnx.vmap(in_axes=0, out_axes=0)
        def blocks(rngs):
            return Block(8, rngs=rngs)

        self.blocks = blocks(rngs)
        self.head = nnx.Linear(8, 11, rngs=rngs)
        self.calls = Count(jnp.int32(0))

    def __call__(self, tokens):
        self.calls[...] += 1

        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        @nnx.remat
        def run(x, block):
            return block(x)

        return self.head(run(self.embed(tokens), self.blocks))


@nnx.jit
def step(model, optimizer, metrics, tokens):
    def loss(model):
        logits = model(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean(), logits

    (value, logits), gradient = nnx.value_and_grad(loss, has_aux=True)(model)
    metrics.update(loss=value, logits=logits, labels=tokens[:, 1:])
    optimizer.update(model, gradient)
    return value


model = Model(rngs=nnx.Rngs(0, dropout=1))
optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
losses = [step(model, optimizer, metrics, tokens) for _ in range(5)]
report("losses", losses, **LOOSE)
assert losses[-1] < losses[0]
report("metrics", list(metrics.compute().values()), **LOOSE)
fast = nnx.cached_partial(step, model, optimizer, metrics)
report("cached", [fast(tokens) for _ in range(2)], **LOOSE)
report("calls", model.calls[...])
_, params, _ = nnx.split(model, nnx.Param, ...)
report("paths", sorted("/".join(map(str, path)) for path, _ in nnx.to_flat_state(params)))
model.eval()
report("evaluated", nnx.jit(lambda model, tokens: model(tokens))(model, tokens), rtol=2e-3, atol=2e-3)

# Step by step with a cache of keys and values.
attention = nnx.MultiHeadAttention(2, 8, decode=True, rngs=nnx.Rngs(3))
sequence = jnp.asarray(rng.normal(size=(2, 4, 8)), jnp.float32)
attention.init_cache(sequence.shape)
decode = nnx.jit(lambda attention, x: attention(x))
report("decoded", [decode(attention, sequence[:, i : i + 1]) for i in range(4)], **LOOSE)
report("kept keys", attention.cached_key[...], **LOOSE)

linear = nnx.Linear(3, 3, rngs=nnx.Rngs(5))


@nnx.jit
def branch(linear, x):
    return nnx.cond(x.sum() > 0, lambda m, x: m(x), lambda m, x: -m(x), linear, x)


def body(carry):
    linear, x, number = carry
    linear.bias[...] += 0.1
    return linear, jnp.tanh(linear(x)), number + 1


report("branch", branch(linear, vector))
report("loop", nnx.while_loop(lambda carry: carry[2] < 4, body, (linear, vector, jnp.int32(0)))[1])
report("changed in a loop", linear.bias[...])
report("shape", str(nnx.eval_shape(lambda: nnx.Linear(2, 3, rngs=nnx.Rngs(0))).kernel.shape))


@nnx.custom_vjp
def sine(linear, x):
    return jnp.sin(linear(x)).sum()


def backward(residuals, cotangents):
    (of_linear, _), ct = cotangents
    return of_linear, 2 * ct * residuals


sine.defvjp(lambda linear, x: (sine(linear, x), x), backward)
report("rule of one's own", nnx.grad(sine, argnums=1)(linear, vector))
report("low rank", nnx.jit(lambda m, x: m(x))(nnx.LoRALinear(3, 3, lora_rank=2, rngs=nnx.Rngs(9)), vector))
report("of linen", nnx.bridge.ToNNX(nn.Dense(4), rngs=nnx.Rngs(1)).lazy_init(vector)(vector))
to_linen = nnx.bridge.to_linen(nnx.Linear, 3, 2)
report("to linen", to_linen.apply(to_linen.init(jax.random.key(0), vector), vector))

# Variables that are values of hijax: arguments of jax's own transformations.
with nnx.var_defaults(hijax=True, ref=False):
    variable = nnx.Param(jnp.arange(3.0))
    network = nnx.Sequential(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.tanh, nnx.Linear(4, 1, rngs=nnx.Rngs(1)))
report("hijax type", type(variable).__name__)
report("hijax argument", jax.jit(lambda v: 2 * v[...])(variable))
report("hijax result", jax.jit(lambda v: v)(variable)[...])
report("hijax gradient", jax.grad(lambda v: (v[...] ** 2).sum())(variable)[...])
report("hijax network", jax.jit(lambda network, x: network(x))(network, vector))
report("hijax branch", jax.lax.cond(vector[0] > 0, lambda v: v[...], lambda v: -v[...], variable))
report("hijax scan", jax.lax.scan(lambda x, _: (x + variable[...], None), vector, None, 3)[0])
try:
    jax.jit(lambda v: v.set_value(v[...] + 1))(variable)
except errors.ImmutableVariableError as error:
    report("hijax write", type(error).__name__)
variable[...] = 2 * variable[...]
report("hijax written", variable[...])
done()
