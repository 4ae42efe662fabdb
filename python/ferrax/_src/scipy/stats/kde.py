"""Kernel density estimation: the density of samples as a mean of normal densities about them.

The widths are those of Scott, Multivariate Density Estimation (1992), and Silverman, Density Estimation (1986).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, Shape
from ferrax._src.lax import api as lax, factorisations
from ferrax._src.numpy import api as jnp, systems
from ferrax._src.numpy.logsumexp import logsumexp
from ferrax._src.numpy.util import ensure_array, promote_dtypes_inexact
from ferrax._src.random.matrices import multivariate_normal
from ferrax._src.random.prng import split
from ferrax._src.random.samplers import choice
from ferrax._src.scipy.stats.common import ndtr
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util


@tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, init=False)
class gaussian_kde:
    """The density of samples, as a weighted mean of normal densities about them.

    Args:
        dataset: real array of shape (n,), or (d, n) for samples in d dimensions.
        bw_method: factor of the width: 'scott' (the default), 'silverman', a number, or a function of the
            estimator, of which `neff`, `n`, `d`, `dataset` and `weights` are there.
        weights: array of shape (n,), the weights of samples; default: equal ones.
    Attributes:
        dataset, weights: the samples, of shape (d, n), and their weights, of sum one.
        neff: the number of equally weighted samples with the same spread.
        covariance, inv_cov: of the normal densities, and its inverse; of shape (d, d).
    Raises:
        ValueError: for fewer than two elements, weights of another shape, another `bw_method`;
        NotImplementedError: for complex samples.

    It is a pytree, and may be an argument and a result of traced functions.

    Example:
        >>> kde = ferrax.scipy.stats.gaussian_kde(jnp.array([-1.0, 0.0, 2.0]))
        >>> kde(jnp.array([0.0, 1.0])).shape
        (2,)
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(
        self,
        dataset: ArrayLike,
        bw_method: str | ArrayLike | Callable[[gaussian_kde], ArrayLike] | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        data = jnp.atleast_2d(ensure_array(dataset, "gaussian_kde"))
        if dtypes.issubdtype(data.dtype, np.complexfloating):
            raise NotImplementedError("gaussian_kde takes real samples, got complex ones")
        if data.size < 2:
            raise ValueError(f"gaussian_kde needs more than one element, got shape {data.shape}")
        d, n = data.shape
        if weights is None:
            (data,) = promote_dtypes_inexact(data)
            part = jnp.full(n, 1.0 / n, dtype=data.dtype)
        else:
            data, part = promote_dtypes_inexact(data, ensure_array(weights, "gaussian_kde"))
            part = jnp.atleast_1d(part)
            if part.shape != (n,):
                raise ValueError(f"gaussian_kde: {n} samples need weights of shape ({n},), got {part.shape}")
            part = part / jnp.sum(part)
        self._set(dataset=data, weights=part, neff=1 / jnp.sum(part**2))
        factor: Any
        if bw_method is None or isinstance(bw_method, str):
            if bw_method not in (None, "scott", "silverman"):
                raise ValueError(f"bw_method has to be 'scott' or 'silverman', got {bw_method!r}")
            size = self.neff * ((d + 2) / 4.0 if bw_method == "silverman" else 1.0)
            factor = jnp.power(size, -1.0 / (d + 4))
        elif jnp.isscalar(bw_method):
            factor = bw_method
        elif callable(bw_method):
            factor = bw_method(self)
        else:
            raise ValueError(
                "bw_method has to be 'scott', 'silverman', a scalar or a function, got "
                f"{type(bw_method).__name__}"
            )
        spread = jnp.atleast_2d(jnp.cov(data, rowvar=True, bias=False, aweights=part))
        self._set(covariance=spread * factor**2, inv_cov=systems.inv(spread) / factor**2)

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The fields, as leaves of the pytree."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: Any) -> gaussian_kde:
        """The estimator of these leaves."""
        kde = cls.__new__(cls)
        kde._set(**dict(zip(("neff", "dataset", "weights", "covariance", "inv_cov"), children)))
        return kde

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.dataset.shape[1]

    def evaluate(self, points: ArrayLike) -> Array:
        """The density at points of shape (m,) or (d, m), as an array of shape (m,).

        Errors: ValueError for points of another dimension; NotImplementedError for complex ones.
        """
        at = self._points(points, "evaluate")
        return _densities(False, self.dataset.T, self.weights, at.T, self.inv_cov)

    def __call__(self, points: ArrayLike) -> Array:
        return self.evaluate(points)

    def pdf(self, x: ArrayLike) -> Array:
        """The same as `evaluate`."""
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Array:
        """The logarithm of the density, also where that underflows; see `evaluate`."""
        at = self._points(x, "logpdf")
        return _densities(True, self.dataset.T, self.weights, at.T, self.inv_cov)

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the density times a normal one, of mean (d,) and covariance (d, d).

        Errors: ValueError for other shapes.
        """
        center = jnp.atleast_1d(jnp.squeeze(jnp.asarray(mean)))
        spread = jnp.atleast_2d(jnp.asarray(cov))
        if center.shape != (self.d,):
            raise ValueError(f"the mean needs shape ({self.d},), got {center.shape}")
        if spread.shape != (self.d, self.d):
            raise ValueError(f"the covariance needs shape ({self.d}, {self.d}), got {spread.shape}")
        return _smoothed(self.covariance + spread, self.dataset, self.weights, center[:, None])[0]

    @jit
    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The probability of the interval from `low` to `high`, in one dimension.

        Errors: ValueError in several dimensions, or for bounds that are no scalars.
        """
        if self.d != 1:
            raise ValueError(f"integrate_box_1d is for one dimension, not for {self.d}")
        if np.ndim(low) != 0 or np.ndim(high) != 0:
            raise ValueError("integrate_box_1d takes scalars as bounds")
        bounds = jnp.stack([jnp.asarray(low), jnp.asarray(high)])
        below = ndtr((bounds[:, None] - self.dataset) * lax.rsqrt(self.covariance))
        return jnp.dot(below[1] - below[0], self.weights)

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two estimates. Errors: ValueError if their dimensions differ."""
        if other.d != self.d:
            raise ValueError(f"the estimates have {self.d} and {other.d} dimensions")
        # Of two normal densities it is one whose covariance is their sum, at the distance of the means.
        both = self.covariance + other.covariance
        return jnp.dot(_smoothed(both, self.dataset, self.weights, other.dataset), other.weights)

    @jit(static_argnames=("shape",))
    def resample(self, key: Array, shape: Shape = ()) -> Array:
        """Random numbers of this density by a key, of shape `(d,) + shape`."""
        choice_key, normal_key = split(key)
        index = choice(choice_key, self.n, shape=shape, p=self.weights)
        zero = jnp.zeros(self.d, self.covariance.dtype)
        noise = multivariate_normal(
            normal_key, zero, self.covariance, shape=shape, dtype=self.dataset.dtype
        )
        return self.dataset[:, index] + noise.T

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Array:
        """Not there: NotImplementedError. `integrate_box_1d` is for one dimension."""
        raise NotImplementedError("boxes of several dimensions are not integrated; see integrate_box_1d")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not there: NotImplementedError. Make another estimator, with another `bw_method`."""
        raise NotImplementedError("the width is fixed: make another gaussian_kde with this bw_method")

    def _points(self, points: Any, name: str) -> Array:
        at = ensure_array(points, name)
        if dtypes.issubdtype(at.dtype, np.complexfloating):
            raise NotImplementedError(f"{name} takes real points, got complex ones")
        at = jnp.atleast_2d(at)
        if at.shape[0] == self.d:
            return at
        if at.shape == (1, self.d):
            return at.reshape(self.d, 1)
        raise ValueError(f"{name}: points of {at.shape[0]} dimensions, samples of {self.d}")


def _smoothed(cov, samples, weights, points):
    """The weighted sum of normal densities of this covariance about samples, at points: columns are points."""
    root = systems.cholesky(cov)
    log_height = -jnp.sum(lax.log(jnp.diag(root))) - 0.5 * len(samples) * math.log(2 * math.pi)
    # In coordinates in which the covariance is the identity.
    white = factorisations.triangular_solve(
        root, jnp.concatenate([samples, points], 1), left_side=True, lower=True
    )
    away = white[:, : samples.shape[1], None] - white[:, None, samples.shape[1] :]
    return jnp.dot(weights, lax.exp(log_height - 0.5 * jnp.sum(lax.square(away), 0)))


@jit(static_argnums=0)
def _densities(log, samples, weights, points, precision):
    """The weighted sum of normal densities about samples, at points: rows are points."""
    samples, weights, points, precision = promote_dtypes_inexact(samples, weights, points, precision)
    root = systems.cholesky(precision)
    samples, points = jnp.dot(samples, root), jnp.dot(points, root)
    log_height = jnp.sum(lax.log(jnp.diag(root))) - 0.5 * samples.shape[1] * math.log(2 * math.pi)

    def at(point):
        exponent = log_height - 0.5 * jnp.sum(lax.square(samples - point), axis=1)
        if log:
            return logsumexp(lax.log(weights) + exponent)
        return jnp.sum(weights * lax.exp(exponent))

    return vmap(at)(points)
