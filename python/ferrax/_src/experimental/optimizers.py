"""First-order optimizers as triples of functions, schedules of step sizes, norms of gradients.

An optimizer for one array is three functions: `init(x)` makes its state, `update(i, g, state)` takes
step number i with gradient g, `get_params(state)` gives the array back. `optimizer` lifts such a
triple to trees of arrays. A lifted state is `OptimizerState`: for each leaf of the parameters the
leaves of its state, with both kinds of trees as static data, so that it goes through `jit` and loops.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike
from ferrax._src.numpy import api as jnp
from ferrax._src.tree import tree_util

Params = Any  # a tree of arrays
State = Any  # a tree of arrays
Schedule = Callable[[ArrayLike], ArrayLike]


class OptimizerState(NamedTuple):
    """What an optimizer knows between two steps; a pytree.

    Attributes:
        packed_state: a sequence with the leaves of the state of each leaf of the parameters.
        tree_def: the tree of the parameters.
        subtree_defs: the trees of these states.

    >>> optimizers.sgd(0.1).init_fn({"w": 1.0}).packed_state
    ([1.0],)
    """

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


tree_util.register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda trees, children: OptimizerState(*children, *trees),
)


class Optimizer(NamedTuple):
    """The three functions of an optimizer.

    Attributes:
        init_fn: from parameters to a state.
        update_fn: from the number of the step, gradients like the parameters and a state to the next
            state.
        params_fn: from a state to the parameters.

    >>> init, update, get_params = optimizers.sgd(0.5)
    >>> float(get_params(update(0, 2.0, init(3.0))))
    2.0
    """

    init_fn: Callable[[Params], OptimizerState]
    update_fn: Callable[[Any, Params, OptimizerState], OptimizerState]
    params_fn: Callable[[OptimizerState], Params]


def _pack(states, tree) -> OptimizerState:
    pairs = [tree_util.tree_flatten(state) for state in states]
    return OptimizerState(
        tuple(leaves for leaves, _ in pairs), tree, tuple(sub for _, sub in pairs)
    )


def _unpack(state) -> list:
    return [tree.unflatten(leaves) for tree, leaves in zip(state.subtree_defs, state.packed_state)]


def optimizer(
    opt_maker: Callable[..., tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]],
) -> Callable[..., Optimizer]:
    """Makes of an optimizer for one array one for trees of arrays; a decorator.

    Args:
        opt_maker: a function that returns a triple `init(x)`, `update(i, g, state)`,
            `get_params(state)` for an array x; states are trees of arrays.

    Returns: a function of the same arguments that returns an `Optimizer`. Its `update_fn` raises
    TypeError where the gradients have another tree than the parameters, and where `update` gives a
    state of another tree than it was given.

    Example:
        >>> @optimizers.optimizer
        ... def halving(rate):
        ...     return lambda x: x, lambda i, g, x: x - rate * g / 2**i, lambda x: x
        >>> init, update, get_params = halving(0.5)
        >>> get_params(update(1, (4.0,), init((3.0,))))
        (2.0,)
    """

    @functools.wraps(opt_maker)
    def lifted(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        @functools.wraps(init)
        def init_tree(params: Params) -> OptimizerState:
            leaves, tree = tree_util.tree_flatten(params)
            return _pack(map(init, leaves), tree)

        @functools.wraps(update)
        def update_tree(i: Any, gradients: Params, state: OptimizerState) -> OptimizerState:
            leaves, tree = tree_util.tree_flatten(gradients)
            if tree != state.tree_def:
                raise TypeError(
                    f"the gradients have the tree {tree}, the parameters that the optimizer was "
                    f"initialized with {state.tree_def}; both must be the same"
                )
            states = [update(i, g, own) for g, own in zip(leaves, _unpack(state))]
            new = _pack(states, state.tree_def)
            for before, after in zip(state.subtree_defs, new.subtree_defs):
                if before != after:
                    raise TypeError(
                        f"the optimizer's update has to keep the tree of its state, {before}; it "
                        f"returned {after}"
                    )
            return new

        @functools.wraps(get_params)
        def params_of(state: OptimizerState) -> Params:
            return state.tree_def.unflatten([get_params(own) for own in _unpack(state)])

        return Optimizer(init_tree, update_tree, params_of)

    return lifted


def _first(state):
    return state[0]


def _with_zeros(number):
    """Of an array: a state of it and so many arrays of zeros."""
    return lambda x: (x, *(jnp.zeros_like(x) for _ in range(number)))


def _inverse_root(x):
    """`1 / sqrt(x)`, and 0 where x is 0."""
    return jnp.where(x > 0, 1 / jnp.sqrt(x), 0)


def _decayed_mean(mean, new, decay):
    return decay * mean + (1 - decay) * new


def _decayed_sum(total, g, mass):
    return mass * total + g


@optimizer
def sgd(step_size: float | Schedule) -> Any:
    """Gradient descent: `x - step_size * g`.

    Args: step_size: positive number, or a function of the number of the step that gives one.
    Returns: an `Optimizer`.

    >>> init, update, get_params = optimizers.sgd(0.5)
    >>> float(get_params(update(0, 2.0, init(3.0))))
    2.0
    """
    rate = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - rate(i) * g, lambda x: x


@optimizer
def momentum(step_size: float | Schedule, mass: float) -> Any:
    """Gradient descent along a decaying sum of gradients (Polyak's heavy ball, 1964).

    Args: step_size: as for `sgd`; mass: what remains of the sum in each step, from [0, 1).
    Returns: an `Optimizer`.

    >>> init, update, get_params = optimizers.momentum(0.5, mass=0.9)
    >>> float(get_params(update(0, 2.0, init(3.0))))
    2.0
    """
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, velocity = state
        velocity = _decayed_sum(velocity, g, mass)
        return x - rate(i) * velocity, velocity

    return _with_zeros(1), update, _first


@optimizer
def nesterov(step_size: float | Schedule, mass: float) -> Any:
    """Gradient descent with Nesterov's momentum (1983): the step looks one decay ahead.

    Args: step_size, mass: as for `momentum`.
    Returns: an `Optimizer`.

    >>> init, update, get_params = optimizers.nesterov(0.5, mass=0.5)
    >>> float(get_params(update(0, 2.0, init(3.0))))
    1.5
    """
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, velocity = state
        now = _decayed_sum(velocity, g, mass)
        ahead = _decayed_sum(now, g, mass)
        return x - rate(i) * ahead, now

    return _with_zeros(1), update, _first


@optimizer
def adagrad(step_size: float | Schedule, momentum: float = 0.9) -> Any:
    """Adagrad: each element's step is divided by the root of the sum of its squared gradients.

    Args: step_size: as for `sgd`; momentum: the decay of the mean of steps, from [0, 1).
    Returns: an `Optimizer`.

    Duchi, Hazan and Singer, "Adaptive subgradient methods" (JMLR 12, 2011).

    >>> init, update, get_params = optimizers.adagrad(0.5, momentum=0.0)
    >>> float(get_params(update(0, 2.0, init(3.0))))
    2.5
    """
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, squares, mean = state
        squares = squares + jnp.square(g)
        mean = (1 - momentum) * (g * _inverse_root(squares)) + momentum * mean
        return x - rate(i) * mean, squares, mean

    return _with_zeros(2), update, _first


@optimizer
def rmsprop(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """RMSProp: each element's step is divided by the root of the mean of its squared gradients.

    Args: step_size: as for `sgd`; gamma: the decay of that mean, from [0, 1); eps: added to it.
    Returns: an `Optimizer`.

    Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5 (2012).

    >>> init, update, get_params = optimizers.rmsprop(0.5, gamma=0.75, eps=0.0)
    >>> float(get_params(update(0, 2.0, init(3.0))))
    2.0
    """
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, squares = state
        squares = _decayed_mean(squares, jnp.square(g), gamma)
        return x - rate(i) * g / jnp.sqrt(squares + eps), squares

    return _with_zeros(1), update, _first


@optimizer
def rmsprop_momentum(
    step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> Any:
    """RMSProp along a decaying sum of its steps.

    Args: step_size, gamma, eps: as for `rmsprop`; momentum: what remains of the sum in each step.
    Returns: an `Optimizer`.

    >>> init, update, get_params = optimizers.rmsprop_momentum(0.5, gamma=0.75, eps=0.0)
    >>> float(get_params(update(0, 2.0, init(3.0))))
    2.0
    """
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, squares, velocity = state
        squares = _decayed_mean(squares, jnp.square(g), gamma)
        velocity = momentum * velocity + rate(i) * g / jnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return _with_zeros(2), update, _first


def _unbiased(mean, decay, i):
    """A decaying mean that began at zero, after step i, over the sum of its weights."""
    return mean / (1 - jnp.asarray(decay, mean.dtype) ** (i + 1))


@optimizer
def adam(step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam: decaying means of gradients, over the roots of those of their squares.

    Args:
        step_size: as for `sgd`.
        b1, b2: the decay of the mean of gradients and of that of squares, from [0, 1).
        eps: added to the root.
    Returns: an `Optimizer`.

    Kingma and Ba, "Adam" (ICLR 2015), algorithm 1.

    >>> init, update, get_params = optimizers.adam(0.5, eps=0.0)
    >>> round(float(get_params(update(0, 2.0, init(3.0)))), 4)
    2.5
    """
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, mean, squares = state
        mean = _decayed_mean(mean, g, b1)
        squares = _decayed_mean(squares, jnp.square(g), b2)
        step = rate(i) * _unbiased(mean, b1, i) / (jnp.sqrt(_unbiased(squares, b2, i)) + eps)
        return x - step, mean, squares

    return _with_zeros(2), update, _first


@optimizer
def adamax(
    step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Any:
    """AdaMax: as `adam`, with a decaying maximum of gradients' magnitudes for the root of squares.

    Args: step_size, b1, b2, eps: as for `adam`.
    Returns: an `Optimizer`.

    Kingma and Ba, "Adam" (ICLR 2015), algorithm 2.

    >>> init, update, get_params = optimizers.adamax(0.5, eps=0.0)
    >>> round(float(get_params(update(0, 2.0, init(3.0)))), 4)
    2.5
    """
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, mean, largest = state
        mean = _decayed_mean(mean, g, b1)
        largest = jnp.maximum(jnp.abs(g), b2 * largest)
        step = rate(i) * _unbiased(mean, b1, i) / (largest + eps)
        return x - step, mean, largest

    return _with_zeros(2), update, _first


@optimizer
def sm3(step_size: float | Schedule, momentum: float = 0.9) -> Any:
    """SM3: Adagrad with one sum a row, column, … of an array, in the place of one an element.

    Args: step_size, momentum: as for `adagrad`.
    Returns: an `Optimizer`. Its state for an array of shape `(n, m)` are two arrays of that shape, and
    vectors of n and m elements.

    Anil, Gupta, Koren and Singer, "Memory-efficient adaptive optimization" (2019), SM3-II.

    >>> init, update, get_params = optimizers.sm3(0.5, momentum=0.0)
    >>> get_params(update(0, jnp.full((2, 3), 2.0), init(jnp.full((2, 3), 3.0))))[0]
    Array([2.5, 2.5, 2.5], dtype=float32)
    """
    rate = make_schedule(step_size)

    def init(x):
        sizes = jnp.shape(x) or (1,)
        x = jnp.asarray(x)
        return x, jnp.zeros_like(x), [jnp.zeros(size, x.dtype) for size in sizes]

    def update(i, g, state):
        x, mean, covers = state
        rank = len(covers)

        def along(cover, axis):
            return cover.reshape([-1 if other == axis else 1 for other in range(rank)])

        smallest = functools.reduce(jnp.minimum, map(along, covers, range(rank)))
        sums = smallest + jnp.square(jnp.atleast_1d(g))
        step = (g * _inverse_root(sums)).reshape(x.shape)
        mean = (1 - momentum) * step + momentum * mean
        others = [[other for other in range(rank) if other != axis] for axis in range(rank)]
        return x - rate(i) * mean, mean, [jnp.max(sums, axis=tuple(axes)) for axes in others]

    return init, update, _first


# schedules


def constant(step_size: ArrayLike) -> Schedule:
    """The schedule that is `step_size` in each step.

    >>> optimizers.constant(0.1)(7)
    0.1
    """
    return lambda i: step_size


def exponential_decay(step_size: float, decay_steps: float, decay_rate: float) -> Schedule:
    """The schedule `step_size * decay_rate ** (i / decay_steps)`.

    Args: step_size: of step 0; decay_steps: after how many steps it is multiplied by decay_rate.

    >>> optimizers.exponential_decay(0.1, 10, 0.5)(10)
    0.05
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """The schedule `step_size / (1 + decay_rate * i / decay_steps)`.

    Args:
        step_size: of step 0.
        decay_steps, decay_rate: the divisor grows by decay_rate in decay_steps steps.
        staircase: whether it grows at once, after these steps.

    >>> optimizers.inverse_time_decay(0.1, 10, 1.0)(10)
    0.05
    """

    def growth(i: Any) -> Any:
        return jnp.floor(i / decay_steps) * decay_rate if staircase else i * decay_rate / decay_steps

    return lambda i: step_size / (growth(i) + 1)


def polynomial_decay(
    step_size: float, decay_steps: float, final_step_size: float, power: float = 1.0
) -> Schedule:
    """The schedule from `step_size` to `final_step_size` in decay_steps steps, and constant from there.

    Args:
        step_size, final_step_size: of the first step and of those at the end.
        decay_steps: where that is reached.
        power: the difference to the end goes as `(1 - i / decay_steps) ** power`.

    >>> optimizers.polynomial_decay(1.0, 10, 0.5)(5)
    Array(0.75, dtype=float32, weak_type=True)
    """

    def schedule(i: Any) -> Any:
        left = 1 - jnp.minimum(i, decay_steps) / decay_steps
        return left**power * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(
    boundaries: Sequence[float] | Array, values: Sequence[float] | Array
) -> Schedule:
    """The schedule that is `values[k]` where step i is beyond k of the boundaries.

    Args: boundaries: n increasing numbers of steps; values: n + 1 step sizes.
    Errors: ValueError for other than one axis, and for other lengths.

    >>> schedule = optimizers.piecewise_constant([10, 20], [1.0, 0.5, 0.25])
    >>> schedule(10), schedule(11)
    (Array(1., dtype=float32), Array(0.5, dtype=float32))
    """
    limits, sizes = jnp.array(boundaries), jnp.array(values)
    if limits.ndim != 1 or sizes.ndim != 1:
        raise ValueError(
            f"boundaries and values must be vectors, got the shapes {limits.shape} and {sizes.shape}"
        )
    if sizes.shape[0] != limits.shape[0] + 1:
        raise ValueError(
            "values must be one longer than boundaries, got "
            f"{sizes.shape[0]} values and {limits.shape[0]} boundaries"
        )
    return lambda i: sizes[jnp.sum(i > limits)]


def make_schedule(scalar_or_schedule: ArrayLike | Schedule) -> Schedule:
    """A schedule of a number, or the schedule that is given.

    Errors: TypeError for arrays with axes.

    >>> optimizers.make_schedule(0.1)(3)
    0.1
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(
        f"a step size is a number or a function of the step's number, got {scalar_or_schedule!r}"
    )


# gradients


def l2_norm(tree: Params) -> Array:
    """The root of the sum of all squares in a tree of arrays.

    >>> optimizers.l2_norm({"w": jnp.array([3.0]), "b": jnp.array([4.0])})
    Array(5., dtype=float32)
    """
    squares = [jnp.vdot(x, x) for x in tree_util.tree_leaves(tree)]
    return jnp.sqrt(functools.reduce(operator.add, squares, 0))


def clip_grads(grad_tree: Params, max_norm: ArrayLike) -> Params:
    """A tree of arrays, scaled so that its `l2_norm` is at most `max_norm`.

    Args: grad_tree: the arrays; max_norm: positive number.

    >>> optimizers.clip_grads([jnp.array([3.0, 4.0])], 1.0)
    [Array([0.6, 0.8], dtype=float32)]
    """
    norm = l2_norm(grad_tree)
    return tree_util.tree_map(
        lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree
    )


# states as plain trees


class JoinPoint:
    """A leaf that holds a tree: where the tree of a state hangs in that of the parameters.

    >>> optimizers.JoinPoint((1.0, 2.0)).subtree
    (1.0, 2.0)
    """

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator[Any]:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A state as the tree of the parameters, with a `JoinPoint` of the state of each leaf.

    >>> state = optimizers.momentum(0.1, 0.9).init_fn({"w": 1.0})
    >>> optimizers.unpack_optimizer_state(state)["w"].subtree
    (1.0, Array(0., dtype=float32, weak_type=True))
    """
    return opt_state.tree_def.unflatten(map(JoinPoint, _unpack(opt_state)))


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state that `unpack_optimizer_state` was given. TypeError for leaves that are no `JoinPoint`.

    >>> optimizers.pack_optimizer_state([optimizers.JoinPoint((1.0, 2.0))]).packed_state
    ([1.0, 2.0],)
    """
    points, tree = tree_util.tree_flatten(marked_pytree)
    for point in points:
        if not isinstance(point, JoinPoint):
            raise TypeError(f"each leaf of an unpacked state is a JoinPoint, got {point!r}")
    return _pack((point.subtree for point in points), tree)
