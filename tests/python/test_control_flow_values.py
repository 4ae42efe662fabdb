"""Values, types and trees of branches, loops and scans against JAX: run eagerly, inside `jit`, and
as plain Python under `disable_jit`."""

import functools

import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax


def ramp(S, *shape, dtype="float32"):
    return S.jnp.asarray(np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape), dtype)


COND = {
    "true": lambda S: S.lax.cond(True, lambda x: x + 1, lambda x: x - 1, ramp(S, 3)),
    "false": lambda S: S.lax.cond(False, lambda x: x + 1, lambda x: x - 1, ramp(S, 3)),
    "array_predicate": lambda S: S.lax.cond(S.jnp.array(False), lambda: 1, lambda: 2),
    "computed_predicate": lambda S: S.lax.cond(ramp(S, 3).sum() > 5, lambda: 1, lambda: 2),
    "numpy_predicate": lambda S: S.lax.cond(np.bool_(True), lambda: 1, lambda: 2),
    "int": lambda S: S.lax.cond(7, lambda: 1, lambda: 2),
    "zero": lambda S: S.lax.cond(0, lambda: 1, lambda: 2),
    "float": lambda S: S.lax.cond(0.5, lambda: 1, lambda: 2),
    "float_zero": lambda S: S.lax.cond(-0.0, lambda: 1, lambda: 2),
    "nan": lambda S: S.lax.cond(float("nan"), lambda: 1, lambda: 2),
    "int_array": lambda S: S.lax.cond(S.jnp.int32(-3), lambda: 1, lambda: 2),
    "float_array": lambda S: S.lax.cond(S.jnp.float32(0), lambda: 1, lambda: 2),
    "uint_array": lambda S: S.lax.cond(S.jnp.uint8(255), lambda: 1, lambda: 2),
    "numpy_0d": lambda S: S.lax.cond(np.array(3.0), lambda: 1, lambda: 2),
    "two_operands": lambda S: S.lax.cond(True, lambda x, y: x * y, lambda x, y: x - y, 3.0, 4.0),
    "operand": lambda S: S.lax.cond(True, lambda x: x * 2, lambda x: x, operand=3.0),
    "operand_none": lambda S: S.lax.cond(False, lambda _: 1.0, lambda _: 2.0, operand=None),
    "old_form": lambda S: S.lax.cond(True, 1.0, lambda x: x + 1, 2.0, lambda x: x * 10),
    "old_form_false": lambda S: S.lax.cond(False, 1.0, lambda x: x + 1, 2.0, lambda x: x * 10),
    "old_form_trees": lambda S: S.lax.cond(False, (1.0, 2.0), lambda t: t[0] + t[1], {"a": 3.0}, lambda d: d["a"]),
    "tree_operand": lambda S: S.lax.cond(True, lambda d: d["a"] + d["b"][0], lambda d: d["a"], {
        "a": ramp(S, 2), "b": (1.0, None)}),
    "tree_result": lambda S: S.lax.cond(True, lambda x: {"a": (x, [x * 2]), "n": None},
                                        lambda x: {"a": (x + 1, [x]), "n": None}, ramp(S, 2)),
    "no_result": lambda S: S.lax.cond(True, lambda: None, lambda: None),
    "empty_result": lambda S: S.lax.cond(True, lambda x: (), lambda x: (), 1.0),
    "handed_on": lambda S: S.lax.cond(True, lambda x, y: (x, y + 1), lambda x, y: (x, y), ramp(S, 2), ramp(S, 2)),
    "swapped": lambda S: S.lax.cond(False, lambda x, y: (x, y), lambda x, y: (y, x), ramp(S, 2), ramp(S, 2) * 3),
    "literals": lambda S: S.lax.cond(True, lambda: (1.0, 2), lambda: (3.0, 4)),
    "closure": lambda S: (lambda a, b: S.lax.cond(True, lambda: a + b, lambda: a))(ramp(S, 2), ramp(S, 2)),
    "closure_of_one": lambda S: (lambda a, b: S.lax.cond(False, lambda: a, lambda: b + b))(ramp(S, 2), ramp(S, 2)),
    "closure_and_operand": lambda S: (lambda a: S.lax.cond(True, lambda x: a * x, lambda x: x - a, a))(ramp(S, 2)),
    "nested": lambda S: S.lax.cond(True, lambda x: S.lax.cond(x[0] > 5, lambda: x, lambda: -x), lambda x: x, ramp(S, 2)),
    "bool_result": lambda S: S.lax.cond(True, lambda x: x > 1, lambda x: x < 1, ramp(S, 3)),
    "int_types": lambda S: S.lax.cond(True, lambda x: x + 1, lambda x: x, ramp(S, 3, dtype="int8")),
    "bfloat16": lambda S: S.lax.cond(True, lambda x: x * 2, lambda x: x, ramp(S, 3, dtype="bfloat16")),
    "complex": lambda S: S.lax.cond(True, lambda x: x * 2j, lambda x: x, ramp(S, 3, dtype="complex64")),
    "keys": lambda S: S.random.key_data(S.lax.cond(True, lambda k: S.random.split(k)[0], lambda k: k, S.random.key(3))),
    "empty_arrays": lambda S: S.lax.cond(True, lambda x: x + 1, lambda x: x, S.jnp.ones((0, 3))),
    "weak_both": lambda S: S.lax.cond(True, lambda: 1.0, lambda: 2.0),
    "switch_0": lambda S: S.lax.switch(0, [lambda x: x, lambda x: x * 2, lambda x: x * 3], ramp(S, 2)),
    "switch_2": lambda S: S.lax.switch(2, [lambda x: x, lambda x: x * 2, lambda x: x * 3], ramp(S, 2)),
    "switch_above": lambda S: S.lax.switch(9, [lambda x: x, lambda x: x * 2, lambda x: x * 3], ramp(S, 2)),
    "switch_below": lambda S: S.lax.switch(-9, [lambda x: x + 1, lambda x: x * 2, lambda x: x * 3], ramp(S, 2)),
    "switch_array": lambda S: S.lax.switch(S.jnp.uint8(200), [lambda x: x, lambda x: x * 2], ramp(S, 2)),
    "switch_computed": lambda S: S.lax.switch(ramp(S, 3).argmax(), [lambda: 1, lambda: 2, lambda: 3]),
    "switch_one": lambda S: S.lax.switch(5, [lambda x: x + 1], ramp(S, 2)),
    "switch_operand": lambda S: S.lax.switch(1, [lambda x: x, lambda x: x * 2], operand=3.0),
    "switch_tuple": lambda S: S.lax.switch(1, (lambda: 1, lambda: 2, lambda: 3, lambda: 4)),
    "switch_tree": lambda S: S.lax.switch(1, [lambda t: t, lambda t: {"a": t["a"] * 2}], {"a": ramp(S, 2)}),
    "select": lambda S: S.lax.select(S.jnp.array([True, False]), ramp(S, 2), -ramp(S, 2)),
    "select_scalar": lambda S: S.lax.select(True, ramp(S, 2), -ramp(S, 2)),
}

