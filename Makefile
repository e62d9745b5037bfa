# `make demo` and `make test` work on a fresh machine with Python 3.11 or newer; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint bench clean

help:
	@echo "make demo   explore Deepsea with VBE, VBE-SL and epsilon-greedy side by side (a minute or two)"
	@echo "make test   run all tests"
	@echo "make bench  measure speed on this machine"

# bsuite's own Deepsea is compared with ours in the tests. Its dependencies are 500 MB, of which that one file needs dm-env alone.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable ".[test]"
	$(BIN)/pip install --quiet --no-deps "bsuite==0.3.6"
	touch $@

demo: $(VENV)/ready
	$(BIN)/python examples/deepsea_coverage.py

test: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses 2 --dist loadfile

bench: $(VENV)/ready
	$(BIN)/vbe bench

clean:
	rm -rf $(VENV)
