# Every target sets up what it needs in .venv; the extension module is built once and again
# only when its sources changed. Needs: Python ≥ 3.10 with venv, Rust (cargo).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The environment of all commands; the target directory of cargo can be set from outside.
export VIRTUAL_ENV := $(abspath $(VENV))
export PATH := $(abspath $(BIN)):$(PATH)
export JAX_PLATFORMS ?= cpu
unexport PYTHONPATH
TARGET := $(or $(CARGO_TARGET_DIR),target)

RUST_SOURCES := $(shell find rust -type f \( -name '*.rs' -o -name Cargo.toml -o -name '*.txt' \))
BUILT := $(VENV)/.built

.PHONY: run examples test test-rust test-tiny test-gpu test-python test-torch test-all test-versions test-aarch64 oracle sanitize sanitize-python fuzz fuzz-sizes faults wheel bench sweep bench-gpu lint docs docs-check build clean help

help:
	@echo "make run         train a classifier of digits, then run it from Rust"
	@echo "make examples    programs of several fields, at small size, each with a checked result and a picture"
	@echo "make test        tests of the Rust crates and of the Python package, a quarter of all cases"
	@echo "make test-tiny   the same where each way of computing is taken from a few elements on; TINY_ARGS=--few, =--exhaustive"
	@echo "make test-gpu    tests on a GPU, or on Mesa's software one (Debian: mesa-vulkan-drivers, libvulkan1)"
	@echo "make test-ecosystem  libraries that import jax, on ferrax: Optax, Haiku, BlackJAX, ...; the newest on Python 3.12"
	@echo "make test-torch  exchange with PyTorch, which is installed (without CUDA: TORCH_PIP='--index-url https://download.pytorch.org/whl/cpu')"
	@echo "make test-all    every case of every table, then sanitize, then fuzz for some seconds"
	@echo "make test-versions  the wheel of make wheel on Python 3.10 and 3.13, where they are installed"
	@echo "make test-aarch64  the Rust crates built for aarch64 Linux, their tests under qemu-user"
	@echo "make oracle      the results of JAX that tests compare with, computed and kept anew"
	@echo "make sanitize-python  tests at large sizes with the extension module under AddressSanitizer"
	@echo "make sanitize    tests of ferrax-cpu and ferrax-ffi under AddressSanitizer and, where it is installed, Miri"
	@echo "make fuzz MINUTES=n  n minutes of each fuzz target, or of FUZZ_TARGETS=\"file text\""
	@echo "make fuzz-sizes MINUTES=n  n minutes of random programs in Python, up to 64 MiB; FUZZ_ARGS=\"--seed 5 --count 1\""
	@echo "make faults      puts deliberate faults in, and measures whether tests catch them; FAULTS_ARGS=--rust-only"
	@echo "make wheel       a wheel and a source archive in dist/, tried in an empty environment"
	@echo "make bench       benchmark tables, beside JAX, NumPy and PyTorch; BENCH_ARGS=--write keeps them"
	@echo "make sweep       public functions and their derivatives beside JAX at three sizes; SWEEP_ARGS=--write keeps them"
	@echo "make bench-gpu   the same on a GPU, beside JAX and PyTorch where these have one"
	@echo "make lint        formatting, lints, types, file lengths, layers, text that is not our own"
	@echo "make docs        write the generated documents"
	@echo "make docs-check  check that they are current, help and types of public names, that README and pages of docs/ run"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra of pyproject.toml; `tools` is what the build itself needs.
$(VENV)/.tools: $(BIN)/python
	$(BIN)/python -m pip install -q 'maturin>=1.9,<2'
	@touch $@

$(VENV)/.extra-%: pyproject.toml tools/requirements.py | $(BIN)/python
	$(BIN)/python tools/requirements.py $* > $(VENV)/requirements-$*.txt
	$(BIN)/python -m pip install -q -r $(VENV)/requirements-$*.txt
	@touch $@

$(BUILT): $(RUST_SOURCES) Cargo.toml Cargo.lock pyproject.toml | $(VENV)/.tools
	$(BIN)/maturin develop --release --locked
	@touch $@

build: $(BUILT)

# Cargo unites the features of the packages it is given: with the extension's crate among them the
# dependencies are those that were compiled for the extension, and are not compiled again.
CARGO_EXAMPLE := cargo build --release -q -p ferrax -p ferrax-python --example digits

run: $(BUILT) $(VENV)/.extra-examples
	$(BIN)/python examples/digits.py
	$(CARGO_EXAMPLE) --locked
	$(TARGET)/release/examples/digits out/digits

