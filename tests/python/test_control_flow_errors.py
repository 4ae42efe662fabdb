"""Errors of branches, loops and scans: the class is JAX's, and the text names what differs."""

import re

import numpy as np
import pytest
from oracle import FERRAX, JAX, Raised, attempt

import ferrax
import ferrax.numpy as jnp

HERE = re.escape(__file__)


def ones(S, *shape):
    return S.jnp.ones(shape, "float32")


def float0(*shape):
    return np.zeros(shape, ferrax.float0)


# name: (case, what the text must contain)
CASES = {
    # scan
    "scan_not_callable": (lambda S: S.lax.scan(3, 0, ones(S, 3)), ["callable", "got int"]),
    "scan_not_a_pair": (lambda S: S.lax.scan(lambda c, x: c + x, 0.0, ones(S, 3)), ["must be a pair", r"float32\[\]"]),
    "scan_triple": (lambda S: S.lax.scan(lambda c, x: (c, x, x), 0.0, ones(S, 3)), ["must be a pair"]),
    "scan_no_values": (lambda S: S.lax.scan(lambda c, x: (c, x), 0.0), ["`length` not provided"]),
    "scan_scalar_xs": (lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, 1.0), ["no leading axis", "1.0"]),
    "scan_list_xs": (lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, [1.0, 2.0]), ["no leading axis"]),
    "scan_sizes": (
        lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, {"a": ones(S, 2), "b": ones(S, 3, 1)}),
        ["different leading axis sizes: 2, 3", r"xs\['a'\] has type float32\[2\]", r"xs\['b'\] has type float32\[3,1\]"],
    ),
    "scan_length": (
        lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, (ones(S, 2),), length=3),
        ["`length` argument of 3", r"\[2\]", r"xs\[0\] has type float32\[2\]"],
    ),
    "scan_traced_length": (
        lambda S: S.jax.jit(lambda n: S.lax.scan(lambda c, _: (c, c), 0.0, None, length=n))(3),
        ["`length`", "while_loop", "argument n"],
    ),
    "scan_bad_length": (lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, None, length="a"), []),
    "scan_unroll": (lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, ones(S, 2), unroll=-1), ["unroll", "-1"]),
    "scan_float_unroll": (
        lambda S: S.lax.scan(lambda c, x: (c + x, c), 0.0, ones(S, 3), unroll=1.5), ["unroll", "1.5 of type float"]),
    "scan_string_unroll": (lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, ones(S, 3), unroll="a"), ["unroll", "'a'"]),
    "fori_float_unroll": (
        lambda S: S.lax.fori_loop(0, 3, lambda i, c: c + i, 0.0, unroll=1.5), ["unroll", "1.5 of type float"]),
    "scan_traced_unroll": (
        lambda S: S.jax.jit(lambda n: S.lax.scan(lambda c, x: (c, x), 0.0, ones(S, 2), unroll=n))(1), ["unroll"]),
    "scan_string": (lambda S: S.lax.scan(lambda c, x: (c, x), "a", ones(S, 2)), ["'a'", "str"]),
    "scan_string_xs": (lambda S: S.lax.scan(lambda c, x: (c, x), 0.0, ["a"]), ["'a'", "str"]),
    "scan_string_result": (
        lambda S: S.lax.scan(lambda c, x: (c, {"k": "a"}), 0.0, ones(S, 2)), ["str", r"\[1\]\['k'\]", "'a'"]),
    "scan_dtype": (
        lambda S: S.lax.scan(lambda c, x: (c + 1.5, None), S.jnp.arange(3), ones(S, 3)),
        [r"carry c has type int32\[3\]", r"float32\[3\]", "dtypes do not match"],
    ),
    "scan_shape": (
        lambda S: S.lax.scan(lambda c, x: (c[:1], None), ones(S, 3), ones(S, 3)),
        [r"float32\[3\]", r"float32\[1\]", "shapes do not match"],
    ),
    "scan_leaves": (
        lambda S: S.lax.scan(
            lambda state, x: ({"a": state["b"], "b": state["a"], "c": state["c"]}, None),
            {"a": ones(S, 2), "b": S.jnp.arange(2), "c": ones(S)}, ones(S, 3)),
        [r"component state\['a'\] has type float32\[2\]", r"component state\['b'\] has type int32\[2\]", r"(?s)^(?!.*state\['c'\])"],
    ),
    "scan_weak_does_not_shrink": (
        lambda S: S.lax.scan(lambda c, x: (S.jnp.int32(c), None), 1.5, ones(S, 3)), [r"float32\[\]", r"int32\[\]"]),
    "scan_tree": (
        lambda S: S.lax.scan(lambda c, x: ((c, c), None), 0.0, ones(S, 3)),
        ["same pytree structure", "carry c is a pytree leaf", "tuple"],
    ),
    "scan_tree_lengths": (
        lambda S: S.lax.scan(lambda c, x: (c[:1], None), (0.0, 1.0), ones(S, 3)), ["tuple of length 2", "tuple of length 1"]),
    "scan_tree_keys": (
        lambda S: S.lax.scan(lambda c, x: ({"b": c["a"]}, None), {"a": 0.0}, ones(S, 3)), ["same pytree structure"]),
    "scan_list_for_tuple": (
        lambda S: S.lax.scan(lambda c, x: ([c[0]], None), (0.0,), ones(S, 3)), ["tuple", "list", "Python types differ"]),
    "scan_none_carry": (
        lambda S: S.lax.scan(lambda c, x: (None, None), 0.0, ones(S, 3)), ["pytree leaf", "NoneType"]),
    "scan_bool_of_carry": (
        lambda S: S.lax.scan(lambda c, x: (c if c > 0 else x, c), 0.0, ones(S, 3)), ["the argument c of"]),
    "scan_bool_of_element": (
        lambda S: S.lax.scan(lambda c, x: (c if x["k"] > 0 else c, c), 0.0, {"k": ones(S, 3)}), [r"argument x\['k'\]"]),
    "scan_float_of_element": (lambda S: S.lax.scan(lambda c, x: (c + float(x), c), 0.0, ones(S, 3)), []),
    "scan_numpy_of_element": (lambda S: S.lax.scan(lambda c, x: (c + np.sin(x), c), 0.0, ones(S, 3)), []),
    "scan_range_of_element": (
        lambda S: S.lax.scan(lambda c, x: (c + sum(range(x)), c), 0, S.jnp.arange(3)), []),
    "scan_arguments": (lambda S: S.lax.scan(lambda c: (c, c), 0.0, ones(S, 3)), ["positional argument"]),
    "scan_empty_python": (lambda S: _disabled(S, lambda: S.lax.scan(lambda c, x: (c, x), 0.0, ones(S, 0))), ["zero-length"]),
    # while_loop and fori_loop
    "while_not_callable": (lambda S: S.lax.while_loop(3, lambda c: c, 0), ["callable"]),
    "while_int_condition": (lambda S: S.lax.while_loop(lambda c: 1, lambda c: c, 0), ["boolean scalar", r"int32\[\]"]),
    "while_vector_condition": (
        lambda S: S.lax.while_loop(lambda c: c < 3, lambda c: c + 1, ones(S, 2)), ["boolean scalar", r"bool\[2\]"]),
    "while_tuple_condition": (lambda S: S.lax.while_loop(lambda c: (c < 1,), lambda c: c, 0), ["boolean scalar", "pytree"]),
    "while_none_condition": (lambda S: S.lax.while_loop(lambda c: None, lambda c: c, 0), ["boolean scalar", "pytree"]),
    "while_python_condition": (
        lambda S: S.lax.while_loop(lambda c: c > 0 and True, lambda c: c - 1, 3), ["argument c"]),
    "while_dtype": (
        lambda S: S.lax.while_loop(lambda c: c < 3, lambda c: c + 0.5, S.jnp.int32(0)),
        [r"carry c has type int32\[\]", r"float32\[\]", "while_loop body"],
    ),
    "while_shape": (
        lambda S: S.lax.while_loop(lambda t: t[0] < 3, lambda t: (t[0] + 1, t[1][None]), (0, ones(S, 2))),
        [r"component t\[1\] has type float32\[2\]", r"float32\[1,2\]"],
    ),
    "while_tree": (lambda S: S.lax.while_loop(lambda c: c < 3, lambda c: (c, c), 0), ["same pytree structure"]),
    "while_string": (lambda S: S.lax.while_loop(lambda c: True, lambda c: c, "a"), ["'a'"]),
    "fori_not_callable": (lambda S: S.lax.fori_loop(0, 3, 5, 0.0), ["callable"]),
    "fori_dtypes": (lambda S: S.lax.fori_loop(S.jnp.int8(0), S.jnp.int16(3), lambda i, c: c, 0.0), ["int8 and int16"]),
    "fori_float_and_int": (lambda S: S.lax.fori_loop(0, 3.5, lambda i, c: c, 0.0), ["int32 and float32"]),
    "fori_vector": (lambda S: S.lax.fori_loop(0, S.jnp.ones(2, "int32"), lambda i, c: c, 0.0), [r"scalars", r"int32\[2\]"]),
    "fori_unroll": (
        lambda S: S.jax.jit(lambda n: S.lax.fori_loop(0, n, lambda i, c: c + i, 0.0, unroll=2))(3), ["statically known"]),
    "fori_carry": (
        lambda S: S.lax.fori_loop(0, 3, lambda i, c: c[:2], ones(S, 3)), [r"float32\[3\]", r"float32\[2\]"]),
    "fori_bool_of_index": (lambda S: S.lax.fori_loop(0, 3, lambda i, c: c if i > 0 else c + 1, 0.0), ["argument i of"]),
    "fori_bool_of_value": (lambda S: S.lax.fori_loop(0, 3, lambda i, value: value + 1 if value > 0 else value, 0.0), ["argument value of"]),
    "fori_bool_of_traced_bound": (
        lambda S: S.jax.jit(lambda n: S.lax.fori_loop(0, n, lambda i, c: c if i > 0 else c + 1, 0.0))(3), ["argument i of"]),
    # cond and switch
    "cond_vector": (lambda S: S.lax.cond(ones(S, 2) > 0, lambda: 1, lambda: 2), ["scalar", r"\(2,\)"]),
    "cond_list": (lambda S: S.lax.cond([True], lambda: 1, lambda: 2), ["scalar", "list"]),
    "cond_none": (lambda S: S.lax.cond(None, lambda: 1, lambda: 2), ["None"]),
    "cond_string": (lambda S: S.lax.cond("a", lambda: 1, lambda: 2), ["'a'"]),
    "cond_complex": (lambda S: S.lax.cond(1j, lambda: 1, lambda: 2), ["complex64"]),
    "cond_dict": (lambda S: S.lax.cond({}, lambda: 1, lambda: 2), ["{}"]),
    "cond_not_callable": (lambda S: S.lax.cond(True, 1, lambda x: x), ["callable"]),
    "cond_one_function": (lambda S: S.lax.cond(True, lambda: 1, 2), ["callable"]),
    "cond_two_operands": (lambda S: S.lax.cond(True, lambda x: x, lambda x: x, 1, operand=3), ["'operand'"]),
    "cond_arguments": (lambda S: S.lax.cond(True, lambda x: x, lambda x, y: x, 1.0), ["positional argument"]),
    "cond_string_result": (lambda S: S.lax.cond(True, lambda: "a", lambda: "b"), ["'a'"]),
    "cond_string_operand": (lambda S: S.lax.cond(True, lambda x: 1, lambda x: 2, "a"), ["'a'"]),
    "cond_dtypes": (
        lambda S: S.lax.cond(True, lambda: 1, lambda: S.jnp.float32(2)),
        [r"output of true_fun has type int32\[\]", r"false_fun has type float32\[\]", "dtypes do not match"],
    ),
    "cond_leaves": (
        lambda S: S.lax.cond(
            True, lambda x: {"a": x, "b": (x, x)}, lambda x: {"a": x.astype("int32"), "b": (x, x[:1])}, ones(S, 2)),
        [r"true_fun at path \['a'\] has type float32\[2\]", r"int32\[2\]", r"path \['b'\]\[1\]", r"(?s)^(?!.*\['b'\]\[0\])"],
    ),
    "cond_trees": (lambda S: S.lax.cond(True, lambda: [1], lambda: (1,)), ["list", "tuple", "pytree structure"]),
    "cond_float0": (
        lambda S: S.lax.cond(True, lambda: (float0(3), 1.0), lambda: (float0(2), 1.0)),
        [r"true_fun at path \[0\] has type float0\[3\]", r"float0\[2\]", "shapes do not match"],
    ),
    "scan_float0": (
        lambda S: S.lax.scan(lambda c, x: ((float0(3), c[1]), x), (float0(2), 0.0), ones(S, 3)),
        [r"component c\[0\] has type float0\[2\]", r"float0\[3\]", "shapes do not match"],
    ),
    "scan_float0_for_array": (
        lambda S: S.lax.scan(lambda c, x: ((float0(2), c[1]), x), (ones(S, 2), 0.0), ones(S, 3)),
        [r"component c\[0\] has type float32\[2\]", r"float0\[2\]", "dtypes do not match"],
    ),
    "cond_none_for_array": (lambda S: S.lax.cond(True, lambda: 1, lambda: None), ["pytree leaf", "NoneType"]),
    "cond_old_form": (
        lambda S: S.lax.cond(True, 1, lambda x: x, 2.0, lambda x: x), ["true_fun", r"int32\[\]", r"float32\[\]", HERE]),
    "cond_bool_in_branch": (
        lambda S: S.lax.cond(True, lambda x: x if x > 0 else -x, lambda x: x, 1.0), ["argument x of"]),
    "cond_raises": (lambda S: S.lax.cond(True, lambda: 1, lambda: {}["missing"]), ["missing"]),
    "switch_float": (lambda S: S.lax.switch(1.0, [lambda: 1, lambda: 2]), ["integer", "float32"]),
    "switch_bool": (lambda S: S.lax.switch(True, [lambda: 1, lambda: 2]), ["integer", "bool"]),
    "switch_vector": (lambda S: S.lax.switch(S.jnp.arange(2), [lambda: 1, lambda: 2]), ["scalar"]),
    "switch_string": (lambda S: S.lax.switch("a", [lambda: 1, lambda: 2]), ["'a'"]),
    "switch_empty": (lambda S: S.lax.switch(1, []), ["Empty"]),
    "switch_not_callable": (lambda S: S.lax.switch(1, [3]), ["callable", "int"]),
    "switch_branch": (
        lambda S: S.lax.switch(1, [lambda x: x, lambda x: x, lambda x: x[0]], ones(S, 2)),
        ["branch 0", "branch ?2", r"float32\[2\]", r"float32\[\]"],
    ),
    # the others
    "map_scalar": (lambda S: S.lax.map(lambda x: x, 1.0), ["no leading axis"]),
    "map_sizes": (lambda S: S.lax.map(lambda x: x, (ones(S, 2), ones(S, 3))), ["2, 3"]),
    "map_sizes_batched": (lambda S: S.lax.map(lambda x: x, (ones(S, 2), ones(S, 3)), batch_size=0), []),
    "map_bool": (lambda S: S.lax.map(lambda row: 1 if row.sum() > 0 else 2, ones(S, 2, 2)), ["argument row of"]),
    "associative_not_callable": (lambda S: S.lax.associative_scan(3, ones(S, 3)), ["callable"]),
    "associative_axis": (lambda S: S.lax.associative_scan(S.jnp.add, ones(S, 3, 2), axis=2), ["axis 2"]),
    "associative_scalar": (lambda S: S.lax.associative_scan(S.jnp.add, ones(S)), ["axis 0"]),
    "associative_sizes": (
        lambda S: S.lax.associative_scan(S.jnp.add, (ones(S, 3), ones(S, 4))), [r"elems\[1\] has type float32\[4\]"]),
    "associative_tree": (lambda S: S.lax.associative_scan(lambda a, b: (a, b), ones(S, 3)), ["must return what it takes"]),
    "barrier_string": (lambda S: S.lax.optimization_barrier("a"), ["'a'"]),
}  # fmt: skip


