"""`ferrax.torch`: tensors as arrays, and functions of the one as functions of the other, beside torch itself.

It needs PyTorch, without which it is not collected (`conftest.py`); `make test-torch` installs it and runs this.
"""

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import ferrax
import ferrax.numpy as jnp
from ferrax.dlpack import from_dlpack
from ferrax.errors import ConcretizationTypeError, JaxRuntimeError
from ferrax.torch import as_jax_function, as_torch_function, from_torch, to_torch

NARROW = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32", "complex64"]
WIDE = ["int64", "uint64", "float64", "complex128"]
SMALL = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
SMALL = [name for name in SMALL if hasattr(torch, name)]
SHAPES = [(), (5,), (2, 3), (0, 3)]


def tensor_of(dtype, shape):
    return torch.arange(1, 1 + int(np.prod(shape))).reshape(shape).to(torch.float32).to(getattr(torch, dtype))


def is_exported(tensor):
    """Whether this version of torch gives the dtype to others, as the newest gives all."""
    try:
        tensor.__dlpack__()
    except (BufferError, RuntimeError):
        return False
    return True


def octets(x):
    """The bytes of an array or a tensor."""
    if isinstance(x, torch.Tensor):
        return bytes(x.contiguous().reshape(-1).view(torch.uint8).tolist())
    return np.asarray(x).tobytes()


