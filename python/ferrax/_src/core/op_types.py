"""Static argument types of ``ferrax.lax``: enumerations and dimension numbers.

Invariant: nothing here refers to arrays. Each type knows how to become the plain value (a string or
an integer) that the core takes as an op parameter.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np


class Precision(enum.Enum):
    """How exactly a dot product or convolution multiplies: DEFAULT, HIGH or HIGHEST.

    >>> lax.dot(jnp.ones(3), jnp.ones(3), precision=lax.Precision.HIGHEST)
    Array(3., dtype=float32)
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value):
        return _PRECISION_NAMES.get(value) if isinstance(value, str) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


_PRECISION_NAMES = {
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "default": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
}


class DotAlgorithm(NamedTuple):
    """A dot product's arithmetic in full: input and accumulation types, and component counts.

    >>> lax.DotAlgorithm(np.float32, np.float32, np.float32).accumulation_type
    <class 'numpy.float32'>
    """

    lhs_precision_type: Any
    rhs_precision_type: object
    accumulation_type: object
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Named dot algorithms; the last part of a name is the accumulation type.

    >>> lax.dot(jnp.ones(3), jnp.ones(3), precision=lax.DotAlgorithmPreset.F32_F32_F32)
    Array(3., dtype=float32)
    """

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()


PrecisionLike: TypeAlias = (
    "None | str | Precision | tuple[str, str] | tuple[Precision, Precision] "
    "| DotAlgorithm | DotAlgorithmPreset"
)

DotDimensionNumbers: TypeAlias = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]


class ConvDimensionNumbers(NamedTuple):
    """Which axis of a convolution's arrays is which.

    `lhs_spec` and `out_spec` are (batch, feature, spatial ...), `rhs_spec` is (output feature, input
    feature, spatial ...), as numbers of axes.

    >>> lax.conv_dimension_numbers((1, 8, 3), (2, 3, 4), ("NWC", "WIO", "NWC"))
    ConvDimensionNumbers(lhs_spec=(0, 2, 1), rhs_spec=(2, 1, 0), out_spec=(0, 2, 1))
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


ConvGeneralDilatedDimensionNumbers: TypeAlias = (
    "tuple[str, str, str] | ConvDimensionNumbers | None"
)


def _preset_precision(name: str) -> Precision:
    if name == "DEFAULT" or "F8" in name or name in ("BF16_BF16_BF16", "BF16_BF16_F32"):
        return Precision.DEFAULT
    if name in ("BF16_BF16_F32_X3", "TF32_TF32_F32"):
        return Precision.HIGH
    return Precision.HIGHEST


def precision_name(precision: PrecisionLike) -> str | None:
    """The core's name for a precision: None, "default", "high" or "highest".

    A pair (left operand, right operand) becomes the more exact of the two: the kernels have one
    precision for both sides, and more exact is always allowed.
    """
    if precision is None:
        return None
    if isinstance(precision, Precision):
        return precision.name.lower()
    if isinstance(precision, str):
        found = _PRECISION_NAMES.get(precision)
        if found is None and precision in DotAlgorithmPreset.__members__:
            found = _preset_precision(precision)
        if found is not None:
            return found.name.lower()
    elif isinstance(precision, DotAlgorithmPreset):
        return _preset_precision(precision.name).name.lower()
    elif isinstance(precision, DotAlgorithm):
        exact = np.dtype(precision.lhs_precision_type).itemsize >= 4
        return "highest" if exact else "default"
    elif isinstance(precision, (tuple, list)) and len(precision) == 2:
        names = [precision_name(p) for p in precision]
        order = ("default", "high", "highest")
        return max(names, key=lambda n: -1 if n is None else order.index(n))
    raise ValueError(
        f"precision: got {precision!r}, expected None, a lax.Precision or its name (of "
        f"{list(_PRECISION_NAMES)}), a pair of these for both operands, a lax.DotAlgorithm, or a "
        "lax.DotAlgorithmPreset or its name"
    )


