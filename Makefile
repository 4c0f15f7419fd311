# The two commands of a fresh checkout: `make device` runs the hardware suites on the simulated
# lab, `make test` the project's own tests. Both set up .venv first, `make device` with what the package
# needs, all others with the extra `dev`, too; neither needs root or a phone.
# `make test` leaves out, and counts at its end, tests marked `slow`, which must pass before a change
# lands: `.ci/run` and QNN_HARNESS_INSIST=1 run them, `make test ARGS="-m slow"` runs only them.
# `make nightly` runs the tests that take too long for every change, wherever they are marked so, and
# looks for new examples of all properties;
# `make coverage` prints how much of each module unit tests run;
# `make matrix` tests of the plug-in with other versions of Python, pytest and pytest-xdist (noxfile.py);
# `make atlas` writes docs/reference/error-codes.md and docs/reference/context-options.md; `make dist` the package, with a
# probe for each target that needs no compiler where it is installed; `make site` the pages of docs/;
# `make release` tags a version.

PYTHON ?= python3
VENV := .venv
# quotes for another shell, functions for another script, and `a && b || c` where c is for both
SHELLCHECK := $(VENV)/bin/shellcheck --exclude=SC2015,SC2016,SC2329
READY_DEVICE := $(VENV)/.ready-device
READY_DEV := $(VENV)/.ready-dev
ARGS ?=
# a file with the versions to install, as `.ci/run` has them: constraints.txt
CONSTRAINTS ?=
PIP_INSTALL = $(VENV)/bin/pip install --quiet --disable-pip-version-check $(addprefix -c ,$(CONSTRAINTS))
# a file at a time, since its tests share what is slow to set up; in their order, slow ones first
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder
BY_DAY := not benchmark and not nightly$(if $(QNN_HARNESS_INSIST),, and not slow)
# what loads the machine on purpose or measures times
ALONE := $(addprefix tests/nightly/test_,chaos_nightly.py farm_nightly.py performance_nightly.py \
	verdicts_under_load.py)

.PHONY: device test coverage bench nightly matrix atlas dist site lint constraints release clean

device: $(READY_DEVICE)
	@$(VENV)/bin/pytest -m device -n auto $(ARGS); code=$$?; \
	echo "Results: $(CURDIR)/reports/latest"; exit $$code

test: $(READY_DEV)
	@mkdir -p reports/tests; \
	$(VENV)/bin/pytest tests -ra -m "$(BY_DAY)" $(SIDE_BY_SIDE) --durations=10 \
	--junitxml=reports/tests/junit.xml $(ARGS); code=$$?; \
	echo "Results: $(CURDIR)/reports/tests/junit.xml"; exit $$code

# of the lines that unit tests run; what talks to devices is for other tests
coverage: $(READY_DEV)
	@$(VENV)/bin/coverage run --source=harness -m pytest tests/unit -q -m "$(BY_DAY)" $(ARGS)
	@$(VENV)/bin/coverage report --skip-covered --sort=cover

bench: $(READY_DEV)
	@$(VENV)/bin/pytest tests/benchmarks -s -m benchmark $(ARGS)

nightly: $(READY_DEV)
	@mkdir -p reports/tests; code=0; \
	$(VENV)/bin/pytest tests $(addprefix --ignore ,$(ALONE)) -ra -m "nightly or hypothesis" \
	--hypothesis-profile=nightly $(SIDE_BY_SIDE) \
	--junitxml=reports/tests/nightly.xml $(ARGS) || code=$$?; \
	$(VENV)/bin/pytest $(ALONE) -ra -m nightly --durations=30 \
	--junitxml=reports/tests/nightly-alone.xml $(ARGS) || code=$$?; \
	echo "Results: $(CURDIR)/reports/tests/nightly.xml, nightly-alone.xml"; exit $$code

matrix: $(READY_DEV)
	@$(VENV)/bin/nox $(ARGS)

atlas: $(READY_DEV)
	@$(VENV)/bin/pytest suites/test_error_codes.py --qnn all --device sim-v73 $(ARGS)
	@$(VENV)/bin/python suites/error_codes_page.py reports/latest docs/reference/error-codes.md
	@$(VENV)/bin/pytest suites/test_context_options.py --qnn all --device sim-v73,sim-v73-dsp $(ARGS)
	@$(VENV)/bin/python suites/context_options_page.py reports/latest docs/reference/context-options.md

site: $(READY_DEV)
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet
	@echo "Results: $(CURDIR)/build/site/index.html"

# reproducible: the same bytes for the same commit
dist: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
dist: $(READY_DEV)
	@rm -rf dist
	@$(VENV)/bin/python -m harness.cli.build_probes
	@$(VENV)/bin/python -m build --no-isolation --outdir dist .; code=$$?; \
	rm -rf harness/probe/shipped; exit $$code
	@$(VENV)/bin/twine check --strict dist/*
	@$(VENV)/bin/check-wheel-contents dist/*.whl
	@echo "Results: $(CURDIR)/dist"

lint: $(READY_DEV)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/mypy
	$(SHELLCHECK) .ci/run tests/android/*.sh tests/integration/transport/adb/*.sh
	$(SHELLCHECK) --shell=dash harness/transport/*.sh harness/app/*.sh
	@# scripts that stand behind a prelude are checked as a device gets them
	for package in deploy evidence; do cd $(CURDIR)/harness/$$package/device; for script in *.sh; do \
	[ $$script = prelude.sh ] || \
	cat prelude.sh $$script | $(CURDIR)/$(SHELLCHECK) --shell=dash - || exit 1; done; done

$(READY_DEVICE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/it" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	{ echo "python3-venv is missing: apt install python3-venv" >&2; exit 2; }
	@$(PIP_INSTALL) -e .
	@touch $@

$(READY_DEV): $(READY_DEVICE)
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

constraints: $(READY_DEV)
	@head -1 constraints.txt > $(VENV)/constraints.txt
	@$(VENV)/bin/pip freeze --all --exclude-editable | grep -v '^setuptools=' >> $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt

# .github/workflows/release.yml publishes the package of a tag that is pushed
release: $(READY_DEV)
	@version=$$($(VENV)/bin/python -c 'import harness; print(harness.__version__)'); \
	[ -z "$$(git status --porcelain)" ] || { echo "commit all changes first" >&2; exit 2; }; \
	grep -q "^version = \"$$version\"" pyproject.toml || \
	{ echo "pyproject.toml has another version than harness/__init__.py, $$version" >&2; exit 2; }; \
	grep -q "^## $$version - " CHANGELOG.md || \
	{ echo "CHANGELOG.md has no part of $$version: ## $$version - YYYY-MM-DD" >&2; exit 2; }; \
	git tag --annotate "v$$version" --message "qnn-harness $$version" && \
	echo "Tagged v$$version; publish it by: git push origin v$$version"

clean:
	rm -rf $(VENV) .nox build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
