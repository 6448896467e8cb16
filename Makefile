# Two commands do everything on a fresh machine with Python 3.11 or newer:
#   make quickstart    creates .venv, installs, trains and evaluates a federation
#   make test          the whole test suite
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: install quickstart test test-network test-fast lint check clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,flower,compare]'
	touch $@

quickstart: install
	$(BIN)/fedforget quickstart

test: install
	$(BIN)/python -m pytest -m "not network_faults"

test-network: install
	$(BIN)/python -m pytest -m network_faults

test-fast: install
	$(BIN)/python -m pytest -m "not slow and not network_faults"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
