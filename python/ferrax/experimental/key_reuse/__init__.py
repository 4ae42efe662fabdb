"""Random keys that are used twice are errors, under `ferrax.debug_key_reuse(True)`."""

from ferrax._src.base import public as _public
from ferrax._src.base.errors import KeyReuseError as KeyReuseError
from ferrax._src.experimental.key_reuse import (
    Forward as Forward,
    KeyReuseSignature as KeyReuseSignature,
    Sink as Sink,
    Source as Source,
    assert_consumed as assert_consumed,
    assert_unconsumed as assert_unconsumed,
    check_key_reuse as check_key_reuse,
    check_key_reuse_jaxpr as check_key_reuse_jaxpr,
    consume as consume,
    function_type_signature as function_type_signature,
    jaxpr_type_signature as jaxpr_type_signature,
)

_public.export(__name__)
