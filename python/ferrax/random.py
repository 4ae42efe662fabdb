"""Random numbers, as pure functions of explicit keys."""

from ferrax._src.base import public as _public
from ferrax._src.random.counts import (
    binomial as binomial,
    multinomial as multinomial,
    poisson as poisson,
)
from ferrax._src.random.distributions import (
    cauchy as cauchy,
    double_sided_maxwell as double_sided_maxwell,
    geometric as geometric,
    logistic as logistic,
    lognormal as lognormal,
    maxwell as maxwell,
    pareto as pareto,
    rayleigh as rayleigh,
    triangular as triangular,
    wald as wald,
    weibull_min as weibull_min,
)
from ferrax._src.random.gamma import (
    gamma as gamma,
    loggamma as loggamma,
    random_gamma_p as random_gamma_p,
)
from ferrax._src.random.gamma_family import (
    ball as ball,
    beta as beta,
    chisquare as chisquare,
    dirichlet as dirichlet,
    f as f,
    generalized_normal as generalized_normal,
    t as t,
)
from ferrax._src.random.matrices import (
    multivariate_normal as multivariate_normal,
    orthogonal as orthogonal,
)
from ferrax._src.random.prng import (
    Key as Key,
    PRNGKey as PRNGKey,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_dtype as key_dtype,
    key_impl as key_impl,
    split as split,
    wrap_key_data as wrap_key_data,
)
from ferrax._src.random.samplers import (
    bernoulli as bernoulli,
    bits as bits,
    categorical as categorical,
    choice as choice,
    exponential as exponential,
    gumbel as gumbel,
    laplace as laplace,
    normal as normal,
    permutation as permutation,
    rademacher as rademacher,
    randint as randint,
    truncated_normal as truncated_normal,
    uniform as uniform,
)

_public.export(__name__)
