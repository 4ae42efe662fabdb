"""Arrays as text by NumPy's printer, and from files by NumPy's reader."""

from __future__ import annotations

import numpy as _np

from ferrax._src.numpy.array_creation import asarray


def load(file, *args, **kwargs):
    """Loads an array from a .npy file, or a lazy mapping from a .npz file, as `numpy.load`."""
    out = _np.load(file, *args, **kwargs)
    return asarray(out) if isinstance(out, _np.ndarray) else out


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None):
    """The text of `repr`, with NumPy's options."""
    return _np.array_repr(_np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(a, max_line_width=None, precision=None, suppress_small=None):
    """The text of `str`, with NumPy's options."""
    return _np.array_str(_np.asarray(a), max_line_width, precision, suppress_small)
