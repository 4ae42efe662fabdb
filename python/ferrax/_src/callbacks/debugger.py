"""`debug.breakpoint`: a prompt with the values of the user's variables, at a place in a program.

The variables of the user's Python frames are taken when the program is traced; arrays among them
are operands of a callback, so the prompt shows the values that they have when the program runs.
"""

from __future__ import annotations

import dataclasses
import linecache
import sys
import threading
from types import FrameType
from typing import Any

from ferrax._src import core
from ferrax._src.base import errors
from ferrax._src.callbacks import callback, debugging
from ferrax._src.lax import api as lax
from ferrax._src.tree import tree_util


@dataclasses.dataclass
class Frame:
    """One Python frame of the user's, with its variables."""

    filename: str
    lineno: int
    function: str
    globals: dict
    locals: dict

    def context(self, around):
        """The lines around the current one, which is marked."""
        shown = []
        for number in range(max(1, self.lineno - around), self.lineno + around + 1):
            line = linecache.getline(self.filename, number, self.globals)
            if line:
                mark = "->" if number == self.lineno else "  "
                shown.append(f"{mark} {number:4} {line.rstrip()}")
        return [f"> {self.filename}({self.lineno}){self.function}()", *shown]


# One prompt at a time: programs may run on several threads.
_lock = threading.Lock()


def _user_frames(filter_frames, num_frames):
    frames = []
    current: FrameType | None = sys._getframe(2)
    while current is not None:
        code = current.f_code
        own = code.co_filename.startswith((errors.PACKAGE_DIRECTORY, "<frozen"))
        if not (filter_frames and own):
            frames.append(
                Frame(
                    code.co_filename,
                    current.f_lineno,
                    code.co_name,
                    current.f_globals,
                    dict(current.f_locals),
                )
            )
        current = current.f_back
    return frames if num_frames is None else frames[:num_frames]


class _Opaque:
    """A variable that is shown as it was when the program was traced."""

    def __init__(self, value):
        self.value = value


def _operands(frames):
    """The frames' variables as a tree: what is no tree of arrays is wrapped."""
    def of(value):
        try:
            leaves = tree_util.tree_leaves(value)
            return value if all(isinstance(x, core.Array) for x in leaves) else _Opaque(value)
        except Exception:
            return _Opaque(value)

    return [{name: of(value) for name, value in frame.locals.items()} for frame in frames]


def breakpoint(  # noqa: A001
    *, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None,
    ordered: bool = False, token: Any = None, **kwargs: Any,
) -> Any:
    """Stops a program where this is called and shows a prompt like that of `pdb`.

    At the prompt, `p expression` shows a value (or type the expression), `u` and `d` go through
    the calling functions, `l` lists source lines, `bt` the frames, `c` goes on and `q` ends.

    Args:
        backend: "cli", the only one.
        filter_frames: whether frames of this package are left out.
        num_frames: how many calling functions are kept; None for all.
        ordered: whether it keeps its place among other ordered callbacks.
        token: a tree of arrays, which is returned: the program stops once it is computed.
        stdin, stdout: files in place of the terminal, the only kwargs.

    Errors: ValueError for `ordered` with `token` or another backend; when the program runs,
    JaxRuntimeError where there is no terminal to ask, and KeyboardInterrupt on `q`.

    Example:
        >>> @ferrax.jit
        ... def f(x):
        ...     y = jnp.sin(x)
        ...     ferrax.debug.breakpoint()
        ...     return y
    """
    if token is not None and ordered:
        raise ValueError("breakpoint: pass either token or ordered=True, not both")
    if backend not in (None, "cli"):
        raise ValueError(f"Invalid debugger backend: {backend}; there is 'cli'")
    frames = _user_frames(filter_frames, num_frames)
    stdin, stdout = kwargs.pop("stdin", None), kwargs.pop("stdout", None)
    if kwargs:
        raise TypeError(f"breakpoint got unexpected arguments: {sorted(kwargs)}")

    def prompt(values):
        shown = [
            dataclasses.replace(
                frame,
                locals={
                    name: value.value if isinstance(value, _Opaque) else value
                    for name, value in own.items()
                },
            )
            for frame, own in zip(frames, values)
        ]
        _ask(shown, stdin, stdout)

    if token is None:
        debugging.debug_callback(prompt, _operands(frames), ordered=ordered)
        return None
    return _after_token(prompt, token, _operands(frames))


def _after_token(prompt, token, operands):
    token, operands = tree_util.tree_map(
        lambda x: lax.stop_gradient(x) if isinstance(x, core.Array) else x, (token, operands)
    )
    in_tree, arrays, static = debugging._split_arguments((operands,), {})
    show = debugging._Static(prompt, in_tree, static)

    def run(token, *arrays):
        show(*arrays)
        return token

    return callback.pure_callback(run, token, token, *arrays)


def _ask(frames, stdin, stdout):
    if stdin is None and not (sys.stdin is not None and sys.stdin.isatty()):
        raise RuntimeError(
            "debug.breakpoint needs a terminal to ask on, but standard input is none. Run the "
            "program in a terminal, pass stdin=, or use debug.print."
        )

    # Not loaded with the package: it needs modules of Python's that nothing else here does.
    from ferrax._src.callbacks.debugger_prompt import Prompt

    with _lock:
        Prompt(frames, stdin, stdout).cmdloop()
