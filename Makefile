# make run    set everything up and talk
# make test   set everything up and run the tests (minutes);  make test-slow runs the rest
# make soak   1,000 turns, then an hour of open microphone: does anything grow, drift or get lost?
# make lint   style, types and the direction of imports
# make lock   pin the newest versions;  make clean  remove what these make

VENV := .venv
BIN := $(VENV)/bin
# Linux and Windows get a CUDA build of torch from the package index, gigabytes of it.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
TEST_PACKAGES := libportaudio2 libasound2-plugins pulseaudio pulseaudio-utils tmux

.PHONY: run setup test test-slow soak test-packages lint lock clean
.DEFAULT_GOAL := run

run: setup
	@$(BIN)/python -c 'from ctypes.util import find_library as f; raise SystemExit(not f("portaudio"))' || \
		echo "PortAudio is missing, so there will be no sound. $(call install,libportaudio2)"
	@$(BIN)/python -c 'import xllamacpp' 2>/dev/null || \
		echo "The chat runtime does not start; its OpenMP library may be missing. $(call install,libgomp1)"
	@$(BIN)/voxtui models fetch
	@$(BIN)/voxtui

setup: $(VENV)/.installed

test: $(VENV)/.installed-test test-packages
	$(BIN)/voxtui models fetch smollm2-135m
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-slow: $(VENV)/.installed-test test-packages
	$(BIN)/voxtui models fetch
	$(BIN)/voxtui models fetch smollm2-135m
	$(BIN)/python -m pytest -m "slow and not gpu"

soak: $(VENV)/.installed-test test-packages
	$(BIN)/voxtui models fetch smollm2-135m
	$(BIN)/python -m benchmarks.soak turns 1000
	$(BIN)/python -m benchmarks.soak listen 3600

lint: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo --no-cache

lock: $(VENV)/.installed-test
	@echo '# Every version that `make setup` and `make test` install, as pip constraints, by `make lock`.' > $@.new
	@echo '# torch stands without its CUDA packages: the build for a CPU and that for a GPU both fit.' >> $@.new
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate --no-header \
		--extra embedded --extra remote --extra voxtral --extra kokoro --group test pyproject.toml > $@.all
	@grep -Ev '^(cuda-|nvidia-|torch=|triton=)' $@.all >> $@.new
	@grep -Eom1 '^torch==[0-9.]+' $@.all >> $@.new
	@rm $@.all
	@mv $@.new requirements.lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.installed: pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "voxtui needs Python 3.11 or newer. $(call install,python3)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python's venv module is missing. $(call install,python3-venv)"; exit 1; }
	@echo "Installing voxtui into $(VENV) (about 145 MB)."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(PIP) 'pip>=25.1'
	@$(PIP) --editable '.[embedded]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "Installing what the tests need into $(VENV) (about 400 MB)."
	@$(PIP) --no-deps --retries 1 --extra-index-url $(TORCH_INDEX) torch
	@$(PIP) --group test
	@$(PIP) --no-deps "kokoro; python_version < '3.13'"
	@touch $@

# A terminal, and a sound server that only the tests hear: they start it, speak into it and stop it.
test-packages:
	@command -v apt-get >/dev/null || exit 0; \
	dpkg-query --show $(TEST_PACKAGES) >/dev/null 2>&1 && exit 0; \
	if test $$(id -u) = 0; then sudo=; elif sudo -n true 2>/dev/null; then sudo="sudo -n"; else \
		echo "Tests that need a sound server are left out. For them: sudo apt install $(TEST_PACKAGES)"; exit 0; fi; \
	echo "Installing what the tests need: $(TEST_PACKAGES)"; \
	{ $$sudo apt-get update && $$sudo env DEBIAN_FRONTEND=noninteractive \
		apt-get install --yes --no-install-recommends --no-remove $(TEST_PACKAGES); } >/dev/null || \
		echo "They would not be installed without removing others, or not at all: tests of sound are left out."

install = $(if $(shell command -v apt-get),Run: sudo apt install $(1),Install $(1) with your package manager.)
