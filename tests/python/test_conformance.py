"""Every documented op, as the table has it: eager, compiled and by the reference interpreter,
against JAX; batched against a loop; derivatives against differences. All with 64-bit types."""

import warnings

import conformance_collectives  # noqa: F401  adds to the table
import conformance_control  # noqa: F401  adds to the table
import conformance_eigen  # noqa: F401  adds to the table
import conformance_factors  # noqa: F401  adds to the table
import conformance_linalg  # noqa: F401  adds to the table
import conformance_signal  # noqa: F401  adds to the table
import jax
import numpy as np
import pytest
from closeness import norm
from conformance_table import BF16, ENTRIES
from kept_values import reference
from oracle import FERRAX, JAX, compare

import ferrax
import ferrax.numpy as jnp
from ferrax.test_util import check_grads

OPS = [name for name, _ in ferrax._core.documented_ops()]


def test_every_op_has_an_entry():
    assert set(OPS) == set(ENTRIES)


def split(case):
    """Functions choose the variant; arrays are the arguments."""
    fixed = [x for x in case if callable(x)]
    return fixed, [x for x in case if not callable(x)]


HALVES = (np.dtype(BF16), np.dtype(np.float16))
# These move elements or change signs, which determines the signs of NaN as well.
SIGNED_NANS = (
    "copy", "neg", "abs", "reshape", "transpose", "broadcast_in_dim", "concatenate", "slice", "rev", "pad",
    "squeeze", "select_n", "dynamic_slice", "dynamic_update_slice", "gather", "stop_gradient",
)  # fmt: skip


def ulps(dtype):
    return 2 if dtype in HALVES else 16 if dtype.kind == "c" else 4


def bounds(name, arrays):
    """A few ulps, times what the entry is known to be looser by; sums beside terms that cancel."""
    entry = ENTRIES[name]
    terms = [float(np.abs(a[np.isfinite(a)].astype(complex)).max(initial=0.0)) for a in map(np.asarray, arrays)]
    return {
        "ulps": max(ulps(np.asarray(a).dtype) for a in arrays) * entry.loose if arrays else None,
        "cancels": (norm, *terms) if entry.sums else 0.0,
        "weak": False,
    }


def describe(name, case):
    return f"{name}({', '.join(f'{x.dtype.name}{list(x.shape)}' for x in map(np.asarray, split(case)[1]))})"


@pytest.mark.parametrize("name", OPS)
def test_values(name):
    entry = ENTRIES[name]
    with warnings.catch_warnings(), jax.enable_x64(True), ferrax.enable_x64(True):
        warnings.simplefilter("ignore")
        oracle = jax.jit(lambda cases: [entry.call(JAX, *split(c)[0], *arrays) for c, arrays in
                                        zip(entry.cases, cases)])
        expected = reference(lambda: oracle([split(case)[1] for case in entry.cases]))
        problems = []
        for case, wanted in zip(entry.cases, expected):
            fixed, arrays = split(case)
            where = describe(name, case)
            limits = bounds(name, arrays)
            fun = lambda *xs, fixed=fixed: entry.call(FERRAX, *fixed, *xs)  # noqa: E731
            operands = [jnp.asarray(a) for a in arrays]
            jitted = ferrax.jit(fun)
            for how in ("eager", "jit", "interpreter"):
                try:
                    if how == "eager":
                        got = fun(*operands)
                    elif how == "jit":
                        got = jitted(*operands)
                    else:
                        traced = jitted.trace(*operands)
                        leaves = traced._program.interpret(operands + list(traced._captured))
                        got = traced.out_tree.unflatten(list(leaves))
                    compare(got, wanted, f"{where} {how}", zeros=True,
                            nan_signs=how != "interpreter" and name in SIGNED_NANS, **limits)
                except Exception as error:
                    problems.append(f"{where} {how}: {type(error).__name__}: {str(error).strip()[:600]}")
        if problems:
            pytest.fail(f"{len(problems)} of {3 * len(entry.cases)} runs:\n" + "\n".join(problems[:6]))


@pytest.mark.parametrize("name", [name for name in OPS if ENTRIES.get(name) and ENTRIES[name].batch])
def test_batches(name):
    entry = ENTRIES[name]
    with ferrax.enable_x64(True):
        for case in _first_of_each_function(entry.cases):
            fixed, arrays = split(case)
            fun = lambda *xs, fixed=fixed: entry.call(FERRAX, *fixed, *xs)  # noqa: E731
            batched = [jnp.stack([a, a[::-1] if a.ndim else a, a]) for a in map(np.asarray, arrays)]
            rows = [fun(*(b[k] for b in batched)) for k in range(3)]
            wanted = ferrax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *rows)
            for axis in (0, -1):
                moved = [jnp.moveaxis(b, 0, axis) for b in batched]
                got = ferrax.vmap(fun, in_axes=axis)(*moved)
                limits = bounds(name, arrays)
                compare(got, wanted, f"vmap {describe(name, case)} axis {axis}", **limits)
            if len(arrays) > 1:
                axes = (0,) + (None,) * (len(arrays) - 1)
                got = ferrax.vmap(fun, in_axes=axes)(batched[0], *arrays[1:])
                rows = [fun(batched[0][k], *arrays[1:]) for k in range(3)]
                wanted = ferrax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *rows)
                compare(got, wanted, f"vmap {describe(name, case)} first", **limits)


def _first_of_each_function(cases):
    seen, chosen = set(), []
    for case in cases:
        key = tuple(id(x) for x in case if callable(x))
        if key not in seen or (not key and len(chosen) < 3):
            seen.add(key)
            chosen.append(case)
    return chosen


@pytest.mark.parametrize("name", [name for name in OPS if ENTRIES.get(name) and ENTRIES[name].smooth])
def test_derivatives(name):
    entry = ENTRIES[name]
    fixed, arrays = split(entry.smooth)
    with ferrax.enable_x64(True):
        check_grads(
            lambda *xs: entry.call(FERRAX, *fixed, *xs), arrays, order=2, atol=2e-5, rtol=2e-5, eps=1e-5
        )


def test_check_grads_finds_wrong_derivatives():
    """A function whose derivative is not its own: the gradient is stopped in a part."""

    def wrong(x):
        return jnp.sin(x) + ferrax.lax.stop_gradient(0.1 * x)

    with ferrax.enable_x64(True):
        for modes in (["fwd"], ["rev"], "rev"):
            with pytest.raises(AssertionError, match="(JVP|VJP)"):
                check_grads(wrong, (jnp.arange(3.0),), 1, modes)
        second = lambda x: x**2 + ferrax.lax.stop_gradient(x - 1) * (x - 1) ** 2  # noqa: E731
        check_grads(second, (jnp.float64(1.0),), 1)
        with pytest.raises(AssertionError):
            check_grads(lambda x: ferrax.lax.stop_gradient(x) * x - 0.5 * x * x + 0.5 * ferrax.lax.stop_gradient(x * x),
                        (jnp.float64(1.0),), 2)
        with pytest.raises(ValueError, match="modes"):
            check_grads(wrong, (1.0,), 1, ["both"])
    check_grads(lambda x, n: x * n, (jnp.float32(2), 3), 2)
    check_grads(lambda z: jnp.exp(z) * jnp.conj(z), (jnp.complex64(1 + 2j),), 2)