LOOP = {
    "while": lambda S: S.lax.while_loop(lambda x: x < 100, lambda x: x * 2, 3),
    "while_never": lambda S: S.lax.while_loop(lambda x: x < 0, lambda x: x * 2, ramp(S)),
    "while_tree": lambda S: S.lax.while_loop(lambda t: t["i"] < 5, lambda t: {"i": t["i"] + 1, "x": (t["x"][0] * 2,)},
                                             {"i": 0, "x": (ramp(S, 2),)}),
    "while_weak_promoted": lambda S: S.lax.while_loop(lambda x: x < 3, lambda x: x + 0.5, 0),
    "while_strong_from_weak": lambda S: S.lax.while_loop(lambda x: x < 3, lambda x: S.jnp.float16(1) + x, 0),
    "while_closure": lambda S: (lambda n, d: S.lax.while_loop(lambda x: x.sum() < n, lambda x: x + d, ramp(S, 2)))(
        S.jnp.float32(20), ramp(S, 2)),
    "while_invariant": lambda S: S.lax.while_loop(lambda t: t[0] < 9, lambda t: (t[0] + t[1][0], t[1]), (0.0, ramp(S, 2))),
    "while_invariant_in_condition": lambda S: S.lax.while_loop(
        lambda t: t[0] < t[1], lambda t: (t[0] + 1.0, t[1], t[2]), (0.0, S.jnp.float32(4), ramp(S, 2))),
    "while_captured_numpy": lambda S: S.lax.while_loop(lambda x: x < np.float32(4), lambda x: x + np.float32(1), 0.0),
    "while_all_invariant": lambda S: S.lax.while_loop(lambda t: t[1] > 5, lambda t: t, (ramp(S, 2), ramp(S))),
    "while_bool": lambda S: S.lax.while_loop(lambda x: x[0], lambda x: (S.jnp.array(False), x[1] + 1), (S.jnp.array(True), 1)),
    "while_swap": lambda S: S.lax.while_loop(lambda t: t[0] < 3, lambda t: (t[0] + 1, t[2], t[1]),
                                             (S.jnp.int32(0), S.jnp.float32(1), S.jnp.float32(2))),
    "while_nested": lambda S: S.lax.while_loop(
        lambda x: x < 50, lambda x: S.lax.while_loop(lambda y: y % 7 != 0, lambda y: y + 1, x) + 3, 1),
    "while_int8": lambda S: S.lax.while_loop(lambda x: x < 3, lambda x: x + S.jnp.int8(1), S.jnp.int8(0)),
    "while_key": lambda S: S.random.key_data(S.lax.while_loop(
        lambda t: t[0] < 3, lambda t: (t[0] + 1, S.random.split(t[1])[0]), (S.jnp.int32(0), S.random.key(0)))[1]),
    "fori": lambda S: S.lax.fori_loop(0, 5, lambda i, x: x + i, 0.0),
    "fori_ints": lambda S: S.lax.fori_loop(1, 5, lambda i, x: x * i, 1),
    "fori_array_bounds": lambda S: S.lax.fori_loop(S.jnp.int32(1), S.jnp.int32(4), lambda i, x: x + i, ramp(S, 2)),
    "fori_mixed_bounds": lambda S: S.lax.fori_loop(1, S.jnp.int8(4), lambda i, x: x + i, ramp(S, 2)),
    "fori_numpy_bounds": lambda S: S.lax.fori_loop(np.int32(1), np.int32(4), lambda i, x: x + i, ramp(S, 2)),
    "fori_float_bounds": lambda S: S.lax.fori_loop(0.0, 3.5, lambda i, x: x + i, 0.0),
    "fori_empty": lambda S: S.lax.fori_loop(3, 3, lambda i, x: x + i, ramp(S, 2)),
    "fori_backwards": lambda S: S.lax.fori_loop(5, 0, lambda i, x: x + i, ramp(S, 2)),
    "fori_negative": lambda S: S.lax.fori_loop(-3, 2, lambda i, x: x + i, 0),
    "fori_tree": lambda S: S.lax.fori_loop(0, 3, lambda i, t: (t[1], t[0] + i), (1.0, 2.0)),
    "fori_index": lambda S: S.lax.fori_loop(0, 4, lambda i, x: x.at[i].set(x[i] * i), ramp(S, 4)),
    "fori_nested": lambda S: S.lax.fori_loop(0, 3, lambda i, x: S.lax.fori_loop(0, i, lambda j, y: y + j, x), 0),
    "fori_unroll": lambda S: S.lax.fori_loop(0, 7, lambda i, x: x + i, ramp(S, 2), unroll=3),
    "fori_unroll_all": lambda S: S.lax.fori_loop(0, 7, lambda i, x: x + i, ramp(S, 2), unroll=True),
    "fori_unroll_none": lambda S: S.lax.fori_loop(0, 7, lambda i, x: x + i, ramp(S, 2), unroll=False),
    "fori_key": lambda S: S.lax.fori_loop(0, 3, lambda i, t: (S.random.fold_in(t[0], i), t[1] + S.random.uniform(t[0])),
                                          (S.random.key(0), 0.0))[1],
}

