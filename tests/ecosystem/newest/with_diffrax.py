"""Diffrax: solutions of differential equations and their derivatives, implicit and stochastic ones, events, and a
network in an equation, trained."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from report import done, report

START = jnp.array([1.0, 0.0])
TIMES = jnp.linspace(0, 3, 7)
CLOSE = diffrax.PIDController(rtol=1e-5, atol=1e-6)


def pendulum(t, y, strength):
    return jnp.stack([y[1], -strength * jnp.sin(y[0])])


def solve(strength, solver=None, adjoint=None):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(pendulum), solver or diffrax.Tsit5(), 0.0, 3.0, 0.1, START, args=strength,
        stepsize_controller=CLOSE, saveat=diffrax.SaveAt(ts=TIMES),
        adjoint=adjoint or diffrax.RecursiveCheckpointAdjoint(),
    )  # fmt: skip


def size(strength, **options):
    return (solve(strength, **options).ys ** 2).sum()


solution = solve(2.0)
report("solution", solution.ys, rtol=1e-4, atol=1e-5)
report("steps", solution.stats["num_steps"])
report("implicit", solve(2.0, diffrax.Kvaerno5()).ys, rtol=1e-3, atol=1e-4)
report("derivative", jax.grad(size)(2.0), rtol=1e-3)
report("backwards in time", jax.grad(lambda a: size(a, adjoint=diffrax.BacksolveAdjoint()))(2.0), rtol=1e-3)
report("batch", jax.vmap(lambda a: solve(a).ys[-1])(jnp.array([1.0, 2.0, 3.0])), rtol=1e-3, atol=1e-4)


def heun(strength):
    term, adjoint = diffrax.ODETerm(pendulum), diffrax.DirectAdjoint()
    return diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 1.0, 0.1, START, args=strength, adjoint=adjoint).ys


report("forward derivative", jax.jvp(heun, (2.0,), (1.0,))[1], rtol=1e-4, atol=1e-5)

noise = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(2,), key=jax.random.key(0))
terms = diffrax.MultiTerm(
    diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(lambda t, y, args: 0.1 * jnp.eye(2), noise)
)
report("noise", diffrax.diffeqsolve(terms, diffrax.EulerHeun(), 0.0, 1.0, 0.05, START).ys, rtol=1e-3, atol=1e-4)

event = diffrax.Event(lambda t, y, args, **rest: y[0])
stopped = diffrax.diffeqsolve(
    diffrax.ODETerm(pendulum), diffrax.Tsit5(), 0.0, 10.0, 0.05, START, args=2.0, event=event
)
report("event", stopped.ts, rtol=1e-2)


class Field(eqx.Module):
    network: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.network(y)


field = Field(eqx.nn.MLP(2, 2, 8, 1, activation=jax.nn.softplus, key=jax.random.key(1)))
optimizer = optax.adam(1e-2)
state = optimizer.init(eqx.filter(field, eqx.is_inexact_array))


@eqx.filter_jit
def step(field, state):
    @eqx.filter_value_and_grad
    def loss(field):
        times = jnp.linspace(0, 1, 5)
        saveat, term = diffrax.SaveAt(ts=times), diffrax.ODETerm(field)
        found = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, START, saveat=saveat).ys
        return ((found - jnp.cos(times)[:, None]) ** 2).mean()

    value, gradient = loss(field)
    updates, state = optimizer.update(gradient, state, field)
    return eqx.apply_updates(field, updates), state, value


losses = []
for _ in range(4):
    field, state, value = step(field, state)
    losses.append(value)
report("trained", losses, rtol=1e-3, atol=1e-4)
assert losses[-1] < losses[0]
done()
