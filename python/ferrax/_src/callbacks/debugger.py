"""`debug.breakpoint`: a prompt with the values of the user's variables, at a place in a program.

The variables of the user's Python frames are taken when the program is traced; arrays among them
are operands of a callback, so the prompt shows the values that they have when the program runs.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from ferrax._src import core
from ferrax._src.base import errors
from ferrax._src.callbacks import callback, debugging
from ferrax._src.lax import api as lax
from ferrax._src.tree import tree_util


@dataclasses.dataclass
class Frame:
    """One Python frame of the user's, with its variables."""

    code: CodeType
    lineno: int
    globals: dict
    locals: dict

    @property
    def place(self) -> str:
        return f"{self.code.co_filename}({self.lineno})"

    def source(self) -> tuple[list[str], int]:
        """The lines of the function, the last an empty one, and which of them is the current one.

        Errors: OSError where there is no source, or another than what runs.
        """
        lines, first = inspect.getsourcelines(self.code)
        text = "".join(lines).split("\n")
        current = self.lineno - max(first, 1)
        if not 0 <= current < len(text):
            raise OSError(f"no line {self.lineno} in {self.code.co_filename}")
        return text, current

    def context(self, around: int) -> list[str]:
        """Lines of the function around the current one, which is marked."""
        try:
            text, current = self.source()
        except OSError:
            return [f"> {self.place}"]
        first = max(0, current - around - 1)
        shown = enumerate(text[first : current + around + 1], first)
        return [f"> {self.place}", *[f"{'->' if number == current else '  '}  {line}" for number, line in shown]]

    def line(self) -> str:
        """The current line, or what is said where there is none."""
        try:
            text, current = self.source()
        except OSError:
            return "<no source>"
        return text[current].strip()


# One prompt at a time: programs may run on several threads.
_lock = threading.Lock()


def _user_frames(filter_frames, num_frames):
    frames = []
    current: FrameType | None = sys._getframe(2)
    while current is not None:
        code = current.f_code
        own = code.co_filename.startswith((errors.PACKAGE_DIRECTORY, "<frozen"))
        if not (filter_frames and own):
            frames.append(Frame(code, current.f_lineno, current.f_globals, dict(current.f_locals)))
        current = current.f_back
    return frames if num_frames is None else frames[:num_frames]


class _Opaque:
    """A variable that is shown as it was when the program was traced."""

    def __init__(self, value):
        self.value = value


def _operands(frames):
    """The frames' variables as trees: traced leaves are operands, all else is wrapped."""

    def of(value):
        try:
            if any(isinstance(leaf, core.Tracer) for leaf in tree_util.tree_leaves(value)):
                return tree_util.tree_map(lambda leaf: leaf if isinstance(leaf, core.Tracer) else _Opaque(leaf), value)
        except Exception:
            # What is no tree is shown as it is.
            pass
        return _Opaque(value)

    return [{name: of(value) for name, value in frame.locals.items()} for frame in frames]


def _shown(leaf):
    return leaf.value if isinstance(leaf, _Opaque) else leaf


def breakpoint(  # noqa: A001
    *, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None,
    ordered: bool = False, token: Any = None, **kwargs: Any,
) -> Any:
    """Stops a program where this is called and shows a prompt like that of `pdb`.

    At the prompt, `p expression` shows a value (or type the expression), `u` and `d` go through
    the calling functions, `l` lists source lines, `bt` the frames, `c` goes on and `q` ends. Commands
    are the lines of `sys.stdin`, be it a terminal, a pipe or a `StringIO`.

    Args:
        backend: "cli", the only one.
        filter_frames: whether frames of this package are left out.
        num_frames: how many calling functions are kept; None for all.
        ordered: whether it keeps its place among other ordered callbacks.
        token: a tree of arrays, which is returned: the program stops once it is computed.
        kwargs: stdin, stdout, files in place of `sys.stdin` and `sys.stdout`; no others.

    Errors: ValueError for `ordered` with `token` or another backend; TypeError for other kwargs. When the program
    runs, SystemExit on `q` and, with a status that is no success, where the commands end without `c`.

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
                locals={name: tree_util.tree_map(_shown, value) for name, value in own.items()},
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
    if stdin is None and sys.stdin is None:
        raise RuntimeError("debug.breakpoint: there is no standard input; pass stdin=, or use debug.print")

    # Not loaded with the package: it needs modules of Python's that nothing else here does.
    from ferrax._src.callbacks.debugger_prompt import Prompt

    with _lock:
        Prompt(frames, stdin, stdout).run()
