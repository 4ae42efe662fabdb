"""Tries what `make wheel` built: `python tools/try_wheel.py DIRECTORY [--from-source]`.

The directory holds one wheel and one source archive. The archive must have every source file of
the crates and of the package, and the licences. The wheel must have the licences and a module
without symbols; it is installed into an empty environment, where `smoke.py` runs outside of the
checkout. With `--from-source` a wheel built from the archive is tried in the same way. Sizes are
printed. Exits with a message that says what is wrong.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENCES = ("LICENSE", "THIRD_PARTY_LICENSES")


def only(directory: pathlib.Path, pattern: str) -> pathlib.Path:
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{directory} should hold one {pattern}, it holds {[path.name for path in found]}")
    return found[0]


def sources() -> set[str]:
    """What a build needs, by name in the checkout."""
    names = {"Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", *LICENCES}
    for pattern in ("rust/*/Cargo.toml", "rust/*/src/**/*.rs", "rust/*/build.rs", "python/**/*.py"):
        names |= {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}
    return names


def check_archive(path: pathlib.Path) -> None:
    with tarfile.open(path) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    if missing := sorted(sources() - held):
        sys.exit(f"{path.name} lacks {len(missing)} files: {', '.join(missing[:10])}")
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {len(held)} files")


def has_symbols(module: bytes) -> bool:
    """Whether an ELF file has a table of symbols beside the dynamic one."""
    return module.startswith(b"\x7fELF") and b"\0.symtab\0" in module


def check_wheel(path: pathlib.Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        sizes = {item.filename: item.file_size for item in wheel.infolist()}
        for licence in LICENCES:
            if not any(name.endswith(f".dist-info/licenses/{licence}") for name in sizes):
                sys.exit(f"{path.name} lacks {licence}")
        modules = [name for name in sizes if name.startswith("ferrax/_core.")]
        if len(modules) != 1:
            sys.exit(f"{path.name} should have one extension module, it has {modules}")
        if has_symbols(wheel.read(modules[0])):
            sys.exit(f"{path.name}: {modules[0]} is not stripped of its symbols")
    print(
        f"{path.name}: {path.stat().st_size / 1e6:.1f} MB; installed {sum(sizes.values()) / 1e6:.1f} MB,"
        f" of which the extension module {sizes[modules[0]] / 1e6:.1f} MB"
    )


def try_installed(wheel: pathlib.Path) -> None:
    """Installs the wheel into an empty environment and runs the smoke test there."""
    with tempfile.TemporaryDirectory() as directory:
        environment = pathlib.Path(directory) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True)
        smoke = (ROOT / "tools" / "smoke.py").read_text(encoding="utf-8")
        subprocess.run([python, "-I", "-c", smoke], check=True, cwd=directory)


def build_from_source(archive: pathlib.Path, directory: pathlib.Path) -> pathlib.Path:
    """The wheel of the archive. Dependencies compiled for the checkout are not compiled again."""
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", directory, archive],
        check=True, env={**os.environ, "CARGO_TARGET_DIR": target},
    )  # fmt: skip
    return only(directory, "*.whl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--from-source", action="store_true")
    options = parser.parse_args()
    wheel, archive = only(options.directory, "*.whl"), only(options.directory, "*.tar.gz")
    check_archive(archive)
    check_wheel(wheel)
    try_installed(wheel)
    if options.from_source:
        with tempfile.TemporaryDirectory() as directory:
            built = build_from_source(archive, pathlib.Path(directory))
            check_wheel(built)
            try_installed(built)


if __name__ == "__main__":
    main()
