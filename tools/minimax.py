"""Minimax polynomials of the math functions (rust/ferrax-ir/src/math).

    python tools/minimax.py             # every fit
    python tools/minimax.py exp sin     # fits whose name starts so

Prints Rust constants, lowest power first, and the largest weighted error of the
rounded coefficients. Needs mpmath (and gmpy2, or it is slow).

A fit is: a function g, an interval, a weight, a number of coefficients. Remez'
exchange minimises max |weight * (p - g)|; then the coefficients are rounded to the
format one after the other, from the lowest on, and the rest are fitted again each
time, so that later ones make up for the rounding of earlier ones.
"""

import struct
import sys

from mpmath import mp, mpf

mp.dps = 50


def round_to(value, bits):
    """`value` as the nearest float of 32 or 64 bits."""
    value = float(value)
    return mpf(struct.unpack("f", struct.pack("f", value))[0] if bits == 32 else value)


def evaluate(coefficients, x):
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def remez(points, values, weights, fixed, count):
    """Coefficients `fixed + free`, `count` in all, that minimise the weighted error."""
    start, free = len(fixed), count - len(fixed)
    total = len(points)
    rest = [v - evaluate(fixed, x) for x, v in zip(points, values)]
    live = [i for i in range(total) if weights[i] != 0]
    # What is free is x^start times a polynomial: errors over x^start alternate.
    sign = [-1 if x < 0 and start % 2 else 1 for x in points]
    reference = [live[round((len(live) - 1) * (1 - mp.cos(mp.pi * k / free)) / 2)] for k in range(free + 1)]
    best = None
    for _ in range(30):
        matrix, column = mp.matrix(free + 1, free + 1), mp.matrix(free + 1, 1)
        for row, i in enumerate(reference):
            power = points[i] ** start
            for k in range(free):
                matrix[row, k] = power
                power *= points[i]
            matrix[row, free] = (-1) ** row * sign[i] / weights[i]
            column[row] = rest[i]
        solution = mp.lu_solve(matrix, column)
        coefficients = list(fixed) + [solution[k] for k in range(free)]
        errors = [s * w * (evaluate(coefficients, x) - v) for x, v, w, s in zip(points, values, weights, sign)]
        worst = max(abs(e) for e in errors)
        if best is None or worst < best[0]:
            best = (worst, coefficients)
        if worst <= abs(solution[free]) * mpf("1.01"):
            break
        # Extremes of each run of one sign; drop from the ends what is too much.
        peaks = []
        for i in live:
            if peaks and (errors[peaks[-1]] > 0) == (errors[i] > 0):
                if abs(errors[i]) > abs(errors[peaks[-1]]):
                    peaks[-1] = i
            else:
                peaks.append(i)
        while len(peaks) > free + 1:
            if len(peaks) == free + 2:
                peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
            else:
                k = min(range(len(peaks) - 1), key=lambda k: abs(errors[peaks[k]]) + abs(errors[peaks[k + 1]]))
                del peaks[k : k + 2]
        if len(peaks) < free + 1:
            break
        reference = peaks
    return best


def fit(name, g, low, high, count, bits, weight=lambda x: mpf(1), refine=None, size=None):
    """Prints the constant `name`; rounds `refine` coefficients one by one (default: all of 32 bits)."""
    refine = refine if refine is not None else (count - 1 if bits == 32 else min(4, count - 1))
    size = size or max(300, 16 * count)
    low, high = mpf(low), mpf(high)
    points = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mpf(1) / 2) / size) for k in range(size)]
    values, weights = [g(x) for x in points], [weight(x) for x in points]
    ideal, coefficients = remez(points, values, weights, [], count)
    fixed = []
    for k in range(refine):
        fixed.append(round_to(coefficients[k], bits))
        _, coefficients = remez(points, values, weights, fixed, count)
    rounded = [round_to(c, bits) for c in coefficients]
    worst = max(abs(w * (evaluate(rounded, x) - v)) for x, v, w in zip(points, values, weights))
    print(f"/// On [{mp.nstr(low, 6)}, {mp.nstr(high, 6)}]; weighted error 2^{mp.nstr(mp.log(worst, 2), 4)}"
          f" (unrounded 2^{mp.nstr(mp.log(ideal, 2), 4)}).")
    digits = [repr(float(c)) if bits == 64 else f"{float(c):.9e}" for c in rounded]
    print(f"pub const {name}: [f64; {count}] = [")
    for d in digits:
        print(f"    {d},")
    print("];\n", flush=True)


