"""Arrays that are sent outside of a group of processes, which is not supported: what there is instead."""

from ferrax._src.base import public as _public
from ferrax._src.parallel.topologies import (
    TransferConnection as TransferConnection,
    TransferServer as TransferServer,
    make_error_array as make_error_array,
    start_transfer_server as start_transfer_server,
)

_public.export(__name__)
