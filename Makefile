# make run        install everything and start voxtui
# make setup      install only; EXTRAS="serve webrtc" adds extras, now and at later updates
# make test       install everything and run the tests (minutes);  make test-slow runs the rest
# make coverage   the same tests, slower, with the lines of voxtui/ that they leave out
# make format     sort imports, mend what ruff can mend, and format
# make lint       check style and the direction of imports;  make types checks types, with all packages
# make soak       1,000 turns, then an hour of open microphone: look for leaks, drift and lost frames
# make lock       pin the newest versions;  make clean  remove what the others made

VENV := .venv
BIN := $(VENV)/bin
# The tests use the CPU build of torch: on Linux the package index has the CUDA build, gigabytes of it.
# It is the one package without a hash, because each platform has another build of it.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH := torch==2.13.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EDITABLE := $(VENV)/lib/python*/site-packages/_editable_impl_voxtui.pth
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
RUN_PACKAGES := libportaudio2 libgomp1
TEST_PACKAGES := $(RUN_PACKAGES) libasound2-plugins pulseaudio pulseaudio-utils tmux

# Without it, each process of the tests would compile the whole program again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run copied setup test test-slow coverage soak run-packages test-packages format lint types \
	lock clean
.DEFAULT_GOAL := run

help:
	@awk '!/^# /{ exit } { sub("# ", ""); print }' Makefile

run: setup run-packages
	@$(BIN)/voxtui models fetch
	@$(BIN)/voxtui

setup: $(VENV)/.installed $(sort $(addprefix $(VENV)/.extra-,$(filter-out embedded,$(EXTRAS))) $(wildcard $(VENV)/.extra-*))

test: $(VENV)/.installed-test test-packages
	$(BIN)/voxtui models fetch smollm2-135m
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not gpu and not audio"
	$(BIN)/python -m pytest -m "audio and not slow and not gpu" tests/audio

test-slow: $(VENV)/.installed-test test-packages
	$(BIN)/voxtui models fetch qwen2.5-coder-1.5b
	$(BIN)/voxtui models fetch smollm2-135m
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "slow and not gpu and not audio"
	$(BIN)/python -m pytest -m "slow and audio and not gpu"

coverage: $(VENV)/.installed-test test-packages
	$(BIN)/voxtui models fetch smollm2-135m
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not gpu and not audio" --cov --cov-report=
	$(BIN)/python -m pytest -m "audio and not slow and not gpu" --cov --cov-append tests/audio

soak: $(VENV)/.installed-test test-packages
	$(BIN)/voxtui models fetch smollm2-135m
	$(BIN)/python -m benchmarks.soak turns 1000
	$(BIN)/python -m benchmarks.soak listen 3600

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(VENV)/.installed-lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache

types: $(VENV)/.installed-test
	$(BIN)/pyright

# requirements.lock: what `make setup` installs. requirements-extras.lock: what each extra needs
# besides. requirements-test.lock: what the tests need besides, without torch, and without what kokoro
# depends on (spaCy, GPL parts). One resolution of all extras fixes the versions of all three.
comma := ,
space := $(subst ,, )
LOCKED_EXTRAS := remote serve webrtc calendar mcp hands-free wake-word languages whisper voxtral kokoro
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header
HASHES = --generate-hashes --constraint $@.all
lock: $(VENV)/.installed-test
	$(COMPILE) --upgrade --extra embedded --extra remote --extra serve --extra webrtc --extra mcp --extra calendar --extra voxtral \
		--extra kokoro --extra languages --extra whisper --extra hands-free --extra wake-word --group build --group test pyproject.toml > $@.all
	@echo '# What `make setup` installs, by `make lock`.' > $@.run
	$(COMPILE) $(HASHES) --extra embedded --group build pyproject.toml >> $@.run
	@echo '# What `make setup EXTRAS=...` installs besides requirements.lock, by `make lock`.' > $@.extras
	@for extra in $(LOCKED_EXTRAS); do echo "# [$$extra]"; \
		$(COMPILE) $(HASHES) --extra $$extra pyproject.toml > $@.part || exit 1; \
		awk 'NR == FNR { base[$$1]; next } /^[^ ]/ { keep = !($$1 in base) } keep' $@.run $@.part; \
	done >> $@.extras
	@echo '# [lint]' >> $@.extras
	$(COMPILE) $(HASHES) --group pyproject.toml:lint >> $@.extras
	@echo '# What `make test` installs besides torch, by `make lock`.' > $@.test
	$(COMPILE) $(HASHES) --extra embedded --extra languages --extra remote --extra serve \
		--extra webrtc --extra mcp --extra hands-free --extra wake-word --group test pyproject.toml > $@.part
	@awk '/^[^ ]/ { keep = !/^(cuda-|nvidia-|torch=|triton=)/ } keep' $@.part >> $@.test
	@echo "kokoro>=0.9.4,<0.10; python_version < '3.13'" > $@.in
	$(COMPILE) $(HASHES) --no-deps $@.in >> $@.test
	@rm $@.all $@.part $@.in
	@mv $@.run requirements.lock
	@mv $@.extras requirements-extras.lock
	@mv $@.test requirements-test.lock

