"""`ferrax.export`: jitted functions as values that can be called, saved and loaded.

An `Exported` is a program whose captured arrays are constants, with the pytrees of its arguments
and results. Its bytes are a saved program, which Rust loads too; what only Python needs (trees,
platforms) is JSON text in it, see `_metadata`. Because programs can be differentiated after
loading, no derivative is ever stored, and `has_vjp` always holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.core import api_util, float0
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.dims.expressions import is_symbolic_dim
from ferrax._src.dims.scope import SymbolicScope
from ferrax._src.transforms.autodiff import vjp
from ferrax._src.transforms.jit import jit
from ferrax._src.transforms.placed_jit import PlacedFunction
from ferrax._src.transforms.symbolic_calls import SizesOfCalls, aval_of, check_one_scope, scope_of
from ferrax._src.tree import tree_util
from ferrax._src.tree.tree_paths import equality_errors_pytreedef

# Versions of JAX that exported functions are marked with; their programs are the same.
minimum_supported_calling_convention_version = 9
maximum_supported_calling_convention_version = 10
# The meaning of the JSON text, not of the file around it.
_FORMAT = 1
# Where JAX's functions can give arguments up.
_DONATING = frozenset(("cpu", "cuda", "gpu", "neuron", "rocm", "tpu"))


class DisabledSafetyCheck:
    """A check that an export leaves out: `platform()` or `custom_call(target)`.

    Example:
        >>> check = ferrax.export.DisabledSafetyCheck.platform()
        >>> exported = ferrax.export.export(ferrax.jit(jnp.sin), disabled_checks=[check])(1.0)
        >>> exported.disabled_safety_checks
        (DisabledSafetyCheck('platform'),)
    """

    __slots__ = ("_impl",)

    def __init__(self, _impl: str) -> None:
        self._impl = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Lets a function be called on platforms that it was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Accepted for compatibility: programs hold no custom calls."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The target's name, if this is about a custom call."""
        kind, _, target = self._impl.partition(":")
        return target if kind == "custom_call" else None

    def __str__(self) -> str:
        return self._impl

    def __repr__(self) -> str:
        return f"DisabledSafetyCheck({self._impl!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)


