"""Bits of counter-based generators from a state, beside JAX's: `lax.rng_bit_generator`."""

import numpy as np
import pytest
from oracle import FERRAX, JAX, compare

import ferrax
from ferrax import lax
from ferrax._src.composed import random_bits

STATES = [[1, 2, 3, 4], [1, 2, 2**32 - 1, 2**32 - 1], [2**32 - 1] * 4]
SHAPES = [(), (7,), (2, 3), (3, 4), (3, 5), (0, 2)]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("algorithm", ["RNG_DEFAULT", "RNG_PHILOX", "RNG_THREE_FRY"])
def test_bits(algorithm, x64):
    def case(S):
        kind = getattr(S.lax.RandomAlgorithm, algorithm)
        types = ["uint8", "uint16", "uint32"] + ["uint64"] * x64

        def bits(state):
            return [S.lax.rng_bit_generator(state, (3, 3), dtype, kind) for dtype in types]

        with S.jax.enable_x64(x64):
            found = [S.jax.jit(bits)(np.array(state, np.uint32)) for state in STATES]
            found += [S.lax.rng_bit_generator(found[0][0][0], shape, algorithm=kind) for shape in SHAPES]
            if x64:
                wide = np.array([1 + (2 << 32), 3 + (4 << 32)], np.uint64)
                found.append(S.lax.rng_bit_generator(wide, (5,), "uint32", kind))
            return found

    compare(case(FERRAX), case(JAX))


def test_more_blocks_than_a_word_counts():
    """Types of large samples, and the counter's sum in two words, which the elements of one cannot show."""

    def types(S):
        return [str(x) for x in S.jax.eval_shape(lambda x: S.lax.rng_bit_generator(x, (10**11,)), np.ones(4, np.uint32))]

    assert types(FERRAX) == types(JAX)
    starts = [(2**32 - 1, 2**32 - 1), (5, 2**32 - 2), (5, 7)]
    for steps in (1, 2**32, 2**32 + 5, 3 * 2**32 - 1):
        words = [np.array(w, np.uint32) for w in zip(*starts)]
        found = random_bits._advance(*words, np.uint32(steps % 2**32), np.uint32(steps // 2**32))
        sums = [low + (high << 32) + steps for low, high in starts]
        assert [int(x) for x in found[0]] == [x % 2**32 for x in sums]
        assert [int(x) for x in found[1]] == [x // 2**32 % 2**32 for x in sums]
        assert [int(x) for x in found[2]] == [x // 2**64 for x in sums]


def test_batches_and_errors():
    states = np.array(STATES, np.uint32)

    def batched(S):
        draw = S.jax.vmap(lambda state: S.lax.rng_bit_generator(state, (3,)))
        return draw(states), S.jax.vmap(draw, 1, 1)(np.stack([states, states + np.uint32(1)]).swapaxes(0, 1))

    compare(batched(FERRAX), batched(JAX))
    assert "rng_bit_generator[" in str(ferrax.make_jaxpr(lambda x: lax.rng_bit_generator(x, (3,)))(states[0]))
    for error, call in [
        (TypeError, lambda: lax.rng_bit_generator(states, (3,))),
        (TypeError, lambda: lax.rng_bit_generator(states[0].astype(np.int32), (3,))),
        (TypeError, lambda: lax.rng_bit_generator(states[0], (3,), np.float32)),
    ]:
        with pytest.raises(error):
            call()
