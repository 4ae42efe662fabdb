"""What `sweep.py` measures: public functions with arguments of some thousand elements, or of a million.

A case names a function by its module and name, or is one of its own, and says of what its arguments are made.
Numbers are within (0.1, 0.9) where nothing else is said, so that all functions of numbers are defined; matrices are
square, those of functions that take longer than their elements are smaller.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """`function(library, *arrays(n))`; `gradient` is how many of the first arrays it is differentiated by."""

    name: str
    function: Callable
    arrays: Callable[[int], list]
    gradient: int = 0
    # Elements that it is measured with at most.
    most: int = 1 << 30


def found(library, path):
    """The function with this path within a library."""
    *modules, name = path.split(".")
    return getattr(importlib.import_module(".".join([library.name, *modules])), name)


def _random(n):
    return np.random.default_rng(n)


def numbers(n, low=0.1, high=0.9, shape=None):
    return _random(n).uniform(low, high, shape or n).astype(np.float32)


def whole(n, low=1, high=100, shape=None):
    return _random(n + 1).integers(low, high, shape or n).astype(np.int32)


def truths(n):
    return _random(n + 2).uniform(size=n) < 0.5


def side(n):
    return max(2, math.isqrt(n))


def square(n, low=0.1, high=0.9):
    return numbers(n, low, high, (side(n), side(n)))


def definite(n):
    """A symmetric matrix whose eigenvalues are positive and apart."""
    a = square(n, -0.5, 0.5)
    return (a @ a.T / side(n) + np.diag(np.linspace(1, 2, side(n)))).astype(np.float32)


def images(n):
    """A batch of pictures of eight features."""
    wide = max(2, math.isqrt(n // 32))
    return numbers(n, shape=(4, wide, wide, 8))


def _named(module, names, arrays, gradient, most=1 << 30, **options):
    """Cases of functions of the same arguments."""

    def case(name):
        path = f"{module}.{name}"
        return Case(path, lambda S, *values: found(S, path)(*values, **options), arrays, gradient, most)

    return [case(name) for name in names.split()]


def _own(name, function, arrays, gradient=1, most=1 << 30):
    return [Case(name, function, arrays, gradient, most)]


def _convolution(name, window, stride=1, groups=1):
    """A convolution of pictures."""

    def function(S, a, k):
        numbers = ("NHWC", "HWIO", "NHWC")
        return S.jax.lax.conv_general_dilated(
            a, k, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    return _own(name, function, lambda n: [images(n), numbers(9, shape=window)], 2)


def _numpy():
    one, two = (lambda n: [numbers(n)]), (lambda n: [numbers(n), numbers(n + 1)[:n]])
    table, pair = (lambda n: [square(n)]), (lambda n: [square(n), square(n)[::-1].copy()])
    integers, both = (lambda n: [whole(n)]), (lambda n: [whole(n), whole(n + 1)[:n]])
    cubic = 300_000
    cases = _named(
        "numpy",
        "abs acos arcsin arctan arctanh asinh cbrt cos cosh deg2rad degrees exp exp2 expm1 fabs i0 log log10 log1p "
        "log2 negative positive reciprocal sin sinc sinh sqrt square tan tanh nan_to_num",
        one,
        1,
    )
    cases += _named("numpy", "arccosh", lambda n: [numbers(n, 1.1, 4)], 1)
    cases += _named("numpy", "ceil floor rint round trunc sign isfinite isnan signbit spacing", one, 0)
    cases += _named(
        "numpy",
        "add arctan2 copysign divide float_power fmax fmin fmod hypot logaddexp logaddexp2 maximum minimum "
        "mod multiply power remainder subtract true_divide",
        two,
        2,
    )
    cases += _named("numpy", "floor_divide heaviside nextafter equal less isclose divmod", two, 0)
    of_integers = _named("numpy", "bitwise_count bitwise_not invert abs sign", integers, 0)
    of_integers += _named(
        "numpy",
        "bitwise_and bitwise_xor left_shift right_shift floor_divide mod gcd lcm multiply power maximum",
        lambda n: [whole(n), whole(n + 1, 1, 6)[:n]],
        0,
    )
    cases += [dataclasses.replace(case, name=f"{case.name}, integers") for case in of_integers]
    cases += _named(
        "numpy",
        "sum prod mean std var max min ptp median nanmean nansum nanmax cumsum cumprod diff trapezoid ravel "
        "sort flip average ediff1d gradient unwrap nancumsum",
        one,
        1,
    )
    cases += _named("numpy", "argmax argmin argsort all any count_nonzero nanargmax", one, 0)
    for axis in (0, 1):
        cases += [
            dataclasses.replace(case, name=f"{case.name} axis={axis}")
            for case in _named(
                "numpy", "sum mean std max prod cumsum cumprod median sort flip diff nanmean", table, 1, axis=axis
            )
        ]
        cases += [
            dataclasses.replace(case, name=f"{case.name} axis={axis}")
            for case in _named("numpy", "argmax argsort all any", table, 0, axis=axis)
        ]
    cases += _named(
        "numpy", "transpose tril triu trace diagonal fliplr flipud rot90 ravel atleast_3d cov corrcoef", table, 1
    )
    cases += _named("numpy", "matmul dot inner tensordot", pair, 2, cubic * 4)
    cases += _own(
        "numpy.convolve, 9", lambda S, x, k: S.jnp.convolve(x, k, mode="same"), lambda n: [numbers(n), numbers(9)], 2
    )
    cases += _own("numpy.correlate, 31", lambda S, x, k: S.jnp.correlate(x, k), lambda n: [numbers(n), numbers(31)], 2)
    cases += _own("numpy.vdot", lambda S, x, y: S.jnp.vdot(x, y), two, 2)
    cases += _own("numpy.matvec", lambda S, a: a @ a[0], table)
    cases += _own("numpy.vecmat", lambda S, a: a[0] @ a, table)
    cases += _own("numpy.einsum ij,ij->i", lambda S, a, b: S.jnp.einsum("ij,ij->i", a, b), pair, 2)
    cases += _own("numpy.einsum ij,jk->ki", lambda S, a, b: S.jnp.einsum("ij,jk->ki", a, b), pair, 2, cubic)
    cases += _own(
        "numpy.einsum bij,bjk->bik",
        lambda S, a: S.jnp.einsum("bij,bjk->bik", a, a),
        lambda n: [numbers(n, shape=(max(1, n // 64), 8, 8))],
    )
    cases += _own("numpy.outer", lambda S, a: S.jnp.outer(a[0], a[1]), table)
    cases += _own("numpy.kron", lambda S, a: S.jnp.kron(a[:4, :4], a), lambda n: [square(n // 16 + 16)])
    cases += _own("numpy.cross", lambda S, a: S.jnp.cross(a, a[::-1]), lambda n: [numbers(n, shape=(n // 3, 3))])
    cases += _own("numpy.concatenate", lambda S, a, b: S.jnp.concatenate([a, b]), two, 2)
    cases += _own("numpy.concatenate axis=1", lambda S, a, b: S.jnp.concatenate([a, b], 1), pair, 2)
    cases += _own("numpy.stack axis=-1", lambda S, a, b: S.jnp.stack([a, b], -1), two, 2)
    cases += _own("numpy.hstack", lambda S, a, b: S.jnp.hstack([a, b]), pair, 2)
    cases += _own("numpy.where", lambda S, c, a, b: S.jnp.where(c, a, b), lambda n: [truths(n), *two(n)], 0)
    cases += _own("numpy.where gradient", lambda S, a, b: S.jnp.where(a > b, a * b, b), two, 2)
    cases += _own("numpy.select", lambda S, a, b: S.jnp.select([a > b, a > 0.5], [a, b], 0.0), two, 2)
    cases += _own("numpy.clip", lambda S, a: S.jnp.clip(a, 0.3, 0.6), one)
    cases += _own("numpy.pad", lambda S, a: S.jnp.pad(a, 3), table)
    cases += _own("numpy.pad reflect", lambda S, a: S.jnp.pad(a, 1, mode="reflect"), table)
    cases += _own("numpy.pad wrap", lambda S, a: S.jnp.pad(a, 1, mode="wrap"), table)
    cases += _own("numpy.roll", lambda S, a: S.jnp.roll(a, 7), one)
    cases += _own("numpy.roll axis=1", lambda S, a: S.jnp.roll(a, 1, axis=1), table)
    cases += _own("numpy.repeat", lambda S, a: S.jnp.repeat(a, 3), one)
    cases += _own("numpy.repeat axis=1", lambda S, a: S.jnp.repeat(a, 3, axis=1), table)
    cases += _own("numpy.tile", lambda S, a: S.jnp.tile(a, 3), one)
    cases += _own("numpy.tile of rows", lambda S, a: S.jnp.tile(a, (2, 2)), table)
    cases += _own("numpy.reshape of transpose", lambda S, a: a.T.reshape(-1), table)
    cases += _own("numpy.moveaxis", lambda S, a: S.jnp.moveaxis(a, -1, 1), lambda n: [images(n)])
    cases += _own("numpy.swapaxes", lambda S, a: S.jnp.swapaxes(a, 0, 1), lambda n: [images(n)])
    cases += _own("numpy.broadcast_to", lambda S, a: S.jnp.broadcast_to(a[0], a.shape), table)
    cases += _own("numpy.take", lambda S, a, i: S.jnp.take(a, i), lambda n: [numbers(n), whole(n, 0, n)])
    cases += _own(
        "numpy.take axis=0", lambda S, a, i: S.jnp.take(a, i, axis=0), lambda n: [square(n), whole(side(n), 0, side(n))]
    )
    cases += _own(
        "numpy.take axis=1", lambda S, a, i: S.jnp.take(a, i, axis=1), lambda n: [square(n), whole(side(n), 0, side(n))]
    )
    cases += _own(
        "numpy.take_along_axis",
        lambda S, a, i: S.jnp.take_along_axis(a, i, 1),
        lambda n: [square(n), whole(n, 0, side(n), (side(n), side(n)))],
    )
    cases += _own("x[i, j]", lambda S, a, i: a[i, i[::-1]], lambda n: [square(n), whole(n, 0, side(n))])
    cases += _own("numpy.where, a number", lambda S, a, c: S.jnp.where(c, 0.0, a), lambda n: [numbers(n), truths(n)])
    cases += _own("x[::2]", lambda S, a: a[::2], one)
    cases += _own("x[::-1]", lambda S, a: a[::-1], one)
    cases += _own("x[1:, :-1]", lambda S, a: a[1:, :-1], table)
    cases += _own("x[:, ::3]", lambda S, a: a[:, ::3], table)
    for kind in ("set", "add", "multiply", "max"):
        cases += _own(
            f"x.at[i].{kind}",
            lambda S, a, b, i, kind=kind: getattr(a.at[i], kind)(b),
            lambda n: [*two(n), whole(n, 0, n)],
            2 if kind in ("set", "add") else 0,
        )
    cases += _own(
        "x.at[i].add to few",
        lambda S, b, i: S.jnp.zeros(16, b.dtype).at[i].add(b),
        lambda n: [numbers(n), whole(n, 0, 16)],
    )
    cases += _own(
        "x.at[i].add of rows", lambda S, a, i: a.at[i].add(a * 0.5), lambda n: [square(n), whole(side(n), 0, side(n))]
    )
    cases += _own("x.at[1:-1].add", lambda S, a: a.at[1:-1].add(a[2:]), one)
    cases += _own("x.at[:, 3].set", lambda S, a: a.at[:, 3].set(a[0]), table)
    cases += _own("numpy.searchsorted", lambda S, a, b: S.jnp.searchsorted(S.jnp.sort(a), b), two, 0)
    cases += _own("numpy.digitize", lambda S, a: S.jnp.digitize(a, S.jnp.linspace(0, 1, 50)), one, 0)
    cases += _own("numpy.interp", lambda S, a, b: S.jnp.interp(a, S.jnp.linspace(0, 1, b.size), b), two, 2)
    cases += _own("numpy.histogram", lambda S, a: S.jnp.histogram(a, 30)[0], one, 0)
    cases += _own("numpy.bincount", lambda S, i: S.jnp.bincount(i, length=128), integers, 0)
    cases += _own("numpy.unique, size", lambda S, i: S.jnp.unique(i, size=100, fill_value=0), integers, 0)
    cases += _own(
        "numpy.nonzero, size", lambda S, c: S.jnp.nonzero(c, size=c.size, fill_value=0)[0], lambda n: [truths(n)], 0
    )
    cases += _own("numpy.isin", lambda S, a, b: S.jnp.isin(a, b[:50]), both, 0)
    cases += _own("numpy.quantile", lambda S, a: S.jnp.quantile(a, 0.3), one)
    cases += _own("numpy.percentile axis=0", lambda S, a: S.jnp.percentile(a, 30, axis=0), table)
    cases += _own("numpy.partition", lambda S, a: S.jnp.partition(a, 20), one, 0)
    cases += _own("numpy.lexsort", lambda S, a, b: S.jnp.lexsort((a, b)), both, 0)
    cases += _own("numpy.polyval", lambda S, a: S.jnp.polyval(a[:8], a), one)
    cases += _own("numpy.vander", lambda S, a: S.jnp.vander(a, 6), one)
    cases += _own("numpy.meshgrid", lambda S, a: sum(S.jnp.meshgrid(a[0], a[1])), table)
    cases += _own("numpy.linspace", lambda S, a: S.jnp.linspace(a[0], a[1], a.size), one)
    cases += _own("numpy.arange * x", lambda S, a: S.jnp.arange(a.size) * a, one)
    cases += _own("numpy.packbits", lambda S, c: S.jnp.packbits(c), lambda n: [truths(n)], 0)
    cases += _own(
        "numpy.unpackbits", lambda S, c: S.jnp.unpackbits(c), lambda n: [whole(n // 8 + 1).astype(np.uint8)], 0
    )
    cases += _own("numpy.astype int", lambda S, a: (a * 100).astype("int32"), one, 0)
    cases += _own("numpy.astype float16", lambda S, a: a.astype("float16"), one)
    cases += _own("numpy.astype bfloat16 and back", lambda S, a: a.astype("bfloat16").astype("float32"), one)
    cases += _own("complex product", lambda S, a, b: (S.jax.lax.complex(a, b) * S.jax.lax.complex(b, a)).real, two, 2)
    cases += _own("complex abs", lambda S, a, b: S.jnp.abs(S.jax.lax.complex(a, b)), two, 2)
    cases += _own("complex exp", lambda S, a, b: S.jnp.exp(S.jax.lax.complex(a, b)).imag, two, 2)
    return cases


def _linear_algebra():
    table, sym = (lambda n: [definite(n)]), (lambda n: [definite(n)])
    cubic = 70_000
    cases = _named("numpy.linalg", "inv det slogdet cholesky norm", sym, 1, cubic)
    cases += _named("numpy.linalg", "qr pinv matrix_rank", table, 0, cubic)
    cases += _own("numpy.linalg.slogdet, gradient", lambda S, a: S.jnp.linalg.slogdet(a)[1], sym, 1, cubic)
    cases += _own("numpy.linalg.eigh", lambda S, a: S.jnp.linalg.eigh(a)[0], sym, 1, cubic)
    cases += _own("numpy.linalg.svd", lambda S, a: S.jnp.linalg.svd(a, compute_uv=False), table, 1, cubic)
    cases += _own("numpy.linalg.solve", lambda S, a: S.jnp.linalg.solve(a, a[0]), sym, 1, cubic)
    cases += _own("numpy.linalg.lstsq", lambda S, a: S.jnp.linalg.lstsq(a[:, :8], a[:, 9])[0], sym, 1)
    cases += _own("numpy.linalg.matrix_power", lambda S, a: S.jnp.linalg.matrix_power(a, 5), sym, 1, cubic)
    cases += _own("numpy.linalg.multi_dot", lambda S, a: S.jnp.linalg.multi_dot([a, a, a[:, :3]]), sym, 1, 300_000)
    cases += _own("scipy.linalg.expm", lambda S, a: found(S, "scipy.linalg.expm")(a * 0.1), sym, 1, cubic)
    cases += _own(
        "scipy.linalg.solve_triangular",
        lambda S, a: found(S, "scipy.linalg.solve_triangular")(a, a, lower=True),
        sym,
        1,
        cubic,
    )
    cases += _own(
        "scipy.linalg.cho_solve",
        lambda S, a: found(S, "scipy.linalg.cho_solve")((found(S, "scipy.linalg.cholesky")(a), False), a[0]),
        sym,
        1,
        cubic,
    )
    cases += _own("scipy.linalg.lu", lambda S, a: found(S, "scipy.linalg.lu")(a)[2], sym, 1, cubic)
    cases += _own(
        "3x3 inverses",
        lambda S, a: S.jnp.linalg.inv(a + 3 * S.jnp.eye(3)),
        lambda n: [numbers(n, shape=(n // 9, 3, 3))],
    )
    cases += _own("4x4 determinants", lambda S, a: S.jnp.linalg.det(a), lambda n: [numbers(n, shape=(n // 16, 4, 4))])
    cases += _own(
        "8x8 choleskys",
        lambda S, a: S.jnp.linalg.cholesky(a @ a.mT + S.jnp.eye(8)),
        lambda n: [numbers(n, shape=(max(1, n // 64), 8, 8))],
        1,
        300_000,
    )
    cases += _own(
        "4x4 solves",
        lambda S, a: S.jnp.linalg.solve(a + 4 * S.jnp.eye(4), a[..., :1]),
        lambda n: [numbers(n, shape=(n // 16, 4, 4))],
        1,
        300_000,
    )
    return cases


def _lax():
    one, two = (lambda n: [numbers(n)]), (lambda n: [numbers(n), numbers(n + 1)[:n]])
    table = lambda n: [square(n)]  # noqa: E731
    cases = _named("lax", "erf erf_inv erfc lgamma digamma rsqrt logistic cbrt bessel_i0e bessel_i1e", one, 1)
    cases += _named("lax", "cumsum cummax cumlogsumexp cumprod", one, 1)
    cases += _named("lax", "igamma igammac nextafter", two, 0)
    cases += _named("lax", "clz population_count", lambda n: [whole(n)], 0)
    cases += _own("lax.integer_pow 3", lambda S, a: S.jax.lax.integer_pow(a, 3), one)
    cases += _own("lax.top_k 10", lambda S, a: S.jax.lax.top_k(a, 10)[0], table)
    cases += _own("lax.sort, two operands", lambda S, a, b: S.jax.lax.sort((a, b), num_keys=1)[1], two, 0)
    cases += _own("lax.associative_scan add", lambda S, a: S.jax.lax.associative_scan(S.jnp.add, a), one)
    cases += _own(
        "lax.associative_scan of pairs",
        lambda S, a, b: S.jax.lax.associative_scan(lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (a, b))[1],
        two,
        2,
    )
    cases += _own(
        "lax.scan of rows", lambda S, a: S.jax.lax.scan(lambda c, x: (0.5 * c + x, c.sum()), a[0], a)[1], table
    )
    cases += _own(
        "lax.scan of numbers",
        lambda S, a: S.jax.lax.scan(lambda c, x: (S.jnp.sin(c) + x, c), 0.0, a)[1],
        one,
        1,
        300_000,
    )
    cases += _own("lax.map of rows", lambda S, a: S.jax.lax.map(lambda r: r / (1 + r.sum()), a), table)
    cases += _own(
        "lax.reduce_window max",
        lambda S, a: S.jax.lax.reduce_window(a, -np.inf, S.jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        lambda n: [images(n)],
    )
    cases += _own(
        "lax.reduce_window add",
        lambda S, a: S.jax.lax.reduce_window(a, 0.0, S.jax.lax.add, (3, 3), (1, 1), "SAME"),
        table,
    )
    cases += _convolution("lax.conv 3x3", (3, 3, 8, 8))
    cases += _convolution("lax.conv depthwise", (3, 3, 1, 8), groups=8)
    cases += _convolution("lax.conv 1x1, stride 2", (1, 1, 8, 16), stride=2)
    cases += _own(
        "lax.conv 1-d, 7",
        lambda S, a, k: S.jax.lax.conv_general_dilated(a, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        lambda n: [numbers(n, shape=(1, n // 4, 4)), numbers(7, shape=(7, 4, 4))],
        2,
    )
    cases += _own(
        "lax.conv_transpose",
        lambda S, a, k: S.jax.lax.conv_transpose(a, k, (2, 2), "SAME"),
        lambda n: [images(n), numbers(9, shape=(3, 3, 8, 8))],
        2,
    )
    cases += _own(
        "lax.dynamic_slice",
        lambda S, a, i: S.jax.lax.dynamic_slice(a, (i[0],), (a.size // 2,)),
        lambda n: [numbers(n), whole(4)],
    )
    cases += _own(
        "lax.dynamic_update_slice",
        lambda S, a, i: S.jax.lax.dynamic_update_slice(a, a[::2], (i[0],)),
        lambda n: [numbers(n), whole(4)],
    )
    cases += _own("lax.population_count and shifts", lambda S, i: (i << 3) ^ (i >> 2) & 255, lambda n: [whole(n)], 0)
    cases += _own(
        "ops.segment_sum", lambda S, a, i: S.jax.ops.segment_sum(a, i, 100), lambda n: [numbers(n), whole(n, 0, 100)]
    )
    cases += _own(
        "ops.segment_sum, sorted",
        lambda S, a, i: S.jax.ops.segment_sum(a, i, 100, indices_are_sorted=True),
        lambda n: [numbers(n), np.sort(whole(n, 0, 100))],
    )
    cases += _own(
        "ops.segment_max", lambda S, a, i: S.jax.ops.segment_max(a, i, 100), lambda n: [numbers(n), whole(n, 0, 100)]
    )
    cases += _own("vmap of dot", lambda S, a: S.jax.vmap(S.jnp.dot)(a, a[::-1]), table)
    cases += _own(
        "vmap of interp",
        lambda S, a: S.jax.vmap(lambda r: S.jnp.interp(r, S.jnp.linspace(0, 1, r.size), r))(a),
        table,
        1,
        300_000,
    )
    cases += _own(
        "hessian of 30", lambda S, a: S.jax.hessian(lambda x: S.jnp.sum(S.jnp.sin(x) * x[::-1] ** 2))(a[:30]), one, 0
    )
    cases += _own(
        "jacfwd of 30",
        lambda S, a: S.jax.jacfwd(lambda x: S.jnp.tanh(x[:30] * x.sum()))(a),
        lambda n: [numbers(30)],
        0,
        2000,
    )
    return cases


def _nn():
    one = lambda n: [numbers(n, -3, 3)]  # noqa: E731
    table = lambda n: [square(n, -3, 3)]  # noqa: E731
    cases = _named(
        "nn",
        "relu relu6 sigmoid softplus soft_sign silu log_sigmoid leaky_relu hard_sigmoid hard_silu hard_tanh elu celu "
        "selu gelu squareplus mish",
        one,
        1,
    )
    cases += _own("nn.gelu, exact", lambda S, a: S.jax.nn.gelu(a, approximate=False), one)
    cases += _named("nn", "softmax log_softmax logsumexp standardize", table, 1)
    cases += _own("nn.glu", lambda S, a: S.jax.nn.glu(a), lambda n: [numbers(n, -3, 3, (side(n), 2 * (side(n) // 2)))])
    for name in ("softmax", "log_softmax", "logsumexp"):
        cases += _own(f"nn.{name} axis=0", lambda S, a, name=name: found(S, f"nn.{name}")(a, axis=0), table)
    cases += _own("nn.softmax of 16", lambda S, a: S.jax.nn.softmax(a), lambda n: [numbers(n, -3, 3, (n // 16, 16))])
    cases += _own("nn.softmax of 128", lambda S, a: S.jax.nn.softmax(a), lambda n: [numbers(n, -3, 3, (n // 128, 128))])
    cases += _own("nn.one_hot", lambda S, i: S.jax.nn.one_hot(i, 50), lambda n: [whole(n // 50 + 1, 0, 50)], 0)
    cases += _own(
        "nn.dot_product_attention",
        lambda S, q: S.jax.nn.dot_product_attention(q, q, q),
        lambda n: [numbers(n, shape=(1, max(2, n // 128), 2, 64))],
        1,
        300_000,
    )
    cases += _own(
        "layer norm", lambda S, a: (a - a.mean(-1, keepdims=True)) / S.jnp.sqrt(a.var(-1, keepdims=True) + 1e-5), table
    )
    cases += _own(
        "batch norm", lambda S, a: (a - a.mean((0, 1, 2))) / S.jnp.sqrt(a.var((0, 1, 2)) + 1e-5), lambda n: [images(n)]
    )
    cases += _own("RMS norm", lambda S, a: a / S.jnp.sqrt((a * a).mean(-1, keepdims=True) + 1e-6), table)
    cases += _own(
        "cross-entropy",
        lambda S, a, i: -S.jnp.take_along_axis(S.jax.nn.log_softmax(a), i[:, None], 1).mean(),
        lambda n: [square(n), whole(side(n), 0, side(n))],
    )
    cases += _own(
        "MLP",
        lambda S, a, w: S.jnp.tanh(S.jnp.tanh(a @ w) @ w).sum(),
        lambda n: [numbers(n, shape=(max(1, n // 64), 64)), numbers(9, shape=(64, 64))],
        2,
    )
    cases += _own(
        "embedding", lambda S, t, i: t[i], lambda n: [numbers(9, shape=(1000, 64)), whole(max(1, n // 64), 0, 1000)]
    )
    cases += _own("Huber loss", lambda S, a: S.jnp.where(S.jnp.abs(a) < 1, 0.5 * a * a, S.jnp.abs(a) - 0.5).mean(), one)
    cases += _own(
        "pairwise distances",
        lambda S, a: S.jnp.sqrt(((a[:, None] - a[None]) ** 2).sum(-1) + 1e-6),
        lambda n: [numbers(side(n) * 3, shape=(side(n), 3))],
    )
    return cases


def _random_numbers():
    names = (
        "uniform normal bits exponential gumbel laplace logistic cauchy rademacher rayleigh truncated_normal maxwell"
    )
    options = {"truncated_normal": (-1.0, 1.0), "rayleigh": (0.5,)}

    def sampler(name):
        def function(S, key, x):
            key, sample = S.jax.random.wrap_key_data(key), getattr(S.jax.random, name)
            return sample(key, *options.get(name, ()), shape=x.shape)

        return function

    arrays = lambda n: [np.array([1, 2], np.uint32), numbers(n)]  # noqa: E731
    cases = [Case(f"random.{name}", sampler(name), arrays) for name in names.split()]
    own = {
        "randint": lambda S, key, x: S.jax.random.randint(key, x.shape, 0, 1000),
        "bernoulli": lambda S, key, x: S.jax.random.bernoulli(key, 0.3, x.shape),
        "permutation": lambda S, key, x: S.jax.random.permutation(key, x),
        "choice": lambda S, key, x: S.jax.random.choice(key, x, x.shape),
        "categorical": lambda S, key, x: S.jax.random.categorical(key, x[:10], shape=(x.size // 10,)),
        "gamma": lambda S, key, x: S.jax.random.gamma(key, 2.0, x.shape),
        "beta": lambda S, key, x: S.jax.random.beta(key, 2.0, 3.0, x.shape),
        "poisson": lambda S, key, x: S.jax.random.poisson(key, 3.0, x.shape),
        "split": lambda S, key, x: S.jax.random.key_data(S.jax.random.split(key, x.size // 2)),
        "dirichlet": lambda S, key, x: S.jax.random.dirichlet(key, x[:8], (x.size // 8,)),
        "multivariate_normal": lambda S, key, x: S.jax.random.multivariate_normal(
            key, x[:4], S.jnp.eye(4), (x.size // 4,)
        ),
        "t": lambda S, key, x: S.jax.random.t(key, 4.0, x.shape),
        "binomial": lambda S, key, x: S.jax.random.binomial(key, 10.0, 0.3, x.shape),
        "ball": lambda S, key, x: S.jax.random.ball(key, 3, shape=(x.size // 3,)),
    }
    slow = {"gamma", "beta", "poisson", "dirichlet", "t", "binomial"}
    cases += [
        Case(
            f"random.{name}",
            lambda S, key, x, f=f: f(S, S.jax.random.wrap_key_data(key), x),
            arrays,
            most=100_000 if name in slow else 1 << 30,
        )
        for name, f in own.items()
    ]
    return cases


def _scipy():
    one, two = (lambda n: [numbers(n)]), (lambda n: [numbers(n), numbers(n + 1)[:n]])
    table = lambda n: [square(n)]  # noqa: E731
    cases = _named(
        "scipy.special",
        "erf erfc erfinv expit logit gammaln digamma ndtr ndtri log_ndtr entr i0 i0e i1 i1e gamma factorial exp1",
        one,
        1,
    )
    cases += _named("scipy.special", "xlogy xlog1py rel_entr kl_div betaln beta", two, 2)
    cases += _named("scipy.special", "gammainc gammaincc", two, 0)
    cases += _named("scipy.special", "expi spence", one, 0)
    cases += _own("scipy.special.logsumexp", lambda S, a: found(S, "scipy.special.logsumexp")(a), one)
    cases += _own("scipy.special.zeta", lambda S, a, b: found(S, "scipy.special.zeta")(a + 1.5, b), two, 0)
    cases += _own("scipy.special.polygamma", lambda S, a: found(S, "scipy.special.polygamma")(2, a), one, 0, 100_000)
    cases += _own(
        "scipy.special.betainc", lambda S, a, b: found(S, "scipy.special.betainc")(a + 1, b + 1, a), two, 0, 100_000
    )
    for name, extra in {
        "norm.logpdf": (), "norm.cdf": (), "norm.ppf": (), "laplace.logpdf": (), "cauchy.logpdf": (),
        "expon.logpdf": (), "logistic.cdf": (), "gamma.logpdf": (2.0,), "beta.logpdf": (2.0, 3.0), "t.logpdf": (4.0,),
        "uniform.logpdf": (), "pareto.logpdf": (2.0,), "chi2.logpdf": (3.0,), "poisson.logpmf": (3.0,),
        "bernoulli.logpmf": (0.3,),
    }.items():  # fmt: skip
        module, function = name.split(".")
        counts = module in ("poisson", "bernoulli")
        cases += _own(
            f"scipy.stats.{name}",
            lambda S, a, m=module, f=function, e=extra: found(S, f"scipy.stats.{m}.{f}")(a, *e),
            (lambda n: [whole(n, 0, 2)]) if counts else one,
            0 if counts else 1,
        )
    cases += _own(
        "scipy.stats.gaussian_kde", lambda S, a: found(S, "scipy.stats.gaussian_kde")(a[:200])(a), one, 0, 40_000
    )
    cases += _own("scipy.stats.rankdata", lambda S, a: found(S, "scipy.stats.rankdata")(a), one, 0)
    cases += _own(
        "scipy.signal.convolve",
        lambda S, a, k: found(S, "scipy.signal.convolve")(a, k, mode="same"),
        lambda n: [square(n), numbers(9, shape=(5, 5))],
        1,
    )
    cases += _own(
        "scipy.signal.fftconvolve", lambda S, a: found(S, "scipy.signal.fftconvolve")(a, a[:64], mode="same"), one
    )
    cases += _own("scipy.signal.welch", lambda S, a: found(S, "scipy.signal.welch")(a, nperseg=256)[1], one, 0)
    cases += _own("scipy.signal.detrend", lambda S, a: found(S, "scipy.signal.detrend")(a), one, 0)
    for order in (0, 1):
        cases += _own(
            f"scipy.ndimage.map_coordinates {order}",
            lambda S, a, order=order: found(S, "scipy.ndimage.map_coordinates")(a, [a * 3 + 1, a * 2], order=order),
            table,
            order,
        )
    cases += _own(
        "scipy.interpolate.RegularGridInterpolator",
        lambda S, a: found(S, "scipy.interpolate.RegularGridInterpolator")(
            (S.jnp.linspace(0, 1, a.shape[0]), S.jnp.linspace(0, 1, a.shape[1])), a
        )(S.jnp.stack([a, a.T], -1)),
        table,
        1,
    )
    cases += _own("scipy.integrate.trapezoid", lambda S, a: found(S, "scipy.integrate.trapezoid")(a, dx=0.1), one)
    cases += _own(
        "scipy.spatial.transform.Rotation",
        lambda S, a: found(S, "scipy.spatial.transform.Rotation").from_rotvec(a).as_matrix(),
        lambda n: [numbers(n, shape=(n // 3, 3))],
    )
    cases += _own("scipy.fft.dct", lambda S, a: found(S, "scipy.fft.dct")(a), table)
    return cases


def _transforms():
    table = lambda n: [square(n)]  # noqa: E731
    one = lambda n: [numbers(n)]  # noqa: E731
    cases = []
    for name in ("fft", "ifft", "rfft"):
        cases += _own(f"fft.{name}", lambda S, a, name=name: S.jnp.abs(getattr(S.jnp.fft, name)(a)), one)
        cases += _own(f"fft.{name} of rows", lambda S, a, name=name: S.jnp.abs(getattr(S.jnp.fft, name)(a)), table)
    cases += _own("fft.irfft", lambda S, a: S.jnp.fft.irfft(a), one)
    cases += _own("fft.fft2", lambda S, a: S.jnp.abs(S.jnp.fft.fft2(a)), table)
    cases += _own("fft.rfft2", lambda S, a: S.jnp.abs(S.jnp.fft.rfft2(a)), table)
    cases += _own("fft.fft axis=0", lambda S, a: S.jnp.abs(S.jnp.fft.fft(a, axis=0)), table)
    cases += _own("fft.fftshift", lambda S, a: S.jnp.fft.fftshift(a), table)
    for method in ("nearest", "linear", "cubic", "lanczos3"):
        cases += _own(
            f"image.resize {method}, larger",
            lambda S, a, method=method: S.jax.image.resize(a, (a.shape[0], 2 * a.shape[1], 2 * a.shape[2], 8), method),
            lambda n: [images(n // 4 + 128)],
        )
        cases += _own(
            f"image.resize {method}, smaller",
            lambda S, a, method=method: S.jax.image.resize(
                a, (a.shape[0], a.shape[1] // 2, a.shape[2] // 2, 8), method
            ),
            lambda n: [images(n)],
        )

    def matrix(n):
        a = square(n)
        return [np.where(a < 0.2, a, np.float32(0)), a]

    def sparse(S, a, b):
        made = found(S, "experimental.sparse.BCOO").fromdense(a, nse=a.size // 5)
        return made @ b[:, :8]

    def of_parts(S, data, places, b):
        made = found(S, "experimental.sparse.BCOO")((data, places), shape=b.shape)
        return made @ b[:, :8]

    cases += _own("sparse.BCOO.fromdense @ x", sparse, matrix, 0)
    cases += _own(
        "sparse.BCOO @ x", of_parts, lambda n: [numbers(n // 10), whole(n, 0, side(n), (n // 10, 2)), square(n)], 1
    )
    return cases


CASES = [case for make in (_numpy, _linear_algebra, _lax, _nn, _random_numbers, _scipy, _transforms) for case in make()]