class Exported:
    """A function exported for given argument types.

    Attributes:
        fun_name: the function's name.
        in_tree, out_tree: pytrees of `(args, kwargs)` and of the result.
        in_avals, out_avals: the leaves' types, in order. Those of dtype float0 are shapes in the trees, of which the
            program knows nothing.
        platforms: what it was exported for.
        disabled_safety_checks: checks left out.
        nr_devices: 1.
        calling_convention_version: the flag `jax_export_calling_convention_version` where it was exported.

    `call(*args, **kwargs)` calls it; it can be transformed and used in other functions.

    >>> exported = ferrax.export.export(ferrax.jit(jnp.sin))(jnp.zeros(2))
    >>> exported.fun_name, exported.in_avals
    ('sin', (ShapedArray(float32[2]),))
    """

    nr_devices = 1
    ordered_effects = ()
    unordered_effects = ()

    def __init__(
        self, program: Any, fun_name: str, in_tree: Any, out_tree: Any, platforms: Any,
        disabled_safety_checks: Any, names: Any, scope: SymbolicScope | None = None,
        calling_convention_version: int = maximum_supported_calling_convention_version,
    ) -> None:
        self._program = program
        self._names = names
        self.fun_name = fun_name
        self.in_tree = in_tree
        self.out_tree = out_tree
        in_types, out_types = program.in_types, program.out_types
        if program.is_symbolic and scope is None:
            scope = scope_of(in_types + out_types)
        self._scope = scope
        self._types = tuple(aval_of(ty, scope) for ty in in_types)
        self.in_avals = _with_float0(in_tree, self._types)
        self.out_avals = _with_float0(out_tree, [aval_of(ty, scope) for ty in out_types])
        self._sizes = None if scope is None else SizesOfCalls(program, self._places())
        self.platforms = tuple(platforms)
        self.disabled_safety_checks = tuple(disabled_safety_checks)
        self.calling_convention_version = calling_convention_version

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    @property
    def uses_global_constants(self) -> bool:
        """Whether dimensions are symbolic, so that a call is of a program for its sizes."""
        return self._sizes is not None

    @property
    def in_shardings_hlo(self) -> tuple[None, ...]:
        return (None,) * len(self.in_avals)

    @property
    def out_shardings_hlo(self) -> tuple[None, ...]:
        return (None,) * len(self.out_avals)

    def in_shardings_jax(self, mesh: Any) -> tuple[None, ...]:
        """The shardings of the arguments over a `mesh`: None for each, for files say nothing of where arrays are."""
        return self.in_shardings_hlo

    def out_shardings_jax(self, mesh: Any) -> tuple[None, ...]:
        """As `in_shardings_jax`, of the results."""
        return self.out_shardings_hlo

    @property
    def module_kept_var_idx(self) -> tuple[int, ...]:
        """All arguments: unused ones are kept."""
        return tuple(range(len(self.in_avals)))

    def as_text(self) -> str:
        """The program as text."""
        return self._program.text(0)

    def mlir_module(self) -> str:
        """Not supported: raises NotImplementedError; see `as_text`."""
        raise NotImplementedError("exported programs are not MLIR; as_text() shows the program")

    @property
    def mlir_module_serialized(self) -> bytes:
        raise NotImplementedError(
            "exported programs are not MLIR; serialize() gives the bytes of a file"
        )

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results. Arguments have the tree, shapes and dtypes of the export.

        Errors: ValueError for other arguments, or if it was exported for other platforms.
        """
        plain, given = len(self.in_avals) == len(self._types), (args, kwargs)
        leaves, tree = tree_util.tree_flatten(given) if plain else float0.flatten(given)
        if tree != self.in_tree:
            raise ValueError(self._tree_message(tree))
        got = [core.typeof(leaf) for leaf in leaves]
        for index, (aval, expected) in enumerate(zip(got, self._types)):
            self._check_leaf(index, aval, expected)
        program = self._program if self._sizes is None else self._sizes.program([aval.shape for aval in got])
        platform = default_export_platform()
        if (
            platform not in self.platforms
            and DisabledSafetyCheck.platform() not in self.disabled_safety_checks
        ):
            raise ValueError(
                f"Function '{self.fun_name}' was exported for platforms '{self.platforms}' but it "
                f"is used on '({platform!r},)'."
            )
        return self.out_tree.unflatten(_core.call_program(program, leaves))

    def _tree_message(self, tree):
        differences = equality_errors_pytreedef(tree, self.in_tree)
        # Paths begin in the pair of args and kwargs.
        lines = [
            f"   - {('args', 'kwargs')[path[0].idx] if path else 'the call'}"
            f"{tree_util.keystr(path[1:])} is a {got} in the invocation and a {want} when exported, "
            f"so {why}."
            for path, got, want, why in differences
        ]
        return (
            f"'{self.fun_name}' was exported for arguments of another pytree structure than those "
            "of this call:\n"
            + "\n".join(lines)
        )

    def _places(self):
        """What messages call each argument, and its shape."""
        names = [("args", "kwargs")[path[0].idx] + tree_util.keystr(path[1:]) for path in _paths(self.in_tree)]
        return [(name, aval.shape) for name, aval in zip(names, self._types)]

    def _check_leaf(self, index, got, expected):
        if got.shape == expected.shape and got.dtype == expected.dtype:
            return
        where, _ = self._places()[index]
        if len(got.shape) != len(expected.shape):
            raise ValueError(
                f"Rank mismatch for {where}: exported for shape {expected.shape}, called with "
                f"{got.shape}"
            )
        if got.dtype != expected.dtype:
            raise ValueError(
                f"Dtype mismatch for {where}: exported for {expected.dtype}, called with "
                f"{got.dtype}"
            )
        sizes = enumerate(zip(got.shape, expected.shape))
        axis = next((i for i, (a, b) in sizes if a != b and not is_symbolic_dim(b)), None)
        if axis is None:
            return
        raise ValueError(
            f"Shape mismatch for {where}.shape[{axis}] (expected same constant): expected "
            f"{expected.shape} and called with {got.shape}"
        )

    def has_vjp(self) -> bool:
        """True: the program is differentiated when that is asked for."""
        return True

    def vjp(self) -> Exported:
        """The reverse-mode derivative: from the flat arguments and the flat cotangents of the
        results to the flat cotangents of the arguments. Those of integers are of dtype float0.

        Errors: NotImplementedError for arguments or results of integers whose sizes are symbolic.

        >>> exported = ferrax.export.export(ferrax.jit(lambda n, x: n * x))(jnp.int32(3), jnp.float32(2))
        >>> exported.vjp().call(jnp.int32(3), jnp.float32(2), jnp.float32(1))[1]
        Array(3., dtype=float32)
        """
        count = len(self.in_avals)
        cotangents = [
            a if dtypes.has_tangent(a.dtype) else core.ShapedArray(a.shape, dtypes.float0) for a in self.out_avals
        ]
        avals = [*self.in_avals, *cotangents]
        if self._sizes is not None and not all(dtypes.has_tangent(aval.dtype) for aval in avals):
            raise NotImplementedError(
                f"vjp of the exported {self.fun_name}: arguments and results of symbolic sizes must be floats, for "
                f"there are no arrays of float0 of such sizes; apply ferrax.vjp to `call` instead"
            )

        def fun_vjp(*args):
            def flat(*leaves):
                results = _core.call_program(self._program, [x for x in leaves if not float0.is_float0(x)])
                return tuple(tree_util.tree_leaves(self.out_tree.unflatten(results)))

            _, pullback = vjp(flat, *args[:count])
            return pullback(args[count:])

        specs = [
            np.zeros(a.shape, a.dtype)
            if a.dtype == dtypes.float0
            else ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
            for a in avals
        ]
        fun_vjp.__name__ = fun_vjp.__qualname__ = f"{self.fun_name}_vjp"
        make = export(
            jit(fun_vjp), platforms=self.platforms, disabled_checks=self.disabled_safety_checks
        )
        return make(*specs)

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """The bytes of a file.

        Args:
            vjp_order: derivatives need not be stored, and those of every order can be taken of what
                is loaded. Rules that the user gave (`custom_jvp`, `custom_vjp`, the transpose of
                `linear_call`) are traced for derivatives up to this order, and up to the second in
                any case; beyond that, where a rule uses a function with rules again, a derivative
                is an error. The rule of `custom_vmap` is not stored: `vmap` of what is loaded is an
                error there. That of `sequential_vmap` is.

        Errors: TypeError for dicts with other keys than strings, ValueError for containers that
        are not registered for serialization, and for a negative order.
        """
        if vjp_order < 0:
            raise ValueError(f"vjp_order must not be negative, got {vjp_order}")
        input_names, output_names = self._names
        return bytearray(
            _core.program_to_bytes(
                self._program, _metadata(self), input_names, output_names, vjp_order
            )
        )


def default_export_platform() -> str:
    """The platform that functions are exported for if nothing else is asked: 'cpu'.

    >>> ferrax.export.default_export_platform()
    'cpu'
    """
    return "cpu"


def export(
    fun_jit: Any, *, platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (), _override_lowering_rules: Any = None,
) -> Callable[..., Exported]:
    """A function that exports `fun_jit` for the arguments it gets.

    Args:
        fun_jit: the result of `jit`, or a function of ferrax's own. Its static arguments become
            part of what is exported.
        platforms: where the result may be called; by default on this machine's. Programs are the
            same for all platforms. Calls of the result give no arguments up.
        disabled_checks: see `DisabledSafetyCheck`.

    The arguments are arrays or anything with shape and dtype. Errors: ValueError if `fun_jit` is
    not jitted, or closes over values that are being traced; NotImplementedError if it gives arguments
    up, which some of the platforms do not know.

    Example:
        >>> argument = ferrax.ShapeDtypeStruct((3,), jnp.float32)
        >>> exported = ferrax.export.export(ferrax.jit(jnp.sin))(argument)
        >>> exported.call(jnp.zeros(3))
        Array([0., 0., 0.], dtype=float32)
    """
    if isinstance(fun_jit, PlacedFunction):
        # Files are for one device: they say nothing of shardings.
        fun_jit = fun_jit._jit
    if not isinstance(fun_jit, _core.PjitFunction):
        if not str(getattr(fun_jit, "__module__", "")).startswith("ferrax."):
            raise ValueError(
                f"export: expected a function that jit returned, got {fun_jit}; pass jit(f)"
            )
        fun_jit = jit(fun_jit)
    if _override_lowering_rules is not None:
        raise NotImplementedError("export: there are no lowering rules to override")
    wrong = [check for check in disabled_checks if not isinstance(check, DisabledSafetyCheck)]
    if wrong:
        raise TypeError(f"disabled_checks must be DisabledSafetyChecks, got {wrong[0]!r}")

    def do_export(*args, **kwargs) -> Exported:
        version = _calling_convention(config.export_calling_convention_version.value)
        check_one_scope(fun_jit, args, kwargs)
        program, captured, in_tree, out_tree, donated, refs = fun_jit._traced(*args, **kwargs)
        if any(donated or ()):
            _check_donation(fun_jit._function_name, platforms or ())
        if refs is not None:
            raise ValueError(
                f"export: {api_util.fun_place(fun_jit)} uses mutable arrays, which a file cannot "
                "hold. Make them inside of the function, or pass and return their values."
            )
        if any(isinstance(array, core.Tracer) for array in captured):
            raise ValueError(
                f"the function {fun_jit._function_name} closes over values that are being traced; "
                f"export it outside of that trace, or pass them as arguments"
            )
        scope = None
        if program.is_symbolic:
            scope = scope_of(program.in_types)
            program = program.with_saved_rules()
        return Exported(
            program.bind_constants(captured),
            fun_jit._function_name,
            in_tree,
            out_tree,
            platforms or (default_export_platform(),),
            disabled_checks,
            (_input_names(fun_jit, args, kwargs, in_tree), _names("result", out_tree)),
            scope,
            version,
        )

    return do_export


def _calling_convention(version):
    least, most = minimum_supported_calling_convention_version, maximum_supported_calling_convention_version
    if not least <= version <= most:
        raise ValueError(
            f"The requested export calling convention version {version} is outside the range of supported versions "
            f"[{least}..{most}]: set jax_export_calling_convention_version to one of them"
        )
    return version


def _check_donation(name: str, platforms: Sequence[str]) -> None:
    """Errors: NotImplementedError where arguments could be given up on some of the platforms only."""
    unknown = [platform for platform in platforms if platform not in _DONATING]
    if unknown and len(unknown) < len(platforms):
        raise NotImplementedError(
            f"export: {name} gives up arguments, which the platforms {unknown} do not know and others do: export it "
            "for those apart, or without donate_argnums"
        )


def _with_float0(tree, avals) -> tuple[Any, ...]:
    """The types of all leaves, where programs know of those that are not of dtype float0."""
    known = iter(avals)
    leaves = tree_util.tree_leaves(tree_util.with_placeholders(tree))
    return tuple([
        core.ShapedArray(x.shape, dtypes.float0) if float0.is_float0(x) else next(known) for x in leaves
    ])  # fmt: skip


def _paths(tree):
    """Where the leaves are that programs know of."""
    leaves = tree_util.tree_leaves_with_path(tree_util.with_placeholders(tree))
    return [path for path, x in leaves if not float0.is_float0(x)]


def _names(top, tree):
    return [top + tree_util.keystr(path) for path in _paths(tree)]


def _input_names(fun_jit, args, kwargs, in_tree):
    """The arguments' names where those are known, else their places."""
    named = api_util.argument_names(fun_jit._function, args, kwargs)
    if len(named) == in_tree.num_leaves:
        return named
    positional, keywords = in_tree.children()
    return _names("args", positional) + _names("kwargs", keywords)


