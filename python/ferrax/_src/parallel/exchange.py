"""Collectives over *frames*: what each device holds of a value, one after the other in the memory of its process.

Each process has as many devices as the others, k >= 1, and device i of process p has the number p * k + i. A
collective takes the frames of this process's devices, an array [k, ...] of any dtype, and groups of devices, each
in the order of its group; together they have each device once. It returns this process's frames of the result, which
may be one memory for all of them that cannot be written to. `kinds()` names the collectives. For the same frames the
bits of results are the same in each process and for any number of processes: sums are made in the order of `folds`.

Processes that several groups join alike exchange one message for all these groups; what several devices of a process
need is sent to it once; devices of one process are folded in its memory before anything is sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src.parallel import moves, ranks, reductions
from ferrax._src.parallel.algorithms import Plan
from ferrax._src.parallel.folds import FOLDS
from ferrax._src.parallel.groups import Groups, Here, check_groups, peers


def run(
    kind: str,
    frames: np.ndarray,
    groups: Sequence[Sequence[int]],
    *,
    line: str = "",
    joined: ranks.Ranks | None = None,
    **params: Any,
) -> np.ndarray:
    """Does a collective with all processes that have devices in groups with those of this one.

    Args:
        kind: one of `kinds()`.
        frames: [k, ...], what each of this process's devices holds.
        groups: the numbers of the devices of each group.
        line: where in the user's program it stands, for errors.
        joined: what joins the processes; None: what joins those of this program.
        params: of the collective. all_gather, psum_scatter: `axis` of a frame, `tiled`; all_to_all: `split_axis`,
            `concat_axis`, `tiled`; pbroadcast: `source`, a place in the group; ppermute: `perm`, pairs of places in
            the group, from where and to where: a device that nobody sends to gets zeros.

    Returns: [k, ...], the frames of the result.

    Errors: ValueError for groups that do not have each device once, and for shapes that the collective does not take;
    JaxRuntimeError if other processes do something else, or do not answer.
    """
    joined = ranks.current() if joined is None else joined
    numbers: Groups = tuple(map(tuple, groups))
    frames = np.ascontiguousarray(frames)
    made = plan(kind, frames, numbers, joined.process, joined.processes, **params)
    detail = repr(sorted(params.items()))
    return joined.run(_call(kind, frames.dtype, frames.shape, numbers, detail, line, joined.process), made)


def plan(
    kind: str, frames: np.ndarray, groups: Groups, process: int, processes: int, **params: Any
) -> Plan[np.ndarray]:
    """What `run` does, as steps of process `process` of `processes`."""
    if kind not in _PLANS:
        raise ValueError(f"exchange: there is no collective {kind!r}, there are {', '.join(_PLANS)}")
    check_groups(groups, processes * len(frames))
    return _PLANS[kind](kind, frames, Here(groups, len(frames), process, processes), **params)


def kinds() -> list[str]:
    """The names of the collectives."""
    return list(_PLANS)


@functools.lru_cache(256)
def _call(
    kind: str, dtype: np.dtype[Any], shape: tuple[int, ...], groups: Groups, detail: str, line: str, process: int
):
    """What the processes agree on."""
    each, *frame = shape
    return ranks.Call(f"{kind} of {dtype.name}{frame}", line, peers(groups, process, each), (groups, each, detail))


_PLANS: dict[str, Callable[..., Plan[np.ndarray]]] = {
    **dict.fromkeys(FOLDS, reductions.reduce),
    "all_gather": moves.all_gather,
    "pbroadcast": moves.broadcast,
    "psum_scatter": reductions.scatter,
    "all_to_all": moves.all_to_all,
    "ppermute": moves.ppermute,
}