SCAN = {
    "sum": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ramp(S, 4)),
    "weak_promoted": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0, ramp(S, 4)),
    "weak_kept": lambda S: S.lax.scan(lambda c, _: (c + 1, c), 0, None, length=3),
    "weak_ys": lambda S: S.lax.scan(lambda c, x: (c + x, 2.0), S.jnp.float32(0), ramp(S, 4)),
    "strong_then_weak": lambda S: S.lax.scan(lambda c, _: (1.0, None), S.jnp.float32(0), None, length=2),
    "bool_promoted": lambda S: S.lax.scan(lambda c, x: (c * x, None), 1.0, ramp(S, 3, dtype="bfloat16")),
    "no_xs": lambda S: S.lax.scan(lambda c, _: (c * 2, c), 1.0, None, length=5),
    "no_xs_keyword": lambda S: S.lax.scan(lambda c, x: (c * 2, x), 1.0, length=5),
    "no_carry": lambda S: S.lax.scan(lambda c, x: (c, x * 2), None, ramp(S, 3)),
    "empty_carry": lambda S: S.lax.scan(lambda c, x: ((), x * 2), (), ramp(S, 3)),
    "no_ys": lambda S: S.lax.scan(lambda c, x: (c + x, None), 0.0, ramp(S, 3)),
    "reverse": lambda S: S.lax.scan(lambda c, x: (c + x, (c, x)), 0.0, ramp(S, 4), reverse=True),
    "reverse_length": lambda S: S.lax.scan(lambda c, _: (c + 1, c), S.jnp.int32(0), None, length=4, reverse=True),
    "length_agrees": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ramp(S, 4), length=4),
    "length_numpy": lambda S: S.lax.scan(lambda c, _: (c + 1, c), S.jnp.int32(0), None, length=np.int64(3)),
    "unroll_2": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ramp(S, 5), unroll=2),
    "unroll_0": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ramp(S, 5), unroll=0),
    "unroll_9": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ramp(S, 5), unroll=9),
    "unroll_true": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ramp(S, 5), unroll=True),
    "unroll_reverse": lambda S: S.lax.scan(lambda c, x: (c * 2 + x, c), 0.0, ramp(S, 5), unroll=2, reverse=True),
    "split_transpose": lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ramp(S, 5), _split_transpose=True),
    "trees": lambda S: S.lax.scan(lambda c, x: ({"s": c["s"] + x[0].sum(), "n": c["n"] + 1}, [x[1]["y"] * c["n"], c]),
                                  {"s": 0.0, "n": S.jnp.int32(0)}, (ramp(S, 3, 2), {"y": ramp(S, 3)})),
    "pair_as_list": lambda S: tuple(S.lax.scan(lambda c, x: [c + x, c], 0.0, ramp(S, 3))),
    "matrix_rows": lambda S: S.lax.scan(lambda c, x: (c @ x, c), ramp(S, 2), ramp(S, 3, 2, 2)),
    "ys_are_xs": lambda S: S.lax.scan(lambda c, x: (c + x, x), 0.0, ramp(S, 3)),
    "ys_swap_xs": lambda S: S.lax.scan(lambda c, x: (c, (x[1], x[0], c)), ramp(S), (ramp(S, 3), -ramp(S, 3))),
    "invariant_carry": lambda S: S.lax.scan(lambda c, x: ((c[0], c[1] + c[0] * x), None), (ramp(S), 0.0), ramp(S, 3)),
    "invariant_first": lambda S: S.lax.scan(lambda c, x: ((c[0] + x, c[1], c[2] - c[1]), c[1]), (0.0, ramp(S), 1.0), ramp(S, 3)),
    "constant_carry": lambda S: S.lax.scan(lambda c, x: (1.5, c), 0.0, ramp(S, 3)),
    "swapped_carry": lambda S: S.lax.scan(lambda c, x: ((c[1], c[0]), x), (1.0, 2.0), ramp(S, 3)),
    "closure": lambda S: (lambda a: S.lax.scan(lambda c, x: (c + a[0] * x, a), 0.0, ramp(S, 3)))(ramp(S, 2)),
    "closure_twice": lambda S: (lambda a: S.lax.scan(lambda c, x: (c + a * a * x, c), S.jnp.zeros(2), ramp(S, 3)))(ramp(S, 2)),
    "cond_inside": lambda S: S.lax.scan(lambda c, x: (S.lax.cond(x > 2, lambda: c + x, lambda: c), c), S.jnp.float32(0), ramp(S, 4)),
    "nested": lambda S: S.lax.scan(lambda c, r: S.lax.scan(lambda d, x: (d + x, d * x), c, r), 0.0, ramp(S, 3, 2)),
    "nested_closure": lambda S: S.lax.scan(lambda c, r: (S.lax.scan(lambda d, x: (d + x * c, None), 0.0, r)[0], c), 1.0, ramp(S, 3, 2)),
    "while_inside": lambda S: S.lax.scan(lambda c, x: (S.lax.while_loop(lambda v: v < x, lambda v: v + 1, c), c), 0.0, ramp(S, 3) * 2),
    "stacked_bools": lambda S: S.lax.scan(lambda c, x: (c, x > 2), 0.0 * ramp(S), ramp(S, 3)),
    "int8": lambda S: S.lax.scan(lambda c, x: (c + x, c), S.jnp.int8(100), ramp(S, 9, dtype="int8") * S.jnp.int8(10)),
    "complex": lambda S: S.lax.scan(lambda c, x: (c * 1j + x, c), 0j, ramp(S, 4)),
    "numpy_xs": lambda S: S.lax.scan(lambda c, x: (c + x, c), np.float32(0), np.arange(3, dtype=np.float32)),
    "empty_element": lambda S: S.lax.scan(lambda c, x: (c + x.sum(), x), 0.0, S.jnp.ones((2, 0))),
    "keys": lambda S: S.lax.scan(lambda c, k: (c + S.random.uniform(k), S.random.normal(k, (2,))), 0.0, S.random.split(S.random.key(1), 3)),
    "key_carry": lambda S: S.lax.scan(lambda k, _: (S.random.split(k)[0], S.random.uniform(k)), S.random.key(1), None, length=3)[1],
    "map": lambda S: S.lax.map(lambda x: x * 2, ramp(S, 5)),
    "map_tree": lambda S: S.lax.map(lambda t: {"s": t[0] + t[1], "n": None}, (ramp(S, 3), ramp(S, 3, 2))),
    "map_batches": lambda S: S.lax.map(lambda x: x.sum() * 2, ramp(S, 6, 2), batch_size=3),
    "map_rest": lambda S: S.lax.map(lambda x: (x, {"y": x[0] * 2}), ramp(S, 7, 2), batch_size=3),
    "map_one_batch": lambda S: S.lax.map(lambda x: x * 2, ramp(S, 3), batch_size=7),
    "map_batch_0": lambda S: S.lax.map(lambda x: x * 2, ramp(S, 3), batch_size=0),
    "barrier": lambda S: S.lax.optimization_barrier((ramp(S, 3), {"a": 1.0, "b": None})),
}  # fmt: skip