def save(path: Any, exported: Exported, vjp_order: int = 0) -> None:
    """Writes `exported` to a file, which `load` reads, and `ferrax::load` in Rust.

    Args: exported: an `Exported`; path: the file. `vjp_order` is that of `Exported.serialize`.
    Errors: those of `Exported.serialize`, and of writing.

    Example:
        >>> import os, tempfile
        >>> exported = ferrax.export.export(ferrax.jit(jnp.sin))(1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ferrax.export.save(f"{folder}/sin.ferrax", exported)
        ...     print(os.listdir(folder))
        ['sin.ferrax']
    """
    if not isinstance(exported, Exported):
        raise TypeError(f"expected an Exported, got {type(exported).__name__}")
    data = exported.serialize(vjp_order)
    with open(os.fspath(path), "wb") as file:
        file.write(data)


def load(path: Any) -> Exported:
    """The function in a file. Errors: ValueError if it holds no valid program.

    Args: path: the file.

    Example:
        >>> import tempfile
        >>> exported = ferrax.export.export(ferrax.jit(jnp.sin))(1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ferrax.export.save(f"{folder}/sin.ferrax", exported)
        ...     print(ferrax.export.load(f"{folder}/sin.ferrax").call(0.0))
        0.0
    """
    with open(os.fspath(path), "rb") as file:
        return deserialize(file.read())