# Each at small size: its result is checked, its picture is in out/.
EXAMPLES := cnn_digits language_model vae gaussian_process bayesian_logistic burgers nbody control deblur \
	graph_network pallas_matmul pallas_attention pallas_layer_norm

examples: $(addprefix example-,$(EXAMPLES))

example-%: $(BUILT) $(VENV)/.extra-examples
	$(BIN)/python examples/$*.py --small

# Programs over the devices that the processor plays, and, where wheels of MPI are tested, over those of several processes.
examples: $(addprefix sharded-example-,dp tp fsdp) example-pipeline
ifeq ($(shell uname),Linux)
examples: $(addprefix mpi-example-,1 2 4)
endif

sharded-example-%: $(BUILT) $(VENV)/.extra-examples
	$(BIN)/python examples/sharded_training.py --small --mode $*

# Eight devices for any number of processes; each run compares its bits with those of one device.
mpi-example-%: $(BUILT) $(VENV)/.extra-examples
	$(BIN)/mpiexec -n $* $(BIN)/python examples/stencil_mpi.py --small --devices $$((8 / $*))

# Programs for JAX, which import jax.
FOR_JAX := optax_digits haiku_rows blackjax_schools

examples: $(addprefix jax-example-,$(FOR_JAX))

jax-example-%: $(BUILT) $(VENV)/.extra-examples $(VENV)/.extra-ecosystem
	$(BIN)/python -m ferrax.compat examples/$*.py --small

test: test-rust test-python

# Debug profile: the verifier and the debug assertions are on, the numeric crates are optimised.
test-rust:
	cargo test -q --locked --workspace --exclude ferrax-python --exclude ferrax-gpu

# The crates of programs without Python and GPU, on another processor: the blocks of the virtual machine, no machine code.
AARCH64 := aarch64-unknown-linux-gnu
AARCH64_CC := aarch64-linux-gnu-gcc
AARCH64_CRATES := ferrax-ffi ferrax-ir ferrax-transform ferrax-compile ferrax-x86 ferrax-linalg ferrax-fft ferrax-cpu ferrax

test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER := $(AARCH64_CC)
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER := qemu-aarch64 -L /usr/aarch64-linux-gnu
test-aarch64:
	@for name in $(AARCH64_CC) qemu-aarch64; do command -v $$name >/dev/null || \
	{ echo "test-aarch64: $$name is missing (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)" >&2; exit 1; }; done
	rustup target add $(AARCH64)
	cargo test -q --locked --no-fail-fast --target $(AARCH64) $(AARCH64_CRATES:%=-p %)

# These of the Python suite run with the GPU as the default device.
GPU_TESTS := $(addprefix tests/python/test_,$(addsuffix .py,conformance autodiff array_methods at control_flow_programs \
	control_flow_values convolution decompositions fourier image indexing jit linalg numpy_products numpy_reductions random rng_bits \
	mixtures scipy_special select_and_scatter sorting))

# Those of which a processor that plays a GPU makes its checked results in seconds.
GPU_EXAMPLES := gaussian_process nbody control deblur

# On the GPU whose name FERRAX_GPU is a part of, or on Mesa's, which is a processor that plays one.
test-gpu: export FERRAX_GPU ?= llvmpipe
test-gpu: $(BUILT) $(VENV)/.extra-test $(VENV)/.extra-examples
	cargo test -q --locked -p ferrax-gpu
	cargo test -q --locked -p ferrax --features gpu --test gpu
	FERRAX_TEST_DEVICE=gpu $(BIN)/python -m pytest -q tests/python/test_devices.py tests/gpu
	FERRAX_PLATFORMS=gpu,cpu $(BIN)/python -m pytest -q -n 2 --dist worksteal --few $(GPU_TESTS)
	$(BIN)/python benches/gpu.py --small
	set -e; for name in $(GPU_EXAMPLES); do FERRAX_PLATFORMS=gpu,cpu $(BIN)/python examples/$$name.py --small; done

test-python: $(BUILT) $(VENV)/.extra-test
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

# Each way of computing is taken from a few elements on, in the smallest parts (docs/running.md, "Thresholds").
test-tiny: export FERRAX_TUNING := tiny
test-tiny: $(BUILT) $(VENV)/.extra-test
	cargo test -q --locked -p ferrax-cpu
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(TINY_ARGS) tests/python tests/semantics tests/e2e

# The least and the greatest version of Python that the package is for; the rest runs on one between.
VERSIONS ?= 3.10 3.13

