"""Balancing a pole on a cart: linear-quadratic regulation, and model predictive control by its side.

The regulator's gains come from Riccati's recursion, a `scan` backwards in time over the dynamics
linearised by `jacfwd` (Anderson & Moore, Optimal Control, 1990, chapter 2). Far from the upright the
linear law fails; iterative LQR, the same recursion along a trajectory (Li & Todorov, 2004), swings
the pole up.
"""

import numpy as np
from common import check, options, pyplot, save

import ferrax as jax
import ferrax.numpy as jnp

TICK, CART, POLE, LENGTH, GRAVITY = 0.04, 1.0, 0.2, 0.5, 9.81
STATE_COST = np.diag([0.1, 1.0, 0.01, 0.01]).astype(np.float32)
FORCE_COST = np.array([[1e-3]], np.float32)
LAST_COST = np.diag([10.0, 500.0, 5.0, 20.0]).astype(np.float32)


def motion(state, force):
    """Rates of change of (place, angle from the upright, speed, turn)."""
    _, angle, speed, turn = state
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    swing = POLE * LENGTH * turn**2 * sine
    push = (force[0] + swing - POLE * GRAVITY * sine * cosine) / (CART + POLE * sine**2)
    return jnp.stack([speed, turn, push, (GRAVITY * sine - push * cosine) / LENGTH])


def advance(state, force):
    """One tick by the classical Runge-Kutta method."""
    k1 = motion(state, force)
    k2 = motion(state + 0.5 * TICK * k1, force)
    k3 = motion(state + 0.5 * TICK * k2, force)
    k4 = motion(state + TICK * k3, force)
    return state + TICK / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def simulate(start, law, ticks):
    """States [ticks + 1, 4] and forces [ticks, 1] under `law(tick, state)`."""

    def step(state, tick):
        force = law(tick, state)
        return advance(state, force), (state, force)

    last, (states, forces) = jax.lax.scan(step, start, jnp.arange(ticks))
    return jnp.concatenate([states, last[None]]), forces


def cost(states, forces):
    along = jnp.einsum("ti,ij,tj->", states[:-1], STATE_COST, states[:-1])
    pushes = jnp.einsum("ti,ij,tj->", forces, FORCE_COST, forces)
    return 0.5 * (along + pushes + states[-1] @ LAST_COST @ states[-1])


def riccati(states, forces):
    """Changes of force and gains along a trajectory, by the recursion backwards in time."""

    def step(value, point):
        (gradient, curvature), (state, force) = value, point
        by_state, by_force = jax.jacfwd(advance, (0, 1))(state, force)
        q_x = STATE_COST @ state + by_state.T @ gradient
        q_u = FORCE_COST @ force + by_force.T @ gradient
        q_xx = STATE_COST + by_state.T @ curvature @ by_state
        q_ux = by_force.T @ curvature @ by_state
        q_uu = FORCE_COST + by_force.T @ curvature @ by_force
        answer = -jnp.linalg.solve(q_uu, jnp.concatenate([q_u[:, None], q_ux], axis=1))
        change, gain = answer[:, 0], answer[:, 1:]
        gradient = q_x + q_ux.T @ change
        curvature = q_xx + q_ux.T @ gain
        return (gradient, 0.5 * (curvature + curvature.T)), (change, gain)

    end = LAST_COST @ states[-1], LAST_COST
    _, plan = jax.lax.scan(step, end, (states[:-1], forces), reverse=True)
    return plan


@jax.jit
def improve(states, forces):
    """The best of ten trajectories along the direction of the Riccati recursion."""
    changes, gains = riccati(states, forces)

    def tried(size):
        def law(tick, state):
            return forces[tick] + size * changes[tick] + gains[tick] @ (state - states[tick])

        new = simulate(states[0], law, forces.shape[0])
        return (*new, jnp.nan_to_num(cost(*new), nan=jnp.inf))

    all_states, all_forces, costs = jax.vmap(tried)(0.5 ** jnp.arange(10.0))
    best = jnp.argmin(costs)
    return all_states[best], all_forces[best], costs[best]


def main():
    rounds = 40 if options(__doc__).small else 200
    ticks = 100
    rest, nothing = jnp.zeros((ticks + 1, 4)), jnp.zeros((ticks, 1))
    _, gains = jax.jit(riccati)(rest, nothing)
    near, _ = simulate(jnp.array([0.0, 0.3, 0.0, 0.0]), lambda tick, x: gains[0] @ x, ticks)
    hanging = jnp.array([0.0, jnp.pi, 0.0, 0.0])
    draw = 0.5 * jax.random.normal(jax.random.key(0), (ticks, 1))
    states, forces = simulate(hanging, lambda tick, _: draw[tick], ticks)
    costs = [float(cost(states, forces))]
    for _ in range(rounds):
        states, forces, value = improve(states, forces)
        costs.append(float(value))
    time = TICK * np.arange(ticks + 1)
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(14, 4))
    left.plot(time, near[:, :2], label=["place (m)", "angle (rad)"])
    left.set(title="the regulator near the upright", xlabel="time (s)")
    left.legend()
    middle.plot(time, states[:, :2], label=["place (m)", "angle (rad)"])
    middle.set(title="swinging up", xlabel="time (s)")
    middle.legend()
    right.semilogy(costs)
    right.set(title="cost of the swing", xlabel="round")
    save(figure, "control.png")
    check("angle under the regulator at the end", abs(near[-1, 1]), high=1e-2)
    check("angle after the swing", abs(states[-1, 1]), high=0.05)
    check("cost", costs[-1], high=costs[0] / 5)


if __name__ == "__main__":
    main()
