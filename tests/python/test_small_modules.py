"""Small modules and names that programs take from JAX: what they answer, beside JAX, and what they refuse."""

import importlib
import operator
import warnings

import jax
import jax.core
import jax.interpreters.pxla
import numpy as np
import pytest

import ferrax
import ferrax.core
import ferrax.interpreters.pxla
from ferrax.experimental import multihost_utils, profiler, topologies, transfer
from ferrax.extend import backend, ifrt_programs
from ferrax.extend.core import primitives


@pytest.fixture(autouse=True)
def _deprecations_are_no_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


ALIASES = """
    after_all approx_top_k bessel_i0e bessel_i1e create_token device_put eq_to igamma igamma_grad_a igammac le_to lt_to
    polygamma ragged_all_to_all regularized_incomplete_beta rng_bit_generator rng_uniform select_and_scatter
    sharding_constraint zeta
""".split()


@pytest.mark.parametrize("name", ALIASES)
def test_primitives_are_those_of_lax(name):
    assert getattr(primitives, f"{name}_p") is getattr(ferrax.lax, f"{name}_p")
    assert str(getattr(primitives, f"{name}_p")) == name


def test_primitives_are_in_jaxprs():
    key = ferrax.random.key(0)
    found = {eqn.primitive for eqn in ferrax.make_jaxpr(lambda a: ferrax.lax.zeta(a, a))(2.0).eqns}
    assert primitives.zeta_p in found
    shown = str(ferrax.make_jaxpr(lambda k: ferrax.random.gamma(k, 2.0))(key))
    assert str(primitives.random_gamma_p) in shown


def _concreteness(module):
    core = module.core
    seen = []

    def f(x):
        seen.append((core.is_concrete(x), core.is_constant_dim(x), core.is_constant_shape((2, x))))
        return x * 1.0

    module.jit(f)(1.0)
    module.grad(f)(1.0)
    module.vmap(f)(np.ones(2, np.float32))
    module.make_jaxpr(f)(3)
    f(1.0)
    shapes = [core.is_constant_shape(s) for s in ((), (2, 3), (np.int64(2),), (2, 1.5), (2, "a"))]
    return seen, shapes


def test_what_is_concrete():
    assert _concreteness(ferrax) == _concreteness(jax)


@pytest.mark.parametrize("fun", [bool, float, operator.index, hex])
def test_errors_of_conversions(fun):
    def error(module):
        method = module.core.concretization_function_error(fun, suggest_astype=True)
        with pytest.raises(Exception) as caught:
            module.jit(lambda x: method(x, x))(1.0)
        return type(caught.value).__name__

    assert error(ferrax) == error(jax)


@pytest.mark.parametrize("mapping", [{}, {"x": 0}, {"x": 1}, {"x": 0, "z": 2, "y": 0}])
def test_specs_of_mappings(mapping):
    ours, theirs = (m.interpreters.pxla.array_mapping_to_axis_resources(mapping) for m in (ferrax, jax))
    assert tuple(ours) == tuple(theirs)


def test_the_mesh_that_was_entered():
    resources = ferrax.interpreters.pxla.thread_resources
    assert resources.env.physical_mesh.empty
    mesh = ferrax.make_mesh((1,), ("x",))
    with mesh:
        assert resources.env.physical_mesh == mesh
    assert resources.env.physical_mesh.empty


def test_names_warn_and_others_are_explained():
    for module, name in ((ferrax.core, "is_concrete"), (ferrax.interpreters.pxla, "thread_resources")):
        with pytest.warns(DeprecationWarning, match=name):
            getattr(module, name)
    with pytest.raises(AttributeError, match="not by XLA"):
        _ = ferrax.interpreters.pxla.create_compile_options
    with pytest.raises(AttributeError, match="need not be called"):
        _ = importlib.import_module("ferrax.cloud_tpu_init").cloud_tpu_init


def test_values_of_core():
    core = ferrax.core
    assert core.OutputType and core.no_axis_name not in ("x", None)
    assert {np.float32, int, bool} <= core.literalable_types
    assert core.abstract_token == ferrax.extend.core.AbstractToken()


def test_devices_that_are_there():
    assert topologies.get_attached_topology().devices == ferrax.devices()
    count = len(ferrax.devices())
    mesh = topologies.make_mesh(topologies.get_attached_topology("cpu"), (count, 1), ("x", "y"))
    assert mesh.shape == {"x": count, "y": 1}
    with pytest.raises(NotImplementedError, match="v5e"):
        topologies.get_topology_desc("v5e:2x2", "tpu")
    assert backend.backend_xla_version() is None
    with pytest.raises(RuntimeError):
        backend.backend_xla_version("nowhere")
    assert profiler.get_profiled_instructions_proto("/tmp") == b""


def test_what_there_is_not():
    with pytest.raises(NotImplementedError, match="multihost_utils"):
        transfer.start_transfer_server(ferrax.devices()[0].client)
    with pytest.raises(NotImplementedError):
        transfer.TransferServer()
    with pytest.raises(NotImplementedError, match="serialize_executable"):
        ifrt_programs.ifrt_programs.make_colocated_python_program("f", b"", [], [], [])
    error = multihost_utils.ProcessFailureError({1})
    assert error.failed_devices == {1} and isinstance(error, Exception)
