"""Writes docs/ops.md: the primitives and what they mean, from the op rows of the core."""

from generated import emit

from ferrax import _core

HEAD = """\
# Ops

Programs consist of these primitives; each has one row in `rust/ferrax-ir/src/ops`. This table is
generated from the rows (`make docs`).

| op | meaning |
|---|---|
"""


def main() -> None:
    rows = [f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in
            sorted(_core.documented_ops())]  # fmt: skip
    emit("docs/ops.md", HEAD + "\n".join(rows) + "\n", __doc__)


if __name__ == "__main__":
    main()
