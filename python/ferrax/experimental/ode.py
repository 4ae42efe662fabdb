"""Ordinary differential equations."""

from ferrax._src.base import public as _public
from ferrax._src.experimental.ode import odeint as odeint

_public.export(__name__)
