PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed$(if $(LOCKED),-locked)

.PHONY: install check test demo bench soak load corpus matrix docs lock sbom clean help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

install: $(INSTALLED)  ## create .venv with Headwater and everything that its tests need; LOCKED=1 for the versions of requirements.lock

ifdef LOCKED
PACKAGES := --require-hashes -r requirements.lock
else
PACKAGES := -e ".[dev]"
endif

$(INSTALLED): pyproject.toml src/headwater/jars/ivy.xml $(if $(LOCKED),requirements.lock)
	@PYTHONPATH=src $(PYTHON) -B scripts/check_machine.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PACKAGES) \
	  || { echo "error: pip could not install the packages named in pyproject.toml."; \
	       echo "help: see the output above; without network access, point pip at a mirror (PIP_INDEX_URL) and run make install again"; exit 1; }
	$(if $(LOCKED),@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .)
	@$(BIN)/headwater jars --configuration spark --configuration broker
	@touch $(VENV)/.installed $(INSTALLED)

check: install  ## ruff, mypy and the tests that need no Spark, Kafka, database or browser
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@scripts/with_mypy.sh $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not services"

test: install  ## run all linters and tests
	@scripts/test_packages.sh
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@scripts/with_mypy.sh $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

demo: install  ## run a broker, a generator and the main job until Ctrl-C
	@$(BIN)/headwater demo

SOAK_MINUTES ?= 5
soak: install  ## run random fault-injection stories for SOAK_MINUTES=5, then the slow tests; SEED=N repeats one story
	@scripts/test_packages.sh
	@$(BIN)/python -m soak --tests --minutes $(SOAK_MINUTES) $(if $(SEED),--seed $(SEED))

LOAD_MINUTES ?= 30
load: install  ## run the main job near its highest rate for LOAD_MINUTES=30, with its page open; LOAD_ARGS="--share 0.5 --rewind-every 60"
	@scripts/test_packages.sh
	@$(BIN)/python -m soak.load --minutes $(LOAD_MINUTES) $(LOAD_ARGS)

bench: install  ## run all benchmarks, or some of them: BENCH_ARGS="--workload throughput --records 500000 --only headwater,tutorial"
	@$(BIN)/python -m bench $(BENCH_ARGS)

docs: install  ## build the documentation in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

corpus: install  ## regenerate the checkpoints that tests use, with Spark 3.4 to 4.3; VERSION=4.3 for one of them
	@$(BIN)/python -m tests.corpus_maker.versions $(VERSION) $(CORPUS_ARGS)

matrix: install  ## run golden scenarios, rewinds and commands on PySpark 3.5 to 4.3; VERSION=4.3 for one
	@scripts/test_packages.sh
	@$(BIN)/python -m tests.matrix $(VERSION) $(MATRIX_ARGS)

lock: install  ## write requirements.lock: the versions and checksums of all packages, for make install LOCKED=1
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock

sbom: install  ## write a bill of materials, sbom.cdx.json, and the licenses of all packages and jars
	@$(BIN)/python scripts/sbom.py

clean:  ## remove .venv, caches and the output of runs
	rm -rf $(VENV) .headwater .mypy_cache .pytest_cache .ruff_cache
