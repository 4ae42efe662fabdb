"""Flax: a convolutional network by linen and by nnx, a recurrent one by lifted transformations, and states
through msgpack."""

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx, serialization
from flax.training import train_state
from report import done, report

rng = np.random.default_rng(0)
images = jnp.asarray(rng.normal(size=(12, 8, 8, 2)), jnp.float32)
labels = jnp.asarray(rng.integers(0, 3, 12))
optimizer = optax.sgd(0.05, momentum=0.9)


def flat(tree):
    return jax.flatten_util.ravel_pytree(tree)[0]


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(6, (3, 3), strides=2)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = nn.max_pool(x, (2, 2)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.2, deterministic=not train)(x)
        return nn.Dense(3)(x)


class State(train_state.TrainState):
    batch_stats: dict


model = Linen()
variables = jax.jit(model.init, static_argnums=2)(jax.random.key(0), images, False)
state = State.create(
    apply_fn=model.apply,
    params=variables["params"],
    tx=optimizer,
    batch_stats=variables["batch_stats"],
)


@jax.jit
def step(state, key):
    def loss(params):
        logits, new = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            images,
            True,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

    (value, new), gradient = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradient, batch_stats=new["batch_stats"]), value


losses = []
for number in range(8):
    state, value = step(state, jax.random.key(number))
    losses.append(value)
report("linen", losses)
assert losses[-1] < losses[0]
restored = serialization.from_bytes(state, serialization.to_bytes(state))
report("restored", flat(restored.params), atol=2e-6)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return x + nn.Dropout(0.3, deterministic=False)(nn.tanh(nn.Dense(4)(x))), None


class Layers(nn.Module):
    """Three layers that are one, scanned over their parameters, each made again for the derivative."""

    @nn.compact
    def __call__(self, x):
        layers = nn.scan(
            nn.remat(Layer),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            length=3,
        )
        x, _ = layers()(x, None)
        return nn.RNN(nn.LSTMCell(3))(x)


sequences = jnp.asarray(rng.normal(size=(2, 5, 4)), jnp.float32)
layers = Layers()
keys = {"params": jax.random.key(1), "dropout": jax.random.key(2)}


@jax.jit
def lifted(params):
    def loss(params):
        return jnp.sum(layers.apply(params, sequences, rngs={"dropout": keys["dropout"]}) ** 2)

    return jax.value_and_grad(loss)(params)


value, gradient = lifted(jax.jit(layers.init)(keys, sequences))
report("lifted", value)
report("lifted gradient", flat(gradient))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 6, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.BatchNorm(6, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(54, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2))
        return self.out(self.dropout(x.reshape(x.shape[0], -1)))


@nnx.jit
def train(network, optimizer):
    def loss(network):
        logits = network(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    value, gradient = nnx.value_and_grad(loss)(network)
    optimizer.update(network, gradient)
    return value


network = Nnx(nnx.Rngs(3))
optimizer = nnx.Optimizer(network, optimizer, wrt=nnx.Param)
losses = [train(network, optimizer) for _ in range(8)]
report("nnx", losses)
assert losses[-1] < losses[0]
graph, params, rest = nnx.split(network, nnx.Param, ...)
report("nnx names", sorted(map(str, nnx.to_flat_state(params).paths)))
network = nnx.merge(graph, params, rest)
network.eval()
report("nnx evaluation", nnx.jit(lambda network: network(images))(network), rtol=1e-4, atol=1e-5)


@nnx.split_rngs(splits=4)
@nnx.vmap
def several(rngs):
    return nnx.Linear(4, 2, rngs=rngs)


outputs = nnx.vmap(lambda layer, x: layer(x), in_axes=(0, None))(several(nnx.Rngs(4)), sequences)
report("several", outputs)
done()
