"""Values of the math functions to more than 64-bit floats hold, for the accuracy tests.

    python tools/math_table.py 150 > rust/ferrax-ir/tests/data/math64.txt

A line: function, x, y (hexadecimal bits), the nearest float of the value, and what the
value has beyond it, in units in its last place. Needs mpmath.
"""

import random
import struct
import sys

from mpmath import mp, mpf

mp.dps = 60


def bits(x):
    return struct.pack(">d", x).hex()


def spread(rng, low, high):
    """A float whose magnitude is between the powers of two `low` and `high`, of any sign."""
    return rng.choice((-1, 1)) * rng.uniform(1, 2) * 2.0 ** rng.uniform(low, high)


def mixed(*ranges):
    """Picks a uniform range at random."""
    return lambda rng: rng.uniform(*rng.choice(ranges))


def positive(low, high):
    return lambda rng: abs(spread(rng, low, high))


def either(*choices):
    return lambda rng: rng.choice(choices)(rng)


def signed(low, high):
    return lambda rng: spread(rng, low, high)


def log_gamma(x):
    return mp.re(mp.loggamma(x)) if x > 0 else mp.log(abs(mp.gamma(x)))


FUNCTIONS = {
    "exp": (mp.exp, mixed((-700, 709), (-2, 2), (-0.4, 0.4))),
    "exp2": (lambda x: mpf(2) ** x, mixed((-1020, 1023), (-2, 2))),
    "expm1": (mp.expm1, either(mixed((-40, 700), (-2, 2), (-1, 0.5)), signed(-60, 2))),
    "log": (mp.log, either(positive(-1000, 1000), mixed((0.5, 2), (0.9, 1.1)))),
    "log1p": (mp.log1p, either(signed(-60, -2), mixed((-0.99, 2), (0, 100)), positive(0, 900))),
    "tanh": (mp.tanh, either(signed(-60, 3), mixed((-2, 2)))),
    "logistic": (lambda x: 1 / (1 + mp.exp(-x)), either(signed(-10, 9), mixed((-5, 5), (-700, 40)))),
    "sin": (mp.sin, either(signed(-30, 3), signed(0, 40), signed(35, 1000), mixed((-10, 10)))),
    "cos": (mp.cos, either(signed(-30, 3), signed(0, 40), signed(35, 1000), mixed((-10, 10)))),
    "tan": (mp.tan, either(signed(-30, 3), signed(0, 40), signed(35, 1000), mixed((-10, 10)))),
    "asin": (mp.asin, either(signed(-30, -1), mixed((-1, 1), (0.99, 1)))),
    "acos": (mp.acos, either(signed(-30, -1), mixed((-1, 1), (0.99, 1)))),
    "atan": (mp.atan, either(signed(-60, 60), mixed((-5, 5)))),
    "sinh": (mp.sinh, either(signed(-60, 0), mixed((-710, 710), (-3, 3)))),
    "cosh": (mp.cosh, mixed((-710, 710), (-3, 3))),
    "asinh": (mp.asinh, either(signed(-60, 60), signed(-3, 3), signed(900, 1023))),
    "acosh": (mp.acosh, either(positive(1, 60), mixed((1, 1.01), (1, 4)), positive(900, 1023))),
    "atanh": (mp.atanh, either(signed(-60, -1), mixed((-1, 1), (0.9, 1), (0.3, 0.7)))),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), either(signed(-1000, 1000), mixed((-10, 10)))),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), positive(-1000, 1000)),
    "erf": (mp.erf, either(signed(-60, 2), mixed((-3, 3)))),
    "erfc": (mp.erfc, mixed((-3, 3), (0, 26.5), (0.3, 1))),
    "erf_inv": (
        lambda x: mp.erfinv(x),
        either(signed(-60, -1), mixed((-1, 1), (0.9, 1)), lambda rng: 1 - 2.0 ** rng.uniform(-52, -3)),
    ),
    "lgamma": (log_gamma, either(positive(-60, 60), mixed((0, 4), (0.7, 2.6), (0, 12), (-20, 0)))),
    "digamma": (mp.digamma, either(positive(-60, 60), mixed((0, 4), (0.7, 2.6), (0, 12), (-20, 0)))),
    "pow": (lambda x, y: mpf(x) ** mpf(y), None),
    "atan2": (mp.atan2, None),
}


def points(name, sample, count, rng):
    for _ in range(count):
        if name == "pow":
            x = rng.choice((positive(-1000, 1000), positive(-1, 1), mixed((0.99, 1.01))))(rng)
            bound = float(min(mpf(10) ** 300, 700 / abs(mp.log(x))))
            yield x, rng.uniform(-bound, bound)
        elif name == "atan2":
            y = spread(rng, -50, 50)
            yield y, y * spread(rng, -6, 6)
        else:
            yield sample(rng), 0.0


def main(count):
    rng = random.Random(7)
    for name, (function, sample) in FUNCTIONS.items():
        for x, y in points(name, sample, count, rng):
            mp.dps = 400 if name in ("sin", "cos", "tan") else 60
            value = function(mpf(x), mpf(y)) if sample is None else function(mpf(x))
            nearest = float(value)
            if nearest == 0 or abs(nearest) == float("inf"):
                continue
            exponent = int(mp.floor(mp.log(abs(mpf(nearest)), 2) + mpf(10) ** -40))
            rest = (value - mpf(nearest)) / mpf(2) ** (exponent - 52)
            print(name, bits(x), bits(y), bits(nearest), mp.nstr(rest, 4))


if __name__ == "__main__":
    main(int(sys.argv[1]))
