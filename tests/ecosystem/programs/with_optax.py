"""Optax: a network is trained by AdamW under a schedule; other optimizers take steps on a quadratic."""

import jax
import jax.numpy as jnp
import optax
from report import done, report

angles = jnp.linspace(0, 6, 64)
spirals = jnp.stack([angles * jnp.cos(angles), angles * jnp.sin(angles)], axis=1) / 6
# Not each other's mirror image: gradients of the biases would be near zero, and Adam makes a step of each
# gradient, however small, so that rounding would decide.
points = jnp.concatenate([spirals, 0.2 - 0.7 * spirals])
labels = jnp.repeat(jnp.arange(2), 64)


def init(key, sizes=(2, 16, 2)):
    keys = jax.random.split(key, len(sizes) - 1)
    init_weights = jax.nn.initializers.glorot_normal()
    return [
        {"w": init_weights(key, (n, m)), "b": jnp.zeros(m)}
        for key, n, m in zip(keys, sizes, sizes[1:])
    ]


def loss(params, points, labels):
    h = jnp.tanh(points @ params[0]["w"] + params[0]["b"])
    logits = h @ params[1]["w"] + params[1]["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


schedule = optax.warmup_cosine_decay_schedule(0.0, 0.05, 5, 40)
optimizer = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(schedule, weight_decay=1e-3, mask=lambda p: jax.tree.map(lambda x: x.ndim == 2, p)),
)
params = init(jax.random.key(0))
state = optimizer.init(params)


@jax.jit
def step(params, state):
    value, gradient = jax.value_and_grad(loss)(params, points, labels)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value


losses = []
for _ in range(40):
    params, state, value = step(params, state)
    losses.append(value)
report("training", losses)
assert losses[-1] < losses[0]

start = jnp.array([1.0, -2.0, 0.5])
matrix = jnp.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 0.5]])


def quadratic(x):
    return 0.5 * x @ matrix @ x


OPTIMIZERS = {
    "sgd": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adafactor": optax.adafactor(0.05),
    "lion": optax.lion(0.05),
    "rmsprop": optax.rmsprop(0.02),
    "lookahead": optax.adabelief(0.1),
    "noisy": optax.noisy_sgd(0.1, seed=3),
    "multi": optax.MultiSteps(optax.adam(0.1), every_k_schedule=2),
}
for name, optimizer in OPTIMIZERS.items():

    def run(optimizer, x):
        def body(carry, _):
            x, state = carry
            updates, state = optimizer.update(jax.grad(quadratic)(x), state, x)
            return (optax.apply_updates(x, updates), state), quadratic(x)

        return jax.lax.scan(body, (x, optimizer.init(x)), None, length=10)

    (x, _), values = jax.jit(run, static_argnums=0)(optimizer, start)
    report(name, jnp.concatenate([x, values]))

solver = optax.lbfgs()
x, state = start, solver.init(start)
value_and_grad = optax.value_and_grad_from_state(quadratic)
for _ in range(6):
    value, gradient = value_and_grad(x, state=state)
    updates, state = solver.update(
        gradient, state, x, value=value, grad=gradient, value_fn=quadratic
    )
    x = optax.apply_updates(x, updates)
# Near the minimum, where values differ by less than their last place.
report("lbfgs", x, atol=1e-6)
report("projection", optax.projections.projection_simplex(start))
done()
