# Two commands do everything on a fresh machine with Python 3.11 or newer:
#   make quickstart    creates .venv, installs, trains and evaluates a federation
#   make test          the whole test suite
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# Files of tests run side by side, one process more than there are cores; tests that measure time run by themselves
# afterwards, where nothing disturbs them.
PYTEST       := $(BIN)/python -m pytest
SIDE_BY_SIDE := $(PYTEST) -n auto --dist loadfile --no-loadscope-reorder

.PHONY: install quickstart test test-all test-network test-fast lint docs check clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,flower,service,compare,docs]'
	touch $@

quickstart: install
	$(BIN)/fedforget quickstart

test: install
	$(SIDE_BY_SIDE) -m "not alone and not network_faults"
	$(PYTEST) -m "alone and not network_faults"

# The same with ten times as many examples of each property.
test-all: install
	$(SIDE_BY_SIDE) -m "not alone and not network_faults" --hypothesis-profile thorough
	$(PYTEST) -m "alone and not network_faults" --hypothesis-profile thorough

test-network: install
	$(PYTEST) -m network_faults

test-fast: install
	$(SIDE_BY_SIDE) -m "not slow and not alone and not network_faults"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation with the API reference, in site/. Warnings are errors.
docs: install
	$(BIN)/mkdocs build --strict

check: lint test

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
