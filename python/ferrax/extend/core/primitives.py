"""The primitives under JAX's names: `exp_p`, `scan_p`, and so on."""

# ruff: noqa: F401

from ferrax._src.composed.custom_solves import linear_solve_p as linear_solve_p
from ferrax._src.composed.window_primitives import (
    reduce_p as reduce_p,
    reduce_window_max_p as reduce_window_max_p,
    reduce_window_min_p as reduce_window_min_p,
    reduce_window_p as reduce_window_p,
    reduce_window_sum_p as reduce_window_sum_p,
    select_and_gather_add_p as select_and_gather_add_p,
    select_and_scatter_add_p as select_and_scatter_add_p,
)
from ferrax._src.core.primitives import named_primitives as _named_primitives
from ferrax._src.interop.call_primitives import (
    call_p as call_p,
    closed_call_p as closed_call_p,
)
from ferrax._src.transforms.ad import add_jaxvals_p as add_jaxvals_p

globals().update(_named_primitives())
