"""jaxopt: L-BFGS, projected gradients, fixed points and Gauss-Newton;
derivatives of solutions by what they depend on."""

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np
from report import done, report

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
features = jnp.asarray(rng.normal(size=(40, 5)))
labels = jnp.asarray((rng.normal(size=40) + features[:, 0] > 0).astype(float))


def objective(w, penalty):
    losses = jnp.logaddexp(0, features @ w) - labels * (features @ w)
    return losses.mean() + 0.5 * penalty * jnp.sum(w**2)


lbfgs = jaxopt.LBFGS(objective, tol=1e-10, maxiter=50)
found = lbfgs.run(jnp.zeros(5), penalty=0.1)
report("lbfgs", found.params, rtol=1e-7, atol=1e-9)
report("optimality", float(found.state.error < 1e-8))


def validation(penalty):
    w = lbfgs.run(jnp.zeros(5), penalty=penalty).params
    return jnp.sum(w**2)


report("implicit derivative", jax.grad(validation)(0.1), rtol=1e-6, atol=1e-9)


def least_squares(w, data):
    x, y = data
    return 0.5 * jnp.mean((x @ w - y) ** 2)


simplex = jaxopt.ProjectedGradient(
    least_squares, projection=jaxopt.projection.projection_simplex, maxiter=200, tol=1e-9
)
report(
    "simplex", simplex.run(jnp.ones(5) / 5, data=(features, labels)).params, rtol=1e-6, atol=1e-8
)
fixed = jaxopt.FixedPointIteration(lambda x, a: jnp.cos(a * x), maxiter=200, tol=1e-10)
report(
    "fixed point", jax.value_and_grad(lambda a: fixed.run(0.5, a).params)(0.8), rtol=1e-7, atol=1e-9
)
curve = jaxopt.GaussNewton(lambda p, x, y: p[0] * jnp.exp(p[1] * x) - y, maxiter=20)
xs = jnp.linspace(0, 1, 10)
report(
    "gauss newton", curve.run(jnp.array([1.0, 0.0]), xs, 2 * jnp.exp(-1.5 * xs)).params, 1e-6, 1e-8
)
report("linear", jaxopt.linear_solve.solve_cg(lambda x: 3 * x, jnp.arange(4.0)), 1e-8, 1e-9)
done()
