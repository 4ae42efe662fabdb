"""`ffi_lowering`: primitives whose lowering is a call of a handler, as JAX lowers them."""

import functools
import importlib

import numpy as np
import pytest
from ffi_libraries import registered
from oracle import FERRAX, same

import ferrax

EPS = np.float32(1e-5)


def modules(s):
    """JAX's modules of primitives, of one side."""
    root = "jax" if s.name == "jax" else "ferrax"
    return importlib.import_module(f"{root}.extend.core"), importlib.import_module(f"{root}.interpreters.mlir")


def primitive(s, lowering, types=lambda x, **_: x, impl=True, multiple=False):
    """A primitive that does what its lowering does, outside of compiled functions, too."""
    registered(s.name)
    extend, mlir = modules(s)
    p = extend.Primitive("lowered")
    p.multiple_results = multiple
    p.def_abstract_eval(types)
    if impl:
        apply = importlib.import_module(f"{s.jax.__name__}.interpreters.xla").apply_primitive
        p.def_impl(functools.partial(apply, p))
    mlir.register_lowering(p, lowering, platform="cpu")
    return p


def rows(s, *shape):
    return s.jnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def laid(s):
    """Results of two dtypes, a matrix and its dimensions as they lie in memory."""
    core = importlib.import_module(s.jax.__name__).core
    lowering = s.jax.ffi.ffi_lowering("lies", operand_layouts=[(0, 1)], result_layouts=[(0, 1), None])
    types = lambda x: (x, core.ShapedArray((2,), np.int64))  # noqa: E731
    return primitive(s, lowering, types, multiple=True)


def wrapped(s):
    """A rule that makes an attribute of a parameter."""
    rule = lambda ctx, x, *, eps: s.jax.ffi.ffi_lowering("rms")(ctx, x, eps=np.float32(eps))  # noqa: E731
    return primitive(s, rule)


def built(s):
    """A rule that is part of a larger one."""
    _, mlir = modules(s)
    half = mlir.lower_fun(lambda x: 0.5 * x, multiple_results=False)
    function = s.jax.ffi.build_ffi_lowering_function("rms")

    def rule(ctx, x):
        return half(ctx, function(ctx, x, eps=EPS).results[0])

    return primitive(s, rule)


CALLS = {
    "attributes": lambda s: primitive(s, s.jax.ffi.ffi_lowering("rms")).bind(rows(s, 3, 4), eps=EPS),
    "compiled": lambda s: s.jax.jit(
        lambda x: 2 * primitive(s, s.jax.ffi.ffi_lowering("rms")).bind(x, eps=EPS)
    )(rows(s, 3, 4)),
    "layouts": lambda s: laid(s).bind(rows(s, 2, 3)),
    "in place": lambda s: s.jax.jit(
        primitive(s, s.jax.ffi.ffi_lowering("in_place", operand_output_aliases={0: 0})).bind
    )(rows(s, 3)),
    "called by a rule": lambda s: s.jax.jit(functools.partial(wrapped(s).bind, eps=1e-5))(rows(s, 3, 4)),
    "called by a rule, eagerly": lambda s: wrapped(s).bind(rows(s, 3, 4), eps=1e-5),
    "part of a rule": lambda s: s.jax.jit(built(s).bind)(rows(s, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@same
def test_calls(s, name):
    with s.jax.enable_x64(name == "layouts"):
        return CALLS[name](s)


def test_a_function_of_its_own_stands_before_a_rule():
    """What `def_impl` was given is known to be right; the rule may write MLIR."""
    p = wrapped(FERRAX)
    p.def_impl(lambda x, *, eps: np.asarray(x) + np.float32(eps))
    np.testing.assert_array_equal(ferrax.jit(functools.partial(p.bind, eps=1.0))(np.zeros(2, np.float32)), [1, 1])


@pytest.mark.parametrize(
    ("run", "kind", "message"),
    [
        (lambda ffi: ffi.ffi_lowering("rms", called_computations=()), NotImplementedError, "called_computations"),
        (lambda ffi: ffi.ffi_lowering("rms", result_types=[]), NotImplementedError, "abstract evaluation"),
        (lambda ffi: ffi.ffi_lowering("rms", backend_config="x"), ValueError, "dict of attributes"),
        (lambda ffi: ffi.ffi_lowering("rms")(1.0), TypeError, "register_lowering"),
        (
            lambda ffi: primitive(FERRAX, ffi.ffi_lowering("rms", api_version=2)).bind(np.ones(3, np.float32)),
            NotImplementedError,
            "custom_call_api_version=4",
        ),
        (
            lambda ffi: primitive(FERRAX, ffi.ffi_lowering("nobody")).bind(np.ones(3, np.float32)),
            ferrax.errors.JaxRuntimeError,
            "NOT_FOUND",
        ),
        (
            lambda ffi: primitive(FERRAX, lambda ctx, x: [ctx.module_context]).bind(1.0),
            NotImplementedError,
            "writes MLIR",
        ),
        (lambda ffi: primitive(FERRAX, lambda ctx, x: None).bind(1.0), NotImplementedError, "writes MLIR"),
    ],
)
def test_errors(run, kind, message):
    with pytest.raises(kind, match=message):
        run(ferrax.ffi)
