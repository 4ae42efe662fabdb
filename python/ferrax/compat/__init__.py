"""`import jax` means ferrax: programs and libraries written against JAX, unmodified.

    python -m ferrax.compat script.py …        a script, or -m module, or -c command
    PYTHONPATH="$(python -m ferrax.compat --path)" python script.py
    import ferrax.compat; ferrax.compat.install()

Example:
    >>> import subprocess, sys
    >>> program = "import jax; print(jax.__version__, jax.numpy.arange(3))"
    >>> command = [sys.executable, "-m", "ferrax.compat", "-c", program]
    >>> subprocess.run(command, capture_output=True, text=True).stdout.split()
    ['0.10.2', '[0', '1', '2]']
"""

from ferrax._src.compat.install import (
    install as install,
    is_installed as is_installed,
    uninstall as uninstall,
)
