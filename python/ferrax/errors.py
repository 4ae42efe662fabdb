"""Error classes; each one's documentation says what causes it and what to do."""

from ferrax._src.errors import ConcretizationTypeError as ConcretizationTypeError
from ferrax._src.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from ferrax._src.errors import JAXIndexError as JAXIndexError
from ferrax._src.errors import JaxprTypeError as JaxprTypeError
from ferrax._src.errors import JaxRuntimeError as JaxRuntimeError
from ferrax._src.errors import JAXTypeError as JAXTypeError
from ferrax._src.errors import KeyReuseError as KeyReuseError
from ferrax._src.errors import NonConcreteBooleanIndexError as NonConcreteBooleanIndexError
from ferrax._src.errors import TracerArrayConversionError as TracerArrayConversionError
from ferrax._src.errors import TracerBoolConversionError as TracerBoolConversionError
from ferrax._src.errors import TracerIntegerConversionError as TracerIntegerConversionError
from ferrax._src.errors import UnexpectedTracerError as UnexpectedTracerError
