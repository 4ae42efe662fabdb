"""Machine code that is shown: as text, as a number of bytes, and to `perf`."""

import re
import sys

import numpy as np
import pytest
from machine_code import in_a_process, is_expected

import ferrax
import ferrax.numpy as jnp
from ferrax import lax


def kernel():
    return ferrax.jit(lambda x: jnp.tanh(x * 2.0) + x).lower(jnp.zeros(300_000, "float32")).compile()


def loop():
    step = lambda i, carry: carry * 1.5 + i  # noqa: E731
    return ferrax.jit(lambda x: lax.fori_loop(0, 1000, step, x)).lower(np.float32(1)).compile()


@pytest.mark.parametrize("make, what", [(kernel, "operations on blocks, of 1 arrays to 1"), (loop, "loop of")])
def test_instructions_are_shown_where_there_are_any(make, what):
    compiled = make()
    shown = compiled.as_text("asm")
    size = compiled.memory_analysis().generated_code_size_in_bytes
    if not is_expected():
        assert (shown, size) == ("; no machine code", 0)
        return
    names = re.findall(r"^; (.*), (\d+) bytes$", shown, re.M)
    assert any(what in name for name, _ in names), names
    assert sum(int(count) for _, count in names) == size > 0
    assert re.search(r"^[0-9a-f]+  ret$", shown, re.M), "a function ends"
    assert re.search(r"[xyz]mm\d", shown)
    assert "(bad)" not in shown


def test_without_machine_code_there_is_none_to_show():
    code = "import test_machine_code_text as t; print(t.kernel().as_text('asm'), t.loop().as_text('asm'))"
    assert in_a_process(code, FERRAX_CPU="vm") == "; no machine code ; no machine code\n"


def test_the_form_is_one_of_two():
    compiled = ferrax.jit(lambda x: x + 1).lower(np.float32(1)).compile()
    assert "plan of" in compiled.as_text()
    with pytest.raises(ValueError, match="expected no form, which is the plan, or 'asm', got 'hlo'"):
        compiled.as_text("hlo")


def test_what_decodes_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "iced_x86", None)
    with pytest.raises(ImportError, match=r"pip install 'ferrax\[asm\]'"):
        ferrax.jit(lambda x: x + 1).lower(np.float32(1)).compile().as_text("asm")


def test_perf_is_told_of_functions(tmp_path):
    code = (
        "import test_machine_code_text as t; "
        "print(*[f'{at:x} {len(code):x} ferrax: {name}' for c in (t.kernel(), t.loop())"
        " for name, at, code in c._program.machine_code()], sep='\\n')"
    )
    listed = in_a_process(code, FERRAX_PERF_MAP="1", TMPDIR=str(tmp_path)).split("\n")[:-1]
    maps = list(tmp_path.glob("perf-*.map"))
    if not is_expected():
        assert (listed, maps) == ([""], [])
        return
    (told,) = maps
    # Asking for a loop's code makes it once more.
    assert len(listed) == 2
    assert set(listed) <= set(told.read_text().splitlines())
    in_a_process("import test_machine_code_text as t; t.kernel()", TMPDIR=str(tmp_path))
    assert list(tmp_path.glob("perf-*.map")) == [told], "only where it is asked for"
