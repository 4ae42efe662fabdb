"""The operations, as `ferrax.lax` exports them beside those of `_src.composed`; layers above use it as
`lax`. Modules of this one import each other."""

# ruff: noqa: F401, F403
from ferrax._core.lax import *
from ferrax._src.core.op_types import (
    AccuracyMode as AccuracyMode,
    ConvDimensionNumbers as ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    DotAlgorithm as DotAlgorithm,
    DotAlgorithmPreset as DotAlgorithmPreset,
    DotDimensionNumbers as DotDimensionNumbers,
    FftType as FftType,
    GatherDimensionNumbers as GatherDimensionNumbers,
    GatherScatterMode as GatherScatterMode,
    Precision as Precision,
    PrecisionLike as PrecisionLike,
    RoundingMethod as RoundingMethod,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
    Tolerance as Tolerance,
)
from ferrax._src.lax.control_flow.associative_scan import *
from ferrax._src.lax.control_flow.barrier import *
from ferrax._src.lax.control_flow.conditionals import *
from ferrax._src.lax.control_flow.scan import *
from ferrax._src.lax.control_flow.while_loop import *
from ferrax._src.lax.convolution import *
from ferrax._src.lax.convolution_patches import *
from ferrax._src.lax.convolution_shapes import *
from ferrax._src.lax.creation import *
from ferrax._src.lax.dot import *
from ferrax._src.lax.elementwise import *
from ferrax._src.lax.elementwise import _convert_element_type as _convert_element_type
from ferrax._src.lax.fft import *
from ferrax._src.lax.gather_scatter import *
from ferrax._src.lax.parallel import *
from ferrax._src.lax.ragged import *
from ferrax._src.lax.reduce import *
from ferrax._src.lax.sends import *
from ferrax._src.lax.shape import *
from ferrax._src.lax.slicing import *
from ferrax._src.lax.sorting import *
