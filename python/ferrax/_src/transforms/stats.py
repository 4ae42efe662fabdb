"""How often a jitted function was traced and compiled, and why it was traced again.

The native core gives the keys of two traces as
`(tree of the positional arguments, tree of the keyword arguments or None, leaf types, static
arguments, number of the settings)`; leaf types are `(shape, dtype, weak,
whether it is a Ref, number of the placement that is part of the type)`, static arguments
`(position or name, value)`. What differs between them is found here, when it is asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import weakref
from types import CodeType

from ferrax import _core
from ferrax._src.base import config, errors, monitoring
from ferrax._src.core import api_util, avals, placements, program_cache, runtime
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.transforms.symbolic_jit import SymbolicFunction
from ferrax._src.tree import tree_util

_logger = logging.getLogger(__name__)

# JAX's names, for which programs listen.
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclasses.dataclass(frozen=True)
class Retrace:
    """Why a function was traced again: what differs from the most alike call before.

    Attributes:
        argument: the path of the argument, such as `x['w'][0]`; a setting's name for 'config'.
        what: 'shape', 'dtype', 'weak type', 'sharding', 'static value', 'tree', 'config', or 'captured' for a
            function that captures traced values, whose programs are not kept.
        before, after: what it was and what it is.
        others: how many more differences there are.
    """

    argument: str
    what: str
    before: object
    after: object
    others: int = 0

    def __str__(self):
        more = f" (and {self.others} more)" if self.others else ""
        if self.what == "captured":
            return "it captures values of a function being traced, so its programs are not kept"
        return f"{self.argument} changed in {self.what}: {self.before} -> {self.after}{more}"

    def advice(self) -> str:
        """What to do about it."""
        return _ADVICE[self.what]


_ADVICE = {
    "shape": "Pad the argument to a few fixed shapes, or raise max_traces if the shapes are few.",
    "dtype": "Convert the argument to one dtype before the call, with jnp.asarray(x, dtype).",
    "weak type": "Python numbers are weakly typed: pass jnp.asarray(x, dtype) in all calls, or a "
    "Python number in all.",
    "sharding": "Put the argument on one mesh before all calls, and over explicit axes divide it in one way, with "
    "jax.device_put or jax.reshard.",
    "static value": "Each value of a static argument is compiled separately: make the argument "
    "dynamic, or raise max_traces if its values are few. Values are compared with `==` and by "
    "class; a class without `__eq__` makes each object a new value.",
    "tree": "Give the argument the same structure in all calls: the same containers, keys and "
    "lengths, and each argument always by position or always by name.",
    "config": "Set the configuration once, before the first call.",
    "captured": "Jit the function once, outside, and pass what it captures as arguments.",
}


@dataclasses.dataclass(frozen=True)
class JitStats:
    """What a jitted function has done since its definition or the last `clear_cache()`.

    Functions that are jitted twice with the same options share their programs and these numbers.

    Attributes:
        function: the function's name.
        traces: how often it was traced.
        compiles: how many of its programs were compiled; a trace inside another jitted function,
            or for `eval_shape`, compiles nothing.
        cache_entries: how many programs are kept.
        last_retrace: a `Retrace` that says why it was last traced again; None if it never was.
    """

    function: str
    traces: int
    compiles: int
    cache_entries: int
    last_retrace: Retrace | None

    def __repr__(self):
        def count(number, what):
            return f"{number} {what}{'' if number == 1 else 's'}"

        entries = f"{self.cache_entries} cache {'entry' if self.cache_entries == 1 else 'entries'}"
        counts = f"{count(self.traces, 'trace')}, {count(self.compiles, 'compile')}, {entries}"
        why = f"; last retrace: {self.last_retrace}" if self.last_retrace else ""
        return f"<JitStats of {self.function}: {counts}{why}>"


def of(jitted) -> JitStats:
    """The numbers of a jitted function."""
    traces, compiles, entries, keys = jitted._stats()
    if isinstance(jitted._function, SymbolicFunction):
        # It is traced for symbolic sizes; what `jitted` traces is calls of that.
        traces, _, _, keys = jitted._function.traced._stats()
    retrace = None
    if keys is not None:
        captured = Retrace("", "captured", None, None)
        retrace = difference(jitted._function, *keys) if keys else captured
    return JitStats(jitted._function_name, traces, compiles, entries, retrace)


def too_many_traces(fun, limit, before, after) -> Exception:
    """The error for a call that would trace once more than `max_traces` allows."""
    times = "once" if limit == 1 else f"{limit} times"
    if before is None:
        why = Retrace("", "captured", None, None)
    else:
        why = difference(fun, before, after)
    return errors.TooManyTracesError(
        f"{api_util.fun_place(fun)} may be traced {times} (jit's max_traces={limit}), and this "
        f"call would trace it again, because {why}.\n{why.advice()}"
    )


def log_retrace(fun, before, after) -> None:
    """What `jax_explain_cache_misses` logs."""
    at = _core.user_location()
    _logger.warning(
        "%s is traced again%s, because %s.",
        api_util.fun_place(fun), f" at {at}" if at else "", difference(fun, before, after),
    )  # fmt: skip


# The function that was traced last of those that one piece of code defines, while
# `jax_explain_cache_misses` is set.
_last_of_code: weakref.WeakKeyDictionary[CodeType, weakref.ref] = weakref.WeakKeyDictionary()


def forget() -> None:
    """What was traced before does not count any more."""
    _last_of_code.clear()


def _explain_new_function(fun) -> None:
    """Logs that a function is traced that is like one before but another object, as one that is defined
    in a loop is."""
    code = getattr(fun, "__code__", None)
    if code is None or code.co_filename.startswith(errors.PACKAGE_DIRECTORY):
        return
    before = _last_of_code.get(code)
    if before is not None and before() is not fun:
        at = _core.user_location()
        _logger.warning(
            "%s is traced%s, where another function defined on the same line was traced before. Programs are "
            "kept for each function: define and jit it once, outside of loops and of functions called often.",
            api_util.fun_place(fun), f" at {at}" if at else "",
        )  # fmt: skip
    _last_of_code[code] = weakref.ref(fun)


def _log(text, *values) -> None:
    """Logs as a warning if `jax_log_compiles` asks for it, else as a detail."""
    _logger.log(logging.WARNING if config.log_compiles.value else logging.DEBUG, text, *values)


def log_trace(fun, seconds) -> None:
    """A function was traced for jit."""
    if config.explain_cache_misses.value:
        _explain_new_function(fun)
    _log("Traced %s in %.6f s.", api_util.fun_place(fun), seconds)
    monitoring.record_elapsed(_TRACED, seconds, api_util.fun_name(fun))


def log_compile(name, types, seconds) -> None:
    """A program with inputs of these types was compiled."""
    types = ", ".join(avals.ShapedArray(*ty).str_short(True) for ty in types)
    found = program_cache.record_events(seconds)
    _log("Compiled %s of (%s) in %.6f s%s.", name, types, seconds, ", from the cache on disk" if found else "")
    if found is False and program_cache.is_asked_for() and config.explain_cache_misses.value:
        _logger.warning("%s of (%s) was compiled: the cache on disk has no equal program of this build.", name, types)
    monitoring.record_elapsed(COMPILED, seconds, f"jit({name})")


def difference(fun, before, after) -> Retrace:
    """The first difference between two keys, and how many there are."""
    found = list(_differences(fun, before, after))
    if not found and (*before[:2], before[-1]) == (*after[:2], after[-1]):
        # All else that keys have is along which axes of a mesh arguments vary.
        return Retrace("an argument", "sharding", "another", "this")
    if not found:
        return Retrace("a setting", "config", "other", "this")
    return dataclasses.replace(found[0], others=len(found) - 1)


def _differences(fun, before, after):
    old_args, old_kwargs, old_leaves, old_statics, old_context = before
    new_args, new_kwargs, new_leaves, new_statics, new_context = after
    yield from _static_differences(fun, old_statics, new_statics)
    old, new = (
        _arguments(fun, args, kwargs, statics)
        for args, kwargs, statics in (
            (old_args, old_kwargs, old_statics), (new_args, new_kwargs, new_statics),
        )
    )  # fmt: skip
    old_types, new_types = _split(old, old_leaves), _split(new, new_leaves)
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new:
            first, second = (
                f"{tree}" if tree is not None else "not given"
                for tree in (old.get(name), new.get(name))
            )
            yield Retrace(name, "tree", first, second)
        elif old[name] != new[name]:
            yield _tree_difference(name, old[name], new[name])
        else:
            for path, first, second in zip(_paths(new[name]), old_types[name], new_types[name]):
                yield from _type_differences(name + path, first, second)
    if old_context != new_context:
        old, new = runtime.named_context(old_context), runtime.named_context(new_context)
        for name in new:
            if old.get(name) != new[name]:
                yield Retrace(name, "config", old.get(name), new[name])


def _type_differences(argument, before, after):
    for what, index in (("shape", 0), ("dtype", 1), ("weak type", 2)):
        if before[index] != after[index]:
            old, new = before[index], after[index]
            yield Retrace(argument, what, *map(_shown, (old, new)))
    if before[4] != after[4]:
        yield Retrace(argument, "sharding", _division(before[4]), _division(after[4]))


def _division(number) -> str:
    """How arrays of a type are divided, by the number of the placement that is part of it."""
    sharding = placements.numbered(number).sharding
    return f"{sharding.spec} over {sharding.mesh}" if isinstance(sharding, NamedSharding) else "no mesh"


def _shown(value):
    return getattr(value, "name", value)


def _static_differences(fun, old, new):
    old, new = ({_static_name(fun, name): v for name, v in values} for values in (old, new))
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new:
            first, second = (
                repr(values[name]) if name in values else "not given" for values in (old, new)
            )
            yield Retrace(name, "static value", first, second)
            continue
        first, second = old[name], new[name]
        if type(first) is not type(second) or first != second:
            texts: tuple[str, ...] = (repr(first), repr(second))
            if texts[0] == texts[1]:
                texts = tuple(f"{text} ({type(v).__name__})" for text, v in zip(texts, (first, second)))
                if texts[0] == texts[1]:
                    texts = texts[0], f"another {second!r}"
            yield Retrace(name, "static value", *map(_short, texts))


def _short(text):
    return text if len(text) <= 80 else f"{text[:77]}..."


def _static_name(fun, name) -> str:
    return name if isinstance(name, str) else _positional_name(fun, name)


def _positional_name(fun, position) -> str:
    parameters = api_util._parameters(fun)
    if parameters is not None and position < len(parameters[0]):
        return parameters[0][position]
    return f"args[{position}]"


def _arguments(fun, args, kwargs, statics) -> dict:
    """The trees of the dynamic arguments by name, positional ones first."""
    taken = {name for name, _ in statics if not isinstance(name, str)}
    free = (position for position in itertools.count() if position not in taken)
    trees = {
        _positional_name(fun, position): tree for position, tree in zip(free, args.children())
    }
    if kwargs is not None:
        dummy = tree_util.with_placeholders(kwargs)
        trees |= zip(sorted(dummy), kwargs.children())
    return trees


def _split(trees, leaves) -> dict:
    leaves = iter(leaves)
    return {name: list(itertools.islice(leaves, tree.num_leaves)) for name, tree in trees.items()}


def _paths(tree) -> list[str]:
    """The path of each leaf as text."""
    try:
        dummy = tree_util.with_placeholders(tree)
        paths = tree_util.tree_leaves_with_path(dummy)
    except Exception:  # noqa: BLE001 - a class of the user's may refuse such leaves
        return [f" (leaf {number})" for number in range(tree.num_leaves)]
    return [tree_util.keystr(path) for path, _ in paths]


def _tree_difference(name, before, after) -> Retrace:
    """The place where two different trees part."""
    old, new = before, after
    while True:
        first, second = old.node_data(), new.node_data()
        if first is None or second is None or first != second:
            break
        pairs = list(zip(_child_keys(new), old.children(), new.children()))
        part = next((pair for pair in pairs if pair[1] != pair[2]), None)
        if part is None:
            break
        name, old, new = name + part[0], part[1], part[2]
    return Retrace(name, "tree", _short(_tree_text(old)), _short(_tree_text(new)))


def _tree_text(tree) -> str:
    if tree.node_data() is None:
        return "a leaf" if tree.num_leaves == 1 else "None"
    return str(tree).removeprefix("PyTreeDef(").removesuffix(")")


def _child_keys(tree) -> list[str]:
    children = tree.children()
    kind, data = tree.node_data()
    if issubclass(kind, dict) and isinstance(data, (list, tuple)) and len(data) == len(children):
        return [f"[{key!r}]" for key in data]
    if hasattr(kind, "_fields"):
        return [f".{field}" for field in kind._fields]
    if issubclass(kind, (tuple, list)):
        return [f"[{index}]" for index in range(len(children))]
    return [f" (child {index})" for index in range(len(children))]
