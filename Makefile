# Two commands from a fresh checkout: `make demo` and `make test`. Each installs what it needs and says so.
.POSIX:
.SUFFIXES:

VENV = .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.PHONY: help demo test check pytest mutants test-vm test-trixie test-cluster churn fuzz soak bench install clean

help:
	@echo 'make demo     a small node out of network namespaces, with knft at work on it (under a minute)'
	@echo 'make test     everything: lint, types, import contracts, and all tests on the real kernel'
	@echo 'make check    lint, types and import contracts alone'
	@echo 'make pytest   the tests alone; ARGS="-k scenario" is handed on'
	@echo 'make mutants  over 1 000 rule sets that went wrong: knft diff has to find each, and to name its Service; CLUSTERS is handed on'
	@echo 'make test-vm  the scenarios on Debian 12'"'"'s kernel 6.1, in a virtual machine; as root, a few minutes'
	@echo 'make test-trixie  the tests that load rules, in a root folder of Debian 13 with its libnftables (as root)'
	@echo 'make test-cluster  knft against a real etcd and kube-apiserver, built once from their Go modules; ARGS is handed on'
	@echo 'make churn    1 000 endpoint changes a second through them, for a minute, twice'
	@echo 'make fuzz     ten minutes of evil manifests, by mutation and by coverage; SECONDS=60 SEED=7 are handed on'
	@echo 'make soak     100 000 steps of a random history, 1 000 000 connections, 200 kills; STEPS, CONNECTIONS, KILLS and SEED are handed on'
	@echo 'make bench    what knft costs beside kube-proxy'"'"'s layouts: JSON, a table, a plot; over half an hour'
	@echo 'make install  the virtual environment in $(VENV), and as root the system packages'
	@echo 'make clean    remove the virtual environment and caches'

demo: $(INSTALLED)
	@$(BIN)/python -m tests.demo

test: check pytest

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The browser is for the page of a report. Where this user may not make network namespaces, the tests run in a user namespace; where that is forbidden, they fail.
pytest: $(INSTALLED)
	@sh tests/present/install.sh
	$(BIN)/python -m tests.support.lab.privilege $(BIN)/python -m pytest $(ARGS)

# Needs no kernel: rule sets are text. The tests have a part of it, one cluster for each mode.
CLUSTERS = 3
mutants: $(INSTALLED)
	@$(BIN)/python -m tests.interpret.mutation $(CLUSTERS)

# No KVM is needed, and the kernel is downloaded, never installed. tests/vm says how it works.
test-vm: $(INSTALLED)
	@sh tests/vm/install.sh
	@$(BIN)/python -m tests.vm $(ARGS)

# ARGS is a command to run there instead; "make test-trixie ARGS=bash" looks around.
test-trixie: $(INSTALLED)
	$(BIN)/python -m tests.trixie $(ARGS)

# The first run builds for ten minutes and more; Go is this machine's, or PyPI's. Files in ARGS replace the others.
test-cluster: $(INSTALLED)
	@$(BIN)/python -m tests.cluster $(ARGS)

churn: $(INSTALLED)
	@$(BIN)/python -m tests.cluster.churn $(ARGS)

# Atheris has no wheel for every Python; without it all the time goes into mutation.
SECONDS = 600
fuzz: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]' || echo 'fuzz: atheris cannot be installed here'
	@$(BIN)/python -m tests.fuzz $(SECONDS) $(SEED)

# Hours. Memory that is not flat is a failure; tests/soak/memory.py says how it is judged.
STEPS = 100000
CONNECTIONS = 1000000
KILLS = 200
soak: $(INSTALLED)
	@$(BIN)/python -m tests.soak histories $(STEPS) $(SEED)
	@$(BIN)/python -m tests.soak connections $(CONNECTIONS) $(SEED)
	@$(BIN)/python -m tests.soak kills $(KILLS) $(SEED)

# ARGS are handed on: "--quick" tries everything on tiny clusters, "--only knft --sizes 1000x10" measures a part.
bench: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]' || echo 'bench: matplotlib cannot be installed here'
	@$(BIN)/python -m tests.bench $(ARGS)

install: $(INSTALLED)

$(INSTALLED): pyproject.toml tests/install.sh
	@sh tests/install.sh $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
