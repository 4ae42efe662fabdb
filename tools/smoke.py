"""Tries an installed ferrax: derivatives, batches, compiled functions and a saved program.

Needs nothing but the package. Exits with an error if something is not as it should be.
"""

import pathlib
import tempfile

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import export


def main() -> None:
    def loss(weights, inputs, targets):
        return jnp.mean((jnp.tanh(inputs @ weights) - targets) ** 2)

    weights = jnp.array([0.5, -0.25])
    inputs = jax.random.normal(jax.random.key(0), (8, 2))
    targets = jnp.tanh(inputs @ jnp.array([1.0, 2.0]))

    step = jax.jit(lambda w, x, y: w - 0.5 * jax.grad(loss)(w, x, y))
    trained = weights
    for _ in range(200):
        trained = step(trained, inputs, targets)
    assert loss(trained, inputs, targets) < 0.01 * loss(weights, inputs, targets), trained

    by_row = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(weights, inputs, targets)
    together = jax.grad(loss)(weights, inputs, targets)
    assert jnp.allclose(by_row.mean(0), together, rtol=1e-5), (by_row, together)

    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "step.ferrax"
        export.save(path, export.export(step)(weights, inputs, targets))
        loaded = export.load(path).call(weights, inputs, targets)
    assert (loaded == step(weights, inputs, targets)).all(), loaded
    print(f"ferrax {jax.__version__} from {pathlib.Path(jax.__file__).parent}: works")


if __name__ == "__main__":
    main()
