"""Derivatives with respect to sparse arrays."""

from ferrax._src.base import public as _public
from ferrax._src.sparse.ad import (
    grad as grad,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    value_and_grad as value_and_grad,
)

_public.export(__name__)