def deserialize(blob: bytes | bytearray) -> Exported:
    """The function that `Exported.serialize` made these bytes of.

    Programs that Rust saved have no trees: they take positional arrays and return a list. Errors:
    ValueError for bytes that are no valid program, or containers that are not registered here.

    Args: blob: the bytes.

    >>> exported = ferrax.export.export(ferrax.jit(jnp.sin))(jnp.float32(0.0))
    >>> ferrax.export.deserialize(exported.serialize()).call(jnp.float32(0.0))
    Array(0., dtype=float32)
    """
    program, text = _core.program_from_bytes(bytes(blob))
    count, results = len(program.in_types), len(program.out_types)
    fun_name, platforms, checks, scope = program.name, (default_export_platform(),), (), None
    convention = maximum_supported_calling_convention_version
    in_tree = tree_util.tree_structure(((0,) * count, {}))
    out_tree = tree_util.tree_structure([0] * results)
    if text:
        try:
            fun_name, in_tree, out_tree, platforms, checks, scope, convention = _read_metadata(text)
        except (KeyError, TypeError, RecursionError, AttributeError) as error:
            raise ValueError(
                f"the description in this saved program is damaged: {error!r}"
            ) from None
    if in_tree.num_leaves != count or out_tree.num_leaves != results:
        raise ValueError("the description in this saved program does not fit the program")
    names = (
        _names("args", in_tree.children()[0]) + _names("kwargs", in_tree.children()[1]),
        _names("result", out_tree),
    )
    return Exported(
        program, fun_name, in_tree, out_tree, platforms, checks, names, scope if program.is_symbolic else None,
        convention,
    )