test-versions: $(BIN)/python
	$(BIN)/python tools/try_versions.py $(VERSIONS) $(VERSIONS_ARGS)

# Every case runs, with JAX's results computed: most of an hour.
oracle: $(BUILT) $(VENV)/.extra-test
	FERRAX_UPDATE_ORACLE=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal --exhaustive tests/python

test-ecosystem: $(BUILT) $(VENV)/.extra-test $(VENV)/.extra-ecosystem $(VENV)/.extra-examples
	$(BIN)/python -m pytest -q -n 2 --dist worksteal tests/ecosystem
	$(BIN)/python tools/try_newest.py

# PyTorch is large: what needs it is not part of `make test` until it is installed. Any that is there serves.
TORCH_PIP ?=

$(VENV)/.torch: pyproject.toml | $(BIN)/python
	$(BIN)/python -c 'import torch' 2>/dev/null || \
	$(BIN)/python -m pip install -q $(TORCH_PIP) "$$($(BIN)/python tools/requirements.py torch | grep ^torch)"
	@touch $@

test-torch: $(BUILT) $(VENV)/.extra-test $(VENV)/.torch
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --exhaustive $(wildcard tests/python/test_torch_*.py) tests/semantics -k torch

test-all: test-rust $(BUILT) $(VENV)/.extra-test
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --exhaustive
	$(MAKE) sanitize
	$(MAKE) fuzz FUZZ_SECONDS=20

# One build serves the sanitizer and the fuzzer: tools/checked_rustc compiles the crates of this project,
# their dependencies are those of `make test-rust`. It is the debug profile, so that the verifier and the
# debug assertions are on too. Memory that cannot be had is an error here, as it is without a sanitizer.
CHECKED := RUSTC_WORKSPACE_WRAPPER=$(abspath tools/checked_rustc) cargo
export ASAN_OPTIONS ?= allocator_may_return_null=1:detect_leaks=1

# Miri knows neither the instructions of the numeric crates nor forks: it runs the tests of the parts.
sanitize:
	$(CHECKED) test -q --locked -p ferrax-cpu -p ferrax-ffi --lib --tests
	@if cargo miri --version >/dev/null 2>&1; then echo cargo miri test -p ferrax-cpu --lib; \
	cargo miri test -q --locked -p ferrax-cpu --lib --target-dir $(TARGET)/miri; \
	cargo miri test -q --locked -p ferrax-ffi --lib --tests --target-dir $(TARGET)/miri; \
	else echo "sanitize: Miri is not installed, it was NOT run"; fi

# The same of the extension module, under what of the Python suite has arrays large enough for runs of rows, sums
# in blocks and threads. AddressSanitizer's runtime is the C compiler's, loaded before Python, and that of C++ with it,
# whose exceptions JAX throws; leaks are not looked for, as the interpreter ends with much that it holds.
SANITIZED := $(TARGET)/sanitized
SANITIZED_TESTS ?= $(addprefix tests/python/test_,$(addsuffix .py,row_runs segments attention_blocks long_sums large_programs picks \
	memory_plan scan_products extreme_shapes ffi))
ASAN_RUNTIME = $(shell $${CC:-cc} -print-file-name=libasan.so)
CXX_RUNTIME = $(shell $${CC:-cc} -print-file-name=libstdc++.so.6)

sanitize-python: $(VENV)/.extra-test
	@test -e "$(ASAN_RUNTIME)" || { echo "sanitize-python: the C compiler has no libasan.so (apt-get install gcc)" >&2; exit 1; }
	PYO3_BUILD_EXTENSION_MODULE=1 RUSTC_WORKSPACE_WRAPPER=$(abspath tools/sanitized_rustc) \
	  cargo build -q --locked -p ferrax-python --lib --no-default-features
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	cp -r python/ferrax $(SANITIZED)/ferrax
	cp $(TARGET)/debug/lib_core.so $(SANITIZED)/ferrax/_core.abi3.so
	LD_PRELOAD="$(ASAN_RUNTIME) $(CXX_RUNTIME)" ASAN_OPTIONS=$(ASAN_OPTIONS):detect_leaks=0 PYTHONPATH=$(abspath $(SANITIZED)) \
	  $(BIN)/python -m pytest -q -n 0 -p no:cacheprovider --exhaustive $(SANITIZED_TESTS)

MINUTES ?= 5
FUZZ_SECONDS ?= $(shell expr 60 '*' $(MINUTES))
FUZZ_TARGETS ?= file text programs
FUZZ_WORDS := fuzz/corpus/words

