"""Answers for `jax._src`: the private names that libraries are known to use, and no others.

A module here has the name of JAX's. Most names are public ones under another name.
"""

import importlib

_MODULES = """
    ad_checkpoint ad_util checkify compiler core dispatch distributed dtypes effects flatten_util
    interpreters lax literals source_info_util state traceback_util tree_util util xla_bridge
""".split()


def __getattr__(name):
    if name in _MODULES:
        # Reached as an attribute of `jax._src`, which needs no import in JAX.
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
