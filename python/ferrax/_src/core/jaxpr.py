"""Programs as jaxprs: what `make_jaxpr` returns, and what programs that walk or build jaxprs use.

A jaxpr that comes from the native core is a view of a program, made when it is looked at. One that
Python builds (`Jaxpr(...)`, `jaxpr.replace(...)`) becomes a program when it is evaluated or shown.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import effects as _effects
from ferrax._src.base.errors import JaxprTypeError
from ferrax._src.base.jax_version import follows
from ferrax._src.base.source_info import SourceInfo, called_at, named_stack
from ferrax._src.core import primitive_params
from ferrax._src.core.placements import alias
from ferrax._src.core.primitives import Primitive as Primitive, apply_program, aval_type, builtin

_counter = itertools.count()


class Var:
    """A variable of a jaxpr; equal to itself alone. `aval` is its type.

    >>> x = ferrax.make_jaxpr(jnp.sin)(1.0).jaxpr.invars[0]
    >>> x.aval
    ShapedArray(float32[], weak_type=True)
    """

    __slots__ = ("aval", "count")

    def __init__(self, *args: Any) -> None:
        # Either the type, or a number and the type.
        self.count, self.aval = args if len(args) == 2 else (next(_counter), *args)

    def __repr__(self) -> str:
        return f"Var(id={self.count}):{self.aval.str_short(True)}"


class DropVar(Var):
    """An output of an equation that is not used, for jaxprs that Python builds.

    >>> ferrax.core.DropVar(ferrax.core.ShapedArray((), jnp.float32))
    _
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


class Literal:
    """A constant scalar operand: `val`, of the type `aval`.

    >>> ferrax.core.Literal(2.0)
    2.0:f32[]
    """

    __slots__ = ("val", "aval")

    def __init__(self, val: Any, aval: Any = None) -> None:
        self.val = val
        self.aval = core.typeof(val) if aval is None else aval

    @property
    def hash(self) -> int:
        return hash(self.val)

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval.str_short(True)}"


class DebugInfo(NamedTuple):
    """What is known of the function that a jaxpr was traced from.

    >>> ferrax.extend.core.DebugInfo("jit", "loss at model.py:3", ("params",)).func_name
    'loss'
    """

    traced_for: str
    func_src_info: str
    arg_names: tuple | None = None
    result_paths: tuple | None = None

    @property
    def func_name(self) -> str:
        return self.func_src_info.partition(" at ")[0]


def _refuse_layout(options):
    chosen = sorted(name for name, value in options.items() if value)
    if chosen:
        raise TypeError(f"pretty_print: jaxprs are printed in one way; the options {chosen} are not there")


class JaxprEqn:
    """One equation of a jaxpr: `outvars = primitive[params] invars`.

    >>> eqn = ferrax.make_jaxpr(jnp.sin)(1.0).eqns[0]
    >>> eqn.primitive, len(eqn.invars), len(eqn.outvars)
    (sin, 1, 1)
    """

    __slots__ = ("invars", "outvars", "primitive", "params", "effects", "source_info", "ctx")

    def __init__(
        self, invars: Any, outvars: Any, primitive: Any, params: dict[str, Any],
        effects: Any = None, source_info: SourceInfo | None = None, ctx: Any = None,
    ) -> None:
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.primitive = primitive
        self.params = params
        self.effects = _effects.no_effects if effects is None else effects
        self.source_info = source_info or SourceInfo()
        self.ctx = ctx

    def replace(self, **changes: Any) -> JaxprEqn:
        """A copy with other `invars`, `outvars`, `primitive`, `params` or the like."""
        return JaxprEqn(**({name: getattr(self, name) for name in self.__slots__} | changes))

    def __repr__(self) -> str:
        return f"{self.outvars} = {self.primitive}{self.params} {self.invars}"


def new_jaxpr_eqn(
    invars: Any, outvars: Any, primitive: Any, params: Any, effects: Any = _effects.no_effects,
    source_info: Any = None, ctx: Any = None,
) -> JaxprEqn:
    """An equation for a jaxpr that is being built.

    Args: invars: variables and literals; outvars: variables; primitive, params: the operation;
    effects, source_info, ctx: what `JaxprEqn` has under these names.

    >>> x, y = (ferrax.core.Var(ferrax.core.ShapedArray((), jnp.float32)) for _ in range(2))
    >>> ferrax.core.new_jaxpr_eqn([x], [y], lax.neg_p, {}).primitive
    neg
    """
    return JaxprEqn(invars, outvars, primitive, params, effects, source_info, ctx)


