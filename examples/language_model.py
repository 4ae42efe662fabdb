"""A transformer that learns to write: characters of the data descriptions that scikit-learn ships.

Decoder-only with causal attention, pre-normalisation and tied embeddings (Vaswani et al., Attention Is
All You Need, 2017; Radford et al., 2019). One jitted step holds the loss, its gradient and Adam;
generation is a `fori_loop` over positions.
"""

import pathlib

import numpy as np
import sklearn.datasets
from common import adam, apply_dense, check, dense, options, pyplot, save
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp

LENGTH, BATCH, HEADS = 64, 16, 4


def load_text():
    """The text as numbers i32[N], and the characters that they stand for."""
    descriptions = pathlib.Path(sklearn.datasets.__file__).parent / "descr"
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(descriptions.glob("*.rst")))
    characters = sorted(set(text))
    number = {character: i for i, character in enumerate(characters)}
    return np.array([number[c] for c in text], np.int32), characters


def initial_parameters(key, vocabulary, width, layers):
    keys = iter(jax.random.split(key, 2 + 4 * layers))
    blocks = []
    for _ in range(layers):
        blocks.append({
            "attention": dense(next(keys), width, 3 * width),
            "mix": dense(next(keys), width, width),
            "up": dense(next(keys), width, 4 * width),
            "down": dense(next(keys), 4 * width, width),
            "norms": jnp.ones((2, width)),
        })  # fmt: skip
    return {
        "characters": 0.05 * jax.random.normal(next(keys), (vocabulary, width)),
        "positions": 0.05 * jax.random.normal(next(keys), (LENGTH, width)),
        "blocks": blocks,
        "norm": jnp.ones(width),
    }


def normalised(x, scale):
    """RMS normalisation (Zhang & Sennrich, 2019)."""
    return scale * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attend(block, x):
    """Causal attention of x [B, T, D] with `HEADS` heads."""
    batch, length, width = x.shape
    parts = jnp.split(apply_dense(block["attention"], x), 3, axis=-1)
    query, key, value = (part.reshape(batch, length, HEADS, width // HEADS) for part in parts)
    mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
    return apply_dense(block["mix"], mixed.reshape(batch, length, width))


def apply_block(block, x):
    x = x + attend(block, normalised(x, block["norms"][0]))
    hidden = jax.nn.gelu(apply_dense(block["up"], normalised(x, block["norms"][1])))
    return x + apply_dense(block["down"], hidden)


def apply_blocks(blocks, x):
    for block in blocks:
        x = apply_block(block, x)
    return x


def logits(parameters, tokens, blocks=apply_blocks):
    """The logits of each next character: [B, T, V] of tokens i32[B, T]."""
    x = parameters["characters"][tokens] + parameters["positions"][: tokens.shape[1]]
    x = blocks(parameters["blocks"], x)
    return normalised(x, parameters["norm"]) @ parameters["characters"].T


def loss(parameters, tokens, blocks=apply_blocks):
    """Mean cross entropy in nats of tokens i32[B, T + 1]."""
    scores = jax.nn.log_softmax(logits(parameters, tokens[:, :-1], blocks))
    return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1))


@jax.jit
def write(parameters, prompt, key):
    """`LENGTH` characters, of which the first are the prompt's."""
    given = prompt.shape[0]
    tokens = jnp.zeros(LENGTH, jnp.int32).at[:given].set(prompt)

    def step(place, tokens):
        scores = logits(parameters, tokens[None])[0, place - 1]
        drawn = jax.random.categorical(jax.random.fold_in(key, place), scores / 0.7)
        return tokens.at[place].set(drawn.astype(jnp.int32))

    return jax.lax.fori_loop(given, LENGTH, step, tokens)


def main():
    small = options(__doc__).small
    text, characters = load_text()
    steps, width, layers = (150, 64, 2) if small else (3000, 128, 4)
    parameters = initial_parameters(jax.random.key(0), len(characters), width, layers)
    start, step = adam(loss, rate=3e-3 if small else 1e-3)
    state, draw = start(parameters), np.random.default_rng(0)
    losses = []
    bar = tqdm(range(steps), desc="training", unit="step")
    for _ in bar:
        starts = draw.integers(0, len(text) - LENGTH - 1, BATCH)
        state, value = step(state, text[starts[:, None] + np.arange(LENGTH + 1)])
        losses.append(float(value))
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
    prompt = np.array([characters.index(c) for c in "The data"], np.int32)
    written = write(state[0], prompt, jax.random.key(1))
    print("".join(characters[i] for i in np.asarray(written)))
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="cross entropy (nats a character)", title="Language model")
    save(figure, "loss.png")
    check("cross entropy of the last steps", np.mean(losses[-20:]), high=2.7 if small else 1.6)


if __name__ == "__main__":
    main()
