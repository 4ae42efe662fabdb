"""Prints the requirements of the package and of the extras of pyproject.toml that are named as
arguments, one a line.

Installing `.[extra]` would build the extension module a second time; pip reads this list instead.
"""

import pathlib
import sys

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib


def of(extras: list[str]) -> list[str]:
    """The requirements of the package and of these extras."""
    root = pathlib.Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def main(extras: list[str]) -> None:
    print("\n".join(of(extras)))


if __name__ == "__main__":
    main(sys.argv[1:])