# What only Python needs to know, as JSON.


def _metadata(exported):
    import json  # not loaded with the package: only files need it

    return json.dumps(
        {
            "calling_convention": _FORMAT,
            "calling_convention_version": exported.calling_convention_version,
            "fun_name": exported.fun_name,
            "in_tree": _write_tree(exported.in_tree),
            "out_tree": _write_tree(exported.out_tree),
            "platforms": exported.platforms,
            "disabled_checks": [str(check) for check in exported.disabled_safety_checks],
            "constraints": [] if exported._scope is None else exported._scope.constraints_text,
        }
    )


def _read_metadata(text):
    import json  # as in `_metadata`

    data = json.loads(text)
    version = data["calling_convention"]
    if version != _FORMAT:
        raise ValueError(
            f"this saved program has calling convention {version}, but this library knows {_FORMAT}; update ferrax"
        )
    convention = _calling_convention(
        data.get("calling_convention_version", maximum_supported_calling_convention_version)
    )
    in_tree = _read_tree(data["in_tree"])
    if in_tree.node_data() is None or len(in_tree.children()) != 2:
        raise ValueError("the arguments of this saved program are no pair of args and kwargs")
    checks = [DisabledSafetyCheck(str(check)) for check in data["disabled_checks"]]
    platforms = [str(platform) for platform in data["platforms"]]
    # Those of programs that were saved before there were symbolic dimensions say nothing of them.
    scope = SymbolicScope([str(text) for text in data.get("constraints", ())])
    return str(data["fun_name"]), in_tree, _read_tree(data["out_tree"]), platforms, checks, scope, convention


