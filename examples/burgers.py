"""Burgers' equation by a network that knows the equation: u_t + u u_x = v u_xx on [-1, 1], u(0, x) =
-sin(pi x), u(t, ±1) = 0, with v = 0.02, where a shock forms (Raissi, Perdikaris & Karniadakis,
Physics-informed neural networks, 2019).

The residual takes first derivatives by `jvp` and the second by `jvp` of it, and training the gradient of
all of that. The result is compared with the exact solution by Cole and Hopf, an integral that
Gauss-Hermite quadrature gives (Basdevant et al., 1986).
"""

import numpy as np
from common import adam, apply_dense, check, dense, options, pyplot, save
from tqdm import tqdm

import ferrax as jax
import ferrax.numpy as jnp

VISCOSITY, WIDTH, LAYERS, POINTS = 0.02, 32, 4, 1024


def initial_parameters(key):
    sizes = [2, *[WIDTH] * LAYERS, 1]
    keys = jax.random.split(key, LAYERS + 1)
    return [dense(k, a, b) for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def solution(parameters, t, x):
    """u at one point; the conditions at t = 0 and x = ±1 hold by construction."""
    *hidden, last = parameters
    y = jnp.stack([t, x])
    for layer in hidden:
        y = jnp.tanh(apply_dense(layer, y))
    return -jnp.sin(jnp.pi * x) + t * (1 - x**2) * apply_dense(last, y)[0]


def residual(parameters, t, x):
    """u_t + u u_x - v u_xx at one point."""

    def of_x(x):
        return jax.jvp(lambda x: solution(parameters, t, x), (x,), (jnp.ones_like(x),))

    (u, u_x), (_, u_xx) = jax.jvp(of_x, (x,), (jnp.ones_like(x),))
    _, u_t = jax.jvp(lambda t: solution(parameters, t, x), (t,), (jnp.ones_like(t),))
    return u_t + u * u_x - VISCOSITY * u_xx


def loss(parameters, key):
    """Mean square of the residual at points drawn uniformly."""
    t, x = jax.random.uniform(key, (2, POINTS)) * jnp.array([[1.0], [2.0]]) - jnp.array([[0.0], [1.0]])
    return jnp.mean(jax.vmap(residual, (None, 0, 0))(parameters, t, x) ** 2)


def exact(t, x):
    """The solution by Cole and Hopf at points t > 0, in double precision."""
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    moved = x[..., None] - np.sqrt(4 * VISCOSITY * t)[..., None] * nodes
    potential = weights * np.exp(-np.cos(np.pi * moved) / (2 * np.pi * VISCOSITY))
    return -np.sum(potential * np.sin(np.pi * moved), -1) / np.sum(potential, -1)


def main():
    small = options(__doc__).small
    steps = 1500 if small else 15000
    start, step = adam(loss, rate=3e-3 if small else 1e-3)
    state, losses = start(initial_parameters(jax.random.key(0))), []
    for number in tqdm(range(steps), desc="training", unit="step"):
        state, value = step(state, jax.random.key(number))
        losses.append(float(value))
    t, x = np.meshgrid(np.linspace(0.01, 1, 100), np.linspace(-1, 1, 201), indexing="ij")
    everywhere = jax.jit(jax.vmap(jax.vmap(solution, (None, 0, 0)), (None, 0, 0)))
    found = np.asarray(everywhere(state[0], t.astype(np.float32), x.astype(np.float32)))
    truth = exact(t, x)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    image = left.pcolormesh(t, x, found, cmap="coolwarm", shading="auto")
    figure.colorbar(image, ax=left)
    left.set(xlabel="t", ylabel="x", title="u(t, x) of the network")
    for row, colour in ((24, "C0"), (49, "C1"), (99, "C3")):
        right.plot(x[row], truth[row], colour, label=f"t = {t[row, 0]:.2f}")
        right.plot(x[row], found[row], colour, linestyle="none", marker=".", markersize=3)
    right.set(xlabel="x", ylabel="u", title="exact (lines) and found (dots)")
    right.legend()
    save(figure, "burgers.png")
    check("mean square residual at the end", np.mean(losses[-50:]))
    error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    check("relative error", error, high=0.15 if small else 0.02)


if __name__ == "__main__":
    main()