def parts(name, value, bits, count, width=None):
    """`value` as a sum of `count` floats, the first of `width` significant bits (default: the format's)."""
    full = 24 if bits == 32 else 53
    result = []
    for k in range(count):
        width = width if k == 0 and width else full
        exponent = int(mp.floor(mp.log(abs(value), 2)))
        unit = mpf(2) ** (exponent - width + 1)
        part = mp.nint(value / unit) * unit
        result.append(part)
        value -= part
    print(f"pub const {name}: [f64; {count}] = [{', '.join(repr(float(p)) for p in result)}];\n")


def chunks(name, width, count):
    """2/pi in pieces of `width` bits; piece i is scaled by 2^(width*i)."""
    mp.dps = 500
    rest, result = 2 / mp.pi, []
    for _ in range(count):
        piece = mp.floor(rest * mpf(2) ** width) / mpf(2) ** width
        result.append(piece)
        rest = (rest - piece) * mpf(2) ** width
    print(f"pub const {name}: [f64; {count}] = [")
    for piece in result:
        print(f"    {float(piece)!r},")
    print("];\n")
    mp.dps = 50


def near_zero(f, series):
    """`f`, but the value of its series where |x| is tiny and `f` cancels."""
    return lambda x: series(x) if abs(x) < mpf("1e-12") else f(x)


def erfcx(a):
    return mp.erfc(a) * mp.exp(a * a)


LN2 = mp.log(2)
HALF_LN2 = LN2 / 2 * mpf("1.01")
QUARTER_PI = mp.pi / 4 * mpf("1.03")


def exp_fits():
    for bits, count in ((32, 5), (64, 11)):
        fit(f"EXP_{bits}", near_zero(lambda r: (mp.expm1(r) - r) / r**2, lambda r: mpf(1) / 2 + r / 6),
            -HALF_LN2, HALF_LN2, count, bits, near_zero(lambda r: r**2 / abs(mp.expm1(r)), abs))
    parts("LN_2_32", LN2, 32, 2, 16)
    parts("LN_2_64", LN2, 64, 2, 42)


def exp2_fits():
    for bits, count in ((32, 6), (64, 12)):
        fit(f"EXP2_{bits}", near_zero(lambda r: (mpf(2) ** r - 1) / r, lambda r: LN2 + r * LN2**2 / 2),
            -0.505, 0.505, count, bits, lambda r: abs(r) / mpf(2) ** r)


