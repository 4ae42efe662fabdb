"""Layer norm with a bias and a gain as two kernels: one forwards, and one that is its derivative backwards.

`custom_vjp` joins them: the forward kernel also gives the mean and the inverse deviation of each row, and the backward
kernel makes of these the cotangents of a block of rows at a step. Those of gain and bias are sums over all rows, which
steps add up in an output that all of them see. Numbers of rows need not be multiples of blocks. The norm then trains a
network, whose losses are those with the norm of `jnp` and its derivative.
"""

import numpy as np
from common import adam, apply_dense, check, dense, options, pyplot, save

import ferrax as jax
import ferrax.numpy as jnp
from ferrax.experimental import pallas as pl

EPSILON, BLOCK, WIDTH = 1e-5, 64, 128


def forward_step(x_ref, gain_ref, bias_ref, o_ref, mean_ref, scale_ref):
    """A block of rows f32[b, d], gain and bias f32[d]; the result, and the rows' means and scales f32[b, 1]."""
    x = x_ref[...]
    mean = jnp.mean(x, axis=1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean((x - mean) ** 2, axis=1, keepdims=True) + EPSILON)
    o_ref[...] = (x - mean) * scale * gain_ref[...] + bias_ref[...]
    mean_ref[...] = mean
    scale_ref[...] = scale


def backward_step(x_ref, gain_ref, mean_ref, scale_ref, given_ref, x_bar_ref, gain_bar_ref, bias_bar_ref, *, rows):
    """The cotangents of a block, and these of gain and bias f32[d], which all steps add to; of so many rows in all."""
    step = pl.program_id(0)

    @pl.when(step == 0)
    def _():
        gain_bar_ref[...] = jnp.zeros_like(gain_bar_ref)
        bias_bar_ref[...] = jnp.zeros_like(bias_bar_ref)

    normal = (x_ref[...] - mean_ref[...]) * scale_ref[...]
    given = given_ref[...]
    inner = given * gain_ref[...]
    along = jnp.mean(inner, axis=1, keepdims=True) + normal * jnp.mean(inner * normal, axis=1, keepdims=True)
    x_bar_ref[...] = (inner - along) * scale_ref[...]
    # Rows of the last block that lie outside hold NaN: what is written there is dropped, sums leave it out.
    inside = (step * BLOCK + jnp.arange(BLOCK) < rows)[:, None]
    gain_bar_ref[...] += jnp.sum(jnp.where(inside, given * normal, 0), axis=0)
    bias_bar_ref[...] += jnp.sum(jnp.where(inside, given, 0), axis=0)


def blocks(width):
    """Blocks of rows, of columns beside them, and vectors that all steps see."""
    return (
        pl.BlockSpec((BLOCK, width), lambda i: (i, 0)),
        pl.BlockSpec((BLOCK, 1), lambda i: (i, 0)),
        pl.BlockSpec((width,), lambda i: (0,)),
    )


@jax.custom_vjp
def layer_norm(x, gain, bias):
    """The rows of x f32[n, d] with mean 0 and variance 1, times the gain, plus the bias f32[d]."""
    return forward(x, gain, bias)[0]


def forward(x, gain, bias):
    of_rows, column, vector = blocks(x.shape[1])
    result, mean, scale = pl.pallas_call(
        forward_step, [x, x[:, :1], x[:, :1]], grid=(pl.cdiv(len(x), BLOCK),), in_specs=[of_rows, vector, vector],
        out_specs=(of_rows, column, column), name="layer_norm",
    )(x, gain, bias)  # fmt: skip
    return result, (x, gain, mean, scale)


def backward(kept, given):
    x, gain, mean, scale = kept
    of_rows, column, vector = blocks(x.shape[1])
    return pl.pallas_call(
        lambda *refs: backward_step(*refs, rows=len(x)), (x, gain, gain), grid=(pl.cdiv(len(x), BLOCK),),
        in_specs=[of_rows, vector, column, column, of_rows], out_specs=(of_rows, vector, vector), name="layer_norm_bar",
    )(x, gain, mean, scale, given)  # fmt: skip


layer_norm.defvjp(forward, backward)


def plain(x, gain, bias):
    mean = jnp.mean(x, axis=1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, axis=1, keepdims=True) + EPSILON) * gain + bias


def loss_with(norm):
    """The mean cross entropy of a network of two layers with a norm between."""

    def loss(parameters, points, labels):
        hidden = norm(apply_dense(parameters["first"], points), parameters["gain"], parameters["bias"])
        scores = jax.nn.log_softmax(apply_dense(parameters["last"], jax.nn.relu(hidden)))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))

    return loss


def spirals(count):
    """Points f32[count, 2] on three noisy arms, and which arm each is on."""
    rng = np.random.default_rng(0)
    labels, radius = rng.integers(0, 3, count), rng.uniform(0.1, 1, count)
    angle = 2 * np.pi * labels / 3 + 4 * radius + 0.1 * rng.standard_normal(count)
    points = radius * np.stack([np.cos(angle), np.sin(angle)])
    return points.T.astype(np.float32), labels


def main():
    small = options(__doc__).small
    points, labels = spirals(1000)
    first, last = jax.random.split(jax.random.key(0))
    parameters = {"first": dense(first, 2, WIDTH), "last": dense(last, WIDTH, 3)}
    parameters |= {"gain": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}
    losses = {}
    for name, norm in (("kernels", layer_norm), ("jnp", plain)):
        start, step = adam(loss_with(norm), rate=3e-3)
        state, losses[name] = start(parameters), []
        for _ in range(100 if small else 500):
            state, value = step(state, points, labels)
            losses[name].append(float(value))
    x = jax.random.normal(jax.random.key(1), (1000, WIDTH)) * 3 + 1
    gain, bias = parameters["gain"] * 2, parameters["bias"] + 1
    weights = jnp.cos(jnp.arange(x.size).reshape(x.shape))
    slopes = [jax.grad(lambda *a, f=f: jnp.sum(weights * f(*a)), (0, 1, 2))(x, gain, bias) for f in (layer_norm, plain)]
    apart = max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in zip(*slopes))
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.semilogy(losses["jnp"], "C1", linewidth=4, alpha=0.5, label="jnp")
    axes.semilogy(losses["kernels"], "C0", label="kernels")
    axes.set(xlabel="step", ylabel="loss", title="three spirals, a network with layer norm")
    axes.legend()
    save(figure, "losses.png")
    check("norms, largest difference", jnp.max(jnp.abs(layer_norm(x, gain, bias) - plain(x, gain, bias))), high=1e-5)
    check("gradients, largest difference, relative", apart, high=1e-4)
    check("loss at the end", losses["kernels"][-1], high=0.3)
    check("difference of the losses", abs(losses["kernels"][-1] - losses["jnp"][-1]), high=1e-3)


if __name__ == "__main__":
    main()
