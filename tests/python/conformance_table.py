"""The table of `test_conformance`: for each documented op, functions and the arguments to try.

An entry says how to call the op (through `lax` where there is a function of it, so that the
reference library runs the same), for which arguments, and at which points derivatives exist.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

import ferrax
from ferrax import _core

BF16 = ferrax.dtypes.bfloat16
FLOATS = (np.float32, np.float64, BF16, np.float16)
COMPLEX = (np.complex64, np.complex128)
INTS = (np.int8, np.uint8, np.int32, np.uint32, np.int64)
SHAPES = ((9,), (), (2, 3), (3, 0))


@dataclasses.dataclass
class Entry:
    """`call(S, *args)`; `cases` are tuples of NumPy arguments; `smooth` float64 arguments.

    `loose` multiplies the bound on errors; where terms are summed that may cancel, `sums` says so.
    """

    call: Callable
    cases: list
    smooth: tuple | None = None
    loose: float = 1.0
    sums: bool = False
    batch: bool = True


ENTRIES: dict[str, Entry] = {}


def add(name, call, cases, smooth=None, **options):
    assert name not in ENTRIES
    ENTRIES[name] = Entry(call, list(cases), smooth, **options)


def data(shape, dtype, seed=0, low=-3.0, high=3.0, special=True):
    """Deterministic values; floats of one axis of 9 contain signed zeros, infinities and NaN."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed + 17 * len(shape))
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = rng.integers(max(info.min, -100), min(info.max, 100), shape).astype(dtype)
        if special and shape == (9,):
            values[:4] = [info.min, info.max, 0, 1]
        return np.asarray(values, dtype)
    values = rng.uniform(low, high, shape)
    if dtype.kind == "c":
        return np.asarray(values + 1j * rng.uniform(low, high, shape)).astype(dtype)
    if special and shape == (9,):
        values[:6] = np.roll([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], seed)
    return np.asarray(values).astype(dtype)


def unary(name, function=None, dtypes=FLOATS + COMPLEX, low=-3.0, high=3.0, smooth=True, loose=1.0, **kw):
    function = function or name
    cases = [(data(s, d, 0, low, high),) for d, s in itertools.product(dtypes, SHAPES)]
    point = (data((4,), np.float64, 3, low * 0.9, high * 0.9, False),) if smooth else None
    add(name, lambda S, x: getattr(S.lax, function)(x, **kw), cases, point, loose=loose)


for name in ("neg", "exp", "expm1", "tanh", "sin", "cos", "logistic", "square", "sinh", "cosh", "asinh"):
    unary(name)
unary("sign", dtypes=FLOATS + INTS[:1] + INTS[2:3] + COMPLEX)
unary("tan", low=-1.2, high=1.2)
unary("floor", dtypes=FLOATS)
unary("ceil", dtypes=FLOATS)
unary("is_finite", dtypes=FLOATS, smooth=False)
unary("exp2")
unary("log", low=0.1)
unary("log1p", low=-0.8)
unary("asin", low=-0.9, high=0.9)
unary("acos", low=-0.9, high=0.9)
unary("atan", low=-0.9, high=0.9)
unary("acosh", low=1.1)
unary("atanh", low=-0.9, high=0.9)
unary("sqrt", low=0.1)
unary("rsqrt", low=0.1)
unary("cbrt", dtypes=FLOATS, low=0.1)
unary("abs", dtypes=FLOATS + COMPLEX + (np.int8, np.int32))
unary("not", "bitwise_not", dtypes=(*INTS, np.bool_), smooth=False)
unary("population_count", dtypes=INTS, smooth=False)
unary("clz", dtypes=INTS, smooth=False)
unary("real", dtypes=COMPLEX, smooth=False)
unary("imag", dtypes=COMPLEX, smooth=False)
unary("conj", dtypes=COMPLEX, smooth=False)
unary("erf", dtypes=FLOATS)
unary("erfc", dtypes=FLOATS, loose=4)
unary("erf_inv", dtypes=FLOATS, low=-0.9, high=0.9, loose=4)
unary("lgamma", dtypes=FLOATS, low=0.2, loose=8)
unary("digamma", dtypes=FLOATS, low=0.3, loose=8, smooth=False)
unary("round", dtypes=FLOATS)
unary("stop_gradient", dtypes=FLOATS[:1] + INTS[:1])
add("copy", lambda S, x: S.jnp.copy(x), [(data(s, d),) for d in (*FLOATS, np.int32) for s in SHAPES],
    (data((3,), np.float64),))
