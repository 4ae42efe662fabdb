"""Error classes; each one's documentation says what causes it and what to do."""

from ferrax._src.base import public as _public
from ferrax._src.base.errors import (
    ConcretizationTypeError as ConcretizationTypeError,
    InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    IndexCheckError as IndexCheckError,
    JAXIndexError as JAXIndexError,
    JaxprTypeError as JaxprTypeError,
    JaxRuntimeError as JaxRuntimeError,
    JAXTypeError as JAXTypeError,
    KeyReuseError as KeyReuseError,
    NonConcreteBooleanIndexError as NonConcreteBooleanIndexError,
    ShardingTypeError as ShardingTypeError,
    TooManyTracesError as TooManyTracesError,
    TracerArrayConversionError as TracerArrayConversionError,
    TracerBoolConversionError as TracerBoolConversionError,
    TracerIntegerConversionError as TracerIntegerConversionError,
    UnexpectedTracerError as UnexpectedTracerError,
)
from ferrax._src.base.fixed_flags import UnsupportedFlagError as UnsupportedFlagError
from ferrax._src.base.traceback_util import (
    SimplifiedTraceback as SimplifiedTraceback,
    UnfilteredStackTrace as UnfilteredStackTrace,
)
from ferrax._src.core.sharding import (
    DuplicateSpecError as DuplicateSpecError,
    IndivisibleError as IndivisibleError,
)

_public.export(__name__)
