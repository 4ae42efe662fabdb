"""Runs the benchmarks and prints their table in Markdown.

    python benches/run.py                  all rows
    python benches/run.py --only eager     rows whose name, after that of their file, contains the text
    python benches/run.py --write          also puts the rows into the table of README.md, where rows
                                           that were not measured keep their figures
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import sys

import collectives
import compile as compile_family
import control_flow
import convolutions
import decompositions
import dispatch
import first_calls
import fourier
import functions
import kernels
import optax_adam
import reductions
import sampling
import sorting
import training
from timing import libraries, number

START, END = "<!-- bench:start -->", "<!-- bench:end -->"
README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores"


def version_of(library) -> str:
    """ferrax's `__version__` names the API it follows; the version of its own is the core's."""
    core = getattr(library.jax, "_core", None)
    return getattr(core, "__version__", library.jax.__version__)


def label(row) -> str:
    """What the row begins with in the table, where each has another."""
    return f"{row.name} ({row.unit})" if row.unit else row.name


def line(row, figures) -> str:
    ours, theirs = figures.get("ferrax"), figures.get("jax")
    # A figure of about nothing has no ratio.
    ratio = f"{theirs / ours:,.1f}×" if ours and theirs and ours > 0.005 else "—"
    limit = row.target if row.target is not None else theirs
    if limit is None:
        target = "—"
    else:
        mark = "✓" if ours <= limit else "✗"
        text = "JAX's" if row.target is None else f"≤ {number(row.target)}"
        target = f"{text} {mark}"
    return f"| {label(row)} | {number(ours)} | {number(theirs)} | {ratio} | {target} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = libraries()
    versions = ", ".join(f"{name} {version_of(lib)}" for name, lib in found.items())
    head = [
        f"{machine()}; Python {platform.python_version()}, {versions}. Smaller is better.",
        "",
        "| | ferrax | JAX | ratio | target |",
        "|---|---:|---:|---:|---:|",
    ]
    print("\n".join(head), flush=True)
    failed, measured = False, {}
    families = (
        dispatch, compile_family, kernels, reductions, convolutions, functions, sorting, sampling,
        decompositions, fourier, first_calls, control_flow, collectives, training, optax_adam,
    )  # fmt: skip
    for family in families:
        for row in family.ROWS:
            if options.only not in f"{family.__name__}: {row.name}":
                continue
            try:
                text = line(row, row.measure(found))
            except Exception as error:
                failed = True
                print(f"{row.name}: {type(error).__name__}: {error}", file=sys.stderr)
                text = f"| {label(row)} | failed | | | |"
            print(text, flush=True)
            measured[label(row)] = text
    if options.write:
        before, rest = README.read_text(encoding="utf-8").split(START)
        table, after = rest.split(END)
        rows = {text[2:].split(" | ")[0]: text for text in table.splitlines() if text.startswith("| ")} | measured
        labels = [label(row) for family in families for row in family.ROWS]
        inside = "\n".join(head + [rows[name] for name in labels if name in rows])
        README.write_text(f"{before}{START}\n{inside}\n{END}{after}", encoding="utf-8")
        print(f"written to {README}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
