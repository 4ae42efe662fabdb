"""Tests the wheel that `make wheel` built with other versions of Python: `python tools/try_versions.py 3.10 3.13`.

A version is `pythonX.Y` of the PATH, where this runs, or one that pyenv or uv has installed. It gets an
environment, `.venv-X.Y`, with the wheel and what tests need (the extra `test`), and there runs `smoke.py`
and the Python suite, of which a quarter of the cases, as `make test` does; with `--smoke` only the documents of
`tests/semantics`. The first version has the oldest dependencies that `pyproject.toml` allows, others the newest.
JAX, which is the oracle of most tests, needs Python 3.11: before that those run that do without
(`tests/python/conftest.py`). A version that is not on this machine is named, and is no error unless none is, or
`--required` says so.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def candidates(version: str) -> list[str]:
    """What may be the interpreter of a version: a name on the PATH first."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    uv = pathlib.Path.home() / ".local" / "share" / "uv" / "python"
    name = f"python{version}"
    found = [shutil.which(name)]
    found += sorted(map(str, pyenv.glob(f"{version}.*/bin/{name}")), reverse=True)
    found += sorted(map(str, uv.glob(f"cpython-{version}.*/bin/{name}")), reverse=True)
    return [path for path in found if path]


def interpreter(version: str) -> str | None:
    """The first that runs, is of the version and makes environments: names of pyenv need not."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for path in candidates(version):
        done = subprocess.run([path, "-c", code], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    return None


def wheel() -> pathlib.Path:
    found = sorted((ROOT / "dist").glob("*-abi3-*.whl"))
    if len(found) != 1:
        sys.exit(f"dist/ should hold one wheel for all versions of Python, it holds {[path.name for path in found]}")
    return found[0]


def oldest() -> list[str]:
    """The package's own dependencies in the oldest versions that it allows."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[(.*)\]$", text, re.M)
    found = re.findall(r'"(\w+)>=([\d.]+)"', listed[1]) if listed else []
    if not found:
        sys.exit('pyproject.toml has no line `dependencies = ["name>=version", ...]`')
    return [f"{name}=={number}.*" for name, number in found]


def environment(version: str, path: str, pins: list[str]) -> pathlib.Path:
    """The Python of an environment with the wheel, as it is now, and what its tests need."""
    folder = ROOT / f".venv-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([path, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*install, f"{wheel()}[test]", *(pins or ["--upgrade"])], check=True)
    subprocess.run([*install, "--force-reinstall", "--no-deps", wheel()], check=True)
    return python


def test(version: str, path: str, arguments: list[str], smoke: bool, pins: list[str]) -> None:
    python = environment(version, path, pins)
    settings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    settings.setdefault("JAX_PLATFORMS", "cpu")
    print(f"Python {version} ({path}), {', '.join(pins) or 'the newest dependencies'}", flush=True)
    subprocess.run([python, "-I", ROOT / "tools" / "smoke.py"], check=True, env=settings, cwd="/")
    suite = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *arguments]
    suite += ["tests/semantics"] if smoke else []
    subprocess.run(suite, check=True, env=settings, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--required", action="store_true", help="a version that is not found is an error")
    parser.add_argument("--smoke", action="store_true", help="smoke.py and tests/semantics, without the suite")
    options, arguments = parser.parse_known_args()
    found = {version: path for version in options.versions if (path := interpreter(version))}
    missing = [version for version in options.versions if version not in found]
    for version in missing:
        print(f"Python {version} is not on this machine, it was NOT tested", flush=True)
    if not found or (missing and options.required):
        sys.exit(1)
    for version, path in found.items():
        test(version, path, arguments, options.smoke, oldest() if version == options.versions[0] else [])


if __name__ == "__main__":
    main()
