# Two commands do everything on a bare machine: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3
VENV ?= .venv
# torch goes first and alone: a plain `pip install xdpx` may otherwise pick another, larger build of it.
TORCH ?= torch==2.13.0
# Files of tests are shared out between this many processes; 0 keeps them all in the one that was started.
WORKERS ?= 0
TESTS := -m pytest -n $(WORKERS) --dist loadfile
BIN := $(abspath $(VENV))/bin
STAMP := $(VENV)/.installed
DEMO := demo

.PHONY: help install demo test quick lint format catalogue docs bench clean

help:
	@echo "make demo       train, evaluate, predict and plot a real text classifier (under five minutes)"
	@echo "make test       lint and every test; WORKERS=2 shares them out between two processes"
	@echo "make quick      the fast tests only"
	@echo "make lint       ruff, mypy and the frozen tables"
	@echo "make bench      speed side by side with peers; writes benchmarks/RESULTS.md"
	@echo "make docs       the documentation site in site/"
	@echo "make catalogue  refresh the frozen table of parameters after changing a declaration"

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'XDPX needs Python 3.11 or newer; this is ' + sys.version.split()[0] + '. Name another one: make PYTHON=python3.12 ...')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	echo "$(TORCH)" > $(VENV)/constraints.txt
	PIP_CONSTRAINT=$(abspath $(VENV))/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	PATH="$(BIN):$$PATH" bash examples/demo/run.sh $(DEMO)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	PATH="$(BIN):$$PATH" $(BIN)/python $(TESTS)

quick: $(STAMP)
	PATH="$(BIN):$$PATH" $(BIN)/python $(TESTS) -m "not slow"

catalogue: $(STAMP)
	$(BIN)/python -m xdpx.config.catalogue

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

bench: $(STAMP)
	PIP_CONSTRAINT=$(abspath $(VENV))/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	PATH="$(BIN):$$PATH" $(BIN)/python -m benchmarks

clean:
	rm -rf $(DEMO) site build .pytest_cache .mypy_cache .ruff_cache
