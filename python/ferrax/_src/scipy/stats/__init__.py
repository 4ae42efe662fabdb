"""Distributions and statistics of `ferrax.scipy.stats`.

Each distribution is a module of functions, written from its definition (Johnson, Kotz and Balakrishnan,
Continuous Univariate Distributions, 1994, and Johnson, Kemp and Kotz, Univariate Discrete Distributions, 2005).
They take shift and width where SciPy's do, return -inf for logarithms outside of the support, and are one
compiled function each, inlined into jaxprs.
"""
