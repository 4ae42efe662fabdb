"""Runs rows once, without timing, and compares what the libraries return.

    python benches/check.py            the first row of each family, on ferrax and NumPy
    python benches/check.py --all      all rows but first calls, on all libraries that are installed
    python benches/check.py --all pools  rows whose name, after that of their file, contains the text

It exits with 1 where a row fails or results differ by more than 2e-3 of the largest number, unless the row
says that they may: signs of eigenvectors, chaotic systems, random numbers.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import timing
from families import FAMILIES, PICKED
from report import Results

TOLERANCE = 2e-3


def leaves(value) -> list[np.ndarray]:
    """The arrays in nested lists, tuples and dicts, as wide complex numbers."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if hasattr(value, "bfloat16"):  # a tensor of PyTorch, whose bfloat16 NumPy does not take
        value = value.float() if "bfloat16" in str(value.dtype) else value
    if not hasattr(value, "shape"):
        return []
    return [np.asarray(value).astype(np.complex128)]


def differ(one, other) -> str:
    """Says how results differ, nothing if they do not."""
    if [x.shape for x in one] != [x.shape for x in other]:
        return f"shapes {[x.shape for x in one]} and {[x.shape for x in other]}"
    for x, y in zip(one, other):
        finite = np.isfinite(y)
        most = np.max(np.abs(x - y), where=finite, initial=0)
        if not np.array_equal(np.isfinite(x), finite):
            return "numbers that are not finite elsewhere"
        if most > TOLERANCE * np.max(np.abs(y), where=finite, initial=1e-30):
            return f"by up to {most:g}"
    return ""


def check(row, found) -> str:
    """Says what is wrong with a row, nothing if all is well."""
    with timing.widths(found, row.wide):
        results = {key: leaves(start()()) for key, start in row.starts(found).items()}
    if not row.alike:
        return ""
    return "; ".join(
        f"{key}: {text}" for key, value in results.items() if (text := differ(value, results["ferrax"]))
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument("only", nargs="?", default="")
    options = parser.parse_args()
    found = timing.libraries()
    if not options.all:
        found = {"ferrax": found["ferrax"]}
        timing.OTHERS = ("numpy",)
    names = [row.name for family in FAMILIES for row in family.ROWS]
    assert len(set(names)) == len(names), "two rows have one name"
    missing = sorted(set(PICKED) - set(names))
    assert not missing, f"PICKED names rows that are not there: {missing}"
    failed, results = 0, Results(FAMILIES, {})
    for family in FAMILIES:
        rows = [row for row in family.ROWS if row.starts and options.only in f"{family.__name__}: {row.name}"]
        rows = [row for row in rows if row.kind != timing.FIRST] if options.all else rows[:1]
        for row in rows:
            try:
                wrong = check(row, found)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            failed += bool(wrong)
            print(f"{family.__name__}: {row.name}: {wrong or 'ok'}", flush=True)
            results.add(family, row, {"ferrax": 1.0, "jax": 2.0})
    assert all(f"## {family.TITLE}\n" in results.page() for family in FAMILIES if list(results.rows(family)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
