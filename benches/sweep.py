"""Times public functions and their derivatives at a thousand, 30,000 and a million elements, beside JAX.

    python benches/sweep.py                  all cases: some twenty minutes
    python benches/sweep.py --only fft       those whose name contains the text
    python benches/sweep.py --sizes 3e4      at this size alone
    python benches/sweep.py --write          also writes docs/sweep.md

Each function is jitted and called for arrays on the device, by both libraries in turns; a figure is the best of the
rounds, of which there are more where JAX is faster.
A line has JAX's time by ferrax's, of the function and of the gradient of the sum of its squares. Then come those of
less than two thirds, and those whose time grows faster with the size than JAX's.
"""

from __future__ import annotations

import argparse
import gc
import math
import pathlib
import sys
import time

import timing
from report import head
from sweep_cases import CASES

SIZES = (1_000, 30_000, 1_000_000)
PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "sweep.md"
# A function is behind where it takes more than this many times what JAX takes.
BEHIND = 1.5
# Seconds of a sample, and how many of them there are.
SAMPLE, ROUNDS = 0.004, 4


def derivative(case):
    """The gradient of the sum of all that a case's function returns, by its first arrays."""

    def run(library, *values):
        def total(*first):
            leaves = library.jax.tree_util.tree_leaves(case.function(library, *first, *values[case.gradient :]))
            floats = [leaf for leaf in leaves if library.jnp.issubdtype(leaf.dtype, library.jnp.floating)]
            return sum(library.jnp.sum(leaf * leaf) for leaf in floats)

        return library.jax.grad(total, tuple(range(case.gradient)))(*values[: case.gradient])

    return run


def measured(function, arrays, found) -> dict[str, float]:
    """Seconds of a call, by library."""
    calls = {key: timing.compiled(arrays, function)(library) for key, library in found.items()}
    inner = {}
    for key, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        inner[key] = max(1, round(SAMPLE / max(time.perf_counter() - start, 1e-7)))
    best = dict.fromkeys(calls, math.inf)
    for number in range(3 * ROUNDS):
        # Where JAX is faster, more rounds say whether it was the machine.
        if number >= ROUNDS and best["jax"] >= best["ferrax"]:
            break
        for key, call in calls.items():
            # Threads of the other library go to sleep.
            time.sleep(0.002)
            call()
            start = time.perf_counter()
            for _ in range(inner[key]):
                call()
            best[key] = min(best[key], (time.perf_counter() - start) / inner[key])
    return best


def rows(case, sizes, found):
    """`(what, {size: seconds by library})` of a case."""
    kinds = [("", case.function)]
    if case.gradient:
        kinds.append(("gradient", derivative(case)))
    for kind, function in kinds:
        figures = {}
        for size in sizes:
            if size <= case.most:
                figures[size] = measured(function, case.arrays(size), found)
        yield kind, figures


def cell(figure) -> str:
    return f"{timing.number(figure['ferrax'] * 1e6)} | {figure['jax'] / figure['ferrax']:.2f}×" if figure else "— | —"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--sizes", default="", help="numbers of elements, with commas between")
    parser.add_argument("--write", action="store_true", help="write docs/sweep.md")
    options = parser.parse_args()
    sizes = tuple(int(float(size)) for size in options.sizes.split(",")) if options.sizes else SIZES
    found = timing.libraries()
    gc.freeze()
    versions = {name: library.jax.__version__ for name, library in found.items()}
    columns = "".join(f" {size:,}: µs | JAX / ferrax |" for size in sizes)
    table = [f"| |{columns}", f"|---|{'---:|---:|' * len(sizes)}"]
    print(head(versions), "", *table, sep="\n", flush=True)
    ratios, failed, slower, growing = [], [], [], []
    for case in CASES:
        if options.only not in case.name:
            continue
        try:
            for kind, figures in rows(case, sizes, found):
                name = f"{case.name}, {kind}" if kind else case.name
                line = f"| {name} | " + " | ".join(cell(figures.get(size)) for size in sizes) + " |"
                print(line, flush=True)
                table.append(line)
                each = {size: figure["jax"] / figure["ferrax"] for size, figure in figures.items()}
                ratios += each.values()
                slower += [(ratio, f"{name} at {size:,}") for size, ratio in each.items() if ratio < 1 / BEHIND]
                lasting = [ratio for size, ratio in each.items() if size >= 30_000]
                if len(lasting) == 2 and lasting[1] < lasting[0] / 2 and lasting[1] < 1:
                    growing.append(f"{name}: {lasting[0]:.2f}×, then {lasting[1]:.2f}×")
        except Exception as error:
            failed.append(f"{case.name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            print(failed[-1], file=sys.stderr, flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    summary = [
        f"{len(ratios)} figures of {len(table) - 2} rows: {mean:.2f}× by geometric mean, "
        f"{sum(ratio < 1 for ratio in ratios)} slower than JAX, {len(slower)} by more than {BEHIND}×.",
        "", f"Behind JAX by more than {BEHIND}×:", "",
        *(f"- {name}: {ratio:.2f}×" for ratio, name in sorted(slower)),
        "", "Growing faster with the size than JAX, and behind it:", "", *(f"- {text}" for text in growing),
    ]  # fmt: skip
    print("", *summary, sep="\n")
    if options.write:
        intro = "# Public functions beside JAX\n\nWritten by `python benches/sweep.py --write`: jitted, warm, "
        intro += "the function and the gradient of the sum of its squares.\n"
        PAGE.write_text("\n".join([intro, head(versions), "", *summary, "", *table, ""]), encoding="utf-8")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
