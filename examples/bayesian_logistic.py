"""Bayesian logistic regression by Hamiltonian Monte Carlo: is a tumour malignant?

The sampler is a `scan` of leapfrog trajectories over four chains at once, by `vmap` (Neal, MCMC Using
Hamiltonian Dynamics, 2011). The Gelman-Rubin statistic says whether the chains agree.
"""

import numpy as np
from common import check, options, pyplot, save
from sklearn.datasets import load_breast_cancer

import ferrax as jax
import ferrax.numpy as jnp

CHAINS, LEAPS, STEP = 4, 16, 0.08


def load_data():
    """Standardised features with a constant one, f32[N, 31], and labels f32[N], as two sets."""
    data = load_breast_cancer()
    features = (data.data - data.data.mean(0)) / data.data.std(0)
    features = np.concatenate([features, np.ones((len(features), 1))], axis=1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(features))
    features, labels = features[order], data.target[order].astype(np.float32)
    return (features[:400], labels[:400]), (features[400:], labels[400:])


def make_log_density(features, labels):
    def log_density(weights):
        """The posterior's up to a constant, with a standard normal prior."""
        scores = features @ weights
        return jnp.sum(labels * scores - jax.nn.softplus(scores)) - 0.5 * weights @ weights

    return log_density


def make_sampler(log_density, draws):
    gradient = jax.grad(log_density)

    def leap(state, _):
        place, momentum = state
        momentum = momentum + 0.5 * STEP * gradient(place)
        place = place + STEP * momentum
        return (place, momentum + 0.5 * STEP * gradient(place)), None

    def move(place, key):
        momentum_key, choice_key = jax.random.split(key)
        momentum = jax.random.normal(momentum_key, place.shape)
        (new, turned), _ = jax.lax.scan(leap, (place, momentum), None, length=LEAPS)
        energy = log_density(place) - 0.5 * momentum @ momentum
        new_energy = log_density(new) - 0.5 * turned @ turned
        taken = jnp.log(jax.random.uniform(choice_key)) < new_energy - energy
        place = jnp.where(taken, new, place)
        return place, (place, taken)

    def chain(start, key):
        _, (places, taken) = jax.lax.scan(move, start, jax.random.split(key, draws))
        return places, jnp.mean(taken)

    return jax.jit(jax.vmap(chain))


def gelman_rubin(draws):
    """The statistic for each weight of draws [chains, n, d]: 1 where chains agree."""
    n = draws.shape[1]
    within = jnp.mean(jnp.var(draws, axis=1, ddof=1), axis=0)
    between = jnp.var(jnp.mean(draws, axis=1), axis=0, ddof=1)
    return jnp.sqrt((n - 1) / n + between / within)


def main():
    small = options(__doc__).small
    (features, labels), (test_features, test_labels) = load_data()
    warm, draws = (300, 500) if small else (1000, 4000)
    sample = make_sampler(make_log_density(features, labels), warm + draws)
    start_key, key = jax.random.split(jax.random.key(0))
    starts = jax.random.normal(start_key, (CHAINS, features.shape[1]))
    places, acceptance = sample(starts, jax.random.split(key, CHAINS))
    kept = places[:, warm:]
    chance = jnp.mean(jax.nn.sigmoid(jnp.einsum("cnd,td->cnt", kept, test_features)), axis=(0, 1))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    left.plot(places[:, :, 0].T, linewidth=0.5)
    left.set(title="one weight in four chains", xlabel="draw", ylabel="weight")
    right.hist([chance[test_labels == 0], chance[test_labels == 1]], 20, label=["malignant", "benign"])
    right.set(title="patients that were not seen", xlabel="probability of benign")
    right.legend()
    save(figure, "chains.png")
    check("acceptance", jnp.mean(acceptance), 0.5, 1)
    check("largest Gelman-Rubin statistic", jnp.max(gelman_rubin(kept)), high=1.1)
    check("accuracy", jnp.mean((chance > 0.5) == test_labels), low=0.95)


if __name__ == "__main__":
    main()
