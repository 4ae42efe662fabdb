"""Rotations of space as unit quaternions `(x, y, z, w)`, one or arrays of them.

Conversions go over the last axis and keep leading ones, as NumPy's functions do; each is a few elementwise
operations. Euler angles as in Bernardes and Viollet, "Quaternion to Euler angles conversion" (PLOS ONE
17(11), 2022); matrices to quaternions as in Shepperd (J. Guidance and Control 1, 1978), by the largest of
four candidates; small angles by Taylor series.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.numpy.decompositions import eigh
from ferrax._src.numpy.logsumexp import as_inexact
from ferrax._src.random import samplers

# Below these angles the series are exact to the last place of single precision.
_SMALL = 1e-3
# At second angles this near to 0 and pi the first and the third turn about one axis.
_LOCKED = 1e-7


def _norm(vectors: Array) -> Array:
    return jnp.sqrt(jnp.sum(vectors * vectors, axis=-1))


def _unit(quat: Array) -> Array:
    return quat / _norm(quat)[..., None]


def _parts(quat: Array) -> tuple[Array, ...]:
    return tuple(quat[..., k] for k in range(4))


def _product(p: Array, q: Array) -> Array:
    """Hamilton's product: the rotation by q, then by p."""
    a, b, c, d = _parts(p)
    x, y, z, w = _parts(q)
    return jnp.stack(
        [
            d * x + a * w + b * z - c * y,
            d * y - a * z + b * w + c * x,
            d * z + a * y - b * x + c * w,
            d * w - a * x - b * y - c * z,
        ],
        axis=-1,
    )


def _axes_of(seq: str, most: int) -> tuple[list[int], bool]:
    """The numbers of the axes, and whether they turn with the body."""
    if not 1 <= len(seq) <= 3 or (most == 3 and len(seq) != 3):
        wanted = "3 axes" if most == 3 else "1 to 3 axes"
        raise ValueError(f"Expected {wanted}, got {seq!r}.")
    intrinsic = all(c in "XYZ" for c in seq)
    if not intrinsic and not all(c in "xyz" for c in seq):
        raise ValueError(
            f"Expected axes of 'x', 'y', 'z' for fixed axes or 'X', 'Y', 'Z' for those of the body, got {seq!r}"
        )
    if any(a == b for a, b in zip(seq, seq[1:])):
        raise ValueError(f"Euler angles: two turns about one axis in a row are one turn, got {seq!r}")
    return ["xyz".index(c) for c in seq.lower()], intrinsic