def close(ours, theirs, tolerance=2e-5):
    for a, b in zip(ferrax.tree.leaves(ours), ferrax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


# Arrays


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", NARROW + WIDE + SMALL)
def test_dtypes_go_both_ways(dtype, shape):
    with ferrax.enable_x64(dtype in WIDE):
        tensor = tensor_of(dtype, shape)
        if not is_exported(tensor):
            with pytest.raises(ValueError, match="copy=False"):
                from_torch(tensor, copy=False)
        for copy in (None, True, False) if is_exported(tensor) else (None, True):
            array = from_torch(tensor, copy)
            assert (array.dtype.name, array.shape, array.weak_type) == (dtype, shape, False)
            assert octets(array) == octets(tensor)
        for copy in (True, False):
            back = to_torch(array, copy)
            assert (back.dtype, tuple(back.shape), back.requires_grad) == (tensor.dtype, shape, False)
            assert octets(back) == octets(tensor)


@pytest.mark.parametrize("dtype", [name for name in NARROW + SMALL if is_exported(tensor_of(name, (1,)))])
def test_dlpack_shares_memory_both_ways(dtype):
    tensor = tensor_of(dtype, (2, 3))
    array = from_dlpack(tensor, copy=False)
    assert (array.unsafe_buffer_pointer(), array.dtype.name) == (tensor.data_ptr(), dtype)
    array = from_dlpack(tensor, copy=True)
    back = torch.from_dlpack(array)
    assert (back.data_ptr(), back.dtype) == (array.unsafe_buffer_pointer(), tensor.dtype)
    del array
    gc.collect()
    assert octets(back) == octets(tensor)


def test_dlpack_of_views_and_of_what_has_no_values():
    tensor = torch.arange(6.0).reshape(2, 3)
    for view in (tensor.T, tensor[:, 1:], tensor[:, ::2], tensor[0].expand(4, 3)):
        np.testing.assert_array_equal(from_dlpack(view), view.numpy())
    with pytest.raises(ValueError, match="row-major"):
        from_dlpack(tensor.T, copy=False)
    with pytest.raises((BufferError, RuntimeError), match="gradient"):
        from_dlpack(tensor.clone().requires_grad_())
    with pytest.raises(BufferError):
        torch.from_dlpack(ferrax.random.key(0))


def test_elements_are_copied_unless_told_otherwise():
    tensor = torch.arange(4.0)
    copied, shared = from_torch(tensor), from_torch(tensor, copy=False)
    tensor.add_(1)
    np.testing.assert_array_equal(copied, [0, 1, 2, 3])
    np.testing.assert_array_equal(shared, [1, 2, 3, 4])
    array = jnp.arange(4.0)
    own, view = to_torch(array), to_torch(array, copy=False)
    own.add_(1)
    np.testing.assert_array_equal(array, [0, 1, 2, 3])
    assert view.data_ptr() == array.unsafe_buffer_pointer() != own.data_ptr()
    array.delete()
    assert view.tolist() == [0, 1, 2, 3]


def test_views_bits_and_trees():
    z = torch.tensor([[1 + 2j, 3j], [4.0, 5 - 1j]])
    for view in (z.T, z.conj(), z.conj().imag, z.real, z[:, 1:], z[1].expand(3, 2), torch.flip(z, (0,))):
        np.testing.assert_array_equal(from_torch(view), view.resolve_conj().resolve_neg().numpy())
    tree = {"a": [torch.ones(2), None], "b": torch.nn.Parameter(torch.zeros(3))}
    found = from_torch(tree, detach=True)
    assert found["a"][1] is None and found["b"].shape == (3,)
    back = to_torch([found, 2.5, True, np.arange(3, dtype=np.int8)])
    assert [x.dtype for x in back[1:]] == [torch.float32, torch.bool, torch.int8]
    assert not back[0]["b"].requires_grad


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_of_64_bits_fit_or_are_refused(dtype):
    bounds = np.iinfo(dtype.replace("64", "32"))
    fitting = torch.tensor([bounds.min, bounds.max], dtype=getattr(torch, dtype))
    array = from_torch(fitting)
    assert array.dtype.name == dtype.replace("64", "32") and array.tolist() == fitting.tolist()
    too_large = torch.tensor([0, bounds.max + 1], dtype=getattr(torch, dtype))
    with pytest.raises(OverflowError, match="jax_enable_x64"):
        from_torch(too_large)
    with pytest.raises(OverflowError, match="jax_enable_x64"):
        as_torch_function(jnp.sum)(too_large)
    with ferrax.enable_x64(True):
        assert from_torch(too_large).tolist() == too_large.tolist()


@pytest.mark.parametrize(
    ("tensor", "options", "error", "text"),
    [
        (lambda: torch.ones(2, requires_grad=True), {}, ValueError, "requires gradients.*as_torch_function"),
        (lambda: [torch.ones(2, requires_grad=True)], {}, ValueError, r"at \[0\]"),
        (lambda: {"a": 3}, {}, TypeError, r"tensors, got 3 of type int at \['a'\]"),
        (lambda: torch.eye(2).to_sparse(), {}, TypeError, "to_dense"),
        (lambda: torch.ones(2, device="meta"), {}, TypeError, "no elements"),
        (lambda: torch.ones(2, dtype=torch.complex32), {}, TypeError, "complex32"),
        (lambda: torch.tensor([1]), {"copy": False}, ValueError, "int64 becomes int32"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), {"copy": False}, ValueError, "conjugate"),
        (lambda: torch.ones(2, 3).T, {"copy": False}, ValueError, "row-major"),
    ],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_what_is_no_array(tensor, options, error, text):
    with pytest.raises(error, match=text):
        from_torch(tensor(), **options)


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="key_data"):
        to_torch(ferrax.random.key(0))
    with pytest.raises(TypeError, match="int4"):
        to_torch(jnp.ones(2, "int4"))
    with pytest.raises(TypeError, match="str"):
        to_torch("text")
    with pytest.raises(TypeError, match="got a tensor"):
        to_torch(torch.ones(2))
    for transformed in (ferrax.jit, ferrax.grad, ferrax.vmap):
        with pytest.raises(ConcretizationTypeError):
            transformed(lambda x: to_torch(x).sum())(jnp.ones(2) if transformed is ferrax.vmap else 1.0)
    with pytest.raises(TypeError, match="as_torch_function"):
        torch.func.vmap(from_torch)(torch.ones(2))


