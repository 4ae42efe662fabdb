"""``ferrax.experimental.array_serialization.serialization``: the base of classes that write arrays to files."""

from ferrax._src.base import public as _public
from ferrax._src.base.absent import absent as _absent, group as _group
from ferrax._src.interop.array_managers import (
    GlobalAsyncCheckpointManagerBase as GlobalAsyncCheckpointManagerBase,
)

__getattr__ = _absent(
    __name__,
    _group(
        "AsyncManager BarrierTimeoutError GlobalAsyncCheckpointManager async_deserialize async_serialize "
        "get_tensorstore_spec is_remote_storage run_deserialization run_serialization",
        "use Orbax's CheckpointManager, or ferrax.experimental.checkpoint",
    ),
)

_public.export(__name__)
