"""A variational autoencoder of handwritten digits (Kingma & Welling, Auto-Encoding Variational Bayes,
2014): images of 8 x 8 pixels, a latent space of two dimensions, and a picture of what lies where in it.
"""

import numpy as np
from common import adam, apply_dense, check, dense, options, pyplot, save
from sklearn.datasets import load_digits
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp

LATENT, HIDDEN, BATCH = 2, 128, 128


def initial_parameters(key):
    keys = jax.random.split(key, 4)
    return {
        "inward": dense(keys[0], 64, HIDDEN),
        "moments": dense(keys[1], HIDDEN, 2 * LATENT),
        "outward": dense(keys[2], LATENT, HIDDEN),
        "pixels": dense(keys[3], HIDDEN, 64),
    }


def encode(parameters, images):
    """Mean and logarithm of the deviation of the latent variables, each [B, LATENT]."""
    hidden = jax.nn.silu(apply_dense(parameters["inward"], images))
    return jnp.split(apply_dense(parameters["moments"], hidden), 2, axis=-1)


def decode(parameters, latent):
    """Logits of the pixels: [B, 64]."""
    return apply_dense(parameters["pixels"], jax.nn.silu(apply_dense(parameters["outward"], latent)))


def loss(parameters, images, key):
    """Minus the evidence lower bound, in nats an image."""
    mean, log_deviation = encode(parameters, images)
    latent = mean + jnp.exp(log_deviation) * jax.random.normal(key, mean.shape)
    scores = decode(parameters, latent)
    likelihood = jnp.sum(images * scores - jax.nn.softplus(scores), axis=-1)
    divergence = 0.5 * jnp.sum(
        mean**2 + jnp.exp(2 * log_deviation) - 1 - 2 * log_deviation, axis=-1
    )
    return jnp.mean(divergence - likelihood)


def draw_space(parameters, images, labels):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5))
    mean, _ = encode(parameters, images)
    points = left.scatter(*np.asarray(mean).T, c=labels, s=6, cmap="tab10")
    figure.colorbar(points, ax=left)
    left.set(title="where the digits lie", xlabel="first latent", ylabel="second latent")
    grid = jnp.linspace(-2, 2, 12)
    latent = jnp.stack(jnp.meshgrid(grid, -grid), axis=-1).reshape(-1, 2)
    tiles = jax.nn.sigmoid(decode(parameters, latent)).reshape(12, 12, 8, 8)
    right.imshow(tiles.transpose(0, 2, 1, 3).reshape(96, 96), cmap="gray", extent=(-2, 2, -2, 2))
    right.set(title="what is drawn there")
    save(figure, "space.png")


def main():
    small = options(__doc__).small
    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    start, step = adam(loss, rate=2e-3)
    state, key = start(initial_parameters(jax.random.key(0))), jax.random.key(1)
    shuffle, values = np.random.default_rng(0), []
    for epoch in tqdm(range(25 if small else 400), desc="training", unit="epoch"):
        order = shuffle.permutation(len(images))[: len(images) // BATCH * BATCH]
        for number, chosen in enumerate(order.reshape(-1, BATCH)):
            step_key = jax.random.fold_in(key, 1000 * epoch + number)
            state, value = step(state, images[chosen], step_key)
            values.append(float(value))
    draw_space(state[0], images, digits.target)
    check("bound (nats an image) at first", values[0])
    check("bound (nats an image) at the end", np.mean(values[-10:]), high=28 if small else 25)


if __name__ == "__main__":
    main()
