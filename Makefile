# Everything a developer runs. `make` prints this list; each target is one tool.
# A fresh clone needs make and Python 3.11 or newer, nothing else: the first target that needs the virtual
# environment makes it from the lock.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The levels share two cores and the sandbox's ports: one target at a time, whatever -j says.
.NOTPARALLEL:

VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
PY := $(BIN)/python
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
PYTEST := $(PY) -m pytest
SEED ?= 1
CORES ?= 2
# Tests with servers mostly wait for them: two processes more than there are cores.
WAITERS ?= $(shell echo $$(($(CORES) + 2)))
FILES ?= .
# Where tests with Temporal alone are: to import the tests of all rooms takes each process seconds.
TEMPORAL_ROOMS := crd_bridge workers workflows

# Without its byte code each of the many processes of a run would compile the same files anew.
unexport PYTHONDONTWRITEBYTECODE

# The SDKs of two clouds send even loopback calls to a proxy, whatever NO_PROXY says.
unset_proxies := env -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY -u http_proxy -u https_proxy -u all_proxy

$(STAMP): requirements-dev.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make setup: Python 3.11 or newer with venv is needed; name it with PYTHON=..." >&2; exit 1; }
	@echo "setup: $(VENV) from requirements-dev.lock with $(PYTHON) (minutes on the first run)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-deps -r requirements-dev.lock
	@PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation --editable .
	@$(PY) -m pip check --disable-pip-version-check
	@touch $@

##@ Set-up
.PHONY: help setup lock audit control-plane
help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment from the lock, with hashes

lock: $(STAMP) ## Resolve the ranges of pyproject.toml into both lock files
	$(BIN)/uv pip compile pyproject.toml --quiet --all-extras --group dev --universal --generate-hashes --no-emit-index-url --no-header -o requirements-dev.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --all-extras --universal --generate-hashes --no-emit-index-url --no-header --constraint requirements-dev.lock -o requirements.lock

audit: $(STAMP) ## Look for known holes in the locked versions (needs the network)
	$(BIN)/pip-audit --require-hashes --disable-pip -r requirements.lock

control-plane: $(STAMP) ## Build etcd, API server, scheduler and kwok once (minutes; kept in the user's cache)
	@$(BIN)/spotgpu sandbox build

##@ Checks without servers
.PHONY: fmt lint arch types unit check
fmt: $(STAMP) ## Format
	$(BIN)/ruff check --fix-only --quiet $(FILES)
	$(BIN)/ruff format $(FILES)

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check $(FILES)
	$(BIN)/ruff format --check $(FILES)

arch: $(STAMP) ## import-linter: imports run downhill only
	$(BIN)/lint-imports

types: $(STAMP) ## pyright, strict
	$(BIN)/pyright

# Rooms without a unit test are left out whole: to import the SDKs of four clouds takes seconds.
unit: $(STAMP) ## Tests that need nothing outside the process (under 30 s)
	$(unset_proxies) $(PYTEST) -q -n $(CORES) --dist worksteal -m "not wire and not replay and not temporal and not cluster and not e2e" \
		$(addprefix --ignore=tests/,e2e replay sandbox activities/providers)

check: lint arch types unit ## What one runs before a push

##@ Tests with servers (the tests start and end them)
.PHONY: wire replay temporal cluster e2e test cov chaos bench
wire: $(STAMP) ## Adapters against the simulated clouds, over the vendors' SDKs
	$(unset_proxies) $(PYTEST) -q -n $(WAITERS) --dist loadfile -m wire

replay: $(STAMP) ## Recorded histories on the code of today
	$(unset_proxies) $(PYTEST) -q -m replay tests/replay

temporal: $(STAMP) ## Workflows against Temporal servers
	$(unset_proxies) $(PYTEST) -q -n $(WAITERS) --dist loadfile -m "temporal and not cluster and not e2e" \
		$(addprefix tests/,$(TEMPORAL_ROOMS))

cluster: control-plane ## Bridge and activities against the real control plane
	$(unset_proxies) $(PYTEST) -q -n $(WAITERS) --dist loadfile -m "cluster and not e2e"

e2e: control-plane ## Real processes against the whole sandbox
	$(unset_proxies) $(PYTEST) -q -n $(WAITERS) --dist loadfile --no-loadscope-reorder -m e2e --timeout 300 tests/e2e

test: unit wire replay temporal cluster e2e ## All levels in order, one at a time

cov: control-plane ## All levels with coverage: domain 100 %, everything 92 %
	$(BIN)/coverage erase
	$(unset_proxies) $(BIN)/coverage run -m pytest -q --timeout 300
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include 'domain/*' --fail-under 100
	$(BIN)/coverage report --fail-under 92

chaos: control-plane ## Kill every part in every phase, alone and in pairs: make chaos SEED=7
	$(unset_proxies) $(BIN)/spotgpu sandbox chaos --seed $(SEED)

bench: control-plane ## Measure history, speed, memory and calls
	$(unset_proxies) $(PY) -m tests.bench

##@ Generated files
.PHONY: new-provider crds histories goldens verify
new-provider: $(STAMP) ## Lay the files of a new cloud: make new-provider NAME=volcano
	@$(PY) -m sandbox.skeleton $(NAME)

crds: $(STAMP) ## Generate deploy/crds from the models
	$(BIN)/spotgpu crd write

histories: $(STAMP) ## Record workflow histories for the replay tests
	$(unset_proxies) $(PY) -m tests.replay.record

goldens: control-plane ## Write docs/outputs anew from a running sandbox
	$(unset_proxies) SPOTGPU_TEST_WRITE_OUTPUTS=1 $(PYTEST) -q --timeout 300 -k docs_show tests/e2e/test_outputs.py tests/crd_bridge/test_crds_on_api_server.py

verify: $(STAMP) ## Fail when deploy/crds is not what the models say
	$(BIN)/spotgpu crd check

##@ The product on this machine
.PHONY: demo sandbox
demo: control-plane ## A short true story, about a minute: make demo SEED=7
	@$(unset_proxies) $(BIN)/spotgpu sandbox demo --seed $(SEED)

sandbox: control-plane ## Start everything, print the addresses, keep it running
	@$(unset_proxies) $(BIN)/spotgpu sandbox up

##@ What CI runs
.PHONY: ci
ci: ## lint, arch, types, verify, test
	.ci/run