# What the inputs of a target begin with; what it finds of interest is added to it.
$(FUZZ_WORDS): rust/ferrax-ir/examples/fuzz_seeds.rs rust/ferrax-ir/tests/support/every_op.txt
	cargo run -q --locked -p ferrax-ir --example fuzz_seeds fuzz/corpus

fuzz: $(FUZZ_WORDS)
	@command -v "$${CXX:-c++}" >/dev/null || \
	{ echo "fuzz: libFuzzer is C++: install a compiler (apt-get install g++), or name one in CXX" >&2; exit 1; }
	$(CHECKED) build -q --locked -p ferrax-fuzz --features fuzzing $(FUZZ_TARGETS:%=--bin %)
	@set -e; for name in $(FUZZ_TARGETS); do echo "fuzz $$name: $(FUZZ_SECONDS) s"; \
	mkdir -p fuzz/corpus/$$name fuzz/artifacts/$$name; \
	$(TARGET)/debug/$$name fuzz/corpus/$$name -artifact_prefix=fuzz/artifacts/$$name/ \
	  -dict=$(FUZZ_WORDS) -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 -rss_limit_mb=4096 \
	  -print_final_stats=1; done

# Programs over jnp and lax at the sizes where code paths differ. The seed is a fresh one, which is printed.
fuzz-sizes: $(BUILT) $(VENV)/.extra-test
	$(BIN)/python -m fuzz.sizes --minutes $(MINUTES) $(FUZZ_ARGS)

# The faults of tools/faults_table.py, in a copy of the tree with a build of its own. Takes as long as a run of the tests
# for each fault that they do not catch at once.
faults: $(VENV)/.extra-test
	$(BIN)/python tools/faults.py $(FAULTS_ARGS)

# The same build as for $(BUILT): nothing is compiled a second time.
wheel: $(VENV)/.tools
	rm -rf dist
	$(BIN)/maturin build --release --locked --out dist
	$(BIN)/maturin sdist --out dist
	$(BIN)/python tools/try_wheel.py dist

bench: $(BUILT) $(VENV)/.extra-bench
	$(BIN)/python benches/run.py $(BENCH_ARGS)

sweep: $(BUILT) $(VENV)/.extra-bench
	$(BIN)/python benches/sweep.py $(SWEEP_ARGS)

# The GPU is that whose name FERRAX_GPU is a part of, or any that is not software; BENCH_ARGS=--small for software.
bench-gpu: $(BUILT) $(VENV)/.extra-bench
	$(BIN)/python benches/gpu.py $(BENCH_ARGS)

# clippy and rustfmt are components of the toolchain: without them a note is printed instead.
lint: $(VENV)/.extra-lint $(VENV)/.extra-test
	@if cargo fmt --version >/dev/null 2>&1; then echo cargo fmt --check; cargo fmt --all --check; \
	else echo "lint: rustfmt is not installed, Rust formatting NOT checked"; fi
	@if cargo clippy --version >/dev/null 2>&1; then echo cargo clippy; \
	cargo clippy -q --locked --workspace --all-targets -- -D warnings; \
	else echo "lint: clippy is not installed, Rust lints NOT checked"; fi
	$(BIN)/ruff check .
	$(BIN)/python tools/check_files.py
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_crates.py
	$(BIN)/python tools/faults.py --check
	$(BIN)/python tools/own_words.py
	PYTHONPATH=python $(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy

docs: $(BUILT)
	$(BIN)/python tools/ops_doc.py --write
	$(BIN)/python tools/stubs.py --write
	$(BIN)/python tools/features.py --write
	$(BIN)/python tools/licences.py --write
	$(BIN)/python tools/collective_costs.py --write

docs-check: $(BUILT) $(VENV)/.extra-test $(VENV)/.extra-lint
	$(BIN)/python tools/ops_doc.py --check
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python tools/features.py --check
	$(BIN)/python tools/licences.py --check
	$(BIN)/python tools/collective_costs.py --check
	$(BIN)/python tools/check_docstrings.py
	$(BIN)/python tools/check_types.py
	$(BIN)/stubtest ferrax._core --concise --allowlist tools/stubtest_allowed.txt
	$(BIN)/python -m pytest -q tests/semantics -k "README or devices- or kernels- or profiling- or references- or symbolic_shapes-"

clean:
	rm -rf $(VENV) target dist out fuzz/corpus fuzz/artifacts python/ferrax/_core*.so