def _disabled(S, call):
    with S.jax.disable_jit():
        return call()


@pytest.mark.parametrize("name", CASES)
def test_error(name):
    case, fragments = CASES[name]
    ours, theirs = attempt(case, FERRAX), attempt(case, JAX)
    assert isinstance(theirs, Raised), f"jax returned {theirs!r}"
    assert isinstance(ours, Raised), f"ferrax returned {ours!r}"
    assert ours.name == theirs.name, f"{ours!r} where jax has {theirs!r}"
    for fragment in fragments:
        assert re.search(fragment, str(ours.error)), f"{fragment!r} is not in {ours.error}"


@pytest.mark.parametrize(
    "case",
    [
        lambda S: S.lax.cond(S.random.key(0), lambda: 1, lambda: 2),
        lambda S: S.lax.switch(S.random.key(0), [lambda: 1, lambda: 2]),
    ],
)
def test_keys_choose_nothing(case):
    with pytest.raises(TypeError, match="key"):
        case(FERRAX)


# Those that are about what the user's function returned say where the call is.
@pytest.mark.parametrize(
    "name",
    [name for name in CASES if re.search("dtype|shape|tree|leaves|sizes|_length|bool_of|triple|condition", name)
     and name not in ("map_sizes_batched", "associative_tree", "fori_dtypes", "scan_bad_length")],
)  # fmt: skip
def test_the_text_names_the_users_line(name):
    error = attempt(CASES[name][0], FERRAX).error
    assert re.search(HERE + r":\d+", str(error)), str(error)