ENTRIES["stop_gradient"].smooth = None


def binary(name, function=None, dtypes=FLOATS + COMPLEX, low=-3.0, high=3.0, smooth=True, shift=False, loose=1.0):
    function = function or name
    cases = []
    for dtype, shape in itertools.product(dtypes, SHAPES):
        x, y = data(shape, dtype, 0, low, high), data(shape, dtype, 2, low, high)
        if shift:
            y = np.asarray(np.abs(y.astype("int64")) % 70, dtype)
        cases.append((x, y))
    point = (
        (data((4,), np.float64, 3, low, high, False), data((4,), np.float64, 5, low, high, False))
        if smooth
        else None
    )
    add(name, lambda S, x, y: getattr(S.lax, function)(x, y), cases, point, loose=loose)


for name in ("add", "sub", "mul"):
    binary(name, dtypes=FLOATS + COMPLEX + INTS)
binary("div", dtypes=FLOATS + COMPLEX + INTS[2:3] + INTS[3:4])
binary("rem", dtypes=FLOATS + INTS, smooth=True)
binary("pow", dtypes=FLOATS + COMPLEX, low=0.3, loose=2)
binary("max", dtypes=FLOATS + INTS + COMPLEX[:1] + (np.bool_,))
binary("min", dtypes=FLOATS + INTS + COMPLEX[:1] + (np.bool_,))
binary("and", "bitwise_and", dtypes=(*INTS, np.bool_), smooth=False)
binary("or", "bitwise_or", dtypes=(*INTS, np.bool_), smooth=False)
binary("xor", "bitwise_xor", dtypes=(*INTS, np.bool_), smooth=False)
binary("shift_left", dtypes=INTS, smooth=False, shift=True)
binary("shift_right_arithmetic", dtypes=INTS, smooth=False, shift=True)
binary("shift_right_logical", dtypes=INTS, smooth=False, shift=True)
binary("atan2", dtypes=FLOATS)
binary("nextafter", dtypes=FLOATS[:2], smooth=False)
binary("complex", dtypes=FLOATS[:2], smooth=True)
for name in ("eq", "ne"):
    binary(name, dtypes=FLOATS + COMPLEX + INTS + (np.bool_,), smooth=False)
for name in ("lt", "le", "gt", "ge"):
    binary(name, dtypes=FLOATS + INTS + (np.bool_,), smooth=False)

f64 = lambda *shape, seed=1: data(shape, np.float64, seed, special=False)  # noqa: E731
MIXED = (np.float32, np.float64, BF16, np.int32, np.complex64, np.bool_)


def structural(name, variants, dtypes=MIXED, smooth=0, batch=True, sums=False):
    """`variants`: pairs of a function of `(S, *arrays)` and the arrays' shapes (or arrays)."""
    cases = []
    for function, shapes in variants:
        for dtype in dtypes:
            arrays = [
                data(s, dtype, i) if isinstance(s, tuple) else np.asarray(s) for i, s in enumerate(shapes)
            ]
            cases.append((function, *arrays))
    point = None
    if smooth is not None:
        function, shapes = variants[smooth]
        arrays = [
            f64(*s, seed=i + 1) if isinstance(s, tuple) else np.asarray(s) for i, s in enumerate(shapes)
        ]
        arrays = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        point = (function, *arrays)
    add(name, lambda S, function, *arrays: function(S, *arrays), cases, point, batch=batch, sums=sums)


I = lambda *values: np.array(values, np.int32)  # noqa: E731, E741

structural("integer_pow", [(lambda S, x, n=n: S.lax.integer_pow(x, n), [s]) for n in (0, 1, 2, 3, 7, -1, -2) for s in
                           ((9,), ())], FLOATS + COMPLEX, smooth=6)
structural("reduce_precision", [(lambda S, x: S.lax.reduce_precision(x, 5, 10), [s]) for s in SHAPES]
           + [(lambda S, x: S.lax.reduce_precision(x, 8, 3), [(9,)])], FLOATS[:2], smooth=None)
TARGETS = ("float32", "float64", "bfloat16", "int32", "int8", "uint8", "bool", "complex64")
structural("convert_element_type", [(lambda S, x, d=d: S.lax.convert_element_type(x, d), [(9,)]) for d in TARGETS[:-1]],
           (np.float32, np.float64, BF16, np.int32, np.int8, np.uint32, np.bool_), smooth=1)
