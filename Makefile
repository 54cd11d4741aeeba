# Every habit of the project is one target here; `make help` lists them. They need Rust, Python >= 3.11, make and a C/C++
# compiler, keep everything they install inside the checkout (.venv, target, dist), and do nothing twice: a stamp or an
# output file stands for each step.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VENV := .venv
PYTHON_RUN := $(VENV)/bin/python
PIP := $(PYTHON_RUN) -m pip --disable-pip-version-check --quiet
# Modules are compiled when they are first imported: most never are. One at a time, under `make --jobs`.
INSTALL = flock $(VENV)/.lock $(PIP) install --no-compile
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cuzarr
# Every cargo command names the same packages and features: what one has compiled, the others find compiled.
WORKSPACE := --workspace --all-features --locked
ARCHITECTURES := sm_75 sm_80 sm_90 sm_100 sm_120

# The extension module, which the command is part of, and what it is built from. Python files are not: the package is installed in place.
EXTENSION := python/cuzarr/_core.abi3.so
SOURCES := .cargo/config.toml Cargo.toml Cargo.lock python/Cargo.toml \
	$(shell find crates python/src -type f -not -name '*.md' -not -path '*/tests/*' -not -path '*/target/*')
PYTHON_FOLDERS := python bench scripts examples docs/gallery
KERNELS := $(shell find crates -name '*.cu' -o -name '*.cuh')

.PHONY: help demo release test test-all test-rust test-python miri lint fmt ruff clippy deny stubs types bench docs docs-serve kernels cubins header install wheel wheels c-archives sdist crates packaging release-check pictures gpu-bundle gpu-peers build clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: build ## write compressed arrays, read them back through the whole data path, check every element
	$(VENV)/bin/cuzarr demo

test: test-rust test-python ## run the tests

test-all: ## every test, with every case of the conformance matrix
	CUZARR_TEST_ALL=1 $(MAKE) test

# Every test program runs with the kernels built for the CPU, so that launching them is tested without a GPU. Programs run side by side.
test-rust: $(VENV)/.environment
	$(PYTHON_RUN) scripts/test_rust.py $(WORKSPACE)

# Looks for undefined behaviour in what holds and lends host memory. Needs a toolchain with Miri, such as
# `rustup toolchain install nightly --component miri`; MIRI_TOOLCHAIN names it. Takes minutes, and is no part of the other targets.
MIRI_TOOLCHAIN ?= nightly
miri: ## the rules of memory, under Miri
	MIRIFLAGS=-Zmiri-permissive-provenance cargo +$(MIRI_TOOLCHAIN) miri test --locked --package cuzarr-device --test leases
	MIRIFLAGS=-Zmiri-permissive-provenance cargo +$(MIRI_TOOLCHAIN) miri test --locked --package cuzarr-device --lib -- lease writer

# Those that ask for a device other than the CPU run once more with the kernels built for the CPU.
DEVICE_TESTS := tests/test_buffer.py tests/test_async.py tests/test_neighbours.py tests/test_display.py tests/test_storage.py \
	tests/test_zarr_stores.py tests/test_sessions.py tests/test_compute.py tests/test_selections.py tests/test_index_lists.py tests/test_index_arrays.py tests/test_arrow.py tests/test_array_api.py tests/test_order.py tests/test_kvikio.py tests/test_copying.py tests/test_map_blocks.py \
	tests/test_memory.py tests/test_encoder.py tests/test_programs.py tests/test_pyramid.py tests/test_cluster_devices.py tests/plugin/test_device.py tests/plugin/test_ahead.py tests/test_lazy.py tests/test_shapes.py tests/test_small_numbers.py tests/test_nan_bits.py tests/test_delta.py tests/test_many_arrays.py tests/test_sparse.py tests/test_sparse_rows.py tests/test_xarray_writes.py tests/test_chunk_cache.py tests/test_ome.py tests/test_accelerator.py tests/test_stacks.py tests/test_writer.py tests/test_first_pages.py

# Tests of the documentation need what builds the site. Several processes share the tests; a worker that is done takes over some of another's.
PYTEST := ../$(PYTHON_RUN) -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal
test-python: build $(VENV)/.zarr-python $(VENV)/.docs
	cd python && $(PYTEST)
	cd python && ../scripts/with-simt $(PYTEST) --without-cpu $(DEVICE_TESTS)

lint: fmt ruff clippy deny kernels stubs types packaging ## formatting, ruff, clippy, licences and advisories, kernels, stubs, types, workflows

build: $(VENV)/.package $(EXTENSION) ## install the package and the cuzarr command into .venv, with the extension module of the tests

release: $(VENV)/.package ## put the optimised extension module, as it travels in wheels, in the place of that of the tests
	cargo build --release --locked --package cuzarr-python --lib
	cp target/release/lib_core.so $(EXTENSION).new && mv $(EXTENSION).new $(EXTENSION)

