"""What moves elements, over bounded values: views, copies, gathers and scatters at computed places."""

from types import SimpleNamespace

import numpy as np

from .bounds import (
    INTEGERS,
    UNIT,
    Bounded,
    Setting,
    cast,
    lifted,
    moved,
    promoted,
    rounded,
    wide,
)


def joined(function):
    """Of several arrays."""

    def apply(many, axis=0):
        dtype = many[0].dtype
        for one in many[1:]:
            dtype = promoted(dtype, one.dtype)
        error = function([one.errors() for one in many], axis=axis) if any(one.inexact() for one in many) else 0.0
        return Bounded(function([one.value.astype(wide(dtype)) for one in many], axis=axis), error, dtype)

    return apply


def pad(x, widths, mode="constant", constant_values=0):
    if mode != "constant":
        return moved(lambda v: np.pad(v, widths, mode))(x)
    filler = lifted(constant_values, x)
    error = np.pad(x.errors(), widths, constant_values=float(filler.error)) if x.inexact() or filler.inexact() else 0.0
    return Bounded(np.pad(x.value, widths, constant_values=filler.value), error, x.dtype)


def index_of(index):
    """An index of NumPy's, and the error that it brings: infinite where a place is not known."""
    parts, doubt = [], 0.0
    for one in index if isinstance(index, tuple) else (index,):
        if isinstance(one, Bounded):
            doubt = doubt + np.where(one.errors() > 0, np.inf, 0.0) if one.inexact() else doubt
            one = one.value
        parts.append(one)
    return tuple(parts), doubt


def getitem(x, index):
    place, doubt = index_of(index)
    result = moved(lambda v: v[place])(x)
    if not np.any(doubt):
        return result
    # Where places are in doubt: of all that the whole index selects, unless it is the only array in it.
    unknown = np.inf if np.ndim(doubt) != result.ndim else doubt
    return Bounded(result.value, result.errors() + unknown, x.dtype)


def take(x, indices, axis, mode=None):
    return moved(lambda v: np.take(v, indices.exact(), axis=axis))(x)


def take_along_axis(x, indices, axis):
    result = moved(lambda v: np.take_along_axis(v, indices.value, axis))(x)
    doubt = np.where(indices.errors() > 0, np.inf, 0.0) if indices.inexact() else 0.0
    return Bounded(result.value, result.errors() + doubt if np.any(doubt) else result.error, x.dtype)


class Places:
    """`x.at`; `x.at[index]` has the methods."""

    def __init__(self, x):
        self.x = x

    def __getitem__(self, index):
        place = tuple(one.exact() if isinstance(one, Bounded) else one
                      for one in (index if isinstance(index, tuple) else (index,)))  # fmt: skip
        x = self.x
        functions = {"add": self.add, "set": self.set,
                     "max": self.extreme(np.maximum), "min": self.extreme(np.minimum)}  # fmt: skip
        bound = {name: (lambda u, f=f: f(place, cast(lifted(u, x), x.dtype))) for name, f in functions.items()}
        return SimpleNamespace(**bound)

    def add(self, place, update):
        """One update after the other, each of which rounds."""
        x = self.x
        value, error = x.value.copy(), np.array(x.errors())
        np.add.at(value, place, update.value)
        if x.dtype not in UNIT or not Setting.track:
            np.add.at(error, place, update.errors())
            return Bounded(value, error if x.inexact() or update.inexact() else 0.0, x.dtype)
        size, times = np.abs(x.value), np.zeros(x.shape)
        for array, part in ((error, update.errors()), (size, np.abs(update.value)), (times, 1.0)):
            np.add.at(array, place, part)
        return rounded(value, error + (times + 2) * UNIT[x.dtype] * size, x.dtype, 1.0)

    def set(self, place, update):
        """Of places that differ."""
        value, error = self.x.value.copy(), np.array(self.x.errors())
        value[place], error[place] = update.value, update.errors() if update.ndim else update.error
        return Bounded(value, error if self.x.inexact() or update.inexact() else 0.0, self.x.dtype)

    def extreme(self, function):
        def apply(place, update):
            value, error = self.x.value.copy(), np.array(self.x.errors())
            function.at(value, place, update.value)
            np.maximum.at(error, place, update.errors())
            return Bounded(value, error if self.x.inexact() or update.inexact() else 0.0, self.x.dtype)

        return apply