structural("bitcast_convert_type", [
    (lambda S, x: S.lax.bitcast_convert_type(x, "uint32"), [(9,)]),
    (lambda S, x: S.lax.bitcast_convert_type(x, "int8"), [(2, 3)]),
    (lambda S, x: S.lax.bitcast_convert_type(x, "uint16"), [()]),
    (lambda S, x: S.lax.bitcast_convert_type(x, "int64"), [(3, 2)]),
], (np.float32, np.int32), smooth=None)
structural("select_n", [
    (lambda S, c, x, y: S.lax.select_n(c, x, y), [np.array([True, False, True]), (3,), (3,)]),
    (lambda S, c, x, y: S.lax.select_n(c, x, y), [np.bool_(True), (2, 3), (2, 3)]),
    (lambda S, c, x, y, z: S.lax.select_n(c, x, y, z), [I(0, 2, 1), (3,), (3,), (3,)]),
])
structural("clamp", [
    (lambda S, lo, x, hi: S.lax.clamp(lo, x, hi), [(9,), (9,), (9,)]),
    (lambda S, lo, x, hi: S.lax.clamp(lo, x, hi), [(), (2, 3), ()]),
    (lambda S, lo, x, hi: S.lax.clamp(lo, x, hi), [(0,), (0,), (0,)]),
], (*FLOATS, np.int32), smooth=None)
ENTRIES["clamp"].smooth = (ENTRIES["clamp"].cases[0][0], np.array(-1.0), np.array([-2.0, -0.5, 0.3, 4.0]), np.array(1.5))
structural("broadcast_in_dim", [
    (lambda S, x: S.lax.broadcast_in_dim(x, (2, 3, 4), (1,)), [(3,)]),
    (lambda S, x: S.lax.broadcast_in_dim(x, (2, 3), (0, 1)), [(1, 3)]),
    (lambda S, x: S.lax.broadcast_in_dim(x, (2, 0), ()), [()]),
])
structural("reshape", [
    (lambda S, x: S.lax.reshape(x, (3, 2)), [(2, 3)]),
    (lambda S, x: S.lax.reshape(x, ()), [(1, 1)]),
    (lambda S, x: S.lax.reshape(x, (0, 7)), [(3, 0)]),
    (lambda S, x: S.lax.reshape(x, (6,), (1, 0)), [(2, 3)]),
])
structural("transpose", [
    (lambda S, x: S.lax.transpose(x, (2, 0, 1)), [(2, 3, 4)]),
    (lambda S, x: S.lax.transpose(x, ()), [()]),
    (lambda S, x: S.lax.transpose(x, (1, 0)), [(3, 0)]),
])
structural("squeeze", [
    (lambda S, x: S.lax.squeeze(x, (0, 2)), [(1, 3, 1)]),
    (lambda S, x: S.lax.squeeze(x, (-1,)), [(0, 1)]),
])
structural("slice", [
    (lambda S, x: S.lax.slice(x, (1, 0), (5, 3), (2, 1)), [(6, 3)]),
    (lambda S, x: S.lax.slice(x, (2,), (2,)), [(4,)]),
    (lambda S, x: S.lax.slice(x, (), ()), [()]),
])
structural("dynamic_slice", [
    (lambda S, x, i, j: S.lax.dynamic_slice(x, (i, j), (2, 2)), [(4, 3), I(k)[0], I(1)[0]]) for k in (-9, -1, 1, 3, 99)
])
structural("dynamic_update_slice", [
    (lambda S, x, u, i: S.lax.dynamic_update_slice(x, u, (i, i * 0)), [(4, 3), (2, 2), I(k)[0]]) for k in (-9, -1, 1, 99)
])
structural("concatenate", [
    (lambda S, x, y, z: S.lax.concatenate([x, y, z], 1), [(2, 3), (2, 0), (2, 1)]),
    (lambda S, x: S.lax.concatenate([x, x], 0), [(3,)]),
])
structural("pad", [
    (lambda S, x, v: S.lax.pad(x, v, [(1, 2, 1), (-1, 0, 0)]), [(3, 4), ()]),
    (lambda S, x, v: S.lax.pad(x, v, [(2, 0, 3)]), [(0,), ()]),
    (lambda S, x, v: S.lax.pad(x, v, [(-1, 3, 2)]), [(4,), ()]),
])
structural("rev", [
    (lambda S, x: S.lax.rev(x, (0, 2)), [(2, 3, 4)]),
    (lambda S, x: S.lax.rev(x, (0,)), [(0, 2)]),
])
# A size as a number; in JAX there are none but of programs that are exported.
structural("dim_as_value", [
    (lambda S, x: S.jnp.asarray(2) if S.jax.__name__ == "jax" else _core.bind(
        "dim_as_value", (), {"dim": 3, "minus": 1, "dtype": S.jnp.asarray(2).dtype}), [()]),
], (np.float32,), smooth=None, batch=False)
structural("iota", [
    (lambda S, x, d=d: S.lax.broadcasted_iota(d, (2, 3), 1), [()]) for d in ("int32", "float32", "uint8", "bfloat16")
], (np.float32,), smooth=None, batch=False)