clean:
	rm -rf $(VENV) build dist .coverage .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Installed again, too, where `pip install .` has put a copy in place of the clone.
$(VENV)/.installed: pyproject.toml requirements.lock $(if $(wildcard $(EDITABLE)),,copied)
	$(make_venv)
	@echo "Installing voxtui into $(VENV) (about 175 MB)."
	@$(PIP) --require-hashes --requirement requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

copied:

$(VENV)/.extra-%: requirements-extras.lock | $(VENV)/.installed
	@grep -qxF '# [$*]' $< || \
		{ echo "voxtui has no extra $*. The extras are: $(subst $(space),$(comma) ,$(LOCKED_EXTRAS))."; exit 1; }
	@echo "Installing the packages of [$*] into $(VENV)."
	$(call install_section,$*)

$(VENV)/.installed-lint: requirements-extras.lock
	$(make_venv)
	@echo "Installing ruff and import-linter into $(VENV) (about 40 MB)."
	$(call install_section,lint)

$(VENV)/.installed-test: $(VENV)/.installed requirements-test.lock
	@echo "Installing the packages of the tests into $(VENV) (about 450 MB)."
	@$(PIP) --no-deps --retries 1 --extra-index-url $(TORCH_INDEX) $(TORCH)
	@$(PIP) --no-deps --require-hashes --requirement requirements-test.lock
	@touch $@

run-packages:
	@$(BIN)/python -c '$(FIND_LIBRARIES)' 2>/dev/null && exit 0; \
	$(call apt,$(RUN_PACKAGES),PortAudio or OpenMP is missing: no sound or no chat model without it.)

define make_venv
@test -n "$(PYTHON)" || { echo "voxtui needs Python 3.11 or newer. $(call install,python3)"; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	{ echo "Python's venv module is missing. $(call install,python3-venv)"; exit 1; }
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
endef

# $(call install_section,NAME): install what stands below `# [NAME]` in the lock of the extras.
define install_section
@awk '/^# \[/ { keep = $$2 == "[$(1)]" } keep' $< > $@-lock
@$(PIP) --no-deps --require-hashes --requirement $@-lock
@rm $@-lock
@touch $@
endef

# A terminal, and a sound server of the tests' own: they start it, play into it and stop it.
test-packages:
	@command -v apt-get >/dev/null && dpkg-query --show $(TEST_PACKAGES) >/dev/null 2>&1 && exit 0; \
	$(call apt,$(TEST_PACKAGES),Tests that need a sound server are left out.)

# On macOS the Python packages carry both libraries.
FIND_LIBRARIES = from ctypes.util import find_library; import sys, xllamacpp; \
	raise SystemExit(sys.platform != "darwin" and not find_library("portaudio"))

# $(call apt,PACKAGES,CONSEQUENCE): install PACKAGES as root or by sudo without a password, else print
# CONSEQUENCE and the command. Never asks a question and never removes a package.
define apt
command -v apt-get >/dev/null || { echo "$(2) $(call install,$(1))"; exit 0; }; \
	if test "$$(id -u)" = 0; then sudo=; elif sudo -n true 2>/dev/null; then sudo="sudo -n"; else \
		echo "$(2) $(call install,$(1))"; exit 0; fi; \
	echo "Installing system packages: $(1)"; \
	{ $$sudo apt-get update && $$sudo env DEBIAN_FRONTEND=noninteractive \
		apt-get install --yes --no-install-recommends --no-remove $(1); } >/dev/null || \
		echo "apt-get did not install them. $(2) $(call install,$(1))"
endef

install = $(if $(shell command -v apt-get),Run: sudo apt install $(1),Install $(1) with your package manager.)
