# `make demo` and `make test` work on a fresh machine with Python 3.11 or newer; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

PEERS := .venv-peers

.PHONY: help demo test bench clean

help:
	@echo "make demo   explore Deepsea with VBE, VBE-SL and epsilon-greedy side by side (a minute or two)"
	@echo "make test   run all tests"
	@echo "make bench  measure speed on this machine, beside other libraries (some twelve minutes)"

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

# Peers pin older packages, and pull gigabytes of CUDA unless PyTorch is there before them.
$(PEERS)/ready: pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --upgrade pip
	$(PEERS)/bin/pip install --quiet torch==2.13.0
	$(PEERS)/bin/pip install --quiet --editable ".[peers]"
	$(PEERS)/bin/pip install --quiet --no-deps "bsuite==0.3.6"
	touch $@

bench: $(VENV)/ready $(PEERS)/ready
	$(BIN)/vbe bench --peers-python $(PEERS)/bin/python --json results/bench.json --markdown docs/performance.md

clean:
	rm -rf $(VENV) $(PEERS)