def _gather(S, x, i, mode, fill=None):
    numbers = S.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    return S.lax.gather(x, i, numbers, (1, 3), mode=mode, fill_value=fill)


ROWS = I(4, 0, 9, -2, 4)[:, None]
structural("gather", [
    (lambda S, x, i: _gather(S, x, i, "clip"), [(5, 3), ROWS]),
    (lambda S, x, i: _gather(S, x, i, "fill"), [(5, 3), ROWS]),
    (lambda S, x, i: _gather(S, x, i, "fill", 7), [(5, 3), ROWS]),
    (lambda S, x, i: _gather(S, x, i, "promise_in_bounds"), [(5, 3), I(4, 0, 1)[:, None]]),
    (lambda S, x, i: _gather(S, x, i, "clip"), [(5, 3), np.zeros((0, 1), np.int32)]),
    (lambda S, x, i: S.lax.gather(
        x, i, S.lax.GatherDimensionNumbers((0,), (1,), (0, 1)), (2, 1), mode="clip"), [(4, 3), I(3, 2)]),
])


def _scatter(S, name, x, i, u, mode, unique):
    numbers = S.lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    return getattr(S.lax, name)(x, i, u, numbers, mode=mode, unique_indices=unique)


UNIQUE = I(4, 0, 9, 2)[:, None]
for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"):
    kinds = (np.float32, np.float64, np.int32) if name in ("scatter_min", "scatter_max") else MIXED[:-1]
    repeated = UNIQUE if name == "scatter" else I(4, 4, 9, -1)[:, None]
    structural(name, [
        (lambda S, x, i, u, n=name, m=m: _scatter(S, n, x, i, u, m, True), [(5, 3), UNIQUE, (4, 3)])
        for m in ("drop", "clip")
    ] + [(lambda S, x, i, u, n=name: _scatter(S, n, x, i, u, "drop", False), [(5, 3), repeated, (4, 3)])], kinds,
        smooth=0)

