"""Planets by a symplectic integrator, and a gradient through the whole flight.

A leapfrog integrator moves the Sun, the Earth, Mars and a probe for most of a year; `grad` of the
closest distance to Mars, through all steps, steers the launch by Gauss-Newton steps on the miss. (Hairer,
Lubich & Wanner, Geometric Numerical Integration, 2006, chapter I.) Units: the distance of the Earth,
the mass of the Sun, and years.
"""

import numpy as np
from common import check, options, pyplot, save

import ferrax as jax
import ferrax.numpy as jnp

GRAVITY = 4 * np.pi**2
MASSES = np.array([1.0, 3.0e-6, 3.2e-7, 0.0], np.float32)
MARS = 1.524


def accelerations(places):
    """[n, 2] of places [n, 2], softened where bodies meet."""
    apart = places[None] - places[:, None]
    squares = jnp.sum(apart**2, axis=-1) + 1e-6
    return GRAVITY * jnp.sum(MASSES[None, :, None] * apart * squares[..., None] ** -1.5, axis=1)


def fly(places, speeds, years, steps):
    """All places, [steps, n, 2], and the last speeds."""
    tick = years / steps

    def step(state, _):
        places, speeds = state
        speeds = speeds + 0.5 * tick * accelerations(places)
        places = places + tick * speeds
        speeds = speeds + 0.5 * tick * accelerations(places)
        return (places, speeds), places

    (_, speeds), path = jax.lax.scan(step, (places, speeds), None, length=steps)
    return path, speeds


def energy(places, speeds):
    apart = jnp.linalg.norm(places[None] - places[:, None] + 1e-12, axis=-1)
    pairs = jnp.triu(MASSES[:, None] * MASSES / jnp.where(apart > 1e-9, apart, 1.0), 1)
    return 0.5 * jnp.sum(MASSES * jnp.sum(speeds**2, axis=-1)) - GRAVITY * jnp.sum(pairs)


def start(launch):
    """Places and speeds when the probe leaves the Earth's orbit at the speed `launch`, [2]."""
    ahead = 0.77  # radians by which Mars leads: it is met after about 0.71 years
    mars = MARS * jnp.array([jnp.cos(ahead), jnp.sin(ahead)])
    turn = jnp.array([-jnp.sin(ahead), jnp.cos(ahead)])
    round_speed = 2 * np.pi
    places = jnp.stack([jnp.zeros(2), jnp.array([1.0, 0.0]), mars, jnp.array([1.0, -0.02])])
    speeds = jnp.stack([
        jnp.zeros(2), jnp.array([0.0, round_speed]), round_speed * MARS**-0.5 * turn, launch,
    ])  # fmt: skip
    return places, speeds


def main():
    steps = 500 if options(__doc__).small else 4000
    years = 0.71

    @jax.jit
    def miss(launch):
        """Where the probe is at the end, as Mars sees it."""
        path, _ = fly(*start(launch), years, steps)
        return path[-1, 3] - path[-1, 2]

    slope = jax.jit(jax.jacrev(miss))
    launch = jnp.array([0.0, 2 * np.pi * np.sqrt(2 * MARS / (1 + MARS))])  # Hohmann's transfer
    check("miss at first", jnp.linalg.norm(miss(launch)))
    # The derivative through all steps, beside a difference of whole flights.
    ahead = jnp.array([0.0, 1e-3])
    difference = (miss(launch + ahead) - miss(launch - ahead)) / 2e-3
    check("derivative less difference", jnp.max(jnp.abs(slope(launch)[:, 1] - difference)), high=5e-2)
    for _ in range(8):
        off, matrix = miss(launch), slope(launch)
        (a, b), (c, d) = matrix
        launch = launch - jnp.array([d * off[0] - b * off[1], a * off[1] - c * off[0]]) / (a * d - b * c)
    path, speeds = fly(*start(launch), years, steps)
    figure, axes = pyplot.subplots(figsize=(6, 6))
    for number, name in enumerate(["Sun", "Earth", "Mars", "probe"]):
        axes.plot(*np.asarray(path[:, number]).T, label=name, marker="o", markevery=[-1])
    axes.set(aspect="equal", title="A flight to Mars")
    axes.legend()
    save(figure, "flight.png")
    check("miss at the end", jnp.linalg.norm(miss(launch)), high=1e-3)
    drift = energy(path[-1], speeds) / energy(*start(launch)) - 1
    check("relative drift of energy", abs(drift), high=1e-3)


if __name__ == "__main__":
    main()
