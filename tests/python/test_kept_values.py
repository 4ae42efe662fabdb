"""Results of the reference that are kept are those of the same operands, and come back as they were."""

import jax
import numpy as np
import pytest
from kept_values import Raised, decode, encode

GENERATOR, LEGACY = np.random.default_rng(5), np.random.RandomState(5)


@pytest.mark.parametrize("turn", range(4))
def test_each_test_draws_as_if_it_were_the_first(turn):
    for _ in range(turn + 1):
        drawn = GENERATOR.random(3), LEGACY.standard_normal()
    generator, legacy = np.random.default_rng(5), np.random.RandomState(5)
    for _ in range(turn + 1):
        expected = generator.random(3), legacy.standard_normal()
    np.testing.assert_array_equal(drawn[0], expected[0])
    assert drawn[1] == expected[1]


def test_results_come_back_as_they_were():
    x = jax.numpy.array([[1.5, -0.0, np.nan]], jax.numpy.bfloat16)
    given = {"a": x, "b": (1, True, None, "text", [2.5, 1 - 2j]), "c": np.zeros((0, 3), np.int8)}
    found = decode(encode(given))
    assert found["b"] == given["b"] and type(found["b"][0]) is int and type(found["b"][1]) is bool
    for name in ("a", "c"):
        assert (found[name].dtype, found[name].shape) == (given[name].dtype, given[name].shape)
        assert np.asarray(found[name]).tobytes() == np.asarray(given[name]).tobytes()
    assert decode(encode(jax.numpy.add(1, 2))).weak_type and not decode(encode(x)).weak_type
    error = decode(encode(Raised(ValueError("no"))))
    assert (error.name, error.text, error.classes[0]) == ("ValueError", "no", "ValueError")