# Under disable_jit JAX refuses these: a loop of Python has no type without a step.
EMPTY = {
    "zero_length": lambda S: S.lax.scan(lambda c, x: (c + 1.5, x * c), 0, S.jnp.ones((0, 3), "int32")),
    "zero_length_no_xs": lambda S: S.lax.scan(lambda c, x: (c + 1.5, (c, 1)), 2, None, length=0),
    "zero_length_reverse": lambda S: S.lax.scan(lambda c, x: (c + x, x), 0.0, S.jnp.ones((0,)), reverse=True),
    "map": lambda S: S.lax.map(lambda x: x.sum(), S.jnp.ones((0, 2))),
    "map_batches": lambda S: S.lax.map(lambda x: x.sum(), S.jnp.ones((0, 2)), batch_size=2),
}

COMBINE = {
    "add": (lambda S, a, b: a + b, lambda S: ramp(S, 1)),
    "mul_8": (lambda S, a, b: a * b, lambda S: ramp(S, 8)),
    "add_2": (lambda S, a, b: a + b, lambda S: ramp(S, 2)),
    "add_3": (lambda S, a, b: a + b, lambda S: ramp(S, 3)),
    "max_13": (lambda S, a, b: S.jnp.maximum(a, b), lambda S: S.jnp.sin(ramp(S, 13) * 7)),
    "matmul": (lambda S, a, b: a @ b, lambda S: ramp(S, 6, 2, 2) / 10),
    "affine": (lambda S, a, b: (a[0] * b[0], a[1] * b[0] + b[1]), lambda S: (ramp(S, 11) / 5, ramp(S, 11))),
    "or": (lambda S, a, b: a | b, lambda S: ramp(S, 9, dtype="int32") % 4 == 3),
    "dict": (lambda S, a, b: {"x": a["x"] + b["x"], "y": a["y"] * b["y"]},
             lambda S: {"x": ramp(S, 5, 2), "y": ramp(S, 5, dtype="int32")}),
    "empty": (lambda S, a, b: a + b, lambda S: ramp(S, 0, 2)),
}


