"""Programs as jaxprs: what `make_jaxpr` returns."""

from __future__ import annotations

from ferrax import _core
from ferrax._src import core


class Var:
    """A variable of a jaxpr."""

    __slots__ = ("aval", "count")

    def __init__(self, count, aval):
        self.count = count
        self.aval = aval

    def __repr__(self):
        return f"Var(id={self.count}):{self.aval.str_short(True)}"


class Literal:
    """A constant scalar operand."""

    __slots__ = ("val", "aval")

    def __init__(self, val, aval):
        self.val = val
        self.aval = aval

    def __repr__(self):
        return f"{self.val}:{self.aval.str_short(True)}"


_SEVERAL_RESULTS = {
    "cond", "custom_jvp_call", "custom_vjp_call", "jit", "remat2", "scan", "threefry2x32", "while"
}  # fmt: skip


def _view(value):
    """A parameter as users see it: programs as closed jaxprs."""
    if isinstance(value, _core.Program):
        return ClosedJaxpr(value, [])
    if isinstance(value, tuple):
        return tuple([_view(item) for item in value])
    return value


class Primitive:
    """The op of an equation. There is one object for each name."""

    _known: dict[str, Primitive] = {}
    multiple_results = False

    def __new__(cls, name):
        known = cls._known.get(name)
        if known is None:
            known = cls._known[name] = super().__new__(cls)
            known.name = name
            known.multiple_results = name in _SEVERAL_RESULTS
        return known

    def __repr__(self):
        return self.name


class JaxprEqn:
    """One equation of a jaxpr."""

    __slots__ = ("invars", "outvars", "primitive", "params", "source_info")

    def __init__(self, invars, outvars, primitive, params, source_info):
        self.invars = invars
        self.outvars = outvars
        self.primitive = primitive
        self.params = params
        self.source_info = source_info

    def __repr__(self):
        return f"{self.outvars} = {self.primitive}{self.params} {self.invars}"


class Jaxpr:
    """The equations of a program with its variables."""

    def __init__(self, program, constants):
        self._program = program
        inputs, outputs, types = program.interface()
        variables = [Var(i, core.ShapedArray(*ty)) for i, ty in enumerate(types)]

        def atom(item):
            if isinstance(item, int):
                return variables[item]
            value, dtype, weak = item
            return Literal(value, core.ShapedArray((), dtype, weak))

        count = len(inputs) - constants
        self.constvars = [variables[i] for i in inputs[count:]]
        self.invars = [variables[i] for i in inputs[:count]]
        self.outvars = [atom(item) for item in outputs]
        self.effects = frozenset()
        self.eqns = []
        for name, params, ins, outs, source in program.equations():
            params = {key: _view(value) for key, value in params.items()}
            if "program" in params:
                params = {"jaxpr": params.pop("program"), **params}
            self.eqns.append(
                JaxprEqn(
                    [atom(item) for item in ins],
                    [variables[i] for i in outs],
                    Primitive(name),
                    params,
                    source,
                )
            )

    def __str__(self):
        return self._program.text(len(self.constvars))

    __repr__ = __str__


class ClosedJaxpr:
    """A jaxpr with the arrays that it captured."""

    def __init__(self, program, consts):
        self._program = program
        self.consts = list(consts)
        self._jaxpr = None

    @property
    def jaxpr(self) -> Jaxpr:
        if self._jaxpr is None:
            self._jaxpr = Jaxpr(self._program, len(self.consts))
        return self._jaxpr

    @property
    def eqns(self):
        return self.jaxpr.eqns

    @property
    def effects(self):
        return self.jaxpr.effects

    @property
    def literals(self):
        return self.consts

    @property
    def in_avals(self):
        count = len(self._program.in_types) - len(self.consts)
        return [core.ShapedArray(*ty) for ty in self._program.in_types[:count]]

    @property
    def out_avals(self):
        return [core.ShapedArray(*ty) for ty in self._program.out_types]

    def __str__(self):
        return self._program.text(len(self.consts))

    __repr__ = __str__


def eval_jaxpr(jaxpr, consts, *args):
    """The outputs of a jaxpr for these arguments, as a list."""
    return _core.apply_program(jaxpr._program, [*args, *consts])


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr):
    """The function that a closed jaxpr is."""
    return lambda *args: eval_jaxpr(closed_jaxpr, closed_jaxpr.consts, *args)
