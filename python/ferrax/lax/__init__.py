"""``ferrax.lax``: array functions without implicit promotion or broadcasting.

Every function takes arrays (or scalars) of equal dtypes and shapes and is one op, or a few, of the
compiler. ``ferrax.numpy`` is built on them.
"""

# ruff: noqa: F401, F403
from ferrax._src.base import public as _public
from ferrax._src.callbacks.rng_uniform import (
    rng_uniform as rng_uniform,
    rng_uniform_p as rng_uniform_p,
)
from ferrax._src.composed.approx_top_k import (
    approx_max_k as approx_max_k,
    approx_min_k as approx_min_k,
    approx_top_k_p as approx_top_k_p,
)
from ferrax._src.composed.composite_calls import (
    composite as composite,
    composite_p as composite_p,
    platform_dependent as platform_dependent,
)
from ferrax._src.composed.custom_solves import (
    custom_linear_solve as custom_linear_solve,
    custom_root as custom_root,
    linear_solve_p as linear_solve_p,
)
from ferrax._src.composed.polynomial import (
    log2 as log2,
    log2_p as log2_p,
    one_minus_square as one_minus_square,
    one_minus_square_p as one_minus_square_p,
    polynomial as polynomial,
    polynomial_p as polynomial_p,
)
from ferrax._src.composed.ragged_dot import (
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    ragged_dot as ragged_dot,
    ragged_dot_general as ragged_dot_general,
    ragged_dot_general_p as ragged_dot_general_p,
)
from ferrax._src.composed.random_bits import (
    RandomAlgorithm as RandomAlgorithm,
    rng_bit_generator as rng_bit_generator,
    rng_bit_generator_p as rng_bit_generator_p,
)
from ferrax._src.composed.reduce import (
    reduce as reduce,
    reduce_window as reduce_window,
)
from ferrax._src.composed.scaled_dot import (
    scaled_dot as scaled_dot,
    scaled_dot_p as scaled_dot_p,
)
from ferrax._src.composed.shape_primitives import (
    dce_sink as dce_sink,
    dce_sink_p as dce_sink_p,
    split_p as split_p,
    stack_p as stack_p,
    stage as stage,
    stage_p as stage_p,
    tile_p as tile_p,
    unstack_p as unstack_p,
)
from ferrax._src.composed.special.bessel import (
    bessel_i0e as bessel_i0e,
    bessel_i0e_p as bessel_i0e_p,
    bessel_i1e as bessel_i1e,
    bessel_i1e_p as bessel_i1e_p,
)
from ferrax._src.composed.special.incomplete_beta import (
    betainc as betainc,
    regularized_incomplete_beta_p as regularized_incomplete_beta_p,
)
from ferrax._src.composed.special.incomplete_gamma import (
    igamma as igamma,
    igamma_grad_a as igamma_grad_a,
    igamma_grad_a_p as igamma_grad_a_p,
    igamma_p as igamma_p,
    igammac as igammac,
    igammac_p as igammac_p,
    random_gamma_grad as random_gamma_grad,
)
from ferrax._src.composed.special.zeta import (
    polygamma as polygamma,
    polygamma_p as polygamma_p,
    zeta as zeta,
    zeta_p as zeta_p,
)
from ferrax._src.composed.tokens import (
    after_all as after_all,
    after_all_p as after_all_p,
    create_token as create_token,
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
from ferrax._src.composed.windows import (
    reduce_window_shape_tuple as reduce_window_shape_tuple,
)
from ferrax._src.core.primitives import LINALG as _LINALG, named_primitives as _named_primitives
from ferrax._src.lax.api import *
from ferrax._src.lax.api import _convert_element_type
from ferrax._src.parallel.casts import pcast as pcast
from ferrax._src.parallel.constraints import (
    sharding_constraint_p as sharding_constraint_p,
    with_sharding_constraint as with_sharding_constraint,
)
from ferrax._src.transforms.device_moves import device_put_p as device_put_p
from ferrax._src.transforms.map import map as map
from ferrax.lax import linalg as linalg

# Every op as a primitive: exp_p, add_p, ...; those of decompositions are in `linalg`.
globals().update({name: p for name, p in _named_primitives().items() if p.name not in _LINALG})

_public.export(__name__)
