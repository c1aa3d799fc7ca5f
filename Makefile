# Two commands do everything: `make demo` and `make test`. Needs python3 (>= 3.11, with venv) and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
GROUP := captures/kafkajs-group-mock.pcapng
OLD := captures/sarama-old-0.9.0.0-old.pcapng

.PHONY: demo test test-brokers bench check format lock clean

# What it takes to run kwsniff, and kwsniff itself. What is compiled is compiled again when its source changes.
$(VENV)/.libraries: requirements.lock
	@echo 'Installing into $(VENV); this takes about a minute.'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.runtime: $(VENV)/.libraries pyproject.toml $(wildcard setup.py kwsniff/*.pyx kwsniff/*/*.py[xi] kwsniff/*/*.px[di])
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# What it takes to change it.
$(VENV)/.installed: $(VENV)/.runtime requirements-dev.lock
	$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

demo: $(VENV)/.runtime
	@printf '\n1. Why does this consumer group rebalance? Requests of a capture, each with its answer, filtered.\n\n'
	$(BIN)/kwsniff decode --quiet --format table --filter 'size(kwsniff.errors) > 0 || requestHeader.requestApiKeyName in ["JOIN_GROUP", "SYNC_GROUP", "LEAVE_GROUP"]' $(GROUP)
	@printf '\n   Each time another member joins, the others hear REBALANCE_IN_PROGRESS and join again. The answers to\n'
	@printf '   LEAVE_GROUP are short by a field: a bug of the broker in this capture, and shown as such.\n'
	@printf '\n2. The first of these errors as programs get it: a JSON object per line (here spread over many).\n\n'
	$(BIN)/kwsniff decode --quiet --filter 'size(kwsniff.errors) > 0' $(GROUP) | head -n 1 | $(PYTHON) -m json.tool
	@printf '\n3. Which client breaks when the brokers become Kafka 4.0? The exit status is 1 when one does.\n\n'
	$(BIN)/kwsniff audit --target 4.0 $(OLD); echo "exit status $$?"
	@printf '\n4. The main job: all captures of this folder, decoded to JSON lines. The summary counts what they hold.\n\n'
	@mkdir -p build
	$(BIN)/kwsniff decode --output build/demo.jsonl captures/*
	@printf '\n   Faults are expected here: some captures were cut, thinned out or encrypted on purpose, and the mock\n'
	@printf '   brokers in many of them send bytes too many. What cannot be decoded is counted, never passed over.\n'
	@printf '\nThe lines are in build/demo.jsonl. Go on with: . $(BIN)/activate; kwsniff --help\n'

test: $(VENV)/.installed
	$(BIN)/python -m pytest

# The proxy between unchanged clients and real Apache Kafka, three nodes of 4.x and one of 3.9: three minutes. Needs Linux,
# a JDK >= 17 and Maven with Maven Central the first time (90 MB, kept in ~/.cache/kwsniff or $KWSNIFF_CACHE); says so and
# skips where one of them is not there. No Docker. One test: make test-brokers BROKERS="-k share"
test-brokers: $(VENV)/.installed
	$(BIN)/python -m pytest tests/brokers --brokers $(BROKERS)

# kwsniff beside tshark and the Python codecs: half an hour, 1 GB of disk. See bench/README.md.
# To try it: make bench BENCH="--scale 0.01 --runs 1"
bench: $(VENV)/.bench
	$(BIN)/python bench/run.py $(BENCH)

$(VENV)/.bench: $(VENV)/.installed requirements-bench.lock
	$(PIP) install --require-hashes -r requirements-bench.lock
	@touch $@

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Needs uv (https://docs.astral.sh/uv/). Keeps the versions that still fit; delete a lock file to renew it.
LOCK := uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11
lock:
	$(LOCK) --group dev pyproject.toml --output-file requirements-dev.lock
	$(LOCK) --group build --constraint requirements-dev.lock pyproject.toml --output-file requirements.lock
	$(LOCK) --group bench --constraint requirements-dev.lock pyproject.toml --output-file requirements-bench.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
