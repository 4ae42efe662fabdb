"""What is publicly known of TPUs, for kernels that choose the sizes of blocks by it.

In: the version of a chip. Out: a `TpuInfo`, of one of its cores. There is no TPU here; in
`force_tpu_interpret_mode` the chip is taken for a v5e, whose one core has the most common sizes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import threading
from typing import Any

from ferrax._src.base import dtypes
from ferrax._src.base.dtypes import itemsize_bits
from ferrax._src.core.typing import DTypeLike
from ferrax._src.state import at_user_line

_KIB = 1 << 10
_MIB = 1 << 20


class LoweringException(Exception):  # noqa: N818
    """What JAX raises where its compiler of TPU kernels fails; ferrax raises none.

    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> issubclass(pltpu.LoweringException, Exception)
    True
    """


class ChipVersion(enum.Enum):
    """The versions of TPUs. The text of one is its value, such as "v5e".

    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> pltpu.ChipVersion.TPU_V5P.supports_megacore
    True
    """

    TPU_V2 = "v2"
    TPU_V3 = "v3"
    TPU_V4I = "v4i"
    TPU_V4 = "v4"
    TPU_V5E = "v5e"
    TPU_V5P = "v5p"
    TPU_V6E = "v6e"
    TPU_7 = "7"
    TPU_7X = "7x"
    TPU_8I = "8i"

    def __str__(self) -> str:
        return self.value

    @property
    def num_physical_tensor_cores_per_chip(self) -> int:
        """1 or 2."""
        return 1 if self.is_lite else 2

    @property
    def supports_megacore(self) -> bool:
        """Whether two cores can be one device."""
        return self.value in ("v4", "v5p")

    @property
    def is_lite(self) -> bool:
        """Whether the chip has one core."""
        return self.value in ("v4i", "v5e", "v6e")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseCoreInfo:
    """Of the sparse cores of a chip: how many there are, and sizes of each."""

    num_cores: int
    num_subcores: int
    num_lanes: int
    vmem_capacity_bytes: int
    dma_granule_size_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuInfo:
    """Sizes and speeds of one core of a TPU; 0 stands for what it does not have.

    Attributes:
      chip_version, generation: which chip.
      num_cores: how many cores are one device.
      num_lanes, num_sublanes: of a vector register.
      mxu_column_size, num_mxus, num_accumulators: of the units that multiply matrices.
      the others: bytes of memories, bytes and operations in a second.

    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V4, 2).is_megacore
    True
    """

    chip_version: Any
    generation: int
    num_cores: int
    num_lanes: int
    num_sublanes: int
    mxu_column_size: int
    num_mxus: int
    num_accumulators: int
    vmem_capacity_bytes: int
    cmem_capacity_bytes: int
    smem_capacity_bytes: int
    hbm_capacity_bytes: int
    mem_bw_bytes_per_second: int
    bf16_ops_per_second: int
    int8_ops_per_second: int
    fp8_ops_per_second: int
    int4_ops_per_second: int
    sparse_core: SparseCoreInfo | None = None

    @property
    def is_lite(self) -> bool:
        """Whether the chip has one core."""
        return self.chip_version.is_lite

    @property
    def is_split_chip(self) -> bool:
        """Whether each of the chip's two cores is a device."""
        return self.num_cores == 1 and not self.is_lite

    @property
    def is_megacore(self) -> bool:
        """Whether two cores are one device."""
        return self.num_cores > 1

    def is_matmul_supported(self, lhs_dtype: DTypeLike, rhs_dtype: DTypeLike) -> bool:
        """Whether the units multiply matrices of these dtypes without conversions.

        Args: lhs_dtype, rhs_dtype: the dtypes.
        """
        left, right = dtypes.dtype(lhs_dtype).name, dtypes.dtype(rhs_dtype).name
        return any(left in lefts and right in rights for lefts, rights in _PRODUCTS.get(self.generation, ()))

    def get_sublane_tiling(self, dtype: DTypeLike) -> int:
        """How many rows a tile of this dtype has in memory.

        Args: dtype: the dtype. Errors: NotImplementedError for generations after the seventh.
        """
        bits = itemsize_bits(dtype)
        if self.generation > 7:
            raise NotImplementedError(f"get_sublane_tiling: it is not known how {self.chip_version} lays out arrays")
        packed = self.generation == 7 or bits not in (16, 32)
        return self.num_sublanes * (32 // bits if packed else 1)


_WIDE = ("float32", "bfloat16")
_OLD8 = ("float8_e5m2", "float8_e4m3b11fnuz")
_NEW8 = ("float8_e5m2", "float8_e4m3fn")
_FIRST = [(("float32",), ("float32",))]
_MIDDLE = [((*_WIDE, *_OLD8), (*_WIDE, *_OLD8)), (("uint8", "int8"),) * 2, (("uint4", "int4"),) * 2]
_LATE = [(_WIDE, _WIDE), ((*_WIDE, *_NEW8), _NEW8)]
# By generation, pairs of dtypes whose products are native.
_PRODUCTS: dict[int, list] = {
    2: _FIRST, 3: _FIRST, 4: [(_WIDE, (*_WIDE, "int8"))], 5: _MIDDLE, 6: _MIDDLE, 7: _LATE, 8: _LATE
}  # fmt: skip

# Of each chip: generation; columns, number and accumulators of its matrix units; MiB of VMEM and KiB of
# SMEM of a core; then of the whole chip GB of CMEM and of HBM, GB/s, and 10^12 operations per second of
# bfloat16, int8, fp8, int4; cores, subcores, lanes, KiB and bytes of a transfer of its sparse cores.
_CHIPS: dict[str, tuple] = {
    "v2": (2, 128, 1, 0, 16, 16, 0, 16, 716, 46, 0, 0, 0, None),
    "v3": (3, 128, 2, 0, 16, 16, 0, 34.4, 825, 140, 0, 0, 0, None),
    "v4i": (4, 128, 4, 0, 16, 1024, 0.134, 8.59, 614, 137, 0, 0, 0, None),
    "v4": (4, 128, 4, 0, 16, 1024, 0.134, 34.4, 1230, 275, 0, 0, 0, None),
    "v5e": (5, 128, 4, 0, 128, 1024, 0, 17.2, 820, 197, 394, 0, 788, None),
    "v5p": (5, 128, 4, 0, 64, 1024, 0, 103, 2460, 459, 918, 0, 1840, (4, 16, 8, 512, 32)),
    "v6e": (6, 256, 2, 0, 128, 1024, 0, 34.4, 1640, 920, 1840, 920, 3680, (2, 16, 8, 256, 32)),
    "7": (7, 256, 2, 128, 64, 1024, 0, 206, 7400, 2310, 0, 4600, 0, (2, 16, 16, 512, 32)),
    "7x": (7, 256, 2, 128, 64, 1024, 0, 206, 7400, 2310, 0, 4600, 0, (2, 16, 16, 512, 32)),
    "8i": (8, 256, 2, 256, 192, 1024, 0, 309, 8600, 1101, 0, 8808, 0, (1, 4, 16, 512, 64)),
}


def get_tpu_info_for_chip(chip_version: ChipVersion, num_tensor_cores_per_logical_device: int) -> TpuInfo:
    """What is known of one core of a chip.

    Args:
      chip_version: which.
      num_tensor_cores_per_logical_device: how many cores are one device: 1, or 2 where the chip can.

    Errors: ValueError for more cores than one device has.

    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V5E, 1).vmem_capacity_bytes
    134217728
    """
    count = num_tensor_cores_per_logical_device
    if count != 1 and not (count == 2 and chip_version.supports_megacore):
        raise ValueError(f"a device of TPU {chip_version} has not {count} cores")
    facts = _CHIPS[chip_version.value]
    generation, columns, units, sums, vmem, smem, cmem, hbm, speed, *operations, sparse = facts
    cores = chip_version.num_physical_tensor_cores_per_chip
    bf16, int8, fp8, int4 = (round(x * 10**12) // cores for x in operations)
    if sparse is not None:
        names = ("num_cores", "num_subcores", "num_lanes", "vmem_capacity_bytes", "dma_granule_size_bytes")
        number, subcores, lanes, memory, granule = sparse
        sparse = SparseCoreInfo(**dict(zip(names, (number, subcores, lanes, memory * _KIB, granule))))
    return TpuInfo(
        chip_version=chip_version, generation=generation, num_cores=count, num_lanes=128, num_sublanes=8,
        mxu_column_size=columns, num_mxus=units, num_accumulators=sums, vmem_capacity_bytes=vmem * _MIB,
        cmem_capacity_bytes=round(cmem * 10**9) // cores, smem_capacity_bytes=smem * _KIB,
        hbm_capacity_bytes=round(hbm * 10**9) // cores, mem_bw_bytes_per_second=speed * 10**9 // cores,
        bf16_ops_per_second=bf16, int8_ops_per_second=int8, fp8_ops_per_second=fp8, int4_ops_per_second=int4,
        sparse_core=sparse,
    )  # fmt: skip


class _State(threading.local):
    is_tpu = False


_state = _State()


@contextlib.contextmanager
def taken_for_tpu():
    """A context in which `get_tpu_info` answers."""
    before, _state.is_tpu = _state.is_tpu, True
    try:
        yield
    finally:
        _state.is_tpu = before


def set_taken_for_tpu(value: bool) -> None:
    """Whether `get_tpu_info` answers on this thread from now on."""
    _state.is_tpu = value


def get_tpu_info() -> TpuInfo:
    """What is known of the TPU that kernels are made for: under `force_tpu_interpret_mode` a v5e.

    Errors: NotImplementedError elsewhere: there is no TPU.

    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> with pltpu.force_tpu_interpret_mode():
    ...     pltpu.get_tpu_info().num_lanes
    128
    """
    if not _state.is_tpu:
        raise NotImplementedError(
            "get_tpu_info: there is no TPU, sizes of blocks are free here. For a kernel that asks, use "
            f"pltpu.force_tpu_interpret_mode(), or pltpu.get_tpu_info_for_chip.{at_user_line()}"
        )
    return get_tpu_info_for_chip(ChipVersion.TPU_V5E, 1)
