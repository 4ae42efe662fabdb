"""Values that are no arrays as arguments and results of functions that are differentiated.

In go a function and its arguments; out comes one of the arrays by which values are differentiated, with the function's
own result beside them, and what makes tangents and cotangents of values of those of arrays. Cost: one pass over
arguments and results; nothing where no class of such values is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.tracing import values_as_arrays
from ferrax._src.transforms.ad import zeros_like_aval
from ferrax._src.tree import opaque, tree_util


class Opened:
    """A tree with a list in the place of each value: the arrays by which that is differentiated."""

    def __init__(self, tree: Any) -> None:
        self.leaves, self.tree = opaque.flatten(tree)
        self._parts = [_Part(x) if opaque.is_value(x) else None for x in self.leaves]
        self.parts = any(part is not None for part in self._parts)
        parts = zip(self.leaves, self._parts)
        self.opened = self.tree.unflatten([x if part is None else part.moving for x, part in parts])

    def closed(self, opened: Any) -> Any:
        """The tree of values with other arrays."""
        return self._closed(opened, lambda part, arrays: part.value(arrays))

    def tangents(self, opened: Any, cotangent: bool = False) -> Any:
        """The tree of tangents, or of cotangents, for those of the arrays."""
        return self._closed(opened, lambda part, arrays: part.tangent(arrays, cotangent))

    def _closed(self, opened, make):
        items = self.tree.flatten_up_to(opened)
        return self.tree.unflatten([x if part is None else make(part, x) for x, part in zip(items, self._parts)])

    def fits(self, tangents: Any) -> bool:
        """Whether `tangents` has the structure of the values."""
        try:
            self.tree.flatten_up_to(tangents)
        except ValueError:
            return False
        return True

    def of_tangents(self, tangents: Any, cotangent: bool = False) -> Any:
        """What `tangents` gives this of. Errors: TypeError for another structure, and for tangents of other types."""
        try:
            items = self.tree.flatten_up_to(tangents)
        except ValueError as error:
            raise TypeError(f"tangents and cotangents must have the structure of the values: {error}") from None
        pairs = zip(items, self._parts)
        return self.tree.unflatten([x if part is None else part.of_tangent(x, cotangent) for x, part in pairs])


class _Part:
    """A value, and the arrays by which it is differentiated: those with tangents among its own, or the carriers."""

    def __init__(self, value):
        self.ty = core.typeof(value)
        children, self.data = tree_util.flatten_one_level(value)
        self.children = list(children)
        self.unflatten = opaque.unflatten_of(value)
        count = len(values_as_arrays.carriers(self.ty))
        first = len(self.children) - count if count else 0
        self.places = [
            i for i, x in enumerate(self.children) if i >= first and dtypes.has_tangent(core.abstract_type(x)[1])
        ]
        self.first = first
        self.moving = [self.children[i] for i in self.places]

    def value(self, arrays):
        children = list(self.children)
        for i, x in zip(self.places, arrays):
            children[i] = x
        return self.unflatten(self.data, children)

    def _type(self, cotangent):
        return self.ty.to_ct_aval() if cotangent else self.ty.to_tangent_aval()

    def tangent(self, arrays, cotangent):
        ty = self._type(cotangent)
        found = [zeros_like_aval(aval) for aval in ty.lo_ty()]
        for i, x in zip(self.places, arrays):
            number = i - self.first
            found[number] = x.astype(found[number].dtype) if x.dtype != found[number].dtype else x
        return ty.raise_val(*found)

    def of_tangent(self, tangent, cotangent):
        ty = self._type(cotangent)
        found = core.typeof(tangent)
        if found != ty and not _alike(found, ty):
            kind = "cotangent" if cotangent else "tangent"
            raise TypeError(f"the {kind} of a value of type {self.ty} has type {ty}, got one of type {found}")
        lo = ty.lower_val(tangent)
        own = [lo[i - self.first] for i in self.places]
        return [core.as_array(x, "a tangent").astype(like.dtype) for x, like in zip(own, self.moving)]


def _alike(found, ty):
    arrays = isinstance(found, core.ShapedArray) and isinstance(ty, core.ShapedArray)
    return arrays and (found.shape, found.dtype) == (ty.shape, ty.dtype)


def opened_choice(chosen: Any, merge: Callable[[Any], Any]) -> tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]:
    """The arguments that a function is differentiated by, with arrays in the places of values, what makes all arguments
    of these, and gradients of theirs."""
    if not opaque.any_values():
        return chosen, merge, lambda gradients: gradients
    own = Opened(chosen)
    if not own.parts:
        return chosen, merge, lambda gradients: gradients
    return own.opened, lambda opened: merge(own.closed(opened)), lambda found: own.tangents(found, cotangent=True)


class Call:
    """A function of opened arguments: `fun` returns opened results, and `(own result, aux)` beside them, the first None
    where there are no values among the results."""

    def __init__(self, fun: Callable[..., Any], args: Any, has_aux: bool = False) -> None:
        self.args = Opened(tuple(args))
        self.out: Any = None

        def of_opened(*opened):
            result, aux = fun(*self.args.closed(tuple(opened))), None
            if has_aux:
                if not isinstance(result, (tuple, list)) or len(result) != 2:
                    raise TypeError(f"has_aux=True: expected a pair (output, aux), got {type(result).__name__}")
                result, aux = result
            self.out = out = Opened(result)
            opened, out.opened, out.leaves = out.opened, None, []  # of a trace that ends
            return opened, (result if out.parts else None, aux)

        self.fun = functools.update_wrapper(of_opened, fun, assigned=("__module__", "__doc__"))
        of_opened.__name__ = of_opened.__qualname__ = api_util.fun_name(fun)

    def result(self, opened: Any, own: Any) -> Any:
        return own if self.out.parts else opened

    @property
    def parts(self) -> bool:
        """Whether there are values among arguments or results."""
        return self.args.parts or self.out.parts


class Push:
    """The derivative at a point, of tangents of values."""

    def __init__(self, call):
        self.call = call

    def __call__(self, push, *tangents):
        return self.call.out.tangents(push(*self.call.args.of_tangents(tangents)))


class Pull:
    """The transposed derivative at a point, of cotangents of values."""

    def __init__(self, call):
        self.call = call

    def __call__(self, pull, cotangent):
        found = pull(self.call.out.of_tangents(cotangent, cotangent=True))
        return self.call.args.tangents(found, cotangent=True)

    def __repr__(self) -> str:
        types = [core.typeof(x) for x in self.call.args.leaves]
        return f"VJP of arguments of types {types}"
