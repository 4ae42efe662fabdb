"""``ferrax.scipy.sparse``: solvers of linear systems."""

from ferrax.scipy.sparse import linalg as linalg
