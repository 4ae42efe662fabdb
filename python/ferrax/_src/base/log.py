"""What the flags about logging do to this package's loggers, which are named as its modules are.

`jax_logging_level` is the level of the logger "ferrax", from which the others take theirs;
`jax_debug_log_modules` shows everything that the loggers it names are given. Loggers belong to the
process, and so does what these flags do.
"""

from __future__ import annotations

import logging

from ferrax._src.base import config, flags

_verbose: list[str] = []


def _on_flag(name, value, process_wide) -> None:
    if name == "jax_logging_level":
        logging.getLogger("ferrax").setLevel(value)
        if value != "NOTSET":
            _show(logging.getLogger("ferrax"))
    elif name == "jax_debug_log_modules":
        for module in _verbose:
            logging.getLogger(module).setLevel(logging.NOTSET)
        named = filter(None, value.split(","))
        _verbose[:] = ["ferrax" if module == "jax" else module for module in named]
        for module in _verbose:
            logging.getLogger(module).setLevel(logging.DEBUG)
            _show(logging.getLogger(module))
        if "ferrax" not in _verbose:
            logging.getLogger("ferrax").setLevel(config.logging_level.value)


def _show(logger) -> None:
    """Records go to standard error where the program has not said where."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s: %(message)s"))
        logger.addHandler(handler)


def details() -> bool:
    """Whether a flag asks for what is logged at the level DEBUG."""
    return config.logging_level.value == "DEBUG" or bool(config.debug_log_modules.value)


flags.on_flag_change(_on_flag)