ALL = {f"{kind}-{name}": case for kind, cases in (("cond", COND), ("loop", LOOP), ("scan", SCAN)) for name, case in cases.items()}
WITH_EMPTY = ALL | {f"empty-{name}": case for name, case in EMPTY.items()}


@pytest.mark.parametrize("name", WITH_EMPTY)
@same
def test_eager(S, name):
    return S.jax.tree.map(S.jnp.asarray, WITH_EMPTY[name](S))


@pytest.mark.parametrize("name", WITH_EMPTY)
@same
def test_inside_jit(S, name):
    return S.jax.jit(lambda: WITH_EMPTY[name](S))()


@pytest.mark.parametrize("name", ALL)
@same
def test_as_plain_python(S, name):
    with S.jax.disable_jit():
        return S.jax.tree.map(S.jnp.asarray, ALL[name](S))


@pytest.mark.parametrize("name", EMPTY)
@same
def test_empty_loops_have_no_type_in_plain_python(S, name):
    with S.jax.disable_jit():
        return EMPTY[name](S)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", COMBINE)
@same
def test_associative_scan(S, name, reverse):
    combine, elems = COMBINE[name]
    return S.lax.associative_scan(functools.partial(combine, S), elems(S), reverse=reverse)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("shape", [(4, 5), (5, 4), (1, 3), (3, 1)])
