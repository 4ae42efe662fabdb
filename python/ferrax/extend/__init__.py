"""For libraries that extend ferrax: primitives, jaxprs, and what interpreters are written with."""

from ferrax.extend import (
    backend as backend,
    core as core,
    linear_util as linear_util,
    random as random,
    source_info_util as source_info_util,
)
