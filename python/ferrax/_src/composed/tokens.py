"""Tokens, comparisons in the total order, and numbers that differ each time.

Tokens hold no data and trees of values have no leaves for them: effects are ordered by the programs
themselves. Those of sends (`lax.psend`) are trees of what is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.primitives import Primitive
from ferrax._src.core.tokens import SentToken, Token
from ferrax._src.lax import api as lax
from ferrax._src.transforms.composites import composite
from ferrax._src.tree import tree_util


def create_token(_: Any = None) -> Token:
    """A token that nothing comes before.

    >>> lax.create_token().block_until_ready() is not None
    True
    """
    return create_token_p.bind()


def after_all(*operands: Token) -> Token:
    """A token after all these tokens, which holds what those of sends hold.

    Errors: TypeError for what is no token.

    >>> isinstance(lax.after_all(lax.create_token()), ferrax.extend.core.Token)
    True
    """
    return after_all_p.bind(*operands)


class _TokenPrimitive(Primitive):
    """Applied at once, also while tracing: its operands and results are no arrays.

    >>> isinstance(lax.after_all_p.bind(lax.create_token_p.bind()), ferrax.extend.core.Token)
    True
    """

    def bind(self, *args: Any, **params: Any) -> Any:
        return self.impl(*args, **params)


def _after_all(*operands: Any) -> Token:
    for operand in operands:
        if not isinstance(operand, Token):
            raise TypeError(
                f"Arguments to after_all must be tokens, got {operand!r} of type {type(operand)}"
            )
    sent = [token for token in operands if isinstance(token, SentToken)]
    if not sent:
        return Token(None)
    return SentToken(
        tuple(x for token in sent for x in token.values), tuple(send for token in sent for send in token.sends)
    )


tree_util.register_pytree_node(
    Token, lambda token: ((), None), lambda data, leaves: Token(None)
)
tree_util.register_pytree_node(
    SentToken, lambda token: (token.values, token.sends), lambda sends, values: SentToken(tuple(values), sends)
)

create_token_p = _TokenPrimitive("create_token")
create_token_p.def_impl(lambda: Token(None))
after_all_p = _TokenPrimitive("after_all")
after_all_p.def_impl(_after_all)


def _ranks(x: Array) -> Array:
    """Integers in the total order of IEEE 754-2008 (section 5.10) of the elements."""
    if not dtypes.issubdtype(x.dtype, np.floating):
        return x
    bits = dtypes.itemsize_bits(x.dtype)
    pattern = lax.bitcast_convert_type(x, np.dtype(f"int{bits}"))
    largest = lax.full_like(pattern, dtypes.iinfo(pattern.dtype).max)
    sign = lax.shift_right_arithmetic(pattern, lax.full_like(pattern, bits - 1))
    return lax.bitwise_xor(pattern, lax.bitwise_and(sign, largest))


def _equal(x: Array, y: Array) -> Array:
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return lax.bitwise_and(
            _equal(lax.real(x), lax.real(y)), _equal(lax.imag(x), lax.imag(y))
        )
    return lax.eq(_ranks(x), _ranks(y))


# Comparisons by which NaN equals itself, -0.0 is below 0.0, and NaN is above all numbers, or below
# them if its sign is negative.
eq_to_p = composite("eq_to", _equal)
le_to_p = composite("le_to", lambda x, y: lax.le(_ranks(x), _ranks(y)))
lt_to_p = composite("lt_to", lambda x, y: lax.lt(_ranks(x), _ranks(y)))
