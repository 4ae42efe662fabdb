"""Programs in which the fuzzer of sizes found a fault, and that it finds faults of each kind.

A case is a file of `sizes_found`, which `python -m fuzz.sizes` wrote; its `note` says what was wrong. Programs run in a
process of their own, so that a crash or a hang is a failure like others.
"""

import dataclasses
import itertools
import pathlib
import re
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import ferrax  # noqa: E402
from fuzz.sizes import checks, flow, layers, reference, steps  # noqa: E402
from fuzz.sizes.__main__ import Campaign, arguments  # noqa: E402
from fuzz.sizes.bounds import Bounded, wrong  # noqa: E402
from fuzz.sizes.generate import program_of  # noqa: E402
from fuzz.sizes.program import Input, Line, Program, script  # noqa: E402
from fuzz.sizes.reference import jnp as reference_jnp  # noqa: E402
from fuzz.sizes.shrink import shrunk  # noqa: E402
from fuzz.sizes.workers import Worker  # noqa: E402


def one_line(text, shape=("d0",), dtype="float32", **changes):
    program = Program(0, {"d0": 300, "d1": 7}, (Input("x0", ("d0",), "float32"),), (Line("v0", text, shape, dtype),), ("v0",))
    return dataclasses.replace(program, **changes)


# One test, since those of a table are sampled, and a process serves them all.
def test_programs_that_failed_before(capsys):
    folder = pathlib.Path(__file__).parent / "sizes_found"
    campaign = Campaign(arguments(["--replay", str(folder)]))
    try:
        campaign.replay()
    finally:
        campaign.stop()
    assert not campaign.found, capsys.readouterr().out


@pytest.fixture
def looked_at():
    """What `checks` says of a program in this process, whose settings it changes."""
    flags = ("jax_enable_x64", "jax_num_threads", "jax_enable_checks")
    before = {name: getattr(ferrax.config, name) for name in flags}

    def look(program):
        try:
            return checks.main(program, "ferrax", lambda stage: None)["status"]
        except checks.Wrong as error:
            return error.kind

    yield look
    for name, value in before.items():
        ferrax.config.update(name, value)


def test_a_right_program_passes_in_each_mode(looked_at):
    for mode in ("plain", "donate", "vmap", "grad", "jvp"):
        assert looked_at(one_line("jnp.tanh(x0) * x0.sum()", mode=mode)) == "ok", mode


def test_wrong_values_are_found(looked_at):
    """Planted: what is not computed where the reference is."""
    assert looked_at(one_line("x0 + 1e-6 * (type(x0).__name__ != 'Bounded')")) == "wrong op by op"
    traced = "x0 + 1e-6 * ('Tracer' in type(x0).__name__)"
    assert looked_at(one_line(traced)) == "wrong jit"
    assert looked_at(one_line(traced, mode="vmap")) == "wrong op by op"
    assert looked_at(one_line("x0 if hasattr(x0, 'errors') else x0.astype(jnp.float16)")) == "wrong op by op"


def test_wrong_derivatives_are_found(looked_at):
    halved = "jnp.tanh(x0) * (1.0 if hasattr(x0, 'errors') else 0.5)"
    for mode in ("grad", "jvp"):
        assert looked_at(one_line(halved, mode=mode)) == "wrong derivative"


def test_runs_that_differ_are_found(looked_at):
    """By a rounding, which a callback draws."""
    drawn = "np.exp(v) * (1 + 1.2e-7 * np.random.random(v.shape)).astype('float32')".replace("np.", "__import__('numpy').")
    text = f"jnp.exp(x0) if type(x0).__name__ == 'Bounded' else jax.pure_callback(lambda v: {drawn}, x0, x0)"
    assert looked_at(one_line(text)) == "bits again"


def test_crashes_and_hangs_and_errors_are_found():
    worker = Worker(2, "ferrax")
    try:
        reply = worker.ask(one_line("x0 + (__import__('time').sleep(60) or 0)"), "main", limit=2.0)
        assert reply["status"] == "hang" and "jit" in reply["message"]
        assert worker.ask(one_line("x0 @ jnp.zeros((3, 3))"), "main", limit=60.0)["status"].startswith("error TypeError")
        reply = worker.ask(one_line("__import__('os').abort()"), "main", limit=60.0)
        assert reply["status"] == "crash" and "SIGABRT" in reply["message"]
    finally:
        worker.stop()


