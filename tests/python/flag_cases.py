"""What tests of flags share."""

import logging

import numpy as np

import ferrax
from ferrax._src.base import config as cfg

config = cfg.config


def with_flags(call, **values):
    """What a call gives where all programs are kept, under these values of flags."""
    values = {"jax_persistent_cache_min_compile_time_secs": 0.0, **values}
    before = {name: config.read(name) for name in values}
    try:
        for name, value in values.items():
            config.update(name, value)
        return call()
    finally:
        for name, value in before.items():
            config.update(name, value)


def logged(call):
    """What is logged below the level WARNING, and at it."""
    records = []
    handler = logging.Handler(logging.DEBUG)
    handler.emit = records.append
    logger = logging.getLogger("ferrax")
    logger.addHandler(handler)
    call()
    logger.removeHandler(handler)
    return [(record.levelname, record.getMessage().split()[0]) for record in records]


def retraced():
    function = ferrax.jit(lambda x: x + 1)
    function(1), function(1.0)


GIVEN = np.ones(2, np.float32)
