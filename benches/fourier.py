"""Fourier transforms, beside JAX (which calls DUCC)."""

from __future__ import annotations

import numpy as np
from timing import case

TITLE = "Fourier transforms"

LONG = 1 << 20


def _complex(*shape):
    parts = np.random.default_rng(0).standard_normal((2, *shape), np.float32)
    return parts[0] + 1j * parts[1]


def _real(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


CASES = [
    ("`fft` of 2^20", _complex(LONG), lambda lib, a: lib.jnp.fft.fft(a)),
    ("`rfft` of 2^20", _real(LONG), lambda lib, a: lib.jnp.fft.rfft(a)),
    ("`irfft` to 2^20", _complex(LONG // 2 + 1), lambda lib, a: lib.jnp.fft.irfft(a)),
    ("`fft` of 1,000 lines of 1,024", _complex(1000, 1024), lambda lib, a: lib.jnp.fft.fft(a)),
    ("`fft` of 1,000 lines of 1,009", _complex(1000, 1009), lambda lib, a: lib.jnp.fft.fft(a)),
    ("`fft2` of 1,024×1,024", _complex(1024, 1024), lambda lib, a: lib.jnp.fft.fft2(a)),
    ("`rfft2` of 1,024×1,024", _real(1024, 1024), lambda lib, a: lib.jnp.fft.rfft2(a)),
]  # fmt: skip

ROWS = [
    case(name, [array], function, numpy=True, torch=True, unit="ms")
    for name, array, function in CASES
]
