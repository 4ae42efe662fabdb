"""Functions with transformations applied to them, in the form that JAX's interpreters take.

A `WrappedFun` is a function, transformations of it with their arguments, and stores for what the
transformations give beside the result. Here transformations act on traced programs; these serve
libraries that are written with them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ferrax._src.core.jaxpr import DebugInfo

__all__ = [
    "StoreException",
    "WrappedFun",
    "cache",
    "merge_linear_aux",
    "transformation",
    "transformation2",
    "transformation_with_aux",
    "transformation_with_aux2",
    "wrap_init",
]


class StoreException(Exception):  # noqa: N818
    """A store was read before it was filled, or filled twice.

    >>> issubclass(ferrax.extend.linear_util.StoreException, Exception)
    True
    """


class _Empty:
    def __bool__(self):
        return False


_empty = _Empty()


class Store:
    """A place for one value."""

    __slots__ = ("_value",)

    def __init__(self):
        self._value = _empty

    def store(self, value):
        if self._value is not _empty:
            raise StoreException("the store is filled already: a function is called once")
        self._value = value

    def reset(self):
        self._value = _empty

    @property
    def val(self):
        if self._value is _empty:
            raise StoreException("the store is empty: the function was not called yet")
        return self._value

    def __bool__(self):
        return self._value is not _empty


class EqualStore(Store):
    """As `Store`; it may be filled again with an equal value."""

    __slots__ = ()

    def store(self, value):
        if self._value is not _empty and self._value != value:
            raise StoreException(
                f"the function gave {value!r} beside its result, and {self._value!r} before"
            )
        self._value = value


class WrappedFun:
    """A function, the transformations to apply to it, and `params` that calls of it are given.

    `call_wrapped(*args)` applies it. Two are equal if their functions, transformations and
    parameters are.

    >>> fun = ferrax.extend.linear_util.wrap_init(lambda x, scale: scale * x, {"scale": 3})
    >>> fun.call_wrapped(2), fun.params
    (6, (('scale', 3),))
    """

    __slots__ = ("f", "f_transformed", "transforms", "stores", "params", "in_type", "debug_info")

    def __init__(
        self, f: Any, f_transformed: Callable[..., Any], transforms: Any = (), stores: Any = (),
        params: Any = (), in_type: Any = None, debug_info: Any = None,
    ) -> None:
        self.f, self.f_transformed = f, f_transformed
        self.transforms, self.stores, self.params = transforms, stores, params
        self.in_type, self.debug_info = in_type, debug_info

    @property
    def __name__(self) -> str:
        return getattr(self.f, "__name__", "<unnamed function>")

    def wrap(self, gen: Any, gen_static_args: Any, out_store: Any) -> WrappedFun:
        """The function with one more transformation, outermost. Generators are those of
        `transformation`; others call the function themselves."""
        stored = () if out_store is None else (out_store,)
        return WrappedFun(
            self.f,
            functools.partial(gen, self.f_transformed, *stored, *gen_static_args),
            ((gen, gen_static_args), *self.transforms),
            (out_store, *self.stores),
            self.params,
            None,
            self.debug_info,
        )

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the transformed function."""
        return self.f_transformed(*args, **kwargs)

    def populate_stores(self, stores: Any) -> None:
        """Fills the stores with the values of others."""
        for own, other in zip(self.stores, stores, strict=True):
            if own is not None:
                own.store(other.val)

    def _key(self):
        return self.f, self.transforms, self.params, self.in_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedFun) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        lines = [
            f"{number} : {getattr(gen, '__name__', gen)} {args}"
            for number, (gen, args) in enumerate(self.transforms)
        ]
        return "\n".join(["Wrapped function:", *lines, f"Core: {self.__name__}"])


def wrap_init(f: Any, params: Any = None, *, debug_info: Any = None) -> WrappedFun:
    """A function to apply transformations to; calls are given the keywords `params`.

    Args: f: the function; params: a dict or None; debug_info: a `DebugInfo` or None.

    Example:
        >>> fun = linear_util.wrap_init(lambda x, y: x + y)
        >>> fun.call_wrapped(1, 2)
        3
    """
    params = dict(params or {})
    transformed = functools.partial(f, **params) if params else f
    if debug_info is None:
        debug_info = _missing_debug_info("linear_util.wrap_init")
    return WrappedFun(
        f, transformed, (), (), tuple(sorted(params.items())), None, debug_info
    )


def _missing_debug_info(for_what):
    return DebugInfo("unknown", for_what)


def _finish(generator, results):
    outcome = generator.send(results)
    try:
        next(generator)
    except StopIteration:
        return outcome
    raise RuntimeError("a transformation must yield twice: the arguments, then the results")


class _Generator:
    """A generator transformation as a function that calls the transformed one."""

    def __init__(self, gen, aux):
        functools.update_wrapper(self, gen)
        self.gen, self.aux = gen, aux

    def __call__(self, f, *args, **kwargs):
        if self.aux:
            store, args = args[0], args[1:]
        generator = self.gen(*args, **kwargs)
        arguments, keywords = next(generator)
        outcome = _finish(generator, f(*arguments, **keywords))
        if not self.aux:
            return outcome
        outcome, beside = outcome
        store.store(beside)
        return outcome

    def __eq__(self, other):
        return type(other) is _Generator and (self.gen, self.aux) == (other.gen, other.aux)

    def __hash__(self):
        return hash((self.gen, self.aux))


