# The way to do everything. Each target makes the environment it needs; a changed pyproject.toml renews it.
#
#   make demo         a short tour of what works
#   make test         the tests                     make test ARGS="-k scan -x"
#   make test-peers   the tests against PyTorch and JAX
#   make bench        the benchmarks                make bench ARGS="softmax gemm --quick"
#   make bench-plots  how cost grows, and the plots of the docs
#   make compared     numerical, symbolic and automatic differentiation: the plots of the docs
#   make supported    the page of supported functions, from the op table
#   make lint types docs clean

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

VENV := .venv
PEERS := .venv-peers
PIP_FLAGS := -qq --disable-pip-version-check

.PHONY: demo test test-peers lint types supported docs bench bench-plots compared clean
.NOTPARALLEL:

demo: $(VENV)/.installed
	@$(VENV)/bin/wonderland tour

test: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest tests bench -n $(JOBS) $(ARGS)

# Only here are the peers needed: exactly the PyTorch that pyproject.toml names, and JAX.
test-peers: $(PEERS)/.dev
	@$(PEERS)/bin/python -m pytest tests -m peers -n $(JOBS) $(ARGS)

lint: $(VENV)/.dev
	@$(VENV)/bin/ruff check .

types: $(VENV)/.dev
	@$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	@$(VENV)/bin/python tests/type_completeness.py

supported: $(VENV)/.installed
	@$(VENV)/bin/python -m wonderland.testing.supported docs/supported.md

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q --strict
	@echo "site/index.html"

# The table, with table.json and table.png in bench/results.
bench: $(PEERS)/.bench
	@$(PEERS)/bin/python -m bench $(ARGS) --out bench/results

# Measures how cost grows, and draws that and the last table into docs/images; ARGS=--redraw only draws.
bench-plots: $(PEERS)/.bench
	@$(PEERS)/bin/python -m bench.growth $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.strategies $(ARGS) --out bench/results --images docs/images
	@$(PEERS)/bin/python -m bench.newton --images docs/images
	@$(PEERS)/bin/python -m bench.sparse $(ARGS) --out bench/results --images docs/images

# Counts, so that nothing but the seconds depends on the machine; ARGS="error memory" for some of the plots.
compared: $(VENV)/.dev
	@$(VENV)/bin/python -m bench.compared $(ARGS) --images docs/images

clean:
	rm -rf $(VENV) $(PEERS) build dist site .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

define make_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "wonderland needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }
@echo "preparing $(@D)"
@$(PYTHON) -m venv $(@D)
endef

$(VENV)/.installed: pyproject.toml
	$(make_venv)
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) -e .
	@$(VENV)/bin/python -m compileall -q wonderland
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(VENV)/bin/python -m pip install $(PIP_FLAGS) -e '.[docs]'
	@touch $@

$(PEERS)/.bench: $(PEERS)/.dev
	@$(PEERS)/bin/python -m pip install $(PIP_FLAGS) -e '.[bench]'
	@touch $@

$(PEERS)/.dev: pyproject.toml
	$(make_venv)
	@$(PEERS)/bin/python -m pip install $(PIP_FLAGS) -e '.[dev,peers]'
	@touch $@
