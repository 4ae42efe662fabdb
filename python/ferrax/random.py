"""Random numbers, as pure functions of explicit keys."""

from ferrax._src.prng import PRNGKey as PRNGKey
from ferrax._src.prng import clone as clone
from ferrax._src.prng import fold_in as fold_in
from ferrax._src.prng import key as key
from ferrax._src.prng import key_data as key_data
from ferrax._src.prng import key_dtype as key_dtype
from ferrax._src.prng import key_impl as key_impl
from ferrax._src.prng import split as split
from ferrax._src.prng import wrap_key_data as wrap_key_data
from ferrax._src.random import bernoulli as bernoulli
from ferrax._src.random import bits as bits
from ferrax._src.random import categorical as categorical
from ferrax._src.random import cauchy as cauchy
from ferrax._src.random import choice as choice
from ferrax._src.random import exponential as exponential
from ferrax._src.random import gumbel as gumbel
from ferrax._src.random import laplace as laplace
from ferrax._src.random import logistic as logistic
from ferrax._src.random import normal as normal
from ferrax._src.random import permutation as permutation
from ferrax._src.random import rademacher as rademacher
from ferrax._src.random import randint as randint
from ferrax._src.random import truncated_normal as truncated_normal
from ferrax._src.random import uniform as uniform
from ferrax._src.random_distributions import double_sided_maxwell as double_sided_maxwell
from ferrax._src.random_distributions import geometric as geometric
from ferrax._src.random_distributions import lognormal as lognormal
from ferrax._src.random_distributions import maxwell as maxwell
from ferrax._src.random_distributions import multivariate_normal as multivariate_normal
from ferrax._src.random_distributions import orthogonal as orthogonal
from ferrax._src.random_distributions import pareto as pareto
from ferrax._src.random_distributions import rayleigh as rayleigh
from ferrax._src.random_distributions import triangular as triangular
from ferrax._src.random_distributions import wald as wald
from ferrax._src.random_distributions import weibull_min as weibull_min

# Loaded at first use: few programs sample from these.
_LOOPING = frozenset(
    (
        "ball", "beta", "binomial", "chisquare", "dirichlet", "f", "gamma", "generalized_normal",
        "loggamma", "multinomial", "poisson", "t",
    )
)  # fmt: skip


def __getattr__(name):
    if name not in _LOOPING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ferrax._src import random_gamma

    value = globals()[name] = getattr(random_gamma, name)
    return value


def __dir__():
    return sorted([*globals(), *_LOOPING])
