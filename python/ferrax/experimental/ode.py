"""Ordinary differential equations."""

from ferrax._src.ode import odeint as odeint