REDUCED = [((2, 3), (0,)), ((2, 3), (0, 1)), ((9,), (0,)), ((2, 3, 4), (0, 2)), ((3, 0), (1,)), ((), ()), ((1, 3), (0,))]
for name, kinds in {
    "reduce_sum": FLOATS + COMPLEX + INTS,
    "reduce_prod": FLOATS + COMPLEX + INTS,
    "reduce_max": FLOATS + INTS + (np.bool_,),
    "reduce_min": FLOATS + INTS + (np.bool_,),
    "reduce_and": (*INTS, np.bool_),
    "reduce_or": (*INTS, np.bool_),
    "reduce_xor": INTS,
}.items():
    structural(name, [(lambda S, x, n=name, a=a: getattr(S.lax, n)(x, a), [s]) for s, a in REDUCED], kinds,
               smooth=0 if name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min") else None, sums=True)
for name in ("argmax", "argmin"):
    structural(name, [(lambda S, x, n=name, a=a: getattr(S.lax, n)(x, a, "int32"), [s])
                      for s, a in (((9,), 0), ((2, 3), 1), ((2, 3), 0), ((1,), 0), ((0, 3), 1), ((3, 1), 1))],
               FLOATS + INTS + (np.bool_,), smooth=None)
for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    kinds = FLOATS if name == "cumlogsumexp" else FLOATS + INTS
    structural(name, [(lambda S, x, n=name, r=r, a=a: getattr(S.lax, n)(x, a, reverse=r), [s])
                      for s, a, r in (((2, 3), 1, False), ((2, 3), 0, True), ((9,), 0, False), ((0, 2), 0, False),
                                      ((20,), 0, True))], kinds, sums=True)
SORTED = (((9,), 0, 1), ((2, 3), 0, 1), ((2, 3), -1, 2), ((3, 0), 1, 1), ((0, 2), 0, 2), ((1,), 0, 2), ((3, 2, 4), 1, 2))
structural("sort", [(lambda S, x, a=a, k=k: S.lax.sort((S.jnp.round(x) if k == 2 and x.dtype.kind == "f" else x, x),
                                                       dimension=a, num_keys=k), [s]) for s, a, k in SORTED]
           + [(lambda S, x, y, a=a: S.lax.sort((x, y, y), dimension=a), [s, s]) for s, a, _ in SORTED]
           + [(lambda S, x, a=a: S.lax.sort(x, a), [s]) for s, a, _ in SORTED], FLOATS + COMPLEX + (*INTS, np.bool_),
           smooth=len(SORTED) + 1)
structural("top_k", [(lambda S, x, a=a, k=k: S.lax.top_k(x, k, axis=a), [s]) for s, a, k in (
    ((9,), 0, 4), ((2, 3), 0, 1), ((2, 3), -1, 3), ((3, 0), 1, 0), ((0, 2), 1, 1), ((1,), 0, 1), ((3, 2, 4), 0, 2))],
    (*FLOATS, *INTS, np.bool_), smooth=1)
DOTS = [
    (((1,), (0,)), ((), ()), (2, 3), (3, 4)),
    (((2,), (1,)), ((0,), (0,)), (2, 3, 4), (2, 4, 5)),
    (((0, 1), (1, 0)), ((), ()), (2, 3), (3, 2)),
    (((0,), (0,)), ((), ()), (3,), (3,)),
    (((), ()), ((), ()), (2,), (3,)),
    (((1,), (0,)), ((), ()), (2, 0), (0, 3)),
    (((1,), (0,)), ((), ()), (0, 3), (3, 2)),
    (((), ()), ((0,), (0,)), (3,), (3,)),
    (((1,), (1,)), ((), ()), (9, 17), (33, 17)),
]
structural("dot_general", [
    (lambda S, x, y, c=c, b=b: S.lax.dot_general(x, y, (c, b)), [
        np.asarray(data(s, np.float32, 1, special=False)), np.asarray(data(t, np.float32, 2, special=False))])
    for c, b, s, t in DOTS
], (np.float32,), sums=True)
ENTRIES["dot_general"].loose = 4  # the terms are products
ENTRIES["lgamma"].sums = ENTRIES["digamma"].sums = True  # near their zeros
ENTRIES["dot_general"].cases += [
    (function, *(a.astype(d) for a in arrays))
    for function, *arrays in list(ENTRIES["dot_general"].cases)
    for d in (np.float64, np.complex64, np.int32, BF16)
]

KEY_SEEDS = [(np.int32(0),), (np.int32(-1),), (np.uint32(123),), (np.int64(2**40 + 5),)]
RAW = [(np.array([1, 2], np.uint32),), (np.array([[1, 2], [3, 4]], np.uint32),)]


def _key(S, raw):
    return S.random.wrap_key_data(raw)


def _threefry(S, key, x):
    if S.name == "jax":
        from jax.extend.random import threefry_2x32
    else:
        from ferrax._src.random.prng import threefry_2x32
    return threefry_2x32(key, x)


add("threefry2x32", _threefry, [(np.array([1, 2], np.uint32), np.arange(n, dtype=np.uint32)) for n in (1, 6, 7)])
add("random_seed", lambda S, s: S.random.key_data(S.random.key(s)), KEY_SEEDS)
add("random_split", lambda S, r: S.random.key_data(S.random.split(_key(S, r), (2, 3))), RAW[:1])
add("random_fold_in", lambda S, r, d: S.random.key_data(S.random.fold_in(_key(S, r), d)),
    [(RAW[0][0], np.uint32(5)), (RAW[0][0], np.int32(7))])
add("random_bits", lambda S, r: [S.random.bits(_key(S, r), (3, 2), d) for d in ("uint8", "uint16", "uint32", "uint64")],
    RAW[:1])
add("random_wrap", lambda S, r: S.random.key_data(S.random.wrap_key_data(r)), RAW)
add("random_unwrap", lambda S, r: S.random.key_data(S.random.wrap_key_data(r)), RAW)
add("jit", lambda S, x, y: S.jax.jit(lambda a, b: (S.jnp.sin(a) * b, b))(x, y),
    [(data(s, d, 1), data(s, d, 2)) for s in SHAPES for d in (np.float32, BF16, np.complex64)],
    (f64(3), f64(3, seed=2)))
