"""Checks of derivatives against finite differences."""

from ferrax._src.base import public as _public
from ferrax._src.interop.test_util import check_grads, check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]

_public.export(__name__)
