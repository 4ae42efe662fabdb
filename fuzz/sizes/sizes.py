"""Which shapes and dtypes are drawn: those at the sizes where other code runs.

The bytes of an array decide whether rows go block by block (1 MiB), whether products do (4 MiB), about huge pages and
memory that goes back (1, 2 and 16 MiB), threads (64 KiB), copies (4 MiB) and the L1 cache; extents of axes
decide about tiles, lanes (16, 128, 1024), blocks of sums (256), panels of products (512, 3072, 4096) and thin
products (up to 12 rows). Each is met from both sides.
"""

import math
import random

from .program import WIDTH

# Extents at which tiles, lanes, blocks and panels end, and their neighbours.
EXTENTS = sorted({1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 24, 48, 100, 191, 193, 240, 509, 1000, 3071, 3073}
                 | {(1 << n) + near for n in range(3, 13) for near in (-1, 0, 1)} | {192, 768, 3072})  # fmt: skip
SMALL = [extent for extent in EXTENTS if extent <= 17]
# Of the largest array that a program begins with. Twice what matters most.
BYTES = [64, *(1 << power for power in (10, 12, 15, 16, 18, 19, 20, 20, 20, 21, 22, 22, 22, 23))]
LARGE = [1 << 24, 1 << 25, 1 << 26]
DTYPES = ["float32"] * 10 + ["bfloat16"] * 4 + ["float16"] * 3 + ["float64", "int32", "complex64"] * 2
DTYPES += ["int8", "uint8", "bool"]
DIFFERENTIABLE = ["float32"] * 6 + ["bfloat16", "float16", "float64"]


# Of arrays whose values are looked at: 64 MiB in single precision.
MOST_ELEMENTS = 1 << 24


def target(rng: random.Random, most: int) -> int:
    """About how many bytes the first input has."""
    drawn = rng.choice(LARGE) if rng.random() < 0.03 else rng.choice(BYTES) * rng.choice([1, 1, 1, 2, 3])
    return max(min(drawn, most), 64)


def extent(rng: random.Random, most: int) -> int:
    """One extent of at most so much: small ones as often as large ones."""
    fits = [one for one in EXTENTS if one <= most] or [1]
    half = len(fits) // 2
    return rng.choice(rng.choice([fits, fits[half:], SMALL[: len(fits)], [1]] if rng.random() < 0.9 else [fits]))


def shape(rng: random.Random, size: int, dtype: str) -> list[int]:
    """A shape of about so many bytes: all axes but one are drawn, that one takes the rest, or one more or less."""
    count = max(size // WIDTH[dtype], 1)
    axes: list[int] = []
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4])):
        axes.append(extent(rng, count // math.prod(axes)))
    axes.append(max(count // math.prod(axes) + rng.choice([0, 0, 0, 0, -1, 1]), 1))
    rng.shuffle(axes)
    if rng.random() < 0.015:
        axes[rng.randrange(len(axes))] = 0
    return axes
