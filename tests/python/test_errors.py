"""Error classes: JAX's names and bases, documented, with messages that state facts and a cure."""

import jax
import pytest

from ferrax import errors
from ferrax._src.base import errors as implementation

NAMES = [n for n in dir(jax.errors) if not n.startswith("_")]
TRACER_ERRORS = [
    "ConcretizationTypeError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TracerArrayConversionError",
    "NonConcreteBooleanIndexError",
]


def public_bases(cls):
    return [b.__name__ for b in cls.__mro__ if not b.__name__.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_names_and_bases_are_those_of_jax(name):
    ours, theirs = getattr(errors, name), getattr(jax.errors, name)
    assert public_bases(ours) == public_bases(theirs)
    assert ours.__module__ == "ferrax.errors" and ours.__qualname__ == name


@pytest.mark.parametrize("name", NAMES)
def test_documentation_has_an_example(name):
    doc = getattr(errors, name).__doc__
    if name not in ("JAXTypeError", "JAXIndexError"):
        assert "Example:" in doc and ("Cause:" in doc or "Cure:" in doc)
    assert doc


class FakeTracer:
    dtype = "float32"
    shape = (3,)

    def _origin_msg(self):
        return "\nThe error occurred while tracing the function f at a.py:3 for jit."


@pytest.mark.parametrize("name", TRACER_ERRORS)
def test_message_states_value_place_origin_and_cure(name):
    error = getattr(errors, name)(FakeTracer())
    lines = str(error).splitlines()
    assert "traced array float32[3]" in lines[0]
    assert __file__ in lines[1] and "test_message_states" in lines[1]
    assert lines[2] == "The error occurred while tracing the function f at a.py:3 for jit."
    assert any(cure in lines[3] for cure in ("static_argnames", "jnp.where", "ferrax.numpy"))


@pytest.mark.parametrize("name", TRACER_ERRORS)
def test_facts_may_be_given_as_text(name):
    facts = {"origin": "the argument x of g", "location": "b.py:7"}
    error = getattr(errors, name)("traced array i8[]", **facts)
    text = str(error)
    assert "the traced array i8[]" in text
    assert "\nAt b.py:7.\nIt is the argument x of g.\n" in text


def test_concretization_error_names_the_operation_and_context():
    error = errors.ConcretizationTypeError(
        FakeTracer(), "The error occurred in jax.random.choice()", operation="`int`"
    )
    assert str(error).startswith("`int` needs a concrete value, but got the traced array")
    assert "jax.random.choice()" in str(error)


def test_escaped_tracer():
    error = errors.UnexpectedTracerError.escaped(FakeTracer(), created="a.py:4 (f)")
    assert isinstance(error, errors.UnexpectedTracerError)
    assert "created at a.py:4 (f)" in str(error) and "checking_leaks" in str(error)
    assert str(errors.UnexpectedTracerError("text")) == "text"


def test_user_location_is_outside_the_package():
    assert implementation.user_location().startswith(__file__)
