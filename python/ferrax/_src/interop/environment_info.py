"""What is asked for in a report of a fault: versions, devices, the machine."""

from __future__ import annotations

import sys

import numpy as np

from ferrax import _core
from ferrax._src.base import jax_version
from ferrax._src.core import devices

__all__ = ["print_environment_info"]


def print_environment_info(return_string: bool = False) -> str | None:
    """Prints the versions of ferrax, of the JAX that it follows, NumPy and Python, the devices and the machine.

    Args:
        return_string: whether the text is returned and nothing is printed.

    Example:
        >>> print(ferrax.print_environment_info(return_string=True))  # doctest: +ELLIPSIS
        ferrax: ...
        jax:    0.10.2 (its interface, by ferrax)
        jaxlib: ...
        numpy:  ...
        python: ...
        devices: cpu-..., ... of this process
        processes: 1
        platform: ...
    """
    import platform  # here: a report is rare, the module is not small

    kinds = {device.device_kind for device in devices.devices()}
    text = "\n".join(
        (
            f"ferrax: {_core.__version__}",
            f"jax:    {jax_version.followed()} (its interface, by ferrax)",
            f"jaxlib: {jax_version.followed()} (ferrax in its place)",
            f"numpy:  {np.__version__}",
            f"python: {sys.version}",
            f"devices: {'/'.join(sorted(kinds))}-{devices.device_count()}, "
            f"{devices.local_device_count()} of this process",
            f"processes: {devices.process_count()}",
            f"platform: {platform.uname()}",
        )
    )
    if return_string:
        return text
    print(text)
    return None
