"""Objects of the native core and the garbage collector: cycles through them go, and what is in use stays."""

import gc
import weakref

import pytest

import ferrax
import ferrax.numpy as jnp


def is_collected(make):
    """Whether an object that `make` returns goes when nobody else refers to it."""
    thing = make()
    seen = weakref.ref(thing)
    del thing
    gc.collect()
    return seen() is None


class Holder:
    """Refers to what refers to it."""

    def step(self, x):
        return x * 2


def jitted_method():
    holder = Holder()
    holder.call = ferrax.jit(holder.step)
    holder.call(1.0)
    holder.call.note = holder.call
    return holder


class Unhashable(Holder):
    """What cannot be looked up, so that jitted functions of it have caches of their own."""

    __hash__ = None

    def __call__(self, x, static=None):
        return ferrax.tree_util.Partial(self.step, x * 2)


def static_argument():
    holder, static = Unhashable(), Holder()
    static.holder = holder
    holder.call = ferrax.jit(holder, static_argnums=1)
    holder.call(1.0, static)
    return holder


def output_tree():
    holder = Unhashable()
    holder.call = ferrax.jit(holder)
    holder.call(1.0)
    return holder


def policy():
    holder = Holder()
    holder.saves = lambda *args, **params: isinstance(holder, Holder)
    holder.call = ferrax.checkpoint(holder.step, policy=holder.saves)
    return holder


def tree_key():
    holder = Holder()
    holder.path = ferrax.tree_util.tree_leaves_with_path({holder: 1})[0][0]
    holder.tree = ferrax.tree_util.tree_structure({holder: 1})
    return holder


def body_of_loop():
    holder = Holder()
    holder.body = lambda x, y: (holder.step(x), y)
    ferrax.lax.scan(holder.body, 1.0, jnp.ones(3))
    ferrax.checkpoint(holder.step)(1.0)
    return holder


@pytest.mark.parametrize(
    "make", [jitted_method, static_argument, output_tree, policy, tree_key, body_of_loop]
)
def test_cycles_through_native_objects_are_collected(make):
    assert is_collected(make)
    # What is in use is not.
    holder = make()
    again, seen = getattr(holder, "call", None), weakref.ref(holder)
    if again is not None:
        del holder
        gc.collect()
        assert seen() is not None
        args = (2.0, Holder()) if make is static_argument else (2.0,)
        assert ferrax.tree_util.tree_leaves(again(*args)) == [4.0]


def test_collections_while_jitted_functions_are_made():
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        arguments = divmod, "divmod", [], [], [], [], False, None, ferrax._core.JitCache()
        # Enough for new memory to be asked for with each, which is when Python collects.
        made = [ferrax._core.PjitFunction(*arguments) for _ in range(300)]
    finally:
        gc.set_threshold(*thresholds)
    assert made[-1](7, 2)[1] == 1
