"""Measures whether the tests catch faults: puts those of `faults_table.py` in, one at a time, and runs the tests.

All are compiled into one copy of the tree, each beside what it replaces; an environment variable says which one is
wrong in a process. So there is one build, and a fault costs no more than the tests that it takes to catch it. The test
that the table names runs first. The others run in the order of their cost: the tests of the crate with the fault, those
of the crates that use it, and, where nothing has failed, the Python suite with an extension of that copy. Without a
fault all have to pass first. A process that hangs is killed, and counts as caught.

The copy and its build are kept below cargo's target directory (`faults`), so that a second run compiles what changed.
Exits with 1 if fewer than 28 of 30 are caught, with 2 if nothing could be measured.

    tools/faults.py                    # all
    tools/faults.py run-share panels-scratch
    tools/faults.py --check            # that each is still to be found where the table says, at once
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import faults_table
from faults_kind import Fault

ROOT = pathlib.Path(__file__).resolve().parent.parent
VARIABLE = "FERRAX_FAULT"
SHARE = 28 / 30

# Crates with faults, and those whose tests see them: its own, and then those that use it.
SEEN_BY = {
    "ferrax-linalg": ("ferrax-linalg", "ferrax-cpu"),
    "ferrax-transform": ("ferrax-transform", "ferrax-compile", "ferrax-cpu", "ferrax"),
    "ferrax-compile": ("ferrax-compile", "ferrax-cpu", "ferrax"),
    "ferrax-x86": ("ferrax-x86", "ferrax-cpu", "ferrax"),
    "ferrax-cpu": ("ferrax-cpu", "ferrax"),
}

# Of the Python suite these run first: they have arrays large enough for most ways of computing.
FIRST = (
    "row_runs", "segments", "attention_blocks", "long_sums", "large_programs", "picks", "scan_products",
    "moves", "carries", "products", "runs_at_size", "paths", "sum_order", "threads", "tuning", "sizes_found",
)  # fmt: skip

# A program gets so many times what it takes without a fault, and this many seconds at least.
SLOWER, LEAST = 10, 120
# Bytes of addresses that a process gets: a fault may ask for any number.
MEMORY = 16 << 30

# Whether a fault is the one that the variable names. In each crate with faults.
ASKED = f"""
/// Whether the fault of this number is asked for.
#[inline(always)]
pub(crate) fn faulty(number: u32) -> bool {{
    let asked = FAULT.load(std::sync::atomic::Ordering::Relaxed);
    number == if asked == u32::MAX {{ asked_fault() }} else {{ asked }}
}}

static FAULT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(u32::MAX);

