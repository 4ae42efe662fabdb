"""Minimization, interpolation, rotations, quantization and iterative solvers, beside JAX and SciPy."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse.linalg
import scipy.spatial.transform
from oracle import FERRAX, JAX, attempt, compare, compiled, module, same

import ferrax
import ferrax.numpy as jnp
import ferrax.scipy
import ferrax.test_util

RNG = np.random.default_rng(0)


def close(got, wanted, tolerance=1e-4):
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------- minimize


def rosenbrock(x):
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


LBFGS = "l-bfgs-experimental-do-not-rely-on-this"


@pytest.mark.parametrize("method", ["BFGS", LBFGS])
@pytest.mark.parametrize("function, start", [(rosenbrock, [-1.2, 1.0, 0.5]), (himmelblau, [1.0, 1.0])])
def test_minima(method, function, start):
    with ferrax.enable_x64(True):
        x, options = np.array(start), {"ftol": 0.0} if method == LBFGS else {}
        result = ferrax.jit(lambda x: ferrax.scipy.optimize.minimize(function, x, method=method, tol=1e-6, options=options))(x)
        wanted = scipy.optimize.minimize(function, x, method="BFGS")
        assert result.success and result.status == 0
        close(result.x, wanted.x)
        close(result.fun, function(np.asarray(result.x)), 1e-12)
        assert abs(np.asarray(result.jac)).max() < 1e-6
        assert (result.hess_inv is None) == (method == LBFGS)


def test_minima_of_a_batch_and_of_arguments():
    run = lambda x, a: ferrax.scipy.optimize.minimize(lambda x, a: jnp.sum((x - a) ** 4), x, (a,), method="BFGS").x  # noqa: E731
    found = ferrax.vmap(run, (0, None))(jnp.array([[0.0, 5.0], [2.0, -3.0]]), jnp.float32(1))
    close(found, np.ones((2, 2)), 0.05)


def test_complex_minima():
    target = jnp.array([1 + 2j, -3j])
    found = ferrax.scipy.optimize.minimize(lambda z: jnp.sum(jnp.abs(z - target) ** 2), jnp.zeros(2, "complex64"), method=LBFGS)
    close(found.x, target)


def test_why_a_minimization_ended():
    minimize = ferrax.scipy.optimize.minimize
    few = minimize(rosenbrock, jnp.zeros(3), method="BFGS", options={"maxiter": 2})
    assert not few.success and few.status == 1 and few.nit == 2
    below = minimize(lambda x: x[0], jnp.zeros(1), method="BFGS")
    assert not below.success and below.status == 5
    few = minimize(rosenbrock, jnp.zeros(3), method=LBFGS, options={"maxfun": 3})
    assert not few.success and few.status == -1 and few.nfev >= 3


# ---------------------------------------------------------------------------- interpolation


@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_values_between_elements(order, mode):
    @same
    def case(S):
        f = lambda x, y, z: module(S, "scipy.ndimage").map_coordinates(x, [y, z], order, mode, 3.0)  # noqa: E731
        x = S.jnp.asarray(np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32))
        y, z = (S.jnp.asarray(np.random.default_rng(s).uniform(-7, 9, 12).astype(np.float32)) for s in (2, 3))
        slopes = S.jax.grad(lambda *args: S.jnp.sum(f(*args) ** 2), (0, 1, 2))
        integers = f(S.jnp.arange(15).reshape(3, 5), y, z)
        return compiled(S, lambda *args: (f(*args), slopes(*args)), x, y, z), integers

    case()


@pytest.mark.parametrize("method", ["linear", "nearest"])
@same
def test_grids(S, method):
    interpolator = module(S, "scipy.interpolate").RegularGridInterpolator
    grid = S.jnp.array([0.0, 1.0, 3.0]), S.jnp.array([-1.0, 0.5, 2.0, 4.0])
    values = S.jnp.asarray(np.random.default_rng(1).standard_normal((3, 4, 2)).astype(np.float32))
    points = S.jnp.asarray(np.random.default_rng(2).uniform(-1.5, 4.5, (5, 3, 2)).astype(np.float32))
    f, outside = interpolator(grid, values, method), interpolator(grid, values, method, fill_value=None)
    slopes = S.jax.grad(lambda g, x: S.jnp.nansum(g(x) ** 2))(outside, points)
    call = S.jax.jit(lambda g, x: g(x))
    return f(points), call(outside, points), outside((points[..., 0], 1.0)), slopes.values, f((0.5, 1.0)), slopes.grid


@same
def test_quantization_and_integrals(S):
    vq, integrate = module(S, "scipy.cluster.vq").vq, module(S, "scipy.integrate")
    rng = np.random.default_rng(1)
    points, codes = (S.jnp.asarray(rng.standard_normal((n, 3)).astype(np.float32)) for n in (7, 4))
    y = S.jnp.arange(12.0).reshape(3, 4) ** 2
    return [
        vq(points, codes), vq(points[:, 0], codes[:, 0]), vq(S.jnp.arange(3), S.jnp.arange(2)), S.jax.jit(vq)(points, codes),
        integrate.trapezoid(y), integrate.trapezoid(y, dx=2.0, axis=0), integrate.trapezoid(y, S.jnp.array([0.0, 1.0, 4.0]), axis=0),
    ]  # fmt: skip


# ---------------------------------------------------------------------------- rotations

QUATS = RNG.standard_normal((6, 4)).astype(np.float32)
VECTORS = RNG.standard_normal((6, 3)).astype(np.float32)


def rotation(S):
    return module(S, "scipy.spatial.transform").Rotation


ROTATIONS = {
    "matrix": lambda S, R, r: [r.as_matrix(), R.from_matrix(r.as_matrix()).as_quat(canonical=True), r[0].as_matrix()],
    "rotvec": lambda S, R, r: [r.as_rotvec(), r.as_rotvec(degrees=True), R.from_rotvec(VECTORS * 2).as_quat(), R.from_rotvec(VECTORS * 1e-4).quat],
    "mrp": lambda S, R, r: [r.as_mrp(), R.from_mrp(VECTORS).as_quat()],
    "quat": lambda S, R, r: [r.as_quat(), r.as_quat(canonical=True, scalar_first=True), r[1:3].as_quat(), len(r), r.single, r[0].single],
    "compose": lambda S, R, r: [(r * r[::-1]).quat, r.inv().quat, r.magnitude(), r.apply(VECTORS), r.apply(VECTORS[0], inverse=True), r[0].apply(VECTORS)],
    "mean": lambda S, R, r: [abs(r.mean().as_quat()), abs(r.mean(S.jnp.arange(6.0)).as_quat())],
    "concatenate": lambda S, R, r: [R.concatenate([r, r[:2]]).quat, R.identity().quat],
    "slopes": lambda S, R, r: S.jax.jacobian(lambda q: R.from_quat(q).as_rotvec())(r.quat[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROTATIONS)
def test_rotations(name):
    def case(S):
        R = rotation(S)
        return ROTATIONS[name](S, R, R.from_quat(S.jnp.asarray(QUATS)))

    # Sums of products of the components of unit quaternions, and of vectors of about 1.
    compare(attempt(case, FERRAX), attempt(case, JAX), ulps=64, cancels=1.0 if name == "compose" else 0.0)


@pytest.mark.parametrize("seq", ["xyz", "ZYX", "zxz", "XYX"])
@same(ulps=64)
def test_euler_angles(S, seq):
    R = rotation(S)
    angles = S.jnp.asarray(VECTORS)
    locked = R.from_euler(seq, S.jnp.array([0.3, {"x": 0.0, "z": 0.0}.get(seq[0].lower(), 0.0), 0.5]))
    r = R.from_euler(seq, angles)
    found = [r.quat, r.as_euler(seq), r.as_euler(seq, degrees=True), R.from_euler(seq[:2], angles[:, :2] * 50, degrees=True).quat]
    return [*found, locked.as_euler(seq) if seq[0] == seq[2] else None]


@same(ulps=64)
def test_rotations_between_rotations(S):
    R, Slerp = rotation(S), module(S, "scipy.spatial.transform").Slerp
    slerp = Slerp.init(S.jnp.array([0.0, 1.0, 3.0, 4.0, 6.0, 7.0]), R.from_quat(S.jnp.asarray(QUATS)))
    return slerp(S.jnp.array([0.0, 0.3, 2.0, 6.9])).quat, slerp(3.5).quat, S.jax.jit(lambda s, t: s(t).quat)(slerp, 5.0)


def test_rotations_of_keys_and_many_identities():
    R = ferrax.scipy.spatial.transform.Rotation
    random = R.random(ferrax.random.key(0), 400)
    close(jnp.linalg.norm(random.quat, axis=-1), np.ones(400), 1e-6)
    assert abs(np.asarray(random.as_matrix().mean(0))).max() < 0.15 and R.random(ferrax.random.key(0)).single
    close(R.identity(3).apply(VECTORS[:3]), VECTORS[:3])


def test_no_turn_has_derivatives():
    R = ferrax.scipy.spatial.transform.Rotation
    turn = lambda v: R.from_rotvec(v).as_rotvec()  # noqa: E731
    close(ferrax.jacobian(turn)(jnp.zeros(3)), np.eye(3), 1e-6)
    close(ferrax.hessian(lambda v: R.from_rotvec(v).quat[3])(jnp.zeros(3)), -np.eye(3) / 4, 1e-6)


# ---------------------------------------------------------------------------- iterative solvers

SOLVERS = {
    "cg": {}, "bicgstab": {}, "gmres": {"solve_method": "batched"}, "incremental": {"solve_method": "incremental", "restart": 3},
}  # fmt: skip


def solver(name):
    function = getattr(ferrax.scipy.sparse.linalg, "gmres" if name == "incremental" else name)
    return lambda *args, **settings: function(*args, **SOLVERS[name], **settings)[0]


def system(name, dtype, size=6):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((size, size)) + (1j * rng.standard_normal((size, size)) if dtype[0] == "c" else 0)
    a = a @ a.conj().T + np.eye(size) if name == "cg" else a + 5 * np.eye(size)
    return a.astype(dtype), (rng.standard_normal(size) * (1 + (2j if dtype[0] == "c" else 0))).astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", SOLVERS)
def test_solutions(name, dtype):
    with ferrax.enable_x64(True):
        a, b = system(name, dtype)
        wanted = np.linalg.solve(a, b)
        solve = solver(name)
        close(solve(a, b, tol=1e-10), wanted, 1e-8)
        close(ferrax.jit(lambda a, b: solve(a, b, M=jnp.diag(1 / jnp.diagonal(a)), tol=1e-10))(a, b), wanted, 1e-8)
        close(solve(lambda x: a @ x, b, x0=wanted + 0.1, tol=1e-10), wanted, 1e-8)
        matrices, sides = np.stack([a, 2 * a]), np.stack([b, b + 1])
        found = ferrax.vmap(lambda a, b: solve(a, b, tol=1e-10))(matrices, sides)
        close(found, np.linalg.solve(matrices, sides[..., None])[..., 0], 1e-8)


@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_of_solutions(name):
    with ferrax.enable_x64(True):
        a, b = system(name, "float64", 4)
        symmetric = (lambda a: (a + a.T) / 2) if name == "cg" else lambda a: a
        solve = lambda a, b: solver(name)(symmetric(a), b, tol=1e-12)  # noqa: E731
        for mode in (("rev",), ("fwd",)):
            ferrax.test_util.check_grads(solve, (jnp.asarray(a), jnp.asarray(b)), 1, mode, 1e-4, 1e-4)
        ferrax.test_util.check_grads(lambda b: solve(a, b) ** 2, (jnp.asarray(b),), 2, ("rev",), 1e-4, 1e-4)


@pytest.mark.parametrize("name", SOLVERS)
def test_trees_of_unknowns(name):
    product = lambda t: {"a": 3 * t["a"] + jnp.sum(t["b"]), "b": 5 * t["b"] + t["a"]}  # noqa: E731
    b = {"a": jnp.float32(2), "b": jnp.array([1.0, -2.0])}
    found = solver(name)(product, b, x0={"a": jnp.float32(1), "b": jnp.ones(2)}, tol=1e-7)
    close(found["a"], product(found)["a"] * 0 + np.linalg.solve([[3, 1, 1], [1, 5, 0], [1, 0, 5]], [2, 1, -2])[0])
    for key in b:
        close(product(found)[key], b[key])


def test_limits_of_iterations():
    a, b = system("cg", "float32", 12)
    residual = lambda x: float(np.linalg.norm(b - a @ np.asarray(x)))  # noqa: E731
    for name in ("cg", "bicgstab"):
        one = solver(name)(a, b, tol=1e-6, maxiter=1)
        assert residual(solver(name)(a, b, tol=1e-6)) < 1e-3 < residual(one)
    loose = ferrax.scipy.sparse.linalg.cg(a, b, tol=0.0, atol=0.5)[0]
    assert 1e-3 < residual(loose) <= 0.5
    short = ferrax.scipy.sparse.linalg.gmres(a, b, tol=1e-6, restart=2, maxiter=1)
    assert residual(short[0]) > 1e-3 and short[1] == 0
    close(ferrax.scipy.sparse.linalg.gmres(a, b * 0)[0], b * 0)


# ---------------------------------------------------------------------------- errors

ERRORS = {
    "arguments": ("scipy.optimize", lambda S, m: m.minimize(rosenbrock, S.jnp.ones(2), 3, method="BFGS")),
    "method": ("scipy.optimize", lambda S, m: m.minimize(rosenbrock, S.jnp.ones(2), method="Newton")),
    "option": ("scipy.optimize", lambda S, m: m.minimize(rosenbrock, S.jnp.ones(2), method="BFGS", options={"fast": 1})),
    "order": ("scipy.ndimage", lambda S, m: m.map_coordinates(S.jnp.ones(3), [S.jnp.ones(2)], 2)),
    "mode": ("scipy.ndimage", lambda S, m: m.map_coordinates(S.jnp.ones(3), [S.jnp.ones(2)], 1, "grid")),
    "coordinates": ("scipy.ndimage", lambda S, m: m.map_coordinates(S.jnp.ones((3, 3)), [S.jnp.ones(2)], 1)),
    "grid": ("scipy.interpolate", lambda S, m: m.RegularGridInterpolator([S.jnp.ones(2)] * 2, S.jnp.ones(3))),
    "grid method": ("scipy.interpolate", lambda S, m: m.RegularGridInterpolator([S.jnp.ones(2)], S.jnp.ones(3), "cubic")),
    "bounds": ("scipy.interpolate", lambda S, m: m.RegularGridInterpolator([S.jnp.ones(2)], S.jnp.ones(3), bounds_error=True)),
    "point": ("scipy.interpolate", lambda S, m: m.RegularGridInterpolator([S.jnp.ones(3)], S.jnp.ones(3))(S.jnp.ones((2, 2)))),
    "ranks": ("scipy.cluster.vq", lambda S, m: m.vq(S.jnp.ones((2, 2)), S.jnp.ones(2))),
    "axes": ("scipy.spatial.transform", lambda S, m: m.Rotation.from_euler("xxz", S.jnp.ones(3))),
    "mixed axes": ("scipy.spatial.transform", lambda S, m: m.Rotation.from_euler("xYz", S.jnp.ones(3))),
    "single": ("scipy.spatial.transform", lambda S, m: len(m.Rotation.identity())),
    "subscript": ("scipy.spatial.transform", lambda S, m: m.Rotation.identity()[0]),
    "no slerp": ("scipy.spatial.transform", lambda S, m: m.Slerp.init([0.0], m.Rotation.identity())),
    "operator": ("scipy.sparse.linalg", lambda S, m: m.cg(3, S.jnp.ones(2))),
    "square": ("scipy.sparse.linalg", lambda S, m: m.cg(S.jnp.ones((2, 3)), S.jnp.ones(2))),
    "start": ("scipy.sparse.linalg", lambda S, m: m.cg(S.jnp.ones((2, 2)), S.jnp.ones(2), x0=S.jnp.ones(3))),
    "tree": ("scipy.sparse.linalg", lambda S, m: m.cg(S.jnp.ones((2, 2)), S.jnp.ones(2), x0=(S.jnp.ones(2),))),
    "solve method": ("scipy.sparse.linalg", lambda S, m: m.gmres(S.jnp.ones((2, 2)), S.jnp.ones(2), solve_method="x")),
}  # fmt: skip


@pytest.mark.raises("ValueError", "TypeError", "NotImplementedError")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    where, call = ERRORS[name]
    ours, theirs = (attempt(lambda S: call(S, module(S, where)), S) for S in (FERRAX, JAX))
    compare(ours, theirs)
