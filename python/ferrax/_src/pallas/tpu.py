"""What kernels for TPUs name: `ferrax.experimental.pallas.tpu`.

Memory spaces are one memory, parameters of compilers are kept, and what only a TPU has says so when it
is called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.lax.control_flow.while_loop import fori_loop
from ferrax._src.lax.elementwise import _convert_element_type, bitcast_convert_type
from ferrax._src.numpy.array_creation import arange
from ferrax._src.numpy.conditional import where
from ferrax._src.numpy.joining import block
from ferrax._src.numpy.rearrangement import roll as _roll
from ferrax._src.numpy.ref_views import _bitcast
from ferrax._src.pallas import grid as grids, run, tpu_info
from ferrax._src.pallas.blocks import Operand, spread, zeroed
from ferrax._src.pallas.helpers import cdiv
from ferrax._src.pallas.specs import (
    CompilerParams as BaseParams,
    MemoryRef,
    SemaphoreDtype,
    Space,
    barrier_semaphore,
    dma_semaphore,
    help_of_space,
    memory,
    semaphore,
)
from ferrax._src.random.prng import fold_in
from ferrax._src.state import at_user_line, new_ref
from ferrax._src.transforms.batching import vmap
from ferrax._src.tree import tree_util

_INT32 = np.dtype(np.int32)


class MemorySpace(Space):
    """Memories of a TPU. There is one memory here: the names are for programs that give them.

    >>> pltpu.VMEM((8, 128), jnp.float32)
    MemoryRef(inner_aval=ShapedArray(float32[8,128]), memory_space=VMEM)
    """

    def __init__(self, value: str) -> None:
        self.__doc__ = help_of_space(f"pltpu.{self.name}")

    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    SEMAPHORE = "semaphore_mem"
    HBM = "hbm"

    def __repr__(self) -> str:
        return self.name

    def like(self, x: Any) -> Any:
        """Memory of the types of a pytree of what has a shape and a dtype."""
        return tree_util.tree_map(self.from_type, x, is_leaf=lambda leaf: hasattr(leaf, "shape"))


class SemaphoreType(enum.Enum):
    """Semaphores as scratch memory: one, or of a shape when called with it.

    >>> pltpu.SemaphoreType.DMA((2,)).shape
    (2,)
    """

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    @property
    def dtype(self) -> SemaphoreDtype:
        return _SEMAPHORES[self.value]

    def __call__(self, shape: int | Sequence[int]) -> MemoryRef:
        return memory((shape,) if isinstance(shape, int) else shape, self.dtype, MemorySpace.SEMAPHORE)

    def get_array_aval(self) -> Any:
        """The type of one."""
        return self(()).inner_aval

    def get_ref_aval(self) -> MemoryRef:
        """The type of a ref of one."""
        return self(())


_SEMAPHORES = {"regular": semaphore, "dma": dma_semaphore, "barrier": barrier_semaphore}


class GridDimensionSemantics(enum.Enum):
    """How an axis of a grid may be run. A hint: steps run in parallel where that gives what their order does.

    >>> pltpu.CompilerParams(dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY)).dimension_semantics[0]
    <GridDimensionSemantics.PARALLEL: 'parallel'>
    """

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


class SideEffectType(enum.Enum):
    """Whether a kernel does more than to give values. Kept: what a kernel does is seen in its program.

    >>> pltpu.SideEffectType("pure")
    <SideEffectType.PURE: 'pure'>
    """

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


class CoreType(enum.Enum):
    """The cores of a TPU.

    >>> pltpu.CoreType("tc")
    <CoreType.TC: 'tc'>
    """

    TC = "tc"
    SC_SCALAR_SUBCORE = "sc_scalar_subcore"
    SC_VECTOR_SUBCORE = "sc_vector_subcore"


class Tiling(enum.Enum):
    """How arrays lie in a TPU's memory.

    >>> pltpu.Tiling(1)
    <Tiling.COMPACT: 1>
    """

    COMPACT = 1
    SPARSE_CORE = 2


@dataclasses.dataclass(frozen=True)
class CompilerParams(BaseParams):
    """Parameters of the TPU's compiler, which are kept with the equation.

    >>> pltpu.CompilerParams(vmem_limit_bytes=1 << 20).vmem_limit_bytes
    1048576
    """

    dimension_semantics: Sequence[Any] | None = None
    allow_input_fusion: Sequence[bool] | None = None
    vmem_limit_bytes: int | None = None
    collective_id: int | None = None
    has_side_effects: bool | SideEffectType = False
    flags: Mapping[str, Any] | None = None
    internal_scratch_in_bytes: int | None = None
    serialization_format: int = 1
    disable_bounds_checks: bool = False
    disable_semaphore_checks: bool = False
    skip_device_barrier: bool = False
    allow_collective_id_without_custom_barrier: bool = False
    shape_invariant_numerics: bool = True
    use_tc_tiling_on_sc: bool | None = None
    needs_layout_passes: bool = True
    fuse_transposed_lhs_in_matmul: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterpretParams:
    """Parameters of JAX's interpreter of TPU kernels, for `interpret=`.

    Attributes:
      out_of_bounds_reads: "raise" makes a traced index of a ref that is out of bounds an error when the kernel runs,
        an IndexError; "uninitialized" moves it into bounds.
      uninitialized_memory: "nan", or "zero" for memory that is 0 before something is written to it.
      dma_execution_mode, random_seed: how that interpreter orders what may run at once; results do not depend on it.
      the others: for that interpreter.

    Errors: ValueError for `detect_races`, `num_cores_or_threads` above 1, `skip_floating_point_ops` and
    `grid_point_recorder`: kernels are compiled here, and their steps have one order.

    >>> zero = pltpu.InterpretParams(uninitialized_memory="zero")
    >>> pl.pallas_call(lambda o_ref: None, jnp.zeros(2), interpret=zero)()
    Array([0., 0.], dtype=float32)
    """

    detect_races: bool = False
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    dma_execution_mode: str = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Callable[..., Any] | None = None
    allow_hbm_allocation_in_run_scoped: bool = False
    buffer_bounds: str = "logical"

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """The settings that a kernel is traced and run under."""
        with contextlib.ExitStack() as stack:
            if self.out_of_bounds_reads == "raise":
                stack.enter_context(config.debug_index(True))
            if self.uninitialized_memory == "zero":
                stack.enter_context(zeroed())
            yield

    def __post_init__(self) -> None:
        for name, default in (
            ("detect_races", False), ("num_cores_or_threads", 1), ("grid_point_recorder", None),
            ("skip_floating_point_ops", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                raise ValueError(
                    f"InterpretParams: {name}={getattr(self, name)!r} is of JAX's interpreter of TPUs; kernels are "
                    "compiled here, their steps have one order"
                )


@contextlib.contextmanager
def force_tpu_interpret_mode(params: InterpretParams | None = None) -> Iterator[None]:
    """A context for programs that run their TPU kernels elsewhere: kernels run here in any case.

    Args: params: as `interpret=` of `pallas_call`.

    >>> with pltpu.force_tpu_interpret_mode():
    ...     pl.pallas_call(lambda x_ref, o_ref: o_ref.set(x_ref[...]), jnp.zeros(2))(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    with tpu_info.taken_for_tpu():
        yield


def set_tpu_interpret_mode(params: InterpretParams | None = None) -> None:
    """For programs that run their TPU kernels elsewhere: kernels run here in any case.

    Args: params: as `interpret=` of `pallas_call`.

    >>> pltpu.set_tpu_interpret_mode()
    """
    tpu_info.set_taken_for_tpu(True)


def reset_tpu_interpret_mode_state() -> None:
    """For programs that run their TPU kernels elsewhere: there is no state of an interpreter here.

    >>> pltpu.reset_tpu_interpret_mode_state()
    """


def is_tpu_device() -> bool:
    """False: there is no TPU.

    >>> pltpu.is_tpu_device()
    False
    """
    return False


def _only_tpu(name: str, instead: str) -> Callable[..., NoReturn]:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"pltpu.{name} is of a TPU alone. {instead}{at_user_line()}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Of a TPU alone.

    Args: args, kwargs: any. Errors: NotImplementedError, which says what to do: {instead}

    >>> pltpu.{name}()
    Traceback (most recent call last):
    NotImplementedError: pltpu.{name} is of a TPU alone...
    """
    return function


core_barrier = _only_tpu("core_barrier", "Steps run one after another: no barrier is needed.")
matmul_push_rhs = _only_tpu("matmul_push_rhs", "Use jnp.dot.")
matmul_acc_lhs = _only_tpu("matmul_acc_lhs", "Use jnp.dot.")
matmul_pop = _only_tpu("matmul_pop", "Use jnp.dot.")


# Values.


def roll(x: Any, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None) -> Any:
    """The elements moved along an axis, those at its end to its beginning.

    Args:
      x: an array.
      shift: how far, an int32, traced or not; not negative.
      axis: the axis.
      stride, stride_axis: each further index along `stride_axis` is moved by `stride` more.

    Errors: ValueError for a negative known shift, for one of the last two without the other, and where both axes are
    one.

    >>> pltpu.roll(jnp.arange(4), 1, 0)
    Array([3, 0, 1, 2], dtype=int32)
    """
    if isinstance(shift, int) and shift < 0:
        raise ValueError(f"roll: shift must be non-negative, got {shift}")
    if not 0 <= axis < x.ndim:
        raise ValueError(f"roll: axis must be between 0 and {x.ndim}, got {axis}")
    if (stride is None) != (stride_axis is None):
        raise ValueError("roll: give both stride and stride_axis, or neither")
    if stride is None or stride_axis is None:
        return _roll(x, shift, axis)
    if stride_axis == axis:
        raise ValueError(f"roll: axis and stride_axis must be two axes, got {axis} for both")
    if stride < 0:
        raise ValueError(f"roll: stride must be non-negative, got {stride}")
    shifts = arange(x.shape[stride_axis]) * stride + shift
    inner = axis - (stride_axis < axis)
    return vmap(lambda row, by: _roll(row, by, inner), (stride_axis, 0), stride_axis)(x, shifts)


def bitcast(x: Any, ty: Any) -> Any:
    """The bits of an array as another dtype; of another width, the axis before the last is as much longer or shorter.

    Args: x: an array of two or more axes; ty: the dtype.

    >>> pltpu.bitcast(jnp.zeros((2, 4), jnp.int32), jnp.int16).shape
    (4, 4)
    """
    return _bitcast(x, dtypes.canonicalize_dtype(ty))


def pack_elementwise(xs: Sequence[Any], *, packed_dtype: Any) -> Any:
    """Elements of several arrays, rounded to a narrower dtype, side by side in 32 bits: those of the first lowest.

    Args: xs: arrays of one shape, of float32 or int32; packed_dtype: a dtype of 32 / len(xs) bits.

    Errors: ValueError for another number of arrays.

    >>> pltpu.pack_elementwise([jnp.array([1]), jnp.array([2])], packed_dtype=jnp.int16)
    Array([131073], dtype=uint32)
    """
    packed = dtypes.canonicalize_dtype(packed_dtype)
    bits = packed.itemsize * 8
    if len(xs) * bits != 32:
        raise ValueError(f"pack_elementwise: {len(xs)} of {packed} do not make 32 bits")
    unsigned = np.dtype(f"uint{bits}")
    found = core.as_array(np.uint32(0), "pack_elementwise")
    for number, x in enumerate(xs):
        part = bitcast_convert_type(_convert_element_type(x, packed), unsigned)
        found = found | (_convert_element_type(part, np.uint32) << np.uint32(number * bits))
    return found


def unpack_elementwise(x: Any, *, index: int, packed_dtype: Any, unpacked_dtype: Any) -> Any:
    """What `pack_elementwise` was given at a place, as far as the narrower dtype holds it.

    Args: x: an array of 32 bits; index: the place; packed_dtype, unpacked_dtype: the narrow and the wide dtype.

    >>> packed = pltpu.pack_elementwise([jnp.array([1]), jnp.array([2])], packed_dtype=jnp.int16)
    >>> pltpu.unpack_elementwise(packed, index=1, packed_dtype=jnp.int16, unpacked_dtype=jnp.int32)
    Array([2], dtype=int32)
    """
    packed = dtypes.canonicalize_dtype(packed_dtype)
    bits = packed.itemsize * 8
    word = bitcast_convert_type(x, np.uint32) >> np.uint32(index * bits)
    part = _convert_element_type(word, np.dtype(f"uint{bits}"))
    return _convert_element_type(bitcast_convert_type(part, packed), unpacked_dtype)


def stochastic_round(x: Any, random_bits: Any, *, target_dtype: Any) -> Any:
    """float32 rounded to bfloat16, up as often as it is nearer there.

    Args: x: a float32 array; random_bits: uint32 of its shape, of which the low 16 bits count; target_dtype: bfloat16.

    Errors: NotImplementedError for other dtypes.

    >>> bits = ferrax.random.bits(ferrax.random.key(0), (1000,))
    >>> rounded = pltpu.stochastic_round(jnp.full(1000, 1.001), bits, target_dtype=jnp.bfloat16)
    >>> jnp.unique(rounded), abs(rounded.astype(float).mean() - 1.001) < 1e-3
    (Array([1, 1.00781], dtype=bfloat16), Array(True, dtype=bool))
    """
    if dtypes.canonicalize_dtype(target_dtype) != dtypes.bfloat16 or x.dtype != np.float32:
        raise NotImplementedError(
            f"stochastic_round: from float32 to bfloat16, got {x.dtype} and {target_dtype}"
        )
    word = bitcast_convert_type(x, np.uint32)
    rounded = (word + (bitcast_convert_type(random_bits, np.uint32) & np.uint32(0xFFFF))) & np.uint32(0xFFFF0000)
    finite = (word & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return _convert_element_type(bitcast_convert_type(where(finite, rounded, word), np.float32), dtypes.bfloat16)


def to_pallas_key(key: Any) -> Any:
    """A random key for kernels: the key itself.

    Args: key: a key.

    >>> key = ferrax.random.key(0)
    >>> pltpu.to_pallas_key(key) is key
    True
    """
    return key


def touch(ref: Any) -> None:
    """Says that a ref is used: nothing is left out here that a kernel does.

    Args: ref: a ref.

    >>> pltpu.touch(ferrax.new_ref(1.0))
    """


def trace_value(label: str, value: Any) -> None:
    """Marks a value in a profile of a TPU: nothing happens here.

    Args: label: a name; value: a scalar.

    >>> pltpu.trace_value("step", 3)
    """


def with_memory_space_constraint(x: Any, memory_space: Any) -> Any:
    """`x`: there is one memory.

    Args: x: an array; memory_space: any.

    >>> pltpu.with_memory_space_constraint(jnp.arange(2), pltpu.VMEM)
    Array([0, 1], dtype=int32)
    """
    return x


# Loops over blocks.


def emit_pipeline(
    body: Callable[..., None], *, grid: Sequence[Any], in_specs: Any = (), out_specs: Any = (), tiling: Any = None,
    core_axis: Any = None, core_axis_name: Any = None, dimension_semantics: Any = None, trace_scopes: bool = True,
    no_pipelining: bool = False,
) -> Callable[..., None]:  # fmt: skip
    """A function of refs that runs a kernel for each step of an inner grid, on blocks of the refs.

    Args:
      body: a function of a ref for each block, and of `scratches`; it returns None.
      grid: the sizes, integers or traced.
      in_specs, out_specs: a `BlockSpec` for each ref that is read, and for each that is written.
      tiling, dimension_semantics, trace_scopes, no_pipelining: hints for TPUs.
      core_axis, core_axis_name: None, steps are of one core.

    Returns: `pipeline(*refs, scratches=())`.

    Errors: NotImplementedError for a `core_axis`.

    >>> x, o = ferrax.new_ref(jnp.arange(4.0)), ferrax.new_ref(jnp.zeros(4))
    >>> block = pl.BlockSpec((2,), lambda i: i)
    >>> double = pltpu.emit_pipeline(
    ...     lambda x_ref, o_ref: o_ref.set(x_ref[...] * 2), grid=(2,), in_specs=[block], out_specs=[block])
    >>> double(x, o)
    >>> o
    Ref([0., 2., 4., 6.], dtype=float32)
    """
    if core_axis is not None or core_axis_name is not None:
        raise NotImplementedError("emit_pipeline: steps are of one core, got core_axis")

    def pipeline(*refs, scratches=()):
        listed = tuple(in_specs) if isinstance(in_specs, (list, tuple)) else (in_specs,)
        outs = tuple(out_specs) if isinstance(out_specs, (list, tuple)) else (out_specs,)
        leaves, tree = tree_util.tree_flatten(tuple(refs))
        specs = spread((*listed, *outs), tree, len(leaves), "in")
        count = len(tree_util.tree_leaves(refs[: len(listed)]))
        sizes = [size if isinstance(size, int) else core.as_array(size, "emit_pipeline") for size in grid]
        marks = tuple(size if isinstance(size, int) else grids.UNKNOWN for size in sizes)
        moving = [size for size in sizes if not isinstance(size, int)]
        operands = [
            Operand(f"refs[{number}]", ref.shape, ref.dtype, spec, marks)
            for number, (ref, spec) in enumerate(zip(leaves, specs))
        ]
        layouts = [run._layout(operand, marks, ()) for operand in operands]
        total: Any = 1
        for size in sizes:
            total = total * size

        def step(number, carry):
            ids = run.indices_of(number, sizes)
            places = [
                run._places(operand, layout, operand.indices(ids, moving, ()))
                for operand, layout in zip(operands, layouts)
            ]
            blocks = [
                new_ref(run._seen(operand, run._cut(operand, place, operand.pad(ref[...]))))
                for operand, place, ref in zip(operands, places, leaves)
            ]
            with grids.frame(ids, sizes):
                body(*tree.unflatten(blocks), *scratches)
            for operand, place, ref, written in list(zip(operands, places, leaves, blocks))[count:]:
                value = written[...].reshape(operand.block)
                ref[...] = operand.unpad(run._put(operand, place, operand.pad(ref[...]), value))
            return carry

        fori_loop(0, total, step, ())

    return pipeline


def sample_block(
    sampler_fn: Callable[..., Any], global_key: Any, block_size: Sequence[int], tile_size: Sequence[int],
    total_size: Sequence[int], block_index: Sequence[Any] | None = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """A block of random numbers of which each tile has a key of its own, so that blocks of any size agree.

    Args:
      sampler_fn: a sampler such as `jax.random.uniform`, of a key and a shape.
      global_key: the key of all.
      block_size, tile_size, total_size: shapes; each is a multiple of the one before it in the order tile, block.
      block_index: which block; None: that of the step.
      kwargs: for the sampler.

    Errors: ValueError where a block is no multiple of the tile.

    >>> sample = lambda size, index: pltpu.sample_block(
    ...     ferrax.random.uniform, ferrax.random.key(0), size, (1, 2), (4, 8), index)
    >>> bool((sample((4, 8), (0, 0))[2:, 4:] == sample((2, 4), (1, 1))).all())
    True
    """
    if len(block_size) != len(tile_size) or any(size % tile for size, tile in zip(block_size, tile_size)):
        raise ValueError(f"sample_block: blocks of {block_size} are no multiple of tiles of {tile_size}")
    if block_index is None:
        block_index = [grids.program_id(axis) for axis in range(len(block_size))]
    counts = [size // tile for size, tile in zip(block_size, tile_size)]
    across = [cdiv(size, tile) for size, tile in zip(total_size, tile_size)]
    found = np.empty(counts, object)
    for place in np.ndindex(*counts):
        number: Any = np.int32(0)
        for index, count, within, total in zip(block_index, counts, place, across):
            number = number * np.int32(total) + (index * np.int32(count) + np.int32(within))
        found[place] = sampler_fn(fold_in(global_key, number), shape=tuple(tile_size), **kwargs)
    return block(found.tolist())
