"""The picture of the ratios: a bar for each row on a logarithmic scale, grouped by family, in columns."""

from __future__ import annotations

from timing import number

COLUMNS = 3
FASTER, SLOWER, LINE = "#2a7f62", "#c8553d", "#333333"


def _lines(group):
    """A group takes a line for its title and one for a gap."""
    return len(group[1]) + 2


def _columns(groups):
    """The groups in columns, in their order, so that the longest column is as short as it can be."""
    height = max(map(_lines, groups))
    while True:
        columns = [[]]
        for group in groups:
            if columns[-1] and sum(map(_lines, columns[-1])) + _lines(group) > height:
                columns.append([])
            columns[-1].append(group)
        if len(columns) <= COLUMNS:
            return columns
        height += 1


def draw(groups, path, head):
    """Writes the picture of `groups`, a list of a title and its (label, ratio) pairs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = _columns(groups)
    rows = max(sum(map(_lines, column)) for column in columns)
    ratios = [value for _, bars in groups for _, value in bars]
    least, greatest = min(0.5, *ratios), max(2.0, *ratios)
    figure, axes = pyplot.subplots(
        1, len(columns), figsize=(7.5 * len(columns), 0.17 * rows + 1.2), squeeze=False
    )
    for axis, column in zip(axes[0], columns):
        place, places, labels = 0, [], []
        for title, bars in column:
            axis.text(
                0.0, place, title, transform=axis.get_yaxis_transform(), fontsize=9,
                fontweight="bold", va="center", ha="left",
            )  # fmt: skip
            for name, value in bars:
                place += 1
                color = FASTER if value >= 1 else SLOWER
                axis.barh(place, value - 1, left=1, height=0.75, color=color)
                axis.text(
                    value * (1.06 if value >= 1 else 0.94), place, f"{number(value)}×", fontsize=6,
                    va="center", ha="left" if value >= 1 else "right",
                )  # fmt: skip
                places.append(place)
                labels.append(name if len(name) < 58 else name[:56] + "…")
            place += 2
        axis.set_xscale("log")
        axis.set_xlim(least / 2.5, greatest * 3)
        axis.set_ylim(rows - 0.5, -1)
        axis.axvline(1, color=LINE, linewidth=1)
        axis.set_yticks(places, labels, fontsize=6.5)
        axis.tick_params(axis="y", length=0)
        axis.tick_params(axis="x", labelsize=8, top=True, labeltop=True)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        for side in ("left", "right"):
            axis.spines[side].set_visible(False)
    figure.suptitle(f"JAX's time by ferrax's: to the right of 1, ferrax is faster\n{head}", fontsize=11)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.5 / (0.17 * rows + 1.2)))
    figure.savefig(path, dpi=80, pil_kwargs={"optimize": True})
    pyplot.close(figure)
