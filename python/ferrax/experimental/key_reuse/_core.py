"""The checker by the names that programs import of JAX's module."""

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
    consume_p as consume_p,
    function_type_signature as function_type_signature,
    jaxpr_type_signature as jaxpr_type_signature,
    key_reuse_signatures as key_reuse_signatures,
)
