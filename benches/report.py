"""What a run of the benchmarks is written to: figures, tables in Markdown, and a picture.

In: the rows by family and their figures. Out: `benches/results.json` (the figures), `docs/benchmarks.md`
(a table for each family), `docs/benchmarks.png` (JAX's time by ferrax's of each row), and the part of
README.md between its marks.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import platform

from timing import FIRST, OTHER, SHAPE, WARM, number

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "benchmarks.png"
README = ROOT / "README.md"
START, END = "<!-- bench:start -->", "<!-- bench:end -->"
COLUMNS = {"ferrax": "ferrax", "jax": "JAX", "numpy": "NumPy", "torch": "PyTorch"}


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores"


def head(versions) -> str:
    """The line above the tables: where and with what they were measured."""
    libraries = ", ".join(f"{COLUMNS[key]} {version}" for key, version in versions.items())
    return f"{machine()}; Python {platform.python_version()}, {libraries}. Smaller is better."


def ratio(figures) -> float | None:
    """JAX's figure by ferrax's; a figure of about nothing has none."""
    ours, theirs = figures.get("ferrax"), figures.get("jax")
    return theirs / ours if ours and theirs and ours > 0.005 else None


def reached(row, figures) -> bool | None:
    """Whether ferrax is where the row wants it."""
    if row.target is not None:
        return figures["ferrax"] <= row.target
    if figures.get("jax") is None:
        return None
    if not figures["ferrax"]:
        return True
    return figures["jax"] / figures["ferrax"] >= row.goal


def label(row) -> str:
    return f"{row.name} ({row.unit})" if row.unit else row.name


TABLE = (
    f"| | {' | '.join(COLUMNS.values())} | JAX / ferrax | goal |\n"
    f"|---|{'---:|' * (len(COLUMNS) + 2)}"
)


def line(row, figures) -> str:
    """The row of a table."""
    good, times = reached(row, figures), ratio(figures)
    mark = "—" if good is None else "✓" if good else "✗"
    goal = f"≤ {number(row.target)}" if row.target is not None else f"{row.goal:g}×"
    return "| " + " | ".join([
        label(row),
        *(number(figures.get(key)) for key in COLUMNS),
        f"{number(times)}×" if times else "—",
        f"{goal} {mark}",
    ]) + " |"  # fmt: skip


def mean(ratios) -> float | None:
    """The geometric mean."""
    logarithms = [math.log(x) for x in ratios]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


class Results:
    """The figures of all rows, by family and name; `families` is what the rows are in."""

    def __init__(self, families, kept):
        self.families = families
        self.head = kept.get("head", "")
        self.figures = kept.get("figures", {})

    @classmethod
    def kept(cls, families):
        """Those of the last run that was written."""
        return cls(families, json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {})

    def add(self, family, row, figures):
        self.figures.setdefault(family.__name__, {})[row.name] = {
            key: float(f"{figures[key]:.4g}") for key in COLUMNS if key in figures
        }

    def rows(self, *families):
        """Each row that was measured, and its figures, in the order of the tables."""
        for family in families or self.families:
            of_family = self.figures.get(family.__name__, {})
            for row in family.ROWS:
                if row.name in of_family:
                    yield row, of_family[row.name]

    def ratios(self, *families, kinds=(WARM, FIRST, SHAPE)) -> list[float]:
        rows = self.rows(*families)
        found = [ratio(figures) for row, figures in rows if row.kind in kinds]
        return [value for value in found if value]

    def summary(self) -> list[str]:
        """The geometric means of each kind of figure, and how many rows are slower than JAX."""
        lines = []
        for kind in (WARM, FIRST, SHAPE):
            ratios = self.ratios(kinds=(kind,))
            if ratios:
                slower = sum(value < 1 for value in ratios)
                lines.append(f"{kind}: {number(mean(ratios))}× over {len(ratios)} rows, {slower} slower than JAX")
        return lines

    def slower(self) -> list[str]:
        """The rows in which JAX is faster, the farthest first."""
        found = [
            (value, f"{family.TITLE}: {row.name}: {value:.2f}×")
            for family in self.families
            for row, figures in self.rows(family)
            if row.kind != OTHER and (value := ratio(figures)) and value < 1
        ]
        return [text for _, text in sorted(found)]

    def short(self) -> list[str]:
        """A row a family: how many there are, the mean ratio, the least and the greatest."""
        lines = ["| | rows | mean | least | greatest |", "|---|---:|---:|---:|---:|"]
        for family in self.families:
            ratios = self.ratios(family)
            if ratios:
                cells = " | ".join(f"{number(x)}×" for x in (mean(ratios), min(ratios), max(ratios)))
                lines.append(f"| {family.TITLE} | {len(ratios)} | {cells} |")
        return lines

    def write(self, versions, picked):
        """All files; `picked` are the names of README's rows."""
        self.head = head(versions)
        # Rows that are no longer there go.
        self.figures = {
            family.__name__: {row.name: figures for row, figures in self.rows(family)}
            for family in self.families
            if family.__name__ in self.figures
        }
        kept = {"head": self.head, "figures": self.figures}
        RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
        PAGE.write_text(self.page(), "utf-8")
        before, rest = README.read_text("utf-8").split(START)
        after = rest.split(END)[1]
        inside = "\n".join([self.head, "", TABLE, *self.picked(picked), "", *self.means()])
        README.write_text(f"{before}{START}\n{inside}\n{END}{after}", "utf-8")
        self.draw()

    def means(self) -> list[str]:
        return [
            "Geometric mean of JAX's time by ferrax's:", "", *(f"- {text}" for text in self.summary())
        ]  # fmt: skip

    def picked(self, names) -> list[str]:
        measured = {row.name: line(row, figures) for row, figures in self.rows()}
        return [measured[name] for name in names if name in measured]

    def page(self) -> str:
        parts = [
            "# Benchmarks", "",
            "Written by `make bench BENCH_ARGS=--write`. The libraries run in one process, in turns, "
            "on all cores; a figure is the best round's median. Functions of ferrax and JAX are the same "
            "text, jitted; NumPy and PyTorch run their own counterpart, eagerly, where there is one. A "
            "goal is how many times less than JAX's ferrax's figure is meant to be, or the greatest it is "
            "meant to be.",
            "", self.head, "", *self.means(), "",
            "![JAX's time by ferrax's, of each row](benchmarks.png)", "", *self.short(), "",
        ]  # fmt: skip
        for family in self.families:
            lines = [line(row, figures) for row, figures in self.rows(family)]
            if lines:
                parts += [f"## {family.TITLE}", "", TABLE, *lines, ""]
        return "\n".join(parts)

    def draw(self):
        """The picture: a bar for each row, to the right where ferrax is faster."""
        import picture

        groups = []
        for family in self.families:
            bars = [
                (row.name.replace("`", ""), value)
                for row, figures in self.rows(family)
                if row.kind != OTHER and (value := ratio(figures))
            ]
            if bars:
                groups.append((family.TITLE, bars))
        picture.draw(groups, PICTURE, self.head.removesuffix(" Smaller is better."))
