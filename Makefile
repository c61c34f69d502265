# The tasks of this project. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help system-deps venv lock contract hbase hbase-image hbase-cluster lint docs check check-tests test test-long tests test-costs demo cluster-demo bench soak soak-cluster mutants clean

PYTHON ?= python3
PY := .venv/bin/python
METADATA ?= sqlite
PYTEST_ARGS ?=
TESTS ?= not benchmark and not long
WORKERS ?= 4
ROUNDS ?= 20
PAIR_ROUNDS ?= 10
SCHEDULES ?= 200
SEED ?=
UPGRADE ?= 0
MUTANTS ?= 40
export PYTHON METADATA

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

system-deps: ## Install from Debian what is missing, start a container engine (NO_SYSTEM_DEPS=1: touch nothing)
	@docker/system-deps.sh all

venv: ## Create .venv with the project, its demo data and its development tools
	@docker/venv.sh

lock: venv ## Write the lock files anew from pyproject.toml (UPGRADE=1: with the newest versions that it allows)
	@UPGRADE=$(UPGRADE) docker/lock.sh

contract: venv ## Write the Python modules of the wire contract from bookkeeper/rpc/contract/bookkeeper.thrift
	@$(PY) -m tools.contract

hbase: ## Put the real HBase together under build/hbase (one JVM, for tests and demos: no sync to disk)
	@docker/system-deps.sh hbase
	@docker/hbase/assemble.sh || { [ "$${NO_SYSTEM_DEPS:-0}" = 1 ] && echo "no HBase: its tests will be skipped" >&2; }

hbase-image: system-deps hbase ## Build the container image of the real HBase, where an engine answers
	@docker/hbase/image.sh || echo "no image of HBase: tests with containers will be skipped" >&2

hbase-cluster: ## Put an HBase cluster together under build/hbase-cluster, for the long tests (servers of several processes, on HDFS)
	@docker/system-deps.sh hbase
	@docker/hbase/assemble.sh cluster || { [ "$${NO_SYSTEM_DEPS:-0}" = 1 ] && echo "no HBase cluster: its tests will be skipped" >&2; }

lint: venv ## Style, format, types, and the direction of imports
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports

docs: venv ## The documentation as a site, under build/site (a warning is an error)
	@$(PY) -m sphinx -W --keep-going -n -q -b html docs build/site
	@echo build/site/index.html

check: ## In minutes: lint, the unit tests of what changed against main, a schedule of each family, a row that is shipped
	@docker/system-deps.sh runtime
	@docker/venv.sh
	@$(MAKE) --no-print-directory --jobs=2 lint check-tests

check-tests: export JDK_JAVA_OPTIONS ?= -XX:TieredStopAtLevel=1
check-tests: export PYTHONDONTWRITEBYTECODE :=
check-tests: venv
	@docker/in-memory.sh $(PY) -m tests.support.check $(PYTEST_ARGS)

test: system-deps ## Lint and all tests but the long ones, real HBase and containers included (WORKERS=4 at once: some tests wait for processes)
	@$(MAKE) --no-print-directory --jobs=2 lint tests

test-long: system-deps hbase-cluster ## The long tests: matrices of kills on real processes, more seeds, other places for the books
	@$(MAKE) --no-print-directory tests TESTS="long and not machines"
	@$(MAKE) --no-print-directory tests TESTS="long and machines" WORKERS=2

# Lint runs beside it: mypy takes one core for a minute. JVMs of tests live for seconds, too short for the second JIT
# compiler to pay back what it costs (JDK_JAVA_OPTIONS= runs them as operators do). pytest keeps the modules that it has
# rewritten: each worker reads all of them. In a fresh clone one process writes them first; else each worker does.
tests: export JDK_JAVA_OPTIONS ?= -XX:TieredStopAtLevel=1
tests: export PYTHONDONTWRITEBYTECODE :=
tests: venv hbase-image
	@[ -d tests/unit/__pycache__ ] || $(PY) -m pytest --collect-only -qq >/dev/null 2>&1 || true # the run says what is wrong
	@docker/in-memory.sh $(PY) -m pytest -m "$(TESTS)" --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-costs: PYTEST_ARGS += -p tests.support.costs.plugin --costs=build/test-costs.jsonl
test-costs: system-deps tests ## The tests of make test, and what each costs: CPU with all processes that it starts, processes, JVMs (TESTS="not benchmark": the long ones, too)

demo: ## Two clusters, outages, proof (METADATA=hbase: the books in a real HBase)
	@docker/system-deps.sh runtime
	@docker/venv.sh
ifeq ($(METADATA),hbase)
	@docker/system-deps.sh hbase
	@docker/hbase/assemble.sh
endif
	@$(PY) -m shell.demo

cluster-demo: ## A cluster on three machines (namespaces; root), with ZooKeeper and HBase, its peer, kills of processes and machines, proof
	@docker/system-deps.sh machines
	@docker/venv.sh
	@docker/hbase/assemble.sh
	@docker/in-memory.sh $(PY) -m tests.cluster_demo

bench: export PYTHONDONTWRITEBYTECODE :=
bench: ## Measure, and write the figures beside their references
	@docker/system-deps.sh runtime
	@docker/venv.sh
	@$(PY) -m tests.benchmarks

soak: ## Run clusters under random faults of processes, network, disk, HBase, and under attack by holders of secrets (ROUNDS=20 of three hosts, PAIR_ROUNDS=10 of one; SCHEDULES=200 simulated ones before; SEED=... to repeat a run)
	@docker/system-deps.sh runtime
	@docker/venv.sh
	@docker/system-deps.sh hbase
	@docker/hbase/assemble.sh
	@$(PY) -m tests.soak --rounds $(ROUNDS) --pair-rounds $(PAIR_ROUNDS) --schedules $(SCHEDULES) $(if $(SEED),--seed $(SEED))

soak-cluster: ## Run a cluster on three machines (namespaces; root) and its peer under random faults of processes, machines, network, ZooKeeper, HBase and clocks (ROUNDS=20; SEED=... to repeat a run)
	@docker/system-deps.sh machines
	@docker/venv.sh
	@docker/hbase/assemble.sh
	@$(PY) -m tests.soak.machines --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

mutants: ## Change the code in one place at a time, and list what no test notices (MUTANTS=40; SEED=... to repeat a run)
	@docker/system-deps.sh runtime
	@docker/venv.sh
	@$(PY) -m tests.mutants --count $(MUTANTS) $(if $(SEED),--seed $(SEED))

clean: ## Remove what was built, not the engine's images; unmount the disks of tests that were killed
	@[ ! -x $(PY) ] || $(PY) -m tests.support.small_disk
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	@find build -mindepth 1 -maxdepth 1 ! -name dockerd.log -exec rm -rf {} + 2>/dev/null || true