#[cold]
fn asked_fault() -> u32 {{
    let asked = std::env::var("{VARIABLE}").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    FAULT.store(asked, std::sync::atomic::Ordering::Relaxed);
    asked
}}
"""


class Unmeasured(Exception):
    """Nothing can be said of the faults."""


def is_python(fault: Fault) -> bool:
    return fault.file.endswith(".py")


def crate_of(fault: Fault) -> str:
    return pathlib.PurePath(fault.file).parts[1]


def parts(fault: Fault) -> tuple[str, str, str]:
    """What stands before the marked text, that text, and what stands behind it."""
    before, _, rest = fault.text.partition("«")
    marked, _, behind = rest.partition("»")
    return before, marked, behind


def problems() -> list[str]:
    """What is wrong with the table."""
    found = []
    names = [fault.name for fault in faults_table.FAULTS]
    found += [f"{name}: two faults have this name" for name in sorted({n for n in names if names.count(n) > 1})]
    for fault in faults_table.FAULTS:
        before, marked, behind = parts(fault)
        text = before + marked + behind
        if fault.text.count("«") != 1 or fault.text.count("»") != 1 or not marked:
            found.append(f"{fault.name}: its text should have one part between « and »")
        elif not (ROOT / fault.file).is_file():
            found.append(f"{fault.name}: there is no {fault.file}")
        elif (count := (ROOT / fault.file).read_text(encoding="utf-8").count(text)) != 1:
            found.append(f"{fault.name}: {text!r} should occur once in {fault.file}, it does {count} times")
        elif not is_python(fault) and crate_of(fault) not in SEEN_BY:
            found.append(f"{fault.name}: tools/faults.py does not know which tests see {crate_of(fault)}")
        file, _, test = fault.by.partition("::")
        name = test.partition("[")[0]
        if fault.by and not ((ROOT / file).is_file() and f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")):
            found.append(f"{fault.name}: there is no test {fault.by}")
    return found


def switched(fault: Fault, number: int) -> str:
    """The text of the fault with both what is right and what is wrong."""
    before, marked, behind = parts(fault)
    if is_python(fault):
        asked = f'__import__("os").environ.get("{VARIABLE}") == "{number}"'
        return f"{before}(({fault.new}) if {asked} else ({marked})){behind}"
    if marked.endswith(";"):
        return f"{before}if crate::faulty({number}) {{ {fault.new} }} else {{ {marked} }}{behind}"
    return f"{before}(if crate::faulty({number}) {{ {fault.new} }} else {{ {marked} }}){behind}"


def write_changed(path: pathlib.Path, content: bytes) -> None:
    """Files that stay as they are keep their times: cargo goes by these."""
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def copy_tree(tree: pathlib.Path) -> None:
    """The tree as git knows it, with all faults."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    contents = {}
    for number, fault in enumerate(faults_table.FAULTS, 1):
        text = contents.get(fault.file) or (ROOT / fault.file).read_text(encoding="utf-8")
        contents[fault.file] = text.replace("".join(parts(fault)), switched(fault, number))
    for crate in {crate_of(fault) for fault in faults_table.FAULTS if not is_python(fault)}:
        library = f"rust/{crate}/src/lib.rs"
        text = contents.get(library) or (ROOT / library).read_text(encoding="utf-8")
        contents[library] = "#![allow(unused_parens, unused_assignments)]\n" + text + ASKED
    for name in names:
        content = contents[name].encode() if name in contents else (ROOT / name).read_bytes()
        write_changed(tree / name, content)
        shutil.copymode(ROOT / name, tree / name)
    kept = {tree / name for name in names}
    for folder in ("rust", "python", "tests"):
        for path in (tree / folder).rglob("*"):
            # What tests and builds make stays: extension modules and results that are kept.
            if path.suffix in (".rs", ".py") and path not in kept:
                path.unlink()


def limit_process() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def watch(command, folder, env, seconds, failed: re.Pattern, go_on: bool) -> tuple[list[str], int]:
    """Runs a program until a line says that a test failed (or to its end): those tests, and how it ended.

    It ends with a signal's number below 0; a process that is killed for its time gives a line that says so.
    """
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        text=True, errors="replace", start_new_session=True, preexec_fn=limit_process,
    )  # fmt: skip
    late = threading.Event()

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def give_up() -> None:
        late.set()
        stop()

    timer = threading.Timer(seconds, give_up)
    timer.start()
    tests = []
    try:
        for line in process.stdout:
            if match := failed.search(line):
                tests.append(match[1] or match[0])
                if not go_on:
                    break
    finally:
        timer.cancel()
        stop()
        process.stdout.close()
        code = process.wait()
    if late.is_set():
        tests.append(f"no end within {seconds:.0f} s")
    return tests, code


class Program(NamedTuple):
    """A test program of a crate."""

    crate: str
    name: str
    path: str
    folder: pathlib.Path


RUST_FAILED = re.compile(r"^test (\S+) .*\bFAILED$")
PYTHON_FAILED = re.compile(r"^(?:\[gw\d+\] )?(?:FAILED|ERROR) (\S+)|worker '(gw\d+)' crashed")


