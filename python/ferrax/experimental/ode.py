"""Ordinary differential equations."""

from ferrax._src.experimental.ode import odeint as odeint
