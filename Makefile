# `make` lists the targets. Each does all it needs on a fresh Debian machine.
.DEFAULT_GOAL := help
.PHONY: help explore test golden lab doctor lint format clean setup setup-test

MODEL ?= efficientnet-lite0
OUT ?= build/explore
ARGS ?=
export PYTHON SYSTEM

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  MODEL=$(MODEL) OUT=$(OUT) for explore; ARGS='...' goes to the command behind a target;"
	@echo "  SYSTEM=no installs nothing outside .venv; PYTHON=python3.12 chooses the interpreter."

explore: setup ## Quantize a model, run it on every backend, compare, write a report
	@mkdir -p $(dir $(OUT))
	@.venv/bin/qtoolkit explore $(MODEL) --out $(OUT) $(ARGS)

test: setup-test ## Run all tests
	@.venv/bin/python -m pytest $(ARGS)

golden: setup-test ## Rewrite the golden texts; read the difference before you commit
	@QTOOLKIT_UPDATE_GOLDEN=1 .venv/bin/python -m pytest -q tests

lab: setup ## Open the notebooks in JupyterLab
	@.venv/bin/qtoolkit lab $(ARGS)

doctor: setup ## Say what is installed, what is missing and what mends it
	@.venv/bin/qtoolkit doctor $(ARGS)

lint: setup ## Check style and types
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

format: setup ## Put every file into the project's style
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

clean: ## Remove .venv, build and all caches
	@rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@scripts/setup

setup-test:
	@scripts/setup test
