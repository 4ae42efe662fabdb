"""Optimised programs on disk, which other processes find: settings, counts, and what is told of problems.

The native core reads and writes (`ferrax-cpu/src/persistent`); it is told the settings when they change. The
flags that say where and what are `jax_compilation_cache_dir` and its like (`base/config.py`).
"""

from __future__ import annotations

import os
import threading
import warnings
from typing import NamedTuple

from ferrax import _core
from ferrax._src.base import errors, flags, monitoring
from ferrax._src.base.errors import user_stacklevel

_DIR, _ENABLE, _MOST = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_compilation_cache_max_size",
)
_TIME = "jax_persistent_cache_min_compile_time_secs"
_LEAST = "jax_persistent_cache_min_entry_size_bytes"
_RAISE = "jax_raise_persistent_cache_errors"
_FLAGS = frozenset((_DIR, _ENABLE, _MOST, _TIME, _LEAST))


def _build() -> str:
    """The version, and which build of the native core this is."""
    facts = os.stat(_core.__file__)
    return f"{_core.__version__} {facts.st_size} {facts.st_mtime_ns}"


def _settings(read):
    """What the native core is told of flags, as `read` gives their values; None where nothing is kept."""
    folder, most = read(_DIR), read(_MOST)
    if not folder or not read(_ENABLE) or most == 0:
        return None
    least_time = max(float(read(_TIME) or 0.0), 0.0)
    path = os.path.abspath(os.path.expanduser(folder))
    bound = most if most is not None and most > 0 else None
    return path, _build(), least_time, max(read(_LEAST) or 0, 0), bound


def _tell(process_wide: bool) -> None:
    own = flags.overrides()
    if process_wide:
        _core.set_program_cache(_settings(lambda name: flags.states[name].get_global()), True)
    if _FLAGS.isdisjoint(own):
        _core.follow_program_cache()
    else:
        _core.set_program_cache(_settings(lambda name: flags.states[name].value), False)


def _on_flag(name, value, process_wide) -> None:
    if name in _FLAGS:
        _tell(process_wide)


_told: set[str] = set()
_lock = threading.Lock()

# Events by JAX's names, of which programs that were found, or not, are counted; whether the first was recorded that
# says if this process uses the cache; and what the counts were when events were last recorded.
_EVENTS = "/jax/compilation_cache/"
_task_told = False
_recorded = (0, 0)


def is_asked_for() -> bool:
    """Whether a folder was named and the cache is on."""
    return bool(flags.states[_ENABLE].value) and bool(flags.states[_DIR].value)


def record_events(seconds: float) -> bool | None:
    """Records the events of what was compiled since it was last asked, the last of it in so many seconds. Whether all
    of it was found on disk; None where nothing was looked for."""
    global _task_told, _recorded
    enabled, uses = bool(flags.states[_ENABLE].value), is_asked_for()
    with _lock:
        first, _task_told = not _task_told and (uses or not enabled), _task_told or uses or not enabled
        before, _recorded = _recorded, _core.program_cache_counts()[:2]
        hits, misses = (now - old for now, old in zip(_recorded, before))
    if first:
        monitoring.record_event(_EVENTS + ("tasks_using_cache" if uses else "task_disabled_cache"))
    for event, count in (("compile_requests_use_cache", hits + misses), ("cache_hits", hits), ("cache_misses", misses)):
        for _ in range(count):
            monitoring.record_event(_EVENTS + event)
    if hits and not misses:
        monitoring.record_event_duration_secs(_EVENTS + "cache_retrieval_time_sec", seconds)
    return not misses if hits or misses else None


def begin_events() -> None:
    """What was compiled before somebody listens is none of their business."""
    global _recorded
    with _lock:
        _recorded = _core.program_cache_counts()[:2]


def problem(text: str) -> None:
    """Called by the native core after something went wrong: an error where `jax_raise_persistent_cache_errors` is
    set, else a warning, once for each folder."""
    if flags.states[_RAISE].value:
        raise errors.JaxRuntimeError(f"the cache of compiled programs: {text}")
    folder = flags.states[_DIR].value or ""
    with _lock:
        if folder in _told:
            return
        _told.add(folder)
    warnings.warn(
        f"the cache of compiled programs is not used for all of them: {text}. Programs are compiled as "
        "without it. jax_compilation_cache_dir says where it is, jax_enable_compilation_cache=False turns it off.",
        stacklevel=user_stacklevel(),
    )


class CacheStats(NamedTuple):
    """Counts of this process, `hits`, `misses`, `written` and `problems`, and what the folder `dir` holds: `entries`
    and `bytes`. `dir` is None where nothing is kept.

    >>> ferrax.cache.stats().hits >= 0
    True
    """

    hits: int
    misses: int
    written: int
    problems: int
    entries: int
    bytes: int
    dir: str | None


def stats() -> CacheStats:
    """What the cache of compiled programs on disk did for this process, and what it holds.

    >>> ferrax.cache.stats()._fields
    ('hits', 'misses', 'written', 'problems', 'entries', 'bytes', 'dir')
    """
    settings = _settings(lambda name: flags.states[name].value)
    folder = settings[0] if settings else None
    held = _core.program_cache_entries(folder) if folder else (0, 0)
    return CacheStats(*_core.program_cache_counts(), *held, folder)


def clear() -> int:
    """Removes all programs from the cache on disk, those of other processes too; how many.

    Programs in memory stay; `ferrax.clear_caches` forgets these. Errors: OSError for files that cannot be removed.

    >>> ferrax.cache.clear() >= 0
    True
    """
    folder = flags.states[_DIR].value
    if not folder:
        return 0
    return _core.clear_program_files(os.path.abspath(os.path.expanduser(folder)))


def set_cache_dir(path: str | os.PathLike[str] | None) -> None:
    """Sets where compiled programs are kept on disk: the flag `jax_compilation_cache_dir`. None: nowhere.

    >>> from ferrax.experimental.compilation_cache import compilation_cache
    >>> compilation_cache.set_cache_dir(ferrax.config.jax_compilation_cache_dir)
    """
    flags.states[_DIR]._set(None if path is None else os.fspath(path))


def reset_cache() -> None:
    """Forgets what this process knows of the folder, and which problems and events it told; files stay.

    >>> from ferrax.experimental.compilation_cache import compilation_cache
    >>> compilation_cache.reset_cache()
    """
    global _task_told
    with _lock:
        _told.clear()
        _task_told = False
    _tell(True)


flags.on_flag_change(_on_flag)
monitoring.on_change(begin_events)
