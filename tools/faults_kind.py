"""What a deliberate fault is, and where sources are, for the tables of `tools/faults.py`."""

from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    # The way of computing that it is in: a name of `ferrax-ir/src/paths.rs` where there is one.
    path: str
    file: str
    text: str
    new: str
    why: str
    by: str = ""


TRANSFORM = "rust/ferrax-transform/src/"
COMPILE = "rust/ferrax-compile/src/"
X86 = "rust/ferrax-x86/src/"
LINALG = "rust/ferrax-linalg/src/"
CPU = "rust/ferrax-cpu/src/"
KERNELS = CPU + "kernels/"
VM = CPU + "vm/"
CODE = CPU + "code/"
CONTROL = CPU + "control/"
PYTHON = "python/ferrax/_src/"
TESTS = "tests/python/"
