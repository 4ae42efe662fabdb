"""`ferrax.experimental.ode.odeint`: values and derivatives beside SciPy's and JAX's."""

import jax
import numpy as np
import pytest
import scipy.integrate
from jax.experimental.ode import odeint as jax_odeint
from oracle import attempt, compare

import ferrax
from ferrax.experimental.ode import odeint as ferrax_odeint

TIMES = np.array([0.0, 0.3, 0.35, 1.0, 2.5])


@pytest.fixture
def float64():
    with ferrax.enable_x64(True), jax.enable_x64(True):
        yield


def on_both(case, **bounds):
    """`case(jax, jax.numpy, odeint)` on both libraries, which must agree."""
    ours = attempt(lambda _: case(ferrax, ferrax.numpy, ferrax_odeint), None)
    theirs = attempt(lambda _: case(jax, jax.numpy, jax_odeint), None)
    compare(ours, theirs, weak=False, **bounds)
    return ours


def with_scipy(slope, y0, times, *args):
    solution = scipy.integrate.solve_ivp(
        lambda t, y: slope(y, t, *args),
        (times[0], times[-1]),
        y0,
        "DOP853",
        t_eval=times,
        rtol=1e-12,
        atol=1e-12,
    )
    return solution.y.T


def pendulum(np):
    """The angle and speed of a damped, driven pendulum: neither linear nor autonomous."""

    def slope(y, t, damping, drive):
        angle, speed = y
        push = drive["size"] * np.cos(drive["rate"] * t)
        return np.stack([speed, push - damping * speed - np.sin(angle)])

    return slope


PENDULUM = np.array([0.5, -1.0]), 0.2, {"size": 0.7, "rate": 1.3}


def lotka_volterra(y, t, a, b):
    prey, predators = y["prey"], y["predators"]
    return {
        "prey": a * prey - b * prey * predators.sum(),
        "predators": b * prey * predators - predators,
    }


def test_values_are_scipys(float64):
    y0, *args = PENDULUM
    ours = ferrax_odeint(pendulum(ferrax.numpy), y0, TIMES, *args, rtol=1e-10, atol=1e-10)
    expected = with_scipy(pendulum(np), y0, TIMES, *args)
    assert ours.shape == (5, 2) and ours.dtype == np.float64
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-9)


def test_a_stiff_system_is_scipys(float64):
    def van_der_pol(np):
        return lambda y, t: np.stack([y[1], 30.0 * (1 - y[0] ** 2) * y[1] - y[0]])

    times = np.linspace(0, 40.0, 9)
    y0 = np.array([2.0, 0.0])
    ours = ferrax_odeint(van_der_pol(ferrax.numpy), y0, times, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours, with_scipy(van_der_pol(np), y0, times), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-4, 1e-6])
def test_coarse_solutions_take_jaxs_steps(tolerance, float64):
    """With a large tolerance the error of the solution is that of its steps."""

    def case(m, np, odeint):
        y0, *args = PENDULUM
        return odeint(pendulum(np), y0, TIMES, *args, rtol=tolerance, atol=tolerance)

    on_both(case, ulps=4e7, cancels=0.01)  # 1e-8: sizes of steps are powers of errors, which cancel


@pytest.mark.parametrize(
    "options",
    [{"hmax": 0.05}, {"hmax": 0.0}, {"mxstep": 2}, {"mxstep": 7.5}, {"mxstep": 1, "hmax": 0.3}],
    ids=str,
)
def test_limits_are_jaxs(options, float64):
    def case(m, np, odeint):
        y0, *args = PENDULUM
        return odeint(pendulum(np), y0, TIMES, *args, rtol=1e-2, atol=1e-2, **options)

    on_both(case, ulps=4e8, cancels=0.01)  # 1e-7


