# Set-up, tests and the demo of Regraft. `make help` lists the targets.
# PYTHON chooses the interpreter (3.11 or newer), for example `make setup PYTHON=python3.12`.

PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && exit; done; echo python3)
BIN := .venv/bin
LOCKS := pyproject.toml requirements.lock requirements-java.lock infra/jars.lock
# One stamp for each content of the locks: unchanged locks make every later set-up a look at one file.
STAMP := .venv/set-up-$(shell cat $(LOCKS) | sha256sum | cut -c1-16)
# Java, jars, and archives of their classes, which are made again when what trains them has changed.
JAVA_STAMP := .venv/java-$(shell cat $(LOCKS) infra/local/train_start.py | sha256sum | cut -c1-16)
# What only tests, linters and the build of the documents need, is installed only for these.
DEV_STAMP := .venv/dev-$(shell cat $(LOCKS) requirements-dev.lock lab/pyproject.toml | sha256sum | cut -c1-16)
# Compiled again when its sources have changed; `make clean` leaves it.
SEARCH_STAMP := .venv/search-$(shell cat requirements.lock regraft/overlay/tree/compiled_*.py | sha256sum | cut -c1-16)
INSTALL := tests/house/install_packages.py

# Tests start hundreds of processes: with this, each would compile again what the others have compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup dev test test-quick test-real test-lab lint mutate demo docs doctor pin-images clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(JAVA_STAMP) $(SEARCH_STAMP) ## Make .venv, install what Regraft needs to run, get Java and jars (quick when done before)

dev: $(DEV_STAMP) $(JAVA_STAMP) $(SEARCH_STAMP) ## The same, and what tests and linters need

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Regraft needs Python 3.11 or newer, but '$(PYTHON)' is not: install one and run 'make setup PYTHON=python3.11'."; \
		exit 1; }
	@echo "Set-up: Python packages (some 600 MB) into .venv, Kafka, Spark's jars and, where there is none, Java into .cache."
	@echo "It takes two to four minutes, once; the last of them goes into archives with which Kafka and Spark start sooner."
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm -f .venv/set-up-* && touch $@

$(JAVA_STAMP): $(STAMP)
	$(BIN)/python -m regraft.infra.local.set_up
	@rm -f .venv/java-* && touch $@

# Without it, the first controller compiles.
$(SEARCH_STAMP): $(STAMP)
	@$(BIN)/python -m regraft.infra.local.compile_search || true
	@rm -f .venv/search-* && touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python $(INSTALL) requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e lab
	@rm -f .venv/dev-* && touch $@

# Every worker reads every file that it is given, which takes longer than some of these tests.
WITH_SERVERS = $$(grep -rlE 'mark\.stack' tests --include='test_*.py')
# The longest files begin, so that both workers end at the same time.
LONGEST := tests/streaming/test_run_job.py tests/regraft/demo/test_demo_stack.py \
	tests/regraft/test_documented_commands.py tests/streaming/test_spark_cluster.py
WITH_SPARK = $(LONGEST) $$(grep -rlE 'mark\.spark' tests --include='test_*.py' | grep -vxF $(LONGEST:%=-e %))

# Half of the time, tests with servers wait, and those with Spark a fifth of it: the quick ones run beside them, at the lowest
# priority, so that they fill these gaps and delay nobody. What they print comes in one piece, at their end. Beside Spark
# they may get a hundredth of a core for minutes, which no test mistakes for hanging.
test: export SKIPS_FILE := out/skipped-tests.txt
test: lint ## Check style, types and imports, then run every test (real Kafka, Spark and Valkey included)
	@mkdir -p out && rm -f $(SKIPS_FILE)
	$(MAKE) --no-print-directory --jobs 2 test-quick test-real

test-quick: export PATIENCE_S := 1200
test-quick: dev
	nice -n 19 $(BIN)/python -m pytest -m "not spark and not stack" --ignore tests/house -n logical --dist worksteal \
		--timeout 3600 > out/quick-tests.txt 2>&1; code=$$?; cat out/quick-tests.txt; exit $$code

test-real: dev
	$(BIN)/python -m pytest -m "stack and not spark" -n 3 --dist loadfile $(WITH_SERVERS)
	$(BIN)/python -m pytest -m spark -n 2 --dist loadfile --no-loadscope-reorder $(WITH_SPARK)

test-lab: dev ## Run the tests of the lab: the papers' evaluations and their yardsticks
	$(BIN)/python -m pytest lab/tests -n auto --dist worksteal

lint: dev ## Check style, types, import contracts and the rules of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/house -n auto

mutate: dev ## Take each safeguard out of the protocol and see that a test notices
	$(BIN)/python -m tests.mutations

demo: setup ## Run the whole loop on real input; results come to out/demo/
	$(BIN)/regraft demo

docs: setup .venv-docs/set-up ## Build the documents as a site in out/site/; fails where a link leads nowhere
	$(BIN)/python -m tests.house.build_site .venv-docs/bin/mkdocs

.venv-docs/set-up: requirements-docs.lock
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(INSTALL) requirements-docs.lock
	@touch $@

doctor: setup ## Say what is there, what is missing, what to do
	$(BIN)/regraft doctor

pin-images: setup ## Write the digests of others' images into Dockerfile, compose file and manifests (asks Docker)
	$(BIN)/python -m tests.house.pin_images

clean: ## Remove results and tool caches; .venv, .cache (Java, jars) and the compiled search stay
	rm -rf out dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name '*.pyc' -path '*/__pycache__/*' -not -path './.venv*' -delete