# ---------------------------------------------------------------------------------------------------- environment

$(VENV)/.environment: python/requirements-dev.txt scripts/find-python
	test -x $(PYTHON_RUN) || "$$(scripts/find-python)" -m venv $(VENV)
	$(INSTALL) --requirement python/requirements-dev.txt
	touch $@

# The source archive of the installed zarr-python, for its tests.
$(VENV)/.zarr-python: $(VENV)/.environment
	rm -rf $(VENV)/zarr-python && mkdir $(VENV)/zarr-python
	$(PIP) download --no-binary zarr --no-deps --dest $(VENV)/zarr-python \
		"zarr==$$($(PYTHON_RUN) -c 'from importlib.metadata import version; print(version("zarr"))')"
	tar -xzf $(VENV)/zarr-python/zarr-*.tar.gz --strip-components=1 -C $(VENV)/zarr-python
	touch $@

$(VENV)/.package: $(VENV)/.environment python/pyproject.toml python/build_backend.py Cargo.toml
	PATH="$(abspath $(VENV))/bin:$$PATH" $(INSTALL) --no-build-isolation --no-deps --config-settings built=1 --editable python
	touch $@

# By another name first: a program that has the old one loaded keeps it.
$(EXTENSION): $(SOURCES)
	cargo build $(WORKSPACE) --lib
	cp target/debug/lib_core.so $@.new && mv $@.new $@

$(VENV)/.nvrtc: $(VENV)/.environment python/requirements-kernels.txt
	$(INSTALL) --requirement python/requirements-kernels.txt
	touch $@

$(VENV)/.packaging: $(VENV)/.environment python/requirements-packaging.txt
	$(INSTALL) --requirement python/requirements-packaging.txt
	touch $@

$(VENV)/.docs: $(VENV)/.environment python/requirements-docs.txt
	$(INSTALL) --requirement python/requirements-docs.txt
	touch $@

$(VENV)/.wheel-tools: $(VENV)/.environment python/requirements-wheels.txt
	$(INSTALL) --requirement python/requirements-wheels.txt
	touch $@

# ----------------------------------------------------------------------------------------------------------- lint

fmt:
	cargo fmt --all --check

ruff: $(VENV)/.environment ## format and lint of everything in Python
	$(VENV)/bin/ruff format --check --config python/pyproject.toml $(PYTHON_FOLDERS)
	$(VENV)/bin/ruff check --config python/pyproject.toml $(PYTHON_FOLDERS)

clippy:
	cargo clippy $(WORKSPACE) --all-targets -- -D warnings

# Unoptimised, because it builds in a minute and runs in a second; outside the checkout, so that fresh clones share it.
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

$(DENY):
	cargo install cargo-deny --version $(DENY_VERSION) --locked --debug --no-default-features \
		--root $(CACHE)/cargo-deny-$(DENY_VERSION) --target-dir $(CACHE)/cargo-deny-$(DENY_VERSION)/target
	rm -rf $(CACHE)/cargo-deny-$(DENY_VERSION)/target

# The advisory database lives on a server of its own. Without it, what can be checked is checked, and the gap is said.
deny: | $(DENY)
	$(DENY) --all-features check bans licenses sources
	if $(DENY) fetch db >/dev/null 2>&1; then $(DENY) --all-features check advisories; \
	else echo 'advisories: skipped: the advisory database cannot be reached from here'; fi

stubs: build
	cd python && ../$(PYTHON_RUN) -m mypy.stubtest cuzarr._core

types: build ## the package by mypy, users' code by mypy and pyright, both strict, and the share of exports with known types
	cd python && ../$(PYTHON_RUN) -m mypy cuzarr
	cd python && ../$(PYTHON_RUN) -m mypy --strict tests/typing
	cd python && ../$(VENV)/bin/basedpyright --pythonpath ../$(PYTHON_RUN)
	$(PYTHON_RUN) scripts/check_types.py

# Scripts inside the workflows are checked too where shellcheck is installed.
packaging: $(VENV)/.packaging ## the GitHub workflows by schema and actionlint, and the recipe for conda-forge
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/actionlint
	$(PYTHON_RUN) scripts/check_conda_recipe.py

# ------------------------------------------------------------------------------------------------- products, docs

bench: release ## cuzarr beside zarrs and tensorstore on this machine, answers checked, recorded in bench/record
	$(PYTHON_RUN) bench/read.py --record bench/record
	$(PYTHON_RUN) bench/gather.py

SITE := PYTHONPATH=python NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs
docs: build $(VENV)/.docs ## the site, strictly, and the Rust documentation beside it, warnings denied, in target/site
	RUSTDOCFLAGS='-D warnings' cargo doc $(WORKSPACE) --no-deps
	$(PYTHON_RUN) scripts/write_docs.py
	$(SITE) build --quiet
	cp -al target/doc target/site/rust
	$(PYTHON_RUN) scripts/check_site.py

