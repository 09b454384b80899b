# Everything a newcomer needs: `make demo`, `make test`. Each installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DATA ?= .data

.PHONY: install demo test suite test-all check bench docs clean

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
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# What only some users need: trainers, loggers, sweep engines. Their tests are skipped without it.
$(VENV)/.extras: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[dev,docs,lightning,huggingface,tensorboard,wandb,mlflow,trackio,ray,slurm]' pre-commit
	touch $@

# Everything slow too, with every extra and with real CIFAR-10, which it gets first.
test-all: check $(VENV)/.extras
	$(BIN)/walkback data get cifar10 --root $(DATA)
	OMP_NUM_THREADS=1 WALKBACK_TEST_DATA=$(abspath $(DATA)) $(BIN)/python -m pytest -n 2 --dist worksteal -m ''

bench: install
	$(BIN)/walkback bench fleet

docs: install
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
