"""Profiles of a process, from their start to their files.

In: a folder and options. Out: `FOLDER/plugins/profile/TIME/HOST.xplane.pb` for TensorBoard and `ProfileData`,
`HOST.trace.json.gz` for `chrome://tracing`, and, if wanted, `perfetto_trace.json.gz`. The folder is made when a profile
starts, so that one which cannot be written to is an error then.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import threading
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from ferrax._src.base.errors import JaxRuntimeError
from ferrax._src.profiling import chrome, options as _options, remote
from ferrax._src.profiling.options import ProfileOptions
from ferrax._src.profiling.recorder import Recording
from ferrax._src.profiling.space import Space, encode


class _Session(NamedTuple):
    """A profile that is being taken for files."""

    recording: Recording
    folder: str
    perfetto: bool
    link: bool
    others: list[remote.Capture]


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: _Session | None = None
        # The folder of the last profile that was written.
        self.last: str | None = None

    def forget(self) -> None:
        """In the child of a fork, in which nobody holds the lock and nothing is recorded."""
        self.__init__()  # type: ignore[misc]  # as it began


state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=state.forget)


def _new_folder(log_dir: str, name: str) -> str:
    """The folder of a profile's files, which is there and can be written to."""
    parent = os.path.join(log_dir, "plugins", "profile")
    base = os.path.join(parent, name or datetime.datetime.now().strftime("%Y_%m_%d_%H_%M_%S"))
    folder, number = base, 1
    try:
        os.makedirs(parent, exist_ok=True)
        while True:
            try:
                os.mkdir(folder)
                break
            except FileExistsError:
                if name and os.path.isdir(folder):
                    break
                # Two profiles in one second.
                number += 1
                folder = f"{base}_{number}"
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, os.strerror(13), folder)
    except OSError as error:
        raise JaxRuntimeError(f"a profile cannot be written to {log_dir}: {error}") from error
    return folder


def start_trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Begins to record what this process does, until `stop_trace` writes it.

    Args: log_dir: the folder for files, that of TensorBoard; create_perfetto_link: whether `stop_trace` prints a
    link to Perfetto's page and waits until the profile was loaded there; create_perfetto_trace: whether a file for
    Perfetto is written; profiler_options: what is recorded.

    Errors: RuntimeError if a profile is being taken; JaxRuntimeError if the folder cannot be written to; as
    `ProfileOptions` for options that have no meaning here.

    Example:
        >>> import tempfile
        >>> ferrax.profiler.start_trace(tempfile.mkdtemp())
        >>> x = ferrax.jit(jnp.cumsum)(jnp.ones(3))
        >>> ferrax.profiler.stop_trace()
    """
    with state.lock:
        if state.session is not None:
            raise RuntimeError("a profile is being taken already, and there is one at a time: stop_trace ends it")
        options, advanced = _options.checked(profiler_options)
        folder = _new_folder(os.path.abspath(str(log_dir)), options.session_id)
        try:
            recording = Recording(options)
        except BaseException:
            _remove_if_empty(folder)
            raise
        others = remote.begin(options) if advanced[_options.SUBPROCESSES] else []
        perfetto = bool(create_perfetto_trace or create_perfetto_link)
        state.session = _Session(recording, folder, perfetto, bool(create_perfetto_link), others)


def stop_trace() -> None:
    """Ends what `start_trace` began and writes it.

    Errors: RuntimeError if nothing was begun; JaxRuntimeError if the files cannot be written: the profile has
    ended all the same.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> ferrax.profiler.start_trace(folder, create_perfetto_trace=True)
        >>> ferrax.profiler.stop_trace()
        >>> len(list(folder.glob("plugins/profile/*/*")))
        3
    """
    with state.lock:
        session, space = _taken()
    for capture in session.others:
        space.planes.extend(capture.end(session.recording.started))
    host = os.path.join(session.folder, platform.node() or "localhost")
    perfetto = os.path.join(session.folder, "perfetto_trace.json.gz")
    try:
        _write(f"{host}.xplane.pb", encode(space))
        _write(f"{host}.trace.json.gz", chrome.trace(space))
        if session.perfetto:
            _write(perfetto, chrome.trace(space, metadata=False))
    except OSError as error:
        raise JaxRuntimeError(f"the profile cannot be written to {session.folder}: {error}") from error
    state.last = session.folder
    if session.link:
        chrome.serve_once(perfetto)


def _taken() -> tuple[_Session, Space]:
    """The session that ends now, and what it recorded."""
    session, state.session = state.session, None
    if session is None:
        raise RuntimeError("no profile is being taken: start_trace begins one")
    return session, session.recording.stop()


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _remove_if_empty(folder: str) -> None:
    """Removes a folder that was made in vain, and those around it that hold nothing else."""
    for _ in range(3):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        folder = os.path.dirname(folder)


def stop_and_get_fdo_profile() -> NoReturn:
    """Ends what `start_trace` began and writes nothing: profiles for feedback are those of XLA's compiler.

    Errors: RuntimeError if nothing was begun, else NotImplementedError.

    Example:
        >>> import tempfile
        >>> ferrax.profiler.start_trace(tempfile.mkdtemp())
        >>> try:
        ...     ferrax.profiler.stop_and_get_fdo_profile()
        ... except NotImplementedError:
        ...     print("there is none")
        there is none
    """
    with state.lock:
        session, _ = _taken()
    for capture in session.others:
        capture.end()
    _remove_if_empty(session.folder)
    raise NotImplementedError(
        "stop_and_get_fdo_profile: there is no compiler here that takes profiles back; stop_trace writes the profile, "
        "and report shows it"
    )


@contextlib.contextmanager
def trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """A context whose body is recorded and then written, also if it raises.

    Args: log_dir: the folder for files, that of TensorBoard; create_perfetto_link: whether a link to Perfetto's page is
    printed at the end, which waits until the profile was loaded there; create_perfetto_trace: whether a file for
    Perfetto is written; profiler_options: what is recorded.

    Errors: as `start_trace` and `stop_trace`.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> with ferrax.profiler.trace(folder):
        ...     x = ferrax.jit(jnp.cumsum)(jnp.ones(3))
        >>> len(list(folder.rglob("*.xplane.pb")))
        1
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()
