"""Boxes: mutable trees whose structure and types may change."""

import functools
import gc
import threading

import jax._src.hijax as jax_hijax
import pytest
from oracle import FERRAX, same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax._src.core import named_axes, runtime
from ferrax._src.state import boxes
from ferrax.experimental import cur_qdd, hijax
from ferrax.experimental.hijax import Box


def box_of(s):
    return hijax.Box if s is FERRAX else jax_hijax.Box


def shown(s, tree):
    """What a box holds, or a function gives, as arrays: JAX has numbers where nothing was compiled."""
    return s.jax.tree.map(s.jnp.asarray, tree)


def calls(s, fun, *values, **options):
    """What a box holds after each call of a jitted function with it and a value, and how often that was traced."""
    box, traces = box_of(s)(options.get("start")), []

    @s.jax.jit
    def jitted(box, x):
        traces.append(x)
        return fun(s, box, x)

    found = []
    for x in values:
        out = jitted(box, x)
        found.append(shown(s, [box.get(), out]))
    return found, len(traces)


def add(s, box, x):
    box.set(box.get() + x)


def append(s, box, x):
    box.set([*(box.get() or []), x])


def turn(s, box, x):
    box.set({"a": x} if box.get() is None else None)


def nested(s, box, x):
    s.jax.jit(lambda b: b.set((b.get(), x)))(box)
    s.jax.jit(lambda: box.set([box.get()[1]]))()
    return box.get()[0] * 2


