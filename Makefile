# Two commands on a fresh machine: `make demo` and `make test`. Each sets up all that it needs: Python 3.11 or newer with pip, and make, are
# all that must be there. FAULT=oom|kill|exception|none chooses what breaks in the demo; TESTS=... and PYTEST_ARGS=... choose among the tests.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup servers demo test check bench reference lock clean

PYTHON ?= python3
FAULT ?= oom
TESTS ?= tests
PYTEST_ARGS ?=

UV := .tools/bin/uv
BIN := .venv/bin
TSC := .tools/typescript/node_modules/.bin/tsc
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
# What the environment says of other Pythons must not leak in: what is tested is the wheel in .venv.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_ROOT_USER_ACTION := ignore

SOURCES := $(shell find src integrations examples -type f -not -name '*.pyc' 2>/dev/null) pyproject.toml README.md LICENSE

help:
	@echo 'make demo [FAULT=oom|kill|exception|none]   4 ranks train a small GPT, one breaks, and what happened is shown'
	@echo 'make test [TESTS=...]                       all tests, against the built wheel'
	@echo 'make check                                  lint, format, types, layers, lock files'
	@echo 'make bench                                  the budgets, measured here'
	@echo 'make setup servers | reference | lock | clean  set up only; write docs/reference/; lock dependencies anew; remove what make made'

$(UV): requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"llmtrace needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}: make PYTHON=...")'
	rm -rf .tools
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --target .tools -r requirements/uv.txt
	@touch $@

.venv/.locked: $(UV) requirements/dev.txt
	$(UV) venv --quiet --allow-existing --no-python-downloads --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@touch $@

# The wheel is what users get, so the wheel is what is installed and tested; hatchling comes from the lock.
.venv/.installed: .venv/.locked $(SOURCES)
	rm -rf build/wheels
	$(BIN)/python -m hatchling build -t wheel -d "$(CURDIR)/build/wheels"
	cd integrations/llmtrace-auto && "$(CURDIR)/$(BIN)/python" -m hatchling build -t wheel -d "$(CURDIR)/build/wheels"
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-index --reinstall build/wheels/*.whl
	@touch $@

setup: .venv/.installed

# npm writes no package-lock.json here: it would name addresses.
$(TSC): $(UV)
	@command -v npm >/dev/null || { echo "the types of the page's script need npm (Debian: apt-get install npm)"; exit 1; }
	rm -rf .tools/typescript
	npm install --silent --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --prefix .tools/typescript typescript@7.0.2
	@touch $@

APT_GET = { AS=; [ "$$(id -u)" = 0 ] || AS='sudo -n'; command -v apt-get >/dev/null && { $$AS apt-get install -y -q --no-install-recommends $(1) || { $$AS apt-get update -q && $$AS apt-get install -y -q --no-install-recommends $(1); }; } >/dev/null; } || { echo 'the tests need $(1); as root: apt-get install $(1)'; exit 1; }

# What the tests talk to besides files, sockets and processes of this machine: a browser. Rings need a tmpfs, so that is looked at too.
servers: setup
	@stat --file-system --format='%T' /dev/shm | grep -qx tmpfs || { echo '/dev/shm is no tmpfs: the tests of the ring need one'; exit 1; }
	@command -v chromium >/dev/null || $(call APT_GET,chromium)
	@echo "/usr/bin/chromium is there; /dev/shm has $$(df --output=avail -h /dev/shm | tail -n 1 | tr -d ' ') free for rings"

demo: setup
	$(BIN)/llmtrace demo --fault $(FAULT)

test: setup servers
	$(BIN)/pytest --installed $(PYTEST_ARGS) $(TESTS)

check: setup $(TSC)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(TSC) -p src/llmtrace/show/page/script
	@! grep -nE '://|--(extra-)?index-url|--find-links' requirements/*.txt || { echo 'lock files name no address'; exit 1; }

bench: setup
	$(BIN)/python -m benchmarks

reference: setup
	$(BIN)/python docs/generate.py

# After a change of dependencies. `make lock UPGRADE=--upgrade` takes the newest of everything.
lock: $(UV)
	$(COMPILE) $(UPGRADE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) $(UPGRADE) pyproject.toml requirements/dev.in --extra lightning --extra structlog -o requirements/dev.txt

clean:
	rm -rf .venv .tools build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests integrations benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +
