"""Helpers of the transformations: argument numbers and names, argument checks."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from ferrax._src.base import errors
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import float0
from ferrax._src.tree import tree_util


def fun_name(fun) -> str:
    """The name of a callable, for messages and jaxprs."""
    while not hasattr(fun, "__name__") and hasattr(fun, "func"):
        fun = fun.func
    name = getattr(fun, "__name__", None)
    return name if isinstance(name, str) else type(fun).__name__


def update_wrapper(wrapper, fun):
    """As `functools.update_wrapper`, but for what cannot be an attribute of a function, such as a name that
    is no string of an object with an answer for each attribute: there the wrapper keeps its own."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        try:  # noqa: SIM105  a context takes longer than all else here
            setattr(wrapper, name, getattr(fun, name))
        except (AttributeError, TypeError):
            pass
    return functools.update_wrapper(wrapper, fun, assigned=())


def fun_place(fun) -> str:
    """The name of a callable with its file and line where these are known, for messages."""
    name = fun_name(fun)
    code = getattr(inspect.unwrap(fun, stop=_is_users), "__code__", None)
    while code is None and hasattr(fun, "func"):
        fun = fun.func
        code = getattr(fun, "__code__", None)
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"


def wraps(fun, what, how):
    """As `functools.wraps`, for functions that users call, with help of what became of `fun` before its own:
    "`what` of `fun`, `how`."."""

    def decorate(function):
        wrapper = update_wrapper(api_boundary(function), fun)
        text, own = f"{what} of {fun_name(fun)}, {how}.", wrapper.__doc__
        wrapper.__doc__ = f"{text}\n\nOriginal documentation:\n\n{own}" if own else text
        return wrapper

    return decorate


_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_types(fun: _Function) -> _Function:
    """Says of a function that it asks for no values: its arguments may be types, and so may those of a function that it
    is the method of or was made from."""
    fun._takes_types = True  # type: ignore[attr-defined]
    return fun


def _is_users(fun) -> bool:
    """Whether a callable has code that is not of this package, as wrappers by `grad` have."""
    code = getattr(fun, "__code__", None)
    return code is not None and not code.co_filename.startswith(errors.PACKAGE_DIRECTORY)


def is_own(fun) -> bool:
    """Whether a callable is a function of this package, and none that the user gave it."""
    while not hasattr(fun, "__code__") and hasattr(fun, "func"):
        fun = fun.func
    code = getattr(fun, "__code__", None)
    return code is not None and code.co_filename.startswith(errors.PACKAGE_DIRECTORY)


def argument_names(fun, args, kwargs, tangents=False) -> list[str]:
    """The names of the leaves of a call's arguments: `x`, `params['w']`, `rest[0]`.

    Arrays of dtype float0 are leaves if `tangents`.
    """
    args = tuple(args)
    try:
        signature = inspect.signature(fun)
        bound = signature.bind_partial(*args)
        tops = []
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                tops += [f"{name}[{index}]" for index in range(len(value))]
            else:
                tops.append(name)
    except (TypeError, ValueError):
        tops = []
    names = []
    for index, argument in enumerate(args):
        top = tops[index] if len(tops) == len(args) else f"args[{index}]"
        names += [top + tree_util.keystr(path) for path in _paths(argument, tangents)]
    for key, argument in sorted((kwargs or {}).items()):
        names += [key + tree_util.keystr(path) for path in _paths(argument, tangents)]
    return names


def _paths(tree, tangents):
    leaves = tree_util.tree_leaves_with_path(tree)
    return [path for path, leaf in leaves if tangents or not float0.is_float0(leaf)]


def as_tuple_of_ints(value, name) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple."""
    if value is None:
        return ()
    try:
        return (operator.index(value),)
    except TypeError:
        pass
    try:
        return tuple(operator.index(item) for item in value)
    except TypeError:
        raise TypeError(f"{name} must be an int or a sequence of ints, got {value!r}") from None


def as_tuple_of_strings(value, name) -> tuple[str, ...]:
    """A string or an iterable of strings as a tuple."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    value = tuple(value)
    for item in value:
        if not isinstance(item, str):
            raise TypeError(f"{name} must be a str or an iterable of str, got {item!r}")
    return value


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(fun):
    """`(positional names, how many of them take no keyword, keyword-only names, *args, **kwargs?)`,
    where `*args` is their name or None.

    None if the callable does not tell. Plain functions are read from their code: `inspect` takes
    a hundred times longer, which counts for the many functions that are jitted at import.
    """
    if type(fun) is FunctionType and not hasattr(fun, "__wrapped__"):
        code = fun.__code__
        names, count = code.co_varnames, code.co_argcount
        return (
            names[:count],
            code.co_posonlyargcount,
            names[count : count + code.co_kwonlyargcount],
            names[count + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else None,
            bool(code.co_flags & inspect.CO_VARKEYWORDS),
        )
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return None
    kinds = [p.kind for p in parameters]
    return (
        tuple(p.name for p in parameters if p.kind in _POSITIONAL),
        kinds.count(inspect.Parameter.POSITIONAL_ONLY),
        tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY),
        next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None),
        inspect.Parameter.VAR_KEYWORD in kinds,
    )


def resolve_argnums(fun, argnums, argnames, kind) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Both the numbers and the names of the arguments that either gives.

    Errors: ValueError for numbers or names that the function does not have, for names of arguments
    that are given by position alone, and for names to donate where the signature is unknown.
    """
    if argnums is None and argnames is None:
        return (), ()
    nums = as_tuple_of_ints(argnums, f"{kind}_argnums")
    names = as_tuple_of_strings(argnames, f"{kind}_argnames")
    if not nums and not names:
        return (), ()
    parameters = _parameters(fun)
    if parameters is None:
        if names and kind == "donate":
            raise ValueError(
                f"donate_argnames={names!r} of {fun_name(fun)}, whose signature cannot be read: use "
                "donate_argnums."
            )
        return nums, names
    positional, without_keyword, keyword_only, variadic, keywords = parameters
    count = len(positional)
    for num in nums:
        if not variadic and not -count <= num < count:
            raise ValueError(
                f"jitted function has invalid argnums {{{num}}} in {kind}_argnums. Function only "
                f"accepts {count} positional arguments."
            )
    for name in names:
        if name in positional[:without_keyword] or name == variadic:
            raise ValueError(
                f"jitted function has invalid argnames {{{name!r}}} in {kind}_argnames: it is given by "
                f"position alone. Use {kind}_argnums."
            )
        if name not in positional and name not in keyword_only and not keywords:
            known = sorted((*positional, *keyword_only))
            raise ValueError(
                f"jitted function has invalid argnames {{{name!r}}} in {kind}_argnames. Function "
                f"only accepts {known}."
            )
    if argnames is None:
        names = tuple(
            positional[num]
            for num in nums
            if -count <= num < count and num % count >= without_keyword
        )
    elif argnums is None:
        nums = tuple(index for index, name in enumerate(positional) if name in names)
    return nums, names


def refuse_abstracted_axes(name, abstracted_axes) -> None:
    """Errors: NotImplementedError unless it is None."""
    if abstracted_axes is not None:
        raise NotImplementedError(
            f"{name}: abstracted_axes is not supported: programs have static shapes, got "
            f"{abstracted_axes!r}"
        )


def check_callable(fun) -> None:
    """Errors: TypeError unless `fun` can be transformed."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r} of type {type(fun).__name__}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(
            f"Expected a function, got a generator function, {fun}; return a list instead of "
            "yielding"
        )


def split_arguments(args, numbers):
    """`(kept, others)`: the arguments at these positions in their order, and the others."""
    others = list(args)
    for number in sorted(set(numbers), reverse=True):
        del others[number]
    return tuple([args[number] for number in numbers]), tuple(others)


def join_arguments(numbers, kept, others) -> tuple:
    """The arguments that `split_arguments` took apart."""
    if not numbers:
        return tuple(others)
    merged = list(others)
    for position, value in sorted(zip(numbers, kept), key=lambda pair: pair[0]):
        merged.insert(position, value)
    return tuple(merged)