def test_a_failed_body_leaves_no_trace():
    for name in ("scan_bool_of_carry", "while_python_condition", "cond_raises", "switch_branch"):
        attempt(CASES[name][0], FERRAX)
        assert FERRAX.jax._core.trace_state_clean()
    assert float(FERRAX.lax.scan(lambda c, x: (c + x, None), 0.0, ones(FERRAX, 3))[0]) == 3.0


@pytest.mark.parametrize("name", ["cond", "switch", "in a scan"])
def test_branches_chosen_by_tangents_are_not_linear(name):
    lax = ferrax.lax
    f = ferrax.custom_jvp(lambda x: x * x)

    def choose(t):
        if name == "switch":
            return lax.switch(jnp.int32(t), [lambda t: t, lambda t: 2 * t], t)
        return lax.cond(t > 0, lambda t: t, lambda t: 2 * t, t)

    def slope(t):
        return lax.scan(lambda c, _: (choose(c), None), t, None, length=2)[0] if name == "in a scan" else choose(t)

    f.defjvp(lambda primals, tangents: (primals[0] ** 2, slope(tangents[0])))
    assert ferrax.jvp(f, (0.5,), (1.0,))[1] == (2.0 if name == "switch" else 1.0)
    with pytest.raises(NotImplementedError, match="predicate depends on a linear input"):
        ferrax.grad(f)(0.5)