def test_arrays_over_several_devices():
    mesh = ferrax.make_mesh((len(ferrax.devices()),), ("x",))
    sharding = ferrax.sharding.NamedSharding(mesh, ferrax.sharding.PartitionSpec("x"))
    array = ferrax.device_put(jnp.arange(16.0), sharding)
    assert to_torch(array).tolist() == list(range(16))


# Functions of arrays in torch


def ours(x, y):
    return {"a": jnp.sin(x @ y) * jnp.exp(y), "n": jnp.argmax(x), "s": x.sum()}


def theirs(x, y):
    return {"a": torch.sin(x @ y) * torch.exp(y), "n": torch.argmax(x), "s": x.sum()}


def scalar(function):
    return lambda x, y: (function(x, y)["a"] ** 2).sum() + function(x, y)["s"]


FUNCTION = as_torch_function(ours)
X = torch.linspace(-1, 1, 9).reshape(3, 3)
Y = torch.linspace(0.5, 2, 9).reshape(3, 3)


def test_values_and_gradients():
    found, expected = FUNCTION(X, Y), theirs(X, Y)
    assert found["n"].dtype == torch.int32
    close([found["a"], found["n"], found["s"]], [expected["a"], expected["n"], expected["s"]])
    gradients = []
    for function in (FUNCTION, theirs):
        x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
        out = function(x, y)
        assert out["a"].requires_grad and not out["n"].requires_grad
        (out["a"].sum() * out["s"]).backward()
        gradients.append((x.grad, y.grad))
    close(*gradients)


def _pair(function):
    return torch.autograd.grad(scalar(function)(x := X.clone().requires_grad_(), y := Y.clone().requires_grad_()), (x, y))


def _second(function):
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    first = torch.autograd.grad(scalar(function)(x, y), (x, y), create_graph=True)
    second = torch.autograd.grad(first[0].cos().sum() + (first[1] ** 2).sum(), (x, y), create_graph=True)
    return torch.autograd.grad(second[0].sum(), (x, y))


def _checkpointed(function):
    x = X.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(scalar(function), x, Y, use_reentrant=False).backward()
    return x.grad


def _many_cotangents(function):
    x = X.clone().requires_grad_()
    eye = torch.eye(9).reshape(9, 3, 3)
    return torch.autograd.grad(function(x, Y)["a"], x, eye, is_grads_batched=True)