ARGUMENTS = {
    "same types": lambda s: calls(s, add, 1.0, 2.0, 3.0, start=0.5),
    "other dtype": lambda s: calls(s, add, 1.0, 2.0, 3.0, start=1),
    "structure": lambda s: calls(s, append, 1.0, 2.0, 3.0),
    "there and back": lambda s: calls(s, turn, 1.0, 2.0, 3.0, 4.0),
    "nested": lambda s: calls(s, nested, 1.0, 2.0),
    "trees": lambda s: calls(s, lambda s, b, x: b.set({"y": b.get()["y"] * x}), 2.0, 3.0, start={"y": 1.0}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    same(ARGUMENTS[name], weak=False)()


CLOSED = {
    "same types": (0.5, add, [1.0, 2.0]),
    "structure": (None, append, [1.0, 2.0]),
    "there and back": (None, turn, [1.0, 2.0, 3.0, 4.0, 5.0]),
    "nested": (1.0, nested, [1.0]),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_over(name):
    start, fun, values = CLOSED[name]

    def case(s):
        box, traces = box_of(s)(start), []

        @s.jax.jit
        def jitted(x):
            traces.append(x)
            return fun(s, box, x)

        found = []
        for x in values:
            out = jitted(x)
            found.append(shown(s, [box.get(), out]))
        return found, len(traces)

    same(case, weak=False)()


def test_changes_outside_are_seen():
    gc.collect()  # what functions are known by changes when other boxes go
    box, traces = Box(1.0), []

    @ferrax.jit
    def double():
        traces.append(None)
        return ferrax.tree.map(lambda x: 2 * x, box.get())

    assert double() == 2.0
    box.set([3.0, jnp.ones(2)])
    first, second = double()
    assert first == 6.0 and second.tolist() == [2.0, 2.0]
    box.set(4.0)
    assert double() == 8.0 and len(traces) == 2
    # What a function that failed gave a box is forgotten.
    with pytest.raises(ZeroDivisionError):
        ferrax.jit(lambda: box.set([1]) or 1 / 0)()
    assert double() == 8.0 and box.get() == 4.0


BODIES = {
    "scan": lambda s, b: s.lax.scan(lambda c, x: (b.set(b.get() + x), (c, b.get()))[1], 0.0, s.jnp.arange(4.0)),
    "while": lambda s, b: s.lax.while_loop(lambda i: i < 5, lambda i: (b.set(b.get() * 2), i + 1)[1], 0),
    "fori": lambda s, b: s.lax.fori_loop(0, 3, lambda i, x: (b.set(b.get() + x), x + 1)[1], 1.0),
    "cond": lambda s, b: s.lax.cond(s.jnp.asarray(True), lambda: b.set(b.get() + 1), lambda: None),
    "cond argument": lambda s, b: s.lax.cond(
        s.jnp.asarray(True), lambda box: box.set(box.get() + 1), lambda box: None, b
    ),
    "jvp": lambda s, b: s.jax.jvp(
        lambda x: (b.set(b.get() + s.lax.stop_gradient(x)), 2 * x)[1], (s.jnp.float32(1.0),), (s.jnp.float32(1.0),)
    ),
    "grad": lambda s, b: s.jax.grad(lambda x: (b.set(b.get() + s.lax.stop_gradient(x)), x * x)[1])(3.0),
    "grad argument": lambda s, b: s.jax.grad(lambda x, b: (b.set(s.lax.stop_gradient(x)), x * b.get())[1])(3.0, b),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_transformations(name, jitted):
    def case(s):
        box = box_of(s)(1.0)
        run = functools.partial(BODIES[name], s, box)
        return shown(s, [(s.jax.jit(run) if jitted else run)(), box.get()])

    same(case, weak=False)()


@pytest.mark.parametrize("jitted", [False, True])
def test_tangents_are_boxes(jitted):
    def case(s):
        box, moved = box_of(s)(5.0), box_of(s)(1.0)
        fun = lambda box, x: (box.set(box.get() * x), x)[1]  # noqa: E731
        one = s.jnp.float32(1.0)
        out = s.jax.jvp(s.jax.jit(fun) if jitted else fun, (box, 2 * one), (moved, one))
        return shown(s, [out, box.get(), moved.get()])

    same(case, weak=False)()


def test_reverse_rules_write():
    def case(s):
        box = box_of(s)(0.0)

        @s.jax.custom_vjp
        def noted(box, x):
            return x

        noted.defvjp(lambda box, x: (x, box), lambda box, ct: (box.set(ct), (None, ct))[1])
        return shown(s, [s.jax.jit(s.jax.grad(lambda x: 3 * noted(box, 2 * x)))(1.0), box.get()])

    same(case, weak=False)()


def test_boxes_of_a_function():
    def case(s):
        Box = box_of(s)

        @s.jax.jit
        def fun(x):
            box = Box()
            kinds = [box.get() is None, isinstance(box, Box)]
            box.set((x, x))
            s.lax.scan(lambda c, _: (box.set((box.get()[1], box.get()[0] + 1)), (None, None))[1], None, None, 3)
            assert kinds == [True, True]
            return box.get()

        return fun(1.0)

    same(case, weak=False)()
    assert ferrax.vmap(lambda x: Box(x + 1).get())(jnp.arange(3.0)).tolist() == [1.0, 2.0, 3.0]


def test_types():
    box = Box([1.0, jnp.ones(2)])
    found = cur_qdd(box)
    assert found == box.type_state() and hash(found) == hash(box.cur_qdd())
    assert found.leaf_avals == (ferrax.typeof(1.0), ferrax.typeof(jnp.ones(2)))
    assert found.to_tangent_qdd() == found.normalize() == found
    ty = ferrax.typeof(box)
    assert ty == hijax.BoxTy() and ty.has_qdd and str(ty) == "BoxTy" and ty.to_tangent_aval() is ty
    arrays = ty.read_loval(found, box)
    assert [x.shape for x in arrays] == [x.shape for x in ty.lo_ty_qdd(found)] == [(), (2,)]
    other = ty.new_from_loval(found, *arrays)
    ty.update_from_loval(found, other, arrays[0] + 1, arrays[1])
    assert other.get()[0] == 2.0
    assert ferrax.tree.leaves([box]) == [box] and "Box([" in repr(box)
    with pytest.raises(TypeError, match="Box"):
        Box("text")


def test_lowered_with_a_box():
    box = Box(1.0)
    compiled = ferrax.jit(lambda box: box.set(box.get() + 1)).lower(box).compile()
    compiled(box)
    compiled(box)
    assert box.get() == 3.0


def change(box):
    box.set([box.get()])


REFUSED = {
    "scan": lambda b: lax.scan(lambda c, _: (change(b), (c, None))[1], 0, None, 2),
    "while": lambda b: lax.while_loop(lambda i: i < 2, lambda i: (change(b), i + 1)[1], 0),
    "cond": lambda b: lax.cond(jnp.asarray(True), lambda: change(b), lambda: None),
    "grad": lambda b: ferrax.grad(lambda x: (change(b), x)[1])(1.0),
    "jaxpr": lambda b: ferrax.make_jaxpr(lambda b: change(b))(b),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_types_must_stay(name):
    box = Box(1.0)
    with pytest.raises(TypeError, match="type-changing mutations not allowed"):
        REFUSED[name](box)
    assert box.get() == 1.0
    box.set(2.0)
    assert ferrax.jit(box.get)() == 2.0


def test_boxes_that_must_not_be():
    kept = []
    ferrax.jit(lambda: kept.append(Box(1.0)))()
    with pytest.raises(ferrax.errors.UnexpectedTracerError):
        kept[0].get()
    box = Box(1.0)
    with pytest.raises(ValueError, match="twice|both"):
        ferrax.jit(lambda a, b: None)(box, box)
    with pytest.raises(ValueError):
        ferrax.jit(lambda: Box(1.0))()
    with pytest.raises(ValueError):
        ferrax.vmap(lambda x: box.set(x))(jnp.ones(2))


def test_threads():
    box, found = Box(0.0), []
    double = ferrax.jit(lambda: ferrax.tree.map(lambda x: 2 * x, box.get()))
    double()

    def run():
        found.append(double())
        box.set([1.0])
        found.append(double())

    on_thread(run)
    assert found == [0.0, [2.0]]
    # What another thread has set is seen here, and the other way round.
    assert double() == [2.0]
    box.set((3.0,))
    on_thread(run)
    assert found[2] == (6.0,) and double() == [2.0]
    ferrax.jit(lambda: box.set({"a": box.get()[0] + 3}))()
    on_thread(run)
    assert found[4] == {"a": 8.0}


def on_thread(run):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_threads_with_settings_of_their_own():
    box = Box(1.0)
    double = ferrax.jit(lambda: ferrax.tree.map(lambda x: 2 * x, box.get()))
    with ferrax.default_matmul_precision("highest"):
        assert double() == 2.0
        on_thread(lambda: box.set([3.0]))
        # Never the program of the former types.
        with pytest.raises(RuntimeError, match="by another thread"):
            double()
        assert double() == [6.0]
        on_thread(lambda: box.set(5.0))
    assert double() == 10.0


def test_what_changes_of_types_keep():
    """Boxes that change and go leave nothing behind."""

    def kept():
        return [len(x) for x in (boxes._watched, boxes._others, boxes._numbers, runtime._context_ids)] + [
            sum(map(len, known.values())) for known in (named_axes._numbers, runtime._context_ids)
        ]

    def change(x):
        box = Box(x)
        seen = ferrax.jit(lambda: box.set([box.get(), box.get()]))
        seen()
        # Within a trace, where the mesh and named axes are numbered too.
        ferrax.jit(lambda: (box.set(x), ferrax.vmap(lambda y: y + box.get(), axis_name="i")(jnp.ones(2)))[1])()
        with pytest.raises(ZeroDivisionError):
            ferrax.jit(lambda: (box.set({"a": x}), 1 / 0))()
        box.set((x, x, x))
        seen()

    counts = []
    for x in range(4):
        change(float(x))
        gc.collect()
        counts.append(kept())
    assert counts[1] == counts[3], counts


def test_other_functions_are_not_traced_again_when_boxes_go():
    traces = []
    other = ferrax.jit(lambda x: traces.append(x) or 2 * x)
    box = Box(1.0)
    ferrax.jit(lambda: box.set([box.get()]))()
    other(1.0)
    del box
    gc.collect()
    other(1.0)
    box = Box(1.0)
    ferrax.jit(box.get)()
    box.set(2.0)
    other(1.0)
    assert len(traces) == 1
