# Two commands do everything on a bare machine: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3
VENV ?= .venv
# torch goes first and alone: a plain `pip install xdpx` may otherwise pick another, larger build of it.
TORCH ?= torch==2.13.0
# Groups of tests are shared out between this many processes; 0 keeps them all in the one that was started. One more than two cores:
# some tests wait for servers, clusters and processes of their own, and with two processes the cores were idle for a tenth of the time.
WORKERS ?= 3
# A file of versions to install exactly. By default those that all tests ran with, where they are for this Python and machine: pip then
# needs no minutes to find versions that go together. `make LOCK= install` takes the newest that fit, as every other machine does.
FITS := import sys, platform as p; print(sys.version_info[:2] == (3, 11) and (p.system(), p.machine()) == ("Linux", "x86_64"))
ifeq ($(shell $(PYTHON) -c '$(FITS)' 2>/dev/null),True)
LOCK ?= requirements/dev.txt
endif
# Tests create some hundred thousand small files: in memory, where there is room, that takes a fifteenth less CPU time.
SCRATCH := $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null && echo /dev/shm || echo /tmp)
BIN := $(abspath $(VENV))/bin
TESTS = PATH="$(BIN):$$PATH" TMPDIR="$${TMPDIR:-$(SCRATCH)}" $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
STAMP := $(VENV)/.installed
CORE := $(VENV)/.installed-core
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
DEMO := demo

# Byte code of torch and of others is written when they are first imported, not when they are installed. Where the environment says to
# write none, as images for containers do, every process would compile them anew: half of the CPU seconds that it takes to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test nightly faults quick lint format catalogue docs bench locks clean

help:
	@echo "make demo       train, evaluate, predict and plot a real text classifier (under two minutes)"
	@echo "make test       lint and the tests in their short form, shared out between three processes; WORKERS=0: in one"
	@echo "make nightly    every test in its long form: whole tables, and programs of many processes"
	@echo "make faults     kills, damage and careless input, ten times as long as make nightly does"
	@echo "make quick      the fast tests only"
	@echo "make lint       ruff, mypy and the frozen tables"
	@echo "make bench      speed side by side with peers; writes benchmarks/RESULTS.md"
	@echo "make locks      write requirements/*.txt anew, for a release (needs uv)"
	@echo "make docs       the documentation site in site/"
	@echo "make catalogue  refresh the frozen table of parameters after changing a declaration"

install: $(STAMP)

# What `make demo` needs: the package and nothing beside it. `make test` completes the environment. Byte
# code is written when a module is first imported, which is a small part of what is installed.
$(CORE): pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'XDPX needs Python 3.11 or newer; this is ' + sys.version.split()[0] + '. Name another one: make PYTHON=python3.12 ...')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ echo "$(TORCH)"; $(if $(LOCK),grep -v '^torch==' $(LOCK),true); } > $(VENV)/constraints.txt
	$(PIP) --constraint $(VENV)/constraints.txt $(TORCH)
	PIP_CONSTRAINT=$(abspath $(VENV))/constraints.txt $(PIP) -e .
	touch $(CORE)

$(STAMP): $(CORE)
	PIP_CONSTRAINT=$(abspath $(VENV))/constraints.txt $(PIP) -e '.[dev]'
	touch $(STAMP)

demo: $(CORE)
	PATH="$(BIN):$$PATH" bash examples/demo/run.sh $(DEMO)

# What the environment has is what is locked; the rest is resolved. The comments on top of each file stay.
COMPILE := uv pip compile --quiet --no-header --no-annotate --python-version 3.11.7 --python-platform x86_64-manylinux_2_31
LOCKED := $(VENV)/locked.txt

locks: $(STAMP)
	$(BIN)/python -m pip list --format=freeze | grep -v -i -e '^xdpx' -e '^torch==' > $(LOCKED); echo "$(TORCH)" >> $(LOCKED)
	for name in torch dev jax-cpu jax-cuda13 jax-tpu; do \
		case $$name in torch) extras= ;; dev) extras="--extra dev" ;; *) extras="--extra jax --extra gcs --extra sentencepiece" ;; esac; \
		case $$name in jax-cuda13) jax='jax[cuda13]' ;; jax-tpu) jax='jax[tpu]' ;; *) jax= ;; esac; \
		gone=$$([ $$name = jax-cuda13 ] && echo '^#' || echo '^\(nvidia\|cuda\|triton\)'); \
		echo "$$jax" > $(VENV)/kind.in; \
		$(COMPILE) $$extras --constraint $(LOCKED) pyproject.toml $(VENV)/kind.in \
			-o $(VENV)/lock.txt || exit 1; \
		{ grep '^#' requirements/$$name.txt; sed -e '/^--/d' -e '/^#/d' -e "/$$gone/d" $(VENV)/lock.txt; } > $(VENV)/whole.txt; \
		mv $(VENV)/whole.txt requirements/$$name.txt; \
	done

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mypy, which takes one core for a minute or two, runs beside the tests; what it finds is printed below them, and fails as they do.
test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy > $(VENV)/mypy.txt 2>&1 & types=$$!; \
		$(TESTS); tests=$$?; \
		wait $$types || { cat $(VENV)/mypy.txt; exit 1; }; exit $$tests

nightly: $(STAMP)
	XDPX_NIGHTLY=1 $(TESTS)

faults: $(STAMP)
	XDPX_NIGHTLY=1 XDPX_KILLS=10 $(TESTS) tests/faults tests/careless tests/datasets/test_building_killed.py \
		tests/journeys/test_equal_devices.py tests/journeys/test_many_devices.py tests/experiments/running/test_training.py

quick: $(STAMP)
	$(TESTS) -m "not slow"

catalogue: $(STAMP)
	$(BIN)/python -m xdpx.config.catalogue

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

bench: $(STAMP)
	PIP_CONSTRAINT=$(abspath $(VENV))/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	PATH="$(BIN):$$PATH" $(BIN)/python -m benchmarks

clean:
	rm -rf $(DEMO) site build .pytest_cache .mypy_cache .ruff_cache