BATCH = torch.stack([X, 2 * X, X + 1])
TRANSFORMS = {
    "gradients": _pair,
    "third order": _second,
    "checkpoint": _checkpointed,
    "is_grads_batched": _many_cotangents,
    "hessian by rows": lambda f: torch.autograd.functional.hessian(lambda x: scalar(f)(x, Y), X, vectorize=True),
    "func.grad": lambda f: torch.func.grad(scalar(f), argnums=(0, 1))(X, Y),
    "func.vmap": lambda f: torch.func.vmap(f, in_dims=(1, None))(BATCH, Y)["a"],
    "func.vmap of grad": lambda f: torch.func.vmap(torch.func.grad(scalar(f)), in_dims=(0, None))(BATCH, Y),
    "func.grad of vmap": lambda f: torch.func.grad(lambda y: torch.func.vmap(f, (0, None))(BATCH, y)["a"].sum())(Y),
    "func.jvp": lambda f: torch.func.jvp(lambda x: f(x, Y)["a"], (X,), (Y,)),
    "func.jacrev": lambda f: torch.func.jacrev(lambda x: f(x, Y)["a"])(X),
    "func.jacfwd": lambda f: torch.func.jacfwd(lambda x: f(x, Y)["a"])(X),
    "func.hessian": lambda f: torch.func.hessian(lambda x: scalar(f)(x, Y))(X),
    "two batches": lambda f: torch.func.vmap(torch.func.vmap(scalar(f), (None, 0)), (0, None))(BATCH, BATCH),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_torch_transforms_it_as_its_own(name):
    close(TRANSFORMS[name](FUNCTION), TRANSFORMS[name](theirs), 2e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradcheck(dtype):
    function = as_torch_function(lambda x, y: (jnp.sin(x) * jnp.conj(y) * jnp.abs(x), (x * y).real))
    with ferrax.enable_x64(True):
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(2, dtype=dtype, generator=generator, requires_grad=True) for _ in range(2))
        batched = {"check_batched_grad": dtype.is_floating_point}
        assert torch.autograd.gradcheck(function, (x, y), check_forward_ad=True, **batched)
        assert torch.autograd.gradgradcheck(function, (x, y), check_fwd_over_rev=True)
        out = function(x, y)
    assert [each.dtype for each in torch.autograd.grad(out[1].sum(), (x, y))] == [dtype] * 2  # 64 bits as when called


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore")
def test_compiled_by_torch(backend):
    torch._dynamo.reset()
    results = as_torch_function(lambda x, y: (jnp.sin(x @ y), [jnp.argmax(x), x.sum()]))

    def with_results(x, y):
        a, (n, s) = results(2 * x, y)
        return (a**2).sum() + s + 1 + 0 * n

    def of_dict(x, y):
        return scalar(FUNCTION)(2 * x, y) + 1

    compiled = torch.compile(with_results, backend=backend, fullgraph=True)
    whole = torch.compile(of_dict, backend=backend, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="dict"):
        whole(X, Y)
    close(torch.compile(of_dict, backend=backend)(X, Y), of_dict(X, Y))
    for size in (3, 4, 5):
        x = torch.linspace(0, 1, 3 * size).reshape(size, 3).requires_grad_()
        found = torch.autograd.grad(compiled(x, Y), x)
        close(found, torch.autograd.grad((torch.sin(2 * x @ Y) ** 2).sum() + 2 * x.sum(), x), 2e-4)
    with torch.no_grad():
        close(compiled(X, Y), (torch.sin(2 * X @ Y) ** 2).sum() + 2 * X.sum() + 1)


def test_arguments_of_all_kinds():
    def function(tree, scale, mode="product", *, order):
        out = tree["u"] * scale if mode == "product" else tree["u"] + scale
        return {"out": (out, tree["v"][0]), "order": jnp.asarray(order)}

    called = as_torch_function(function, static_argnames="mode")
    half = torch.ones(2, dtype=torch.bfloat16)
    found = called({"u": half, "v": [np.arange(2), None]}, 2.0, order=3)
    assert (found["out"][0].dtype, found["out"][0].tolist()) == (torch.bfloat16, [2, 2])  # a number stays weak
    assert called({"u": half, "v": [jnp.arange(2)]}, 2.0, mode="sum", order=3)["out"][0].tolist() == [3, 3]
    with pytest.raises(TypeError, match=r"'text' of type str at args\[0\]\['v'\]\[0\].*static_argnames"):
        called({"u": half, "v": ["text"]}, 2.0, order=3)
    with pytest.raises(TypeError, match=r"kwargs\['order'\]"):
        called({"u": half, "v": [half]}, 2.0, order="text")
    with pytest.raises(ValueError, match="hashable"):
        called({"u": half, "v": [half]}, 2.0, mode=[1], order=1)
    assert as_torch_function(lambda: jnp.ones(2))().tolist() == [1, 1]
    assert as_torch_function(lambda x: None)(half) is None
    one = as_torch_function(lambda x, n: x * n, static_argnums=-1)
    assert [one(half, n).dtype for n in (1, True, 1.0)] == [torch.bfloat16] * 3
    with pytest.raises(TypeError, match="callable"):
        as_torch_function(3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2"])
def test_gradients_of_few_bits(dtype):
    x = torch.ones(3).to(getattr(torch, dtype)).requires_grad_()
    index = torch.tensor([2, 0])
    out = as_torch_function(lambda x, i: x.astype(jnp.float32)[i] * 2)(x, index)
    out.sum().backward()
    assert x.grad.dtype == x.dtype and x.grad.float().tolist() == [2, 0, 2]


def test_what_torch_writes_afterwards_is_not_seen():
    x, constant = X.clone().requires_grad_(), Y.clone()
    expected = torch.autograd.grad(theirs(x, Y)["a"].sum(), x)
    out = FUNCTION(x, constant)["a"]
    constant.zero_()
    found = torch.autograd.grad(out.sum(), x, create_graph=True)  # computed anew, of the same operands
    close(expected, [each.detach() for each in found])
    out = as_torch_function(jnp.exp)(x)
    out.mul_(0)  # the result is also a residual
    close(torch.autograd.grad(out.sum(), x), [torch.zeros(3, 3)])
    close(torch.autograd.grad(as_torch_function(jnp.exp)(x).mul_(2).sum(), x), [2 * x.detach().exp()])
    same = torch.ones(3)
    as_torch_function(lambda x: x)(same).add_(1)
    assert same.tolist() == [1, 1, 1]
    changed = X.clone().requires_grad_() * 1
    out = FUNCTION(changed, Y)["a"]
    changed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_residuals_are_freed_as_those_of_torch():
    x = X.clone().requires_grad_()
    out = FUNCTION(x, Y)["a"].sum()
    out.backward(retain_graph=True)
    out.backward()
    close(x.grad, 2 * torch.autograd.grad(theirs(x, Y)["a"].sum(), x)[0])
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_only_what_is_asked_for_is_differentiated():
    seen = []

    @ferrax.custom_vjp
    def noted(x):
        return x

    noted.defvjp(lambda x: (x, None), lambda _, ct: (seen.append(1) or ct,))
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    function = as_torch_function(lambda x, y: x * noted(y))
    function(x, y).sum().backward()
    assert not seen and x.grad.tolist() == [1, 1]
    function(x, y.requires_grad_()).sum().backward()
    assert seen and y.grad.tolist() == [1, 1]


def test_errors_keep_their_class():
    with pytest.raises(TypeError, match="reshape"):
        as_torch_function(lambda x: x.reshape(7))(X)

    @ferrax.custom_vjp
    def failing(x):
        return x

    def backward(_, ct):
        raise LookupError("of the backward step")

    failing.defvjp(lambda x: (x, None), backward)
    with pytest.raises(LookupError, match="of the backward step"):
        as_torch_function(failing)(torch.ones(2, requires_grad=True)).sum().backward()
    with pytest.raises(TypeError, match="key_data"):
        as_torch_function(lambda x: ferrax.random.key(0))(X)


def test_a_layer_learns_in_threads():
    layer = as_torch_function(lambda w, x: jnp.tanh(x @ w))
    errors = []

    def train(seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(16, 3, generator=generator)
        w = torch.nn.Parameter(torch.zeros(3, 2))
        target = torch.tanh(x @ torch.ones(3, 2))
        optimizer = torch.optim.SGD([w], lr=0.5)
        for _ in range(60):
            optimizer.zero_grad()
            loss = ((layer(w, x) - target) ** 2).mean()
            loss.backward()
            optimizer.step()
        errors.append(loss.item())

    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 3 and max(errors) < 0.05


# Functions of torch in programs


CALLED = as_jax_function(theirs)
A, B = from_torch(X), from_torch(Y)


def _hessian(function):
    return ferrax.jacrev(ferrax.grad(scalar(function)))(A, B)


PROGRAMS = {
    "value": lambda f: f(A, B),
    "jit": lambda f: ferrax.jit(f)(A, B),
    "grad": lambda f: ferrax.grad(scalar(f), (0, 1))(A, B),
    "jit of grad": lambda f: ferrax.jit(ferrax.grad(scalar(f), (0, 1)))(A, B),
    "hessian": _hessian,
    "third order": lambda f: ferrax.grad(lambda x: jnp.sin(ferrax.jacrev(ferrax.grad(scalar(f)))(x, B)).sum())(A),
    "jacrev": lambda f: ferrax.jit(ferrax.jacrev(lambda y: f(A, y)["a"]))(B),
    "vmap": lambda f: ferrax.jit(ferrax.vmap(f, (None, 0)))(A, jnp.stack([B, B + 1])),
    "vmap of grad": lambda f: ferrax.vmap(ferrax.grad(scalar(f), (0, 1)), (0, None))(jnp.stack([A, 2 * A]), B),
    "scan": lambda f: ferrax.lax.scan(lambda c, _: (f(c, B)["a"], f(c, B)["s"]), A, None, length=3),
    "grad of scan": lambda f: ferrax.grad(
        lambda x: ferrax.lax.scan(lambda c, _: (f(c, B)["a"], None), x, None, length=2)[0].sum()
    )(A),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_of_torch_is_one_of_arrays(name):
    close(PROGRAMS[name](CALLED), PROGRAMS[name](ours), 3e-4)


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"])
def test_batches(method):
    def batched(x, y):
        return torch.sin(x @ y).sum((-1, -2)) + (x * y).sum((-1, -2))

    def single(x, y):
        return jnp.sin(x @ y).sum() + (x * y).sum()

    called = as_jax_function(batched, ferrax.ShapeDtypeStruct((), jnp.float32), vmap_method=method)
    xs, ys = jnp.stack([A, 2 * A]), jnp.stack([B, B + 1, B - 1])
    for function in (
        lambda f: ferrax.vmap(ferrax.value_and_grad(f, (0, 1)), (0, None))(xs, B),
        lambda f: ferrax.grad(lambda y: ferrax.vmap(f, (0, None))(xs, y).sum())(B),
        lambda f: ferrax.jit(ferrax.vmap(ferrax.vmap(ferrax.grad(f), (0, None)), (None, 0)))(xs, ys),
    ):
        close(function(called), function(single), 1e-4)


def test_batches_need_a_method():
    with pytest.raises(NotImplementedError, match="vmap_method"):
        ferrax.vmap(as_jax_function(torch.sin, vmap_method=None))(A)
    with pytest.raises(ValueError, match="legacy_vectorized"):
        as_jax_function(torch.sin, vmap_method="legacy_vectorized")


def test_random_numbers_are_those_of_the_forward_step():
    dropout = as_jax_function(lambda x: torch.nn.functional.dropout(x, 0.5))
    ones = jnp.ones((4, 20))
    for function in (dropout, ferrax.vmap(dropout)):
        out, pull = ferrax.vjp(function, ones)
        state = torch.get_rng_state()
        np.testing.assert_array_equal(pull(ones)[0], out)
        assert torch.equal(torch.get_rng_state(), state)
        assert 0 < np.count_nonzero(out) < out.size
    assert len({octets(dropout(ones)) for _ in range(3)}) == 3


def test_it_may_write_to_its_arguments_and_use_autograd_itself():
    def writes(x):
        x.mul_(2)
        x[0] = 0
        return x.sin()

    def force(x):
        x = x if x.requires_grad else x.requires_grad_()
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]

    x = jnp.array([1.0, 2.0, 3.0])
    close(ferrax.grad(lambda x: as_jax_function(writes)(x).sum())(x), np.array([0, *(2 * np.cos([4.0, 6.0]))]))
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            called = as_jax_function(force)
            close([called(x), ferrax.vjp(called, x)[1](jnp.ones(3))[0]], [3 * x**2, 6 * x])
    assert x.tolist() == [1, 2, 3]


def test_modules_are_functions_of_their_parameters():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    called = as_jax_function(module)
    parameters = from_torch(dict(module.named_parameters()), detach=True)
    found = ferrax.jit(ferrax.grad(lambda p, x: (called(p, x) ** 2).sum()))(parameters, A)
    assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())
    (module(X) ** 2).sum().backward()
    close(found, {name: value.grad for name, value in module.named_parameters()})
    some = {"3.weight": parameters["3.weight"]}
    assert list(ferrax.grad(lambda p: called(p, A).sum())(some)) == ["3.weight"]
    with pytest.raises(TypeError, match="named_parameters"):
        called(A)
    with pytest.raises(ValueError, match="'unknown'"):
        called({"unknown": A}, A)


def test_types_of_results():
    assert as_jax_function(lambda x: (x.to(torch.int64), x > 0, x.to(torch.bfloat16), None))(A)[3] is None
    double = ferrax.eval_shape(as_jax_function(lambda x: {"d": x.double(), "i": x.long()}), A)
    assert {name: each.dtype.name for name, each in double.items()} == {"d": "float32", "i": "int32"}
    with ferrax.enable_x64(True):
        wide = as_jax_function(lambda x: {"d": x.double(), "i": x.long()})(A)
    assert {name: each.dtype.name for name, each in wide.items()} == {"d": "float64", "i": "int64"}
    with pytest.raises(TypeError, match="Pass result_shape_dtypes"):
        as_jax_function(lambda x: x * x.sum().item())(A)
    given = as_jax_function(lambda x: x * x.sum().item(), ferrax.ShapeDtypeStruct((3, 3), jnp.float32))
    close(given(A), A * A.sum(), 1e-5)
    with pytest.raises(TypeError, match="got 3"):
        as_jax_function(lambda x: 3)(A)


def test_complex_and_constant_gradients():
    z = jnp.array([1 + 2j, 3 - 1j])
    close(
        ferrax.grad(lambda z: as_jax_function(lambda z: (z * z * z.conj()).real)(z).sum())(z),
        ferrax.grad(lambda z: (z * z * jnp.conj(z)).real.sum())(z),
    )
    assert not ferrax.grad(lambda x: as_jax_function(lambda x: torch.ones(3))(x).sum())(A).any()
    mixed = as_jax_function(lambda x, i: x[i])
    close(ferrax.grad(lambda x: mixed(x, jnp.array([2, 0])).sum())(jnp.ones(3)), np.array([1, 0, 1]))
    assert ferrax.grad(lambda x: as_jax_function(lambda x: x * x)(x).sum())(jnp.ones(2, "bfloat16")).dtype == "bfloat16"


def test_errors_of_torch_are_causes():
    def raising(x):
        raise KeyError("of torch")

    given = ferrax.ShapeDtypeStruct((3, 3), jnp.float32)
    with pytest.raises(JaxRuntimeError, match="of torch") as caught:
        ferrax.jit(as_jax_function(raising, given))(A)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(JaxRuntimeError, match="OverflowError"):
        as_jax_function(lambda x: torch.full((3, 3), 2**40), ferrax.ShapeDtypeStruct((3, 3), jnp.int32))(A)
    with pytest.raises(JaxRuntimeError, match=r"float32\[3\]"):
        as_jax_function(lambda x: x[0], given)(A)
    with pytest.raises(JaxRuntimeError, match="result_shape_dtypes"):
        as_jax_function(lambda x: (x, x), given)(A)
    with pytest.raises(TypeError, match="custom_vjp"):
        ferrax.jvp(as_jax_function(torch.sin), (A,), (A,))
    with pytest.raises(TypeError, match="callable"):
        as_jax_function(3)


def test_there_and_back():
    x = X.clone().requires_grad_()
    found = torch.autograd.grad(as_torch_function(lambda x: CALLED(x, B)["a"])(x).sum(), x)
    close(found, torch.autograd.grad(theirs(x, Y)["a"].sum(), x))
    back = as_jax_function(lambda x: FUNCTION(x, Y)["a"])
    close(ferrax.jit(ferrax.grad(lambda x: back(x).sum()))(A), found)


def test_torch_is_imported_by_the_first_call():
    program = "import sys, ferrax.torch; assert 'torch' not in sys.modules; ferrax.torch.to_torch(1.0); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
