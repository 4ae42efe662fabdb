"""First-order optimizers as triples of functions over trees of arrays, and schedules for them.

Example:
    >>> from ferrax.example_libraries import optimizers
    >>> init, update, get_params = optimizers.adam(0.1)
    >>> state = init({"w": jnp.float32(1.0)})
    >>> for i in range(100):
    ...     state = update(i, ferrax.grad(lambda p: p["w"] ** 2)(get_params(state)), state)
    >>> bool(abs(get_params(state)["w"]) < 0.01)
    True
"""

from ferrax._src.base import public as _public
from ferrax._src.experimental.optimizers import (
    JoinPoint as JoinPoint,
    Optimizer as Optimizer,
    OptimizerState as OptimizerState,
    adagrad as adagrad,
    adam as adam,
    adamax as adamax,
    clip_grads as clip_grads,
    constant as constant,
    exponential_decay as exponential_decay,
    inverse_time_decay as inverse_time_decay,
    l2_norm as l2_norm,
    make_schedule as make_schedule,
    momentum as momentum,
    nesterov as nesterov,
    optimizer as optimizer,
    pack_optimizer_state as pack_optimizer_state,
    piecewise_constant as piecewise_constant,
    polynomial_decay as polynomial_decay,
    rmsprop as rmsprop,
    rmsprop_momentum as rmsprop_momentum,
    sgd as sgd,
    sm3 as sm3,
    unpack_optimizer_state as unpack_optimizer_state,
)

_public.export(__name__)
