"""The modified Bessel functions I0 and I1, scaled by `exp(-|x|)`.

Chebyshev series, as in Clenshaw, Chebyshev Series for Mathematical Functions (1962): up to 8 of
exp(-x) I0(x) and exp(-x) I1(x) / x in x / 4 - 1, above of exp(-x) sqrt(x) I0(x) and I1(x) in
16 / x - 1. The coefficients were computed with 70 digits; those below a tenth of the dtype's epsilon are
left out. Relative errors are 9 units in the last place at most.
"""

from __future__ import annotations

from typing import Any

from ferrax._src.base import dtypes
from ferrax._src.composed.special.elementwise import chebyshev, choose, elementwise
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax import api as lax
from ferrax._src.transforms.ad import defjvp2
from ferrax._src.transforms.autodiff import jvp

_I0_NEAR = (
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
_I0_FAR = (
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
    9.921475412173699e-19,
    1.193650890845982e-18,
)
_I1_NEAR = (
    0.12629359322181682,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
    2.7779141127610464e-18,
    -3.541581772542136e-19,
)
_I1_FAR = (
    0.38928811750914005,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209285e-16,
    2.96262899764595e-16,
    -3.209525921993424e-17,
    -4.6503053684893586e-17,
    4.414348323071708e-18,
    7.517296310842105e-18,
    -9.314178867326884e-19,
    -1.242193275194891e-18,
)


def _kept(coefficients, x):
    least = 0.1 * float(dtypes.finfo(x.dtype).eps) * abs(coefficients[0])
    return [c for c in coefficients if abs(c) > least]


def _near(coefficients, size):
    return chebyshev(_kept(coefficients, size), size * 0.25 - 1.0)


def _far(coefficients, size, power):
    series = chebyshev(_kept(coefficients, size), 16.0 / size - 1.0)
    root = lax.sqrt(size)
    return series / (root if power == 0.5 else size * root)


def _scaled(x, near, far, power):
    """The series `near` up to 8, and `far` times |x| to the power of `-power` above."""
    size = x * lax.sign(x)  # whose derivative at 0 is 0, that of `abs` 1
    is_near = size <= 8.0
    low, high = choose(is_near, size, 8.0), choose(is_near, 8.0, size)
    return choose(is_near, _near(near, low), _far(far, high, power))


def i0_scaled(x: Any) -> Any:
    """`exp(-|x|) I0(x)` of an array of 32 or 64 bits."""
    return _scaled(x, _I0_NEAR, _I0_FAR, 0.5)


def i1_scaled_over_x(x: Any) -> Any:
    """`exp(-|x|) I1(x) / x` of an array of 32 or 64 bits."""
    return _scaled(x, _I1_NEAR, _I1_FAR, 1.5)


def _i1_scaled(x):
    size = lax.abs(x)
    is_near = size <= 8.0
    low, high = choose(is_near, x, 8.0), choose(is_near, 8.0, size)
    near = low * _near(_I1_NEAR, lax.abs(low))
    return choose(is_near, near, lax.sign(x) * _far(_I1_FAR, high, 0.5))


bessel_i0e_p = elementwise("bessel_i0e", i0_scaled)
bessel_i1e_p = elementwise("bessel_i1e", _i1_scaled)
_over_x_p = elementwise("bessel_i1e_over_x", i1_scaled_over_x)


def _slope_of_far(coefficients, size):
    """The derivative of the series above 8; in those of the functions two terms nearly cancel there."""
    high = choose(size > 8.0, size, 8.0)
    return jvp(lambda x: _far(coefficients, x, 0.5), (high,), (lax.full_like(high, 1.0),))[1]


def _i0_slope(x):
    size, sign = lax.abs(x), lax.sign(x)
    near = bessel_i1e_p.bind(x) - sign * bessel_i0e_p.bind(x)
    return choose(size > 8.0, sign * _slope_of_far(_I0_FAR, size), near)


def _i1_slope(x):
    size, sign = lax.abs(x), lax.sign(x)
    near = bessel_i0e_p.bind(x) - sign * bessel_i1e_p.bind(x) - _over_x_p.bind(x)
    return choose(size > 8.0, _slope_of_far(_I1_FAR, size), near)


_i0_slope_p = elementwise("bessel_i0e_slope", _i0_slope)
_i1_slope_p = elementwise("bessel_i1e_slope", _i1_slope)
defjvp2(bessel_i0e_p, lambda t, y, x: t * _i0_slope_p.bind(x))
defjvp2(bessel_i1e_p, lambda t, y, x: t * _i1_slope_p.bind(x))


def bessel_i0e(x: ArrayLike) -> Array:
    """Modified Bessel function I0 times `exp(-|x|)`, elementwise.

    Args: x: array of floats. Errors: TypeError for other dtypes.

    Chebyshev series: Clenshaw, Chebyshev Series for Mathematical Functions (1962).

    >>> lax.bessel_i0e(jnp.array([0.0, 1.0, 100.0]))
    Array([1.        , 0.4657596 , 0.03994437], dtype=float32)
    """
    return bessel_i0e_p.bind(x)


def bessel_i1e(x: ArrayLike) -> Array:
    """Modified Bessel function I1 times `exp(-|x|)`, elementwise.

    Args: x: array of floats. Errors: TypeError for other dtypes.

    Chebyshev series: Clenshaw, Chebyshev Series for Mathematical Functions (1962).

    >>> lax.bessel_i1e(jnp.array([0.0, 1.0, 100.0]))
    Array([0.        , 0.2079104 , 0.03974416], dtype=float32)
    """
    return bessel_i1e_p.bind(x)
