# make demo    the main job on handwritten digits, on two ranks
# make test    the whole test suite
# make check   formatting, lint, types
# make         what there is
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check format clean

help:
	@sed -n 's/^# //p' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The package alone, versions pinned by constraints.txt.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing gnndist into $(VENV) (PyTorch takes a minute the first time) ..."
	@$(BIN)/pip install --quiet -c constraints.txt torch -e .
	@touch $@

# With everything the checks and tests use.
$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what the tests use ..."
	@$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/gnndist partition digits --out demo/store --overwrite
	@$(BIN)/gnndist train demo/store --ranks 2 --epochs 100 --hidden 64 --out demo/run --overwrite
	@$(BIN)/gnndist evaluate demo/run --ranks 3

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf demo build dist *.egg-info
