"""Products of matrices: sizes and types, batches, vectors, with what follows them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from timing import case

TITLE = "Products of matrices"


def _array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def _pair(size, dtype):
    return [_array(size, size, seed=seed).astype(dtype) for seed in (0, 1)]


def _product(library, x, y):
    return x @ y


def _square(size, name, dtype):
    """NumPy's products of bfloat16 go element by element."""
    return case(
        f"`x @ y` of {size}×{size}, {name}", _pair(size, dtype), _product,
        numpy=True if name != "bfloat16" else None, torch=True,
        wide=name == "float64",
    )  # fmt: skip


def _dense(library, x, w, b):
    return library.jax.nn.gelu(x @ w + b)


def _t_dense(t, x, w, b):
    return t.nn.functional.gelu(t.addmm(b, x, w), approximate="tanh")


def _np_dense(x, w, b):
    x = x @ w + b
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))


def _f32(*shapes):
    return [_array(*shape, seed=seed).astype(np.float32) for seed, shape in enumerate(shapes)]


TYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16}
DENSE = _f32((1024, 512), (512, 2048), (2048,))

ROWS = [
    *(_square(size, name, dtype) for name, dtype in TYPES.items()
      for size in (64, 128, 256, 512, 1024, 2048)),
    case("64 products of 64×64", _f32((64, 64, 64), (64, 64, 64)), _product, numpy=True, torch=True),
    case("1,000 products of 8×8", _f32((1000, 8, 8), (1000, 8, 8)), _product, numpy=True, torch=True),
    case("2000×2000 by a vector", _f32((2000, 2000), (2000,)), _product, numpy=True, torch=True),
    case("a vector by 2000×2000", _f32((2000,), (2000, 2000)), _product, numpy=True, torch=True),
    case("256×256 by a vector", _f32((256, 256), (256,)), _product, numpy=True, torch=True),
    case("500×10 by a vector", _f32((500, 10), (10,)), _product, numpy=True, torch=True),
    case("500×10, transposed, by a vector", _f32((500, 10), (500,)), lambda lib, x, y: x.T @ y, numpy=True,
         torch=True),
    case("`x @ y.T` of 512×512", _pair(512, np.float32), lambda lib, x, y: x @ y.T, numpy=True, torch=True),
    case("`x.T @ y` of 512×512", _pair(512, np.float32), lambda lib, x, y: x.T @ y, numpy=True, torch=True),
    case("1024×512 by 512×2048 with bias and `gelu`", DENSE, _dense, numpy=_np_dense, torch=_t_dense),
    case("gradient of it", [*DENSE, *_f32((1024, 2048))], _dense, gradient=3, torch=_t_dense),
]  # fmt: skip
