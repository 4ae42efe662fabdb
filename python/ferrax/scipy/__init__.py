"""``ferrax.scipy``: functions of SciPy, in modules that are loaded when they are asked for."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from ferrax.scipy import (
        cluster as cluster,
        fft as fft,
        integrate as integrate,
        interpolate as interpolate,
        linalg as linalg,
        ndimage as ndimage,
        optimize as optimize,
        signal as signal,
        sparse as sparse,
        spatial as spatial,
        special as special,
        stats as stats,
    )

_MODULES = (
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse",
    "spatial", "special", "stats",
)  # fmt: skip


def __getattr__(name: str) -> typing.Any:
    if name in _MODULES:
        return importlib.import_module(f"ferrax.scipy.{name}")
    raise AttributeError(f"module 'ferrax.scipy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
