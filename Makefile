# Everything a newcomer needs: `make demo`, `make test`. Each installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DATA ?= .data
# More arguments of pytest, such as PYTEST_ARGS='tests/unit -k store'.
PYTEST_ARGS ?=
# All caches lie in the environment, so with VENV elsewhere the checkout may be read-only.
CACHE := $(abspath $(VENV))/.cache
export RUFF_CACHE_DIR := $(CACHE)/ruff
export MYPY_CACHE_DIR := $(CACHE)/mypy
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -o cache_dir=$(CACHE)/pytest

# The environment of test-lowest, and the torch in it: 2.6 has no builds for every machine.
LOWEST ?= $(VENV)-lowest
TORCH ?= $(shell sed -n 's/^torch==//p' constraints-lowest.txt)

.PHONY: install demo test suite test-all test-lowest suite-lowest check bench docs clean

install: $(STAMP)

# constraints.txt says which versions, and why.
$(STAMP): pyproject.toml packages/walkback-protocol/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "walkback needs Python 3.11 or newer; '$(PYTHON)' is older. Set PYTHON=python3.12 or the like."; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[dev,docs]' -e packages/walkback-protocol
	touch $@

demo: install
	$(BIN)/walkback demo

check: install
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Side by side: what is checked without running takes one core half a minute.
test: install
	@$(MAKE) --no-print-directory -j 2 check suite

# One torch thread for each of two test processes is faster than two threads in one.
suite: install
	$(PYTEST) $(PYTEST_ARGS)

# What only some users need: trainers, loggers, sweep engines. Their tests are skipped without it.
$(VENV)/.extras: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[dev,docs,lightning,huggingface,tensorboard,wandb,mlflow,trackio,ray,slurm]' pre-commit
	touch $@

# Everything slow too, with every extra and with real CIFAR-10, which it gets first.
test-all: check $(VENV)/.extras
	$(BIN)/walkback data get cifar10 --root $(DATA)
	WALKBACK_TEST_DATA=$(abspath $(DATA)) $(PYTEST) -m '' $(PYTEST_ARGS)

# The quick tests with the lowest versions that pyproject.toml declares.
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	sed 's/^torch==.*/torch==$(TORCH)/' constraints-lowest.txt > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt \
	  -e '.[dev]' -e packages/walkback-protocol
	@$(MAKE) --no-print-directory suite-lowest VENV=$(LOWEST)

# Figures drawn by another matplotlib have other bytes than the committed ones.
suite-lowest:
	$(PYTEST) --deselect tests/e2e/test_committed_results.py $(PYTEST_ARGS)

bench: install
	$(BIN)/walkback bench fleet

docs: install
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf $(VENV) $(LOWEST) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
