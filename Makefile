# `make demo` and `make test` work in a fresh checkout; each installs its dependencies and prints their names.
.POSIX:
.SUFFIXES:

VENV = .venv
BIN = $(VENV)/bin
# Lets Python store bytecode, also if the environment forbids it: without bytecode, each start of knft takes 0.13 s more CPU time.
RUN = PYTHONDONTWRITEBYTECODE= $(BIN)/python
INSTALLED = $(VENV)/.installed

.PHONY: help demo test check types lint imports licences references docs pytest explore mutants mutate test-vm test-trixie test-cluster test-parity test-migration test-e2e test-faults image image-locks test-image packages test-packages cluster cluster-down programs churn fuzz soak bench bench-targets bench-cluster install clean

help:
	@echo 'make demo          run knft in a small cluster made of network namespaces (under a minute)'
	@echo 'make test          run "make check" and all tests on the real kernel'
	@echo 'make check         lint, type check, import contracts, licences, documentation and its references'
	@echo 'make docs          build the documentation into site/; fails on broken links and anchors'
	@echo 'make pytest        run the tests alone; ARGS="-k scenario" is passed to pytest, WORKERS=1 uses one process'
	@echo 'make explore       run property tests with random examples; ROUNDS=10 repeats them'
	@echo 'make mutants       change rule sets in over 1 000 ways and check that knft diff finds each change; CLUSTERS=3'
	@echo 'make mutate        change the source in 2 000 places, one at a time, and list what no unit test notices (an hour)'
	@echo 'make test-vm       run scenarios, sticky Services and IPVS on Linux 6.1 and 6.12, in guests of this machine (as root)'
	@echo 'make test-trixie   run the tests that load rules with libnftables of Debian 13, and some with its Python packages (as root)'
	@echo 'make test-cluster  run knft against a real etcd and kube-apiserver, built once from Go modules; ARGS selects test files'
	@echo 'make test-parity   run knft beside the real kube-proxy in random clusters, and compare packets, rules, metrics, health and conntrack; ARGS="--seed 7"'
	@echo 'make test-migration change a node from the real kube-proxy to knft and back, while clients connect; no connection may be lost'
	@echo 'make test-e2e      run Kubernetes'"'"' own end-to-end tests of Services in a cluster with knft (as root); ARGS="--subset" takes minutes'
	@echo 'make test-faults   kill, drain, upgrade and replace parts of a cluster while clients connect (as root); ARGS="--list" or ARGS="--only NAME"'
	@echo 'make image         build the container image as an OCI archive in dist/; ARGS="--variant debian13 --architecture arm64"'
	@echo 'make image-locks   pin the newest Debian packages and wheels for the image, in deploy/image/locks'
	@echo 'make test-image    build the images, compare two builds, and run knft in their files (as root)'
	@echo 'make packages      build packages for Debian 12 and 13, an sdist, a wheel and an rpm spec in dist/ (as root); ARGS="--only debian13"'
	@echo 'make test-packages build the packages twice; install, upgrade and purge them in clean roots of Debian 12 and 13 (as root)'
	@echo 'make cluster       start a Kubernetes cluster on this machine with knft as its Service proxy (as root); ARGS="--nodes 2 --proxy knft,kube-proxy"'
	@echo 'make cluster-down  remove the cluster'
	@echo 'make programs      build the Go programs of all test jobs into the cache, Kubernetes among them (20 minutes or more, once)'
	@echo 'make churn         measure latency at 10, 100 and 1 000 endpoint changes a second through the API server (eight minutes)'
	@echo 'make fuzz          search for manifests that break knft, for ten minutes; SECONDS=60 SEED=7'
	@echo 'make soak          run long tests: 100 000 steps of a random history, 100 000 changes of sticky Services, 1 000 000 connections, 200 kills; STEPS, CONNECTIONS, KILLS, SEED'
	@echo 'make bench         measure knft and kube-proxy'"'"'s rule layouts: JSON, a table, a plot (over half an hour)'
	@echo 'make bench-targets measure the targets of CPU, memory and latency of knft run (half an hour or more, idle machine); ARGS="--before DIRECTORY" measures an older version, too'
	@echo 'make bench-cluster measure knft and the real kube-proxy through an API server, 100 and 1 000 Services (ten minutes); ARGS="--sizes 10000x10"'
	@echo 'make install       create the virtual environment $(VENV); as root also install system packages'
	@echo 'make clean         remove the virtual environment, caches and the built documentation'

demo: $(INSTALLED)
	@$(RUN) -m tests.demo

test: check pytest

# Two at a time, the longest first.
check: $(INSTALLED)
	@$(MAKE) -j 2 types docs lint imports licences references

types: $(INSTALLED)
	$(BIN)/mypy

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

imports: $(INSTALLED)
	$(BIN)/lint-imports --no-logo

licences: $(INSTALLED)
	$(BIN)/reuse lint --lines

references: $(INSTALLED)
	$(RUN) -m pytest -q tests/docs

docs: $(INSTALLED)
	$(BIN)/zensical build --strict --clean --config-file mkdocs.yml

# Chromium opens the HTML report in a test; shells complete knft's commands, and groff and mandoc check the manual pages.
# Without permission to create network namespaces, the tests run in a user namespace; if that is forbidden too, they fail.
# Three processes on two cores, because many tests wait for packets that must not arrive. The hash seed makes each run the same: the
# order of sets decides which chain a random history damages.
WORKERS = 3
pytest: $(INSTALLED)
	@sh tests/present/install.sh
	@sh tests/cli/install.sh
	PYTHONHASHSEED=0 $(RUN) -m tests.support.privilege $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Each round uses other examples. Keep a failing example as an @example or as a test of its own.
