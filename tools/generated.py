"""What the generators of documents share: `--write` writes, `--check` fails if a file is stale."""

from __future__ import annotations

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def emit(name: str, text: str, description: str) -> None:
    """Writes, checks or prints `text` as the file `name`, as the command line asks."""
    parser = argparse.ArgumentParser(description=description)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--write", action="store_true", help=f"write {name}")
    choice.add_argument("--check", action="store_true", help=f"fail unless {name} is current")
    options = parser.parse_args()
    path = ROOT / name
    if options.write:
        path.write_text(text, encoding="utf-8")
    elif options.check:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is stale: run `make docs`")
        print(f"{name}: current")
    else:
        print(text, end="")
