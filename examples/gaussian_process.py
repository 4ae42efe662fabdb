"""Gaussian-process regression: a trend and a yearly rhythm are found, with error bars.

A sum of kernels whose parameters maximise the marginal likelihood, by a Cholesky decomposition and its
derivative (Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, sections 2.2 and 5.4).
The measurements are made up: a trend, a yearly rhythm and noise, so that the truth is known.
"""

import numpy as np
from common import adam, check, options, pyplot, save
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp


def truth(years):
    return 0.25 * years + 0.03 * years**2 + 0.8 * np.sin(2 * np.pi * years) * (1 + 0.05 * years)


def measured(count):
    """Years f32[count] of the first ten, with a gap, and noisy measurements."""
    draw = np.random.default_rng(0)
    years = np.sort(draw.uniform(0, 10, count))
    years = years[(years < 4.5) | (years > 6)]
    return years.astype(np.float32), (truth(years) + 0.1 * draw.normal(size=years.shape)).astype(np.float32)


def initial_parameters():
    """Logarithms of scales: of the trend, of the rhythm, and of the noise."""
    return {"trend": jnp.zeros(2), "rhythm": jnp.array([0.0, 2.0, 0.0]), "noise": jnp.array(-1.0)}


def kernel(parameters, x, y):
    """Covariances [n, m] of the process at x [n] and y [m]."""
    apart = x[:, None] - y
    height, width = jnp.exp(parameters["trend"])
    trend = (3 * height) ** 2 * jnp.exp(-0.5 * (apart / (5 * width)) ** 2)
    height, fading, shape = jnp.exp(parameters["rhythm"])
    rhythm = jnp.exp(-2 * (jnp.sin(jnp.pi * apart) / shape) ** 2 - 0.5 * (apart / fading) ** 2)
    return trend + height**2 * rhythm


def factor(parameters, x):
    noise = jnp.exp(2 * parameters["noise"]) + 1e-5
    return jnp.linalg.cholesky(kernel(parameters, x, x) + noise * jnp.eye(x.shape[0]))


def whiten(lower, b):
    """`lower`'s inverse times b [n, m]."""
    return jax.lax.linalg.triangular_solve(lower, b, left_side=True, lower=True)


def loss(parameters, x, y):
    """Minus the logarithm of the marginal likelihood, for one measurement."""
    lower = factor(parameters, x)
    white = whiten(lower, y[:, None])[:, 0]
    logarithm = -0.5 * white @ white - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return -(logarithm / y.shape[0]) + 0.5 * jnp.log(2 * jnp.pi)


@jax.jit
def predict(parameters, x, y, new):
    """Means and deviations [m] at the years `new`."""
    lower = factor(parameters, x)
    white = whiten(lower, kernel(parameters, x, new))
    mean = white.T @ whiten(lower, y[:, None])[:, 0]
    variance = jnp.diagonal(kernel(parameters, new[:1], new[:1]))[0] - jnp.sum(white**2, axis=0)
    return mean, jnp.sqrt(jnp.maximum(variance, 0) + jnp.exp(2 * parameters["noise"]))


def main():
    small = options(__doc__).small
    x, y = measured(120 if small else 400)
    start, step = adam(loss, rate=0.05)
    state, losses = start(initial_parameters()), []
    for _ in tqdm(range(150 if small else 600), desc="fitting", unit="step"):
        state, value = step(state, x, y)
        losses.append(float(value))
    new = np.linspace(-0.5, 12, 500, dtype=np.float32)
    mean, deviation = predict(state[0], x, y, new)
    figure, axes = pyplot.subplots(figsize=(9, 4))
    axes.fill_between(new, mean - 2 * deviation, mean + 2 * deviation, alpha=0.3, label="two deviations")
    axes.plot(new, mean, label="mean")
    axes.plot(new, truth(new), "k:", linewidth=1, label="truth")
    axes.plot(x, y, "k.", markersize=3)
    axes.set(xlabel="year", title="What a Gaussian process makes of it")
    axes.legend()
    save(figure, "process.png")
    check("loss", losses[-1], high=losses[0] - 0.3)
    check("noise found (0.1 put in)", jnp.exp(state[0]["noise"]), 0.05, 0.2)
    gap = (new > 4.5) & (new < 6)
    away = np.sqrt(np.mean((np.asarray(mean) - truth(new))[gap] ** 2))
    check("error in the gap", away, high=0.5)
    inside = np.abs(np.asarray(mean) - truth(new)) < 2 * np.asarray(deviation)
    check("share of the truth within two deviations", inside.mean(), low=0.8)


if __name__ == "__main__":
    main()
