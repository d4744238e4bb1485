# `make table1`, `make all`, `make test`: each builds the locked environment first.
VENV ?= .venv
PYTHON ?= python3
CONFIG ?= config/tiny.yaml
BIN := $(VENV)/bin
RUN := PATH="$(abspath $(BIN)):$$PATH"

.PHONY: table1 table2 all report audit test check environment benchmark-environments clean
.DEFAULT_GOAL := table1

table1: environment
	$(RUN) snakemake results/table1.csv --cores all --configfile $(CONFIG)

table2: environment
	$(RUN) snakemake results/table2.csv --cores all --configfile $(CONFIG)

all: environment
	$(RUN) snakemake all --cores all --configfile $(CONFIG)

# Snakemake's own report, of what `make all` made.
report: environment
	$(RUN) snakemake all --report results/report.html --configfile $(CONFIG)

audit: environment
	$(RUN) snakemake results/audit/report.html --cores all

test: environment
	$(RUN) pytest

check: environment
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) snakefmt --check Snakefile workflow baselines eval
	$(RUN) snakemake --lint

# Without them, the tests that need a benchmark's own package are skipped.
benchmark-environments: environment
	$(RUN) snakemake --cores all .environments/bfcl-v3/installed .environments/bfcl-v4/installed \
	  .environments/evalplus/installed

environment: $(VENV)/installed

$(VENV)/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 13) else "PYTHON: found %d.%d, allowed: 3.11 or 3.12, as in make PYTHON=python3.11" % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf $(VENV) .environments .snakemake results