class Answering:
    """A bench of which programs get these answers, in turn; with numbers, which say how far derivatives are off."""

    def __init__(self, *statuses):
        self.statuses = itertools.cycle(statuses)

    def run(self, program, fresh=False):
        status, *off = next(self.statuses).split(" by ")
        return {"status": status, "message": "", **({"off": float(off[0])} if off else {})}


@pytest.mark.parametrize("of_jax,options,count", [(["ok"], [], 1), (["ok", "wrong jit"], [], 0), (["wrong jit"], ["--strict"], 1)])
def test_what_is_wrong_of_jax_as_well_is_not_counted(of_jax, options, count, tmp_path):
    campaign = Campaign(arguments(["--shrink", "0", "--out", str(tmp_path), *options]))
    campaign.bench, campaign.jax = Answering("wrong"), Answering(*of_jax)
    campaign.report(one_line("x0 + 1"), campaign.bench.run(None))
    assert len(campaign.found) == len(list(tmp_path.glob("*.json"))) == count


@pytest.mark.parametrize("of_jax,count", [("ok by 1e-3", 0), ("ok by 1e-6", 1)])
def test_derivatives_of_which_those_of_jax_are_as_far_off_are_not_counted(of_jax, count, tmp_path):
    campaign = Campaign(arguments(["--shrink", "0", "--out", str(tmp_path)]))
    campaign.bench, campaign.jax = Answering("wrong by 1e-4"), Answering(of_jax)
    campaign.report(one_line("x0 + 1"), campaign.bench.run(None))
    assert len(campaign.found) == count


def test_the_reference_has_what_programs_use():
    """All that the tables name, though only some programs draw it."""
    used = set()
    for module in (flow, layers, steps):
        text = pathlib.Path(module.__file__).read_text()
        used |= set(re.findall(r"\b(?:jnp|lax|jax\.nn|jax\.random|jnp\.fft|jnp\.linalg)\.[a-z]\w*", text))
    assert len(used) > 100
    missing = []
    for name in sorted(used):
        head, *rest = name.split(".")
        value = getattr(reference, head)
        for part in rest:
            value = getattr(value, part, None)
        if value is None:
            missing.append(name)
    assert not missing


def test_bounds_are_a_few_units_in_the_last_place():
    value = np.float64(1) / np.arange(1.0, 9.0)
    expected = reference_jnp.exp(Bounded(value, 0.0, "float32")) * 2.0 - 1.0
    right = (np.exp(value) * 2 - 1).astype("float32")
    assert wrong(right, expected) is None
    for place in range(8):
        off = right.copy()
        off[place] += np.float32(3e-6)
        assert f"at ({place},)" in wrong(off, expected)
    assert "instead of" in wrong(right.astype("float64"), expected)
    assert wrong(np.where(np.arange(8) == 3, np.nan, right).astype("float32"), expected) is not None


def test_a_program_is_its_seed_and_its_file():
    for seed in range(200):
        program = program_of(seed, 1 << 22, 0.3)
        assert program == program_of(seed, 1 << 22, 0.3)
        again = Program.from_json(program.to_json())
        assert (again.function(), again.outputs, again.mode) == (program.function(), program.outputs, program.mode)
        compile(script(program), "script", "exec")


def test_each_seed_has_a_program():
    """Also those whose first draw has one row more than the most that is looked at."""
    for seed in (965561254, 965561362, 965561617):
        assert program_of(seed, 64 << 20, 0.3).lines


def test_programs_are_shrunk():
    """To the one line that fails, at the least size at which it does."""
    lines = tuple(Line(f"v{n}", f"jnp.{name}({'v' if n else 'x'}{max(n - 1, 0)})", ("d0",), "float32")
                  for n, name in enumerate(["tanh", "sin", "sort", "cos"]))  # fmt: skip
    program = one_line("", lines=lines, outputs=("v1", "v3"), mode="donate")

    def run(one):
        return {"status": "crash" if "sort" in one.function() and one.dims["d0"] > 20 else "ok"}

    least = shrunk(program, "crash", run, 30.0)
    assert [line.text.split("(")[0] for line in least.lines] == ["jnp.sort"]
    assert least.mode == "plain" and least.outputs == ("v2",) and least.dims["d0"] == 21
