"""``ferrax.experimental.pallas.mosaic_gpu``: names that can be imported; calling one says what to do instead."""

from collections.abc import Callable as _Callable
from typing import TYPE_CHECKING as _TYPE_CHECKING, NoReturn as _NoReturn

from ferrax._src.base import public as _public
from ferrax._src.pallas.hardware import names as _names

if _TYPE_CHECKING:

    def __getattr__(name: str) -> _Callable[..., _NoReturn]:
        raise AttributeError(name)


globals().update(_names("mosaic_gpu"))

_public.export(__name__)
