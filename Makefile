# Every target that needs the environment builds it first; `make test` is enough
# on a machine with Python 3.11, pip, venv and make.
PYTHON ?= python3
PYTEST_ARGS ?=
PAPER_ARGS ?= --quick --jobs 2
WINS_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

.DEFAULT_GOAL := help
.PHONY: help setup test kernels lint format paper wins rivals bench docs release clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' Makefile

setup: $(STAMP)  ## build the environment in .venv

# Rebuilt only when one of these two files changes.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,paper,cluster,docs]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps curvlinops-for-pytorch
	touch $@

# One thread a worker: two workers that each take every core slow each other down. The tests with
# several ranks stay with one worker (their xdist_group), which keeps one set of processes for them.
test: $(STAMP)  ## run the tests; PYTEST_ARGS adds to the pytest command
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -q $(PYTEST_ARGS)

# A CPU build of torch brings no triton; in a folder of its own, torch does not find it elsewhere.
TRITON := .triton

kernels: $(STAMP)  ## the GPU's kernels on a CPU: run by triton's interpreter, compiled for a GPU
	test -d $(TRITON)/triton || $(BIN)/python -m pip install --quiet --no-deps \
	    --target $(TRITON) triton==3.9.0
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 PYTHONPATH=$(TRITON) $(BIN)/python -m pytest -n 2 -q \
	    tests/kernels tests/rules

lint: $(STAMP)  ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## fix style and format in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Threads that wait actively slow down tenfold where a core is not theirs alone.
paper: $(STAMP)  ## the paper's figures and claims, quick; PAPER_ARGS= for the full run
	OMP_WAIT_POLICY=passive $(BIN)/python -m equilibrate.paper $(PAPER_ARGS)

# Rivals come from packages that nothing else here needs; pure Python, so the folder can be carried
# to a machine that installs nothing.
RIVALS := .rivals

rivals: $(STAMP)  ## fetch the rivals' packages into .rivals
	test -d $(RIVALS)/pytorch_optimizer || $(BIN)/python -m pip install --quiet --no-deps \
	    -c constraints.txt --target $(RIVALS) pytorch-optimizer torchzero

wins: $(STAMP) rivals  ## the fight against AdamW, Muon, SOAP and others; WINS_ARGS chooses tasks
	OMP_NUM_THREADS=1 PYTHONPATH=$(RIVALS) $(BIN)/python -m equilibrate.wins $(WINS_ARGS)

# Built as the tests build it: strictly, and with nothing fetched from anywhere.
docs: $(STAMP)  ## build the documentation site, out/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(STAMP)  ## time one iteration
	$(BIN)/python -m benchmarks.iteration

release: $(STAMP)  ## build wheel and sdist into dist, try them in empty environments (minutes)
	PYTHON=$(abspath $(BIN)/python) bash .ci/release

clean:  ## remove caches and build outputs (not .venv, not results)
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