docs-serve: build $(VENV)/.docs ## show the site on http://127.0.0.1:8000 while its pages are written
	$(SITE) serve --no-strict

python/cuzarr/cubins/MANIFEST.sha256: $(VENV)/.nvrtc $(KERNELS) scripts/compile_kernels.py
	$(PYTHON_RUN) scripts/compile_kernels.py --arch $(ARCHITECTURES) --out python/cuzarr/cubins

# A change is compiled for the oldest and the newest of them; a wheel has all.
target/kernels/MANIFEST.sha256: $(VENV)/.nvrtc $(KERNELS) scripts/compile_kernels.py
	$(PYTHON_RUN) scripts/compile_kernels.py --arch $(firstword $(ARCHITECTURES)) $(lastword $(ARCHITECTURES)) --out target/kernels

kernels: target/kernels/MANIFEST.sha256 ## compile every kernel for the oldest and the newest shipped GPU

cubins: python/cuzarr/cubins/MANIFEST.sha256 ## compile every kernel for every shipped GPU, as it travels in the wheel

header: ## write the header of the C interface from its Rust sources, by cbindgen
	CUZARR_TEST_WRITE_HEADER=1 cargo test $(WORKSPACE) --quiet --test header

# Below PREFIX, and below DESTDIR before it if that is set, as packagers expect it.
PREFIX ?= /usr/local
install: cubins ## the C interface below PREFIX: libraries, header, Fortran module, pkg-config, CMake, compiled kernels
	cargo build --release --locked --package cuzarr-c
	scripts/link-c-library target/release
	scripts/install-c "$(PREFIX)" target/release

wheel: $(VENV)/.environment cubins ## a wheel for machines like this one, with compiled kernels, in dist/
	rm -f dist/cuzarr-*.whl
	$(VENV)/bin/maturin build --release --locked --quiet --manifest-path python/Cargo.toml --out dist
	ls -l dist/cuzarr-*.whl

# Every architecture that Rust can build for here; the release workflow calls the same script.
wheels: $(VENV)/.wheel-tools cubins ## the wheels that are published: manylinux_2_28, x86-64 and aarch64, checked, in dist/release
	scripts/build-wheels dist/release

c-archives: $(VENV)/.wheel-tools cubins ## the C interface as it is published: manylinux_2_28, x86-64 and aarch64, checked, in dist/release
	scripts/build-c-archives dist/release

sdist: $(VENV)/.environment cubins ## the source archive, with compiled kernels: building from it needs Rust and a C compiler, in dist/release
	rm -f dist/release/cuzarr-*.tar.gz
	$(VENV)/bin/maturin sdist --manifest-path python/Cargo.toml --out dist/release
	ls -l dist/release/cuzarr-*.tar.gz

# Each is unpacked and built on its own, as it is from crates.io.
crates: ## the crates that are published, packaged in the order of their dependencies and built from the packages
	cargo package --workspace --exclude cuzarr-oracle --exclude cuzarr-python --locked

# What takes too long for every change, or needs packages of the system (mmdebstrap, qemu-user, chromium) and root.
release-check: test-all wheels c-archives sdist crates pictures ## wheels in use: on a clean Debian, and for aarch64 by emulation; the crates by themselves
	scripts/try-wheel dist/release/cuzarr-*-manylinux_2_28_$$(uname -m).whl
	ROOT=target/try/bookworm scripts/try-wheel dist/release/cuzarr-*-manylinux_2_28_$$(uname -m).whl
	for wheel in dist/release/cuzarr-*-manylinux_2_28_aarch64.whl; do \
		if [ -e "$$wheel" ]; then scripts/try-wheel "$$wheel"; else echo 'aarch64: skipped: there is no wheel'; fi; done

# To be looked at; what is wider than the screen fails.
pictures: build ## what notebooks show of arrays, groups and expressions, by a browser: light and dark, desktop and phone, in target/pictures
	$(PYTHON_RUN) scripts/picture_reprs.py target/pictures

gpu-bundle: wheel ## what a GPU machine without network or Rust needs, in dist/gpu
	scripts/gpu-bundle dist/gpu

gpu-peers: $(VENV)/.environment ## the packages that cuzarr is compared with, as wheels in dist/gpu/peers
	rm -rf dist/gpu/peers
	$(PIP) download --no-deps --dest dist/gpu/peers --python-version 3.12 --only-binary :all: --requirement bench/requirements-peers.txt
	du -sh dist/gpu/peers

clean: ## remove what the targets made, except the cargo cache in target/
	rm -rf $(VENV) dist python/cuzarr/cubins python/cuzarr/_core*.so
