"""Ahead-of-time compilation: `jit(f).trace(...)`, `.lower(...)`, `.compile()`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import errors
from ferrax._src.core import primitives
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.jaxpr import ClosedJaxpr, jaxprs_in_params
from ferrax._src.core.layout import Format, Order, dense, ordered
from ferrax._src.core.mesh import Mesh, over_devices_of
from ferrax._src.core.permuted_array import (
    PermutedArray,
    data_of,
    laid_out_as,
    order_in_memory,
    permuted,
)
from ferrax._src.core.placement import device_put
from ferrax._src.core.placements import WHOLE, place, placed, placement
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.state import arguments as ref_args
from ferrax._src.tracing import abstract_values
from ferrax._src.transforms import disassembly, memory_plan, placed_programs, written_out
from ferrax._src.tree import tree_util


def giving_up(program: Any, numbers: list[int], name: str) -> tuple[Any, Any]:
    """The program as it is compiled, and a function of its inputs that runs it and takes the memory of these of them,
    as jitted functions do."""

    def run(*data):
        return primitives.apply_program(program, data)

    jitted = _core.PjitFunction(run, name, [], [], numbers, [], True, None, _core.JitCache())
    jitted._options = ((), ()), (tuple(numbers), ()), True, None
    types = [ShapeDtypeStruct(ty[0], ty[1], weak_type=ty[2]) for ty in program.in_types]
    return jitted._traced(*types)[0], jitted


def check_compiler_options(options) -> None:
    """Errors: JaxRuntimeError if there are any, for the compiler has none."""
    if not isinstance(options or {}, Mapping):
        raise TypeError(f"compiler_options must be a dict or None, got {options!r}")
    if options:
        raise errors.JaxRuntimeError(
            f"No such compiler options: {sorted(options)}. The compiler has none."
        )


class ArgInfo:
    """Shape, dtype and donation of one argument: its type `_aval`, and whether it is `donated`.

    >>> ferrax.jit(lambda x: x + 1).lower(1.0).args_info[0][0].donated
    False
    """

    __slots__ = ("_aval", "donated")

    def __init__(self, _aval: Any, donated: Any) -> None:
        self._aval = _aval
        self.donated = donated

    @property
    def shape(self) -> tuple[int, ...]:
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        return self._aval.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArgInfo) and (self._aval, self.donated) == (other._aval, other.donated)

    def __hash__(self) -> int:
        return hash((self._aval, self.donated))

    def __repr__(self) -> str:
        return f"ArgInfo(_aval={self._aval!r}, donated={self.donated})"


# What stages say of a result.
OutInfo = ShapeDtypeStruct


# `permuted_program(program, in_orders, out_orders)`. Set by what knows layouts.
permuted_program: Callable[..., Any] | None = None

# `exchanges(program, ins, outs)`: what devices exchange. Set by what knows meshes.
exchanges: Callable[[Any, list[Any], list[Any]], list[Any]] | None = None
# `over_processes(program, operands, said, captured)`: the results of a program over several processes or memories,
# where `said` says; None if neither an array nor what is said is over several. The last operands, so many, are
# captured. Set by what joins processes.
over_processes: Callable[[Any, list[Any], list[Any], int], list[Any] | None] | None = None


def over_several(places: Sequence[Any]) -> bool:
    """Whether one of these shardings, or None, has devices of other processes, or with memories of their own."""
    return any(where is not None and not where._shares_memory for where in places)


def divided(x: Any, where: Any, leaf: Any) -> Any:
    """The array `x` that an argument is, `leaf`, as a sharding over several processes or memories divides it: of one
    that nobody put over these all have the same.

    Errors: AssertionError if they do not.
    """
    if where is None or type(x) is GlobalArray or where._shares_memory or where.is_fully_replicated:
        return x
    known, committed = placement(x)
    # What is no array yet was put nowhere, also where a mesh is in use.
    if x is leaf and committed and not known.is_fully_addressable:
        return x
    return device_put(x if x is leaf else place(x, WHOLE, committed=False), where)


class _Stage:
    """What all stages know: the program, its captured arrays, its trees."""

    # `refs` is None, or what the function does to mutable arrays: their values are the program's
    # last inputs and outputs. `_shardings` is None, or those of arguments and of results.

    _shardings: tuple[list, list] | None = None
    # The orders of the axes of arguments and results in memory; None where all lie row by row.
    _orders: tuple[list[Order | None], list[Order | None]] | None = None
    # By JAX's name for it: whether calls with keywords are refused.
    _no_kwargs = False
    # Whether those of results were found, not said: compiled programs tell them.
    _found = False
    # Whether shardings are over a mesh without devices.
    _without_devices = False
    # Those that `out_shardings` says of results, None of others.
    _said: list[Any] | None = None
    # What gives the explicit types of the results.
    _explicit: Callable[[], list[Any]] | None = None

    def __init__(self, program, captured, in_tree, out_tree, donated, refs, name):
        self._program = program
        self._captured = captured
        self._refs = refs
        self.in_tree = in_tree
        self.out_tree = out_tree
        self._donated = donated
        self.fun_name = name

    def _args(self):
        trees = (self.in_tree, self.out_tree)
        return self._program, self._captured, *trees, self._donated, self._refs, self.fun_name

    def _with_shardings(self, later):
        """The later stage, with the shardings of this one."""
        later._shardings = self._shardings
        later._orders = self._orders
        later._without_devices = self._without_devices
        later._said, later._explicit = self._said, self._explicit
        later._found = self._found and not isinstance(later, Compiled)
        return later

    @property
    def _types(self):
        """The program whose types are those of arguments and results."""
        return self._program

    @property
    def args_info(self):
        """Shape, dtype and donation of each argument, in the arguments' tree."""
        count = self.in_tree.num_leaves
        donated = self._donated or [False] * count
        infos = [
            ArgInfo(core.ShapedArray(*ty), flag)
            for ty, flag in zip(self._types.in_types[:count], donated)
        ]
        return self.in_tree.unflatten(infos)

    @property
    def out_info(self):
        """A `ShapeDtypeStruct` for each output, in the outputs' tree. The sharding is what was said of the output,
        else its explicit type; after compilation, where the output is and how it lies in memory."""
        types = self._types.out_types[: self.out_tree.num_leaves]
        infos = [self._out_info(ty, where) for ty, where in zip(types, self._out_places())]
        return self.out_tree.unflatten(infos)

    def _out_info(self, ty, where):
        return ShapeDtypeStruct(ty[0], ty[1], sharding=where)

    def _out_places(self) -> list[Any]:
        count = self.out_tree.num_leaves
        types = [None] * count if self._explicit is None else self._explicit()[:count]
        return [where or self._on_devices(ty) for where, ty in zip(self._said or [None] * count, types)]

    def _on_devices(self, sharding):
        return sharding

    @property
    def in_avals(self):
        count = self.in_tree.num_leaves
        avals = [core.ShapedArray(*ty) for ty in self._types.in_types[:count]]
        if self._shardings and len(self._shardings[0]) == count:
            named = [where if isinstance(where, NamedSharding) else None for where in self._shardings[0]]
            avals = [x if where is None else x.update(sharding=where) for x, where in zip(avals, named)]
        return self.in_tree.unflatten(avals)

    @property
    def donate_argnums(self):
        return tuple(i for i, flag in enumerate(self._donated or ()) if flag)