def _write_tree(tree):
    """A leaf is "*", None is null; other nodes are `{kind: children}`."""
    data = tree.node_data()
    if data is None:
        return "*"
    kind, auxiliary = data
    children = [_write_tree(child) for child in tree.children()]
    if kind is type(None):
        return None
    if kind is tuple:
        return {"tuple": children}
    if kind is list:
        return {"list": children}
    if kind is dict:
        for key in auxiliary:
            if not isinstance(key, str):
                raise TypeError(
                    "export: keys of dictionaries are written as strings; got the key "
                    f"{key!r} of type {type(key).__name__}. Rename it, or pass a list."
                )
        return {"dict": dict(zip(auxiliary, children))}
    if kind is float0.Hidden:
        return {"float0": list(auxiliary)}
    if kind not in _written_types:
        raise ValueError(
            f"serialize: the type {kind} has no serialized form. Use "
            f"`export.register_pytree_node_serialization` or "
            f"`export.register_namedtuple_serialization`."
        )
    name, serialize_auxdata = _written_types[kind]
    described = serialize_auxdata(auxiliary)
    if not isinstance(described, (bytes, bytearray)):
        raise ValueError(
            f"export: expected bytes of the function serialize_auxdata that is registered for {kind}, "
            f"got {described!r} of type {type(described).__name__}."
        )
    return {"custom": [name, bytes(described).hex(), children]}


def _read_tree(data):
    if data == "*":
        return tree_util.tree_structure(0)
    if data is None:
        return tree_util.tree_structure(None)
    ((kind, content),) = data.items()
    if kind == "tuple":
        return _node(tuple, None, content)
    if kind == "list":
        return _node(list, None, content)
    if kind == "dict":
        keys = sorted(content)
        return _node(dict, keys, [content[key] for key in keys])
    if kind == "float0":
        if not all(isinstance(size, int) and size >= 0 for size in content):
            raise ValueError(f"this saved program has an array of dtype float0 and the shape {content!r}")
        return _node(float0.Hidden, tuple(content), [])
    if kind != "custom":
        raise ValueError(f"this saved program has a container of the unknown kind {kind!r}")
    name, described, children = content
    if name not in _read_types:
        raise ValueError(
            f"this saved program has a container that is not registered here: {name!r}. Use "
            f"`export.register_pytree_node_serialization` or "
            f"`export.register_namedtuple_serialization`."
        )
    node_type, deserialize_auxdata = _read_types[name]
    return _node(node_type, deserialize_auxdata(bytes.fromhex(described)), children)


