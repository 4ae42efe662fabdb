"""A program for JAX, run as it is: eight schools and their pupils' training, by BlackJAX.

    python -m ferrax.compat examples/blackjax_schools.py

A hierarchical model (Rubin, Estimation in Parallel Randomized Experiments, 1981) in its centred form would
have a funnel; here effects are written by what is left when the common mean and scale are taken out. The No-U-Turn
sampler (Hoffman & Gelman, 2014) draws from it, after windows that adapt its step and its mass matrix.
"""

import blackjax
import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
from common import check, options, pyplot, save

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
CHAINS = 4


def effects(place):
    """The effect of each school."""
    return place["mean"] + jnp.exp(place["log_scale"]) * place["left"]


def log_density(place):
    """Of the posterior, up to a constant: the scale is half Cauchy, and given by its logarithm."""
    scale = jnp.exp(place["log_scale"])
    prior = stats.norm.logpdf(place["mean"], 0, 5) + stats.norm.logpdf(place["left"]).sum()
    prior += stats.cauchy.logpdf(scale, 0, 5) + place["log_scale"]
    return prior + stats.norm.logpdf(EFFECTS, effects(place), ERRORS).sum()


def start(key):
    mean, scale, left = jax.random.split(key, 3)
    return {
        "mean": 5 * jax.random.normal(mean),
        "log_scale": jax.random.normal(scale),
        "left": jax.random.normal(left, (8,)),
    }


def chain(key, warm, draws):
    """Draws of one chain, and what the sampler says of each."""
    start_key, adapt_key, key = jax.random.split(key, 3)
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density, target_acceptance_rate=0.9)
    (state, parameters), _ = adaptation.run(adapt_key, start(start_key), num_steps=warm)
    kernel = blackjax.nuts(log_density, **parameters)

    def move(state, key):
        state, info = kernel.step(key, state)
        return state, (state.position, info.acceptance_rate, info.num_integration_steps)

    return jax.lax.scan(move, state, jax.random.split(key, draws))[1]


def main():
    small = options(__doc__).small
    warm, draws = (200, 200) if small else (1000, 2000)
    keys = jax.random.split(jax.random.key(0), CHAINS)
    places, acceptance, leaps = jax.jit(jax.vmap(lambda key: chain(key, warm, draws)))(keys)
    drawn = jax.vmap(jax.vmap(effects))(places).reshape(-1, 8)
    low, middle, high = jnp.quantile(drawn, jnp.array([0.1, 0.5, 0.9]), axis=0)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    left.plot(places["mean"].T, linewidth=0.5)
    left.set(title=f"the common mean in {CHAINS} chains", xlabel="draw")
    right.errorbar(range(8), EFFECTS, ERRORS, fmt="o", color="gray", label="measured", capsize=3)
    bars = jnp.stack([middle - low, high - middle])
    right.errorbar(jnp.arange(8) + 0.2, middle, bars, fmt="s", label="in the light of the others")
    right.set(title="schools", xticks=range(8), xticklabels="ABCDEFGH")
    right.legend()
    save(figure, "schools.png")
    together = {name: values[..., None] if values.ndim == 2 else values for name, values in places.items()}
    agreement = [jnp.max(blackjax.diagnostics.potential_scale_reduction(x)) for x in together.values()]
    check("log density at the start", log_density(start(jax.random.key(1))))
    check("acceptance", jnp.mean(acceptance), 0.7, 1)
    check("steps of a trajectory", jnp.mean(leaps), 1, 64)
    check("largest Gelman-Rubin statistic", jnp.max(jnp.stack(agreement)), high=1.1)
    check("mean of all schools", jnp.mean(places["mean"]), 3, 6)
    check("scale of their differences", jnp.mean(jnp.exp(places["log_scale"])), 2, 6)
    check("median of school A", middle[0], 4, 9)


if __name__ == "__main__":
    main()
