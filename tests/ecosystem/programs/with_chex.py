"""chex: assertions on arrays and trees, dataclasses as trees, variants, checks in jitted functions."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from report import done, report


@chex.dataclass
class Particle:
    position: chex.Array
    velocity: chex.Array


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Settings:
    step: float


particle = Particle(position=jnp.arange(3.0), velocity=jnp.ones(3))


@jax.jit
def moved(particle, settings):
    chex.assert_equal_shape([particle.position, particle.velocity])
    chex.assert_rank(particle.position, 1)
    chex.assert_type(particle.position, jnp.floating)
    return particle.replace(position=particle.position + settings.step * particle.velocity)


report("moved", moved(particle, Settings(step=0.5)).position)
report("tree", str(jax.tree.structure(particle)))
report("stacked", jax.vmap(lambda s: moved(particle, Settings(step=s)).position)(jnp.arange(2.0)))
chex.assert_trees_all_close(particle, jax.tree.map(lambda x: x * (1 + 1e-7), particle))
chex.assert_tree_shape_prefix(particle, (3,))
chex.assert_shape(jnp.ones((2, 3)), (None, 3))

said = []
for check in (
    lambda: chex.assert_shape(jnp.ones((2, 3)), (3, 2)),
    lambda: chex.assert_trees_all_equal({"a": 1}, {"a": 2}),
    lambda: chex.assert_trees_all_equal_structs({"a": 1}, {"b": 1}),
    lambda: chex.assert_tree_all_finite({"a": jnp.array([1.0, jnp.nan])}),
    lambda: chex.assert_scalar_in(jnp.float32(3), 0, 1),
    lambda: chex.assert_axis_dimension(jnp.ones((2, 3)), 1, 4),
    lambda: chex.assert_equal(1, 2),
):
    try:
        check()
    except AssertionError as error:
        said.append(type(error).__name__)
report("errors", said)


@chex.chexify
@jax.jit
def logarithm(x):
    chex.assert_tree_all_finite(x)
    return jnp.log(x)


report("checked", logarithm(jnp.array([1.0, 2.0])))
try:
    logarithm(jnp.array([1.0, jnp.inf]))
    logarithm.wait_checks()
except AssertionError:
    report("chexified", "raised")

chex.clear_trace_counter()


@jax.jit
@chex.assert_max_traces(n=1)
def once(x):
    return x * 2


once(jnp.ones(2))
try:
    once(jnp.ones(3))
except AssertionError:
    report("traces", "raised")


class Variants(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)
    def test(self):
        np.testing.assert_allclose(self.variant(lambda x: x + 1)(np.ones(2)), 2)


import unittest  # noqa: E402

result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Variants))
report("variants", f"{result.testsRun} run, {len(result.failures) + len(result.errors)} failed")

with chex.fake_jit():
    report("fake", jax.jit(lambda x: float(x.sum()))(jnp.ones(3)))
done()