CASES = {
    "a number": lambda m, np, odeint: odeint(lambda y, t: -y, 1.0, np.linspace(0, 1.0, 3)),
    "one time": lambda m, np, odeint: odeint(lambda y, t: -y, 1.0, np.zeros(1)),
    "a tree": lambda m, np, odeint: odeint(lotka_volterra, {"prey": 2.0, "predators": np.ones(3)}, np.linspace(0, 1.0, 4), 1.5, 0.7),
    "integer arguments": lambda m, np, odeint: odeint(lambda y, t, n: -(y**n), 1.0, np.linspace(0, 1.0, 3), 2),
    "no argument": lambda m, np, odeint: odeint(lambda y, t, n: -y, 1.0, np.linspace(0, 1.0, 3), None),
    "complex": lambda m, np, odeint: odeint(lambda y, t, a: a * y, 1 + 2j, np.linspace(0, 3.0, 3), 1j - 0.5),
    "standing still": lambda m, np, odeint: odeint(lambda y, t: 0 * y, np.ones(2), np.linspace(0, 1.0, 3)),
    "from zero": lambda m, np, odeint: odeint(lambda y, t: t * np.ones(2), np.zeros(2), np.linspace(0, 1.0, 3)),
    "no element": lambda m, np, odeint: odeint(lambda y, t: y, np.zeros((0, 2)), np.linspace(0, 1.0, 3)),
    "backwards": lambda m, np, odeint: odeint(lambda y, t: -y, 1.0, np.linspace(1.0, 0, 3)),
    "a blow-up": lambda m, np, odeint: np.isfinite(odeint(lambda y, t: y**2, 1.0, np.array([0.0, 0.9, 1.5]), rtol=1e-4, mxstep=500)[:2]),
    "another tree of slopes": lambda m, np, odeint: odeint(lambda y, t: [-y[0], y[1]], (1.0, 2.0), np.linspace(0, 1.0, 3)),
    "jit": lambda m, np, odeint: m.jit(lambda y, t, a: odeint(lambda y, t, a: -a * y, y, t, a))(2.0, np.linspace(0, 1.0, 3), 0.5),
    "vmap": lambda m, np, odeint: m.vmap(lambda y, a: odeint(lambda y, t, a: -a * y, y, np.linspace(0, 1.0, 3), a))(np.ones((3, 2)), np.arange(3.0)),
    "vmap over times": lambda m, np, odeint: m.vmap(lambda t: odeint(lambda y, t: -y, 1.0, t))(np.linspace(0, 1.0, 6).reshape(2, 3)),
    "jvp": lambda m, np, odeint: m.jvp(lambda y: odeint(lambda y, t: -y, y, np.linspace(0, 1.0, 3)), (1.0,), (1.0,)),
    "integer state": lambda m, np, odeint: odeint(lambda y, t: -1.5 * y, 1, np.linspace(0, 1.0, 3)),
    "integer times": lambda m, np, odeint: odeint(lambda y, t: -y, 1.0, np.arange(3)),
    "a text": lambda m, np, odeint: odeint(lambda y, t, a: -y, 1.0, np.linspace(0, 1.0, 3), "a"),
    "complex slope": lambda m, np, odeint: odeint(lambda y, t: 1j * y, 1.0, np.linspace(0, 1.0, 3)),
    "slope of another size": lambda m, np, odeint: odeint(lambda y, t: np.ones(3), 1.0, np.linspace(0, 1.0, 3)),
    "missing argument": lambda m, np, odeint: odeint(lambda y, t, a: -y, 1.0, np.linspace(0, 1.0, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_jax(name):
    on_both(CASES[name], ulps=160, cancels=0.1)  # steps of slightly different sizes


GRADIENTS = {
    "of all arguments": lambda m, np, odeint: m.grad(
        lambda y, t, a, d: (odeint(pendulum(np), y, t, a, d) ** 2 * np.arange(1, 6.0)[:, None]).sum(), (0, 1, 2, 3)
    )(np.asarray(PENDULUM[0]), np.asarray(TIMES), *PENDULUM[1:]),
    "of what the slope closes over": lambda m, np, odeint: m.grad(
        lambda a, b: odeint(lambda y, t: -a * y + b * t, np.ones(2), np.linspace(0, 1.0, 3))[1:].sum(), (0, 1)
    )(0.5, 0.3),
    "under jit": lambda m, np, odeint: m.jit(m.value_and_grad(
        lambda a: odeint(lambda y, t, a: -a * y, 1.0, np.linspace(0, 1.0, 3), a)[-1]
    ))(0.5),
    "under vmap": lambda m, np, odeint: m.vmap(m.grad(
        lambda a: odeint(lambda y, t, a: -a * y**2, 1.0, np.linspace(0, 1.0, 3), a)[-1]
    ))(np.arange(1, 4.0)),
    "of vmap": lambda m, np, odeint: m.grad(
        lambda a: m.vmap(lambda y: odeint(lambda y, t, a: -a * y**2, y, np.linspace(0, 1.0, 3), a)[-1])(np.arange(1, 4.0)).sum()
    )(0.5),
    "of a tree": lambda m, np, odeint: m.grad(
        lambda y, a: odeint(lotka_volterra, y, np.linspace(0, 1.0, 4), a, 0.7)["predators"].sum(), (0, 1)
    )({"prey": 2.0, "predators": np.ones(2)}, 1.5),
    "complex": lambda m, np, odeint: m.grad(
        lambda y, a, t: (odeint(lambda y, t, a: a * y * t, y, t, a).real ** 2).sum(), (0, 1, 2)
    )(1 + 2j, 0.2 + 0.3j, np.linspace(0.1, 1.0, 3)),
    "at one time": lambda m, np, odeint: m.grad(
        lambda y, t: odeint(lambda y, t: -y, y, t).sum(), (0, 1)
    )(2.0, np.ones(1)),
    "twice": lambda m, np, odeint: m.grad(m.grad(
        lambda a: odeint(lambda y, t, a: -a * t * y, 1.0, np.linspace(0, 1.0, 3), a)[1:].sum()
    ))(0.5),
    "jacobian": lambda m, np, odeint: m.jacrev(
        lambda y: odeint(lambda y, t: np.stack([y[1], -y[0]]), y, np.linspace(0, 1.0, 3))
    )(np.arange(1, 3.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_jaxs(name, float64):
    on_both(GRADIENTS[name], ulps=4e9, cancels=0.1)  # 1e-6: the tolerance of the solver is 1.4e-8


def test_gradients_are_finite_differences_of_scipy(float64):
    y0, damping, drive = PENDULUM

    def last(p):
        drive = {"size": p[3], "rate": p[4]}
        return with_scipy(pendulum(np), p[:2], TIMES, p[2], drive)[-1].sum()

    point = np.array([*y0, damping, drive["size"], drive["rate"]])
    expected = [(last(point + h) - last(point - h)) / 2e-5 for h in 1e-5 * np.eye(5)]
    got = ferrax.grad(
        lambda p: ferrax_odeint(
            pendulum(ferrax.numpy), p[:2], TIMES, p[2], {"size": p[3], "rate": p[4]}
        )[-1].sum()
    )(ferrax.numpy.asarray(point))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


def test_integer_arguments_have_no_part_in_the_adjoint():
    def loss(y, n, rate):
        times = ferrax.numpy.linspace(0, 1.0, 3)
        return ferrax_odeint(lambda y, t, n, rate: -rate * y**n, y, times, n, rate)[-1]

    by_y, by_rate = ferrax.grad(loss, (0, 2))(1.0, 2, 1.0)
    # y(t) = y0 / (1 + rate * y0 * t)
    np.testing.assert_allclose([by_y, by_rate], [0.25, -0.25], rtol=1e-5)


def test_a_repeated_first_time_gives_the_first_state():
    out = ferrax_odeint(lambda y, t: -y, 1.0, ferrax.numpy.array([0.5, 0.5, 1.5, 1.5]))
    np.testing.assert_allclose(out, np.exp([0, 0, -1, -1.0]), rtol=1e-5)


def test_states_and_times_may_have_different_precision(float64):
    for state, time in (("float32", "float64"), ("float64", "float32"), ("complex64", "float64")):
        times = ferrax.numpy.linspace(0, 1.0, 3, dtype=time)

        def loss(y, t):
            return abs(ferrax_odeint(lambda y, t: -y * t, y, t)[-1])

        y0 = ferrax.numpy.ones((), state)
        value, (by_y, by_t) = ferrax.value_and_grad(loss, (0, 1))(y0, times)
        assert by_y.dtype == state and by_t.dtype == time
        np.testing.assert_allclose(value, np.exp(-0.5), rtol=1e-5)
        np.testing.assert_allclose(by_y, np.exp(-0.5), rtol=1e-5)


def test_the_slope_is_traced_once_for_a_function():
    traced, count = [], None

    def slope(y, t, rate):
        traced.append(rate)
        return -rate * y

    times = ferrax.numpy.linspace(0, 1.0, 3)
    for rate in (0.5, 1.0, 2.0):
        ferrax_odeint(slope, 1.0, times, rate)
        assert traced, "the first call traces"
        count = count or len(traced)
    assert len(traced) == count


@pytest.mark.parametrize(
    "times, message",
    [(np.zeros(0, "float32"), "at least one time"), (np.float32(1), "must be a vector")],
)
def test_times_are_a_vector(times, message):
    with pytest.raises(ValueError, match=message):
        ferrax_odeint(lambda y, t: -y, 1.0, times)


def test_tolerances_are_numbers():
    solve = ferrax.jit(lambda tol: ferrax_odeint(lambda y, t: -y, 1.0, np.zeros(1, "f"), rtol=tol))
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match="rtol is part of"):
        solve(1e-3)