@same
def test_associative_scan_along(S, shape, axis):
    return S.lax.associative_scan(S.jnp.add, ramp(S, *shape), axis=axis)


@pytest.mark.parametrize("size", [1, 2, 5])
@same
def test_associative_scan_takes_leaves_in_other_trees(S, size):
    """What matters are the leaves that the function returns."""
    pairs = (ramp(S, size) / 5, ramp(S, size))
    return [
        S.lax.associative_scan(lambda a, b: [a[0] * b[0], a[1] * b[0] + b[1]], pairs),
        S.lax.associative_scan(lambda a, b: (a["x"] + b["x"],), {"x": ramp(S, size)}),
    ]


@pytest.mark.parametrize("size", [1, 2, 5])
@same
def test_associative_scan_of_weak_arrays(S, size):
    return S.lax.associative_scan(S.jnp.add, S.jnp.full((size,), 1.0))


def test_associative_scan_keeps_negative_zero():
    result = lax.associative_scan(jnp.add, -jnp.zeros(5))
    assert np.signbit(np.asarray(result)).all()


REDUCERS = {
    "add": lambda S, a, b: a + b,
    "add_of_lax": lambda S, a, b: S.lax.add(a, b),
    "max": lambda S, a, b: S.lax.max(a, b),
    "general": lambda S, a, b: a + b + a * b,
    "general_jit": lambda S, a, b: S.jax.jit(lambda a, b: a + b + a * b)(a, b),
}


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
@pytest.mark.parametrize("name", REDUCERS)
@same()
def test_reduce(S, name, axes):
    x = ramp(S, 3, 5) / 9
    return S.lax.reduce(x, S.jnp.float32(0), functools.partial(REDUCERS[name], S), axes)


@pytest.mark.parametrize("name", ["add", "max", "general"])
@same()
def test_reduce_is_differentiable_and_batched(S, name):
    def total(x):
        return S.lax.reduce(x, S.jnp.float32(0), functools.partial(REDUCERS[name], S), (0,))

    x = ramp(S, 4, 3) / 7
    return S.jax.vmap(total)(x), S.jax.jvp(total, (x[:, 0],), (x[:, 1],))


@same
def test_reduce_of_pairs(S):
    def combine(a, b):
        larger = a[0] >= b[0]
        return S.jnp.where(larger, a[0], b[0]), S.jnp.where(larger, a[1], b[1])

    x = S.jnp.sin(ramp(S, 17))
    return S.lax.reduce((x, S.jnp.arange(17)), (S.jnp.float32(-9), S.jnp.int32(0)), combine, (0,))


# How often bodies are traced


def traces(call, body):
    count = 0

    def counted(*args):
        nonlocal count
        count += 1
        return body(*args)

    call(counted)
    return count


@pytest.mark.parametrize(
    "call, body",
    [
        (lambda f: lax.scan(f, jnp.float32(0), jnp.ones(9)), lambda c, x: (c + x, c)),
        (lambda f: lax.scan(f, 0.0, jnp.ones(9), unroll=3), lambda c, x: (c + x, c)),
        (lambda f: lax.while_loop(lambda c: c < 9, f, 0), lambda c: c + 1),
        (lambda f: lax.while_loop(f, lambda c: c + 1, 0), lambda c: c < 9),
        (lambda f: lax.fori_loop(0, 9, f, 0), lambda i, c: c + i),
        (lambda f: lax.map(f, jnp.ones(9)), lambda x: x),
        (lambda f: lax.cond(True, f, lambda x: x, 1.0), lambda x: x + 1),
        (lambda f: lax.cond(True, lambda x: x, f, 1.0), lambda x: x + 1),
        (lambda f: lax.switch(0, [lambda x: x, f], 1.0), lambda x: x + 1),
    ],
)
def test_bodies_are_traced_once(call, body):
    assert traces(call, body) == 1


