"""`python -m ferrax.compat`: runs a program as `python` does, with imports of `jax` meaning ferrax."""

from __future__ import annotations

import os
import runpy
import sys
import types

from ferrax._src.compat import required
from ferrax._src.compat.finder import folder
from ferrax._src.compat.install import install

USAGE = """\
usage: python -m ferrax.compat SCRIPT [ARGUMENT...]
       python -m ferrax.compat -m MODULE [ARGUMENT...]
       python -m ferrax.compat -c COMMAND [ARGUMENT...]
       python -m ferrax.compat --path
       python -m ferrax.compat --jax-version VERSION ...

Runs a program written against JAX on ferrax: `import jax` means ferrax in it. --path prints a folder
that does the same for every Python which has it in PYTHONPATH:

       PYTHONPATH="$(python -m ferrax.compat --path)" python SCRIPT

--jax-version, before what is run or before --path, says which version of JAX is followed where versions
differ, 0.10.2 or 0.12.0.1; FERRAX_JAX_VERSION in the environment does the same.
"""


def run_command(text: str) -> None:
    """As `python -c` does."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    exec(compile(text, "<string>", "exec"), main.__dict__)


def main(arguments: list[str]) -> int:
    """Runs what the arguments name. Gives the exit status where that is not the program's own.

    `sys.argv` and the first entry of `sys.path` are what they are without ferrax. The folder of `finder.PATHS` comes
    behind it, so that processes that the program starts by `multiprocessing` find the same `jax`.
    """
    version = None
    if arguments[:1] == ["--jax-version"]:
        version, arguments = (arguments[1] if len(arguments) > 1 else ""), arguments[2:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    if arguments == ["--path"]:
        required.choose(version)
        print(folder())
        return 0
    kind = arguments[0]
    if kind in ("-m", "-c") and len(arguments) < 2:
        print(f"Argument expected for the {kind} option\n{USAGE}", end="", file=sys.stderr)
        return 2
    if kind.startswith("-") and kind not in ("-m", "-c"):
        print(f"ferrax.compat knows no option {kind}\n{USAGE}", end="", file=sys.stderr)
        return 2
    install(version)
    safe = getattr(sys.flags, "safe_path", False)  # Python 3.11
    sys.path.insert(0 if safe else 1, str(folder()))
    if kind == "-c":
        sys.argv[:] = ["-c", *arguments[2:]]
        if not safe:
            sys.path[0] = ""
        run_command(arguments[1])
    elif kind == "-m":
        sys.argv[:] = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        if not safe:
            sys.path[0] = os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")
    return 0
