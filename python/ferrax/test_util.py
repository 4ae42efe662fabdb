"""Checks of derivatives against finite differences."""

from ferrax._src.interop.test_util import check_grads, check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]
