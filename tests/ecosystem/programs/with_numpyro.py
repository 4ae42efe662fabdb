"""NumPyro: a hierarchical model (Rubin's eight schools) by NUTS, a regression by variational inference, and
what is predicted from both."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, autoguide, log_likelihood
from numpyro.infer.reparam import TransformReparam
from report import done, report

effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(errors, effects=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    move = dist.transforms.AffineTransform(mu, tau)
    with numpyro.plate("school", 8), handlers.reparam(config={"theta": TransformReparam()}):
        theta = numpyro.sample("theta", dist.TransformedDistribution(dist.Normal(0.0, 1.0), move))
    with numpyro.plate("school", 8):
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


# Trajectories are chaotic: a last place grows from one draw to the next, faster while the step is adapted.
fixed_step = NUTS(schools, step_size=0.3, adapt_step_size=False, adapt_mass_matrix=False)
for kernel, warm, draws, rtol in ((fixed_step, 0, 20, 1e-4), (NUTS(schools), 12, 6, 2e-3)):
    mcmc = MCMC(kernel, num_warmup=warm, num_samples=draws, progress_bar=False)
    mcmc.run(jax.random.key(0), errors, effects, extra_fields=("num_steps",))
    report(f"steps after {warm}", mcmc.get_extra_fields()["num_steps"])
    for name, values in mcmc.get_samples().items():
        report(f"{name} after {warm}", values, rtol=rtol, atol=rtol)
fixed = {"mu": jnp.arange(3.0), "tau": jnp.ones(3), "theta_base": jnp.linspace(-1, 1, 24).reshape(3, 8)}
report("likelihood", log_likelihood(schools, fixed, errors, effects=effects)["effect"])
predicted = Predictive(schools, fixed)(jax.random.key(1), errors)
report("predicted", predicted["effect"])

points = jax.random.normal(jax.random.key(2), (20, 3))
values = points @ jnp.array([1.0, -2.0, 0.5]) + 0.3


def regression(points, values=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    numpyro.sample("values", dist.StudentT(4.0, points @ weights, scale), obs=values)


guide = autoguide.AutoMultivariateNormal(regression)
svi = SVI(regression, guide, numpyro.optim.Adam(0.02), Trace_ELBO(num_particles=2))
result = svi.run(jax.random.key(3), 25, points, values, progress_bar=False)
report("bounds", result.losses, rtol=1e-4)
drawn = guide.sample_posterior(jax.random.key(4), result.params, sample_shape=(3,))
report("weights", drawn["weights"], rtol=1e-4, atol=1e-5)


@jax.jit
def densities(key):
    distributions = {
        "dirichlet": dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
        "lkj": dist.LKJCholesky(3, 2.0),
        "student": dist.MultivariateStudentT(4.0, jnp.zeros(2), jnp.eye(2)),
        "poisson": dist.ZeroInflatedPoisson(0.3, 2.0),
        "truncated": dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
        "walk": dist.GaussianRandomWalk(1.0, 4),
    }
    draws = {name: each.sample(key, (3,)) for name, each in distributions.items()}
    return draws, {name: each.log_prob(draws[name]) for name, each in distributions.items()}


for kind, found in zip(("draw", "density"), densities(jax.random.key(5))):
    for name, value in found.items():
        report(f"{kind} {name}", value, rtol=1e-4, atol=1e-5)
done()