ROUNDS = 1
explore: $(INSTALLED)
	@for round in $$(seq $(ROUNDS)); do HYPOTHESIS_PROFILE=explore $(RUN) -m tests.support.privilege \
	    $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m property $(ARGS) || exit 1; done

# Needs no kernel, because the rule sets are text. "make test" runs one cluster for each mode.
CLUSTERS = 3
mutants: $(INSTALLED)
	@$(RUN) -m tests.mutation $(CLUSTERS)

# A second run tests the survivors again only if their source or their tests have changed; "rm -r mutants" forgets all.
# "ARGS=knft.sync.quarantine*" selects mutants; "python -P tests/source_mutants.py show NAME" prints one.
mutate: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mutate]'
	@$(RUN) -P tests/source_mutants.py run $(ARGS)
	@$(RUN) -P tests/source_mutants.py results

# Needs no KVM. The kernels are never installed. Linux 6.1 is built once, for some minutes, from Debian's source;
# tests/vm/__init__.py describes the guests.
test-vm: $(INSTALLED)
	@sh tests/vm/install.sh
	@$(RUN) -m tests.vm $(ARGS)

# ARGS is a command to run in Debian 13's root directory instead: "make test-trixie ARGS=bash" opens a shell.
test-trixie: $(INSTALLED)
	$(RUN) -m tests.trixie $(ARGS)

# The first run builds for ten minutes or more, with Go of this machine or from PyPI. Files in ARGS replace the default ones.
test-cluster: $(INSTALLED)
	@$(RUN) -m tests.cluster $(ARGS)

# ARGS="--seed 7" runs one seed alone, "--help" lists the other options; tests/parity/__init__.py describes the test.
test-parity: $(INSTALLED)
	@$(RUN) -m tests.parity $(ARGS)

# ARGS="--mode iptables" or ARGS="--order 'start first'" runs a part.
test-migration: $(INSTALLED)
	@$(RUN) -m tests.parity.migration $(ARGS)

# ARGS="--subset" or ARGS="--focus REGEX --skip REGEX" selects specs; docs/verification.md lists those that are left out.
test-e2e: $(INSTALLED)
	@$(RUN) -m tests.e2e $(ARGS)

# ARGS="--api-seconds 60 --pods 30" makes it shorter; docs/verification.md has the results of the complete run.
test-faults: $(INSTALLED)
	@$(RUN) -m tests.faults $(ARGS)

# Needs neither root nor a container runtime; downloads go to ~/.cache/knft/image.
image: $(INSTALLED)
	@$(RUN) -m deploy.image $(ARGS)

image-locks: $(INSTALLED)
	@$(RUN) -m deploy.image --lock

test-image: $(INSTALLED)
	@sh tests/image/install.sh
	@$(RUN) -m tests.image $(ARGS)

# Root directories of Debian 12 and 13 are made once, in ~/.cache/knft/packages, for some minutes.
packages: $(INSTALLED)
	@sh tests/packages/install.sh
	@$(RUN) -m deploy.packages $(ARGS)

test-packages: $(INSTALLED)
	@sh tests/packages/install.sh
	@$(RUN) -m tests.packages $(ARGS)

# The first run builds Kubernetes, for 20 minutes or more; docs/operations/trial-cluster.md describes the cluster.
cluster: $(INSTALLED)
	@$(RUN) -m deploy.cluster up $(ARGS)

cluster-down: $(INSTALLED)
	@$(RUN) -m deploy.cluster down

programs: $(INSTALLED)
	@$(RUN) -m deploy.programs.build

churn: $(INSTALLED)
	@$(RUN) -m tests.cluster.churn $(ARGS)

# Atheris has no wheel for every Python; without it all inputs come from tests/fuzz/mutate.py.
SECONDS = 600
fuzz: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]' || echo 'fuzz: atheris cannot be installed here'
	@$(RUN) -m tests.fuzz $(SECONDS) $(SEED)

# Takes hours. The test fails if memory grows (tests/soak/memory.py).
STEPS = 100000
CONNECTIONS = 1000000
KILLS = 200
soak: $(INSTALLED)
	@$(RUN) -m tests.soak histories $(STEPS) $(SEED)
	@$(RUN) -m tests.soak sticky $(STEPS) $(SEED)
	@$(RUN) -m tests.soak connections $(CONNECTIONS) $(SEED)
	@$(RUN) -m tests.soak kills $(KILLS) $(SEED)

# ARGS="--quick" tries everything on tiny clusters; ARGS="--only knft --sizes 1000x10" measures a part.
bench: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]' || echo 'bench: matplotlib cannot be installed here'
	@$(RUN) -m tests.bench $(ARGS)
	@$(RUN) -m tests.bench.large_sync
	@$(RUN) -m tests.bench.service_counters
	@$(RUN) -m tests.bench.draining
	@$(RUN) -m tests.bench.hashing
	@$(RUN) -m tests.bench.loopback_nodeports
	@$(RUN) -m tests.bench.invalid_packets
	@sh tests/cluster/bench/install.sh
	@$(RUN) -m tests.cluster.bench.throughput

bench-targets: $(INSTALLED)
	@$(RUN) -m tests.bench.daemon_targets $(ARGS)

# ARGS="--quick" checks everything on a tiny cluster; ARGS="--sizes 10000x10" takes half an hour, because of kube-proxy.
bench-cluster: $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]' || echo 'bench-cluster: matplotlib cannot be installed here'
	@$(RUN) -m tests.cluster.bench $(ARGS)

install: $(INSTALLED)

$(INSTALLED): pyproject.toml tests/install.sh
	@sh tests/install.sh $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) mutants .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis site
