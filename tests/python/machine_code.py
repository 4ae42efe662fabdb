"""What tests of machine code share."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def is_expected() -> bool:
    """Whether there is machine code here."""
    cpu = pathlib.Path("/proc/cpuinfo")
    chosen = os.environ.get("FERRAX_CPU") == "vm" or os.environ.get("FERRAX_TUNING") == "huge"
    elsewhere = "FERRAX_PLATFORMS" in os.environ
    return sys.platform == "linux" and cpu.exists() and " avx2" in cpu.read_text() and not (chosen or elsewhere)


def in_a_process(code: str, **environment: str) -> str:
    """What a program prints that finds the modules of these tests."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))} | environment
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