def log_fits():
    fit("LOG_32", near_zero(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: mpf(1) / 3 - f / 4),
        mp.sqrt(0.5) - 1.003, mp.sqrt(2) - 0.997, 9, 32, near_zero(lambda f: f**3 / mp.log1p(f), lambda f: f * f))
    # log((1 + s) / (1 - s)) = 2 s + s z p(z), z = s s.
    fit("LOG_64", lambda z: 2 * (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z > 1e-15 else mpf(2) / 3 + z * 2 / 5,
        0, mpf("0.21") ** 2, 8, 64, lambda z: z)


def sin_fits():
    top = QUARTER_PI**2

    def sine(z):
        r = mp.sqrt(z)
        return (mp.sin(r) / r - 1) / z if z > 1e-12 else mpf(-1) / 6 + z / 120

    def cosine(z):
        return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z > 1e-10 else mpf(1) / 24 - z / 720

    for bits, count in ((32, 3), (64, 6)):
        fit(f"SIN_{bits}", sine, 0, top, count, bits, lambda z: z)
    for bits, count in ((32, 3), (64, 6)):
        fit(f"COS_{bits}", cosine, 0, top, count, bits, lambda z: z**2)
    parts("HALF_PI_32", mp.pi / 2, 32, 3)
    parts("HALF_PI_64", mp.pi / 2, 64, 3)
    chunks("TWO_OVER_PI_32", 24, 9)
    chunks("TWO_OVER_PI_64", 53, 24)


def erf_fits():
    def small(z):
        x = mp.sqrt(z)
        return mp.erf(x) / x - 1 if z > 1e-20 else 2 / mp.sqrt(mp.pi) * (1 - z / 3) - 1

    fit("ERF_SMALL_32", small, 0, mpf("1.01") ** 2, 7, 32)
    # erf(a) = 1 - p(a)^-8.
    fit("ERF_LARGE_32", lambda a: mp.erfc(a) ** (mpf(-1) / 8), mpf("0.99"), mpf("4.05"), 9, 32,
        lambda a: 8 * mp.erfc(a) ** (mpf(9) / 8) / mp.erf(a))
    fit("ERF_SMALL_64", small, 0, mpf("1.01") ** 2, 13, 64)
    # exp(a a) erfc(a) (1 + 2 a) = p((a - 4) / (a + 4)).
    for bits, low, high, count in ((32, mpf("0.45"), mpf("10.3"), 10), (64, mpf("0.45"), mpf("28"), 21)):
        k = 2 if bits == 32 else 4

        def scaled(t, k=k):
            a = k * (1 + t) / (1 - t)
            return erfcx(a) * (1 + 2 * a)

        fit(f"ERFC_{bits}", scaled, (low - k) / (low + k), (high - k) / (high + k), count, bits,
            lambda t, s=scaled: 1 / s(t))


def inverse_fits():
    def arcsine(z):
        x = mp.sqrt(z)
        return (mp.asin(x) / x - 1) / z if z > 1e-20 else mpf(1) / 6 + z * 3 / 40

    def arctangent(z):
        x = mp.sqrt(z)
        return (mp.atan(x) / x - 1) / z if z > 1e-20 else mpf(-1) / 3 + z / 5

    for bits, count in ((32, 5), (64, 13)):
        fit(f"ASIN_{bits}", arcsine, 0, mpf("0.2501"), count, bits, lambda z: z)
    for bits, count in ((32, 6), (64, 14)):
        fit(f"ATAN_{bits}", arctangent, 0, mpf("0.2501"), count, bits, lambda z: z)
    fit("ATANH_32", lambda z: (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z > 1e-20 else mpf(1) / 3 + z / 5,
        0, mpf("0.22") ** 2, 4, 32, lambda z: z)
    for k in (1, 2, 3, 4):
        for bits in (32, 64):
            parts(f"PI_{k}_4_{bits}", mp.pi * k / 4, bits, 2)


def hyperbolic_fits():
    def sine(z):
        x = mp.sqrt(z)
        return (mp.sinh(x) / x - 1) / z if z > 1e-20 else mpf(1) / 6 + z / 120

    for bits, count in ((32, 4), (64, 8)):
        fit(f"SINH_{bits}", sine, 0, mpf("1.01"), count, bits, lambda z: z / (1 + z / 6))


def erf_inv_fits():
    def ratio(w):
        if w < 1e-20:
            return mp.sqrt(mp.pi) / 2
        x = mp.sqrt(-mp.expm1(-w))
        # By Newton's method on the complement, which does not cancel.
        y = mp.erfinv(x)
        return y / x

    # erf_inv(x) = x + x p.
    def near(name, top, center, count, bits):
        fit(name, lambda t: ratio(t + center) - 1, -center, top - center, count, bits, lambda t: 1 / ratio(t + center))

    def far(name, low, high, center, count, bits):
        fit(name, lambda t: ratio((t + center) ** 2) - 1, mp.sqrt(low) - center, mp.sqrt(high) - center, count, bits,
            lambda t: 1 / ratio((t + center) ** 2))

    near("ERF_INV_NEAR_32", mpf(5), mpf("2.5"), 11, 32)
    far("ERF_INV_FAR_32", mpf("4.99"), mpf("16.7"), mpf(3), 11, 32)
    near("ERF_INV_NEAR_64", mpf("6.25"), mpf("3.125"), 25, 64)
    far("ERF_INV_MIDDLE_64", mpf("6.24"), mpf(16), mpf("3.25"), 21, 64)
    far("ERF_INV_FAR_64", mpf("15.9"), mpf("36.8"), mpf(5), 20, 64)


def gamma_fits():
    def quotient(t):
        x = 1 + t
        if abs(t) < 1e-15:
            return mp.euler - t * (mp.pi**2 / 12 - mp.euler)
        if abs(t - 1) < 1e-15:
            return 1 - mp.euler
        return mp.loggamma(x) / (t * (t - 1))

    # lgamma(1 + t) = t (t - 1) p(t - 5/8).
    for bits, count in ((32, 14), (64, 31)):
        fit(f"LGAMMA_{bits}", lambda s: quotient(s + mpf("0.625")), mpf("-0.876"), mpf("0.876"), count, bits,
            lambda s: 1 / quotient(s + mpf("0.625")))
    # lgamma(x) = (x - 1/2) (log(x) - 1) + C + p(1 / x²) / x.
    c = mp.log(2 * mp.pi) / 2 - mpf(1) / 2

    def stirling(z):
        if z < 1e-8:
            return mpf(1) / 12 - z / 360
        x = 1 / mp.sqrt(z)
        return (mp.loggamma(x) - (x - mpf(1) / 2) * (mp.log(x) - 1) - c) * x

    for bits, count in ((32, 3), (64, 8)):
        fit(f"STIRLING_{bits}", stirling, 0, mpf(1) / 64, count, bits)
    root = mp.findroot(mp.digamma, mpf("1.4616"))
    for bits in (32, 64):
        parts(f"DIGAMMA_ROOT_LESS_1_{bits}", root - 1, bits, 2)

    def slope(t):
        x = 1 + t
        return mp.digamma(x) / (x - root) if abs(x - root) > 1e-20 else mp.polygamma(1, root)

    # digamma(1 + t) = (1 + t - root) p(t - 5/8).
    for bits, count in ((32, 16), (64, 33)):
        fit(f"DIGAMMA_{bits}", lambda s: slope(s + mpf("0.625")), mpf("-0.876"), mpf("0.876"), count, bits,
            lambda s: 1 / slope(s + mpf("0.625")))

    # digamma(x) = log(x) - 1 / (2 x) - p(1 / x²) / x².
    def tail(z):
        if z < 1e-8:
            return mpf(1) / 12 - z / 120
        x = 1 / mp.sqrt(z)
        return -(mp.digamma(x) - mp.log(x) + 1 / (2 * x)) * x * x

    for bits, count, start in ((32, 4, 5), (64, 8, 8)):
        fit(f"DIGAMMA_TAIL_{bits}", tail, 0, mpf(1) / start**2, count, bits)


def pow_fits():
    # log((1 + s) / (1 - s)) = 2 s + 2/3 s z + s z² p(z).
    def rest(z):
        if z < 1e-12:
            return mpf(2) / 5 + z * 2 / 7
        s = mp.sqrt(z)
        return (2 * (mp.atanh(s) / s - 1) / z - mpf(2) / 3) / z

    for bits, count in ((32, 4), (64, 9)):
        fit(f"POW_{bits}", rest, 0, mpf("0.1717") ** 2, count, bits, lambda z: z**2)
        parts(f"TWO_THIRDS_{bits}", mpf(2) / 3, bits, 2)


FITS = {
    "exp": exp_fits,
    "exp2": exp2_fits,
    "log": log_fits,
    "sin": sin_fits,
    "erf": erf_fits,
    "inverse": inverse_fits,
    "hyperbolic": hyperbolic_fits,
    "erf_inv": erf_inv_fits,
    "gamma": gamma_fits,
    "pow": pow_fits,
}

if __name__ == "__main__":
    for key, run in FITS.items():
        if len(sys.argv) == 1 or key in sys.argv[1:]:
            print(f"// {key}")
            run()
