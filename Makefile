PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: install test demo bench soak load corpus docs clean help

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

install: $(INSTALLED)  ## the environment in .venv, with the headwater command in it

$(INSTALLED): pyproject.toml src/headwater/jars/ivy.xml
	@PYTHONPATH=src $(PYTHON) -B scripts/check_machine.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" \
	  || { echo "error: pip could not install the packages named in pyproject.toml."; \
	       echo "help: look at the lines above; without network, point pip at a mirror (PIP_INDEX_URL) and run make install again"; exit 1; }
	@$(BIN)/headwater jars --configuration spark --configuration broker
	@touch $(INSTALLED)

test: install  ## every check and test
	@scripts/test_packages.sh
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -n 2 --dist loadfile

demo: install  ## a broker, a generator and the main job, until Ctrl-C
	@$(BIN)/headwater demo

SOAK_MINUTES ?= 5
soak: install  ## random stories of kills and rewinds for SOAK_MINUTES=5 (SEED=N tells one again), then the tests that take minutes
	@scripts/test_packages.sh
	@$(BIN)/python -m soak --tests --minutes $(SOAK_MINUTES) $(if $(SEED),--seed $(SEED))

LOAD_MINUTES ?= 30
load: install  ## the main job at the highest rate that keeps up for LOAD_MINUTES=30, with its page open
	@scripts/test_packages.sh
	@$(BIN)/python -m soak.load --minutes $(LOAD_MINUTES)

bench: install  ## every workload side by side; BENCH_ARGS="--workload A --records 500000 --only headwater,tutorial"
	@$(BIN)/python -m bench $(BENCH_ARGS)

docs: install  ## the documentation as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

corpus: install  ## write the corpus of real checkpoints anew
	@$(BIN)/python -m tests.corpus_maker

clean:  ## remove the environment and everything that runs left behind
	rm -rf $(VENV) .headwater .mypy_cache .pytest_cache .ruff_cache