def segment(name):
    """`segment_sum` and its like: scatters into what changes nothing."""

    def apply(x, segments, num_segments):
        start = {"sum": 0, "max": -np.inf, "min": np.inf}[name]
        if x.dtype in INTEGERS and name != "sum":
            limits = np.iinfo(x.dtype)
            start = limits.min if name == "max" else limits.max
        empty = Bounded(np.full((num_segments, *x.shape[1:]), start, wide(x.dtype)), 0.0, x.dtype)
        places = Places(empty)[segments]
        return (places.add if name == "sum" else getattr(places, name))(x)

    return apply


def start_of(start, size, extent):
    return min(max(int(start), 0), extent - size)


def dynamic_slice_in_dim(x, start, size, axis=0):
    first = start_of(start, size, x.shape[axis])
    return x[(slice(None),) * axis + (slice(first, first + size),)]


def dynamic_update_slice_in_dim(x, update, start, axis):
    first = start_of(start, update.shape[axis], x.shape[axis])
    index = (slice(None),) * axis + (slice(first, first + update.shape[axis]),)
    return Places(x).__getitem__(index).set(update)


def one_hot(labels, classes, dtype="float32"):
    hot = labels.exact()[..., None] == np.arange(classes)
    return Bounded(hot.astype(wide(dtype)), 0.0, dtype)


def made(value, dtype=None):
    value = np.asarray(value)
    default = sums_default(value.dtype.kind)
    dtype = dtype or default
    return Bounded(value.astype(wide(dtype)), 0.0, dtype)


def sums_default(kind):
    bits = 64 if Setting.x64 else 32
    return {"b": "bool", "i": f"int{bits}", "u": "uint8"}.get(kind, f"float{bits}")


def eye(n, dtype=None):
    return made(np.eye(n), dtype)


PLAIN = "reshape transpose flip roll broadcast_to tile repeat triu tril swapaxes moveaxis expand_dims".split()
JNP = {name: moved(getattr(np, name)) for name in PLAIN} | {
    "concatenate": joined(np.concatenate), "stack": joined(np.stack), "pad": pad, "take": take,
    "take_along_axis": take_along_axis, "eye": eye,
    "arange": lambda *bounds, dtype=None: made(np.arange(*bounds), dtype),
    "zeros_like": lambda x: Bounded(np.zeros_like(x.value), 0.0, x.dtype),
    "ones_like": lambda x: Bounded(np.ones_like(x.value), 0.0, x.dtype),
}  # fmt: skip
LAX = {"dynamic_slice_in_dim": dynamic_slice_in_dim, "dynamic_update_slice_in_dim": dynamic_update_slice_in_dim,
       "rev": moved(lambda v, axes: np.flip(v, axes)),
       "broadcasted_iota": lambda dtype, shape, axis: made(
           np.broadcast_to(np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape),
           dtype)}  # fmt: skip
OPS = {f"segment_{name}": segment(name) for name in ("sum", "max", "min")}
NN = {"one_hot": one_hot}


def install():
    Bounded.__getitem__ = getitem
    Bounded.at = property(Places)
    Bounded.T = property(JNP["transpose"])
    Bounded.mT = property(moved(lambda v: np.swapaxes(v, -1, -2)))
    for name in ("swapaxes", "repeat"):
        setattr(Bounded, name, JNP[name])
    for name in ("reshape", "transpose"):
        function = moved(getattr(np, name))
        setattr(Bounded, name, lambda x, *s, f=function: f(x, s[0] if len(s) == 1 and isinstance(s[0], tuple) else s))


install()
