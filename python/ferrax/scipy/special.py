"""``ferrax.scipy.special``: special functions."""

import warnings as _warnings
from typing import Any as _Any

from ferrax._src.base import public as _public
from ferrax._src.numpy.logsumexp import logsumexp as logsumexp
from ferrax._src.scipy.special.bessel_functions import (
    bessel_jn as bessel_jn,
    i0 as i0,
    i0e as i0e,
    i1 as i1,
    i1e as i1e,
)
from ferrax._src.scipy.special.dilogarithm import spence as spence
from ferrax._src.scipy.special.entropy import (
    boxcox as boxcox,
    boxcox1p as boxcox1p,
    entr as entr,
    expit as expit,
    kl_div as kl_div,
    log_softmax as log_softmax,
    logit as logit,
    rel_entr as rel_entr,
    softmax as softmax,
    xlog1py as xlog1py,
    xlogy as xlogy,
)
from ferrax._src.scipy.special.error_functions import (
    dawsn as dawsn,
    erf as erf,
    erfc as erfc,
    erfcx as erfcx,
    erfinv as erfinv,
    fresnel as fresnel,
    wofz as wofz,
)
from ferrax._src.scipy.special.exponential_integrals import (
    exp1 as exp1,
    expi as expi,
    expn as expn,
    sici as sici,
)
from ferrax._src.scipy.special.gamma_functions import (
    bernoulli as bernoulli,
    beta as beta,
    betainc as betainc,
    betaln as betaln,
    comb as comb,
    digamma as digamma,
    factorial as factorial,
    gamma as gamma,
    gammainc as gammainc,
    gammaincc as gammaincc,
    gammaln as gammaln,
    gammasgn as gammasgn,
    loggamma as loggamma,
    multigammaln as multigammaln,
    poch as poch,
    polygamma as polygamma,
    zeta as zeta,
)
from ferrax._src.scipy.special.hypergeometric import (
    hyp1f1 as hyp1f1,
    hyp2f1 as hyp2f1,
)
from ferrax._src.scipy.special.normal_distribution import (
    erfcinv as erfcinv,
    log_ndtr as log_ndtr,
    ndtr as ndtr,
    ndtri as ndtri,
    owens_t as owens_t,
)
from ferrax._src.scipy.special.spherical_harmonics import (
    lpmn as _lpmn,
    lpmn_values as _lpmn_values,
    sph_harm_y as sph_harm_y,
)

_DEPRECATED: dict[str, _Any] = {"lpmn": _lpmn, "lpmn_values": _lpmn_values}


def __getattr__(name):
    if name in _DEPRECATED:
        _warnings.warn(
            f"ferrax.scipy.special.{name} is deprecated, as it is in SciPy; sph_harm_y has the functions"
            " of one degree and order",
            DeprecationWarning,
            stacklevel=2,
        )
        return _public.shown(_DEPRECATED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

_public.export(__name__)