def test_promotion_of_a_weak_carry_traces_again():
    assert traces(lambda f: lax.scan(f, 0, jnp.ones(3)), lambda c, x: (c + x, c)) == 2


def test_results_of_unchanged_values_are_arrays():
    total, _ = lax.scan(lambda c, x: (c, x), 3, jnp.ones(2))
    assert isinstance(total, ferrax.Array) and total.dtype == "int32"
    assert isinstance(lax.cond(True, lambda x: x, lambda x: x, 3), ferrax.Array)
    assert isinstance(lax.while_loop(lambda t: t[0] < 2, lambda t: (t[0] + 1, t[1]), (0, 7))[1], ferrax.Array)


def test_captured_arrays_are_not_read_while_tracing():
    # A captured array is an input of the loop: other values run the same program.
    def total(weights):
        return lax.scan(lambda c, x: (c + (weights * x).sum(), None), 0.0, jnp.arange(3.0))[0]

    assert [float(total(jnp.full(2, w))) for w in (1.0, 2.0)] == [6.0, 12.0]


def test_known_array_as_length():
    assert lax.scan(lambda c, _: (c + 1, c), 0, None, length=jnp.int32(3))[1].shape == (3,)


# Values that kernels cannot index and that must be stored: several kernels find out at once.
STORED = {
    "tile": lambda S, x: S.jnp.tile(x, 4),
    "transposed": lambda S, x: S.jnp.outer(x, x + 1).T.ravel(),
    "padded": lambda S, x: S.jnp.pad(S.jnp.tile(x[None], (4, 1)), ((0, 0), (1, 0))).ravel()[:12],
    "reversed": lambda S, x: S.jnp.outer(x, x)[:, ::-1].ravel(),
}


@pytest.mark.parametrize("name", STORED)
@same
def test_several_windows_of_a_moved_value(S, name):
    def f(x):
        y = STORED[name](S, x)
        return [y[start:stop:step] * 2 for start, stop, step in ((0, 5, 1), (0, 7, 1), (1, 9, 2), (0, 8, 1))]

    return S.jax.jit(f)(ramp(S, 3))


@pytest.mark.parametrize("size", [4, 5, 8])
@same
def test_associative_scan_of_tiled_pairs(S, size):
    def f(x, y):
        pairs = S.jnp.tile(x, size), S.jnp.tile(y, size)
        return S.lax.associative_scan(
            lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1] * a[0]), pairs
        )

    return S.jax.jit(f)(ramp(S, 3) / 3, ramp(S, 3) / 5)


# A kernel that goes through padding has other extents than what it pads.
PADDED = {
    "tile": lambda S, x: S.jnp.pad(S.jnp.tile(x, 4), (0, 2)),
    "tile_in_front": lambda S, x: S.jnp.pad(S.jnp.tile(x, 4), (3, 0)),
    "tile_between": lambda S, x: S.lax.pad(S.jnp.tile(x, 4), np.float32(9), ((0, 0, 2),)),
    "tile_by_whole_rows": lambda S, x: S.jnp.pad(S.jnp.tile(x, 4), (0, 2 * x.size)),
    "reversed_tile": lambda S, x: S.jnp.pad(S.jnp.tile(x, 4)[::-1], (0, 1)),
    "transposed": lambda S, x: S.jnp.pad(S.jnp.outer(x, x + 1).T.ravel(), (0, 2)),
    "repeat": lambda S, x: S.jnp.pad(S.jnp.repeat(x, 3), (0, 2)),
    "iota": lambda S, x: S.jnp.pad(S.lax.broadcasted_iota("float32", (4, 5), 1).ravel(), (0, 2)) * x[0],
    "cut": lambda S, x: S.lax.pad(S.jnp.tile(x, 4), np.float32(0), ((-1, 3, 0),)),
    "rows": lambda S, x: S.jnp.pad(S.jnp.tile(x, 4).reshape(2, -1), ((0, 1), (0, 1))),
}


@pytest.mark.parametrize("name", PADDED)
@same
def test_padding_of_a_moved_value(S, name):
    return S.jax.jit(functools.partial(PADDED[name], S))(ramp(S, 4))
