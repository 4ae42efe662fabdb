"""Names of scopes, and the small modules of `extend`, beside JAX."""

import importlib

import numpy as np
import pytest
from oracle import FERRAX, SIDES, module, same

import ferrax

X = np.array([0.5, 1.0, 2.0], np.float32)


def core(S):
    return module(S, "extend.core")


# Scopes


@SIDES
def test_scopes(S):
    info = module(S, "extend.source_info_util")

    @S.jax.named_scope("layer")
    def layer(x):
        with S.jax.named_scope("inner"):
            y = S.jnp.sin(x)
        return y * x

    def model(x):
        with S.jax.named_scope("model"):
            return S.jax.jit(layer)(x) + layer(x)

    stack = lambda eqns: [str(eqn.source_info.name_stack) for eqn in eqns]  # noqa: E731
    closed = S.jax.make_jaxpr(model)(1.0)
    assert stack(closed.eqns) == ["model", "model/layer/inner", "model/layer", "model"]
    assert stack(closed.eqns[0].params["jaxpr"].eqns) == ["layer/inner", "layer"]

    def by_stacks(x):
        with info.extend_name_stack("a") as names:
            assert str(names) == str(info.current_name_stack()) == "a"
            with info.set_name_stack(info.new_name_stack("b")):
                x = S.lax.sin(x)
            with info.reset_name_stack():
                x = S.lax.cos(x)
            with info.transform_name_stack("f"), info.extend_name_stack("c"):
                x = S.lax.exp(x)
            return S.lax.neg(x)

    assert stack(S.jax.make_jaxpr(by_stacks)(1.0).eqns) == ["b", "", "a/f(c)", "a"]
    assert str(info.current_name_stack()) == ""


def test_scopes_end_with_errors():
    def fails(x):
        with ferrax.named_scope("a"):
            raise KeyError("x")

    for transform in (ferrax.jit, ferrax.grad, ferrax.make_jaxpr):
        with pytest.raises(KeyError):
            transform(fails)(1.0)
        assert str(module(FERRAX, "extend.source_info_util").current_name_stack()) == ""


def test_lines_of_excluded_files_are_not_the_users(tmp_path):
    (tmp_path / "helper_of_a_library.py").write_text("def double(x):\n    return x + x\n")
    spec = importlib.util.spec_from_file_location("helper", tmp_path / "helper_of_a_library.py")
    helper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helper)
    line = lambda: ferrax.make_jaxpr(helper.double)(1.0).eqns[0].source_info.line  # noqa: E731
    assert "helper_of_a_library.py" in line()
    module(FERRAX, "extend.source_info_util").register_exclusion(str(tmp_path))
    assert "test_extend.py" in line()


# Names


@same
def test_small_questions(S):
    C = core(S)
    return (
        [C.valid_jaxtype(x) for x in (1.0, X, True, "a", None, object())],
        str(C.primal_dtype_to_tangent_dtype(np.dtype("int32"))),
        str(C.primal_dtype_to_tangent_dtype(np.dtype("float16"))),
        np.ndarray in C.array_types,
        module(S, "core").max_dim(3, 4),
        module(S, "core").min_dim(3, 4),
    )


@same
def test_hashes_of_counts(S):
    random = module(S, "extend.random")
    key = (S.jnp.uint32(1), S.jnp.uint32(2))
    counts = S.jnp.arange(10, dtype="uint32").reshape(2, 5)
    key_data = S.jax.random.key_data(random.seed_with_impl(random.threefry_prng_impl, 7))
    return (
        random.threefry_2x32(key, counts),
        random.threefry_2x32(key, counts[0]),
        key_data,
        random.threefry2x32_p.name,
    )


@pytest.mark.raises("TypeError")
@same
def test_hashes_of_other_dtypes(S):
    random = module(S, "extend.random")
    random.threefry_2x32((S.jnp.uint32(1), S.jnp.uint32(2)), S.jnp.arange(3))


@SIDES
def test_backends(S):
    backend = module(S, "extend.backend")
    assert backend.get_backend("cpu").platform == "cpu"
    assert "cpu" in backend.backends()
    assert backend.get_backend().platform == S.jax.default_backend()
    with pytest.raises(RuntimeError):
        backend.get_backend("no such platform")
    cleared = []

    class Cache:
        def cache_clear(self):
            cleared.append(self)

    cache = Cache()
    backend.register_backend_cache(cache, "test")
    backend.clear_backends()
    assert cleared == [cache]


@pytest.mark.parametrize(
    "name,text",
    [
        ("interpreters.mlir.ir_constant", "there is no MLIR here.*lower_fun"),
        ("interpreters.mlir.nonsense", "has no attribute 'nonsense'"),
        ("interpreters.pxla.Mesh", "ferrax.sharding"),
        ("extend.backend.get_compile_options", "not by XLA"),
        ("extend.mlir", "lower_fun"),
        ("extend.pallas", "kernels"),
    ],
)
def test_names_that_mean_nothing_say_why(name, text):
    module_name, attribute = name.rsplit(".", 1)
    with pytest.raises(AttributeError, match=text):
        getattr(module(FERRAX, module_name), attribute)


@SIDES
def test_names_that_have_moved(S):
    for name in ("find_top_trace", "gensym", "CallPrimitive", "valid_jaxtype"):
        with pytest.warns(DeprecationWarning, match=f"core.{name} is deprecated"):
            assert getattr(module(S, "core"), name) is getattr(core(S), name)
    for name in ("get_aval", "mapped_aval", "set_current_trace"):
        with pytest.raises(AttributeError, match="Use|use"):
            getattr(module(S, "core"), name)
