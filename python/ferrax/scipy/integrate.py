"""``ferrax.scipy.integrate``: integrals of samples."""

from ferrax._src.numpy.numeric import trapezoid as trapezoid
