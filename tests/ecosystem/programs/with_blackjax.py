"""BlackJAX: NUTS with an adapted step on a linear regression; HMC, random walks and SMC."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from report import done, report

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
x = jnp.asarray(rng.normal(size=30))
y = 1.5 * x - 0.5 + 0.3 * jnp.asarray(rng.normal(size=30))


def logdensity(p):
    noise = jnp.exp(p["log_noise"])
    prior = jax.scipy.stats.norm.logpdf(p["w"], 0, 2).sum() + jax.scipy.stats.norm.logpdf(
        p["log_noise"]
    )
    return prior + jax.scipy.stats.norm.logpdf(y, p["w"][0] * x + p["w"][1], noise).sum()


start = {"w": jnp.zeros(2), "log_noise": jnp.asarray(0.0)}


def sample(kernel, state, key, count):
    def one(state, key):
        state, info = kernel(key, state)
        return state, (state, info)

    return jax.lax.scan(one, state, jax.random.split(key, count))[1]


warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
(state, parameters), _ = warmup.run(jax.random.key(0), start, num_steps=60)
report("step size", parameters["step_size"], rtol=1e-5)
nuts = blackjax.nuts(logdensity, **parameters)
states, infos = jax.jit(sample, static_argnums=(0, 3))(nuts.step, state, jax.random.key(1), 60)
report("nuts", states.position["w"], rtol=1e-4, atol=1e-5)
report("steps", infos.num_integration_steps)
assert abs(float(states.position["w"][:, 0].mean()) - 1.5) < 0.3

hmc = blackjax.hmc(
    logdensity, step_size=0.05, inverse_mass_matrix=jnp.ones(3), num_integration_steps=8
)
states, infos = sample(hmc.step, hmc.init(start), jax.random.key(2), 15)
report("hmc", infos.acceptance_rate, rtol=1e-5, atol=1e-6)
walk = blackjax.additive_step_random_walk(
    logdensity, blackjax.mcmc.random_walk.normal(0.1 * jnp.ones(3))
)
states, _ = sample(walk.step, walk.init(start), jax.random.key(3), 20)
report("random walk", states.logdensity, rtol=1e-6)
mala = blackjax.mala(logdensity, 1e-3)
report("mala", sample(mala.step, mala.init(start), jax.random.key(4), 10)[0].logdensity, rtol=1e-6)
weights = jax.nn.softmax(jax.random.normal(jax.random.key(5), (10,)))
report("resampling", blackjax.smc.resampling.systematic(jax.random.key(6), weights, 10))
done()
