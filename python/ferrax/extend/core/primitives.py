"""The primitives under JAX's names: `exp_p`, `scan_p`, and so on."""

# ruff: noqa: F401

from ferrax._src.callbacks.rng_uniform import rng_uniform_p as rng_uniform_p
from ferrax._src.composed.approx_top_k import approx_top_k_p as approx_top_k_p
from ferrax._src.composed.custom_solves import linear_solve_p as linear_solve_p
from ferrax._src.composed.polynomial import (
    log2_p as log2_p,
    one_minus_square_p as one_minus_square_p,
    polynomial_p as polynomial_p,
)
from ferrax._src.composed.random_bits import rng_bit_generator_p as rng_bit_generator_p
from ferrax._src.composed.special.bessel import (
    bessel_i0e_p as bessel_i0e_p,
    bessel_i1e_p as bessel_i1e_p,
)
from ferrax._src.composed.special.incomplete_beta import (
    regularized_incomplete_beta_p as regularized_incomplete_beta_p,
)
from ferrax._src.composed.special.incomplete_gamma import (
    igamma_grad_a_p as igamma_grad_a_p,
    igamma_p as igamma_p,
    igammac_p as igammac_p,
)
from ferrax._src.composed.special.zeta import polygamma_p as polygamma_p, zeta_p as zeta_p
from ferrax._src.composed.tokens import (
    after_all_p as after_all_p,
    create_token_p as create_token_p,
    eq_to_p as eq_to_p,
    le_to_p as le_to_p,
    lt_to_p as lt_to_p,
)
from ferrax._src.composed.window_primitives import (
    reduce_p as reduce_p,
    reduce_window_max_p as reduce_window_max_p,
    reduce_window_min_p as reduce_window_min_p,
    reduce_window_p as reduce_window_p,
    reduce_window_sum_p as reduce_window_sum_p,
    select_and_gather_add_p as select_and_gather_add_p,
    select_and_scatter_add_p as select_and_scatter_add_p,
)
from ferrax._src.composed.window_scatter import select_and_scatter_p as select_and_scatter_p
from ferrax._src.core.primitives import named_primitives as _named_primitives
from ferrax._src.interop.call_primitives import (
    call_p as call_p,
    closed_call_p as closed_call_p,
)
from ferrax._src.lax.ragged import ragged_all_to_all_p as ragged_all_to_all_p
from ferrax._src.parallel.constraints import sharding_constraint_p as sharding_constraint_p
from ferrax._src.random.gamma import random_gamma_p as random_gamma_p
from ferrax._src.transforms.ad import add_jaxvals_p as add_jaxvals_p
from ferrax._src.transforms.device_moves import device_put_p as device_put_p

globals().update(_named_primitives())
