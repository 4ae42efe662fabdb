"""The page on foreign functions: each of its handlers is built as it stands, and its Python runs with each, on ferrax and
on JAX."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from test_ffi_rust import cargo_build

import ferrax

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "foreign_functions.md").read_text(encoding="utf-8")


def block(language):
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.S | re.M)
    return text


def c(folder):
    (folder / "scaled.c").write_text(block("c"))
    header = pathlib.Path(ferrax.__file__).parent / "include"
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{header}", "scaled.c", "-o", "libscaled.so"]
    subprocess.run(command, check=True, cwd=folder)


def cpp(folder):
    (folder / "scaled.cc").write_text(block("cpp"))
    options = ["-std=c++17", "-w", "-shared", "-fPIC", f"-I{ferrax.ffi.include_dir()}"]
    subprocess.run(["g++", *options, "scaled.cc", "-o", "libscaled.so"], check=True, cwd=folder)


def rust(folder):
    manifest = block("toml").replace("../ferrax/rust", (ROOT / "rust").as_posix())
    (folder / "Cargo.toml").write_text(manifest)
    (folder / "src").mkdir()
    (folder / "src" / "lib.rs").write_text(block("rust"))
    (folder / "libscaled.so").write_bytes(cargo_build(folder / "Cargo.toml", "scaled").read_bytes())


@pytest.mark.parametrize("language", [c, cpp, rust], ids=lambda language: language.__name__)
def test_handlers_of_the_page(language):
    folder = pathlib.Path(tempfile.mkdtemp())
    language(folder)
    expected = str(np.arange(3, dtype=np.float32) * 2)
    for package in ("ferrax", "jax"):
        imports = f"import {package} as jax, {package}.ffi, {package}.numpy as jnp, numpy as np\njax.devices()\n"
        done = subprocess.run(
            [sys.executable, "-c", imports + block("python")], cwd=folder, capture_output=True, text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=False,
        )  # fmt: skip
        assert done.stdout.strip() == expected, (package, done.stderr)