class Traced(_Stage):
    """A function traced for given argument types.

    >>> traced = ferrax.jit(lambda x: x + 1).trace(1.0)
    >>> traced.jaxpr
    { lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }
    """

    @property
    def jaxpr(self) -> ClosedJaxpr:
        held = [] if self._refs is None else self._refs.read({}, self.fun_name)
        return ClosedJaxpr(self._program, self._captured + held)

    @property
    def out_avals(self) -> Any:
        """The types of the outputs, in their tree."""
        types = self._types.out_types[: self.out_tree.num_leaves]
        return self.out_tree.unflatten([core.ShapedArray(*ty) for ty in types])

    @property
    def lojax(self) -> Traced:
        """The same, with operations on values that are no arrays (`experimental.hijax`) written out, and functions with
        rules of their own as what they do."""
        if self._refs is not None:
            raise NotImplementedError(
                "lojax: a function that uses mutable arrays is not written out; look at its jaxpr"
            )
        program, captured = written_out.written_out(self.jaxpr)
        _, *rest = self._args()
        return self._with_shardings(Traced(program, captured, *rest[1:]))

    def _out_info(self, ty, where):
        return ShapeDtypeStruct(ty[0], ty[1], sharding=where, weak_type=ty[2])

    def lower(self, *, lowering_platforms: Any = None, _private_parameters: Any = None) -> Lowered:
        """The next stage.

        `lowering_platforms`: None, or the names of platforms. Programs are the same for all, so that they only say
        where the function may be compiled. Errors: TypeError for what is no sequence of names, ValueError for none.
        """
        if lowering_platforms is not None:
            if isinstance(lowering_platforms, str) or not all(isinstance(x, str) for x in lowering_platforms):
                raise TypeError(f"lowering_platforms must be a sequence of names, got {lowering_platforms!r}")
            if not lowering_platforms:
                raise ValueError("lowering_platforms must name a platform, got none")
        if _private_parameters is not None:
            raise ValueError("_private_parameters are of JAX's own; they must be None")
        lowered = self._with_shardings(Lowered(*self._args()))
        lowered._platforms = None if lowering_platforms is None else tuple(lowering_platforms)
        return lowered


