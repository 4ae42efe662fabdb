"""Ahead-of-time compilation in stages: `jit(f).trace(...).lower().compile()`."""

from ferrax._core import PjitFunction as Wrapped
from ferrax._src.base import public as _public
from ferrax._src.transforms.memory_plan import MemoryPlan
from ferrax._src.transforms.stages import ArgInfo, Compiled, Lowered, OutInfo, Traced

CompilerOptions = dict[str, str | bool]

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "MemoryPlan", "OutInfo", "Traced", "Wrapped"]

_public.export(__name__)
