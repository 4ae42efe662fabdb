"""Mutable arrays: `Ref`, what traced functions do to them, and refs among arguments.

What the layers above use is here; the attributes of a `Ref` are the business of this package.
"""

from ferrax._src.state import arguments, boxes, value_refs
from ferrax._src.state.messages import (
    at_user_line,
    differentiated_write,
    passed_twice,
    returned,
    type_text,
)
from ferrax._src.state.ref import (
    AbstractRef,
    Ref,
    _modules,
    argument,
    array_type,
    check_ref,
    conform,
    copied,
    free_ref,
    freeze,
    held,
    home_ref,
    masked,
    masks,
    new_ref,
    ordered_ref,
    read,
    replaced,
    reverse,
    store,
    write,
)
from ferrax._src.state.views import TransformedRef, opened

_modules.update(boxes=boxes, value_refs=value_refs)

__all__ = [
    "AbstractRef",
    "Ref",
    "TransformedRef",
    "argument",
    "arguments",
    "array_type",
    "at_user_line",
    "boxes",
    "check_ref",
    "conform",
    "copied",
    "differentiated_write",
    "free_ref",
    "freeze",
    "held",
    "home_ref",
    "masked",
    "masks",
    "new_ref",
    "opened",
    "ordered_ref",
    "passed_twice",
    "read",
    "replaced",
    "returned",
    "reverse",
    "store",
    "type_text",
    "write",
]
