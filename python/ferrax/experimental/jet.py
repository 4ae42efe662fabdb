"""Taylor-mode differentiation: derivatives of high order in one sweep.

`jet` takes the derivatives of a curve `h` at a point, and gives those of `f(h(t))`. Where nested
`jvp`s cost twice as much for each order, it takes `O(K^2)` operations for order K.

Example:
    >>> from ferrax.experimental.jet import jet
    >>> value, derivatives = jet(jnp.exp, (0.0,), ((1.0, 0.0, 0.0),))

Operations have rules in `jet_rules`; those of one's own get one with `deflinear`, `defzero`,
`def_deriv`, `def_comp`, or by setting `jet_rules[primitive]` to a function `rule(primals_in,
series_in, **params) -> (primal_out, series_out)` on coefficients without factorials. Without one the
derivative of the operation is propagated.
"""

from ferrax._src.base import public as _public
from ferrax._src.experimental.jet.propagate import (
    ZeroSeries as ZeroSeries,
    ZeroTerm as ZeroTerm,
    jet_rules as jet_rules,
    zero_series as zero_series,
    zero_term as zero_term,
)
from ferrax._src.experimental.jet.rules import (
    def_comp as def_comp,
    def_deriv as def_deriv,
    deflinear as deflinear,
    defzero as defzero,
)
from ferrax._src.experimental.jet.transform import fact as fact, jet as jet, jet2 as jet2

_public.export(__name__)
