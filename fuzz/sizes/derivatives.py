"""Derivatives: what is called for them, and how they are judged.

Those of a program in 64 bits are held to difference quotients of the reference; those in the program's own dtype,
compiled and op by op, to the ones in 64 bits. How far they may be off follows from how far these move when
inputs are rounded otherwise, in 64 bits and in the dtype, since no bound is derived beside them.
"""

import re

import numpy as np

from .bounds import TINY, UNIT
from .program import Program
from .reference import evaluate

STEP = 1e-6
SMOOTH = 0.01  # the share of elements at which a function may have a bend
SORTED = 0.1  # of what is sorted, where neighbours may be nearer than the step
# What has steps, where difference quotients say nothing.
STEPS = re.compile(r"floor|round|sign|where|[<>=]=|[<>] |astype|arg|at\[|top_k|tril|triu|one_hot|segment_m|//|random")

# What makes floats of fewer bits, which the program in 64 bits leaves as they are: functions may ask for one dtype.
NARROWED = re.compile(r"(?<=astype\(jnp\.)(?:b?float16|float32)\b")

# What has an infinite slope at zero, which a value may be exactly, or but for a rounding.
ROOTS = re.compile(r"std|norm|sqrt|hypot|cbrt")


def floats_in(program: Program, arrays, dtype: str):
    return [one.astype(dtype) if number in program.floats() else one for number, one in enumerate(arrays)]


def loss_of(program: Program, results):
    return sum(getattr(one * one, program.loss())() for one in results)


def called(jax, function, program: Program):
    """The function that a mode calls, which gives a list of arrays."""
    floats = program.floats()
    if program.mode == "vmap":
        return jax.vmap(function)
    if program.mode == "grad":
        return lambda *args: jax.grad(lambda *inner: loss_of(program, function(*inner)), floats)(*args)
    if program.mode == "jvp":

        def pushed(*args):
            """The tangent of each input is the input."""
            def inner(*some):
                return function(*(some[floats.index(i)] if i in floats else one for i, one in enumerate(args)))

            along = tuple(args[i] for i in floats)
            return jax.jvp(inner, along, along)[1]

        return pushed
    return function


def judged(subject, arrays, first, eager, stage):
    """(kind, message) of what is wrong with derivatives, or None; and how far they are off those in 64 bits, as a
    share of these."""
    program, farthest = subject.program, 0.0
    wide = floats_in(program, arrays, "float64")
    function = called(subject.jax, subject.defined(NARROWED.sub("float64", program.function())), program)
    stage("64 bits, op by op")
    exact = subject.call(function, wide)
    stage("64 bits, jit")
    compiled = subject.call(subject.jax.jit(function), wide)
    rng = np.random.default_rng(program.seed)
    dtype = program.inputs[program.floats()[0]].dtype
    # A derivative may be a sum of all elements, whose roundings are as if drawn at random; each may have lost what is
    # below the smallest number.
    unit, terms = UNIT[dtype], program.largest()
    lost, many = TINY[dtype] * terms, 30 * terms**0.5
    # Roundings to fewer bits than the inputs have are not in the 64-bit program.
    mixed = any(one != "float32" or dtype == "float64" for one in NARROWED.findall(program.function()))
    nearby, rounded = [], []
    for _ in range(2):
        stage("nearby")
        moved = [one * (1 + unit * rng.choice([-1.0, 1.0], one.shape)) if number in program.floats() else one
                 for number, one in enumerate(wide)]  # fmt: skip
        nearby.append(subject.call(function, moved))
        own = [one.astype(before.dtype) for one, before in zip(moved, arrays)]
        rounded.append(subject.call(subject.function, own))
    for place, expected in enumerate(exact):
        overflows = eager[place].dtype == np.float16 and not np.isfinite(eager[place]).all()
        at_root = ROOTS.search(program.function()) and not np.isfinite(eager[place]).all()
        if not expected.size or not np.isfinite(expected).all() or overflows or at_root:
            continue
        scale = float(np.abs(expected).max()) + 1e-30
        condition = max(float(np.abs(other[place] - expected).max()) for other in nearby)
        own = eager[place].astype(float)
        spread = max(float(np.abs(other[place].astype(float) - own).max()) for other in rounded)
        off = np.abs(own - expected)
        farthest = max(farthest, float(np.nan_to_num(off, nan=np.inf).max()) / scale)
        if not mixed:
            allowed = 100 * (condition + spread) + (300 + many) * unit * scale + lost
            bad = ~(off <= allowed)
            if bad.mean() > SMOOTH:
                return ("wrong derivative op by op", described(place, bad, eager[place], expected, allowed)), farthest
        allowed = 20 * float(np.nan_to_num(off, nan=np.inf).max()) + 20 * condition + (64 + many) * unit * scale + lost
        bad = ~(np.abs(first[place].astype(float) - expected) <= allowed) & np.isfinite(own)
        if bad.any():
            return ("wrong derivative jit", described(place, bad, first[place], expected, allowed)), farthest
        allowed = 1e-7 * scale + (20 * condition if STEPS.search(program.function()) else 0.0)
        bad = ~(np.abs(compiled[place] - expected) <= allowed)
        if bad.any():
            message = described(place, bad, compiled[place], expected, allowed)
            return ("wrong derivative jit of 64 bits", message), farthest
    if STEPS.search(program.function()) or sum(one.nbytes for one in wide) > 16 << 20:
        return None, farthest
    stage("differences")
    return by_differences(program, wide, exact, rng), farthest


def described(place: int, bad, got, expected, allowed: float) -> str:
    apart = np.where(bad, np.nan_to_num(np.abs(got.astype(float) - expected), nan=np.inf), -1.0)
    at = np.unravel_index(np.argmax(apart), apart.shape)
    where = tuple(int(index) for index in at)
    return (f"derivative {place}: {bad.sum()} of {bad.size} elements wrong, at {where}: {got[at]!s} "
            f"for {expected[at]!s} +- {allowed:.3g}")  # fmt: skip


def by_differences(program: Program, arrays, exact, rng):
    """Derivatives in 64 bits by the values of the reference on both sides."""
    floats = program.floats()
    if program.mode == "grad":  # a direction in which the loss rises
        along = [np.sign(one) + rng.standard_normal(one.shape) for one in exact]
    else:
        along = [arrays[number] for number in floats]
    ends = []
    for way in (STEP, -STEP):
        moved = [one + way * along[floats.index(number)] if number in floats else one
                 for number, one in enumerate(arrays)]  # fmt: skip
        results = [one.value for one in evaluate(program, moved, True, track=False)]
        ends.append([float(loss_of(program, results))] if program.mode == "grad" else results)
    quotients = [(above - below) / (2 * STEP) for above, below in zip(*ends)]
    if program.mode == "grad":
        product = sum(float((one * way).sum()) for one, way in zip(exact, along))
        scale = sum(float(np.abs(one * way).sum()) for one, way in zip(exact, along))
        if np.isfinite(quotients[0]) and abs(quotients[0] - product) > 2e-3 * scale + 1e-6:
            return "wrong derivative", (f"along a direction {product:.8g}, by differences {quotients[0]:.8g} "
                                        f"(terms of {scale:.3g})")  # fmt: skip
        return None
    for place, (quotient, expected) in enumerate(zip(quotients, exact)):
        if expected.size and np.isfinite(quotient).all():
            allowed = 2e-3 * float(np.abs(expected).max()) + 1e-6
            bad = ~(np.abs(quotient - expected) <= allowed)
            if bad.mean() > (SORTED if "sort" in program.function() else SMOOTH):
                return "wrong derivative", described(place, bad, expected, quotient, allowed)
    return None
