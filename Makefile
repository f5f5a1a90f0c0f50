# What there is to do in a checkout. Python's packages go into .venv only, never into the system.

.DEFAULT_GOAL := help

# Processes that share the tests, a class of them at a time: most of the time they wait.
WORKERS ?= 4
export PYTHON

.PHONY: help
help: ## show this list
	@awk -F ': .*## ' '/^[a-z]+:.* ## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: try
try: .venv/.with-cli ## see joblock work, on the embedded store
	@scripts/try.sh

.PHONY: check
check: setup ## run the tests (ARGS="-k sqlite" hands arguments to pytest)
	@scripts/check.sh $(WORKERS) $(ARGS)

.PHONY: lint
lint: .venv/.with-dev ## style, types and the floors of the package
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/pyright --pythonpath .venv/bin/python
	.venv/bin/lint-imports

.PHONY: model
model: packages ## check the protocol's model
	model/check.sh

.PHONY: bench
bench: setup ## measure joblock and its peers (ARGS="--quick redis" for a part)
	.venv/bin/python -m benchmarks.peers
	.venv/bin/python -m benchmarks $(ARGS)

.PHONY: setup
setup: packages .venv/.with-dev ## install what the tests need: Debian packages, .venv

.PHONY: clean
clean: ## remove .venv, caches and built files
	rm -rf .venv .hypothesis .import_linter_cache .pytest_cache .ruff_cache build dist

.PHONY: packages
packages:
	@scripts/debian-packages.sh

.venv/.with-cli: pyproject.toml .venv/bin/python
	@scripts/venv.sh cli

# dev includes cli
.venv/.with-dev: pyproject.toml .venv/bin/python
	@scripts/venv.sh dev
	@touch .venv/.with-cli

# It is missing in a new checkout, and when the interpreter it links to has gone: venv.sh mends both.
.venv/bin/python: ;