class Rotation(NamedTuple):
    """One rotation of space, or an array of them; a pytree.

    Attributes:
        quat: the quaternions, of shape `(4,)` or `(..., 4)`, scalar last. `Rotation(quat)` takes them as
            they are, `Rotation.from_quat` makes their norms 1.

    `p * q` is the rotation by q, then by p; `r[i]` and `len(r)` are for arrays of rotations and raise
    TypeError for one.

    Example:
        >>> from ferrax.scipy.spatial.transform import Rotation
        >>> turn = Rotation.from_euler("z", 90, degrees=True)
        >>> turn.apply(jnp.array([1.0, 0.0, 0.0])).round(3)
        Array([0., 1., 0.], dtype=float32)
        >>> (turn * turn).magnitude()
        Array(3.1415925, dtype=float32)
    """

    quat: Array

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Arrays of rotations, one after the other."""
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations by angles about axes.

        `seq` has one to three axes, "xyz" for fixed ones, "XYZ" for those of the body; angles are
        `(..., number of axes)`, or a number for one axis. ValueError for other axes, or equal neighbours.
        """
        axes, intrinsic = _axes_of(seq, 1)
        turns = jnp.atleast_1d(as_inexact("from_euler", angles))
        if turns.shape[-1] != len(axes):
            raise ValueError(
                f"from_euler: the last axis of angles must have size {len(axes)}, one angle for each "
                f"axis of {seq!r}, got shape {tuple(turns.shape)}"
            )
        turns = jnp.deg2rad(turns) if degrees else turns
        result = None
        for number, axis in enumerate(axes):
            half = turns[..., number] / 2
            parts = [jnp.zeros_like(half)] * 4
            parts[axis], parts[3] = jnp.sin(half), jnp.cos(half)
            quat = jnp.stack(parts, axis=-1)
            if result is None:
                result = quat
            else:
                result = _product(result, quat) if intrinsic else _product(quat, result)
        assert result is not None
        return cls(result)

    @classmethod
    def from_matrix(cls, matrix: ArrayLike) -> Rotation:
        """Rotations by orthogonal matrices `(..., 3, 3)` of determinant 1."""
        m = as_inexact("from_matrix", matrix)
        diagonal = [m[..., k, k] for k in range(3)]
        trace = diagonal[0] + diagonal[1] + diagonal[2]
        candidates = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts = [trace] * 4
            parts[i] = 1 - trace + 2 * m[..., i, i]
            parts[j] = m[..., j, i] + m[..., i, j]
            parts[k] = m[..., k, i] + m[..., i, k]
            parts[3] = m[..., k, j] - m[..., j, k]
            candidates.append(jnp.stack(parts, axis=-1))
        skew = [
            m[..., (k + 2) % 3, (k + 1) % 3] - m[..., (k + 1) % 3, (k + 2) % 3] for k in range(3)
        ]
        candidates.append(jnp.stack([*skew, 1 + trace], axis=-1))
        choice = jnp.argmax(jnp.stack([*diagonal, trace], axis=-1), axis=-1)
        table = jnp.stack(candidates, axis=-2)
        return cls(_unit(jnp.take_along_axis(table, choice[..., None, None], axis=-2)[..., 0, :]))

    @classmethod
    def from_mrp(cls, mrp: ArrayLike) -> Rotation:
        """Rotations by modified Rodrigues parameters `(..., 3)`: the axis times `tan(angle / 4)`."""
        vectors = as_inexact("from_mrp", mrp)
        square = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
        return cls(jnp.concatenate([2 * vectors, 1 - square], axis=-1) / (square + 1))

    @classmethod
    def from_quat(cls, quat: ArrayLike) -> Rotation:
        """Rotations by quaternions `(..., 4)`, scalar last, which are divided by their norms."""
        return cls(_unit(as_inexact("from_quat", quat)))

    @classmethod
    def from_rotvec(cls, rotvec: ArrayLike, degrees: bool = False) -> Rotation:
        """Rotations by vectors `(..., 3)`: the axis times the angle."""
        vectors = as_inexact("from_rotvec", rotvec)
        vectors = jnp.deg2rad(vectors) if degrees else vectors
        square = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
        small = square <= _SMALL**2
        # A safe argument, so that derivatives at zero are those of the series.
        angle = jnp.sqrt(jnp.where(small, 1, square))
        series = 0.5 - square / 48 + square * square / 3840
        scale = jnp.where(small, series, jnp.sin(angle / 2) / angle)
        cosine = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(angle / 2))
        return cls(jnp.concatenate([scale * vectors, cosine], axis=-1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: DTypeLike = float) -> Rotation:
        """The rotation that changes nothing; `num` of them if that is given."""
        quat = jnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype)
        return cls(quat if num is None else jnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key: Array, num: int | None = None) -> Rotation:
        """A uniformly distributed rotation of a key, or `num` of them: normal quaternions, of norm 1."""
        shape = (4,) if num is None else (num, 4)
        return cls(_unit(samplers.normal(random_key, shape)))

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __mul__(self, other: Rotation) -> Rotation:  # type: ignore[override]  # of rotations
        return Rotation.from_quat(_product(self.quat, other.quat))

    def apply(self, vectors: ArrayLike, inverse: bool = False) -> Array:
        """Vectors `(..., 3)`, turned; by the inverse rotations if `inverse`."""
        matrix = self.as_matrix()
        matrix = jnp.swapaxes(matrix, -1, -2) if inverse else matrix
        return jnp.matvec(matrix, as_inexact("apply", vectors))

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Angles `(..., 3)` about three axes, as for `from_euler`, within half a turn.

        Where the first and the third turn about one axis, the third is 0.
        """
        axes, intrinsic = _axes_of(seq, 3)
        first, third = (2, 0) if intrinsic else (0, 2)
        i, j, k = reversed(axes) if intrinsic else axes
        symmetric = i == k
        if symmetric:
            k = 3 - i - j
        sign = (i - j) * (j - k) * (k - i) // 2
        q = _parts(self.quat)
        if symmetric:
            a, b, c, d = q[3], q[i], q[j], q[k] * sign
        else:
            a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
        second = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        at_zero, at_half_turn = jnp.abs(second) <= _LOCKED, jnp.abs(second - np.pi) <= _LOCKED
        half_sum, half_diff = jnp.arctan2(b, a), jnp.arctan2(d, c)
        locked = jnp.where(at_zero, 2 * half_sum, 2 * half_diff * (1 if intrinsic else -1))
        free = ~(at_zero | at_half_turn)
        angles = [locked, second, jnp.zeros_like(locked)]
        angles[first] = jnp.where(free, half_sum - half_diff, angles[first])
        angles[third] = jnp.where(free, half_sum + half_diff, angles[third])
        if not symmetric:
            angles[third] = angles[third] * sign
            angles[1] = angles[1] - np.pi / 2
        result = (jnp.stack(angles, axis=-1) + np.pi) % (2 * np.pi) - np.pi
        return jnp.rad2deg(result) if degrees else result

    def as_matrix(self) -> Array:
        """Orthogonal matrices `(..., 3, 3)`."""
        x, y, z, w = _parts(self.quat)
        xx, yy, zz, ww = x * x, y * y, z * z, w * w
        rows = [
            [xx - yy - zz + ww, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -xx + yy - zz + ww, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -xx - yy + zz + ww],
        ]
        return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters `(..., 3)`, of norm 1 at most."""
        scalar = self.quat[..., 3:]
        sign = jnp.where(scalar < 0, -1.0, 1.0).astype(scalar.dtype)
        return sign * self.quat[..., :3] / (1 + sign * scalar)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Vectors `(..., 3)`: the axis times the angle, which is from 0 to pi."""
        quat = jnp.where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        vector, scalar = quat[..., :3], quat[..., 3:]
        square = jnp.sum(vector * vector, axis=-1, keepdims=True)
        # The sine of half the angle; a safe argument, so that derivatives at zero are those of the series.
        small = square <= (_SMALL / 2) ** 2
        sine = jnp.sqrt(jnp.where(small, 1, square))
        angle = 2 * jnp.arctan2(sine, scalar)
        # angle / sin(angle / 2) in powers of the sine, which is that of half the angle.
        scale = jnp.where(small, 2 + square / 3, angle / sine)
        scale = jnp.rad2deg(scale) if degrees else scale
        return scale * vector

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Quaternions `(..., 4)`.

        `canonical` is that of q and -q whose scalar is positive, or the first part that is not 0;
        `scalar_first` puts the scalar in front.
        """
        quat = self.quat
        if canonical:
            negative = jnp.zeros(quat.shape[:-1], bool)
            undecided = jnp.ones(quat.shape[:-1], bool)
            for k in (3, 0, 1, 2):
                negative |= undecided & (quat[..., k] < 0)
                undecided &= quat[..., k] == 0
            quat = jnp.where(negative[..., None], -quat, quat)
        return jnp.roll(quat, 1, axis=-1) if scalar_first else quat

    def inv(self) -> Rotation:
        """The inverse rotations."""
        return Rotation(jnp.concatenate([-self.quat[..., :3], self.quat[..., 3:]], axis=-1))

    def magnitude(self) -> Array:
        """The angles, from 0 to pi."""
        return 2 * jnp.arctan2(_norm(self.quat[..., :3]), jnp.abs(self.quat[..., 3]))

    def mean(self, weights: ArrayLike | None = None) -> Rotation:
        """The mean of an array of rotations: the one with the least weighted sum of squared chords.

        `weights` are a vector with a number for each rotation, 1 by default; ValueError for other shapes.
        Markley et al., "Averaging quaternions" (J. Guidance, Control and Dynamics 30, 2007).
        """
        quat = self.quat
        given = (
            jnp.ones(quat.shape[0], quat.dtype)
            if weights is None
            else jnp.asarray(weights, quat.dtype)
        )
        if given.shape != (len(self),):
            raise ValueError(
                f"mean: weights must be a vector with one number for each of the {len(self)} rotations, "
                f"got shape {tuple(given.shape)}"
            )
        return Rotation(eigh(jnp.dot(given[None, :] * quat.T, quat))[1][:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation, and no array of them."""
        return self.quat.ndim == 1


class Slerp(NamedTuple):
    """Rotations between rotations, turning at constant speed from each to the next; a pytree.

    Made by `Slerp.init(times, rotations)` and called with a time or a vector of times.

    Attributes:
        times: when the rotations are; timedelta: the differences.
        rotations: all but the last; rotvecs: from each to the next.

    Shoemake, "Animating rotation with quaternion curves" (SIGGRAPH 1985).

    Example:
        >>> from ferrax.scipy.spatial.transform import Rotation, Slerp
        >>> ends = Rotation.from_euler("z", jnp.array([[0.0], [90.0]]), degrees=True)
        >>> Slerp.init(jnp.array([0.0, 1.0]), ends)(0.5).as_euler("xyz", degrees=True).round(3)
        Array([ 0.,  0., 45.], dtype=float32)
    """

    times: Array
    timedelta: Array
    rotations: Rotation
    rotvecs: Array

    @classmethod
    def init(cls, times: ArrayLike, rotations: Rotation) -> Slerp:
        """Through at least two rotations at increasing times, a vector of as many.

        TypeError for what is no `Rotation`; ValueError for fewer rotations, or another number of times.
        """
        if not isinstance(rotations, Rotation):
            raise TypeError(f"Slerp: expected a Rotation, got {rotations!r}")
        if rotations.single or len(rotations) == 1:
            raise ValueError("Slerp: expected two rotations or more to go between, got one")
        quat = rotations.as_quat()
        when = jnp.asarray(times, dtype=quat.dtype)
        if when.shape != (len(rotations),):
            raise ValueError(
                f"Expected a vector of {len(rotations)} times, one for each rotation, got shape "
                f"{tuple(when.shape)}."
            )
        starts = Rotation(quat[:-1])
        vectors = (starts.inv() * Rotation(quat[1:])).as_rotvec()
        return cls(when, jnp.diff(when), starts, vectors)

    def __call__(self, times: ArrayLike) -> Rotation:
        """The rotations at these times. ValueError for more than one axis."""
        when = jnp.asarray(times, dtype=self.times.dtype)
        if when.ndim > 1:
            raise ValueError(
                f"Slerp: expected a time or a vector of times, got shape {tuple(when.shape)}."
            )
        start = jnp.clip(jnp.searchsorted(self.times, when) - 1, 0)
        gone = (when - self.times[start]) / self.timedelta[start]
        turn = Rotation.from_rotvec(gone[..., None] * self.rotvecs[start])
        return Rotation.from_quat(_product(self.rotations.quat[start], turn.quat))
