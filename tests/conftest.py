"""Random tests take the same examples each time; `--hypothesis-profile=default` takes others.
`quick_oracle` is JAX without most of XLA's optimisations, for modules that compile much with it."""

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="module")
def quick_oracle():
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config._read(name)
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)