# What JAX 0.12 has of every jaxpr, for there it may have values.
_OF_BOTH = frozenset(("all_invars", "consts", "jaxpr", "literals", "map_jaxpr", "num_consts", "with_consts"))


class Jaxpr:
    """Equations over variables: `constvars` and `invars` come from outside, `outvars` go out.

    >>> x, y = (ferrax.core.Var(ferrax.core.ShapedArray((), jnp.float32)) for _ in range(2))
    >>> eqn = ferrax.core.new_jaxpr_eqn([x], [y], lax.neg_p, {})
    >>> ferrax.core.Jaxpr([], [x], [y], [eqn])
    { lambda ; a:f32[]. let b:f32[] = neg a in (b,) }
    """

    # What its equations are bound in, where that is not what its program is asked for in: axes that only they know.
    _around: Callable[[], AbstractContextManager[None]] | None = None

    def __init__(
        self, constvars: Any, invars: Any, outvars: Any, eqns: Any,
        effects: Any = _effects.no_effects, debug_info: DebugInfo | None = None,
        is_high: bool = False,
    ) -> None:  # fmt: skip
        self._program: _core.Program | None = None
        self.constvars = list(constvars)
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.eqns = list(eqns)
        self.effects = effects
        self.debug_info = debug_info or DebugInfo("jaxpr", "jaxpr")
        self._high = is_high

    @property
    def is_high(self) -> bool:
        """Whether there are equations over values that are no arrays (`experimental.hijax`), written as over theirs."""
        return self._high or any(
            eqn.primitive._high or any(inner.is_high for inner in jaxprs_in_params(eqn.params)) for eqn in self.eqns
        )

    @classmethod
    def _of_program(cls, program, captured, constants):
        """The view of a program whose last `captured` inputs are constvars; its `constants`,
        `(variable, array)` pairs, are constvars behind them."""
        inputs, outputs, types = program.interface()
        variables = [Var(i, core.ShapedArray(*ty)) for i, ty in enumerate(types)]

        def atom(item):
            if isinstance(item, int):
                return variables[item]
            value, dtype, weak = item
            return Literal(value, core.ShapedArray((), dtype, weak))

        eqns = []
        for primitive, params, ins, outs, line, scope in program.equations():
            ins = [atom(item) for item in ins]
            if isinstance(primitive, str):
                operands = [atom.aval for atom in ins]
                params = {key: _shown_value(value) for key, value in params.items()}
                params = primitive_params.shown(primitive, params, operands, len(outs))
                primitive = builtin(primitive)
            eqns.append(
                JaxprEqn(
                    ins,
                    [variables[i] for i in outs],
                    primitive,
                    params,
                    _equation_effects(primitive, ins, params),
                    SourceInfo(None, named_stack(scope), line),
                )
            )
        count = len(inputs) - captured
        jaxpr = cls(
            [variables[i] for i in [*inputs[count:], *(i for i, _ in constants)]],
            [variables[i] for i in inputs[:count]],
            [atom(item) for item in outputs],
            eqns,
            frozenset().union(*(eqn.effects for eqn in eqns)),
            DebugInfo("jit", program.name),
        )
        if not constants:
            jaxpr._program = program
        return jaxpr

    def __getattr__(self, name: str) -> Any:
        if name in _OF_BOTH and follows(0, 12):
            return self if name == "jaxpr" else getattr(ClosedJaxpr(self._without_consts()), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _without_consts(self) -> Jaxpr:
        """The jaxpr whose constvars are invars, in front."""
        return self.replace(constvars=[], invars=[*self.constvars, *self.invars]) if self.constvars else self

    def replace(self, **changes: Any) -> Jaxpr:
        """A copy with other `constvars`, `invars`, `outvars`, `eqns` or the like."""
        fields = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info", "is_high")
        unknown = changes.keys() - set(fields)
        if unknown:
            raise TypeError(f"Jaxpr has no fields {sorted(unknown)}")
        changed = Jaxpr(**({name: getattr(self, name) for name in fields} | changes))
        changed._around = self._around
        return changed

    def _is_view(self) -> bool:
        return self._program is not None

    def _to_program(self):
        """The program; its last inputs are the constvars."""
        if self._program is None:
            count = len(self.invars)
            with nullcontext() if self._around is None else self._around():
                self._program, _, _ = _core.trace_program(
                    lambda leaves: _evaluate(self, leaves[count:], leaves[:count]),
                    "stage",
                    self.debug_info.func_name,
                    [aval_type(var.aval) for var in (*self.invars, *self.constvars)],
                )
        return self._program

    @property
    def in_avals(self) -> list[Any]:
        return [var.aval for var in self.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [atom.aval for atom in self.outvars]

    def __str__(self) -> str:
        return self._to_program().text(len(self.constvars))

    __repr__ = __str__

    def pretty_print(self, **options: Any) -> str:
        """The text that `str` gives. Errors: TypeError for options that are set: there are none."""
        _refuse_layout(options)
        return str(self)


class ClosedJaxpr:
    """A jaxpr with values for its constvars. Made of a `Jaxpr` (or of a traced program).

    >>> closed = ferrax.make_jaxpr(lambda x: x + 1)(1.0)
    >>> closed.jaxpr, closed.consts
    ({ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }, [])
    """

    # What makes the jaxpr's debug_info, where more is known than the function's name.
    _describe: Callable[[], DebugInfo] | None = None
    # Which inputs and which captured values are mutable arrays that get a value, by number.
    _written: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    # Of a call's jaxpr without the shardings that the program states: that with them, and the shardings.
    _with_borders: ClosedJaxpr | None = None
    _places: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())

    # One of them at least is there: a program is viewed as a jaxpr when that is asked for.
    _program: Any
    _jaxpr: Any

    def __init__(self, jaxpr: Any, consts: Any = ()) -> None:
        self.consts = list(consts)
        if isinstance(jaxpr, _core.Program):
            self._program, self._jaxpr = jaxpr, None
            self._captured = len(self.consts)
            self._constants = jaxpr.constants()
            self.consts += [value for _, value in self._constants]
            return
        if isinstance(jaxpr, ClosedJaxpr):
            jaxpr = jaxpr.open
        if len(jaxpr.constvars) != len(self.consts):
            raise ValueError(
                f"a ClosedJaxpr needs a value for each of the {len(jaxpr.constvars)} constvars, "
                f"got {len(self.consts)}"
            )
        self._program, self._jaxpr = None, jaxpr

    def with_outputs(self, structs: Any) -> ClosedJaxpr:
        """The jaxpr whose outputs with these numbers are constvars that have a type only."""
        jaxpr = self.open
        outvars = list(jaxpr.outvars)
        variables = []
        for number, struct in structs.items():
            outvars[number] = Var(core.ShapedArray(struct.shape, struct.dtype, struct.weak_type))
            variables.append(outvars[number])
        jaxpr = jaxpr.replace(constvars=[*variables, *jaxpr.constvars], outvars=outvars)
        return ClosedJaxpr(jaxpr, [*structs.values(), *self.consts])

    @property
    def jaxpr(self) -> Any:
        """The jaxpr apart from the values; where JAX 0.12 is followed, which has one class for both, this itself."""
        return self if follows(0, 12) else self.open

    @property
    def open(self) -> Jaxpr:
        """The jaxpr apart from the values."""
        if self._jaxpr is None:
            self._jaxpr = Jaxpr._of_program(self._program, self._captured, self._constants)
            if self._describe is not None:
                self._jaxpr.debug_info = self._describe()
            invars, constvars = self._jaxpr.invars, self._jaxpr.constvars
            inputs, captured = self._written
            variables = [*(invars[i] for i in inputs), *(constvars[i] for i in captured)]
            self._jaxpr.effects |= frozenset(map(_effects.WriteEffect, variables))
        return self._jaxpr

    @property
    def constvars(self) -> list[Var]:
        return self.open.constvars

    @property
    def invars(self) -> list[Var]:
        return self.open.invars

    @property
    def outvars(self) -> list[Any]:
        return self.open.outvars

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.open.eqns

    @property
    def effects(self) -> Any:
        if self._jaxpr is None and self._written == ((), ()) and not _may_have_effects(self._program):
            return _effects.no_effects  # without the view
        return self.open.effects

    @property
    def literals(self) -> list[Any]:
        return self.consts

    @property
    def debug_info(self) -> DebugInfo:
        return self.open.debug_info

    @property
    def is_high(self) -> bool:
        return self.open.is_high if follows(0, 12) else False

    @property
    def in_avals(self) -> list[Any]:
        if self._program is None:
            return self._jaxpr.in_avals
        types = self._program.in_types
        return [core.ShapedArray(*ty) for ty in types[: len(types) - self._captured]]

    @property
    def out_avals(self) -> list[Any]:
        if self._program is None:
            return self._jaxpr.out_avals
        return [core.ShapedArray(*ty) for ty in self._program.out_types]

    def __getattr__(self, name: str) -> Any:
        # What JAX 0.12 has, whose jaxprs have their values.
        if name in ("all_invars", "num_consts", "with_consts") and follows(0, 12):
            if name == "all_invars":
                return [*self.constvars, *self.invars]
            return len(self.consts) if name == "num_consts" else self._with_consts
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _with_consts(self, consts: Any) -> ClosedJaxpr:
        """The jaxpr whose first inputs, those that are constvars included, are these values."""
        consts, opened = list(consts), self.open
        inputs = [*opened.constvars, *opened.invars]
        if len(consts) > len(inputs):
            raise ValueError(f"with_consts: the jaxpr has {len(inputs)} inputs, got {len(consts)} values")
        return ClosedJaxpr(opened.replace(constvars=inputs[: len(consts)], invars=inputs[len(consts) :]), consts)

    def replace(self, *, jaxpr: Any = None, consts: Any = None, **changes: Any) -> ClosedJaxpr:
        """A copy with another jaxpr or other consts; where JAX 0.12 is followed, with other fields of a jaxpr: its
        `constvars` are without values then."""
        if not follows(0, 12):
            if changes:
                raise TypeError(f"ClosedJaxpr.replace: there are jaxpr and consts, got {sorted(changes)}")
            return ClosedJaxpr(self.open if jaxpr is None else jaxpr, self.consts if consts is None else consts)
        opened = self.open if jaxpr is None else getattr(jaxpr, "open", jaxpr)
        given = () if "constvars" in changes and consts is None else self.consts if consts is None else consts
        if changes:
            opened = opened.replace(**changes)
        return ClosedJaxpr(opened._without_consts())._with_consts(given)

    def map_jaxpr(self, function: Any) -> ClosedJaxpr:
        """The same values for the constvars of another jaxpr, `function(self.jaxpr)`."""
        return self.replace(jaxpr=function(self.jaxpr))

    def _to_program(self):
        """The program without further inputs: consts are constants of it."""
        if self._program is not None and not self._captured:
            return self._program
        if self._program is not None:
            return self._program.bind_constants(self.consts[: self._captured])
        program = self._jaxpr._to_program()
        return program.bind_constants(self.consts) if self.consts else program

    def _donated(self):
        """Whether each of the first inputs is given up by the calls that were traced (`jit(donate_argnums=...)`)."""
        return [] if self._program is None else self._program.donated

    def _run(self, arguments):
        if self._program is None:
            return eval_jaxpr(self._jaxpr, self.consts, *arguments)
        results = apply_program(self._program, [*arguments, *self.consts[: self._captured]])
        return _given_up(self._program, arguments, results)

    def __str__(self) -> str:
        if self._program is not None:
            return self._program.text(self._captured)
        return str(self._jaxpr)

    __repr__ = __str__

    def pretty_print(self, **options: Any) -> str:
        """The text that `str` gives. Errors: TypeError for options that are set: there are none."""
        _refuse_layout(options)
        return str(self)


def _given_up(program, arguments, results):
    """The results, once the arrays that calls in the program give up are deleted, as in a call of theirs."""
    places = program.given_up()
    given = [arguments[place] for place in places if place < len(arguments)]
    given = [x for x in given if isinstance(x, core.Array) and not isinstance(x, core.Tracer)]
    if given:
        results = [alias(x) if any(x is old for old in given) else x for x in results]
        for x in given:
            x.delete()
    return results


def _may_have_effects(program) -> bool:
    """Whether the jaxpr of a program might have effects: false where no equation has a kind that can."""
    for primitive, params, *_ in program.equations():
        if not isinstance(primitive, str):
            if primitive._effectful:
                return True
        elif primitive_params.has_axes(primitive):
            return True
        else:
            for value in params.values():
                for item in value if isinstance(value, tuple) else (value,):
                    if isinstance(item, _core.Program) and _may_have_effects(item):
                        return True
    return False


def _equation_effects(primitive, ins, params):
    if not primitive._builtin:
        if not primitive._effectful:
            return _effects.no_effects
        return frozenset(primitive.abstract_eval(*(atom.aval for atom in ins), **params)[1])
    inner = (jaxpr.effects for jaxpr in jaxprs_in_params(params))
    return frozenset(primitive_params.axis_effects(primitive.op, params)).union(*inner)


def literal_value(atom: Literal):
    """The array that a literal stands for, of the literal's type."""
    aval = atom.aval
    if aval.weak_type and aval.dtype.kind in "bifc":
        array = core.as_array(atom.val)
        if array.dtype == aval.dtype and array.weak_type:
            return array
    array = core.as_array(np.asarray(atom.val, aval.dtype))
    if not aval.weak_type:
        return array
    return _core.bind(
        "convert_element_type", (array,), {"new_dtype": aval.dtype, "weak_type": True}
    )


def interpret(jaxpr, consts, arguments, apply, literal=literal_value):
    """The values of a jaxpr's outputs, where `apply(eqn, values)` is called for each equation.

    `apply` returns a list of the values of the equation's outputs. Values are anything;
    `literal(atom)` gives those of literals. A value is forgotten after its last use.
    """
    values: dict[Any, Any] = {}

    def read(atom):
        return literal(atom) if isinstance(atom, Literal) else values[atom]

    def write(variables, items, what):
        variables, items = list(variables), list(items)
        if len(variables) != len(items):
            raise TypeError(
                f"eval_jaxpr: {what}: expected {len(variables)} values, got {len(items)}"
            )
        values.update(zip(variables, items))

    last_use = {var: len(jaxpr.eqns) for var in jaxpr.outvars if isinstance(var, Var)}
    ends: list[list[Var]] = [[] for _ in jaxpr.eqns]
    for number in reversed(range(len(jaxpr.eqns))):
        eqn = jaxpr.eqns[number]
        for var in (*eqn.outvars, *eqn.invars):
            if isinstance(var, Var) and var not in last_use:
                last_use[var] = number
                ends[number].append(var)
    write(jaxpr.constvars, consts, "consts")
    write(jaxpr.invars, arguments, "arguments")
    for eqn, ended in zip(jaxpr.eqns, ends):
        write(eqn.outvars, apply(eqn, [read(atom) for atom in eqn.invars]), eqn.primitive)
        for var in ended:
            del values[var]
    return [read(atom) for atom in jaxpr.outvars]


def bind_equation(eqn, values):
    """The outputs of an equation's primitive for these inputs, as a list. What is recorded has the equation's line."""
    return called_at(eqn.source_info, lambda: _bind_equation(eqn, values))


def _bind_equation(eqn, values):
    results = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return list(results) if eqn.primitive.multiple_results else [results]


def _evaluate(jaxpr, consts, arguments, lines=True):
    """Binds the equations one after another."""
    return interpret(jaxpr, consts, arguments, bind_equation if lines else _bind_equation)


def eval_jaxpr(jaxpr: Any, consts: Any, *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """The outputs of a jaxpr for these arguments, as a list.

    Errors: TypeError for another number of arguments or consts than the jaxpr has.
    Args: jaxpr: a `Jaxpr`; consts: values of its constvars; args: of its invars;
    propagate_source_info: whether equations that are recorded have the lines and names of the jaxpr's.

    Example:
        >>> closed = ferrax.make_jaxpr(lambda x: x * 2)(1.0)
        >>> ferrax.core.eval_jaxpr(closed.jaxpr, closed.consts, 3.0)
        [Array(6., dtype=float32, weak_type=True)]
    """
    if follows(0, 12):  # The inputs are those of all kinds, in order.
        jaxpr, inputs = getattr(jaxpr, "open", jaxpr), [*consts, *args]
        consts, args = inputs[: len(jaxpr.constvars)], tuple(inputs[len(jaxpr.constvars) :])
    elif isinstance(jaxpr, ClosedJaxpr):
        return jaxpr.replace(consts=consts)._run(args) if consts else jaxpr._run(args)
    if len(args) != len(jaxpr.invars) or len(consts) != len(jaxpr.constvars):
        raise TypeError(
            f"eval_jaxpr: the jaxpr has {len(jaxpr.invars)} invars and {len(jaxpr.constvars)} "
            f"constvars, got {len(args)} arguments and {len(consts)} consts"
        )
    if jaxpr._is_view() and propagate_source_info:
        return _given_up(jaxpr._program, args, apply_program(jaxpr._program, [*args, *consts]))
    return _evaluate(jaxpr, consts, args, propagate_source_info)


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The function that a closed jaxpr is: of its inputs, to a list.

    Args: closed_jaxpr: a `ClosedJaxpr`.

    >>> ferrax.core.jaxpr_as_fun(ferrax.make_jaxpr(lambda x: x + 1)(1.0))(2.0)
    [Array(3., dtype=float32, weak_type=True)]
    """
    return lambda *args: closed_jaxpr._run(args)


def jaxprs_in_params(params: Any) -> Iterator[Jaxpr]:
    """The jaxprs among the parameters of an equation, lists of them included.

    Args: params: a dict.

    >>> eqn = ferrax.make_jaxpr(ferrax.jit(lambda x: x + 1))(1.0).eqns[0]
    >>> len(list(ferrax.core.jaxprs_in_params(eqn.params)))
    1
    """
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Jaxpr):
                yield item
            elif isinstance(item, ClosedJaxpr):
                yield item.jaxpr


def subjaxprs(jaxpr: Any) -> Iterator[Jaxpr]:
    """The jaxprs in the parameters of a jaxpr's equations, not those in them again.

    Args: jaxpr: a `Jaxpr`.

    >>> closed = ferrax.make_jaxpr(ferrax.jit(lambda x: x + 1))(1.0)
    >>> len(list(ferrax.core.subjaxprs(closed.jaxpr)))
    1
    """
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def gensym(suffix: str = "") -> Callable[[Any], Var]:
    """A function from types to fresh variables.

    Args: suffix: must be empty (NotImplementedError).

    >>> ferrax.extend.core.gensym()(ferrax.core.ShapedArray((2,), jnp.float32)).aval
    ShapedArray(float32[2])
    """
    if suffix:
        raise NotImplementedError(f"gensym: variables are named where they are shown, got {suffix=!r}")
    return Var


def check_jaxpr(jaxpr: Any) -> None:
    """Checks that a jaxpr is well formed.

    Args: jaxpr: a `Jaxpr` or `ClosedJaxpr`. Errors: JaxprTypeError if a variable is used before it
    is defined, or an equation's outputs have other types than its primitive says.

    >>> ferrax.core.check_jaxpr(ferrax.make_jaxpr(jnp.sin)(1.0).jaxpr)
    """
    jaxpr = jaxpr.open if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    known = {*jaxpr.constvars, *jaxpr.invars}

    def check_known(atoms, what):
        for atom in atoms:
            if not isinstance(atom, Literal) and atom not in known:
                raise JaxprTypeError(f"Variable {atom!r} of {what} is not defined before it is used")

    for eqn in jaxpr.eqns:
        check_known(eqn.invars, f"the equation {eqn!r}")
        avals, _ = eqn.primitive.abstract_eval(*(a.aval for a in eqn.invars), **eqn.params)
        avals = avals if eqn.primitive.multiple_results else [avals]
        same = len(avals) == len(eqn.outvars) and all(
            (aval.shape, aval.dtype) == (var.aval.shape, var.aval.dtype)
            for aval, var in zip(avals, eqn.outvars)
        )
        if not same:
            raise JaxprTypeError(
                f"The outputs of {eqn!r} have the types {[v.aval for v in eqn.outvars]}, but "
                f"'{eqn.primitive}' gives {list(avals)}"
            )
        known.update(eqn.outvars)
    check_known(jaxpr.outvars, "the outputs")


# Parameters that are jaxprs.


def _shown_value(value):
    if isinstance(value, _core.Program):
        return ClosedJaxpr(value)
    if isinstance(value, tuple):
        return tuple(map(_shown_value, value))
    return value


@functools.cache
def _update_jaxpr(combiner, dtype):
    """The jaxpr of the function that a scatter combines elements with."""
    aval = core.ShapedArray((), dtype)
    x, y, out = Var(0, aval), Var(1, aval), Var(2, aval)
    return Jaxpr([], [x, y], [out], [JaxprEqn([x, y], [out], builtin(combiner), {})])


def _shown_scatter(op, params, operands, num_outputs):
    combiner = primitive_params.SCATTERS[op]
    jaxpr = None if combiner is None else _update_jaxpr(combiner, operands[0].dtype)
    shown = primitive_params.shown_scatter(params)
    return {"update_jaxpr": jaxpr, "update_consts": (), **shown}


primitive_params.SHOWN |= dict.fromkeys(primitive_params.SCATTERS, _shown_scatter)
