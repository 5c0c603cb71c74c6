MODEL ?= tiny
ARGS ?=
CAMPAIGN ?= $(MODEL)
SET := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
PYTHON ?= $(firstword $(foreach p,python3 python3.12 python3.11 python3.10,$(shell $(p) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && echo $(p))))
BIN := .venv/bin
INSTALLED := .venv/.installed-$(SET)
ALONE := $(wildcard requirements/$(SET)-alone.txt)

.DEFAULT_GOAL := help
.PHONY: help install tune test lint check ui bench bench-overhead bench-decisions bench-scale chaos clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make .venv with pinned versions: the GPU set where an NVIDIA driver answers, else the CPU set (SET=cpu-vllm: with vLLM)

$(INSTALLED): pyproject.toml requirements/$(SET).txt requirements/constraints.txt $(ALONE)
	@test -n "$(PYTHON)" || { echo "Python 3.10, 3.11 or 3.12 is needed, none was found; set PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "installing the $(SET) set into .venv with $$($(PYTHON) --version)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/$(SET).txt
	$(if $(ALONE),$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(ALONE))
	$(BIN)/python -m compileall -q src
	@rm -f .venv/.installed-*; touch $@

tune: install ## Tune MODEL (tiny by default); more settings in ARGS="budget.steps=100 stage=kl"
	$(BIN)/python -m sweep model=$(MODEL) $(ARGS)

test: install ## Run every test, real verl trials on the CPU included
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: install ## Check format, lint, types and import contracts
	$(BIN)/ruff format --check src tests scripts benchmarks
	$(BIN)/ruff check src tests scripts benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## All that CI runs

bench: bench-overhead bench-decisions bench-scale ## Every benchmark

bench-overhead: install ## Cost of orchestration: no-op trials against peers, warm against cold starts, a whole campaign
	$(BIN)/python benchmarks/bench_overhead.py

bench-decisions: install ## Error rates, coverage and regret of the rules against peers (QUICK=1: under ten minutes)
	$(BIN)/python benchmarks/bench_decisions.py

bench-scale: install ## Cost of a trial at 10 to 10,000 trials, and how long slots wait between trials
	$(BIN)/python -m benchmarks.bench_scale

chaos: install ## Kill, cut off and fill up campaigns: nothing lost, nothing repeated (PARTS=disk,node for some)
	$(BIN)/python -m benchmarks.chaos

ui: install ## Serve MLflow of CAMPAIGN on 127.0.0.1:5000
	$(BIN)/python -m sweep.ui campaign=$(CAMPAIGN)

clean: ## Remove caches and the environment; campaigns in runs/ stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