def transformation(gen: Any) -> _Applied:
    """A transformation from a generator, which yields `(args, kwargs)` for the function, is sent
    its result, and yields the result to give. `gen(*static_args, *args)`.

    Example:
        >>> @linear_util.transformation
        ... def scaled(factor, *args):
        ...     out = yield args, {}
        ...     yield factor * out
        >>> scaled(linear_util.wrap_init(lambda x: x + 1), 10).call_wrapped(1)
        20
    """
    return _Applied(_Generator(gen, False), False)


def transformation_with_aux(gen: Any, use_eq_store: Any = False) -> _Applied:
    """As `transformation`, where the generator yields `(result, value beside it)` at last.
    Applying it gives `(function, thunk)`: the thunk gives the value once the function ran.

    Args: gen: the generator; use_eq_store: whether the value may be stored again where it is equal.

    >>> from ferrax.extend import linear_util
    >>> @linear_util.transformation_with_aux
    ... def first_of_pair(*args):
    ...     out = yield args, {}
    ...     yield out[0], out[1]
    >>> fun, beside = first_of_pair(linear_util.wrap_init(lambda x: (x + 1, "noted")))
    >>> fun.call_wrapped(1), beside()
    (2, 'noted')
    """
    return _Applied(_Generator(gen, True), True, use_eq_store)


def transformation2(gen: Any) -> _Applied:
    """A transformation from a function that calls the transformed one itself:
    `gen(f, *static_args, *args)`.

    Args: gen: the function.

    >>> from ferrax.extend import linear_util
    >>> @linear_util.transformation2
    ... def scaled(f, factor, *args):
    ...     return factor * f(*args)
    >>> scaled(linear_util.wrap_init(lambda x: x + 1), 10).call_wrapped(1)
    20
    """
    return _Applied(gen, False)


def transformation_with_aux2(gen: Any, use_eq_store: Any = False) -> _Applied:
    """As `transformation2`, where the function also gets a store for a value beside the result:
    `gen(f, store, *static_args, *args)`. Applying it gives `(function, thunk)`.

    Args: gen: the function; use_eq_store: whether the value may be stored again where it is equal.

    >>> from ferrax.extend import linear_util
    >>> @linear_util.transformation_with_aux2
    ... def first_of_pair(f, store, *args):
    ...     out, beside = f(*args)
    ...     store.store(beside)
    ...     return out
    >>> fun, beside = first_of_pair(linear_util.wrap_init(lambda x: (x + 1, "noted")))
    >>> fun.call_wrapped(1), beside()
    (2, 'noted')
    """
    return _Applied(gen, True, use_eq_store)


class _Applied:
    """What is called with a `WrappedFun` and static arguments to apply a transformation."""

    def __init__(self, gen, aux, use_eq_store=False):
        functools.update_wrapper(self, gen)
        self.gen, self.aux, self.use_eq_store = gen, aux, use_eq_store

    def __call__(self, fun, *static_args):
        if not self.aux:
            return fun.wrap(self.gen, static_args, None)
        store = EqualStore() if self.use_eq_store else Store()
        return fun.wrap(self.gen, static_args, store), lambda: store.val


def merge_linear_aux(aux1: Any, aux2: Any) -> tuple[bool, Any]:
    """`(True, value)` of the first thunk if its function ran, else `(False, value)` of the second.
    Errors: StoreException if neither or both ran.
    Args: aux1, aux2: the thunks.

    >>> from ferrax.extend import linear_util
    >>> def unfilled():
    ...     raise linear_util.StoreException("not called")
    >>> linear_util.merge_linear_aux(lambda: "first", unfilled)
    (True, 'first')
    """
    first, second = _filled(aux1), _filled(aux2)
    if first and second:
        raise StoreException("both stores are filled")
    if not (first or second):
        raise StoreException("neither store is filled: the function was not called")
    (value,) = first or second
    return bool(first), value


def _filled(thunk) -> tuple[Any, ...]:
    """What a thunk gives, if its store is filled."""
    try:
        return (thunk(),)
    except StoreException:
        return ()


def cache(call: Any) -> Callable[..., Any]:
    """Remembers `call(wrapped_fun, *args)` by the function's identity, its transformations and the
    arguments; the stores of a remembered function are filled again.

    Args: call: the function.

    >>> from ferrax.extend import linear_util
    >>> compiled = linear_util.cache(lambda fun, x: print("called") or fun.call_wrapped(x))
    >>> square = lambda x: x * x
    >>> compiled(linear_util.wrap_init(square), 3), compiled(linear_util.wrap_init(square), 3)
    called
    (9, 9)
    """
    known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    @functools.wraps(call)
    def remembered(fun, *args):
        results = known.setdefault(fun.f, {})
        key = (fun.transforms, fun.params, fun.in_type, args)
        if key in results:
            answer, stores = results[key]
            fun.populate_stores(stores)
            return answer
        answer = call(fun, *args)
        results[key] = answer, fun.stores
        return answer

    memoized: Any = remembered
    memoized.cache_clear = known.clear
    memoized.evict_function = lambda f: known.pop(f, None)
    return memoized