def _node(node_type, auxiliary, children):
    return tree_util.PyTreeDef.from_node_data_and_children(
        tree_util.default_registry,
        (node_type, auxiliary),
        [_read_tree(child) for child in children],
    )


# By type: the name in files and what writes the node's auxiliary data. By name: the reverse.
_written_types: dict[type, tuple] = {}
_read_types: dict[str, tuple] = {}


def register_pytree_node_serialization(
    nodetype: type, *, serialized_name: str, serialize_auxdata: Callable[..., Any],
    deserialize_auxdata: Callable[..., Any], from_children: Callable[..., Any] | None = None,
) -> type:
    """Lets functions with containers of a registered type be serialized.

    Args:
        nodetype: a type that `register_pytree_node` or its like knows.
        serialized_name: stands for the type in files.
        serialize_auxdata, deserialize_auxdata: from the node's auxiliary data to bytes and back.
        from_children: must be None: nodes are made as the type's registration says.

    Returns: `nodetype`. Errors: ValueError for types and names that are taken or not registered.

    >>> @ferrax.tree_util.register_pytree_node_class
    ... class Holder(list):
    ...     def tree_flatten(self):
    ...         return tuple(self), ()
    ...     @classmethod
    ...     def tree_unflatten(cls, nothing, elements):
    ...         return cls(elements)
    >>> _ = ferrax.export.register_pytree_node_serialization(
    ...     Holder, serialized_name="example.Holder", serialize_auxdata=lambda aux: b"",
    ...     deserialize_auxdata=lambda text: ())
    >>> exported = ferrax.export.export(ferrax.jit(lambda h: h[0] + h[1]))(Holder([1.0, 2.0]))
    >>> ferrax.export.deserialize(exported.serialize()).call(Holder([1.0, 2.0]))
    Array(3., dtype=float32, weak_type=True)
    """
    if from_children is not None:
        raise NotImplementedError(
            "export.register_pytree_node_serialization: from_children is not supported: nodes are made "
            "as the registration of the type says"
        )
    if nodetype in _written_types:
        raise ValueError(
            f"Duplicate serialization registration for type `{nodetype}`: it is written as "
            f"`{_written_types[nodetype][0]}` already."
        )
    if serialized_name in _read_types:
        raise ValueError(
            f"Duplicate serialization registration for serialized_name `{serialized_name}`: "
            f"it means the type `{_read_types[serialized_name][0]}` already."
        )
    if not tree_util.is_tree_node(nodetype):
        raise ValueError(
            f"`{nodetype}` is no pytree node: call `register_pytree_node` for it first"
        )
    _written_types[nodetype] = (serialized_name, serialize_auxdata)
    _read_types[serialized_name] = (nodetype, deserialize_auxdata)
    return nodetype


def register_namedtuple_serialization(nodetype: type, *, serialized_name: str) -> Any:
    """Lets functions with namedtuples of this type be serialized. Returns `nodetype`.

    Errors: ValueError for other types, and for types and names that are taken.

    Example:
        >>> import collections
        >>> Spot = collections.namedtuple("Spot", "x y")
        >>> cls = ferrax.export.register_namedtuple_serialization(Spot, serialized_name="example.Spot")
        >>> cls is Spot
        True
    """
    if not (
        isinstance(nodetype, type) and issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")
    ):
        raise ValueError(
            f"register_namedtuple_serialization: expected a class that namedtuple made, got {nodetype}; "
            "for others there is register_pytree_node_serialization."
        )
    fields = ",".join(nodetype._fields)

    def deserialize_auxdata(described):
        if described.decode() != fields:
            raise ValueError(
                f"`{nodetype}` has fields ({fields}), but had ({described.decode()}) when it was "
                f"serialized"
            )
        return nodetype

    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda _: fields.encode(),
        deserialize_auxdata=deserialize_auxdata,
    )
