# Everything sets itself up: `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One thread a process keeps tests and timings steady on small machines; override on larger ones.
TEST_THREADS ?= 1

.PHONY: help demo test lint format clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[hf,dev]'
	@touch $@

demo: $(VENV)/.ready ## Calibrate the bundled model, re-route it, compare side by side
	$(BIN)/sere demo

test: $(VENV)/.ready ## Run the tests
	OMP_NUM_THREADS=$(TEST_THREADS) $(BIN)/python -m pytest

lint: $(VENV)/.ready ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove environments and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis runs