class RoundingMethod(enum.IntEnum):
    """What ``lax.round`` does with halves: away from zero, or to the nearest even integer.

    >>> lax.round(jnp.array([0.5]), lax.RoundingMethod.TO_NEAREST_EVEN)
    Array([0.], dtype=float32)
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class FftType(enum.IntEnum):
    """Which Fourier transform ``lax.fft`` computes: forward, inverse, of reals, to reals.

    >>> lax.fft(jnp.arange(4.0), lax.FftType.RFFT, (4,)).real
    Array([ 6., -2., -2.], dtype=float32)
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


class AccuracyMode(enum.Enum):
    """Requested accuracy of an elementwise function: there is one, which is the highest.

    >>> lax.AccuracyMode.DEFAULT.name
    'DEFAULT'
    """

    HIGHEST = 1
    DEFAULT = 2


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """Requested error bound of an elementwise function: absolute, relative, and in ulps.

    Attributes: `atol`, `rtol` and `ulps`, not negative.

    >>> lax.Tolerance(ulps=2).ulps
    2
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.atol < 0.0 or self.rtol < 0.0 or self.ulps < 0:
            raise ValueError("Tolerances must be non-negative.")


class GatherScatterMode(enum.Enum):
    """What a gather or scatter does with an index that is out of bounds.

    CLIP moves it to the nearest in-bounds position; FILL_OR_DROP yields the fill value (gather) or
    skips the update (scatter); PROMISE_IN_BOUNDS says that there is none.

    >>> jnp.array([1, 2, 3]).at[7].get(mode=lax.GatherScatterMode.CLIP)
    Array(3, dtype=int32)
    """

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """A mode from itself, from its name, or from None (FILL_OR_DROP)."""
        if isinstance(s, GatherScatterMode):
            return s
        if s in _MODE_NAMES:
            return _MODE_NAMES[s]
        raise ValueError(f'Unknown gather mode "{s}"')

    @property
    def core_name(self) -> str:
        """The core's name of the mode: "clip", "fill" or "promise_in_bounds"."""
        if self is GatherScatterMode.ONE_HOT:
            raise NotImplementedError("gather/scatter mode ONE_HOT is not implemented")
        return _CORE_MODE_NAMES[self]


_MODE_NAMES = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}
_CORE_MODE_NAMES = {
    GatherScatterMode.CLIP: "clip",
    GatherScatterMode.FILL_OR_DROP: "fill",
    GatherScatterMode.PROMISE_IN_BOUNDS: "promise_in_bounds",
}


class GatherDimensionNumbers(NamedTuple):
    """How a gather's operand, start indices and output dimensions correspond.

    Args:
      offset_dims: output dimensions that run over the window, in order.
      collapsed_slice_dims: operand dimensions of window size 1 that the output leaves out.
      start_index_map: operand dimension that each component of an index vector addresses.
      operand_batching_dims: operand dimensions paired with indices' batching dimensions.
      start_indices_batching_dims: those dimensions of the indices.

    >>> rows = lax.GatherDimensionNumbers((1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(jnp.array([[1, 2], [3, 4]]), jnp.array([[1]]), rows, slice_sizes=(1, 2))
    Array([[3, 4]], dtype=int32)
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """How a scatter's operand, indices and updates correspond; the mirror image of a gather's.

    Args:
      update_window_dims: updates' dimensions that run over the window.
      inserted_window_dims: operand dimensions of window size 1 that the updates leave out.
      scatter_dims_to_operand_dims: operand dimension each component of an index vector addresses.
      operand_batching_dims: operand dimensions paired with indices' batching dimensions.
      scatter_indices_batching_dims: those dimensions of the indices.

    >>> elements = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter(jnp.zeros(3), jnp.array([[1]]), jnp.array([5.0]), elements)
    Array([0., 5., 0.], dtype=float32)
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()
