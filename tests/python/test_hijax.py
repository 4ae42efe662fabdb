"""Values of classes that are no arrays: their types, and primitives over them."""

import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import cur_qdd, hijax


class Box:
    """Holds a value, which changes."""

    def __init__(self, value):
        self.value = value

    def cur_qdd(self):
        return ferrax.typeof(self.value)


class BoxType(hijax.MutableHiType):
    def __hash__(self):
        return hash(BoxType)

    def __eq__(self, other):
        return type(other) is BoxType


hijax.register_hitype(Box, lambda box: BoxType())


class Put(hijax.HiPrimitive):
    multiple_results = True

    def to_lojax(self, box, value, *, scale):
        box.value = scale * value
        return []


put_p = Put("put")


def test_values_have_the_type_that_was_registered():
    box = Box(1.0)
    assert ferrax.typeof(box) == BoxType() and ferrax.typeof(box).has_qdd
    assert put_p.bind(box, jnp.ones(2), scale=3.0) == [] and box.value.tolist() == [3.0, 3.0]
    assert cur_qdd(box) == ferrax.core.ShapedArray((2,), jnp.float32)
    with pytest.raises(TypeError, match="do not change"):
        cur_qdd(1.0)


def test_what_changes_a_value_is_done_while_tracing():
    def squared(box, x):
        put_p.bind(box, x, scale=2.0)
        return box.value**2

    assert ferrax.jit(lambda x: squared(Box(0.0), x))(3.0) == 36.0
    assert ferrax.grad(lambda x: squared(Box(0.0), x))(3.0) == 24.0


@pytest.mark.parametrize("transform", [ferrax.jit, ferrax.grad, ferrax.vmap])
def test_values_that_change_are_no_arguments(transform):
    with pytest.raises(TypeError, match="a value of Box, of type .* cannot be an argument or a result"):
        transform(lambda box: 1.0)(Box(0.0))


def test_what_a_class_must_define():
    with pytest.raises(NotImplementedError, match="HiPrimitive must define to_lojax"):
        hijax.HiPrimitive("nothing").bind(1.0)
    with pytest.raises(NotImplementedError, match="BoxType must define lo_ty"):
        BoxType().lo_ty()