def _places(program) -> str:
    """Where the operations of a program and of those in it were made."""
    lines = []

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            place = eqn.source_info
            scope = f", in {place.name_stack}" if str(place.name_stack) else ""
            lines.append(f"# {eqn.primitive.name}: {place.line or 'unknown'}{scope}")
            for inner in jaxprs_in_params(eqn.params):
                walk(inner)

    walk(ClosedJaxpr(program, []).open)
    return "\n".join(lines)


class Lowered(_Stage):
    """A traced function, ready to be compiled.

    Errors: TypeError if the function returned a type in place of an array.

    >>> lowered = ferrax.jit(lambda x: x + 1).lower(1.0)
    >>> lowered.out_info.dtype
    dtype('float32')
    """

    # Where it may be compiled, by name; None: anywhere.
    _platforms: tuple[str, ...] | None = None

    def __init__(self, program: Any, *args: Any) -> None:
        abstract_values.refuse(program)
        super().__init__(program, *args)

    def _on_devices(self, sharding):
        """The sharding, over the devices that are known."""
        places = [x for side in self._shardings or () for x in side]
        over = next((x.mesh for x in places if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh)), None)
        mesh = None if sharding is None or over is None else over_devices_of(over, sharding.mesh)
        return sharding if mesh is None else sharding.update(mesh=mesh)

    def compile(self, compiler_options: Any = None, *, device_assignment: Any = None) -> Compiled:
        """Compiles for the CPU. `compiler_options` must be empty: there are none.

        `device_assignment` are the devices of a function whose shardings are over a mesh without devices. Errors:
        RuntimeError where such a function is not given any; ValueError where it was lowered for other platforms.
        """
        check_compiler_options(compiler_options)
        if self._platforms is not None and "cpu" not in self._platforms:
            raise ValueError(
                f"{self.fun_name} was lowered for {self._platforms}, and this compiles for 'cpu': name that in "
                "lowering_platforms, too"
            )
        if self._without_devices and device_assignment is None:
            raise RuntimeError(
                f"{self.fun_name}: in_shardings or out_shardings are over a mesh without "
                f"devices: pass device_assignment, or "
                "set a mesh with ferrax.set_mesh"
            )
        program, shardings = placed_programs.staged(self._program, self._captured, self._shardings, self._found)
        typed = program
        if self._orders:
            assert permuted_program is not None
            program = permuted_program(program, *self._orders)
        compiled = self._with_shardings(Compiled(program, *self._args()[1:]))
        compiled._shardings = shardings
        compiled._typed = typed
        compiled._make()
        return compiled

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The program before it is optimised, as the native core has it: `text(0)` shows it.

        Args: dialect: None, the only form. Errors: ValueError for another.

        >>> ferrax.jit(lambda x: x + 1).lower(1.0).compiler_ir().text(0)
        '{ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }'
        """
        if dialect is not None:
            raise ValueError(f"compiler_ir: programs have one form, which dialect=None means; got {dialect!r}")
        return self._program

    def as_text(self, dialect: Any = None, *, debug_info: Any = False) -> str:
        """The optimised program as text, in its only `dialect`, which None means; with `debug_info`
        followed by a line for each operation, with its place in the user's code and the named scopes
        that it is in. Errors: ValueError for a dialect."""
        if dialect is not None:
            raise ValueError(
                f"as_text: programs have one form as text, which dialect=None means; got {dialect!r}"
            )
        program = self._program.optimise()
        text = program.text(0)
        return f"{text}\n{_places(program)}" if debug_info else text

    def cost_analysis(self) -> dict[str, float]:
        """Costs of a run, roughly and before operations are fused.

        `flops`: sums, products, comparisons and the like of elements, two for each product of a contraction;
        `transcendentals`: functions such as `exp`; `bytes accessed`: all operands and results. Steps of a
        `scan` count each, those of a `while_loop` once, of branches the dearest.

        >>> ferrax.jit(lambda x: jnp.exp(x) + 1).lower(jnp.zeros(8)).cost_analysis()
        {'flops': 8.0, 'transcendentals': 8.0, 'bytes accessed': 132.0}
        """
        return _costs(self._program.costs())


@dataclasses.dataclass(frozen=True)
class CompiledMemoryStats:
    """Bytes that a run of a compiled function takes.

    `temp_size_in_bytes` are those of values in between, `peak_memory_in_bytes` all at once, constants too;
    `alias_size_in_bytes` those of arguments that are given up and whose memory is a result's;
    `generated_code_size_in_bytes` is the machine code that a run calls, which other functions may share. Those whose
    names begin with `host_` are 0: they are for devices that also have memory of their host's.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    peak_memory_in_bytes: int
    alias_size_in_bytes: int = 0
    generated_code_size_in_bytes: int = 0
    host_argument_size_in_bytes: int = 0
    host_output_size_in_bytes: int = 0
    host_temp_size_in_bytes: int = 0
    host_alias_size_in_bytes: int = 0
    host_generated_code_size_in_bytes: int = 0