class Rust:
    """The tests of the crates."""

    def __init__(self, tree: pathlib.Path, build: pathlib.Path):
        self.tree, self.env = tree, os.environ | {"CARGO_TARGET_DIR": str(build)}
        self.env.pop(VARIABLE, None)
        self.seconds: dict[str, float] = {}

    def build(self, crates: list[str]) -> None:
        command = ["cargo", "test", "--locked", "--no-run", "--lib", "--tests", "--message-format", "json"]
        command += [option for crate in crates for option in ("-p", crate)]
        done = subprocess.run(command, cwd=self.tree, env=self.env, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise Unmeasured("the crates with the faults do not compile")
        self.programs = []
        for message in map(json.loads, done.stdout.splitlines()):
            if message.get("reason") == "compiler-artifact" and message.get("executable"):
                folder = pathlib.Path(message["manifest_path"]).parent
                crate, name = folder.name, message["target"]["name"]
                self.programs.append(Program(crate, f"{crate}::{name}", message["executable"], folder))

    def run(self, program: Program, number: int, seconds: float, go_on: bool) -> list[str]:
        env = self.env | {VARIABLE: str(number), "CARGO_MANIFEST_DIR": str(program.folder), "RUST_BACKTRACE": "0"}
        began = time.monotonic()
        tests, code = watch([program.path], program.folder, env, seconds, RUST_FAILED, go_on)
        self.seconds.setdefault(program.name, time.monotonic() - began)
        if code and not tests:
            tests = [f"signal {-code}" if code < 0 else f"exit status {code}"]
        return [f"{program.name} {test}" for test in tests]

    def baseline(self) -> None:
        for program in self.programs:
            failed = self.run(program, 0, 3600, go_on=True)
            print(f"  {program.name:40} {self.seconds[program.name]:6.1f} s", flush=True)
            if failed:
                raise Unmeasured(f"without a fault these fail: {', '.join(failed)}")

    def caught_by(self, fault: Fault, number: int, go_on: bool) -> list[str]:
        """The tests that fail: the first one, or all."""
        order = SEEN_BY[crate_of(fault)]
        programs = [program for program in self.programs if program.crate in order]
        programs.sort(key=lambda program: (order.index(program.crate), self.seconds[program.name]))
        failed = []
        for program in programs:
            seconds = max(LEAST, SLOWER * self.seconds[program.name])
            failed += self.run(program, number, seconds, go_on)
            if failed and not go_on:
                break
        return failed


class Python:
    """The Python suite."""

    def __init__(self, tree: pathlib.Path, build: pathlib.Path):
        self.tree, self.target = tree, build
        changes = {"PYTHONPATH": str(tree / "python"), "CARGO_TARGET_DIR": str(build)}
        # Without the optimisation of the whole, which takes longest and changes no result.
        cheap = {"CARGO_PROFILE_RELEASE_LTO": "off", "JAX_PLATFORMS": "cpu"}
        self.env = cheap | os.environ | changes
        self.env.pop(VARIABLE, None)
        self.seconds = 3600.0

    def build(self) -> None:
        command = ["cargo", "build", "-q", "--release", "--locked", "-p", "ferrax-python", "--lib"]
        command += ["--features", "pyo3/abi3-py310"]
        env = self.env | {"PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_PYTHON": sys.executable}
        if subprocess.run(command, cwd=self.tree, env=env).returncode:
            raise Unmeasured("the extension with the faults does not compile")
        module = self.tree / "python/ferrax/_core.abi3.so"
        shutil.copyfile(self.target / "release/lib_core.so", module.with_suffix(".new"))
        module.with_suffix(".new").replace(module)
        # Some tests ask git which files there are.
        for command in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", *command], cwd=self.tree, check=True)

    def run(self, tests: list[str], number: int, go_on: bool) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
        command += ["--tb=no", "-rfE", *([] if go_on else ["-x"]), *tests]
        env = self.env | {VARIABLE: str(number)}
        failed, code = watch(command, self.tree, env, self.seconds, PYTHON_FAILED, go_on)
        return failed or ([f"pytest ended with {code}"] if code else [])

    def baseline(self, tests: list[str]) -> None:
        began, self.seconds = time.monotonic(), 3600.0
        if failed := self.run(tests, 0, go_on=True):
            raise Unmeasured(f"without a fault these fail: {', '.join(failed)}")
        self.seconds = max(LEAST, 3 * (time.monotonic() - began))

    def caught_by(self, number: int, go_on: bool) -> list[str]:
        first = [] if go_on else self.run([f"tests/python/test_{name}.py" for name in FIRST], number, go_on)
        return first or self.run([], number, go_on)


def measure(faults: dict[int, Fault], rust_only: bool, keep_going: bool) -> int:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve() / "faults"
    tree, build = target / "tree", target / "build"
    print(f"copying the tree to {tree}", flush=True)
    copy_tree(tree)
    caught: dict[int, tuple[list[str], float]] = {}

    def note(number: int, tests: list[str], began: float) -> None:
        fault, seconds = faults[number], time.monotonic() - began
        caught[number] = (tests, caught.get(number, ([], 0.0))[1] + seconds)
        width = max(len(fault.name) for fault in faults.values())
        what = "; ".join(tests) if tests else "nothing"
        print(f"{len(caught):3}/{len(faults)} {fault.name:{width}} {seconds:7.1f} s  {what}", flush=True)

    python = Python(tree, build)
    named = {} if rust_only or keep_going else {number: fault.by for number, fault in faults.items() if fault.by}
    if named:
        python.build()
        python.baseline(sorted(set(named.values())))
        for number, test in named.items():
            began = time.monotonic()
            if tests := python.run([test], number, keep_going):
                note(number, tests, began)
    native = {number: fault for number, fault in faults.items() if number not in caught and not is_python(fault)}
    if native:
        rust = Rust(tree, build)
        rust.build(sorted({crate for fault in native.values() for crate in SEEN_BY[crate_of(fault)]}))
        print("without a fault:", flush=True)
        rust.baseline()
        for number, fault in native.items():
            began = time.monotonic()
            note(number, rust.caught_by(fault, number, keep_going), began)
    left = [number for number in faults if not caught.get(number, ([], 0.0))[0]]
    if not rust_only and left:
        print(f"Python: {len(left)} faults are left", flush=True)
        if not named:
            python.build()
        python.baseline([])
        for number in left:
            began = time.monotonic()
            note(number, python.caught_by(number, keep_going), began)
    missed = [fault for number, fault in faults.items() if number in caught and not caught[number][0]]
    for fault in missed:
        print(f"NOT CAUGHT {fault.name} ({fault.path}, {fault.file}): {fault.why}")
    count = len(caught) - len(missed)
    print(f"{count} of {len(caught)} caught")
    return int(count < SHARE * len(caught))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="faults of the table; all if none is named")
    parser.add_argument("--list", action="store_true", help="show the table")
    parser.add_argument("--check", action="store_true", help="only that each is to be found in its file")
    parser.add_argument("--rust-only", action="store_true", help="without the Python suite")
    parser.add_argument("--keep-going", action="store_true", help="find all tests that catch a fault")
    options = parser.parse_args()
    known = {fault.name: number for number, fault in enumerate(faults_table.FAULTS, 1)}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"there is no fault {', '.join(unknown)}")
    if options.list:
        for fault in faults_table.FAULTS:
            print(f"{fault.name:28} {fault.path:34} {fault.file}\n    {fault.why}")
        return 0
    if found := problems():
        print("\n".join(found), file=sys.stderr)
        return 2
    if options.check:
        print(f"faults: {len(known)}, all to be found")
        return 0
    chosen = {known[name]: faults_table.FAULTS[known[name] - 1] for name in options.names or known}
    try:
        return measure(chosen, options.rust_only, options.keep_going)
    except Unmeasured as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
