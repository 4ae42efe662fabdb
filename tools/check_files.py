"""Checks the length of the source files that git knows: 800 lines each, 1,200 for tests.

Exits with 1 and names each file that is too long.
"""

import pathlib
import subprocess
import sys

SUFFIXES = {".rs", ".py", ".wgsl", ".sh"}
LIMIT = 800
LIMIT_TESTS = 1200


def limit_of(path: pathlib.Path) -> int:
    return LIMIT_TESTS if "tests" in path.parts else LIMIT


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    failures = []
    for name in filter(None, listed.split("\0")):
        path = pathlib.Path(name)
        if path.suffix not in SUFFIXES or not (root / path).is_file():
            continue
        with (root / path).open(encoding="utf-8") as source:
            lines = sum(1 for _ in source)
        if lines > limit_of(path):
            failures.append(f"{path}: {lines} lines, the limit is {limit_of(path)}: split the file")
    print("\n".join(failures) or "file lengths: ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