def _costs(costs):
    return dict(zip(("flops", "transcendentals", "bytes accessed"), map(float, costs)))


class _Executable(NamedTuple):
    """What a compiled function runs: the types of its arguments and results, in order."""

    in_avals: list[Any]
    out_avals: list[Any]
    call: Callable[..., Any]


class _CallParams(NamedTuple):
    """What `Compiled.call` needs to know. Arrays that a function closes over are the program's, no arguments."""

    executable: _Executable
    no_kwargs: bool
    in_tree: Any
    out_tree: Any
    const_args: tuple[Any, ...]


class Compiled(_Stage):
    """A compiled function for fixed argument types.

    Errors on call: TypeError for other types, trees or transformations.

    >>> compiled = ferrax.jit(lambda x: x + 1).lower(1.0).compile()
    >>> compiled(2.0)
    Array(3., dtype=float32, weak_type=True)
    """

    # The program for arrays that lie row by row, of which that which runs is made.
    _typed: Any
    # What runs the program and takes the memory of arguments that are given up; None where none are.
    _giving: Callable[..., Any] | None = None

    @property
    def _given(self) -> list[int]:
        return [number for number, flag in enumerate(self._donated or ()) if flag]

    def _make(self) -> None:
        """Makes the kernels, now."""
        with placed_programs.whole():
            if self._refs is None and self._given:
                self._program, self._giving = giving_up(self._program, self._given, self.fun_name)
            self._program.compile()

    @property
    def _types(self):
        return self._typed

    def as_text(self, form: str | None = None) -> str:
        """The optimised program as text, and its plan: kernels and calls in order, with their memory.

        With the form "asm" the instructions of the machine code that a run calls, function by function: what repeats
        over blocks of elements, and small loops. Where none is made, because it would not pay or the processor lacks
        AVX2, the text says so. The environment variable `FERRAX_PERF_MAP=1` names the
        functions to Linux' `perf`.

        Errors: ValueError for another form; ImportError for "asm" without `iced-x86` (`pip install ferrax[asm]`).

        >>> compiled = ferrax.jit(lambda x: x + 1).lower(jnp.zeros(4)).compile()
        >>> "kernel parallel 4" in compiled.as_text()
        True
        """
        if form == "asm":
            return disassembly.text(self._program.machine_code())
        if form is not None:
            raise ValueError(f"as_text: expected no form, which is the plan, or 'asm', got {form!r}")
        return f"{self._program.optimise().text(0)}\n\n{self._program.plan()[0]}"

    def cost_analysis(self) -> dict[str, float]:
        """As `Lowered.cost_analysis`, of the optimised program; `bytes accessed` are those that kernels and
        calls read and write.

        >>> compiled = ferrax.jit(lambda x: jnp.exp(x) + 1).lower(jnp.zeros(8)).compile()
        >>> compiled.cost_analysis()
        {'flops': 8.0, 'transcendentals': 8.0, 'bytes accessed': 64.0}
        """
        flops, transcendentals, _ = self._program.optimise().costs()
        return _costs((flops, transcendentals, self._program.plan()[1]))

    def communication(self) -> list[Any]:
        """What the devices of a mesh have to say to each other, if each is of a process of its own: in the order of
        the program for each collective its name, axes, bytes, the user's line, and the operation that needs its
        operand otherwise than it is divided. Those that name one were asked for by nobody. One process computes with
        whole arrays and exchanges nothing.

        Returns: objects with `collective`, `axes`, `bytes`, `line`, `needed_by`; none without a mesh.
        Errors: NotImplementedError for functions over some axes of a mesh, and for arrays that can be written to.

        >>> mesh = ferrax.make_mesh((1,), ("x",), axis_types=(ferrax.sharding.AxisType.Auto,))
        >>> rows = ferrax.NamedSharding(mesh, ferrax.P("x"))
        >>> total = ferrax.jit(lambda x: x.sum(0), in_shardings=rows).lower(jnp.ones((4, 2))).compile()
        >>> [(e.collective, e.axes, e.bytes) for e in total.communication()]
        [('psum', ('x',), 8)]
        """
        assert exchanges is not None
        ins, outs = self._shardings or ([], [])
        return exchanges(self._typed, ins, outs)

    def _check_shardings(self, leaves):
        """Errors: ValueError for arrays that were divided by request otherwise than those compiled for."""
        for number, (x, wanted) in enumerate(zip(leaves, self._shardings[0] if self._shardings else ())):
            if not isinstance(x, core.Array):
                # Nobody put it anywhere, whichever mesh is in use.
                continue
            known, committed = placement(x)
            several = wanted is not None and wanted.num_devices > 1
            if several and committed and known.num_devices > 1 and not known.is_equivalent_to(wanted, x.ndim):
                raise ValueError(
                    f"{self.fun_name} was compiled for argument {number} divided as {wanted}, and got an array that is "
                    f"divided as {known}: use ferrax.device_put, or call the jitted function"
                )

    def _out_places(self) -> list[Any]:
        return self._formats(1, self._types.out_types[: self.out_tree.num_leaves])

    def _places(self, side, count):
        known = self._shardings[side] if self._shardings else []
        return [WHOLE if where is None else where for where in known or [None] * count]

    @property
    def input_shardings(self) -> Any:
        """The shardings of the arguments, in their tree."""
        return self.in_tree.unflatten(self._places(0, self.in_tree.num_leaves))

    @property
    def output_shardings(self) -> Any:
        """The shardings of the outputs, in their tree."""
        return self.out_tree.unflatten(self._places(1, self.out_tree.num_leaves))

    def _formats(self, side, types) -> list[Format]:
        places = self._places(side, len(types))
        orders = self._orders[side] if self._orders else [None] * len(types)
        return [
            Format(dense(len(shape)) if order is None else ordered(order), where)
            for (shape, *_), order, where in zip(types, orders, places)
        ]

    @property
    def input_formats(self) -> Any:
        """The formats of the arguments, in their tree."""
        return self.in_tree.unflatten(self._formats(0, self._types.in_types[: self.in_tree.num_leaves]))

    @property
    def output_formats(self) -> Any:
        """The formats of the outputs, in their tree."""
        return self.out_tree.unflatten(self._formats(1, self._types.out_types[: self.out_tree.num_leaves]))

    def memory_analysis(self) -> CompiledMemoryStats:
        """The bytes that a run takes, but for what loops and library calls take while they run.

        >>> compiled = ferrax.jit(lambda x: jnp.exp(x).sum()).lower(jnp.zeros(8)).compile()
        >>> compiled.memory_analysis().argument_size_in_bytes
        32
        """
        arguments, _, results, between, peak = self._program.plan()[2]
        code = sum(len(code) for _, _, code in self._program.machine_code())
        given = 0
        if self._giving is not None:
            of = [buffer for buffer in self.memory_plan().buffers if buffer.place == "argument"]
            given = sum(b.bytes for b in of if b.donation is not None and b.at in self._given)
        return CompiledMemoryStats(arguments, results, between, peak - given, given, code)

    def memory_plan(self) -> memory_plan.MemoryPlan:
        """Where each value is, from which step to which, and what is copied, updated in place and reused: as fields,
        as text, and as a picture (`to_html`).

        >>> compiled = ferrax.jit(lambda x: jnp.sort(jnp.sort(x) + 1)).lower(jnp.zeros(256)).compile()
        >>> compiled.memory_plan()
        <MemoryPlan of <lambda>: 3 steps, 3 buffers, arena 1 KiB, peak 1 KiB>
        """
        return memory_plan.made_of(self._program.memory_plan())

    def runtime_executable(self) -> Any:
        """The program, as the native core has it."""
        return self._program

    @functools.cached_property
    def _is_over_several(self) -> bool:
        return self._shardings is not None and over_several([*self._shardings[0], *self._shardings[1]])

    def _over_processes(self, arrays, leaves) -> list[Any]:
        """The results over several processes for arguments, which are these arrays, where they were said to be."""
        if self._refs is not None:
            raise NotImplementedError(
                f"{self.fun_name} writes to arrays, which is not supported over several processes: return new values"
            )
        assert over_processes is not None
        ins, outs = self._shardings or ([], [])
        # Nothing is said of arguments, or something of each.
        arrays = list(map(divided, arrays, ins, leaves)) if ins else arrays
        results = over_processes(self._program, [*arrays, *self._captured], outs, len(self._captured))
        assert results is not None
        return results

    @property
    def _executable(self) -> _Executable:
        types = self._types
        count = self.in_tree.num_leaves
        ins, outs = types.in_types[:count], types.out_types[: self.out_tree.num_leaves]
        return _Executable([core.ShapedArray(*ty) for ty in ins], [core.ShapedArray(*ty) for ty in outs], self)

    @property
    def _params(self) -> _CallParams:
        return _CallParams(self._executable, self._no_kwargs, self.in_tree, self.out_tree, ())

    @staticmethod
    def call(params: Any, *args: Any, **kwargs: Any) -> Any:
        """The results for arguments, which `params` was compiled for: the call of a compiled function, as a function.

        Args: params: the `_params` of a compiled function; args, kwargs: what that is called with.

        >>> compiled = ferrax.jit(lambda x: x + 1).lower(1.0).compile()
        >>> compiled.call(compiled._params, 2.0)
        Array(3., dtype=float32, weak_type=True)
        """
        return params.executable.call(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_util.tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise TypeError(
                f"{self.fun_name} was compiled for arguments of the pytree structure {self.in_tree}, "
                f"got {tree}; lower and compile it for these, or call the jitted function."
            )
        refs = ref_args.of_leaves(leaves)
        if self._refs is not None and (missing := self._refs.arguments.keys() - refs.keys()):
            raise TypeError(
                f"{self.fun_name} was compiled for a mutable array as argument {min(missing)}, got an array; lower and "
                "compile it for that, or call the jitted function."
            )
        leaves = ref_args.values(leaves, refs)
        arrays = []
        for index, (leaf, expected) in enumerate(zip(leaves, self._types.in_types)):
            if isinstance(leaf, core.Tracer):
                raise TypeError(
                    f"{self.fun_name} is compiled and runs on concrete arrays; got a tracer of type "
                    f"{leaf._type_text()} for argument {index}. Transform or call the function that "
                    "it was lowered from."
                )
            array: Any = (
                leaf if type(leaf) in (GlobalArray, PermutedArray) else core.as_array(leaf, self.fun_name)
            )
            shape, dtype, weak = expected
            # A number of Python's has the width that was compiled for, in any mode.
            scalar = type(leaf) in (bool, int, float, complex) and array.dtype.kind == dtype.kind
            if scalar and shape == () and array.dtype != dtype:
                array = _core.array_from_numpy(np.asarray(leaf, dtype), True)
            if array.shape != shape or array.dtype != dtype:
                raise TypeError(
                    f"{self.fun_name} was compiled for argument {index} of type "
                    f"{core.ShapedArray(shape, dtype).str_short(True)}, got {core.typeof(array).str_short(True)}; "
                    "lower and compile it for that, or call the jitted function."
                )
            arrays.append(array)
        self._check_shardings(leaves)
        if self._is_over_several or any(type(x) is GlobalArray for x in arrays):
            results = self._over_processes(arrays, leaves)
            for number in self._given:
                if isinstance(leaves[number], (core.Array, GlobalArray)):
                    leaves[number].delete()
            return self.out_tree.unflatten(results)
        if self._orders or PermutedArray in map(type, arrays):
            orders = self._orders[0] if self._orders else [None] * len(arrays)
            given = [x is leaf for x, leaf in zip(arrays, leaves)]
            arrays = list(map(self._data, range(len(arrays)), arrays, orders, given))
        held = [] if self._refs is None else self._refs.read(refs, self.fun_name)
        if self._giving is None:
            results = self._program.run(arrays + self._captured + held)
        else:
            results = self._giving(*arrays, *self._captured)
            # What was copied into the order in memory that the program takes.
            for number in self._given:
                if leaves[number] is not arrays[number] and isinstance(leaves[number], core.Array):
                    leaves[number].delete()
        if self._refs is not None:
            count = self.out_tree.num_leaves
            self._refs.write(results[count:], refs)
            results = results[:count]
        if self._shardings or self._orders:
            places = self._shardings[1] if self._shardings else [None] * len(results)
            orders = self._orders[1] if self._orders else [None] * len(results)
            results = [
                laid_out_as(x if where is None else placed(x, _permuted(where, order)), order, where)
                for x, order, where in zip(results, orders, places)
            ]
        return self.out_tree.unflatten(results)

    def _data(self, number: int, x: Any, order: Order | None, given: bool) -> Any:
        """The data of an argument in this order, of which it is a copy if nobody put the argument where it is.

        Errors: ValueError for an array that lies otherwise by request.
        """
        own = order_in_memory(x)
        if own != order and given and placement(x).committed:
            lies, wanted = (dense(x.ndim) if some is None else ordered(some) for some in (own, order))
            raise ValueError(
                f"{self.fun_name} was compiled for argument {number} lying in memory as {wanted}, and got an array "
                f"that lies as {lies}: use ferrax.device_put with its input_formats, or call the jitted function"
            )
        return data_of(x, order, self.fun_name)


def _permuted(sharding: Any, order: Order | None) -> Any:
    return sharding if order is None else permuted(sharding, order)
