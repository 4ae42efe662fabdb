"""Runs the benchmarks and prints their tables in Markdown, then geometric means and the rows in which
JAX is faster.

    python benches/run.py                  all rows
    python benches/run.py --only eager     rows whose name, after that of their file, contains the text
    python benches/run.py --quick          in fewer rounds
    python benches/run.py --write          also writes docs/benchmarks.md, docs/benchmarks.png and the
                                           table of README.md, where rows that were not measured keep
                                           their figures
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time

import numpy as np
import timing
from families import FAMILIES, PICKED
from report import TABLE, Results, head, label, line


def version_of(package) -> str:
    """ferrax's `__version__` names the API it follows; the version of its own is the core's."""
    core = getattr(package, "_core", None)
    return getattr(core, "__version__", package.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of `family: row`")
    parser.add_argument("--quick", action="store_true", help="two rounds of each row")
    parser.add_argument("--write", action="store_true", help="write the tables and the picture")
    options = parser.parse_args()
    if options.quick:
        timing.most_rounds = 2
    found = timing.libraries()
    versions = {name: version_of(library.jax) for name, library in found.items()}
    versions["numpy"] = np.__version__
    if timing.torch():
        versions["torch"] = timing.torch().__version__
    # What the libraries made when they were imported is not looked at in each collection.
    gc.freeze()
    print(head(versions), flush=True)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"The machine is busy (load {load:.1f}): the figures are not fit to be kept.", file=sys.stderr)
    failed, measured, begin = False, Results(FAMILIES, {}), time.perf_counter()
    kept = Results.kept(FAMILIES)
    for family in FAMILIES:
        rows = [row for row in family.ROWS if options.only in f"{family.__name__}: {row.name}"]
        if rows:
            minutes = (time.perf_counter() - begin) / 60
            print(f"\n{family.TITLE} (after {minutes:.1f} min)\n\n{TABLE}", flush=True)
        for row in rows:
            try:
                figures = row.measure(found)
            except Exception as error:
                failed = True
                print(f"{row.name}: {type(error).__name__}: {error}", file=sys.stderr)
                print(f"| {label(row)} | failed | | | | | |", flush=True)
                continue
            print(line(row, figures), flush=True)
            for results in (measured, kept):
                results.add(family, row, figures)
    print("", *measured.means(), "", "Slower than JAX:", "", sep="\n")
    print("\n".join(f"- {text}" for text in measured.slower()))
    if options.write:
        kept.write(versions, PICKED)
        print("written: docs/benchmarks.md, docs/benchmarks.png, README.md")
    sys.exit(failed)


if __name__ == "__main__":
    main()
