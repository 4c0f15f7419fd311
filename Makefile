# The two commands of a fresh checkout: `make device` runs the hardware suites on the simulated
# lab, `make test` the project's own tests. Both set up .venv first; neither needs root or a phone.
# `make nightly` runs those of the tests that take long.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
ARGS ?=

.PHONY: device test bench nightly lint clean

device: $(READY)
	@$(VENV)/bin/pytest -m device -n auto $(ARGS); code=$$?; \
	echo "Results: $(CURDIR)/reports/latest"; exit $$code

test: $(READY)
	@mkdir -p reports/tests; \
	$(VENV)/bin/pytest tests -m "not benchmark and not nightly" -n 2 --dist loadfile --junitxml=reports/tests/junit.xml $(ARGS); code=$$?; \
	echo "Results: $(CURDIR)/reports/tests/junit.xml"; exit $$code

bench: $(READY)
	@$(VENV)/bin/pytest tests/benchmarks -s -m benchmark $(ARGS)

nightly: $(READY)
	@$(VENV)/bin/pytest tests/nightly -s -m nightly $(ARGS)

lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/it" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	{ echo "python3-venv is missing: apt install python3-venv" >&2; exit 2; }
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
